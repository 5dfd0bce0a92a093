//! An image on a file system whose server answers no longer, as on a network place that is gone. Commands that wait for it
//! can be stopped.
//!
//! The place is a mount of ours whose server is stopped: requests stay unread in the kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use testkit::scratch::Scratch;

use crate::support::mounted::have_fuse;
use crate::support::{plat, succeed};

/// Longer than anything takes that heeds a signal.
const PATIENCE: Duration = Duration::from_secs(20);

struct Place {
    server: Child,
    directory: PathBuf,
}

impl Place {
    /// A mount with an image and a tree in it, whose server stops.
    fn new(scratch: &Scratch) -> Self {
        let [image, outer, tree, directory] =
            ["disk.img", "outer.img", "tree", "place"].map(|name| scratch.join(name));
        fs::create_dir_all(tree.join("below")).unwrap();
        fs::create_dir(&directory).unwrap();
        fs::write(tree.join("below/file"), "text").unwrap();
        succeed(plat(&["mkfs"]).arg(&image).arg("16M"));
        succeed(plat(&["mkfs"]).arg(&outer).arg("64M"));
        succeed(plat(&["put"]).arg(&outer).arg(&image).arg("/disk.img"));
        succeed(plat(&["put", "-r"]).arg(&outer).arg(&tree).arg("/"));
        let mut server = plat(&["mount", "--foreground"]);
        let server = server.arg(&outer).arg(&directory).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while !is_mounted(&directory) {
            assert!(begun.elapsed() < PATIENCE, "the place was not mounted");
            thread::sleep(Duration::from_millis(10));
        }
        let place = Place { server, directory };
        kill_process(pid(&place.server), Signal::STOP).unwrap();
        place
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = kill_process(pid(&self.server), Signal::CONT);
        let _ = plat(&["umount"]).arg(&self.directory).output();
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Without asking the server.
fn is_mounted(directory: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    table.contains(&format!(" {} ", directory.display()))
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Programs of this test that still run the command, beside the server of the place.
fn left(server: &Child, scratch: &Path) -> Vec<String> {
    let own = scratch.display().to_string();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let found = processes.filter_map(|process| {
        let number = process.file_name().to_str()?.parse::<u32>().ok()?;
        let words = fs::read(process.path().join("cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        (number != server.id() && words.contains(&own)).then_some(words)
    });
    found.collect()
}

/// The command with the signals as a terminal's programs have them: these tests may run where SIGINT is ignored.
fn heeding(plat: Command) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=INT,TERM").arg(plat.get_program()).args(plat.get_args());
    command
}

/// True if the command has begun, and each of its threads sleeps.
fn waits(process: u32) -> bool {
    let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    let sleeps = |stat: String| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['S', 'D']));
    !words.is_empty() && !words.starts_with(b"env\0") && stats.all(sleeps)
}

/// Has a command wait for the place, and sends the signal.
fn stopped(command: &mut Command, signal: Signal) -> Result<(), String> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (begun, mut quiet) = (Instant::now(), 0);
    while quiet < 5 {
        if child.try_wait().unwrap().is_some() {
            return Err(format!("did not wait: {}", child.wait().unwrap()));
        }
        assert!(begun.elapsed() < PATIENCE, "the command does not come to wait");
        quiet = if waits(child.id()) { quiet + 1 } else { 0 };
        thread::sleep(Duration::from_millis(10));
    }
    kill_process(pid(&child), signal).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if child.try_wait().unwrap().is_some() {
            return child.wait().map(drop).map_err(|error| error.to_string());
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    Err("heeds no signal".into())
}

#[test]
fn whoever_waits_for_a_dead_place_heeds_signals() {
    if !have_fuse("whoever_waits_for_a_dead_place_heeds_signals") {
        return;
    }
    let scratch = Scratch::new("dead-place");
    let place = Place::new(&scratch);
    let image = place.directory.join("disk.img").display().to_string();
    let tree = place.directory.join("tree").display().to_string();
    let at = |name: &str| scratch.join(name).display().to_string();
    fs::create_dir(at("mounted")).unwrap();
    fs::write(at("file"), "text").unwrap();
    let (made, mounted, file) = (at("made"), at("mounted"), at("file"));
    let lines: &[&[&str]] = &[
        &["ls", &image, "/"],
        &["info", &image],
        &["check", "-n", &image],
        &["check", "-y", &image],
        &["mount", &image, &mounted],
        &["mount", "--foreground", &image, &mounted],
        &["build", &tree, &made],
        &["export", &image, &made],
        &["get", &image, "/lost+found", &made],
        &["put", &image, &file, "/file"],
        &["import", &image, &file],
        &["resize", &image, "32M"],
        &["tune", "-L", "name", &image],
        &["mkfs", "--force", &image, "16M"],
        &["snapshot", &image, &made],
        &["stats", &tree],
        &["cp", &tree, &file, "/copy"],
    ];
    let mut faults = Vec::new();
    for signal in [Signal::TERM, Signal::INT] {
        for line in lines {
            if let Err(fault) = stopped(&mut heeding(plat(line)), signal) {
                faults.push(format!("{line:?} {signal:?}: {fault}"));
            }
            // What is left holds up all others that look for the same name.
            let begun = Instant::now();
            while !left(&place.server, &scratch.join("")).is_empty() {
                assert!(begun.elapsed() < PATIENCE, "{line:?} {signal:?} leaves a process; {faults:?}");
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
