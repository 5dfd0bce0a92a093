//! Quota: what is counted is what e2fsck counts, and what limits allow.
#![cfg(target_os = "linux")]
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ondisk::quota::QuotaKind;
use ondisk::quota::parts::LIMIT_UNIT;
use platfs::device::FileDevice;
use platfs::quota::{Graces, Limits};
use platfs::{
    Allocate, Attributes, Error, InodeFlags, InodeNumber, Kind, NewInode, OpenOptions, Replace, Times,
    Timestamp, Volume, WriteOptions, WriteOrder,
};
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::{fsck, sparse, tool};

const NOW: i64 = 1_700_000_000;
const ALL: &str = "quotatype=usrquota:grpquota:prjquota";

fn image(scratch: &Scratch, name: &str, arguments: &[&str]) -> PathBuf {
    let image = scratch.join(name);
    let common = ["-q", "-F", "-t", "ext4", "-E", ALL];
    tool::run(tool::command("mke2fs").args(common).args(arguments).arg(&image).arg("64M"));
    image
}

fn options() -> OpenOptions {
    OpenOptions::new().write(true).now(Timestamp::from_seconds(NOW)).seed(1)
}

fn open(image: &Path, options: &OpenOptions) -> Volume {
    let file = File::options().read(true).write(true).open(image).unwrap();
    Volume::open(Arc::new(FileDevice::new(file).unwrap()), options).unwrap()
}

fn attributes(uid: u32, gid: u32) -> Attributes {
    Attributes { permissions: 0o777, uid, gid, times: Times::all(Timestamp::from_seconds(NOW)) }
}

fn create(
    volume: &Volume,
    parent: InodeNumber,
    name: &str,
    kind: Kind<'_>,
    uid: u32,
) -> platfs::Result<InodeNumber> {
    let new = NewInode { kind, attributes: attributes(uid, uid + 100), xattrs: &[] };
    volume.create(parent, name.as_bytes(), &new)
}

fn write(volume: &Volume, number: InodeNumber, offset: u64, len: usize) -> platfs::Result<()> {
    volume.write_at(number, offset, &vec![0x5A; len], WriteOptions::default())
}

/// A tree that changes at random.
struct Play<'v> {
    volume: &'v Volume,
    random: Random,
    directories: Vec<InodeNumber>,
    files: BTreeMap<(InodeNumber, String), InodeNumber>,
    made: u32,
}

impl<'v> Play<'v> {
    fn new(volume: &'v Volume, seed: u64) -> Self {
        let directories = vec![InodeNumber::ROOT];
        Play { volume, random: Random(seed), directories, files: BTreeMap::new(), made: 0 }
    }

    fn any(&mut self) -> Option<(InodeNumber, String, InodeNumber)> {
        let at = self.random.below(self.files.len() as u64) as usize;
        self.files.iter().nth(at).map(|((parent, name), number)| (*parent, name.clone(), *number))
    }

    fn make(&mut self) {
        self.made += 1;
        let (name, uid) = (format!("n{}", self.made), self.random.below(40) as u32);
        let parent = *self.random.pick(&self.directories).unwrap();
        let target = "t".repeat(100);
        let kind = match self.random.below(6) {
            0 => Kind::Directory,
            1 => Kind::Symlink(target.as_bytes()),
            2 => Kind::Fifo,
            _ => Kind::File,
        };
        let number = create(self.volume, parent, &name, kind, uid).unwrap();
        match kind {
            Kind::Directory => self.directories.push(number),
            _ => drop(self.files.insert((parent, name), number)),
        }
    }

    fn step(&mut self) {
        let choice = self.random.below(14);
        let Some((parent, name, number)) = self.any().filter(|_| choice > 2) else { return self.make() };
        let node = self.volume.inode(number);
        let is_file = self.volume.metadata(number).unwrap().file_type == platfs::FileType::Regular;
        let (offset, len) = (self.random.below(1 << 19), self.random.below(1 << 16) as usize);
        match choice {
            3..=6 if is_file => write(self.volume, number, offset, len).unwrap(),
            7 if is_file => self.volume.truncate(number, offset).unwrap(),
            8 if is_file => {
                let mode = [Allocate::KeepSize, Allocate::Extend, Allocate::PunchHole];
                let mode = *self.random.pick(&mode).unwrap();
                match self.volume.allocate(number, mode, offset, 1 + len as u64) {
                    Ok(()) | Err(Error::Unsupported(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            9 => {
                self.volume.unlink(parent, name.as_bytes()).unwrap();
                self.files.remove(&(parent, name));
            }
            10 => {
                let uid = self.random.below(40) as u32;
                let gid = self.random.one_in(2).then_some(uid + 7);
                node.set_owner(Some(uid), gid).unwrap();
            }
            11 => node.set_project(self.random.below(5) as u32).unwrap(),
            12 if is_file => {
                let value = self.random.bytes(1 + (len as u64 & 0x7FF));
                let large = self.volume.format().has_incompat(ondisk::features::Incompat::EA_INODE);
                let value = if large && len & 0x800 != 0 { value.repeat(20) } else { value };
                let name = format!("user.a{}", self.random.below(3));
                match node.set_xattr(name.as_bytes(), &value) {
                    Ok(()) | Err(Error::XattrsTooLarge(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            13 => {
                let to = *self.random.pick(&self.directories).unwrap();
                let onto = self.any().map(|(_, name, _)| name).filter(|_| len & 1 == 0);
                let new = onto.unwrap_or_else(|| format!("m{offset}"));
                match self.volume.rename(parent, name.as_bytes(), to, new.as_bytes(), Replace::Yes) {
                    Ok(()) => {
                        self.files.remove(&(parent, name));
                        self.files.insert((to, new), number);
                    }
                    Err(Error::IsDirectory | Error::CrossProject) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            _ => {}
        }
    }
}

/// Asserts that the quota files agree with a new count, and with e2fsck's.
fn assert_right(image: &Path, options: &OpenOptions) {
    fsck::assert_clean(image);
    let volume = open(image, options);
    assert_eq!(volume.quota().recount().unwrap(), 0, "{}", image.display());
    volume.close().unwrap();
}

#[test]
fn random_runs_are_counted_as_e2fsck_counts_them() {
    const TEST: &str = "random_runs_are_counted_as_e2fsck_counts_them";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("quota-runs");
    let kinds: &[(&str, &[&str])] = &[
        ("4k", &["-b", "4096", "-O", "quota,project"]),
        ("1k", &["-b", "1024", "-O", "quota,project,orphan_file"]),
        ("ext3", &["-b", "1024", "-O", "quota,project,^extent,^64bit"]),
        ("inline", &["-b", "4096", "-O", "quota,project,inline_data,ea_inode"]),
        ("bigalloc", &["-b", "1024", "-C", "16384", "-O", "quota,project,bigalloc"]),
        ("nojournal", &["-b", "2048", "-O", "quota,project,^has_journal"]),
    ];
    for (name, arguments) in kinds {
        for (delay, order) in
            [(0, WriteOrder::Journal), (4 << 20, WriteOrder::Journal), (4 << 20, WriteOrder::Softdep)]
        {
            if order == WriteOrder::Softdep && *name == "inline" {
                continue;
            }
            let image = image(&scratch, name, arguments);
            let options = options().delay(delay).ordering(order);
            let volume = open(&image, &options);
            let mut play = Play::new(&volume, 7 + delay);
            for step in 0..400 {
                play.step();
                if step % 97 == 0 {
                    volume.sync().unwrap();
                }
            }
            volume.close().unwrap();
            assert_right(&image, &options);
        }
    }
}

/// Adds records of many ids, far apart, so that the tree and the file grow.
#[test]
fn ids_that_nobody_knew_get_records() {
    const TEST: &str = "ids_that_nobody_knew_get_records";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("quota-ids");
    let image = image(&scratch, "ids", &["-b", "1024", "-O", "quota,project"]);
    let volume = open(&image, &options());
    let mut random = Random(3);
    let mut owners = BTreeMap::new();
    for at in 0..500 {
        let uid = (random.next() >> random.below(32)) as u32 & 0x7FFF_FFFF;
        create(&volume, InodeNumber::ROOT, &format!("f{at}"), Kind::File, uid).unwrap();
        *owners.entry(uid).or_insert(0) += 1;
    }
    let users = volume.quota().records(QuotaKind::User).unwrap();
    for (uid, count) in owners {
        let own = if uid == 0 { 2 } else { 0 };
        assert_eq!(users[&uid].usage.inodes, count + own, "{uid}");
    }
    volume.close().unwrap();
    assert_right(&image, &options());
}

fn small(scratch: &Scratch) -> (PathBuf, Volume) {
    let image = image(scratch, "limits", &["-b", "4096", "-O", "quota,project"]);
    let volume = open(&image, &options());
    (image, volume)
}

fn hard(bytes: u64, inodes: u64) -> Limits {
    Limits { hard_bytes: bytes, hard_inodes: inodes, ..Limits::default() }
}

#[track_caller]
fn refused<T>(done: platfs::Result<T>, kind: QuotaKind, id: u32) {
    match done.err() {
        Some(Error::QuotaExceeded { kind: of, id: whose, .. }) => assert_eq!((of, whose), (kind, id)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn hard_limits_hold_for_users_and_not_for_root() {
    const TEST: &str = "hard_limits_hold_for_users_and_not_for_root";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("quota-hard");
    for delay in [0, 8 << 20] {
        let (image, volume) = small(&scratch);
        drop(volume);
        let volume = open(&image, &options().delay(delay));
        volume.quota().set_limits(QuotaKind::User, 1000, hard(1 << 20, 3)).unwrap();
        let bob = volume.on_behalf_of(1000, 1100);
        let root = InodeNumber::ROOT;
        let file = create(&bob, root, "one", Kind::File, 1000).unwrap();
        write(&bob, file, 0, 1 << 20).unwrap();
        refused(write(&bob, file, 1 << 20, 1), QuotaKind::User, 1000);
        // What is there may be written over.
        write(&bob, file, 4096, 8192).unwrap();
        create(&bob, root, "two", Kind::Fifo, 1000).unwrap();
        refused(create(&bob, root, "dir", Kind::Directory, 1000), QuotaKind::User, 1000);
        create(&bob, root, "three", Kind::Fifo, 1000).unwrap();
        refused(create(&bob, root, "four", Kind::Fifo, 1000), QuotaKind::User, 1000);
        // What was refused left nothing.
        assert!(matches!(volume.lookup(root, b"four"), Err(Error::NotFound)));
        // Another one has no limits, and may not give away what exceeds them.
        let other = create(&volume.on_behalf_of(2000, 2000), root, "other", Kind::File, 2000).unwrap();
        write(&volume.on_behalf_of(2000, 2000), other, 0, 4096).unwrap();
        refused(
            volume.on_behalf_of(2000, 2000).inode(other).set_owner(Some(1000), None),
            QuotaKind::User,
            1000,
        );
        // Root may do all of that.
        volume.inode(other).set_owner(Some(1000), None).unwrap();
        write(&volume, file, 1 << 20, 4096).unwrap();
        volume.sync().unwrap();
        let record = volume.quota().record(QuotaKind::User, 1000).unwrap();
        assert_eq!((record.usage.bytes, record.usage.inodes), ((1 << 20) + 8192, 4));
        // What is given up can be used again.
        volume.truncate(file, 0).unwrap();
        volume.unlink(root, b"three").unwrap();
        volume.unlink(root, b"two").unwrap();
        write(&bob, file, 0, 1 << 19).unwrap();
        create(&bob, root, "five", Kind::Fifo, 1000).unwrap();
        volume.close().unwrap();
        assert_right(&image, &options());
    }
}

/// Bytes that a kernel took from a writer within a limit find their place, whatever else of that user comes in between.
#[test]
fn limits_hold_when_bytes_are_expected() {
    const TEST: &str = "limits_hold_when_bytes_are_expected";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("quota-expected");
    let (image, volume) = small(&scratch);
    drop(volume);
    let volume = open(&image, &options().delay(8 << 20));
    volume.quota().set_limits(QuotaKind::User, 1000, hard(1 << 20, 9)).unwrap();
    let (bob, root) = (volume.on_behalf_of(1000, 1100), InodeNumber::ROOT);
    let [file, other] = ["file", "other"].map(|name| create(&bob, root, name, Kind::File, 1000).unwrap());
    bob.expect(file, 0, 1 << 20).unwrap();
    bob.expect(file, 4096, 1 << 19).unwrap();
    refused(bob.expect(other, 0, 1), QuotaKind::User, 1000);
    refused(write(&bob, other, 0, 1), QuotaKind::User, 1000);
    for offset in (0..1 << 20).step_by(1 << 16) {
        write(&bob, file, offset, 1 << 16).unwrap();
        write(&bob, file, offset, 1 << 12).unwrap();
        refused(write(&bob, other, 0, 1), QuotaKind::User, 1000);
    }
    volume.sync().unwrap();
    assert_eq!(volume.quota().record(QuotaKind::User, 1000).unwrap().usage.bytes, 1 << 20);
    volume.truncate(file, 0).unwrap();
    bob.expect(file, 0, 1 << 20).unwrap();
    volume.expect_no_more(file);
    write(&bob, other, 0, 1 << 20).unwrap();
    volume.close().unwrap();
    assert_right(&image, &options());
}

#[test]
fn soft_limits_hold_when_their_grace_is_over() {
    const TEST: &str = "soft_limits_hold_when_their_grace_is_over";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("quota-soft");
    let (image, volume) = small(&scratch);
    let quota = volume.quota();
    quota.set_graces(QuotaKind::Group, Graces { bytes: 100, inodes: 50 }).unwrap();
    let limits = Limits { soft_bytes: 1 << 20, soft_inodes: 2, hard_bytes: 4 << 20, hard_inodes: 10 };
    quota.set_limits(QuotaKind::Group, 1100, limits).unwrap();
    let at = |seconds: i64| volume.on_behalf_of(1000, 1100).at_time(Timestamp::from_seconds(NOW + seconds));
    let root = InodeNumber::ROOT;
    let file = create(&at(0), root, "one", Kind::File, 1000).unwrap();
    write(&at(0), file, 0, 2 << 20).unwrap();
    let record = quota.record(QuotaKind::Group, 1100).unwrap();
    assert_eq!((record.bytes_until, record.inodes_until), (NOW as u64 + 100, 0));
    write(&at(99), file, 2 << 20, 4096).unwrap();
    refused(write(&at(100), file, 3 << 20, 4096), QuotaKind::Group, 1100);
    create(&at(0), root, "two", Kind::File, 1000).unwrap();
    create(&at(1), root, "three", Kind::File, 1000).unwrap();
    create(&at(50), root, "four", Kind::File, 1000).unwrap();
    refused(create(&at(51), root, "five", Kind::File, 1000), QuotaKind::Group, 1100);
    // Below the limit the grace ends; above it another one begins.
    volume.truncate(file, 0).unwrap();
    assert_eq!(quota.record(QuotaKind::Group, 1100).unwrap().bytes_until, 0);
    write(&at(200), file, 0, 2 << 20).unwrap();
    assert_eq!(quota.record(QuotaKind::Group, 1100).unwrap().bytes_until, NOW as u64 + 300);
    refused(write(&at(201), file, 2 << 20, 3 << 20), QuotaKind::Group, 1100);
    quota.set_limits(QuotaKind::Group, 1100, Limits::default()).unwrap();
    write(&at(900), file, 2 << 20, 3 << 20).unwrap();
    volume.close().unwrap();
    assert_right(&image, &options());
}

#[test]
fn projects_have_limits_and_borders() {
    const TEST: &str = "projects_have_limits_and_borders";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("quota-project");
    let (image, volume) = small(&scratch);
    let root = InodeNumber::ROOT;
    let dir = create(&volume, root, "project", Kind::Directory, 0).unwrap();
    volume.inode(dir).set_project(42).unwrap();
    volume.inode(dir).set_flags(volume.metadata(dir).unwrap().flags | InodeFlags::PROJINHERIT).unwrap();
    volume.quota().set_limits(QuotaKind::Project, 42, hard(1 << 20, 3)).unwrap();
    let bob = volume.on_behalf_of(1000, 1100);
    let file = create(&bob, dir, "inside", Kind::File, 1000).unwrap();
    assert_eq!(volume.metadata(file).unwrap().project, 42);
    refused(write(&bob, file, 0, 2 << 20), QuotaKind::Project, 42);
    write(&bob, file, 0, 1 << 19).unwrap();
    // Nothing comes in that belongs to another project, by rename or by link.
    let outside = create(&bob, root, "outside", Kind::File, 1000).unwrap();
    assert!(matches!(bob.rename(root, b"outside", dir, b"in", Replace::Yes), Err(Error::CrossProject)));
    assert!(matches!(bob.link(outside, dir, b"in"), Err(Error::CrossProject)));
    create(&bob, dir, "third", Kind::File, 1000).unwrap();
    refused(create(&bob, dir, "fourth", Kind::File, 1000), QuotaKind::Project, 42);
    refused(bob.inode(outside).set_project(42), QuotaKind::Project, 42);
    volume.inode(outside).set_project(42).unwrap();
    let record = volume.quota().record(QuotaKind::Project, 42).unwrap();
    assert_eq!((record.usage.bytes, record.usage.inodes), ((1 << 19) + 4096, 4));
    volume.close().unwrap();
    assert_right(&image, &options());
}

#[test]
fn quota_is_switched_on_and_off() {
    const TEST: &str = "quota_is_switched_on_and_off";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck", "dumpe2fs"]) {
        return;
    }
    let scratch = Scratch::new("quota-switch");
    for features in ["project", "project,^has_journal", "project,^extent,^64bit"] {
        let image = scratch.join("switch");
        let arguments = ["-q", "-F", "-t", "ext4", "-b", "1024", "-O", features];
        tool::run(tool::command("mke2fs").args(arguments).arg(&image).arg("32M"));
        let volume = open(&image, &options());
        let mut play = Play::new(&volume, 11);
        (0..150).for_each(|_| play.step());
        volume.quota().switch_on(&QuotaKind::ALL).unwrap();
        // From now on all is counted, in the same session too.
        (0..150).for_each(|_| play.step());
        assert_eq!(volume.quota().kinds(), QuotaKind::ALL);
        volume.close().unwrap();
        assert_right(&image, &options());
        let volume = open(&image, &options());
        volume.quota().set_limits(QuotaKind::User, 5, hard(LIMIT_UNIT, 1)).unwrap();
        volume.quota().switch_off(&[QuotaKind::User]).unwrap();
        assert_eq!(volume.quota().kinds(), [QuotaKind::Group, QuotaKind::Project]);
        write(&volume, create(&volume, InodeNumber::ROOT, "late", Kind::File, 5).unwrap(), 0, 10_000)
            .unwrap();
        volume.close().unwrap();
        assert_right(&image, &options());
        let volume = open(&image, &options());
        volume.quota().switch_off(&QuotaKind::ALL).unwrap();
        volume.close().unwrap();
        fsck::assert_clean(&image);
        assert!(!tool::dumpe2fs_field(&image, "Filesystem features").unwrap().contains("quota"));
    }
}

/// Logged copies of a quota file's blocks are revoked when the blocks are freed: they may hold a file's bytes when
/// the log is replayed.
#[test]
fn blocks_of_a_quota_file_that_went_are_not_written_again() {
    const TEST: &str = "blocks_of_a_quota_file_that_went_are_not_written_again";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("quota-revoked");
    let image = scratch.join("revoked");
    let arguments = ["-q", "-F", "-t", "ext4", "-b", "1024", "-O", "quota", "-J", "size=4"];
    tool::run(tool::command("mke2fs").args(arguments).arg(&image).arg("16M"));
    for order in [WriteOrder::Journal, WriteOrder::Softdep] {
        let options = options().ordering(order);
        let volume = open(&image, &options);
        let root = InodeNumber::ROOT;
        write(&volume, create(&volume, root, "counted", Kind::File, 5).unwrap(), 0, 10_000).unwrap();
        volume.quota().switch_off(&QuotaKind::ALL).unwrap();
        let file = create(&volume, root, "fill", Kind::File, 0).unwrap();
        let pieces = (0..).take_while(|at| write(&volume, file, at << 10, 1 << 10).is_ok()).count();
        assert!(pieces > 8000, "{pieces}");
        volume.sync().unwrap();
        // Not closed: its log is replayed.
        drop(volume);
        let volume = open(&image, &options);
        let mut bytes = vec![0; pieces << 10];
        volume.read_at(file, 0, &mut bytes).unwrap();
        assert_eq!(bytes.iter().position(|byte| *byte != 0x5A), None);
        volume.unlink(root, b"fill").unwrap();
        volume.unlink(root, b"counted").unwrap();
        volume.close().unwrap();
        fsck::assert_clean(&image);
        tool::run(tool::command("tune2fs").args(["-O", "^has_journal"]).arg(&image));
        let volume = open(&image, &options);
        volume.quota().switch_on(&[QuotaKind::User, QuotaKind::Group]).unwrap();
        volume.close().unwrap();
    }
}

#[test]
fn an_unclean_volume_without_a_journal_is_counted_again() {
    const TEST: &str = "an_unclean_volume_without_a_journal_is_counted_again";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("quota-unclean");
    let image = image(&scratch, "unclean", &["-b", "1024", "-O", "quota,project,^has_journal"]);
    let options = options().ordering(WriteOrder::Softdep);
    let volume = open(&image, &options);
    let mut play = Play::new(&volume, 5);
    for _ in 0..200 {
        play.step();
    }
    volume.sync().unwrap();
    // Not closed: as after a crash.
    drop(volume);
    open(&image, &options).close().unwrap();
    assert_right(&image, &options);
}

/// Where in an image the record of a user stands.
fn record_of(image: &Path, id: u32) -> usize {
    let volume = open(image, &OpenOptions::new());
    let file = volume.open_file(InodeNumber::new(3).unwrap()).unwrap();
    let size = volume.format().geometry.block_size.bytes() as usize;
    let bytes = std::fs::read(image).unwrap();
    for segment in file.segments().map(Result::unwrap) {
        let platfs::State::Mapped(start) = segment.state else { continue };
        let all = start.0 as usize * size..(start.0 + segment.count) as usize * size;
        for leaf in all.step_by(1024) {
            let records = (0..14).map(|at| leaf + 16 + at * 72);
            let mut found =
                records.filter(|at| bytes[*at..at + 4] == id.to_le_bytes() && bytes[leaf + 8] > 0);
            if let Some(at) = found.next() {
                return at;
            }
        }
    }
    panic!("no record of {id}");
}

/// A leaf is older than the tree, as a crash may leave it: the next opening makes the file again, with the limits of all
/// others.
#[test]
fn a_quota_file_of_two_moments_is_made_again() {
    const TEST: &str = "a_quota_file_of_two_moments_is_made_again";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("quota-moments");
    for features in ["quota,project,^has_journal", "quota,project,^has_journal,^extent,^64bit"] {
        let image = image(&scratch, "moments", &["-b", "1024", "-O", features]);
        let options = options().ordering(WriteOrder::Softdep);
        let volume = open(&image, &options);
        for id in 0..60 {
            let file = create(&volume, InodeNumber::ROOT, &format!("f{id}"), Kind::File, id * 771).unwrap();
            write(&volume, file, 0, 5000).unwrap();
        }
        for id in [771, 59 * 771] {
            volume.quota().set_limits(QuotaKind::User, id, hard(LIMIT_UNIT << 20, 7)).unwrap();
        }
        volume.quota().set_graces(QuotaKind::User, Graces { bytes: 100, inodes: 50 }).unwrap();
        volume.sync().unwrap();
        drop(volume);
        let lost = record_of(&image, 30 * 771);
        let mut bytes = std::fs::read(&image).unwrap();
        bytes[lost..lost + 72].fill(0);
        sparse::write(&image, &bytes).unwrap();
        let volume = open(&image, &options);
        let quota = volume.quota();
        let mended = quota.mended();
        assert!(mended.len() == 1 && mended[0].1.contains("has no record of it"), "{mended:?}");
        assert_eq!(quota.record(QuotaKind::User, 30 * 771).unwrap().usage.inodes, 1);
        for id in [771, 59 * 771] {
            assert_eq!(quota.record(QuotaKind::User, id).unwrap().limits, hard(LIMIT_UNIT << 20, 7));
        }
        assert_eq!(quota.graces(QuotaKind::User).unwrap(), Graces { bytes: 100, inodes: 50 });
        create(&volume, InodeNumber::ROOT, "new", Kind::File, 30 * 771).unwrap();
        volume.close().unwrap();
        assert_right(&image, &options);
    }
}

#[test]
fn a_broken_quota_file_is_an_error_that_says_so() {
    const TEST: &str = "a_broken_quota_file_is_an_error_that_says_so";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("quota-broken");
    let image = image(&scratch, "broken", &["-b", "4096", "-O", "quota"]);
    let block = {
        let volume = open(&image, &options());
        let segments = volume.open_file(InodeNumber::new(3).unwrap()).unwrap().segments();
        let first = segments.into_iter().next().unwrap().unwrap();
        let platfs::State::Mapped(block) = first.state else { panic!("{first:?}") };
        volume.close().unwrap();
        block.0
    };
    let bytes = std::fs::read(&image).unwrap();
    for (offset, value) in [(0, 1_u32), (4, 9), (20, 1 << 30), (28, 1 << 30), (1024, 1 << 30), (1024, 1)] {
        let mut broken = bytes.clone();
        let at = (block * 4096) as usize + offset;
        broken[at..at + 4].copy_from_slice(&value.to_le_bytes());
        sparse::write(&image, &broken).unwrap();
        let volume = open(&image, &options());
        let error = create(&volume, InodeNumber::ROOT, "new", Kind::File, 0).unwrap_err();
        assert!(
            matches!(&error, Error::Corrupt(_)) && error.to_string().contains("quota file"),
            "{offset}: {error}"
        );
        volume.close().unwrap();
    }
    // A leaf that is listed as one with room, and says that it has more records than any.
    let start = (block * 4096) as usize;
    let leaf = bytes[start + 28..].first_chunk().map_or(0, |leaf| u32::from_le_bytes(*leaf)) as usize;
    let mut broken = bytes;
    broken[start + leaf * 1024 + 8..][..2].fill(0xFF);
    sparse::write(&image, &broken).unwrap();
    let volume = open(&image, &options());
    let error = create(&volume, InodeNumber::ROOT, "new", Kind::File, 77).unwrap_err();
    assert!(matches!(&error, Error::Corrupt(_)) && error.to_string().contains("has no room"), "{error}");
    volume.close().unwrap();
}

/// Verbs are tried again where a block of a quota file is missing. A file that is made without a name has one user after
/// that, however many tries it took: it goes with its user, also from a full volume.
#[test]
fn a_file_that_never_got_a_name_leaves_nothing() {
    const TEST: &str = "a_file_that_never_got_a_name_leaves_nothing";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("quota-unnamed");
    let image = scratch.join("image");
    let common = ["-q", "-F", "-t", "ext4", "-b", "1024", "-O", "quota", "-E", ALL];
    tool::run(tool::command("mke2fs").args(common).arg(&image).arg("6M"));
    let volume = open(&image, &options());
    {
        let new = NewInode { kind: Kind::File, attributes: attributes(7, 8), xattrs: &[] };
        let (number, _pin) = volume.create_unnamed(InodeNumber::ROOT, &new).unwrap();
        let full = (0..).find_map(|at| write(&volume, number, at << 16, 1 << 16).err());
        assert!(matches!(full, Some(Error::NoSpace)), "{full:?}");
    }
    volume.close().unwrap();
    assert_right(&image, &options());
}
