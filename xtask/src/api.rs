//! The public interface of the library crates, as a sorted list of lines: `docs/api/NAME.txt`. A test compares it, so
//! that a change of the interface is seen where it is reviewed, and none is made by accident.
//!
//! It is taken from the sources (no other toolchain is needed): `source` reads the modules and says what a path leads to,
//! `lines` writes what is reachable, `text` writes tokens as people do. What macros make is not seen; no public item of
//! these crates is made by one of their own.

mod lines;
mod source;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

/// Packages with an interface that is kept, and where their sources begin.
const KEPT: [(&str, &str); 7] = [
    ("platfs", "crates/fs/src/lib.rs"),
    ("platfs-check", "crates/check/src/lib.rs"),
    ("platfs-device", "crates/device/src/lib.rs"),
    ("platfs-forensics", "crates/forensics/src/lib.rs"),
    ("platfs-image", "crates/image/src/lib.rs"),
    ("platfs-open", "crates/open/src/lib.rs"),
    ("platfs-serve", "crates/serve/src/lib.rs"),
];

fn list(root: &Path, package: &str) -> PathBuf {
    root.join(format!("docs/api/{package}.txt"))
}

fn now(root: &Path, package: &str, begin: &str) -> Result<String, String> {
    let source = source::Source::read(&root.join(begin))?;
    let mut text =
        format!("# The public interface of `{package}`. `cargo xtask api --write` writes this file.\n");
    for line in lines::of(&source, package) {
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}

/// Writes the lists.
///
/// # Errors
/// Sources that can't be read, lists that can't be written.
pub fn write(root: &Path) -> Result<(), String> {
    for (package, begin) in KEPT {
        let path = list(root, package);
        let text = now(root, package, begin)?;
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::write(&path, text)).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// In what interfaces differ from their lists: `+` for what is new, `-` for what is gone.
///
/// # Errors
/// Sources or lists that can't be read.
pub fn differences(root: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for (package, begin) in KEPT {
        let path = list(root, package);
        let kept = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let text = now(root, package, begin)?;
        let (kept, text): (Vec<&str>, Vec<&str>) = (kept.lines().collect(), text.lines().collect());
        found.extend(kept.iter().filter(|line| !text.contains(line)).map(|line| format!("-{line}")));
        found.extend(text.iter().filter(|line| !kept.contains(line)).map(|line| format!("+{line}")));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_public_interface_is_as_it_is_written_down() {
        let found = differences(&crate::root()).unwrap_or_else(|error| panic!("{error}"));
        let remedy = "if that is meant, `cargo xtask api --write`";
        assert!(found.is_empty(), "the public interface changed; {remedy}:\n{}", found.join("\n"));
    }
}
