//! Puts the commit into the version that `plat --version` prints.
//!
//! It is taken from `PLATFS_COMMIT`, from the file that `cargo package` writes, or from git. Where none of these knows
//! it, the version stands alone: a build outside of git does not fail. Development builds don't ask git, because each
//! commit would compile and link everything again.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PLATFS_COMMIT");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let version = match given().or_else(of_package).or_else(of_git) {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    };
    println!("cargo::rustc-env=PLATFS_VERSION={version}");
}

/// A name of a commit: hexadecimal digits, the first twelve.
fn short(text: &str) -> Option<String> {
    let name: String = text.trim().chars().take(12).collect();
    (name.len() >= 7 && name.chars().all(|digit| digit.is_ascii_hexdigit())).then_some(name)
}

fn given() -> Option<String> {
    env::var("PLATFS_COMMIT").ok().and_then(|text| short(&text))
}

/// Commit that `cargo package` noted: `"sha1": "..."`.
fn of_package() -> Option<String> {
    let noted = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, behind) = noted.split_once("\"sha1\"")?;
    behind.split('"').nth(1).and_then(short)
}

/// The commit of the repository whose root lies two directories above; a repository that this source was only copied
/// into is not asked.
fn of_git() -> Option<String> {
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if !is_release || !Path::new("../../.git").exists() {
        return None;
    }
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "HEAD"]).and_then(|commit| short(&commit))
}

fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
