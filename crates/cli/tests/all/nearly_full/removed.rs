//! A lack of room beside removed files: it is waited for what the kernel gives back, and for nothing else.

use std::fs::{self, OpenOptions};
use std::path::Path;

use crate::nearly_full::accepted::Accepted;
use crate::nearly_full::{CACHED, Full, Kind, LARGE, SMALL, fill_up, is_full, ready};

/// How often the mount has looked whether removed files had come back.
fn looks(root: &Path) -> u64 {
    let said = crate::support::succeed(crate::support::plat(&["stats", "--json"]).arg(root));
    let said: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    said["space"]["looks_for_removed"].as_u64().unwrap()
}

#[test]
fn a_lack_of_room_waits_only_for_what_was_removed() {
    let test = "a_lack_of_room_waits_only_for_what_was_removed";
    if !ready(test) {
        return;
    }
    for kind in [SMALL, Kind { options: "transport=uring", ..SMALL }, CACHED, LARGE] {
        let (full, mut accepted) = (Full::new(test, kind, "0"), Accepted::default());
        let root = full.root();
        let new = |name| OpenOptions::new().write(true).create_new(true).open(root.join(name)).unwrap();
        let (held, other) = (new("held"), new("other"));
        accepted.write_at(&held, "held", 0, 8 << 20).unwrap();
        for piece in [1 << 20, 65_536, 4096] {
            fill_up(&mut accepted, root, "rest", piece);
        }
        let mut refused = |times: u64| {
            for _ in 0..times {
                let done = accepted.write_at(&other, "other", 0, 1 << 20);
                assert!(done.as_ref().is_err_and(is_full), "{kind:?}: {done:?}");
            }
            looks(root)
        };
        assert_eq!(refused(20), 0, "{kind:?}: nothing was removed");
        fs::remove_file(root.join("held")).unwrap();
        let once = refused(1);
        assert!(once > 0, "{kind:?}: it may come back");
        let often = refused(20);
        assert!(often < once + 20 * once / 4, "{kind:?}: it stays, {once} and {often} looks");
        drop(held);
        accepted.forget("held");
        accepted.write_at(&other, "other", 0, 1 << 20).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        drop(other);
        full.judge(&accepted);
    }
}
