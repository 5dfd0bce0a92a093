//! `e2fsck -fn` as the judge of an image: exit code 0 is not enough, it must also have nothing to say.

use crate::tool;
use std::path::Path;
use std::process::Output;

/// Complaints of e2fsck about `image`: empty when it exits 0 and complains of nothing, else its whole output.
///
/// # Panics
/// When e2fsck is not installed or cannot be started.
pub fn complaints(image: &Path) -> String {
    let mut command = tool::command("e2fsck");
    let output = command.arg("-fn").arg(image).output().unwrap_or_else(|e| panic!("e2fsck: {e}"));
    judged(&output, image)
}

/// Complaints of an `e2fsck -fn` that was run already.
pub fn judged(output: &Output, image: &Path) -> String {
    let both = [&output.stdout, &output.stderr];
    let text = both.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat();
    let silent = text.lines().all(|line| is_progress(line, image));
    if output.status.success() && silent { String::new() } else { format!("{}\n{text}", output.status) }
}

/// Lines that a sound volume gives: version, passes, and the closing summary.
fn is_progress(line: &str, image: &Path) -> bool {
    let summary = |rest: &str| rest.ends_with(" blocks") && rest.contains(" files (");
    let label_and_rest = line.rsplit_once(": ").map_or("", |(_, rest)| rest);
    line.is_empty()
        || line.starts_with("e2fsck ")
        // What it would wait for, were it to write.
        || line.starts_with("MMP interval is ")
        || (line.starts_with("Pass ") && line.contains(": Checking "))
        || summary(label_and_rest)
        || line.contains(&format!("{}: clean,", image.display()))
}

/// Asserts that e2fsck has nothing to say of `image`.
///
/// # Panics
/// With the whole output of e2fsck when it has.
pub fn assert_clean(image: &Path) {
    let said = complaints(image);
    assert!(said.is_empty(), "e2fsck -fn {}: {said}", image.display());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::fs::OpenOptions;
    use std::io::{Seek, SeekFrom, Write};

    #[test]
    fn a_sound_volume_is_silent_and_a_damaged_one_is_not() {
        if !tool::have_tools("fsck", &["mke2fs", "e2fsck"]) {
            return;
        }
        let scratch = Scratch::new("fsck");
        let image = scratch.join("image");
        tool::run(tool::command("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&image).arg("4M"));
        assert_clean(&image);

        let mut file = OpenOptions::new().write(true).open(&image).unwrap();
        // The free-block count of the superblock: no exit code but a complaint is the least that must come of it.
        file.seek(SeekFrom::Start(1024 + 12)).unwrap();
        file.write_all(&[7, 0, 0, 0]).unwrap();
        assert!(!complaints(&image).is_empty());
    }
}
