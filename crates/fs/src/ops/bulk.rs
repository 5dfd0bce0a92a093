//! Verbs for many files at once: several names of one directory in one update.
//!
//! Owns: whole files with their data and names, and removing many names; of permissions, the sticky bit, which is about
//! each file that a name means at that moment. Each call is all or nothing, as every verb is; after a failure the caller
//! tries fewer at a time. Leaves to others: the bytes of files that are too large to be written in one update
//! (`create_unnamed`, `writer`), and all other permissions.

use std::collections::HashSet;

use ondisk::inode::{FileType, Inode};
use ondisk::units::InodeNumber;

use super::attrs::file_type;
use super::changing::change;
use super::flush::WriteBack;
use super::names::{FirstBlock, NewInode, check_name};
use super::remove::lower_links;
use super::rights::Credentials;
use super::rules::{self, Operation};
use crate::error::{Error, Result};
use crate::file::{Allocation, WriteHint};
use crate::tx::Tx;
use crate::volume::Volume;

/// The verbs for many files at once.
#[derive(Clone, Copy)]
pub struct Bulk<'v> {
    volume: &'v Volume,
    who: Option<&'v Credentials>,
    replaces: bool,
}

/// A new inode with its name and, for a regular file, all of its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'a> {
    /// The name.
    pub name: &'a [u8],
    /// Inode to make.
    pub new: NewInode<'a>,
    /// The contents of a regular file; else nothing.
    pub data: &'a [u8],
}

/// A name that was removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Removed {
    /// The name.
    pub name: Vec<u8>,
    /// Inode that it led to.
    pub inode: InodeNumber,
    /// Names that are left.
    pub links: u16,
    /// It was a directory.
    pub is_directory: bool,
}

impl Volume {
    /// The verbs for many files at once.
    #[must_use]
    pub fn bulk(&self) -> Bulk<'_> {
        Bulk { volume: self, who: None, replaces: false }
    }
}

impl<'v> Bulk<'v> {
    /// On this user's behalf: the sticky bit of a directory keeps it from removing and replacing the files of others,
    /// with [`Error::NotPermitted`].
    #[must_use]
    pub fn of(self, who: &'v Credentials) -> Self {
        Bulk { who: Some(who), ..self }
    }

    /// A name that exists comes to mean the new file, unless it means a directory.
    #[must_use]
    pub fn replacing(self, replaces: bool) -> Self {
        Bulk { replaces, ..self }
    }

    fn may_take(&self, directory: &Inode, child: &Inode) -> Result<()> {
        rules::may_remove_name(directory, child)?;
        match self.who {
            Some(who) if who.is_kept_off_of(directory, child) => {
                Err(Error::NotPermitted("the sticky bit of the directory keeps the file for its owner"))
            }
            _ => Ok(()),
        }
    }

    /// How many users an inode has (pins, and what was retained): with any it outlives its last name.
    #[must_use]
    pub fn users(&self, number: InodeNumber) -> u32 {
        self.volume.session.handles.users(number)
    }

    /// Makes files in a directory, each whole, with attributes as they are given; returns the names that others lost.
    ///
    /// # Errors
    /// As [`Volume::create`] and [`Writer`](crate::Writer); [`Error::TooLargeForLog`] for too many at once. Then
    /// nothing has changed.
    pub fn create(&self, directory: InodeNumber, files: &[Whole<'_>]) -> Result<Vec<Removed>> {
        files.iter().try_for_each(|file| check_name(file.name))?;
        change(self.volume, |tx| {
            let mut parent = tx.directory(directory)?;
            rules::may(&parent, Operation::AddName)?;
            let mut replaced = Vec::new();
            tx.batch_writes();
            for file in files {
                replaced.extend(tx.create_whole(&mut parent, file, self)?);
            }
            tx.write_gathered()?;
            tx.store_parent(&mut parent)?;
            Ok(replaced)
        })
    }

    /// Gives a file one more name, or its first one; returns the name that another lost.
    ///
    /// # Errors
    /// As [`Volume::link`].
    pub fn link(&self, number: InodeNumber, directory: InodeNumber, name: &[u8]) -> Result<Option<Removed>> {
        check_name(name)?;
        if !self.replaces || matches!(self.volume.lookup(directory, name), Err(Error::NotFound)) {
            return self.volume.link(number, directory, name).map(|()| None);
        }
        if self.volume.order.survives_crashes() {
            // The old contents go with the name: the new ones come first.
            WriteBack::new(self.volume).inode(number)?;
        }
        change(self.volume, |tx| {
            let mut parent = tx.directory(directory)?;
            rules::may(&parent, Operation::AddName)?;
            let Some(other) = tx.replaceable(&parent, name, self)? else {
                return tx.link_in(number, directory, name).map(|()| None);
            };
            if other.number() == number {
                return Ok(None);
            }
            let child = tx.one_more_link(number, &parent)?;
            tx.dir(&mut parent).retarget(name, number, file_type(&child)?)?;
            let removed = Removed::from_entry(name, &other);
            tx.store_parent(&mut parent)?;
            tx.lose_name(other)?;
            Ok(Some(removed))
        })
    }

    /// Takes names from files that are no directories.
    ///
    /// # Errors
    /// As [`Volume::unlink`], for any of them; [`Error::TooLargeForLog`] for too many at once. Then nothing has
    /// changed.
    pub fn unlink(&self, directory: InodeNumber, names: &[Vec<u8>]) -> Result<Vec<Removed>> {
        names.iter().try_for_each(|name| check_name(name))?;
        change(self.volume, |tx| {
            let mut parent = tx.directory(directory)?;
            let mut removed = Vec::with_capacity(names.len());
            for name in names {
                let child = tx.child(&parent, name)?;
                self.may_take(&parent, &child)?;
                if file_type(&child)? == FileType::Directory {
                    return Err(Error::IsDirectory);
                }
                tx.dir(&mut parent).remove(name)?;
                removed.push(Removed::from_entry(name, &child));
                tx.lose_name(child)?;
            }
            tx.store_parent(&mut parent)?;
            Ok(removed)
        })
    }

    /// Removes a directory with the names in it, if it holds exactly these files and no directories. Where nobody uses
    /// it, they are not taken out of its blocks one by one, since these go too.
    ///
    /// # Errors
    /// [`Error::NotEmpty`] if it holds other names, or a directory, or somebody begins to use it meanwhile; as
    /// [`Volume::rmdir`] and [`Bulk::unlink`]. Then nothing has changed.
    pub fn remove_whole(&self, parent: InodeNumber, name: &[u8], known: &[Vec<u8>]) -> Result<Vec<Removed>> {
        check_name(name)?;
        self.volume.leftovers().settle_directory(parent, name)?;
        change(self.volume, |tx| {
            let mut above = tx.directory(parent)?;
            let directory = tx.child(&above, name)?;
            self.may_take(&above, &directory)?;
            if file_type(&directory)? != FileType::Directory {
                return Err(Error::NotDirectory);
            }
            let (number, handles) = (directory.number(), &self.volume.session.handles);
            // A program that uses it will find it empty.
            let lives_on = handles.users(number) > 0 || tx.postpones_removal();
            let mut directory = directory;
            let mut removed = tx.lose_all_names(&mut directory, known, lives_on, self)?;
            removed.push(Removed::from_entry(name, &directory));
            tx.dir(&mut above).remove(name)?;
            lower_links(&mut above);
            tx.store_parent(&mut above)?;
            tx.lose_directory(directory)?;
            // Somebody began to use it in between: names in it would lead to nothing.
            if lives_on || handles.is_deleting(number) { Ok(removed) } else { Err(Error::NotEmpty) }
        })
    }
}

impl Removed {
    fn from_entry(name: &[u8], child: &Inode) -> Self {
        let is_directory = child.file_type() == Some(FileType::Directory);
        let links = if is_directory { 0 } else { child.links().saturating_sub(1) };
        Removed { name: name.to_vec(), inode: child.number(), links, is_directory }
    }
}

impl<'v> Tx<'v> {
    /// The file that a name means and that may lose it; `None` where there is none.
    fn replaceable(&self, parent: &Inode, name: &[u8], bulk: &Bulk<'_>) -> Result<Option<Inode>> {
        if !self.has_name(parent, name)? {
            return Ok(None);
        }
        if !bulk.replaces {
            return Err(Error::Exists);
        }
        let other = self.child(parent, name)?;
        if file_type(&other)? == FileType::Directory {
            return Err(Error::IsDirectory);
        }
        bulk.may_take(parent, &other).map(|()| Some(other))
    }

    fn create_whole(
        &mut self,
        parent: &mut Inode,
        file: &Whole<'_>,
        bulk: &Bulk<'_>,
    ) -> Result<Option<Removed>> {
        let other = self.replaceable(parent, file.name, bulk)?;
        let file_type = file.new.kind.file_type();
        let (number, mut child) = self.new_child(parent, file.name, &file.new, FirstBlock::Now)?;
        if !file.data.is_empty() {
            if file_type != FileType::Regular {
                return Err(Error::Invalid("only regular files have bytes".into()));
            }
            let hint = WriteHint { end: file.data.len() as u64, growing: false, reserved: false };
            self.contents(&mut child).write_any(&mut Allocation::default(), (0, file.data), &hint, true)?;
            self.note_size(child.size());
        }
        self.store(&mut child)?;
        let Some(other) = other else {
            return self.dir(parent).add(file.name, number, file_type).map(|()| None);
        };
        self.dir(parent).retarget(file.name, number, file_type)?;
        let removed = Removed::from_entry(file.name, &other);
        self.lose_name(other).map(|()| Some(removed))
    }

    /// Takes the names of all files in a directory that goes too; they must be these.
    fn lose_all_names(
        &mut self,
        directory: &mut Inode,
        known: &[Vec<u8>],
        lives_on: bool,
        bulk: &Bulk<'_>,
    ) -> Result<Vec<Removed>> {
        // No more than are known: others may have filled it meanwhile.
        let found = self.view().entries(directory.clone())?.take(known.len().saturating_add(1));
        let found = found.collect::<Result<Vec<_>>>()?;
        let known: HashSet<&[u8]> = known.iter().map(Vec::as_slice).collect();
        if found.len() != known.len() || !found.iter().all(|entry| known.contains(&entry.name[..])) {
            return Err(Error::NotEmpty);
        }
        let mut removed = Vec::with_capacity(found.len() + 1);
        for entry in found {
            let child = self.inode(entry.inode)?;
            bulk.may_take(directory, &child)?;
            if file_type(&child)? == FileType::Directory {
                return Err(Error::NotEmpty);
            }
            if lives_on {
                self.dir(directory).remove(&entry.name)?;
            }
            removed.push(Removed::from_entry(&entry.name, &child));
            self.lose_name(child)?;
        }
        Ok(removed)
    }
}
