//! How files lie that are written through a mount, counted by filefrag in the kernel: next to the kernel's own, on the same volume.

use crate::support::mounted::{Mounted, have_fuse};
use crate::support::volumes::{AT_ONCE, EXTENTS, Profile, View, Who};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use testkit::scratch::Scratch;
use testkit::{fsck, mount, tool};

/// Four files that are appended to in turn.
fn in_turn(root: &Path, sync: bool) {
    let files: Vec<File> =
        (0..4).map(|number| File::create(root.join(format!("f{number}"))).unwrap()).collect();
    for round in 0..400_u64 {
        for file in &files {
            file.write_all_at(&[round as u8; 8192], round * 8192).unwrap();
            if sync {
                file.sync_all().unwrap();
            }
        }
    }
}

/// Writes files side by side, each by a thread of its own; number and MiB of each are given.
fn side_by_side(root: &Path, writers: usize, mib: usize) {
    thread::scope(|scope| {
        for writer in 0..writers {
            scope.spawn(move || {
                let mut file = File::create(root.join(format!("w{writer}"))).unwrap();
                for part in 0..mib * 16 {
                    file.write_all(&[(writer + part) as u8; 65_536]).unwrap();
                }
            });
        }
    });
}

/// The counts of extents of all files that some work leaves, the largest first.
fn extents(test: &str, profile: &Profile, who: Who, size: &str, work: &dyn Fn(&Path)) -> Vec<u32> {
    let scratch = Scratch::new(test);
    let image = profile.make(&scratch, "image", size);
    let view = View::new(who, &image, profile.options);
    work(view.path());
    view.end();
    if who.is_ours() {
        fsck::assert_clean(&image);
    }
    let mounted = mount::Mounted::read_only(&image).unwrap();
    let mut counts: Vec<u32> =
        mount::extent_counts(mounted.path()).into_iter().map(|(_, count)| count).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

fn ready(test: &str) -> bool {
    have_fuse(test) && mount::have_loop_mount(test) && tool::have_tools(test, &["e2fsck", "filefrag"])
}

/// Counts on both sides; ours must not be more than `most` each.
fn beside_the_kernel(test: &str, profile: &Profile, size: &str, most: u32, work: &dyn Fn(&Path)) {
    if !ready(test) {
        return;
    }
    let theirs = extents(test, profile, Who::Kernel, size, work);
    let show = |counts: &[u32]| {
        let sum: u32 = counts.iter().sum();
        format!("{} files, at most {}, {sum} in all", counts.len(), counts.first().unwrap_or(&0))
    };
    for who in [Who::Plat, Who::PlatByDefault("allow_other")] {
        let ours = extents(test, profile, who, size, work);
        eprintln!("{test}: extents: kernel {}; {who:?} {}", show(&theirs), show(&ours));
        assert_eq!(ours.len(), theirs.len());
        assert!(
            ours.iter().all(|count| *count <= most),
            "{test}: {who:?}: {ours:?}, at most {most} each; kernel {theirs:?}"
        );
    }
}

#[test]
fn appended_in_turn() {
    beside_the_kernel("appended_in_turn", &EXTENTS, "256M", 1, &|root| in_turn(root, false));
}

#[test]
fn appended_in_turn_at_once() {
    beside_the_kernel("appended_in_turn_at_once", &AT_ONCE, "256M", 4, &|root| in_turn(root, false));
}

#[test]
fn appended_in_turn_and_synced() {
    beside_the_kernel("appended_in_turn_and_synced", &EXTENTS, "256M", 8, &|root| in_turn(root, true));
}

#[test]
fn sixteen_writers() {
    beside_the_kernel("sixteen_writers", &EXTENTS, "512M", 2, &|root| side_by_side(root, 16, 8));
}

/// `cargo test --release -p platfs-cli --test all layout:: -- --ignored`.
#[test]
#[ignore = "writes 8 GiB"]
fn sixty_four_writers() {
    beside_the_kernel("sixty_four_writers", &EXTENTS, "6G", 2, &|root| side_by_side(root, 64, 64));
}

/// Two lines of `/proc/PID/status`: the most that the process ever had in memory, and what it has now, in MiB.
fn memory(mounted: &Mounted) -> [u64; 2] {
    let status = fs::read_to_string(format!("/proc/{}/status", mounted.process())).unwrap();
    ["VmHWM:", "VmRSS:"].map(|field| {
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    })
}

/// Memory of a server while a large archive is unpacked into it, and afterwards.
#[test]
#[ignore = "unpacks a large archive, which PLATFS_LINUX_TAR names"]
fn memory_of_an_unpacked_archive() {
    let test = "memory_of_an_unpacked_archive";
    let Some(archive) = std::env::var_os("PLATFS_LINUX_TAR") else {
        tool::skip(test, "PLATFS_LINUX_TAR names no archive");
        return;
    };
    if !ready(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = EXTENTS.make(&scratch, "image", "4G");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let begun = std::time::Instant::now();
    tool::run(tool::command("tar").arg("-xf").arg(&archive).arg("-C").arg(mounted.path()));
    let [most, unpacked] = memory(&mounted);
    let unpacking = begun.elapsed();
    tool::run(tool::command("sync").arg("-f").arg(mounted.path()));
    let [_, synced] = memory(&mounted);
    println!("unpacked in {unpacking:.1?}, synced after {:.1?}", begun.elapsed());
    println!("at most {most} MiB; {unpacked} MiB after unpacking, {synced} MiB after the sync");
    mounted.unmount();
    fsck::assert_clean(&image);
    assert!(most <= 300, "at most {most} MiB");
    assert!(synced < 100, "{synced} MiB after the sync");
}
