//! A volume that gets full under its writers: what `write` accepted is there, whichever way a program writes, and there is
//! no error beside free room. On volumes without the kernel's writeback cache, and on large ones and others with it, where
//! the kernel asks before each write.

mod accepted;
mod beside;
mod programs;
mod removed;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use crate::support::mounted::{Mounted, have_fuse};
use accepted::{Accepted, pattern};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use testkit::mapped::{Mapping, Sharing};
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::{fsck, tool};

const MIB: u64 = 1 << 20;
/// Room that the volumes have left.
const ROOM: u64 = 48 * MIB;
/// A user without rights, whom fusermount3 can find by name (`nobody`).
const USER: u32 = 65534;

/// Size of the volume, and how it is mounted.
#[derive(Clone, Copy, Debug)]
struct Kind<'a> {
    size: &'static str,
    options: &'a str,
    features: &'static str,
}

const SMALL: Kind<'static> = Kind { size: "96M", options: "transport=device", features: "^quota" };
const CACHED: Kind<'static> = Kind { options: "writeback_cache,transport=uring", ..SMALL };
const LARGE: Kind<'static> = Kind { size: "6G", options: "transport=device", ..SMALL };
const KINDS: [Kind<'static>; 3] = [SMALL, CACHED, LARGE];

fn ready(test: &str) -> bool {
    tool::have_root(test) && have_fuse(test) && tool::have_tools(test, &["mke2fs", "e2fsck", "dd"])
}

/// A volume that is mounted for all, with a file that leaves only some room.
struct Full {
    image: PathBuf,
    mounted: Mounted,
    options: String,
    _scratch: Scratch,
}

impl Full {
    fn new(test: &str, kind: Kind<'_>, reserved: &str) -> Self {
        Self::prepared(test, kind, reserved, |_| {})
    }

    fn prepared(test: &str, kind: Kind<'_>, reserved: &str, prepare: impl FnOnce(&Path)) -> Self {
        let scratch = Scratch::new(test);
        let image = scratch.join("image");
        let arguments = ["-q", "-F", "-t", "ext4", "-J", "size=4", "-m", reserved, "-O", kind.features];
        tool::run(tool::command("mke2fs").args(arguments).arg(&image).arg(kind.size));
        prepare(&image);
        let options = format!("rw,allow_other,{}", kind.options);
        let mounted = Mounted::new(&image, &["-o", &options]).unwrap();
        fs::set_permissions(mounted.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let full = Full { image, mounted, options, _scratch: scratch };
        full.leave(ROOM);
        full
    }

    fn root(&self) -> &Path {
        self.mounted.path()
    }

    /// Takes space until so much is left. What is deleted is free once it is stable.
    fn leave(&self, left: u64) {
        let fill = OpenOptions::new().append(true).create(true).open(self.root().join("fill")).unwrap();
        let taken = self.room().checked_sub(left + MIB).filter(|taken| *taken > 0);
        if let Some(taken) = taken {
            let size = fill.metadata().unwrap().len();
            fallocate(&fill, FallocateFlags::empty(), size, taken).unwrap();
        }
    }

    fn room(&self) -> u64 {
        room(self.root())
    }

    /// Mounts it again, and looks for what was accepted.
    fn judge(self, accepted: &Accepted) {
        self.mounted.unmount();
        fsck::assert_clean(&self.image);
        let again = Mounted::new(&self.image, &["-o", &self.options]).unwrap();
        accepted.assert_there(again.path());
        again.unmount();
    }
}

/// Bytes of room for root.
fn room(root: &Path) -> u64 {
    File::open(root).unwrap().sync_all().unwrap();
    let found = statvfs(root).unwrap();
    found.f_bfree * found.f_frsize
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Writes at an offset until a call fails; the bytes that were accepted.
fn fill_up(accepted: &mut Accepted, root: &Path, name: &str, piece: usize) -> u64 {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(root.join(name)).unwrap();
    let mut at = 0;
    loop {
        match accepted.write_at(&file, name, at, piece) {
            Ok(count) => at += count,
            Err(error) if is_full(&error) => return at,
            Err(error) => panic!("{name} at {at}: {error}"),
        }
        assert!(at < 4 * ROOM, "never refused");
    }
}

#[test]
fn all_that_write_accepts_is_there() {
    let test = "all_that_write_accepts_is_there";
    if !ready(test) {
        return;
    }
    for kind in KINDS {
        let (full, mut accepted) = (Full::new(test, kind, "0"), Accepted::default());
        for piece in [500, 65_536, 1 << 20] {
            let there = full.room();
            let name = format!("by-{piece}");
            let taken = fill_up(&mut accepted, full.root(), &name, piece);
            assert!(taken + 3 * MIB > there, "{kind:?}: {taken} of {there} by {piece}");
            // Room again, at once.
            if piece < 1 << 20 {
                accepted.remove(full.root(), &name);
                fs::write(full.root().join("next"), b"more")
                    .unwrap_or_else(|error| panic!("{kind:?}: {error}"));
            }
        }
        full.judge(&accepted);
    }
}

/// The kernel hands over whole pages, with zeros around what was written: more blocks than the bytes need, and were promised.
#[test]
fn bytes_in_pages_of_several_blocks_need_room_for_themselves_only() {
    let test = "bytes_in_pages_of_several_blocks_need_room_for_themselves_only";
    if !ready(test) {
        return;
    }
    let kind = Kind { options: "writeback_cache,transport=device", ..SMALL };
    let (full, mut accepted) = (Full::new(test, kind, "0"), Accepted::default());
    // Few in each file: the inode has room for their map, and nothing is promised to that.
    let new = |number: u64| {
        let file = File::create_new(full.root().join(format!("f{number}"))).unwrap();
        file.set_len(MIB).unwrap();
        file
    };
    let files: Vec<File> = (0..400).map(new).collect();
    full.leave(0);
    let mut write = |at| {
        let names = (0..).map(|number| format!("f{number}"));
        let each = files.iter().zip(names).map(|(file, name)| accepted.write_at(file, &name, at, 100));
        each.filter(Result::is_ok).count()
    };
    let taken = write(2000) + write(500_000) + write(900_000);
    // Of 1 MiB in blocks of 1 KiB; whole pages would be 256.
    assert!((400..1200).contains(&taken), "{taken} were taken");
    drop(files);
    full.judge(&accepted);
}

#[test]
fn one_long_write_is_accepted_as_far_as_there_is_room() {
    let test = "one_long_write_is_accepted_as_far_as_there_is_room";
    if !ready(test) {
        return;
    }
    for kind in KINDS {
        let (full, mut accepted) = (Full::new(test, kind, "0"), Accepted::default());
        // Opened when there is room, and when there is less.
        for len in [400 * MIB, 80 * MIB, 20 * MIB] {
            let there = full.room();
            let name = format!("long-{len}");
            let file = File::create(full.root().join(&name)).unwrap();
            match accepted.write_at(&file, &name, 0, usize::try_from(len).unwrap()) {
                Ok(count) => assert!(count <= there, "{kind:?}: {count} accepted with room for {there}"),
                Err(error) => assert!(is_full(&error) && len > there, "{kind:?}: {error}, {len} of {there}"),
            }
            drop(file);
            if len > 20 * MIB {
                accepted.remove(full.root(), &name);
            }
        }
        full.judge(&accepted);
    }
}

#[test]
fn programs_that_ignore_close_hear_of_it_by_write() {
    let test = "programs_that_ignore_close_hear_of_it_by_write";
    if !ready(test) {
        return;
    }
    for kind in KINDS {
        let (full, mut accepted) = (Full::new(test, kind, "0"), Accepted::default());
        full.leave(6 * MIB);
        let mut refused = 0;
        for number in 0..2000 {
            let name = format!("file-{number}");
            let Ok(file) = File::create(full.root().join(&name)) else { break };
            let len = if number % 2 == 0 { 20_000 } else { 200_000 };
            refused += u32::from(accepted.write_at(&file, &name, 0, len).is_err());
            if refused > 20 {
                break;
            }
        }
        assert!(refused > 0, "{kind:?}");
        full.judge(&accepted);
    }
}

#[test]
fn sixteen_writers_side_by_side_lose_nothing() {
    let test = "sixteen_writers_side_by_side_lose_nothing";
    if !ready(test) {
        return;
    }
    for kind in KINDS {
        let full = Full::new(test, kind, "0");
        let write = &|number: usize| {
            let mut accepted = Accepted::default();
            let piece = [4096, 65_536, 300_000, 8 << 20][number % 4];
            fill_up(&mut accepted, full.root(), &format!("file-{number}"), piece);
            accepted
        };
        let accepted = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..16).map(|number| scope.spawn(move || write(number))).collect();
            let mut all = Accepted::default();
            writers.into_iter().for_each(|writer| all.join(writer.join().unwrap()));
            all
        });
        full.judge(&accepted);
    }
}

/// Files that were open when there was room, vectors, appending, holes of sparse files, and copies by the kernel.
#[test]
fn every_way_to_write_is_asked_for() {
    let test = "every_way_to_write_is_asked_for";
    if !ready(test) {
        return;
    }
    for kind in [CACHED, LARGE] {
        let scratch = Scratch::new(test);
        let (full, mut accepted) = (Full::new(test, kind, "0"), Accepted::default());
        let open = |name: &str| File::create(full.root().join(name)).unwrap();
        let (sparse, vectors) = (open("sparse"), open("vectors"));
        let append = OpenOptions::new().append(true).create(true).open(full.root().join("append")).unwrap();
        let source = scratch.join("source");
        fs::write(&source, pattern("copied", 0, 9 << 20)).unwrap();
        full.leave(8 * MIB);
        let mut random = Random(7);
        let mut refused = [0; 4];
        for round in 0..300 {
            let at = random.below(1 << 40);
            refused[0] += u32::from(accepted.write_at(&sparse, "sparse", at, 40_000).is_err());
            refused[1] += u32::from(accepted.write_vectored(&vectors, "vectors", 5 * 9_000).is_err());
            refused[2] += u32::from(accepted.append(&append, "append", 30_000).is_err());
            if round % 100 == 0 {
                let name = format!("copied-{round}");
                let copied = accepted.send(&source, full.root(), &name);
                refused[3] += u32::from(copied.is_err());
            }
        }
        assert!(refused.iter().all(|count| *count > 0), "{kind:?}: {refused:?}");
        drop((sparse, vectors, append));
        full.judge(&accepted);
    }
}

#[test]
fn what_has_its_blocks_can_be_changed_on_a_full_volume() {
    let test = "what_has_its_blocks_can_be_changed_on_a_full_volume";
    if !ready(test) {
        return;
    }
    for kind in KINDS {
        let (full, mut accepted) = (Full::new(test, kind, "0"), Accepted::default());
        let new = || OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
        let kept = new().open(full.root().join("kept")).unwrap();
        accepted.write_at(&kept, "kept", 0, 1 << 20).unwrap();
        let given = new().open(full.root().join("given")).unwrap();
        fallocate(&given, FallocateFlags::empty(), 0, 2 * MIB).unwrap();
        let mapped = Mapping::new(&given, 0, 1 << 20, Sharing::Shared).unwrap();
        fill_up(&mut accepted, full.root(), "rest", 65_536);
        fill_up(&mut accepted, full.root(), "end", 4096);
        for at in (0..MIB).step_by(4096) {
            accepted.write_at(&kept, "kept", at, 4096).expect("it has its blocks");
            accepted.write_at(&given, "given", MIB + at, 4096).expect("it was given its blocks");
        }
        mapped.write(0, &pattern("given", 0, 1 << 20));
        accepted.note("given", 0, MIB);
        drop((mapped, kept, given));
        full.judge(&accepted);
    }
}

/// A reader that meets the end of a file hears of no lack of room.
#[test]
fn readers_on_a_full_volume_hear_of_nothing() {
    let test = "readers_on_a_full_volume_hear_of_nothing";
    if !ready(test) {
        return;
    }
    for kind in [CACHED, LARGE] {
        let (full, mut accepted) = (Full::new(test, kind, "0"), Accepted::default());
        fill_up(&mut accepted, full.root(), "rest", 65_536);
        let file = OpenOptions::new().read(true).write(true).open(full.root().join("rest")).unwrap();
        let size = file.metadata().unwrap().len();
        assert!(file.write_at(&[1; 1 << 20], size).is_err());
        let mut end = Vec::new();
        rustix::fs::seek(&file, rustix::fs::SeekFrom::End(-5000)).unwrap();
        io::Read::read_to_end(&mut &file, &mut end).unwrap();
        assert_eq!(end.len(), 5000);
        drop(file);
        full.judge(&accepted);
    }
}

#[test]
fn blocks_reserved_for_root_are_kept_from_others() {
    let test = "blocks_reserved_for_root_are_kept_from_others";
    if !ready(test) {
        return;
    }
    for kind in [Kind { size: "160M", ..SMALL }, Kind { size: "160M", ..CACHED }] {
        let (full, accepted) = (Full::new(test, kind, "20"), Accepted::default());
        let reserved = 32 * MIB - MIB;
        for (user, kept) in [(USER, reserved), (0, 0)] {
            let target = full.root().join(format!("by-{user}"));
            let before = full.room();
            let mut command = tool::command("dd");
            let command = command.args(["if=/dev/zero", "bs=64k"]).arg(format!("of={}", target.display()));
            let said = command.uid(user).gid(user).output().unwrap();
            assert!(String::from_utf8_lossy(&said.stderr).contains("error writing"), "{said:?}");
            let (taken, left) = (fs::metadata(&target).unwrap().len(), full.room());
            assert!(
                taken + left <= before,
                "{kind:?}: {taken} bytes were taken, {left} are left of {before}"
            );
            assert!((kept..kept + 4 * MIB).contains(&left), "{kind:?}: user {user}: {left} left");
            fs::remove_file(&target).unwrap();
        }
        full.judge(&accepted);
    }
}

#[test]
fn a_limit_of_quota_is_kept_by_write() {
    let test = "a_limit_of_quota_is_kept_by_write";
    if !ready(test) {
        return;
    }
    // A limit of quota does not bind a thread with the capability, so this one gives it up. It serves this test alone.
    let mut sets = rustix::thread::capabilities(None).unwrap();
    sets.effective.remove(rustix::thread::CapabilitySet::SYS_RESOURCE);
    rustix::thread::set_capabilities(None, sets).unwrap();
    for kind in KINDS {
        let full = Full::new(test, Kind { features: "quota", ..kind }, "0");
        let limit = ["--user", "65534", "--block-hard", "20M"];
        crate::support::succeed(crate::support::plat(&["quota"]).args(limit).arg(full.root()));
        let mut accepted = Accepted::default();
        let mut sum = 0;
        for number in 0..6 {
            let name = format!("file-{number}");
            let file = File::create(full.root().join(&name)).unwrap();
            chown(full.root().join(&name), Some(USER), Some(USER)).unwrap();
            for at in 0..100 {
                match accepted.write_at(&file, &name, at * 65_536, 65_536) {
                    Ok(count) => sum += count,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{kind:?}");
                        break;
                    }
                }
            }
        }
        assert!((18 * MIB..=20 * MIB).contains(&sum), "{kind:?}: {sum}");
        full.judge(&accepted);
    }
}

/// Limits of quota and the reserve are passed over by a capability, and by no user's number. The reserve is for the user
/// whom the superblock names.
#[test]
fn limits_and_the_reserve_ask_for_a_capability() {
    let test = "limits_and_the_reserve_ask_for_a_capability";
    if !ready(test) || !tool::have_tools(test, &["setpriv", "tune2fs"]) {
        return;
    }
    const NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    const NAMED: [&str; 3] = ["--reuid=1002", "--regid=1002", "--clear-groups"];
    const BARE: [&str; 2] = ["--bounding-set=-sys_resource", "--inh-caps=-sys_resource"];
    let with = [&NOBODY[..], &["--inh-caps=+sys_resource", "--ambient-caps=+sys_resource"]].concat();
    // How it is mounted, who writes, whether limits are passed over, and whether the reserve may be taken.
    let mut table: Vec<(&str, &[&str], bool, bool)> = vec![
        ("rw", &BARE, false, false),
        ("rw", &NOBODY, false, false),
        ("rw", &NAMED, false, true),
        ("fakeroot", &BARE, true, true),
    ];
    let sets = rustix::thread::capabilities(None).unwrap();
    if sets.permitted.contains(rustix::thread::CapabilitySet::SYS_RESOURCE) {
        table.extend([("rw", &[][..], true, true), ("rw", &with, true, true)]);
    }
    for ((options, who, passes, takes), kind) in table.iter().flat_map(|row| [(row, SMALL), (row, CACHED)]) {
        let options = format!("{},{options}", kind.options);
        let kind = Kind { size: "160M", features: "quota", options: &options };
        let full = Full::prepared(test, kind, "20", |image| {
            tool::run(tool::command("tune2fs").args(["-u", "1002"]).arg(image));
        });
        let target = full.root().join("theirs");
        File::create(&target).unwrap();
        fs::set_permissions(&target, PermissionsExt::from_mode(0o666)).unwrap();
        chown(&target, Some(1001), Some(1001)).unwrap();
        let write = |limit: &str, count: &str| {
            let limit = ["--user", "1001", "--block-hard", limit];
            crate::support::succeed(crate::support::plat(&["quota"]).args(limit).arg(full.root()));
            let mut command = tool::command("setpriv");
            command.args(*who).args(["dd", "if=/dev/zero", "bs=64k", "conv=notrunc,fsync", count]);
            command.arg(format!("of={}", target.display())).output().unwrap()
        };
        let said = write("4M", "count=96");
        let len = fs::metadata(&target).unwrap().len();
        let done = (said.status.success(), len > 4 * MIB);
        assert_eq!(done, (*passes, *passes), "{options} {who:?}: {len} bytes, {said:?}");
        let words = |said: &std::process::Output| String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(*passes || words(&said).contains("Disk quota exceeded"), "{options} {who:?}: {said:?}");
        let said = write("0", "count=9999");
        let left = full.room();
        let is_full = words(&said).contains("No space left on device");
        assert!(!said.status.success() && is_full, "{options} {who:?}: it takes all there is: {said:?}");
        assert_eq!(left < 4 * MIB, *takes, "{options} {who:?}: {left} left, {said:?}");
        full.judge(&Accepted::default());
    }
}

/// A user may not set how much the kernel holds, and may not look at calls of others. It is as with root's mounts on a
/// volume that is not large.
#[test]
fn a_user_who_mounts_loses_nothing() {
    let test = "a_user_who_mounts_loses_nothing";
    if !ready(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = scratch.join("image");
    let owner = format!("root_owner={USER}:{USER}");
    let arguments = ["-q", "-F", "-t", "ext4", "-m", "0", "-E", &owner];
    tool::run(tool::command("mke2fs").args(arguments).arg(&image).arg("64M"));
    chown(&image, Some(USER), Some(USER)).unwrap();
    let mounted = match Mounted::by_user(USER, &image, &["-o", "rw"]) {
        Ok(mounted) => mounted,
        Err(why) => return tool::skip(test, &format!("a user can't mount here: {why}")),
    };
    let target = mounted.path().join("target");
    let mut command = tool::command("dd");
    let said = command.args(["if=/dev/zero", "bs=1M"]).arg(format!("of={}", target.display()));
    let said = said.uid(USER).gid(USER).output().unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).contains("error writing"), "{said:?}");
    let stat = tool::command("stat").args(["-c", "%s %b"]).arg(&target).uid(USER).gid(USER).output().unwrap();
    let found = String::from_utf8(stat.stdout).unwrap();
    let found: Vec<u64> = found.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert!(found[0] <= found[1] * 512, "{found:?}: bytes without blocks");
    mounted.unmount();
    fsck::assert_clean(&image);
}
