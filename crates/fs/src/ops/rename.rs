//! Rename: a file gets another name, in place of what had it before or in exchange.

use std::collections::HashSet;

use ondisk::corrupt::Place;
use ondisk::inode::{FileType, Inode, InodeFlags, TimeField};
use ondisk::units::InodeNumber;

use super::attrs::{Attributes, file_type};
use super::changing::change;
use super::flush::WriteBack;
use super::names::{FirstBlock, Kind, NewInode, check_name};
use super::remove::lower_links;
use super::rules::{self, Operation};
use crate::error::{Error, Result};
use crate::tx::Tx;
use crate::volume::Volume;

/// Handling of a file that has the new name already.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Replace {
    /// It loses the name.
    #[default]
    Yes,
    /// The rename fails.
    No,
    /// It gets the old name.
    Exchange,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
struct Name<'a> {
    directory: InodeNumber,
    name: &'a [u8],
}

/// A change of a name, and the whiteout that the old one comes to mean, if any.
struct Renaming<'a> {
    from: Name<'a>,
    to: Name<'a>,
    whiteout: Option<Attributes>,
}

impl Volume {
    /// Gives a file another name, here or in another directory.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Exists`] where nothing may be replaced; [`Error::NotDirectory`],
    /// [`Error::IsDirectory`], [`Error::NotEmpty`] where one can't take the place of the other;
    /// [`Error::Invalid`] for a directory that would come to lie in itself; [`Error::NotPermitted`],
    /// [`Error::CrossProject`], [`Error::TooManyLinks`], [`Error::NoSpace`]; broken structures. Then
    /// nothing has changed.
    pub fn rename(
        &self,
        directory: InodeNumber,
        name: &[u8],
        new_directory: InodeNumber,
        new_name: &[u8],
        replace: Replace,
    ) -> Result<()> {
        let (from, to) = (Name { directory, name }, Name { directory: new_directory, name: new_name });
        self.rename_leaving(from, to, replace, None)
    }

    /// As [`Volume::rename`], and at the same moment the old name comes to mean a whiteout: a character
    /// device 0:0 with these attributes, by which a file system of layers says that a name is gone.
    ///
    /// # Errors
    /// As [`Volume::rename`]; [`Error::NoInodes`]; [`Error::Invalid`] with [`Replace::Exchange`].
    pub fn rename_with_whiteout(
        &self,
        (directory, name): (InodeNumber, &[u8]),
        (new_directory, new_name): (InodeNumber, &[u8]),
        replace: Replace,
        attributes: Attributes,
    ) -> Result<()> {
        if replace == Replace::Exchange {
            return Err(Error::Invalid("an exchange leaves no room for a whiteout".into()));
        }
        let (from, to) = (Name { directory, name }, Name { directory: new_directory, name: new_name });
        self.rename_leaving(from, to, replace, Some(attributes))
    }

    fn rename_leaving(
        &self,
        from: Name<'_>,
        to: Name<'_>,
        replace: Replace,
        whiteout: Option<Attributes>,
    ) -> Result<()> {
        let (Name { directory, name }, Name { directory: new_directory, name: new_name }) = (from, to);
        check_name(name)?;
        check_name(new_name)?;
        // Programs that write a new file and rename it over the old one count on the new contents. A sync
        // may bring the name at any moment: they come first.
        let may_come_first = self.order.survives_crashes();
        if may_come_first && self.lookup(new_directory, new_name).is_ok() {
            self.lookup(directory, name).and_then(|number| WriteBack::new(self).inode(number))?;
        }
        self.leftovers().settle_directory(directory, name)?;
        self.leftovers().settle_directory(new_directory, new_name)?;
        let replacing = self.rename_name(from, to, replace, whiteout)?;
        if let Some(number) = replacing.filter(|number| self.session.handles.pin(*number)) {
            WriteBack::new(self).written_back(number);
            self.session.handles.unpin(number);
        }
        Ok(())
    }

    /// Gives another name; the inode that took another's place, if one did.
    fn rename_name(
        &self,
        from: Name<'_>,
        to: Name<'_>,
        replace: Replace,
        whiteout: Option<Attributes>,
    ) -> Result<Option<InodeNumber>> {
        change(self, |tx| {
            let parent = tx.directory(from.directory)?;
            let child = tx.child(&parent, from.name)?;
            rules::may_remove_name(&parent, &child)?;
            let target = tx.directory(to.directory)?;
            let found = tx.view().dir(&target).lookup(to.name)?;
            let other = found.map(|(number, _)| tx.inode(number)).transpose()?;
            if other.is_some() && replace == Replace::No {
                return Err(Error::Exists);
            }
            match other {
                // Two names of one file: nothing is to be done, says POSIX.
                Some(other) if other.number() == child.number() => Ok(None),
                Some(other) if replace == Replace::Exchange => {
                    tx.exchange(from, to, child, other).map(|()| None)
                }
                None if replace == Replace::Exchange => Err(Error::NotFound),
                other => {
                    let replacing = other.is_some().then_some(child.number());
                    tx.move_name(Renaming { from, to, whiteout }, child, other).map(|()| replacing)
                }
            }
        })
    }
}

impl<'v> Tx<'v> {
    fn move_name(&mut self, renaming: Renaming<'_>, mut child: Inode, other: Option<Inode>) -> Result<()> {
        let Renaming { from, to, whiteout } = renaming;
        let kind = file_type(&child)?;
        let is_directory = kind == FileType::Directory;
        let mut target = self.directory(to.directory)?;
        self.may_come_to(&target, &child, from, to)?;
        match &other {
            None => {
                rules::may(&target, Operation::AddName)?;
                self.dir(&mut target).add(to.name, child.number(), kind)?;
                if is_directory && from.directory != to.directory {
                    self.raise_links(&mut target)?;
                }
            }
            Some(other) => {
                rules::may_remove_name(&target, other)?;
                self.may_replace(&child, other)?;
                self.dir(&mut target).retarget(to.name, child.number(), kind)?;
                if is_directory && from.directory == to.directory {
                    lower_links(&mut target);
                }
            }
        }
        self.store_parent(&mut target)?;
        if whiteout.is_some() && !self.order().switches_names_across_blocks() {
            self.bring_together(from, to)?;
        }
        let mut parent = self.directory(from.directory)?;
        match whiteout {
            None => drop(self.dir(&mut parent).remove(from.name)?),
            Some(attributes) => self.leave_whiteout(&mut parent, from.name, attributes)?,
        }
        if is_directory && from.directory != to.directory {
            lower_links(&mut parent);
            self.set_parent(&mut child, to.directory)?;
        }
        self.store_parent(&mut parent)?;
        self.touch(&mut child, &[TimeField::Change]);
        self.store(&mut child)?;
        match other {
            None => Ok(()),
            Some(other) if is_directory => self.lose_directory(other),
            Some(other) => self.lose_name(other),
        }
    }

    /// Lets a name that exists lead to a new whiteout.
    fn leave_whiteout(&mut self, parent: &mut Inode, name: &[u8], attributes: Attributes) -> Result<()> {
        rules::may(parent, Operation::AddName)?;
        let new = NewInode { kind: Kind::CharDevice(0, 0), attributes, xattrs: &[] };
        let (number, mut node) = self.new_child(parent, name, &new, FirstBlock::Now)?;
        self.store(&mut node)?;
        self.dir(parent).retarget(name, number, FileType::CharDevice).map(drop)
    }

    fn exchange(&mut self, from: Name<'_>, to: Name<'_>, child: Inode, other: Inode) -> Result<()> {
        let target = self.directory(to.directory)?;
        rules::may_remove_name(&target, &other)?;
        self.may_come_to(&target, &child, from, to)?;
        let parent = self.directory(from.directory)?;
        self.may_come_to(&parent, &other, to, from)?;
        if !self.order().switches_names_across_blocks() {
            self.bring_together(from, to)?;
        }
        for (place, comes, goes) in [(to, &child, &other), (from, &other, &child)] {
            let kind = file_type(comes)?;
            let mut directory = self.directory(place.directory)?;
            self.dir(&mut directory).retarget(place.name, comes.number(), kind)?;
            if from.directory != to.directory {
                match (kind == FileType::Directory, file_type(goes)? == FileType::Directory) {
                    (true, false) => self.raise_links(&mut directory)?,
                    (false, true) => lower_links(&mut directory),
                    _ => {}
                }
            }
            self.store_parent(&mut directory)?;
        }
        for (mut moved, place) in [(child, to), (other, from)] {
            if file_type(&moved)? == FileType::Directory && from.directory != to.directory {
                self.set_parent(&mut moved, place.directory)?;
            }
            self.touch(&mut moved, &[TimeField::Change]);
            self.store(&mut moved)?;
        }
        Ok(())
    }

    /// Where order counts: sees to it that two names switch at once. Two blocks can't, and one after the other would
    /// leave a file without a name in between; but both switch with the record of a directory that they move in.
    fn bring_together(&mut self, one: Name<'_>, other: Name<'_>) -> Result<()> {
        if one.directory != other.directory {
            let problem = "soft updates can't exchange names of two directories, or leave a whiteout in another one: no single write switches both, \
                           and a crash between two would leave a file without a name";
            return Err(Error::Unsupported(problem.into()));
        }
        let mut directory = self.directory(one.directory)?;
        let block = |name| self.view().dir(&directory).block_of(name);
        if block(one.name)? == block(other.name)? {
            return Ok(());
        }
        self.dir(&mut directory).own_block_of(one.name)?;
        self.dir(&mut directory).own_block_of(other.name)?;
        self.store(&mut directory)
    }

    fn set_parent(&mut self, child: &mut Inode, parent: InodeNumber) -> Result<()> {
        self.dir(child).retarget(b"..", parent, FileType::Directory).map(|_| ())
    }

    /// Refuses a move from one directory to another that is not allowed: a directory into itself, and anything
    /// into a tree of another project.
    fn may_come_to(&self, target: &Inode, child: &Inode, from: Name<'_>, to: Name<'_>) -> Result<()> {
        if from.directory == to.directory {
            return Ok(());
        }
        if target.flags().contains(InodeFlags::PROJINHERIT) && target.project() != child.project() {
            return Err(Error::CrossProject);
        }
        if file_type(child)? == FileType::Directory && self.is_below(to.directory, child.number())? {
            return Err(Error::Invalid("a directory can't be moved into itself".into()));
        }
        Ok(())
    }

    fn may_replace(&self, child: &Inode, other: &Inode) -> Result<()> {
        let is_directory = |inode| Ok::<_, Error>(file_type(inode)? == FileType::Directory);
        match (is_directory(child)?, is_directory(other)?) {
            (true, false) => Err(Error::NotDirectory),
            (false, true) => Err(Error::IsDirectory),
            (true, true) => self.must_be_empty(other),
            (false, false) => Ok(()),
        }
    }

    /// True if a directory is another one or lies below it, by the `..` up to the root.
    fn is_below(&self, directory: InodeNumber, top: InodeNumber) -> Result<bool> {
        let mut seen = HashSet::new();
        let mut here = directory;
        while here != InodeNumber::ROOT {
            if here == top {
                return Ok(true);
            }
            if !seen.insert(here) {
                return Err(Error::corrupt(Place::Directory(here), "is its own ancestor"));
            }
            let inode = self.directory(here)?;
            let parent = self.view().dir(&inode).lookup(b"..")?;
            here = parent.ok_or_else(|| Error::corrupt(Place::Directory(here), "has no `..`"))?.0;
        }
        Ok(here == top)
    }
}
