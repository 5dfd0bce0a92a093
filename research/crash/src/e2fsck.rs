//! e2fsck as the judge of states, and what it may say of them.

use std::path::{Path, PathBuf};
use std::process::Output;

use platfs::device::{Device, MemoryDevice};
use testkit::scratch::Scratch;
use testkit::{fsck, tool};

use crate::run::image_of;

/// Returns true if e2fsck is installed.
#[must_use]
pub fn is_installed() -> bool {
    tool::find("e2fsck").is_some()
}

fn run(how: &str, image: &Path) -> Output {
    tool::command("e2fsck").arg(how).arg(image).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn written(device: &dyn Device, scratch: &Scratch) -> PathBuf {
    let image = scratch.join("state.img");
    std::fs::write(&image, image_of(device)).unwrap();
    image
}

fn is_silent(image: &Path) -> Result<(), String> {
    let again = fsck::complaints(image);
    if again.is_empty() { Ok(()) } else { Err(format!("e2fsck, again: {again}")) }
}

/// Lets it replay a state with a journal: it may do nothing else, and is silent then.
pub(crate) fn replays(device: &dyn Device, scratch: &Scratch) -> Result<(), String> {
    let image = written(device, scratch);
    let done = run("-fy", &image);
    let said = said(&done);
    // A block of attributes that files share counts for the owner of each. When e2fsck 1.47 clears one of the files, it
    // leaves that block in the owner's account until it counts again. Our own recovery is asked for the right sums.
    let clears = said.lines().any(|line| line.starts_with("Clearing orphaned inode"));
    let counts_again = |line: &str| clears && line.starts_with("Update quota info");
    let repairs = |line: &str| line.contains("yes") || line.contains("FIXED") || line.contains("corrupt");
    let repaired = said.lines().any(|line| repairs(line) && !counts_again(line));
    if repaired || done.status.code().is_none_or(|code| code > 1) {
        return Err(format!("e2fsck: {said}"));
    }
    is_silent(&image)
}

/// Lets it repair a state of soft updates, of which it may say nothing but that too much is in use. What it made.
pub(crate) fn repairs(device: &dyn Device, scratch: &Scratch) -> Result<MemoryDevice, String> {
    let image = written(device, scratch);
    let found = said(&run("-fn", &image));
    if let Some(line) = damage(&found) {
        return Err(format!("e2fsck: {line}\n{found}"));
    }
    let done = run("-fy", &image);
    if done.status.code().is_none_or(|code| code > 1) {
        return Err(format!("e2fsck -fy: {}", said(&done)));
    }
    is_silent(&image)?;
    Ok(MemoryDevice::from_bytes(&std::fs::read(&image).unwrap()))
}

/// Lines of e2fsck about nothing but too much in use, no name, too many links, checksums of bitmaps, quota.
fn is_harmless(line: &str) -> bool {
    const BEGIN: &[&str] = &[
        "e2fsck ",
        "Pass ",
        "Block bitmap differences:",
        "Inode bitmap differences:",
        "Free blocks count wrong",
        "Free inodes count wrong",
        "Directories count wrong",
        "Padding at end",
        "Unattached inode",
        "Unattached zero-length inode",
        "Unconnected directory inode",
        "Fix? no",
        "Connect to /lost+found? no",
        "Clear? no",
        "IGNORED.",
        "Warning!",
        "Error writing",
        "ext2fs_",
        "state.img was not cleanly unmounted",
        // Quota is counted again; a file of it is named after it is made, and goes after its name.
        "Quota inode is not in use, but contains data.",
        "Update quota info for quota type",
        "[QUOTA WARNING]",
        "[ERROR] quotaio",
    ];
    line.trim().is_empty() || BEGIN.iter().any(|begin| line.trim_start().starts_with(begin))
}

/// The first line of `e2fsck -fn` that reports damage.
fn damage(said: &str) -> Option<String> {
    let wrong = |line: &&str| {
        if let Some(bits) = line.split_once("bitmap differences:").map(|(_, bits)| bits) {
            // A bit that has to be set is one that is in use and was called free.
            return bits.contains('+');
        }
        if line.starts_with("Inode ") && line.contains("ref count is") {
            let numbers: Vec<u32> =
                line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
            return numbers.len() < 3 || numbers[1] < numbers[2];
        }
        let is_of_nameless = line.contains("should be <The NULL inode> (0)") || line.contains("(was in ");
        // A directory on its way to another has both names, and one `..`.
        let is_on_its_way = line.contains("is a link to directory") || line.starts_with("'..' in ");
        let is_sum = line.contains(" files (") || line.contains("WARNING: Filesystem still has errors");
        let is_checksum = line.contains("bitmap") && line.contains("checksum");
        let is_references = line.contains("reference count");
        !(is_harmless(line) || is_of_nameless || is_sum || is_on_its_way || is_checksum || is_references)
    };
    said.lines().find(wrong).map(str::to_owned)
}
