//! The requests that change something.

use fuse::{
    Access, Attributes, Cached, Caller, Entry, Errno, NewNode, Opened, Replace, SetAttr, SetTime, Time,
    WriteFlags, WritePos,
};
use ondisk::inode::{FileType, InodeFlags, Timestamp};
use ondisk::units::InodeNumber;
use platfs::rights::{Powers, WRITE};
use platfs::rules::SET_GID;
use platfs::{
    Allocate, AttributeChange, CreateRequest, Error, Inherited, Kind, Metadata, NewInode, Volume,
    WriteOptions,
};

use super::callers;
use super::counts::add;
use super::{Altering, Failed, Tree, time};
use crate::mount::moving::{self, Move};

/// Most bytes that one request copies: others want their turn.
const COPY_MAX: u64 = 8 << 20;
/// Set-user-id and set-group-id.
const SPECIAL: u16 = 0o6000;
/// The attribute that is a file's access control list.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// The attribute that holds the capabilities of a program.
const CAPABILITIES: &[u8] = b"security.capability";
/// Flags of `setxattr`.
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
/// Mode bits of `fallocate`.
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 16;
/// The handle of a file that was append-only when it was opened for writing. Linux judges that there, so that files which
/// were open before it became so can be written at any offset.
const APPENDS: u64 = 1;

fn stamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

fn kind_of(kind: fuse::Kind<'_>) -> (Kind<'_>, FileType) {
    match kind {
        fuse::Kind::Regular => (Kind::File, FileType::Regular),
        fuse::Kind::Directory => (Kind::Directory, FileType::Directory),
        fuse::Kind::Symlink(target) => (Kind::Symlink(target), FileType::Symlink),
        fuse::Kind::CharDevice(major, minor) => (Kind::CharDevice(major, minor), FileType::CharDevice),
        fuse::Kind::BlockDevice(major, minor) => (Kind::BlockDevice(major, minor), FileType::BlockDevice),
        fuse::Kind::Fifo => (Kind::Fifo, FileType::Fifo),
        fuse::Kind::Socket => (Kind::Socket, FileType::Socket),
    }
}

/// Returns true if it is the change of an owner of which neither user nor group is said: the kernel sends nothing but its time.
fn names_nobody(change: &SetAttr) -> bool {
    SetAttr { change: None, by_handle: false, ..*change } == SetAttr::default()
}

impl Tree {
    /// Which files are opened is asked for the sake of two flags where something can be written, and of permissions
    /// where they are checked here.
    pub(super) fn may_open(&self, node: u64, access: Access) -> Result<Opened, Failed> {
        if !self.terms.writable && self.guard.is_none() {
            return Err(Errno::NOSYS.into());
        }
        let number = self.inode(node)?;
        self.guard_opening(number, access)?;
        let known =
            if access.read && !access.keep_access_time { self.count_opening(number)? } else { Cached::Valid };
        if !access.write {
            return Ok(Opened { known, handle: 0 });
        }
        self.volume.inode(number).may_open(access.append)?;
        let appends = self.volume.metadata(number)?.flags.contains(InodeFlags::APPEND);
        Ok(Opened { known: self.opened_for_writing(number)?, handle: if appends { APPENDS } else { 0 } })
    }

    /// The answer to a change of nothing but the times of contents and inode, of a file without a name; `None` for all
    /// other changes. The kernel sends it with each name that is the last one of a file. Nobody else can see such a file,
    /// and the kernel keeps its times: should it get a name after all, they come again. So nothing is stored.
    fn times_of_unnamed(&self, facts: &Metadata, change: &SetAttr) -> Option<Attributes> {
        let (Some(SetTime::To(modify)), Some(changed)) = (change.modify, change.change) else { return None };
        let rest = SetAttr { modify: None, change: None, by_handle: false, ..*change };
        let kept = facts.links == 0 && facts.file_type == FileType::Regular && rest == SetAttr::default();
        kept.then(|| Attributes { modify, change: changed, ..self.attributes_of(facts) })
    }
}

impl Altering<'_> {
    /// Attributes that a new file gets of its directory.
    fn inherited(
        &self,
        caller: Caller,
        directory: InodeNumber,
        file_type: FileType,
        new: &NewNode<'_>,
    ) -> Result<Inherited, Failed> {
        let Caller { uid, gid, .. } = caller;
        let (permissions, umask) = match file_type {
            FileType::Symlink => (0o777, 0),
            _ => (new.permissions & 0o7777, new.umask),
        };
        let mut got =
            self.volume.inherit(directory, &CreateRequest { file_type, permissions, umask, uid, gid })?;
        if !self.terms.acl && !got.xattrs.is_empty() {
            got.xattrs.clear();
            let special = got.attributes.permissions & 0o7000;
            got.attributes.permissions = special | permissions & 0o777 & !umask;
        }
        Ok(got)
    }

    pub(super) fn make(
        &self,
        caller: Caller,
        parent: u64,
        name: &[u8],
        new: &NewNode<'_>,
    ) -> Result<Entry, Failed> {
        let directory = self.inode(parent)?;
        self.guard_names(directory)?;
        let (kind, file_type) = kind_of(new.kind);
        if let Kind::Symlink(target) = kind
            && target.len() >= self.volume.format().geometry.block_size.bytes_usize()
        {
            return Err(Errno::NAMETOOLONG.into());
        }
        let got = self.inherited(caller, directory, file_type, new)?;
        let inode = NewInode { kind, attributes: got.attributes, xattrs: &got.xattrs };
        let number = self.taking(caller, |volume| volume.create(directory, name, &inode))?;
        // Nobody else knows it yet: its directory is locked by the kernel.
        self.hand_out(number, || {
            let facts = self.volume.metadata(number)?;
            // Bytes are taken from programs before this server hears of them.
            self.look_at_limits(&facts);
            Ok(facts)
        })
    }

    pub(super) fn make_unnamed(
        &self,
        caller: Caller,
        parent: u64,
        new: &NewNode<'_>,
    ) -> Result<Entry, Failed> {
        let directory = self.inode(parent)?;
        self.guard_names(directory)?;
        let got = self.inherited(caller, directory, FileType::Regular, new)?;
        let inode = NewInode { kind: Kind::File, attributes: got.attributes, xattrs: &got.xattrs };
        self.taking(caller, |volume| {
            let (number, _pin) = volume.create_unnamed(directory, &inode)?;
            Ok(self.hand_out(number, || Ok(self.volume.metadata(number)?)))
        })?
    }

    pub(super) fn give_name(
        &self,
        caller: Caller,
        node: u64,
        (parent, name): (u64, &[u8]),
    ) -> Result<Entry, Failed> {
        let (number, directory) = (self.inode(node)?, self.inode(parent)?);
        self.guard_link(number, directory)?;
        match self.taking(caller, |volume| volume.link(number, directory, name)) {
            // The kernel has refused directories; this is what it says of them.
            Err(Error::IsDirectory) => return Err(Errno::PERM.into()),
            done => done?,
        }
        self.hand_out(number, || Ok(self.volume.metadata(number)?))
    }

    pub(super) fn move_name(
        &self,
        caller: Caller,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        replace: Replace,
    ) -> Result<(), Failed> {
        let (how, leaves_whiteout) = match replace {
            Replace::Yes => (platfs::Replace::Yes, false),
            Replace::No => (platfs::Replace::No, false),
            Replace::Exchange => (platfs::Replace::Exchange, false),
            Replace::Whiteout => (platfs::Replace::Yes, true),
            Replace::NoButWhiteout => (platfs::Replace::No, true),
        };
        let (directory, target) = (self.inode(from.0)?, self.inode(to.0)?);
        self.guard_rename((directory, from.1), (target, to.1), replace)?;
        if !leaves_whiteout {
            return Ok(self.taking(caller, |volume| volume.rename(directory, from.1, target, to.1, how))?);
        }
        let new = NewNode { kind: fuse::Kind::CharDevice(0, 0), permissions: 0, umask: 0 };
        let Inherited { attributes, .. } = self.inherited(caller, directory, FileType::CharDevice, &new)?;
        let (from, to) = ((directory, from.1), (target, to.1));
        let attributes = platfs::Attributes { permissions: 0, ..attributes };
        Ok(self.taking(caller, |volume| volume.rename_with_whiteout(from, to, how, attributes))?)
    }

    pub(super) fn change_attributes(
        &self,
        caller: Caller,
        node: u64,
        change: &SetAttr,
    ) -> Result<Attributes, Failed> {
        let number = self.inode(node)?;
        let facts = self.volume.metadata(number)?;
        if let Some(unchanged) = self.times_of_unnamed(&facts, change) {
            return Ok(unchanged);
        }
        let change = &self.with_time(change);
        if names_nobody(change) && facts.permissions & SPECIAL != 0 && self.is_owner(caller, &facts) {
            return self.give_to_nobody(&facts, change);
        }
        let change = &self.guard_change(&facts, change)?;
        if let Some(size) = change.size {
            self.synced_space().remove(&number);
            self.taking(caller, |volume| volume.truncate(number, size))?;
            self.nearly_full.set_end(number, size);
        }
        let wanted = self.wanted(&facts, change);
        let changed = if wanted != AttributeChange::default() {
            self.taking(caller, |volume| volume.inode(number).change(&wanted))?
        } else if change.size.is_some() {
            self.volume.metadata(number)?
        } else {
            facts
        };
        Ok(self.attributes_of(&changed))
    }

    /// A change as it is, with the time of one in which nothing is said: the kernel sends that of regular files only, and
    /// only if it keeps their times.
    fn with_time(&self, change: &SetAttr) -> SetAttr {
        let is_empty = SetAttr { by_handle: false, ..*change } == SetAttr::default();
        SetAttr { change: if is_empty { Some(time(self.volume.now())) } else { change.change }, ..*change }
    }

    /// Gives a file to nobody else: what Linux takes from it with a new owner goes all the same. Before others write to a
    /// file the kernel sends the same, and the write then takes the bits: so nobody is refused.
    fn give_to_nobody(&self, facts: &Metadata, change: &SetAttr) -> Result<Attributes, Failed> {
        let loses = facts.file_type == FileType::Regular;
        let wanted = AttributeChange { drop_privileges: loses, ..self.wanted(facts, change) };
        Ok(self.attributes_of(&self.volume.inode(facts.inode).change(&wanted)?))
    }

    /// A change as the library has it, without that of the size.
    fn wanted(&self, facts: &Metadata, change: &SetAttr) -> AttributeChange {
        let now = self.volume.now();
        let time = |time: Option<SetTime>| {
            time.map(|time| match time {
                SetTime::Now => now,
                SetTime::To(time) => stamp(time),
            })
        };
        // The kernel that keeps the times of contents by itself says `now` of the access only.
        let others = SetAttr { access: None, modify: None, change: None, by_handle: false, ..*change };
        let is_now = change.access == Some(SetTime::Now) && change.modify.is_some();
        let is_special = facts.file_type == FileType::Regular && facts.permissions & SPECIAL != 0;
        AttributeChange {
            permissions: change.permissions,
            uid: change.uid,
            gid: change.gid,
            access: time(change.access),
            modify: time(change.modify),
            change: change.change.map(stamp),
            drop_privileges: change.drop_privileges && is_special,
            touch: is_now && others == SetAttr::default(),
            // The kernel sends times of writes without holding the inode: a truncation may have come before them.
            late: change.size.is_none() && change.change.is_some(),
        }
    }

    pub(super) fn write_from(
        &self,
        node: u64,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<Cached, Failed> {
        let number = self.inode(node)?;
        let facts = self.volume.metadata(number)?;
        let drop_special_bits = flags.drop_privileges && facts.permissions & SPECIAL != 0;
        // What the kernel took into its pages went through the rules then.
        let options = WriteOptions {
            keep_times: self.leaves_times(),
            drop_special_bits,
            taken: flags.cached,
            overwrites: flags.handle != APPENDS,
        };
        // What is in the pages of the kernel may be older than the flag of a file, if it got that meanwhile.
        let is_late = || self.flagged().contains(&number);
        let is_immutable = flags.cached && facts.flags.contains(InodeFlags::IMMUTABLE);
        if facts.flags.contains(InodeFlags::ENCRYPT) || is_immutable && !is_late() {
            return Err(Errno::PERM.into());
        }
        if flags.cached && !self.terms.xattr {
            self.take_capabilities(number)?;
        }
        let (mut offset, mut data, len) = (offset, data, data.len() as u64);
        let is_append_only = flags.cached && facts.flags.contains(InodeFlags::APPEND);
        if is_append_only && offset < facts.size && !is_late() {
            (offset, data) = self.appended(number, facts.size, offset, data)?;
        }
        if !data.is_empty() {
            let write = |volume: &Volume| volume.write_at(number, offset, data, options);
            // Of what comes from the kernel's pages the program is not known: the owner answers for the space, beside
            // what was promised when the program was asked for.
            let of_owner = || self.volume.on_behalf_of(facts.uid, facts.gid);
            match flags.cached {
                // The kernel hands over the whole page around what a program wrote. Only that was asked for.
                true if self.nearly_full.is_short() => {
                    of_owner().write_expected(number, offset, data, options)?;
                }
                true => write(&of_owner())?,
                false => self.taking(self.taken_for(callers::current()), write)?,
            }
        }
        add(&self.counts.written, len);
        if flags.sync || facts.flags.contains(InodeFlags::SYNC) {
            self.volume.sync_inode(number)?;
        }
        if flags.cached {
            self.look_at_limits(&facts);
        }
        Ok(if drop_special_bits { Cached::Stale } else { Cached::Valid })
    }

    /// Takes the capabilities of a file whose contents change, where the kernel does not ask whether there are any.
    fn take_capabilities(&self, number: InodeNumber) -> Result<(), Failed> {
        let file = self.volume.inode(number);
        if file.xattr(CAPABILITIES)?.is_some() {
            file.remove_xattr(CAPABILITIES)?;
        }
        Ok(())
    }

    /// Decides about the special bits of a file when somebody changes its contents by a call of which the
    /// kernel does not say whether they may be kept: only a capability keeps them.
    fn dropping(&self, caller: Caller, number: InodeNumber) -> Result<(WriteOptions, Cached), Failed> {
        let facts = self.volume.metadata(number)?;
        let drop_special_bits = facts.permissions & SPECIAL != 0 && !self.has(caller, Powers::FSETID);
        let known = if drop_special_bits { Cached::Stale } else { Cached::Valid };
        let keep_times = self.leaves_times();
        Ok((WriteOptions { drop_special_bits, keep_times, ..WriteOptions::default() }, known))
    }

    /// Returns true if the kernel keeps the times of contents. It stamps a file for each change that it asks for, and sends the
    /// stamp when it writes the inode, but not twice: a stamp of ours behind that would stay, which no program was shown.
    fn leaves_times(&self) -> bool {
        self.terms.writeback
    }

    /// The kernel writes whole pages: what it says of the bytes before the end of a file that can only
    /// be appended to must be what they are. The rest is what was appended.
    fn appended<'d>(
        &self,
        number: InodeNumber,
        size: u64,
        offset: u64,
        data: &'d [u8],
    ) -> Result<(u64, &'d [u8]), Failed> {
        let known = usize::try_from(size - offset).unwrap_or(usize::MAX).min(data.len());
        let (old, new) = data.split_at(known);
        let mut found = vec![0; known];
        self.volume.read_at(number, offset, &mut found)?;
        if found == old { Ok((offset + known as u64, new)) } else { Err(Errno::PERM.into()) }
    }

    pub(super) fn change_space(
        &self,
        caller: Caller,
        node: u64,
        mode: u32,
        (offset, len): (u64, u64),
    ) -> Result<Cached, Failed> {
        self.synced_space().remove(&self.inode(node)?);
        if moving::is_announced(mode, offset, len) {
            // Without an announcement it is an offset that no file has, as in ext4.
            let wanted = self.announced.take(caller, node).filter(|wanted| offset <= wanted.offset);
            return self.move_range(caller, node, wanted.ok_or(Errno::FBIG)?);
        }
        const PUNCH: u32 = PUNCH_HOLE | KEEP_SIZE;
        const ZERO_KEEP: u32 = ZERO_RANGE | KEEP_SIZE;
        let mode = match mode {
            0 => Allocate::Extend,
            KEEP_SIZE => Allocate::KeepSize,
            PUNCH => Allocate::PunchHole,
            ZERO_RANGE => Allocate::ZeroRange,
            ZERO_KEEP => Allocate::ZeroRangeKeepSize,
            _ => return Err(Errno::OPNOTSUPP.into()),
        };
        let number = self.inode(node)?;
        let (options, known) = self.dropping(caller, number)?;
        self.taking(caller, |volume| volume.allocate_as(number, mode, offset, len, options))?;
        Ok(known)
    }

    /// Takes a range out of a file or puts one in, while the kernel keeps others from it. What the kernel thinks of the
    /// size is then right for a range that was put in, and set by the program after one was taken out.
    fn move_range(&self, caller: Caller, node: u64, wanted: Move) -> Result<Cached, Failed> {
        let Move { inserts, offset, len, size } = wanted;
        let number = self.inode(node)?;
        if self.volume.metadata(number)?.size != size {
            return Err(Errno::AGAIN.into());
        }
        let (options, known) = self.dropping(caller, number)?;
        if !inserts {
            self.volume.allocate_as(number, Allocate::CollapseRange, offset, len, options)?;
            return Ok(known);
        }
        let old = size.checked_sub(len).filter(|old| offset < *old).ok_or(Errno::INVAL)?;
        if !self.is_empty_from(number, old)? {
            return Err(Errno::AGAIN.into());
        }
        let insert =
            |volume: &Volume| volume.allocate_as(number, Allocate::InsertRange, offset, len, options);
        self.taking(caller, insert)?;
        self.volume.truncate(number, size)?;
        Ok(known)
    }

    /// Returns true if a file reads as zeros from an offset on, and has no blocks there but perhaps that of the byte before.
    fn is_empty_from(&self, number: InodeNumber, offset: u64) -> Result<bool, Failed> {
        let block = self.volume.format().geometry.block_size;
        let whole = offset.next_multiple_of(u64::from(block.bytes()));
        let mut rest = vec![0; usize::try_from(whole - offset).unwrap_or(0)];
        let read = self.volume.read_at(number, offset, &mut rest)?;
        let is_zero = rest.iter().take(read).all(|byte| *byte == 0);
        Ok(is_zero && self.volume.seek(number, whole, platfs::Seek::Data)?.is_none())
    }

    pub(super) fn copy_range(
        &self,
        caller: Caller,
        from: (u64, u64),
        to: WritePos,
        len: u64,
    ) -> Result<(u64, Cached), Failed> {
        let (source, target) = (self.inode(from.0)?, self.inode(to.node)?);
        let (options, known) = self.dropping(caller, target)?;
        let options = WriteOptions { overwrites: to.handle != APPENDS, ..options };
        let len = len.min(COPY_MAX);
        let (source, target) = ((source, from.1), (target, to.offset));
        let done = self.taking(caller, |volume| volume.copy_at(source, target, len, options))?;
        add(&self.counts.written, done);
        Ok((done, known))
    }

    pub(super) fn set_attribute(
        &self,
        caller: Caller,
        node: u64,
        (name, value): (&[u8], &[u8]),
        flags: u32,
    ) -> Result<(), Failed> {
        self.must_have_attributes()?;
        let number = self.inode(node)?;
        self.must_be_known(name)?;
        self.guard_attribute(number, name, WRITE)?;
        if flags & (XATTR_CREATE | XATTR_REPLACE) != 0 {
            let exists = self.volume.inode(number).xattr(name)?.is_some();
            if exists && flags & XATTR_CREATE != 0 {
                return Err(Errno::EXIST.into());
            }
            if !exists && flags & XATTR_REPLACE != 0 {
                return Err(Errno::NODATA.into());
            }
        }
        self.taking(caller, |volume| volume.inode(number).set_xattr(name, value))?;
        if name == ACCESS_LIST && self.loses_set_gid(number)? {
            let permissions = self.volume.metadata(number)?.permissions & !SET_GID;
            self.volume.inode(number).set_permissions(permissions)?;
        }
        Ok(())
    }

    pub(super) fn remove_attribute(&self, node: u64, name: &[u8]) -> Result<(), Failed> {
        self.must_have_attributes()?;
        let number = self.inode(node)?;
        self.must_be_known(name)?;
        self.guard_attribute(number, name, WRITE)?;
        match self.volume.inode(number).remove_xattr(name) {
            // A list that is not there is as good as one that was taken away.
            Err(Error::NotFound) if name.starts_with(b"system.posix_acl_") => Ok(()),
            Err(Error::NotFound) => Err(Errno::NODATA.into()),
            done => Ok(done?),
        }
    }
}
