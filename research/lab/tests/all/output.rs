//! Output that has no reader, or can't be written.

use std::fs::File;
use std::process::{Command, Output, Stdio};

fn listed(into: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plat-lab"));
    command.args(["work", "list"]).stdout(into).stderr(Stdio::piped()).output().unwrap()
}

#[test]
fn a_reader_who_leaves_is_no_error_and_a_full_disk_is_one() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let left = listed(writer);
    assert!(left.status.success() && left.stderr.is_empty(), "{left:?}");
    let full = listed(File::options().write(true).open("/dev/full").unwrap());
    let complaint = String::from_utf8_lossy(&full.stderr);
    assert_eq!((full.status.code(), complaint.contains("standard output")), (Some(2), true), "{complaint}");
}
