//! `plat trim` of images; of mounts see `mount_write/trim.rs`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;

use crate::plat::plat;
use serde_json::Value;
use testkit::fsck::assert_clean;
use testkit::mount::{Mounted, have_loop_mount};
use testkit::scratch::Scratch;
use testkit::tool;

fn bytes(ran: &[u8]) -> u64 {
    serde_json::from_slice::<Value>(ran).unwrap()["bytes"].as_u64().unwrap()
}

fn used(image: &Path) -> u64 {
    fs::metadata(image).unwrap().blocks() << 9
}

/// Bytes that fstrim says it discarded.
fn fstrim(image: &Path, arguments: &[&str]) -> u64 {
    let mounted = Mounted::read_write(image).unwrap();
    let output = tool::run(tool::command("fstrim").arg("-v").args(arguments).arg(mounted.path()));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.split_once('(').and_then(|(_, rest)| rest.split_once(" bytes")).unwrap().0.parse().unwrap()
}

#[test]
fn as_much_is_trimmed_as_by_fstrim() {
    let test = "as_much_is_trimmed_as_by_fstrim";
    if !have_loop_mount(test) || !tool::have_tools(test, &["fstrim"]) {
        return;
    }
    for options in ["mkfs", "mkfs -b 4096 -O bigalloc -C 64K", "mkfs -O ^has_journal"] {
        let scratch = Scratch::new("trim");
        let (image, other) = (scratch.join("disk.img"), scratch.join("other.img"));
        plat(options, &image, &["256M".as_ref()]).fine();
        {
            let mounted = Mounted::read_write(&image).unwrap();
            for file in 0..200_usize {
                fs::write(mounted.path().join(format!("{file}")), vec![9; 90_000]).unwrap();
            }
            tool::run(tool::command("sync").arg("-f").arg(mounted.path()));
            for file in (0..200).filter(|file| file % 3 != 0) {
                fs::remove_file(mounted.path().join(format!("{file}"))).unwrap();
            }
        }
        fs::copy(&image, &other).unwrap();
        let would = bytes(&plat("trim --json --dry-run --min-extent 64K", &image, &[]).fine());
        let before = used(&image);
        let trimmed = bytes(&plat("trim --json --min-extent 64K", &image, &[]).fine());
        assert_eq!(trimmed, would, "{options}");
        assert_eq!(trimmed, fstrim(&other, &["-m", "64K"]), "{options}");
        assert!(used(&image) + (5 << 20) < before, "{options}: {before} {}", used(&image));
        let part = bytes(&plat("trim --json --offset 64M --length 32M", &image, &[]).fine());
        assert!(part <= 32 << 20 && part > 20 << 20, "{options}: {part}");
        assert_clean(&image);
        let mounted = Mounted::read_only(&image).unwrap();
        for file in (0..200).step_by(3) {
            assert_eq!(fs::read(mounted.path().join(format!("{file}"))).unwrap(), vec![9; 90_000], "{file}");
        }
    }
}

#[test]
fn what_can_not_be_trimmed_is_said() {
    let scratch = Scratch::new("trim-wrong");
    let image = scratch.join("disk.img");
    plat("mkfs", &image, &["64M".as_ref()]).fine();
    let before = fs::read(&image).unwrap();
    assert!(plat("trim --offset 1G", &image, &[]).failed().contains("no block is in"));
    assert_eq!(plat("trim --dry-run", scratch.path(), &[]).code, ExitCode::from(2));
    let elsewhere = plat("trim", scratch.path(), &[]).failed();
    assert!(elsewhere.contains("not in a mount by `plat mount`"), "{elsewhere}");
    plat("trim --dry-run", &image, &[]).fine();
    assert!(fs::read(&image).unwrap() == before, "nothing is written");
}
