//! `plat mount --trace`: what programs did on a mount, line by line, and what becomes of a trace that can't be written.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use crate::support::mounted::{Mounted, have_fuse};
use testkit::fsck::assert_clean;
use testkit::scratch::Scratch;
use testkit::tool;

fn ready(test: &str) -> bool {
    have_fuse(test) && tool::have_root(test) && tool::have_tools(test, &["mke2fs", "e2fsck"])
}

fn volume(scratch: &Scratch) -> PathBuf {
    let image = scratch.join("disk.img");
    tool::run(tool::command("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&image).arg("16M"));
    image
}

/// A bit of everything that a trace records.
fn load(root: &Path) {
    fs::create_dir(root.join("a directory")).unwrap();
    fs::write(root.join("a directory/first"), vec![1; 10_000]).unwrap();
    let file = File::create(root.join("second")).unwrap();
    file.write_all_at(&[2; 5000], 3000).unwrap();
    file.set_len(6000).unwrap();
    file.sync_all().unwrap();
    fs::hard_link(root.join("second"), root.join("third")).unwrap();
    fs::rename(root.join("a directory"), root.join("d")).unwrap();
    symlink("d/first", root.join("link")).unwrap();
    fs::write(root.join("gone"), b"short").unwrap();
    fs::remove_file(root.join("gone")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::remove_dir(root.join("empty")).unwrap();
}

#[test]
fn calls_are_written_with_their_process_and_path() {
    if !ready("calls_are_written_with_their_process_and_path") {
        return;
    }
    let scratch = Scratch::new("mount-trace");
    let (image, trace) = (volume(&scratch), scratch.join("trace"));
    let mounted = Mounted::new(&image, &["--trace", trace.to_str().unwrap()]).unwrap();
    load(mounted.path());
    mounted.unmount();
    assert_clean(&image);
    let text = fs::read_to_string(&trace).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("PLATCALLS 1"));
    let lines: Vec<_> = lines.map(|line| line.splitn(3, ' ').collect::<Vec<_>>()).collect();
    let own = std::process::id().to_string();
    // However the kernel cuts a write.
    let written = lines.iter().filter_map(|line| line[2].strip_prefix("write /second ")?.split_once(' '));
    let written: u64 = written.map(|(_, len)| len.parse::<u64>().unwrap()).sum();
    assert_eq!(written, 5000, "{text}");
    for wanted in [
        "mkdir /a\\040directory",
        "create /a\\040directory/first",
        "write /a\\040directory/first 0 10000",
        "create /second",
        "truncate /second 6000",
        "fsync /second",
        "link /second /third",
        "rename /a\\040directory /d",
        "symlink /link d/first",
        "unlink /gone",
        "rmdir /empty",
    ] {
        let found = lines.iter().find(|line| line[2] == wanted);
        let found = found.unwrap_or_else(|| panic!("{wanted} is not among {text}"));
        // Threads are processes for the kernel.
        let tasks: Vec<_> =
            fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| task.file_name()).collect();
        assert!(found[1] == own || tasks.iter().any(|task| task == found[1]), "{found:?}");
        assert!(found[0].split_once('.').is_some_and(|(_, part)| part.len() == 9), "{found:?}");
    }
}

#[test]
fn a_trace_that_can_not_be_written_is_reported_and_fails_nothing() {
    if !ready("a_trace_that_can_not_be_written_is_reported_and_fails_nothing") {
        return;
    }
    let scratch = Scratch::new("mount-trace-full");
    let image = volume(&scratch);
    // Its head fits nowhere: the error comes at once, and nothing is mounted.
    let error = Mounted::new(&image, &["--trace", "/dev/full"]).err().unwrap();
    assert!(error.contains("/dev/full"), "{error}");
    // A pipe that has no reader any more.
    let pipe = scratch.join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || {
            let mut head = [0; 12];
            File::open(pipe).unwrap().read_exact(&mut head).unwrap();
            head
        }
    });
    let mounted = Mounted::new(&image, &["--trace", pipe.to_str().unwrap()]).unwrap();
    assert_eq!(&reader.join().unwrap(), b"PLATCALLS 1\n");
    load(mounted.path());
    assert_eq!(fs::read(mounted.path().join("d/first")).unwrap().len(), 10_000);
    let log = mounted.unmount();
    assert!(log.iter().any(|line| line.contains("the trace is not whole")), "{log:?}");
    assert_clean(&image);
}
