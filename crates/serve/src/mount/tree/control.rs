//! The ioctls: flags, generations, projects, the label, free space for the device.

use fuse::{Caller, Errno};
use ondisk::inode::{FileType, InodeFlags};
use ondisk::quota::QuotaKind;
use ondisk::units::InodeNumber;
use platfs::rights::Powers;
use platfs::{Error, Metadata};

use super::callers;
use super::counts::Verb;
use super::{Altering, Changed, Failed, Tree};
use crate::mount::places::{self, PLACES};
use crate::mount::quotas::{self, Deed};

/// Numbers of the ioctls that are answered; those of this kernel's word size.
const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
const GET_VERSION: u32 = 0x8008_7601;
const GET_VERSION_OLD: u32 = 0x8008_6603;
const SET_VERSION: u32 = 0x4008_7602;
const SET_VERSION_OLD: u32 = 0x4008_6604;
const GET_LABEL: u32 = 0x8100_9431;
const SET_LABEL: u32 = 0x4100_9432;
const GET_XATTR_FLAGS: u32 = 0x801c_581f;
const SET_XATTR_FLAGS: u32 = 0x401c_5820;
/// `FITRIM`.
pub(in crate::mount) const TRIM: u32 = 0xc018_5879;
/// Bytes of its argument.
pub(in crate::mount) const TRIM_LEN: usize = 24;
/// Request for a mount's counts, made by `plat stats`: a number of our own, in which the length of the answer stands.
/// The answer is the version, the length of what follows (both of 32 bits, little-endian), and an object in JSON.
pub(in crate::mount) const STATISTICS: u32 = 0xbff0_7073;
/// Bytes of the answer at most.
pub(in crate::mount) const STATISTICS_LEN: usize = 0x3ff0;
/// The form of the answer. The client refuses other forms.
pub(in crate::mount) const STATISTICS_VERSION: u32 = 1;
/// Longest volume label, in the room that the kernel gives it.
const LABEL_ROOM: usize = 256;

/// Flags in the words of `FS_IOC_FSGETXATTR`.
const EXTENDED: &[(InodeFlags, u32)] = &[
    (InodeFlags::IMMUTABLE, 0x8),
    (InodeFlags::APPEND, 0x10),
    (InodeFlags::SYNC, 0x20),
    (InodeFlags::NOATIME, 0x40),
    (InodeFlags::NODUMP, 0x80),
    (InodeFlags::PROJINHERIT, 0x200),
    (InodeFlags::DAX, 0x8000),
    (InodeFlags::VERITY, 0x2_0000),
];

/// Returns true if an ioctl changes something.
pub(super) fn changes(command: u32) -> bool {
    matches!(command, SET_FLAGS | SET_VERSION | SET_VERSION_OLD | SET_XATTR_FLAGS | SET_LABEL)
}

/// The flags that Linux shows: all but those that are about the record itself.
fn visible(flags: InodeFlags) -> u32 {
    flags.bits() & 0x725B_DFFF
}

/// The visible flags that would change.
fn changed(metadata: &Metadata, wanted: InodeFlags) -> InodeFlags {
    (metadata.flags ^ wanted) & InodeFlags::from_bits_retain(visible(InodeFlags::all()))
}

/// Refuses flags that a file can't have, before anything of it is changed.
fn may_have(metadata: &Metadata, wanted: InodeFlags) -> Result<(), Failed> {
    let fixed = InodeFlags::JOURNAL_DATA | InodeFlags::CASEFOLD | InodeFlags::DAX;
    let directory_only = InodeFlags::DIRSYNC | InodeFlags::TOPDIR;
    let is_directory = metadata.file_type == FileType::Directory;
    if changed(metadata, wanted).intersects(fixed) || !is_directory && wanted.intersects(directory_only) {
        return Err(Errno::OPNOTSUPP.into());
    }
    Ok(())
}

fn extended(flags: InodeFlags) -> u32 {
    EXTENDED.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, word)| word).sum()
}

/// One word of an argument.
fn word(argument: &[u8], at: usize) -> Result<u32, Failed> {
    let bytes = argument.get(at * 4..at * 4 + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u32::from_ne_bytes).ok_or(Failed::Errno(Errno::INVAL))
}

/// A long word of an argument.
fn long(argument: &[u8], at: usize) -> Result<u64, Failed> {
    let bytes = argument.get(at * 8..at * 8 + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u64::from_ne_bytes).ok_or(Failed::Errno(Errno::INVAL))
}

impl Tree {
    /// Answers an ioctl.
    pub(super) fn answer_control(&self, node: u64, command: u32, argument: &[u8]) -> Result<Vec<u8>, Failed> {
        let number = self.inode(node)?;
        let metadata = self.volume.metadata(number)?;
        Ok(match command {
            PLACES => places::answer(&self.volume, number, argument)?.ok_or(Errno::INVAL)?,
            GET_FLAGS => visible(metadata.flags).to_ne_bytes().to_vec(),
            GET_VERSION | GET_VERSION_OLD => metadata.generation.to_ne_bytes().to_vec(),
            GET_LABEL => {
                let mut label = self.volume.superblock().label().to_vec();
                label.resize(LABEL_ROOM, 0);
                label
            }
            GET_XATTR_FLAGS => {
                let words = [extended(metadata.flags), 0, 0, metadata.project, 0];
                words.iter().flat_map(|word| word.to_ne_bytes()).chain([0; 8]).collect()
            }
            STATISTICS => {
                let text = self.statistics_now().to_string().into_bytes();
                let len = u32::try_from(text.len()).map_err(|_| Errno::RANGE)?;
                [&STATISTICS_VERSION.to_le_bytes()[..], &len.to_le_bytes(), &text].concat()
            }
            _ => return Err(Errno::NOTTY.into()),
        })
    }
}

impl Tree {
    /// Answers a request about quota. Administrators and the owner of the mount may do all of it, others
    /// see what they use themselves.
    pub(super) fn quota_asked(&self, caller: Caller, node: u64, argument: &[u8]) -> fuse::Result<Vec<u8>> {
        let deed = Deed::decode(argument).ok_or(Errno::INVAL)?;
        let is_keeper = callers::keeps(caller, Powers::SYS_ADMIN);
        if let Deed::Show(kind, _) = deed {
            return self.answer(Verb::Ioctl, node, b"", || {
                let mut done = quotas::perform(&self.volume, deed);
                if let (Ok(report), false) = (&mut done, is_keeper) {
                    report.records.retain(|record| kind == QuotaKind::User && record.id == caller.uid);
                }
                Ok(quotas::encode(&done))
            });
        }
        if !is_keeper {
            return Err(Errno::PERM);
        }
        self.alter(Verb::Ioctl, (node, b""), Changed::Inode, |at| {
            let done = quotas::perform(&at.volume, deed);
            if done.is_ok() {
                at.volume.commit()?;
            }
            Ok(quotas::encode(&done))
        })
    }
}

impl Altering<'_> {
    /// Discards free space, as `fstrim` asks: where it begins, how long it is, the shortest run. In the answer the
    /// discarded bytes stand in the place of the length.
    pub(super) fn trim(&self, caller: Caller, argument: &[u8]) -> Result<Vec<u8>, Failed> {
        if !callers::has(caller, Powers::SYS_ADMIN) {
            return Err(Errno::PERM.into());
        }
        let (start, len, min) = (long(argument, 0)?, long(argument, 1)?, long(argument, 2)?);
        let discarded = self.volume.trim(start..start.saturating_add(len), min)?;
        Ok([start, discarded, min].iter().flat_map(|word| word.to_ne_bytes()).collect())
    }

    /// Does what an ioctl says. The kernel has checked who may set flags, but not generations.
    pub(super) fn do_control(
        &self,
        caller: Caller,
        node: u64,
        command: u32,
        argument: &[u8],
    ) -> Result<(), Failed> {
        let number = self.inode(node)?;
        let metadata = self.volume.metadata(number)?;
        match command {
            SET_FLAGS => {
                let wanted = word(argument, 0)?;
                if wanted & !visible(InodeFlags::all()) != 0 {
                    return Err(Errno::OPNOTSUPP.into());
                }
                self.set_flags(number, &metadata, InodeFlags::from_bits_retain(wanted))
            }
            SET_XATTR_FLAGS => {
                let (words, project) = (word(argument, 0)?, word(argument, 3)?);
                let known: u32 = EXTENDED.iter().map(|(_, word)| word).sum();
                if words & !known != 0 {
                    return Err(Errno::OPNOTSUPP.into());
                }
                let set = |on: bool| EXTENDED.iter().filter(move |(_, word)| (words & word != 0) == on);
                let mut wanted = metadata.flags;
                set(true).for_each(|(flag, _)| wanted.insert(*flag));
                set(false).for_each(|(flag, _)| wanted.remove(*flag));
                may_have(&metadata, wanted)?;
                // Of both only the project can be refused from here on, but for a file that is immutable: that comes first
                // as long as it is.
                let is_free = !metadata.flags.contains(InodeFlags::IMMUTABLE);
                let set_project = || match project == metadata.project {
                    true => Ok(()),
                    false => self.taking(caller, |volume| volume.inode(number).set_project(project)),
                };
                if is_free {
                    set_project()?;
                }
                self.set_flags(number, &metadata, wanted)?;
                if is_free { Ok(()) } else { Ok(set_project()?) }
            }
            SET_LABEL => self.set_label(caller, argument),
            _ => {
                if !self.is_owner(caller, &metadata) {
                    return Err(Errno::PERM.into());
                }
                match self.volume.inode(number).set_generation(word(argument, 0)?) {
                    // As Linux has it.
                    Err(Error::Unsupported(_)) => Err(Errno::NOTTY.into()),
                    done => Ok(done?),
                }
            }
        }
    }

    /// Names the volume. The label ends at the first zero, and is at most as long as the superblock has room for.
    fn set_label(&self, caller: Caller, argument: &[u8]) -> Result<(), Failed> {
        if !callers::has(caller, Powers::SYS_ADMIN) {
            return Err(Errno::PERM.into());
        }
        let label = argument.split(|byte| *byte == 0).next().unwrap_or_default();
        self.volume.change_fields(|raw| {
            if label.len() > raw.s_volume_name.len() {
                return Err(Errno::INVAL);
            }
            let bytes = label.iter().chain(std::iter::repeat(&0));
            raw.s_volume_name.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            Ok(())
        })??;
        Ok(())
    }

    /// Sets the flags that users may set; of the others, only how a file is mapped can be chosen.
    fn set_flags(&self, number: InodeNumber, metadata: &Metadata, wanted: InodeFlags) -> Result<(), Failed> {
        may_have(metadata, wanted)?;
        let settable = platfs::rules::SETTABLE;
        if changed(metadata, wanted).contains(InodeFlags::EXTENTS) && metadata.file_type == FileType::Regular
        {
            self.volume.set_mapping(number, wanted.contains(InodeFlags::EXTENTS))?;
        }
        let now = self.volume.metadata(number)?.flags;
        let flags = now.difference(settable).union(wanted.intersection(settable));
        let forbids = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
        if metadata.file_type == FileType::Regular && flags.difference(now).intersects(forbids) {
            // Before it is so: from then on what is not among these is refused.
            self.flagged().insert(number);
        }
        Ok(self.volume.inode(number).set_flags(flags)?)
    }
}
