//! Volumes of a store that are flushed into a log on this host: what is left of a mount that is killed.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::fsck::assert_clean;

use super::{Place, said, text};
use crate::support::mounted::{Mounted, have_fuse};
use crate::support::{fail, plat, succeed};

fn logs(place: &Place) -> std::path::PathBuf {
    place.scratch.join("logs")
}

/// A mount that is flushed locally.
fn mount(place: &Place, one: &str) -> Mounted {
    let log = logs(place).display().to_string();
    Mounted::with_env(Path::new(one), &["-o", "flush=local"], &[("PLAT_STORE_LOG", log.as_str())]).unwrap()
}

/// A command that finds the logs.
fn knowing(place: &Place, words: &[&str]) -> std::process::Command {
    let mut command = plat(words);
    command.env("PLAT_STORE_LOG", logs(place));
    command
}

#[test]
fn a_mount_with_a_local_log_that_is_killed_loses_nothing_that_was_synced() {
    let test = "a_mount_with_a_local_log_that_is_killed_loses_nothing_that_was_synced";
    if !have_fuse(test) {
        return;
    }
    let place = Place::new(test);
    let (image, one) = (place.image(), place.volume("one"));
    succeed(&mut plat(&["push", text(&image), &one]));
    let (mut last, begun) = (0_u32, Instant::now());
    for round in 0..6_u64 {
        let mut mounted = mount(&place, &one);
        let counter = mounted.path().join("counter");
        let found: u32 = fs::read_to_string(&counter).map_or(0, |text| text.parse().unwrap());
        assert!(found >= last, "round {round}: {found}, and {last} was synced");
        let until = Instant::now() + Duration::from_millis(round * 311 % 1500);
        while Instant::now() < until || last == found {
            fs::write(mounted.path().join(format!("noise {}", last % 5)), vec![7; 300_000]).unwrap();
            fs::write(&counter, (last + 1).to_string()).unwrap();
            succeed(plat(&["sync"]).arg(mounted.path()));
            last += 1;
        }
        mounted.signal(Signal::KILL);
        mounted.wait();
        drop(mounted);
        // Commands that don't see the log leave the volume alone.
        if round == 3 {
            let other = place.scratch.join("other");
            let why = fail(plat(&["mkdir", &one, "/new"]).env("PLAT_STORE_LOG", other));
            assert!(why.contains("is open for writing") && why.contains("log "), "{why}");
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(60));
    // A command that is not flushed locally sends what was left first.
    succeed(&mut knowing(&place, &["mkdir", &one, "/new"]));
    assert_eq!(said(&mut plat(&["cat", &one, "/counter"])), last.to_string());
    let back = place.scratch.join("back.img");
    succeed(&mut plat(&["pull", &one, text(&back)]));
    assert_clean(&back);
    assert!(said(&mut plat(&["store", "verify", &place.store()])).contains("all is well"));
}

#[test]
fn a_mount_with_a_local_log_that_was_taken_over_is_fenced_and_its_tail_is_kept() {
    let test = "a_mount_with_a_local_log_that_was_taken_over_is_fenced_and_its_tail_is_kept";
    if !have_fuse(test) {
        return;
    }
    let place = Place::new(test);
    let (image, one) = (place.image(), place.volume("one"));
    succeed(&mut plat(&["push", text(&image), &one]));
    let mut mounted = mount(&place, &one);
    fs::write(mounted.path().join("early"), "early").unwrap();
    succeed(plat(&["sync"]).arg(mounted.path()));
    thread::sleep(Duration::from_millis(2500));
    fs::write(mounted.path().join("late"), "late").unwrap();
    succeed(plat(&["sync"]).arg(mounted.path()));
    mounted.signal(Signal::STOP);
    let mut heir = plat(&["mkdir", &one, "/heir"]);
    heir.env("PLAT_STORE_LOG", place.scratch.join("heir")).env("PLAT_STORE_TAKEOVER", "1");
    succeed(&mut heir);
    mounted.signal(Signal::CONT);
    thread::sleep(Duration::from_millis(2500));
    let later = fs::write(mounted.path().join("later"), "later");
    let synced = plat(&["sync"]).arg(mounted.path()).output().unwrap().status.success();
    assert!(later.is_err() || !synced, "what a zombie writes");
    mounted.signal(Signal::KILL);
    mounted.wait();
    drop(mounted);
    let done = succeed(&mut knowing(&place, &["mkdir", &one, "/again"]));
    let warned = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(warned.contains("are not in the volume") && warned.contains("lost-"), "{warned}");
    let listed = said(&mut plat(&["ls", &one, "/"]));
    assert!(["early", "heir", "again"].iter().all(|name| listed.contains(name)), "{listed}");
    assert!(!listed.contains("late"), "{listed}");
    let back = place.scratch.join("back.img");
    succeed(&mut plat(&["pull", &one, text(&back)]));
    assert_clean(&back);
}

#[test]
fn a_local_log_is_for_stores_and_its_words_are_checked() {
    let test = "a_local_log_is_for_stores_and_its_words_are_checked";
    let place = Place::new(test);
    let (image, one) = (place.image(), place.volume("one"));
    succeed(&mut plat(&["push", text(&image), &one]));
    let mut wrong = knowing(&place, &["mkdir", &one, "/new"]);
    assert!(fail(wrong.env("PLAT_STORE_FLUSH", "never")).contains("`store` or `local`"));
    let mut local = knowing(&place, &["mkdir", &one, "/new"]);
    succeed(local.env("PLAT_STORE_FLUSH", "local"));
    assert!(said(&mut plat(&["ls", &one, "/"])).contains("new"));
    if have_fuse(test) {
        let directory = place.scratch.join("m");
        fs::create_dir(&directory).unwrap();
        let why = fail(&mut plat(&["mount", "-o", "flush=local", text(&image), text(&directory)]));
        assert!(why.contains("volumes of stores"), "{why}");
    }
}
