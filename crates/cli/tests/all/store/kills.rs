//! Commands on a store that are killed at any moment: what a finished one promised is there, and the next goes on.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{Place, said, text};
use crate::support::{plat, succeed};

/// A few in the suite; `PLATFS_STEPS` says how many otherwise.
const KILLS: u32 = 10;

/// Lets a command run for a time and kills it; whether it had ended with success.
fn killed_after(mut command: Command, time: Duration) -> bool {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while begun.elapsed() < time {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        thread::sleep(Duration::from_micros(300));
    }
    // Too late, or in time.
    let _ = child.kill();
    child.wait().unwrap().success()
}

fn rounds(kills: u32) {
    let place = Place::new("kills");
    let image = place.image();
    let (store, one) = (place.store(), place.volume("one"));
    succeed(&mut plat(&["push", text(&image), &one]));
    let file = place.scratch.join("file");
    // What finished commands promised: files of `one`, and volumes.
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    let mut volumes: Vec<String> = Vec::new();
    let mut ended = 0;
    for round in 0..kills {
        // From the first moment to beyond the end.
        let time = Duration::from_micros(u64::from(round.wrapping_mul(7_919) % 60_000));
        let (name, contents) = (format!("/file-{}", round % 7), format!("{round} ").repeat(20_000));
        match round % 4 {
            0 => {
                fs::write(&file, &contents).unwrap();
                let old = files.remove(&name);
                let is_promised = killed_after(plat(&["put", "--force", &one, text(&file), &name]), time);
                ended += u32::from(is_promised);
                let output = plat(&["cat", &one, &name]).output().unwrap();
                assert!(output.status.success() || !is_promised, "round {round}: {name}");
                // Of one that was killed it is the old one, the new one, or not there; but from now on it stays so.
                if output.status.success() {
                    let now = String::from_utf8(output.stdout).unwrap();
                    let is_old = !is_promised && Some(&now) == old.as_ref();
                    assert!(now == contents || is_old, "round {round}: {name}");
                    files.insert(name, now);
                }
            }
            1 => {
                let volume = format!("v{round}");
                if killed_after(plat(&["push", text(&image), &place.volume(&volume)]), time) {
                    ended += 1;
                    volumes.push(volume);
                }
            }
            2 => ended += u32::from(killed_after(plat(&["store", "gc", "--grace", "0", &store]), time)),
            _ => ended += u32::from(killed_after(plat(&["store", "compact", &one]), time)),
        }
        if round % 10 == 9 || round + 1 == kills {
            judge(&place, &files, &volumes);
            for gone in volumes.drain(..volumes.len() / 2) {
                succeed(&mut plat(&["store", "rm", &place.volume(&gone)]));
            }
        }
    }
    println!("{kills} kills, {ended} came too late");
}

fn judge(place: &Place, files: &BTreeMap<String, String>, volumes: &[String]) {
    assert!(said(&mut plat(&["store", "verify", &place.store()])).contains("all is well"));
    succeed(&mut plat(&["check", "-n", &place.volume("one")]));
    for (name, contents) in files {
        assert!(said(&mut plat(&["cat", &place.volume("one"), name])) == *contents, "{name}");
    }
    for volume in volumes {
        assert_eq!(said(&mut plat(&["cat", &place.volume(volume), "/etc/os-release"])), "ID=odd\n");
    }
    // Nothing that was killed is in anybody's way.
    succeed(&mut plat(&["store", "gc", &place.store()]));
    succeed(&mut plat(&["push", "--force", text(&place.scratch.join("disk.img")), &place.volume("other")]));
}

#[test]
fn some_killed_commands_lose_nothing_and_stand_in_nobodys_way() {
    rounds(KILLS);
}

#[test]
#[ignore = "minutes: PLATFS_STEPS=200 cargo test -p platfs-cli --test all many_killed -- --ignored --nocapture"]
fn many_killed_commands_lose_nothing_and_stand_in_nobodys_way() {
    rounds(std::env::var("PLATFS_STEPS").map_or(200, |text| text.parse().unwrap()));
}
