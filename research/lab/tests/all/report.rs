//! The report in a real browser: every kind of line is shown, every plot has data, names can't become markup, switches work.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::browser::Browser;
use testkit::scratch::Scratch;

const HOSTILE: &str = "</script><img src=x onerror=alert(1)><!-- & \\u2028 \\\"'";

/// A line of each kind, with names that want to be markup.
fn every_kind() -> String {
    let mut text = String::from(
        "{\"kind\":\"session\",\"version\":\"0.1.0\",\"machine\":{\"cpus\":2,\"memory_mib\":24000,\"kernel\":\"6.1\",\"arch\":\"x86_64\"},\
         \"started\":\"2026-11-22T09:00:00Z\",\"command\":\"plat-lab run founding\"}\n",
    );
    let systems = ["plat (library)", "kernel ext4", "xfs", HOSTILE];
    for (at, system) in systems.iter().enumerate() {
        for seed in 1..=3 {
            let value = 10.0 + f64::from(seed) / 10.0 + f64::from(u32::try_from(at).unwrap()) * 3.0;
            let _ = writeln!(
                text,
                "{{\"kind\":\"cell\",\"table\":\"S2 ports tree\",\"case\":\"8 GB, untar\",\"system\":\"{system}\",\"seed\":{seed},\
                 \"figures\":{{\"model_seconds\":{value},\"seeks\":{at}}},\"published\":{{\"seconds\":252}}}}"
            );
        }
        for step in 1..=5 {
            let _ = writeln!(
                text,
                "{{\"kind\":\"aging\",\"table\":\"aging\",\"case\":\"{HOSTILE}\",\"system\":\"{system}\",\"seed\":1,\"step\":{step},\"fullness\":0.8,\
                 \"operations\":{step},\"extents_per_file\":1.{step},\"free_runs\":{},\"free_bins\":[1,2,{step}],\"groups\":[0,{},255,9],\
                 \"clusters\":1000,\"files\":[{{\"name\":\"{HOSTILE}\",\"runs\":[[0,10],[500,{step}]]}}]}}",
                step * 9,
                step * 40
            );
        }
        let _ = writeln!(
            text,
            "{{\"kind\":\"criteria\",\"table\":\"S1 criteria\",\"case\":\"4 KiB\",\"system\":\"{system}\",\"hits\":{{\"p2_aligned\":34,\"any_free\":{at}}},\"scanned\":{{}}}}"
        );
    }
    let _ = writeln!(
        text,
        "{{\"kind\":\"curve\",\"table\":\"S0 tiobench\",\"name\":\"{HOSTILE}\",\"x\":\"threads\",\"y\":\"MB/s\",\"series\":[{{\"name\":\"xfs\",\"points\":[[4,13.3],[8,9.7]]}}]}}\n\
         {{\"kind\":\"verdict\",\"table\":\"S2 ports tree\",\"text\":\"{HOSTILE}\",\"holds\":false,\"detail\":\"{HOSTILE}\"}}\n\
         {{\"kind\":\"verdict\",\"table\":\"S2 ports tree\",\"text\":\"order\",\"holds\":true,\"detail\":\"in 1 of 3 figures; not in\\n    a: 1\\n    b: 2\"}}\n\
         {{\"kind\":\"skipped\",\"system\":\"fuse2fs\",\"why\":\"{HOSTILE}\"}}"
    );
    text
}

fn lab(arguments: &[&str]) -> String {
    let done = Command::new(env!("CARGO_BIN_EXE_plat-lab")).args(arguments).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// The page of a file of results.
fn report(scratch: &Scratch, results: &Path) -> PathBuf {
    let page = scratch.join("report.html");
    lab(&["report", results.to_str().unwrap(), "-o", page.to_str().unwrap()]);
    page
}

/// The page of some lines of results, and a browser; `None` if there is none here.
fn page_of(test: &str, lines: &str) -> Option<(Scratch, PathBuf, Browser)> {
    let scratch = Scratch::new(test);
    let results = scratch.join("results.jsonl");
    std::fs::write(&results, lines).unwrap();
    let page = report(&scratch, &results);
    Some((scratch, page, Browser::start(test)?))
}

/// Every figure was drawn and shows something; nothing was said on the console.
fn sound(browser: &Browser, figures: i64) {
    let empty = "return [...document.querySelectorAll('figure[data-plot] .draw')].filter((d) => !(+d.dataset.marks > 0) || !d.querySelector('svg')).length";
    assert_eq!(browser.run("return document.querySelectorAll('figure[data-plot]').length"), figures);
    assert_eq!(browser.run(empty), 0);
    assert_eq!(browser.run("return +document.documentElement.dataset.drawn"), figures);
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
}

#[test]
fn every_kind_of_line_is_shown_and_no_name_becomes_markup() {
    let Some((_scratch, page, browser)) = page_of("report", &every_kind()) else { return };
    browser.open(&page);
    // Two of dots, a curve, criteria, aging.
    sound(&browser, 5);
    assert_eq!(
        browser.run("return document.querySelectorAll('img, [onerror]').length + document.scripts.length"),
        3
    );
    let text = browser.run("return document.body.innerText");
    let text = text.as_str().unwrap();
    for part in [
        "1 of 2 statements",
        "<img src=x onerror=alert(1)>",
        "fuse2fs: skipped",
        "published",
        "252",
        "plat-lab run founding",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // 10.1 to 10.3 and 13.1 to 13.3: standard error of the ratio 0.0093, 3.8 degrees of freedom.
    let cell = browser.run("return document.querySelectorAll('td[data-s=\"1\"]')[0].textContent");
    assert_eq!(cell, "13.20 \u{b1}0.1000 \u{d7}1.29\u{b1}0.03\u{25b2}");
    // Of seconds and seeks the first system has the fewest; what a verdict rests on is one line.
    let best =
        browser.run("return [...document.querySelectorAll('td.best')].map((td) => td.dataset.s).join()");
    assert_eq!(best, "0,0");
    assert!(text.contains("model_seconds less is better") && text.contains("not in"), "{text}");
    assert_eq!(
        browser.run("return document.querySelector('.verdicts details summary').textContent"),
        "2 lines"
    );
    assert!(!text.contains("b: 2"), "{text}");
}

/// On a wide screen and on a telephone the page is as wide as the window; what is wider scrolls in a box of its own.
#[test]
fn nothing_is_wider_than_the_window() {
    let mut text = every_kind();
    for case in 0..12 {
        for system in 0..9 {
            let _ = writeln!(
                text,
                "{{\"kind\":\"cell\",\"table\":\"S1 an allocator under pressure\",\"case\":\"{case} files of many megabytes, side by side, fsync after each\",\"system\":\"policy number {system}, goals and reservations\",\"seed\":1,\
                 \"parameters\":{{\"settings\":{{\"{long}\":\"{long}\"}}}},\"figures\":{{\"model_seconds\":{case}.25,\"{long}\":{system}}},\"published\":{{\"seconds\":252}}}}",
                long = "a-name-without-any-place-to-break-".repeat(4)
            );
        }
    }
    let _ = writeln!(
        text,
        "{{\"kind\":\"verdict\",\"table\":\"{0}\",\"text\":\"{0}\",\"holds\":false,\"detail\":\"{0}\"}}",
        "unbroken".repeat(30)
    );
    let Some((_scratch, page, browser)) = page_of("report-wide", &text) else { return };
    for width in [1280, 400] {
        let metrics =
            serde_json::json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        browser.devtools("Emulation.setDeviceMetricsOverride", &metrics);
        browser.open(&page);
        browser.run("document.querySelectorAll('details').forEach((d) => d.open = true)");
        assert_eq!(browser.run("return innerWidth"), width);
        let out = browser.run(
            "const wide = (e) => e.getBoundingClientRect().right > innerWidth + 1;
             return [...document.body.querySelectorAll('*')].filter((e) => wide(e) && !e.closest('.scroll, pre'))
                 .map((e) => e.tagName + '.' + (e.className.baseVal ?? e.className) + ' in ' + e.parentNode.className + ' ' + e.getBoundingClientRect().right).slice(0, 20)",
        );
        let over = browser.run("return document.documentElement.scrollWidth - innerWidth").as_i64().unwrap();
        assert!(over <= 0, "{over} pixels more than {width}: {out}");
    }
}

#[test]
fn switches_and_keys_work_and_dark_is_dark() {
    let Some((_scratch, page, browser)) = page_of("report-switches", &every_kind()) else { return };
    browser.open(&page);
    let marks = "return [...document.querySelectorAll('figure[data-plot] .draw')].map((d) => +d.dataset.marks).reduce((a, b) => a + b)";
    let before = browser.run(marks).as_i64().unwrap();
    browser.click("button[data-toggle=\"2\"]");
    assert!(browser.run(marks).as_i64().unwrap() < before);
    assert_eq!(
        browser.run("return document.querySelector('td[data-s=\"2\"]').offsetParent"),
        serde_json::Value::Null
    );
    browser.click("button[data-toggle=\"2\"]");
    assert_eq!(browser.run(marks), before);

    let moment = "return document.querySelector('input[type=range]').value";
    let cells =
        "return [...document.querySelectorAll('.many svg path')].map((p) => p.getAttribute('d')).join()";
    let (last, drawn) = (browser.run(moment), browser.run(cells));
    browser.press("input[type=range]", '\u{e012}');
    assert_ne!(browser.run(moment), last);
    assert_ne!(browser.run(cells), drawn, "another moment is another picture");

    let key = |key: &str| {
        browser.run(&format!(
            "const chart = document.querySelector('figure[data-plot] svg.chart:has(polyline)');
             chart.dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}' }}));
             return [document.getElementById('tip').innerText, document.querySelector('polyline').getAttribute('points')]"
        ))
    };
    let pointed = key("ArrowRight");
    assert!(pointed[0].as_str().unwrap().contains("threads: 4"), "{pointed}");
    let zoomed = key("+");
    assert_ne!(zoomed[1], pointed[1], "zooming moves the line");
    assert_eq!(key("Escape")[1], pointed[1], "and back");

    let paper = "return getComputedStyle(document.body).backgroundColor";
    browser.prefer("light");
    let light = browser.run(paper);
    browser.prefer("dark");
    let dark = browser.run(paper);
    assert_ne!(light, dark);
    browser.click("#theme");
    assert_eq!(browser.run(paper), light, "the switch is stronger than the system");
    browser.click("#theme");
    assert_eq!(browser.run(paper), dark);
    sound(&browser, 5);
}

#[test]
fn what_scenarios_leave_is_reported_whole_and_small() {
    let scratch = Scratch::new("report-run");
    let (results, plots) = (scratch.join("results.jsonl"), scratch.join("plots"));
    let file = results.to_str().unwrap();
    lab(&["run", "age", "--quick", "--case", "git", "--policies", "lease,mballoc", "--results", file]);
    lab(&["run", "nine-writers", "--quick", "--seeds", "2", "--results", file]);
    let page = report(&scratch, &results);
    assert!(std::fs::metadata(&page).unwrap().len() < 5 << 20);
    let said = lab(&["report", file, "--plots", plots.to_str().unwrap()]);
    assert!(said.contains(": 3 plots"), "{said}");
    for entry in std::fs::read_dir(&plots).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(text.starts_with("<svg") && text.ends_with("</svg>\n") && !text.contains("NaN"));
        assert!(text.matches("<rect").count() > 2);
    }
    let Some(browser) = Browser::start("report of scenarios") else { return };
    browser.open(&page);
    let figures =
        browser.run("return document.querySelectorAll('figure[data-plot]').length").as_i64().unwrap();
    assert!(figures >= 4, "{figures}");
    sound(&browser, figures);
}

#[test]
fn nothing_to_report_is_an_error_and_leaves_no_page() {
    let scratch = Scratch::new("report-none");
    let (results, page) = (scratch.join("results.jsonl"), scratch.join("report.html"));
    for text in ["", "{\"kind\":\"session\"}\n", "no json\n"] {
        std::fs::write(&results, text).unwrap();
        let arguments = ["report", results.to_str().unwrap(), "-o", page.to_str().unwrap()];
        let done = Command::new(env!("CARGO_BIN_EXE_plat-lab")).args(arguments).output().unwrap();
        assert_eq!(done.status.code(), Some(2));
        assert!(!page.exists() && !done.stderr.is_empty());
    }
}
