//! The end of mounts of volumes in stores: an unmount succeeds only if everything is stored.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use super::{Place, said, text};
use crate::support::mounted::{Mounted, have_fuse};
use crate::support::{fail, plat, succeed};

fn umount(mounted: &Mounted) -> std::process::Command {
    let mut command = plat(&["umount"]);
    // A shell that knows nothing of the store.
    command.arg(mounted.path()).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

#[test]
fn the_unmount_of_a_mount_that_was_killed_or_fenced_says_what_is_lost() {
    let test = "the_unmount_of_a_mount_that_was_killed_or_fenced_says_what_is_lost";
    if !have_fuse(test) {
        return;
    }
    let place = Place::new(test);
    let one = place.volume("one");
    succeed(&mut plat(&["push", text(&place.image()), &one]));
    let mut mounted = Mounted::new(Path::new(&one), &[]).unwrap();
    fs::write(mounted.path().join("unsynced"), "unsynced").unwrap();
    mounted.signal(Signal::KILL);
    mounted.wait();
    mounted.take_away();
    assert_eq!(fs::read_dir(mounted.path()).unwrap().count(), 0);

    let mut mounted = Mounted::new(Path::new(&one), &[]).unwrap();
    fs::write(mounted.path().join("late"), "late").unwrap();
    succeed(plat(&["mkdir", &one, "/heir"]).env("PLAT_STORE_TAKEOVER", "1"));
    let why = fail(&mut umount(&mounted));
    assert!(why.contains("not all is stored") && why.contains("taken over"), "{why}");
    assert!(!mounted.wait().0.success());
    let listed = said(&mut plat(&["ls", &one, "/"]));
    assert!(listed.contains("heir") && !listed.contains("late"), "{listed}");

    let mut mounted = Mounted::new(Path::new(&one), &[]).unwrap();
    fs::write(mounted.path().join("stored"), "stored").unwrap();
    succeed(&mut umount(&mounted));
    assert!(mounted.wait().0.success());
    assert_eq!(said(&mut plat(&["cat", &one, "/stored"])), "stored");
}

#[test]
fn an_unmount_that_can_not_send_all_names_the_log_that_keeps_it() {
    let test = "an_unmount_that_can_not_send_all_names_the_log_that_keeps_it";
    if !have_fuse(test) {
        return;
    }
    let place = Place::new(test);
    let (one, logs) = (place.volume("one"), place.scratch.join("logs"));
    succeed(&mut plat(&["push", text(&place.image()), &one]));
    let options = ["-o", "flush=local,patience=1s"];
    let mut mounted =
        Mounted::with_env(Path::new(&one), &options, &[("PLAT_STORE_LOG", text(&logs))]).unwrap();
    // Nothing can be written into the store.
    let making = place.scratch.join("store/.making");
    fs::remove_dir_all(&making).unwrap();
    fs::write(&making, "").unwrap();
    fs::write(mounted.path().join("kept"), "kept").unwrap();
    succeed(plat(&["sync"]).arg(mounted.path()));
    let why = fail(&mut umount(&mounted));
    assert!(why.contains("bytes are kept in") && why.contains(text(&logs)), "{why}");
    assert!(!mounted.wait().0.success());
    fs::remove_file(&making).unwrap();
    succeed(plat(&["mkdir", &one, "/new"]).env("PLAT_STORE_LOG", &logs));
    assert_eq!(said(&mut plat(&["cat", &one, "/kept"])), "kept");
}
