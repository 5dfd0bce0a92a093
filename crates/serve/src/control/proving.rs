//! Proofs: a program shows the server of a mount what the kernel lets it do in a directory, by doing it.
//!
//! Owns: the system calls. They are about made-up files in a directory that only the holder of a ticket finds
//! (`mount::tree::proofs`), so that nothing of the volume is touched. The kernel judges them as it judges all others: by
//! Landlock, by views for reading only, by filters of system calls. Excludes which of them a request needs (`needs`).

#![expect(
    clippy::disallowed_methods,
    reason = "what a caller may do is shown by doing it, in a directory that nothing else reaches"
)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, makedev};
use rustix::io::Errno;

use super::needs::Needs;
use crate::bulk::Act;

/// A device that no rule names: with the right to make this one a program may make any.
const DEVICE: (u32, u32) = (254, 254);

/// Names of the made-up files.
pub mod made_up {
    /// A regular file of one byte.
    pub const FILE: &str = "file";
    /// An empty directory.
    pub const DIRECTORY: &str = "directory";
    /// A name that is free.
    pub const NEW: &str = "new";
}

/// Shows what is needed in a directory.
///
/// # Errors
/// The kernel's, of what can't be done without; or if nothing at all can be done.
pub fn prove(directory: impl AsFd, name: &str, needs: Needs) -> io::Result<()> {
    let place = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = rustix::fs::openat(directory, name, place, Mode::empty())?;
    let (mut allowed, mut refused) = (0, None);
    for act in needs.all.and(needs.some).each() {
        match perform(&place, act) {
            Ok(()) => allowed += 1,
            Err(error) if needs.all.has(act) => return Err(error.into()),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    match refused.filter(|_| allowed == 0) {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

fn perform(place: &OwnedFd, act: Act) -> rustix::io::Result<()> {
    let open =
        |name, flags, mode| rustix::fs::openat(place, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode);
    let (none, private) = (Mode::empty(), Mode::RUSR | Mode::WUSR);
    let node = |kind, device| rustix::fs::mknodat(place, made_up::NEW, kind, private, device);
    match act {
        Act::ReadFile => {
            let file = open(made_up::FILE, OFlags::RDONLY, none)?;
            rustix::io::read(&file, &mut [0; 1]).map(drop)
        }
        Act::List => {
            let directory = open(".", OFlags::RDONLY | OFlags::DIRECTORY, none)?;
            Dir::new(directory)?.next().transpose().map(drop)
        }
        Act::WriteFile => open(made_up::FILE, OFlags::WRONLY, none).map(drop),
        Act::MakeFile => {
            open(made_up::NEW, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, private).map(drop)
        }
        Act::MakeDirectory => rustix::fs::mkdirat(place, made_up::NEW, Mode::RWXU),
        Act::MakeSymlink => rustix::fs::symlinkat("x", place, made_up::NEW),
        Act::MakeFifo => node(FileType::Fifo, 0),
        Act::MakeSocket => node(FileType::Socket, 0),
        // The kernel would say no, and the audit log would hear of it.
        Act::MakeCharDevice | Act::MakeBlockDevice if !makes_devices() => Err(Errno::PERM),
        Act::MakeCharDevice => node(FileType::CharacterDevice, makedev(DEVICE.0, DEVICE.1)),
        Act::MakeBlockDevice => node(FileType::BlockDevice, makedev(DEVICE.0, DEVICE.1)),
        Act::Link => {
            let path = OFlags::PATH | OFlags::DIRECTORY;
            let other = open(made_up::DIRECTORY, path, none)?;
            rustix::fs::linkat(place, made_up::FILE, &other, made_up::NEW, AtFlags::empty())
        }
        Act::SetId => {
            rustix::fs::chmodat(place, made_up::FILE, Mode::SUID | Mode::SGID | private, AtFlags::empty())
        }
        Act::RemoveFile => rustix::fs::unlinkat(place, made_up::FILE, AtFlags::empty()),
        Act::RemoveDirectory => rustix::fs::unlinkat(place, made_up::DIRECTORY, AtFlags::REMOVEDIR),
    }
}

/// Tells if this program has the capability for devices.
fn makes_devices() -> bool {
    let sets = rustix::thread::capabilities(None);
    sets.is_ok_and(|sets| sets.effective.contains(rustix::thread::CapabilitySet::MKNOD))
}
