//! `plat-lab peers` is killed in the middle of its work, with a file system mounted: what it had made goes all the same.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The directory that it works in, once there is something mounted in it.
fn mounted_in(dir: &Path) -> Option<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let point = points.map(Path::new).find(|point| point.starts_with(dir))?;
    point.parent().map(Path::to_owned)
}

#[test]
fn what_a_killed_run_leaves_is_taken_away() {
    if !testkit::mount::have_loop_mount("peers") {
        return;
    }
    let scratch = testkit::scratch::Scratch::new("peers");
    let dir = scratch.join("").canonicalize().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plat-lab"));
    command.args(["peers", "--systems", "ext4", "--workloads", "age", "--size", "512", "--dir"]).arg(&dir);
    let mut run = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let mut root = None;
    until("nothing was mounted", || {
        root = mounted_in(&dir);
        root.is_some() || run.try_wait().unwrap().is_some()
    });
    let root = root.expect("it ended before anything was mounted");
    // SIGKILL: it can do nothing about it.
    run.kill().unwrap();
    run.wait().unwrap();
    until("the directory is still there", || !root.exists());
    assert!(mounted_in(&dir).is_none());
    let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
    let files =
        devices.filter_map(|entry| std::fs::read_to_string(entry.path().join("loop/backing_file")).ok());
    let name = root.file_name().unwrap().to_string_lossy().into_owned();
    assert_eq!(files.filter(|file| file.contains(&name)).count(), 0);
}
