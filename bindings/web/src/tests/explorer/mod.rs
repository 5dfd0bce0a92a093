//! The page in a browser, used as by a person: files are chosen, keys pressed, pictures taken.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use serde_json::{Value, json};
use testkit::browser::Browser;
use testkit::scratch::Scratch;

/// Keys as WebDriver names them.
pub const ENTER: char = '\u{e007}';
pub const DOWN: char = '\u{e015}';
pub const END: char = '\u{e010}';
pub const HOME: char = '\u{e011}';
pub const BACKSPACE: char = '\u{e003}';
pub const ESCAPE: char = '\u{e00c}';

/// Longest wait for what takes a moment.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Explorer {
    browser: Browser,
    downloads: PathBuf,
}

impl Explorer {
    pub fn start(test: &str, page: &Path, scratch: &Scratch) -> Option<Explorer> {
        let browser = Browser::start(test)?;
        let downloads = scratch.join("downloads");
        fs::create_dir_all(&downloads).unwrap();
        browser.devtools(
            "Browser.setDownloadBehavior",
            &json!({ "behavior": "allow", "downloadPath": downloads }),
        );
        browser.open(page);
        Some(Explorer { browser, downloads })
    }

    pub fn downloads(&self) -> &Path {
        &self.downloads
    }

    pub fn run(&self, script: &str) -> Value {
        self.browser.run(script)
    }

    /// Waits until an expression of the page is true.
    pub fn wait(&self, condition: &str) {
        self.wait_for(condition, PATIENCE);
    }

    pub fn wait_for(&self, condition: &str, patience: Duration) {
        let begun = Instant::now();
        while self.run(&format!("try {{ return Boolean({condition}) }} catch {{ return false }}")) != true {
            if begun.elapsed() > patience {
                let alert = self.text("#alert");
                panic!("never: {condition}\n{alert}\n{}\n{:?}", self.text("main"), self.complaints());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn text(&self, selector: &str) -> String {
        let text = self.run(&format!("return document.querySelector({selector:?})?.innerText ?? ''"));
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Chooses a file as the dialog of the browser does.
    pub fn pick(&self, image: &Path) {
        self.pick_as("#file", &[image]);
    }

    /// Gives files to an input.
    pub fn pick_as(&self, selector: &str, files: &[&Path]) {
        let document = self.browser.devtools("DOM.getDocument", &json!({}));
        let question = json!({ "nodeId": document["root"]["nodeId"], "selector": selector });
        let node = self.browser.devtools("DOM.querySelector", &question);
        let files = json!({ "files": files, "nodeId": node["nodeId"] });
        self.browser.devtools("DOM.setFileInputFiles", &files);
    }

    /// Opens a volume; gives the milliseconds until its root was listed.
    pub fn open(&self, image: &Path) -> u64 {
        self.pick(image);
        self.wait("document.documentElement.dataset.listed");
        let listed = self.run("return Number(document.documentElement.dataset.listed)");
        listed.as_u64().unwrap()
    }

    pub fn names(&self) -> Vec<String> {
        let script =
            "return [...document.querySelectorAll('#rows .row .c-name > bdi')].map(one => one.textContent)";
        let names = self.run(script);
        names.as_array().unwrap().iter().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Clicks a row by a part of its name.
    pub fn choose(&self, name: &str) {
        let found = format!(
            "[...document.querySelectorAll('#rows .row')].find(one => one.textContent.includes({name:?}))"
        );
        self.wait(&found);
        self.run(&format!("{found}.click()"));
    }

    pub fn press(&self, selector: &str, key: char) {
        self.browser.press(selector, key);
    }

    pub fn type_into(&self, selector: &str, text: &str) {
        text.chars().for_each(|key| self.press(selector, key));
    }

    pub fn click(&self, selector: &str) {
        self.browser.click(selector);
    }

    /// Downloads a file of this size; gives how long that took.
    pub fn download(&self, name: &str, size: &u64) -> Duration {
        self.choose(name);
        self.wait(&format!("document.querySelector('#detail h2')?.textContent === {name:?}"));
        let begun = Instant::now();
        self.click("#download");
        let to = self.downloads.join(name);
        while to.metadata().map(|facts| facts.len()).ok() != Some(*size) {
            assert!(begun.elapsed() < 3 * PATIENCE, "{}", self.text("#download-state"));
            thread::sleep(Duration::from_millis(20));
        }
        begun.elapsed()
    }

    pub fn complaints(&self) -> Vec<String> {
        self.browser.complaints()
    }

    /// Colours and size of the window.
    pub fn look(&self, scheme: &str, width: u32, height: u32) {
        self.browser.prefer(scheme);
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.browser.devtools("Emulation.setDeviceMetricsOverride", &metrics);
    }

    pub fn shot(&self, path: &Path) {
        let shot = self.browser.devtools("Page.captureScreenshot", &json!({ "format": "png" }));
        let bytes = base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Private memory of the page's process, the most that it had with everything, and that of the library in the
    /// worker that was used last.
    pub fn memory(&self) -> (u64, u64, u64) {
        let library = self.run("return Number(document.documentElement.dataset.memory)").as_u64().unwrap();
        let (own, most) = renderers().into_iter().filter_map(resident).max().expect("a renderer runs");
        (own, most, library)
    }
}

/// Processes of pages below this one.
fn renderers() -> Vec<u32> {
    let parent = |process: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let is_ours = |process: u32| {
        let above = std::iter::successors(Some(process), |one| parent(*one).filter(|one| *one > 1));
        above.take(32).any(|one| one == std::process::id())
    };
    let is_renderer = |process: &u32| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("--type=renderer")
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    all.filter(|process| is_ours(*process)).filter(is_renderer).collect()
}

/// Private memory of a process, and the most that it ever had resident, the browser's code and shared memory included.
fn resident(process: u32) -> Option<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let bytes = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()? << 10)
    };
    Some((bytes("RssAnon:")?, bytes("VmHWM:")?))
}
