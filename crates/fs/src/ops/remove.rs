//! Taking names away: unlink, rmdir; files without a name.

use ondisk::inode::{FileType, Inode, TimeField};
use ondisk::units::InodeNumber;

use super::attrs::file_type;
use super::changing::change;
use super::handles::Pin;
use super::names::{FirstBlock, Kind, NewInode, check_name, directory_only};
use super::rules::{self, Operation};
use crate::error::{Error, Result};
use crate::tx::Tx;
use crate::volume::Volume;

impl Volume {
    /// Takes a name from a file that is no directory. With its last name the file goes, or lives on
    /// while it is open.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsDirectory`], [`Error::NotPermitted`]; broken structures. Then
    /// nothing has changed.
    pub fn unlink(&self, directory: InodeNumber, name: &[u8]) -> Result<()> {
        check_name(name)?;
        change(self, |tx| {
            let mut parent = tx.directory(directory)?;
            let child = tx.child(&parent, name)?;
            rules::may_remove_name(&parent, &child)?;
            if file_type(&child)? == FileType::Directory {
                return Err(Error::IsDirectory);
            }
            tx.dir(&mut parent).remove(name)?;
            tx.store_parent(&mut parent)?;
            tx.lose_name(child)
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
        self.leftovers().settle_directory(directory, name)?;
        change(self, |tx| {
            let mut parent = tx.directory(directory)?;
            let child = tx.child(&parent, name)?;
            rules::may_remove_name(&parent, &child)?;
            tx.must_be_empty(&child)?;
            tx.dir(&mut parent).remove(name)?;
            lower_links(&mut parent);
            tx.store_parent(&mut parent)?;
            tx.lose_directory(child)
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
        let number = change(self, |tx| {
            let mut parent = tx.directory(directory)?;
            // As ext4 says it here; for a name in such a directory it says that there is none.
            if parent.links() == 0 {
                return Err(Error::NotPermitted("the directory was removed"));
            }
            rules::may(&parent, Operation::AddName)?;
            let (number, mut child) = tx.new_child(&mut parent, b"", new, FirstBlock::Now)?;
            child.raw_mut().i_links_count.set(0);
            tx.join_orphans(&mut child);
            tx.store(&mut child)?;
            tx.begin_use(number)?;
            Ok(number)
        })?;
        Ok((number, Pin::already_counted(self, number)))
    }
}

impl<'v> Tx<'v> {
    /// A directory as this update leaves it.
    pub(super) fn directory(&self, number: InodeNumber) -> Result<Inode> {
        let inode = self.inode(number)?;
        directory_only(&inode)?;
        Ok(inode)
    }

    /// The inode behind a name as this update leaves it.
    pub(super) fn child(&self, directory: &Inode, name: &[u8]) -> Result<Inode> {
        let found = self.view().dir(directory).lookup(name)?;
        let (number, _) = found.ok_or(Error::NotFound)?;
        self.inode(number)
    }

    /// True if a name exists in a directory, to which it is to be added if not.
    pub(super) fn has_name(&self, directory: &Inode, name: &[u8]) -> Result<bool> {
        self.view().dir(directory).exists(&self.session.known_names, name)
    }

    pub(super) fn must_be_empty(&self, child: &Inode) -> Result<()> {
        if file_type(child)? != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        match self.view().entries(child.clone())?.next() {
            None => Ok(()),
            Some(Ok(_)) => Err(Error::NotEmpty),
            Some(Err(error)) => Err(error),
        }
    }

    /// A file lost one name; with the last it goes.
    pub(super) fn lose_name(&mut self, mut child: Inode) -> Result<()> {
        let links = child.links().saturating_sub(1);
        child.raw_mut().i_links_count.set(links);
        self.touch(&mut child, &[TimeField::Change]);
        if links == 0 {
            return self.orphan_or_delete(child);
        }
        self.store(&mut child)
    }

    /// An empty directory lost its name.
    pub(super) fn lose_directory(&mut self, mut child: Inode) -> Result<()> {
        child.raw_mut().i_links_count.set(0);
        self.touch(&mut child, &[TimeField::Change]);
        self.orphan_or_delete(child)
    }
}

/// One subdirectory less. A directory whose link count is 1 has stopped counting.
pub(super) fn lower_links(directory: &mut Inode) {
    let links = directory.links();
    if links > 2 {
        directory.raw_mut().i_links_count.set(links - 1);
    }
}
