//! Random sequences of what decides who may do what: permission bits with set-id and sticky, access control lists,
//! capabilities of programs, owners, and calls by five users and from user namespaces. A sequence is a function of its
//! number; the answers of the kernel's ext4 and of a mount must be the same.
//!
//! Left out, as docs/mount.md says: bytes of a file whose set-group-id bit stands without the group's right to run are not
//! changed, since the kernel does not pass on whether the caller may keep the bit. Where the mount checks permissions
//! itself, the kernel forgets all names before each step, and a file loses its capabilities before its owner is changed.
//! Other differences are excused in `excuses.rs`.
//!
//! `PLATFS_SEED=17 PLATFS_STEPS=1 cargo test -p platfs-cli --test all posix::rights` repeats sequence 17; the long run is
//! `PLATFS_STEPS=2000 cargo test -p platfs-cli --test all posix::rights_for_long -- --ignored --nocapture`.

use std::process::{Command, Stdio};

use rustix::fs::{self, Access, AtFlags, FallocateFlags, FileType, Mode, OFlags as O, XattrFlags};
use rustix::io::Errno;
use testkit::random::Random;

use crate::posix::transcript::Transcript;

/// Steps of a sequence.
const STEPS: u64 = 40;
/// Users with their groups: root, two who share groups, one in another's group, one alone.
const USERS: [(u32, u32, &[u32]); 5] =
    [(0, 0, &[]), (1001, 1001, &[2001]), (1002, 1002, &[2001, 2002]), (1003, 1001, &[]), (1004, 1004, &[])];
const IDS: [u32; 7] = [0, 1001, 1002, 1003, 1004, 2001, 2002];
const DIRECTORIES: [&str; 3] = ["d", "e", "d/g"];
const FILES: [&str; 7] = ["a", "b", "d/a", "d/b", "e/a", "d/g/a", "s"];
const LISTS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];
const ATTRIBUTES: [&str; 5] = ["user.k", "trusted.k", "security.k", "security.capability", "system.other"];
/// Commands of programs in a user namespace of their own, where they are root.
const INSIDE: [&[&str]; 6] = [
    &["chmod", "6755"],
    &["chown", "0:0"],
    &["chown", "1:1"],
    &["setfattr", "-n", "trusted.k", "-v", "x"],
    &["setfattr", "-n", "security.k", "-v", "x"],
    &["rm", "-f"],
];

/// Runs a sequence in the current directory.
pub fn run(t: &mut Transcript, number: u64, callers: Callers) {
    let random = Random(number.wrapping_mul(0x2545_F491_4F6C_DD1D));
    for (name, mode) in [("d", 0o1777), ("e", 0o777)] {
        t.mkdir(name, mode);
        t.chmod(name, mode);
    }
    t.file("a", b"x");
    t.chmod("a", 0o666);
    t.symlink("a", "s");
    let mut sequence = Sequence { random, callers };
    for _ in 0..STEPS {
        sequence.step(t);
    }
    rustix::process::umask(Mode::from_raw_mode(0o022));
    for name in DIRECTORIES.iter().chain(&FILES) {
        whole(t, name);
    }
}

/// Everything about rights on a file.
fn whole(t: &mut Transcript, name: &str) {
    t.stat(name);
    t.listxattr(name);
    for list in LISTS.iter().chain(&["security.capability"]) {
        t.getxattr(name, list, 1000);
    }
}

/// Callers of a sequence.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Callers {
    /// Users, also in user namespaces.
    Users,
    /// Root, who acts for users (setfsuid): nobody else comes into a mount that checks permissions itself.
    ForOthers,
}

struct Sequence {
    random: Random,
    callers: Callers,
}

impl Sequence {
    fn any(&mut self) -> &'static str {
        match self.random.below(3) {
            0 => self.directory(),
            _ => self.file(),
        }
    }

    fn directory(&mut self) -> &'static str {
        self.random.pick(&DIRECTORIES).copied().unwrap_or("d")
    }

    fn file(&mut self) -> &'static str {
        self.random.pick(&FILES).copied().unwrap_or("a")
    }

    fn id(&mut self) -> u32 {
        self.random.pick(&IDS).copied().unwrap_or(0)
    }

    fn mode(&mut self) -> u32 {
        let bits = u32::try_from(self.random.below(0o1000)).unwrap_or(0);
        // Sets of bits that people use, and odd ones.
        let usual = [0o777, 0o755, 0o770, 0o640, 0o600, 0o711];
        let bits = if self.random.one_in(2) { bits } else { *self.random.pick(&usual).unwrap_or(&bits) };
        let special = if self.random.one_in(3) { self.random.below(8) } else { 0 };
        bits | u32::try_from(special).unwrap_or(0) << 9
    }

    /// An access control list as the kernel takes it, now and then one that makes no sense.
    fn list(&mut self) -> Vec<u8> {
        let mut entries: Vec<(u16, u16, u32)> = Vec::new();
        let right = |random: &mut Random| u16::try_from(random.below(8)).unwrap_or(0);
        entries.push((1, right(&mut self.random), u32::MAX));
        let named = self.random.below(3);
        let mut users: Vec<u32> = (0..named).map(|_| self.id()).collect();
        users.sort_unstable();
        users.dedup();
        entries.extend(users.iter().map(|id| (2, right(&mut self.random), *id)));
        entries.push((4, right(&mut self.random), u32::MAX));
        if self.random.one_in(2) {
            let group = self.id();
            entries.push((8, right(&mut self.random), group));
        }
        if entries.len() > 2 || self.random.one_in(3) {
            entries.push((16, right(&mut self.random), u32::MAX));
        }
        entries.push((32, right(&mut self.random), u32::MAX));
        if self.random.one_in(15) {
            let at = usize::try_from(self.random.below(entries.len() as u64)).unwrap_or(0);
            entries.remove(at);
        }
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, right, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(right.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    fn step(&mut self, t: &mut Transcript) {
        if self.random.one_in(12) {
            let mask = *self.random.pick(&[0, 0o002, 0o022, 0o077]).unwrap_or(&0);
            t.say(format!("umask {mask:o}"));
            rustix::process::umask(Mode::from_raw_mode(mask));
        }
        let (uid, gid, groups) = *self.random.pick(&USERS).unwrap_or(&USERS[0]);
        if self.callers == Callers::ForOthers {
            std::fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        } else if self.random.one_in(40) {
            self.inside(t, uid.max(1001), gid.max(1001));
            return;
        }
        t.as_user_in(uid, gid, groups, |t| match self.random.below(4) {
            0 => self.rights(t),
            1 => self.attributes(t),
            2 => self.names(t),
            _ => self.contents(t),
        });
    }

    /// Bits, owners, lists.
    fn rights(&mut self, t: &mut Transcript) {
        let name = self.any();
        match self.random.below(6) {
            0 | 1 => {
                let mode = self.mode();
                t.chmod(name, mode);
            }
            2 => {
                let (uid, gid) = (self.id(), self.id());
                let (with_uid, with_gid) = (self.random.one_in(2), self.random.one_in(2));
                if self.callers == Callers::ForOthers {
                    let _ = fs::removexattr(name, "security.capability");
                }
                t.chown(name, with_uid.then_some(uid), with_gid.then_some(gid));
            }
            which => {
                let kind = LISTS[usize::from(which == 5)];
                let list = self.list();
                t.setxattr(name, kind, &list, XattrFlags::empty());
            }
        }
        whole(t, name);
    }

    fn attributes(&mut self, t: &mut Transcript) {
        let name = self.any();
        let attribute = match self.random.one_in(3) {
            true => *self.random.pick(&LISTS).unwrap_or(&LISTS[0]),
            false => *self.random.pick(&ATTRIBUTES).unwrap_or(&ATTRIBUTES[0]),
        };
        match self.random.below(5) {
            0 => t.getxattr(name, attribute, 1000),
            1 => t.listxattr(name),
            2 => t.removexattr(name, attribute),
            _ if attribute == "security.capability" => {
                // A program that may use raw sockets (version 2, effective).
                let value = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                t.setxattr(name, attribute, &value, XattrFlags::empty());
            }
            _ if LISTS.contains(&attribute) => {
                let list = self.list();
                t.setxattr(name, attribute, &list, XattrFlags::empty());
            }
            _ => t.setxattr(name, attribute, b"value", XattrFlags::empty()),
        }
        whole(t, name);
    }

    fn names(&mut self, t: &mut Transcript) {
        let (name, other) = (self.any(), self.any());
        let mode = self.mode();
        match self.random.below(8) {
            0 | 1 => drop(t.open(name, O::CREATE | O::EXCL | O::WRONLY, mode)),
            2 | 3 => t.mkdir(name, mode),
            4 => t.unlink(name),
            5 => t.rename(name, other),
            6 => t.link(name, other),
            _ => match self.random.below(4) {
                0 => t.rmdir(name),
                1 => t.mknod(name, FileType::Fifo, mode & 0o777, (0, 0)),
                2 => t.symlink("a", name),
                _ => t.list(name),
            },
        }
        whole(t, name);
    }

    fn contents(&mut self, t: &mut Transcript) {
        let name = self.any();
        match self.random.below(3) {
            0 => {
                let access = Access::from_bits_truncate(i32::try_from(self.random.below(8)).unwrap_or(0));
                t.access(name, access);
            }
            // A pipe would wait.
            _ if is_odd(name) => t.say(format!("{name} is left")),
            1 => {
                let flags = *self.random.pick(&[O::RDONLY, O::WRONLY, O::RDWR]).unwrap_or(&O::RDONLY);
                drop(t.open(name, flags | O::NONBLOCK, 0));
            }
            _ => self.change(t, name),
        }
        whole(t, name);
    }

    fn change(&mut self, t: &mut Transcript, name: &str) {
        let Some(file) = t.open(name, O::RDWR | O::NONBLOCK, 0) else { return };
        match self.random.below(5) {
            0 => t.write(&file, b"y"),
            1 => t.ftruncate(&file, self.random.below(10)),
            2 => t.fallocate(&file, FallocateFlags::empty(), 0, 10),
            3 => t.fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 10),
            _ => {
                let Some(from) = t.open("a", O::RDONLY | O::NONBLOCK, 0) else { return };
                let copied = fs::copy_file_range(&from, Some(&mut 0), &file, Some(&mut 1), 1);
                t.did("copy_file_range", copied);
            }
        }
        t.fstat(&file);
    }

    fn inside(&mut self, t: &mut Transcript, uid: u32, gid: u32) {
        let name = self.any();
        let words = *self.random.pick(&INSIDE).unwrap_or(&INSIDE[0]);
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()]);
        command.args(["unshare", "-Ur"]).args(words).arg(name).stdout(Stdio::null()).stderr(Stdio::null());
        let worked = command.status().is_ok_and(|status| status.success());
        let result = if worked { Ok(()) } else { Err(Errno::PERM) };
        t.did(format!("in a namespace of {uid}: {words:?} {name}"), result);
        whole(t, name);
    }
}

/// Files whose bytes are left alone; see above.
fn is_odd(name: &str) -> bool {
    let stat = fs::statat(fs::CWD, name, AtFlags::empty());
    stat.is_ok_and(|stat| {
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        !is_file || stat.st_mode & 0o2010 == 0o2000
    })
}
