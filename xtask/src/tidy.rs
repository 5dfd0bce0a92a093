//! The rules of the source tree, each with its remedy in the message. Reads files only; runs as a test, too.

#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

/// A crate, and the workspace crates that it may use outside of its tests.
const ARROWS: [(&str, &[&str]); 11] = [
    ("crates/ondisk", &[]),
    ("crates/placement", &["ondisk"]),
    ("crates/fs", &["ondisk", "placement"]),
    ("crates/fuse", &[]),
    ("crates/chart", &[]),
    ("crates/image", &["ondisk", "platfs"]),
    ("crates/cli", &["ondisk", "platfs", "platfs_image", "fuse", "chart"]),
    ("crates/crash", &["platfs", "testkit"]),
    ("crates/lab", &["ondisk", "placement", "platfs", "platfs_image", "chart", "crash"]),
    ("crates/testkit", &[]),
    ("xtask", &["testkit"]),
];

/// The workspace's libraries, as `Cargo.toml` and `use` name them.
const OURS: [&str; 8] =
    ["ondisk", "placement", "platfs", "platfs_image", "fuse", "chart", "crash", "testkit"];

/// The ladder inside `fs`, from the top; a rung may name those after it only. Rungs of the same number may name each other.
const LADDER: [(&str, u8); 10] = [
    ("ops", 0),
    ("file", 1),
    ("dir", 1),
    ("map", 2),
    ("inode", 3),
    ("space", 4),
    ("txn", 5),
    ("cache", 6),
    ("check", 7),
    ("device", 8),
];

/// Names that say nothing, and what to say instead.
const BANNED: [(&str, &str); 9] = [
    ("mod utils", "name the module after what it owns"),
    ("mod helpers", "name the module after what it owns"),
    ("mod common", "name the module after what it owns"),
    ("Manager", "name what it does"),
    ("Helper", "name what it does"),
    ("fn get_", "drop the prefix: a getter is called like the thing"),
    ("TODO", "do it, or leave it out"),
    ("FIXME", "fix it"),
    ("XXX", "say what is wrong, or fix it"),
];

/// Longest file, in lines: far beyond the 400 that are the aim, for tables and single deep algorithms.
const LONGEST_FILE: usize = 900;

/// All that is wrong in the tree at `root`, one line each.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for (crate_path, allowed) in ARROWS {
        manifest_arrows(root, crate_path, allowed, &mut found);
    }
    for file in sources(root) {
        let Ok(bytes) = fs::read(&file) else {
            found.push(format!("{}: cannot be read", file.display()));
            continue;
        };
        let shown = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned();
        check_file(&shown, &bytes, &mut found);
    }
    found
}

/// Every rule that looks at one file.
fn check_file(shown: &str, bytes: &[u8], found: &mut Vec<String>) {
    let text = String::from_utf8_lossy(bytes);
    ascii(shown, &text, found);
    let lines = text.lines().count();
    if lines > LONGEST_FILE {
        found.push(format!("{shown}: {lines} lines; split it where a second reason to change appears"));
    }
    // The rules themselves name what they forbid.
    if shown.starts_with("xtask/src/tidy") {
        return;
    }
    banned(shown, &text, found);
    let in_tests = shown.contains("/tests") || shown.contains("/benches") || shown.contains("/examples");
    if !in_tests {
        source_arrows(shown, &text, found);
        ladder(shown, &text, found);
        door(shown, &text, found);
    }
    if !in_tests && shown.contains("/src/") && !text.starts_with("//!") {
        found.push(format!(
            "{shown}: opens without `//!`; say what the module owns and what it leaves to others"
        ));
    }
}

fn ascii(shown: &str, text: &str, found: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        if let Some(c) = line.chars().find(|c| !c.is_ascii()) {
            found.push(format!("{shown}:{}: {:?} is not ASCII; escape it", number + 1, c));
        }
    }
}

fn banned(shown: &str, text: &str, found: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        for (name, remedy) in BANNED {
            if contains_word(line, name) {
                found.push(format!("{shown}:{}: `{name}`; {remedy}", number + 1));
            }
        }
    }
}

/// Whether `line` has `word` with no letter before it; what follows may go on when the word is a prefix (`fn get_`) or a suffix (`LockManager`).
fn contains_word(line: &str, word: &str) -> bool {
    let suffix = word.chars().next().is_some_and(char::is_uppercase) && word.chars().any(char::is_lowercase);
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let open_left = suffix || !before.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let open_right = word.ends_with('_') || !after.is_some_and(|c| c.is_alphanumeric() || c == '_');
        open_left && open_right
    })
}

/// The `[dependencies]` of a crate name no workspace crate beyond `allowed`.
fn manifest_arrows(root: &Path, crate_path: &str, allowed: &[&str], found: &mut Vec<String>) {
    let manifest = root.join(crate_path).join("Cargo.toml");
    let Ok(text) = fs::read_to_string(&manifest) else {
        found.push(format!("{}: cannot be read", manifest.display()));
        return;
    };
    let mut section = "";
    for line in text.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let name = line.split(['.', ' ', '=']).next().unwrap_or("").replace('-', "_");
        if section == "[dependencies]" && OURS.contains(&&*name) && !allowed.contains(&&*name) {
            found.push(format!(
                "{crate_path}/Cargo.toml: depends on {name}; arrows go cli -> fs -> placement -> ondisk"
            ));
        }
    }
}

/// `use` and paths of a source file name no workspace crate beyond what its crate may use; of `ondisk`, `placement` takes `units` only.
fn source_arrows(shown: &str, text: &str, found: &mut Vec<String>) {
    let Some((crate_path, allowed)) = ARROWS.iter().find(|(path, _)| shown.starts_with(&format!("{path}/")))
    else {
        return;
    };
    for (number, line) in code_lines(text) {
        for name in OURS.iter().filter(|name| names_crate(line, name)) {
            if !allowed.contains(name) && !crate_path.ends_with(name) {
                found.push(format!(
                    "{shown}:{number}: uses {name}; arrows go cli -> fs -> placement -> ondisk"
                ));
            }
        }
        let takes_more =
            line.match_indices("ondisk::").any(|(at, whole)| !line[at + whole.len()..].starts_with("units"));
        if *crate_path == "crates/placement" && takes_more {
            found.push(format!(
                "{shown}:{number}: placement knows integers only; take `ondisk::units` and nothing else"
            ));
        }
    }
}

fn names_crate(line: &str, name: &str) -> bool {
    line.match_indices(&format!("{name}::")).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
    })
}

/// A file of a rung of `fs` names only rungs below its own (or beside it).
fn ladder(shown: &str, text: &str, found: &mut Vec<String>) {
    let Some(inside) = shown.strip_prefix("crates/fs/src/") else { return };
    let rung = inside.split(['/', '.']).next().unwrap_or("");
    let Some((_, height)) = LADDER.iter().find(|(name, _)| *name == rung) else { return };
    for (number, line) in code_lines(text) {
        for (name, other) in LADDER {
            if other < *height && line.contains(&format!("crate::{name}::")) {
                found.push(format!(
                    "{shown}:{number}: {rung} calls up to {name}; return data instead, or pass a value down"
                ));
            }
        }
    }
}

/// Only the door makes a device of a file that exists, so that no command writes to what is in use.
fn door(shown: &str, text: &str, found: &mut Vec<String>) {
    const MAKERS: [&str; 3] =
        ["crates/cli/src/door/", "crates/cli/src/image/mod.rs", "crates/image/src/output.rs"];
    const REPLACERS: [&str; 2] = ["::replacing(", ".overwrite("];
    let is_bound = shown.starts_with("crates/cli/src/") || shown.starts_with("crates/image/src/");
    if !is_bound || MAKERS.iter().any(|maker| shown.starts_with(maker)) {
        return;
    }
    for (number, line) in code_lines(text) {
        if line.contains("FileDevice::new") || line.contains("open_file(&") {
            found.push(format!(
                "{shown}:{number}: opens an image by itself; use `image::open_read`, `image::open_write` or `door`"
            ));
        }
        if shown.starts_with("crates/cli/") && REPLACERS.iter().any(|word| line.contains(word)) {
            found.push(format!(
                "{shown}:{number}: may replace an image in use; use `door::output` or `door::build_file`"
            ));
        }
    }
}

/// Numbered lines of code up to the tests at the end of a file, without comments.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().take_while(|(_, line)| !line.starts_with("mod tests {"));
    lines.map(|(index, line)| (index + 1, line)).filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Every Rust source of the workspace, in a stable order.
fn sources(root: &Path) -> Vec<PathBuf> {
    let mut pending: Vec<PathBuf> = ["crates", "xtask", "fuzz"].iter().map(|name| root.join(name)).collect();
    let mut files = Vec::new();
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("target") {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}
