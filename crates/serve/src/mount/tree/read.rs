//! The requests that only look.

use std::cell::OnceCell;

use fuse::{Cached, Caller, Entry, Errno, FlushPages, Listed, ReadFlags, Seek};
use ondisk::corrupt::Place;
use ondisk::inode::{FileType, InodeFlags};
use ondisk::units::InodeNumber;
use platfs::rights::{Powers, READ};
use platfs::{AccessTimes, Error, Metadata};

use super::beside::Moment;
use super::callers;
use super::counts::add;
use super::{Failed, Tree, proofs, type_of};
use crate::control::Served;
use platfs_image::clock;
use platfs_image::text::Shown;

/// Longest name.
const NAME_MAX: usize = 255;

impl Tree {
    /// Metadata of the inode that a name leads to; it must be in use, and one that names may lead to.
    pub(super) fn named(&self, directory: InodeNumber, number: InodeNumber) -> Result<Metadata, Failed> {
        let broken = |problem: String| Err(Error::corrupt(Place::Directory(directory), problem).into());
        if number != InodeNumber::ROOT && number.get() < self.first_inode {
            return broken(format!("names inode {number}, which is reserved"));
        }
        let metadata = self.volume.metadata(number)?;
        if metadata.links == 0 {
            return broken(format!("names inode {number}, which is deleted"));
        }
        Ok(metadata)
    }

    pub(super) fn find(&self, parent: u64, name: &[u8]) -> Result<Entry, Failed> {
        let directory = self.inode(parent)?;
        if name == b"." {
            // A handle from before: is the inode still there?
            return self.hand_out(directory, || match self.volume.metadata(directory) {
                Ok(metadata) if metadata.links > 0 => Ok(metadata),
                _ => Err(Failed::Errno(Errno::STALE)),
            });
        }
        if name != b".." {
            self.guard_search(directory)?;
        }
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        if let Some(proof) = self.proof_in(parent, name) {
            return Ok(proof);
        }
        let at = self.beside.now();
        let found = self.volume.lookup(directory, name)?;
        self.hand_out_found((found, at), directory, name)
    }

    pub(super) fn list_from(
        &self,
        node: u64,
        mut position: u64,
        with_entries: bool,
        take: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<(), Failed> {
        let directory = self.inode(node)?;
        let mut taken = 0;
        'all: loop {
            let at = self.beside.now();
            let batch = match self.volume.read_dir_from(directory, position) {
                // The names found so far are returned first; the next call meets the damage again.
                Err(_) if taken > 0 => break,
                batch => batch?,
            };
            let Some((_, end)) = batch.last() else { break };
            position = *end;
            for (entry, next) in &batch {
                if entry.name.is_empty() || entry.name.iter().any(|byte| matches!(byte, b'/' | 0)) {
                    // The kernel would refuse the whole listing.
                    self.log.complain(format!(
                        "directory inode {directory}: the name `{}` can't be shown",
                        Shown(&entry.name)
                    ));
                    continue;
                }
                if !self.show((directory, at), (entry, *next), with_entries, take) {
                    break 'all;
                }
                taken += 1;
            }
        }
        add(&self.counts.listed, taken);
        self.note_access(directory, None);
        Ok(())
    }

    /// Hands out one name of a listing, made at some moment; says whether it was
    /// taken.
    fn show(
        &self,
        (directory, at): (InodeNumber, Moment),
        (found, next): (&platfs::DirEntry, u64),
        with_entry: bool,
        take: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> bool {
        let is_dots = matches!(&found.name[..], b"." | b"..");
        // A name whose inode is damaged is still listed; a look at it gives the error.
        let entry = if is_dots || !with_entry {
            None
        } else {
            self.hand_out_found((found.inode, at), directory, &found.name).ok()
        };
        let known = found.file_type.map(type_of).or_else(|| {
            let asked =
                || self.named(directory, found.inode).ok().map(|metadata| type_of(metadata.file_type));
            entry.map(|entry| entry.attributes.file_type).or_else(asked)
        });
        let fallback = if is_dots { fuse::FileType::Directory } else { fuse::FileType::Regular };
        let listed = Listed {
            name: &found.name,
            inode: u64::from(found.inode.get()),
            file_type: known.unwrap_or(fallback),
            next,
            entry,
        };
        let taken = take(&listed);
        if let (false, Some(entry)) = (taken, entry) {
            self.take_back(entry.node, 1);
        }
        taken
    }

    pub(super) fn read_into(
        &self,
        node: u64,
        offset: u64,
        buffer: &mut [u8],
        flags: ReadFlags,
    ) -> Result<usize, Failed> {
        let number = self.inode(node)?;
        let facts = self.volume.metadata(number)?;
        let count = self.volume.read_at(number, offset, buffer)?;
        add(&self.counts.read, count as u64);
        if !flags.keep_access_time {
            self.note_access(number, Some(&facts));
        }
        Ok(count)
    }

    /// Notes that a file is opened to be read: the kernel serves what is in its pages without a word.
    pub(super) fn count_opening(&self, number: InodeNumber) -> Result<Cached, Failed> {
        let facts = self.volume.metadata(number)?;
        let is_file = facts.file_type == FileType::Regular;
        let is_noted = is_file && self.note_access(number, Some(&facts));
        Ok(if is_noted { Cached::Stale } else { Cached::Valid })
    }

    /// Notes that something was read, as far as the kernel's rules ask for it; says whether they do. That it can't be noted
    /// is no failure of the reading.
    fn note_access(&self, number: InodeNumber, facts: Option<&Metadata>) -> bool {
        if !self.is_writable() || self.terms.access_times == AccessTimes::Off {
            return false;
        }
        let now = clock::now();
        let due = facts.is_none_or(|facts| self.terms.access_times.due(&facts.times, facts.flags, now));
        if due {
            let _ = self.volume.at_time(now).inode(number).note_access(self.terms.access_times);
        }
        due
    }

    pub(super) fn target(&self, node: u64) -> Result<Vec<u8>, Failed> {
        let number = self.inode(node)?;
        let facts = self.volume.metadata(number)?;
        if facts.file_type != FileType::Symlink {
            return Err(Errno::INVAL.into());
        }
        let target = self.volume.read_link(number)?;
        self.note_access(number, Some(&facts));
        Ok(target)
    }

    /// The kernel asks without handing over its pages first. What it holds would look like a hole, and copies that skip
    /// holes would lose it. So it is made to hand over what may lie in a hole before that counts as one.
    pub(super) fn seek_to(
        &self,
        node: u64,
        offset: u64,
        what: Seek,
        flush: Option<FlushPages<'_>>,
    ) -> Result<u64, Failed> {
        let number = self.inode(node)?;
        let seek = |offset, what| Ok::<_, Failed>(self.volume.seek(number, offset, what)?);
        let next_data = |offset| seek(offset, platfs::Seek::Data);
        let next_hole = |offset| seek(offset, platfs::Seek::Hole);
        let found = match (self.terms.writable, flush, what) {
            (false, _, Seek::Data) => next_data(offset)?,
            (false, _, Seek::Hole) => next_hole(offset)?,
            // Now the kernel takes all files for data from end to end.
            (true, None, _) => return Err(Errno::NOSYS.into()),
            (true, Some(flush), Seek::Data) => match next_data(offset)? {
                Some(data) if data == offset => Some(data),
                found => {
                    flush(offset..found.unwrap_or(u64::MAX))?;
                    next_data(offset)?
                }
            },
            (true, Some(flush), Seek::Hole) => {
                // Behind the end of a file there may be bytes that make it longer.
                let start = next_hole(offset)?.unwrap_or(offset);
                let end = next_data(start)?.unwrap_or(u64::MAX);
                flush(start..end)?;
                let found = next_hole(offset)?;
                if found.is_some_and(|hole| hole >= end) {
                    // All of it is data now. What is further on is asked for at once.
                    flush(end..u64::MAX)?;
                    next_hole(offset)?
                } else {
                    found
                }
            }
        };
        found.ok_or(Failed::Errno(Errno::NXIO))
    }

    pub(super) fn is_hidden(&self, name: &[u8]) -> bool {
        !Served::terms(self).show(name, || true)
    }

    /// Where attributes are left out, the answer to the first request for each kind makes the kernel stop asking.
    pub(super) fn must_have_attributes(&self) -> Result<(), Failed> {
        if self.terms.xattr { Ok(()) } else { Err(Errno::NOSYS.into()) }
    }

    /// The attributes that can be asked for by name.
    pub(super) fn must_be_known(&self, name: &[u8]) -> Result<(), Failed> {
        let known = [&b"user."[..], b"trusted.", b"security.", b"system.posix_acl_"];
        if self.is_hidden(name) || !known.iter().any(|prefix| name.starts_with(prefix)) {
            return Err(Errno::OPNOTSUPP.into());
        }
        if name.ends_with(b".") && known.contains(&name) {
            return Err(Errno::INVAL.into());
        }
        Ok(())
    }

    pub(super) fn attribute(&self, node: u64, name: &[u8]) -> Result<Vec<u8>, Failed> {
        if proofs::is_one(node) {
            return Err(Errno::NODATA.into());
        }
        let number = self.inode(node)?;
        self.must_be_known(name)?;
        self.guard_attribute(number, name, READ)?;
        self.volume.inode(number).xattr(name)?.ok_or(Failed::Errno(Errno::NODATA))
    }

    /// The length of a file's capabilities, as the kernel asks for it before a write. If a file was opened before
    /// it became immutable, the kernel takes the write into its pages without asking whether it may. But it asks
    /// for this first. If there are some, it wants them removed, which an immutable file refuses, and so the
    /// write is refused. Programs ask with room for the value, and get the truth.
    pub(super) fn capabilities(&self, node: u64, attribute: &[u8]) -> Result<usize, Failed> {
        let is_immutable = || {
            let facts = self.volume.metadata(self.inode(node)?)?;
            let is_file = facts.file_type == FileType::Regular;
            Ok::<_, Failed>(is_file && facts.flags.contains(InodeFlags::IMMUTABLE))
        };
        match self.attribute(node, attribute) {
            Err(Failed::Errno(Errno::NODATA)) if is_immutable()? => Ok(1),
            found => found.map(|value| value.len()),
        }
    }

    pub(super) fn attribute_names(&self, caller: Caller, node: u64) -> Result<Vec<Vec<u8>>, Failed> {
        let mut names = self.volume.inode(self.inode(node)?).xattr_names()?;
        let terms = Served::terms(self);
        // It is asked of the system, and once.
        let administers = OnceCell::new();
        let has = || *administers.get_or_init(|| callers::has(caller, Powers::SYS_ADMIN));
        names.retain(|name| terms.show(name, has));
        Ok(names)
    }
}
