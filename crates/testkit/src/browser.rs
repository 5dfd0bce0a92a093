//! A browser without a window, driven through chromedriver: pages are opened, looked at and used as by a person.
//!
//! Speaks the WebDriver protocol: JSON over HTTP, a connection for each command.

use crate::scratch::Scratch;
use crate::tool;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

/// A running browser, ended with this value.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    /// Its profile: nothing of the user's.
    _profile: Scratch,
}

impl Browser {
    /// Starts one, or skips the test with a message if there is none.
    ///
    /// # Panics
    /// When it is there and does not start.
    pub fn start(test: &str) -> Option<Browser> {
        if !tool::have_tools(test, &["chromium", "chromedriver"]) {
            return None;
        }
        let profile = Scratch::new("browser");
        let mut driver = tool::command("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("chromedriver: {error}"));
        let port = port(&mut driver);
        let mut browser = Browser { driver, port, session: String::new(), _profile: profile };
        let answer = browser.call("/session", &capabilities(browser._profile.path()));
        browser.session =
            answer["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {answer}")).to_owned();
        Some(browser)
    }

    /// One command; the body of its answer. The driver leaves the connection open, so that its length counts.
    fn send(&self, method: &str, path: &str, body: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.port,
            body.len()
        );
        stream.write_all((head + body).as_bytes())?;
        let mut answer = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            answer.read_line(&mut line)?;
            match line.trim().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().map_err(std::io::Error::other)?;
                }
                Some(_) => {}
                None if line.trim().is_empty() => break,
                None => {}
            }
        }
        let mut body = vec![0; length];
        answer.read_exact(&mut body)?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    fn call(&self, path: &str, body: &Value) -> Value {
        let text =
            self.send("POST", path, &body.to_string()).unwrap_or_else(|error| panic!("{path}: {error}"));
        let value: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"));
        let value = value["value"].clone();
        assert!(value["error"].is_null(), "{path}: {}: {}", value["error"], value["message"]);
        value
    }

    fn command(&self, what: &str, body: &Value) -> Value {
        self.call(&format!("/session/{}/{what}", self.session), body)
    }

    /// Opens a file, and waits until it is loaded.
    ///
    /// # Panics
    /// When that fails.
    pub fn open(&self, page: &Path) {
        self.command("url", &json!({ "url": format!("file://{}", page.display()) }));
    }

    /// Runs the body of a function in the page, and gives what it returns.
    ///
    /// # Panics
    /// When it throws.
    pub fn run(&self, script: &str) -> Value {
        self.command("execute/sync", &json!({ "script": script, "args": [] }))
    }

    fn element(&self, selector: &str) -> String {
        let element = self.command("element", &json!({ "using": "css selector", "value": selector }));
        let id = element.as_object().and_then(|object| object.values().next()).and_then(Value::as_str);
        id.unwrap_or_else(|| panic!("{selector}: {element}")).to_owned()
    }

    /// Presses a key while this element has the focus.
    ///
    /// # Panics
    /// When there is no such element.
    pub fn press(&self, selector: &str, key: char) {
        self.command(
            &format!("element/{}/value", self.element(selector)),
            &json!({ "text": key.to_string() }),
        );
    }

    /// Clicks the middle of an element.
    ///
    /// # Panics
    /// When there is no such element, or something covers it.
    pub fn click(&self, selector: &str) {
        self.command(&format!("element/{}/click", self.element(selector)), &json!({}));
    }

    /// A command of the browser's own protocol.
    ///
    /// # Panics
    /// When it fails.
    pub fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.command("goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Shows the page as on a system set to dark colours, or light ones.
    pub fn prefer(&self, scheme: &str) {
        let feature = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.devtools("Emulation.setEmulatedMedia", &json!({ "features": feature }));
    }

    /// Takes the messages on the page's console since the last call, errors and warnings only.
    ///
    /// # Panics
    /// When the browser gives no answer.
    pub fn complaints(&self) -> Vec<String> {
        let log = self.command("se/log", &json!({ "type": "browser" }));
        let entries = log.as_array().into_iter().flatten();
        let bad = entries.filter(|entry| matches!(entry["level"].as_str(), Some("SEVERE" | "WARNING")));
        bad.map(|entry| entry["message"].to_string()).collect()
    }
}

/// The port that chromedriver took.
fn port(driver: &mut Child) -> u16 {
    let out = driver.stdout.take().expect("its output is a pipe");
    let mut lines = BufReader::new(out).lines().map_while(Result::ok);
    let port =
        lines.find_map(|line| line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok());
    // It may print more, and would wait for a reader of a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    port.expect("chromedriver prints its port")
}

fn capabilities(profile: &Path) -> Value {
    let own = format!("--user-data-dir={}", profile.display());
    let flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-sync",
        "--disable-background-networking",
        "--disable-component-update",
        "--hide-scrollbars",
        "--disable-dev-shm-usage",
        "--window-size=1280,900",
        &own,
    ];
    let options = json!({ "args": flags, "binary": tool::find("chromium") });
    let always = json!({ "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" } });
    json!({ "capabilities": { "alwaysMatch": always } })
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The end of the session ends the browser; a driver that is gone already is no matter.
        if !self.session.is_empty() {
            let _ = self.send("DELETE", &format!("/session/{}", self.session), "");
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
