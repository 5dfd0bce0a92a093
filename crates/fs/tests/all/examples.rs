//! The examples of the crate do what they say.
#[allow(dead_code, reason = "its main is not called")]
#[path = "../../examples/build.rs"]
mod build;
#[allow(dead_code, reason = "its main is not called")]
#[path = "../../examples/check.rs"]
mod check;
#[allow(dead_code, reason = "its main is not called")]
#[path = "../../examples/device.rs"]
mod device;
#[allow(dead_code, reason = "its main is not called")]
#[path = "../../examples/policy.rs"]
mod policy;
#[allow(dead_code, reason = "its main is not called")]
#[path = "../../examples/read.rs"]
mod read;

use std::fs;

use platfs::OpenOptions;
use testkit::scratch::Scratch;

#[test]
fn an_image_is_built_checked_and_read() {
    let scratch = Scratch::new("examples");
    let (path, other) = (scratch.join("image"), scratch.join("other"));
    build::build(&path).unwrap();
    build::build(&other).unwrap();
    assert!(fs::read(&path).unwrap() == fs::read(&other).unwrap(), "two runs write the same bytes");

    let mut listener = check::Listener::default();
    let summary = check::examine(&path, &mut listener).unwrap();
    assert_eq!((summary.issues, listener.lines.len()), (0, 0), "{:?}", listener.lines);

    let mut out = Vec::new();
    read::read(&path, "/etc", "hosts", &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(
        lines,
        [
            "100644          8 hostname",
            "100644         48 hosts",
            "10.0.0.1 node-1",
            "10.0.0.2 node-2",
            "10.0.0.3 node-3",
        ]
    );
}

#[test]
fn a_tebibyte_takes_little_memory_on_a_device_of_chunks() {
    let (taken, reads) = device::one_tebibyte().unwrap();
    assert!(taken < 64 << 20, "{taken} bytes");
    assert!(reads < 1000, "{reads} reads");
}

#[test]
fn a_policy_of_ones_own_places_the_blocks() {
    assert_eq!(policy::pieces(&OpenOptions::new()).unwrap(), 1);
    let scattered = policy::pieces(&OpenOptions::new().own_policy(|| Box::new(policy::Scatter))).unwrap();
    assert!(scattered > 200, "{scattered} pieces");
}
