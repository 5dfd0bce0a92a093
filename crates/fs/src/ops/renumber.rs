//! An inode gets another number on disk while it is in use, so that its group can go.
//!
//! Programs and the kernel go on with the number that they know (`numbers`). What is on disk changes in one update: the record
//! goes to another place, all names lead there, the subdirectories of a directory know their parent, and every block whose
//! checksum depends on the number gets another checksum. A crash finds the inode under one number or under the other.
//!
//! Owns: what of an inode depends on its number. Excludes: which inodes get other numbers, and finding their names
//! (`shrink`).

use std::collections::BTreeSet;

use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::units::{FileBlock, InodeNumber};
use placement::InodeRequest;

use super::attrs::file_type;
use super::changing::change;
use crate::error::{Error, Result};
use crate::order::is_used;
use crate::tx::{Tx, View};
use crate::volume::Volume;

/// Where a name may stand: a directory, and the block of it if that is known.
pub(crate) type NamePlace = (InodeNumber, Option<FileBlock>);

/// Outcome of renumbering an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Renumbered {
    /// It has another number.
    Done,
    /// It needs none: it is free, or has a low one, or holds the value of an attribute.
    Needless,
    /// Not all of its names are at the places.
    NamesMissing,
}

/// Gives an inode whose number on disk is above `last` another one. Others may use it meanwhile. `places` says where
/// its names may be at that moment.
///
/// # Errors
/// No free inode; what is too large for the journal; broken structures; the device's failure. It is as before then.
pub(crate) fn renumber(
    volume: &Volume,
    number: InodeNumber,
    last: u32,
    places: &dyn Fn() -> Vec<NamePlace>,
) -> Result<Renumbered> {
    let _shape = volume.keep_shape();
    let done = change(volume, |tx| tx.renumber(number, last, &places()));
    match done {
        Err(Error::TooLargeForLog { .. }) => refused(&format!(
            "inode {number} would get another number, and all that depends on it is too large for the journal"
        )),
        done => done,
    }
}

/// Puts values of an inode's attributes that lie in inodes above a number into others; whether there were any.
///
/// # Errors
/// As [`renumber`].
pub(crate) fn renew_values(volume: &Volume, number: InodeNumber, last: u32) -> Result<bool> {
    let _shape = volume.keep_shape();
    change(volume, |tx| {
        let mut node = tx.inode(number)?;
        if !is_used(node.bytes()) {
            return Ok(false);
        }
        let renewed = tx.xattrs(&mut node).renew_values(|value| value.get() > last)?;
        if renewed {
            tx.store(&mut node)?;
        }
        Ok(renewed)
    })
}

fn refused<T>(why: &str) -> Result<T> {
    Err(Error::Unsupported(format!("{why}: unmount the volume, and change its size then")))
}

impl View<'_> {
    /// The blocks of directories in which all names of an inode stand; `None` if they are not all among these places.
    fn names_at(
        self,
        node: &Inode,
        places: &[NamePlace],
    ) -> Result<Option<BTreeSet<(InodeNumber, FileBlock)>>> {
        let expected = match node.file_type() {
            Some(FileType::Directory) => u64::from(node.links() > 0),
            _ => u64::from(node.links()),
        };
        let on_disk = self.format.physical_number(node.number());
        let (mut names, mut count) = (BTreeSet::new(), 0);
        let mut seen = BTreeSet::new();
        for (directory, at) in places.iter().filter(|place| seen.insert(**place)) {
            let dir = self.inode(*directory)?;
            if dir.file_type() != Some(FileType::Directory) || !is_used(dir.bytes()) {
                continue;
            }
            for (_, at) in self.dir(&dir).leading_to(*at, &|number| number == on_disk)? {
                count += 1;
                names.insert((*directory, at));
            }
        }
        Ok((count == expected).then_some(names))
    }

    /// All names of an inode, where they were or anywhere in the directories where they were.
    fn all_names(
        self,
        node: &Inode,
        places: &[NamePlace],
    ) -> Result<Option<BTreeSet<(InodeNumber, FileBlock)>>> {
        let known: Vec<NamePlace> = places.iter().copied().filter(|(_, at)| at.is_some()).collect();
        if let Some(names) = self.names_at(node, &known)? {
            return Ok(Some(names));
        }
        let whole: Vec<NamePlace> = places.iter().map(|(directory, _)| (*directory, None)).collect();
        self.names_at(node, &whole)
    }
}

impl Tx<'_> {
    fn renumber(&mut self, number: InodeNumber, last: u32, places: &[NamePlace]) -> Result<Renumbered> {
        let from = self.format.physical_number(number);
        let mut node = self.inode(number)?;
        let is_value = node.flags().contains(InodeFlags::EA_INODE);
        // The record of one without names leads to the next in the list where others have the time of their end.
        let is_there = is_used(node.bytes()) || self.session.handles.orphan(number).is_some();
        if from.get() <= last || is_value || !is_there {
            return Ok(Renumbered::Needless);
        }
        if self.view().xattrs(&node).is_named_by_values()? {
            return refused(&format!("inode {number} has values of attributes that name it by its number"));
        }
        let Some(names) = self.view().all_names(&node, places)? else {
            return Ok(Renumbered::NamesMissing);
        };
        let to = self.take_number(&node, names.first().map(|(directory, _)| *directory))?;
        for (directory, at) in names {
            self.lead_names(directory, at, from, to)?;
        }
        if file_type(&node)? == FileType::Directory {
            self.lead_children(&node, to)?;
            self.dir(&mut node).set_dot(b".", to)?;
        }
        self.reseal_blocks(&mut node, to)?;
        self.lead_orphans(number, to)?;
        self.change_places(&mut node, from, to)?;
        Ok(Renumbered::Done)
    }

    /// A free inode for it, near a directory: its number on disk.
    fn take_number(&mut self, node: &Inode, directory: Option<InodeNumber>) -> Result<InodeNumber> {
        let parent = directory.unwrap_or(InodeNumber::ROOT);
        let file_type = file_type(node)?;
        let request = InodeRequest {
            parent: self.format.physical_number(parent).index(),
            is_directory: file_type == FileType::Directory,
            top_level: false,
            name_hash: node.number().get(),
            seeded_hash: node.number().get(),
            sequential: false,
        };
        let fresh = self.space_mut()?.allocate_inode(&request, file_type)?;
        self.note_changed(fresh);
        Ok(self.format.physical_number(fresh))
    }

    fn lead_names(
        &mut self,
        directory: InodeNumber,
        at: FileBlock,
        from: InodeNumber,
        to: InodeNumber,
    ) -> Result<()> {
        let mut dir = self.inode(directory)?;
        self.dir(&mut dir).lead_elsewhere(at, from, to)?;
        self.changed_names(&mut dir)
    }

    /// Names of a directory were changed in place.
    fn changed_names(&mut self, dir: &mut Inode) -> Result<()> {
        self.note_changed(dir.number());
        if dir.flags().contains(InodeFlags::INLINE_DATA) { self.store(dir) } else { Ok(()) }
    }

    /// Subdirectories know their parent by its number.
    fn lead_children(&mut self, node: &Inode, to: InodeNumber) -> Result<()> {
        if node.links() == 0 {
            return Ok(());
        }
        let entries: Vec<_> = self.view().entries(node.clone())?.collect::<Result<_>>()?;
        for entry in entries {
            if entry.file_type.is_some_and(|file_type| file_type != FileType::Directory) {
                continue;
            }
            let mut child = self.inode(entry.inode)?;
            if child.file_type() == Some(FileType::Directory) {
                self.dir(&mut child).set_dot(b"..", to)?;
                self.changed_names(&mut child)?;
            }
        }
        Ok(())
    }

    /// Blocks whose checksums depend on the number.
    fn reseal_blocks(&mut self, node: &mut Inode, to: InodeNumber) -> Result<()> {
        let sealer = self.format.sealer;
        if !sealer.covers_metadata() {
            return Ok(());
        }
        let seed = sealer.inode_seed(to, node.generation());
        if file_type(node)? == FileType::Directory {
            self.dir(node).reseal(seed)?;
        }
        if !node.has_map() {
            return Ok(());
        }
        for (block, role) in self.view().map(node).sealed_blocks()? {
            self.reseal(block, role, seed)?;
        }
        Ok(())
    }

    /// The one before it in the list of orphans leads to it by its number.
    fn lead_orphans(&mut self, number: InodeNumber, to: InodeNumber) -> Result<()> {
        let session = self.session;
        if !self.order().lists_orphans() {
            return Ok(());
        }
        match session.handles.orphan(number) {
            None => {}
            Some(Some(before)) => {
                let mut before = self.inode(before)?;
                before.raw_mut().i_dtime.set(to.get());
                self.store(&mut before)?;
            }
            Some(None) => self.on_commit(move || {
                session.edit_superblock(|raw| raw.s_last_orphan.set(to.get()));
            }),
        }
        Ok(())
    }

    fn change_places(&mut self, node: &mut Inode, from: InodeNumber, to: InodeNumber) -> Result<()> {
        let (number, format) = (node.number(), self.format);
        let mut gone = self.gone(node);
        self.store_at(to, node)?;
        self.store_at(from, &mut gone)?;
        self.space_mut()?.free_inode(number, file_type(node)?)?;
        self.note_changed(number);
        self.note_awaited(number);
        self.exchange(&format.numbers, number, to);
        Ok(())
    }
}
