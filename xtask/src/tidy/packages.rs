//! Requirements of a package that is published.
//!
//! Owns: the rule for each crate whose manifest does not say `publish = false`. Excludes the order of publishing.

use std::fs;
use std::path::Path;

/// Files that each has in its own directory; links to those of the workspace will do.
const FILES: [&str; 3] = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"];
/// Keys that each manifest has.
const KEYS: [&str; 6] =
    ["description", "repository", "keywords", "categories", "rust-version", "[package.metadata.docs.rs]"];

/// Finds what is missing in the package of a crate, or would not be in its archive.
pub(super) fn check(root: &Path, path: &str, found: &mut Vec<String>) {
    let directory = root.join(path);
    let manifest = fs::read_to_string(directory.join("Cargo.toml")).unwrap_or_default();
    if manifest.lines().any(|line| line == "publish = false") {
        return;
    }
    for file in FILES.iter().filter(|file| !directory.join(file).is_file()) {
        found.push(format!("{path}: is published without {file}; write it, or link that of the workspace"));
    }
    keys(path, &manifest, found);
    for file in super::files(vec![directory.join("src")]) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let inside = file.strip_prefix(&directory).map_or(0, |inside| inside.components().count() - 1);
        includes(&super::shown(root, &file), &text, inside, found);
    }
}

/// Keys that a manifest lacks.
pub(super) fn keys(path: &str, manifest: &str, found: &mut Vec<String>) {
    for key in KEYS.iter().filter(|key| !manifest.lines().any(|line| line.starts_with(**key))) {
        found.push(format!("{path}/Cargo.toml: is published without `{key}`"));
    }
}

/// Files that are included from outside of the package; `depth` directories lie between the file and the package.
pub(super) fn includes(shown: &str, text: &str, depth: usize, found: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        let included = line.split_once("include_str!(\"").or_else(|| line.split_once("include_bytes!(\""));
        let above = included.map_or(0, |(_, name)| name.split('/').take_while(|part| *part == "..").count());
        if above > depth {
            found.push(format!("{shown}:{}: includes a file from outside of its package", number + 1));
        }
    }
}
