//! Taking names away: unlink, rmdir; files without a name.

use ondisk::inode::{FileType, Inode, TimeField};
use ondisk::units::InodeNumber;

use super::attrs::file_type;
use super::handles::Pin;
use super::names::{Begun, Kind, NewInode, check_name};
use super::rules::{self, Deed};
use crate::dir;
use crate::error::{Error, Result};
use crate::inode;
use crate::tx::Tx;
use crate::volume::Volume;

impl Volume {
    /// The record of an inode as an update sees it.
    pub(crate) fn load_in(&self, update: &Tx<'_>, number: InodeNumber) -> Result<Inode> {
        inode::load(update, &self.format, &self.space, number)
    }

    /// The record of a directory as an update sees it.
    pub(super) fn load_directory_in(&self, update: &Tx<'_>, number: InodeNumber) -> Result<Inode> {
        let inode = self.load_in(update, number)?;
        if file_type(&inode)? == FileType::Directory { Ok(inode) } else { Err(Error::NotDirectory) }
    }

    /// The record behind a name as an update sees it.
    pub(super) fn child_in(&self, update: &Tx<'_>, directory: &Inode, name: &[u8]) -> Result<Inode> {
        let found = dir::lookup(update, &self.format, directory, name)?;
        let (number, _) = found.ok_or(Error::NotFound)?;
        self.load_in(update, number)
    }

    /// Takes a name from a file that is no directory. With its last name the file goes, or lives on
    /// as long as somebody has it open.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsDirectory`], [`Error::NotPermitted`]; broken structures. Then
    /// nothing has changed.
    pub fn unlink(&self, directory: InodeNumber, name: &[u8]) -> Result<()> {
        check_name(name)?;
        self.change(|update| {
            let mut parent = self.load_directory_in(update, directory)?;
            let child = self.child_in(update, &parent, name)?;
            rules::may_remove_name(&parent, &child)?;
            if file_type(&child)? == FileType::Directory {
                return Err(Error::IsDirectory);
            }
            dir::remove(self, update, &mut parent, name)?;
            self.store_parent(update, &mut parent)?;
            self.lose_name(update, child)
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`], [`Error::NotEmpty`], [`Error::NotPermitted`];
    /// broken structures. Then nothing has changed.
    pub fn rmdir(&self, directory: InodeNumber, name: &[u8]) -> Result<()> {
        match name {
            b"." => return Err(Error::Invalid("a directory can't be removed by the name '.'".into())),
            b".." => return Err(Error::NotEmpty),
            _ => check_name(name)?,
        }
        self.settle_directory(directory, name)?;
        self.change(|update| {
            let mut parent = self.load_directory_in(update, directory)?;
            let child = self.child_in(update, &parent, name)?;
            rules::may_remove_name(&parent, &child)?;
            self.must_be_empty(update, &child)?;
            dir::remove(self, update, &mut parent, name)?;
            lower_links(&mut parent);
            self.store_parent(update, &mut parent)?;
            self.lose_directory(update, child)
        })
    }

    /// Makes a regular file without a name. It goes with its last user, unless [`Volume::link`] gives
    /// it a name before.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn create_unnamed(
        &self,
        directory: InodeNumber,
        new: &NewInode<'_>,
    ) -> Result<(InodeNumber, Pin<'_>)> {
        if new.kind != Kind::File {
            return Err(Error::Invalid("only regular files can be without a name".into()));
        }
        let number = self.change(|update| {
            let mut parent = self.load_directory_in(update, directory)?;
            rules::may(&parent, Deed::AddName)?;
            let (number, mut child) = self.new_child(update, &mut parent, b"", new, Begun::Now)?;
            child.raw_mut().i_links_count.set(0);
            self.join_orphans(update, &mut child);
            inode::store(update, &self.format, &self.space, &mut child)?;
            // From inside the update: afterwards somebody else could see it unused.
            if self.session.handles.pin(number) { Ok(number) } else { Err(Error::NotFound) }
        })?;
        Ok((number, Pin::held(self, number)))
    }

    pub(super) fn must_be_empty(&self, update: &Tx<'_>, child: &Inode) -> Result<()> {
        if file_type(child)? != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        match dir::entries_in(update, self, child.clone())?.next() {
            None => Ok(()),
            Some(Ok(_)) => Err(Error::NotEmpty),
            Some(Err(error)) => Err(error),
        }
    }

    /// A file lost one name; with the last it goes.
    pub(super) fn lose_name<'v>(&'v self, update: &mut Tx<'v>, mut child: Inode) -> Result<()> {
        let links = child.links().saturating_sub(1);
        child.raw_mut().i_links_count.set(links);
        update.touch(&mut child, &[TimeField::Change]);
        if links == 0 {
            return self.bury(update, child);
        }
        inode::store(update, &self.format, &self.space, &mut child)
    }

    /// An empty directory lost its name.
    pub(super) fn lose_directory<'v>(&'v self, update: &mut Tx<'v>, mut child: Inode) -> Result<()> {
        child.raw_mut().i_links_count.set(0);
        update.touch(&mut child, &[TimeField::Change]);
        self.bury(update, child)
    }
}

/// One subdirectory less. A directory whose link count is 1 has stopped counting.
pub(super) fn lower_links(directory: &mut Inode) {
    let links = directory.links();
    if links > 2 {
        directory.raw_mut().i_links_count.set(links - 1);
    }
}
