//! Rename: a file gets another name, in place of what had it before or in exchange.

use std::collections::HashSet;

use ondisk::corrupt::Place;
use ondisk::inode::{FileType, Inode, InodeFlags, TimeField};
use ondisk::units::InodeNumber;

use super::attrs::{Attributes, file_type};
use super::names::{Begun, Kind, NewInode, check_name};
use super::remove::lower_links;
use super::rules::{self, Deed};
use crate::dir;
use crate::error::{Error, Result};
use crate::inode;
use crate::tx::Tx;
use crate::volume::Volume;

/// What becomes of a file that has the new name already.
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
        // Programs that write a file anew and rename it over the old one count on the new contents. A sync
        // may bring the name at any moment: they come first.
        let may_come_first = self.order.survives_crashes();
        if may_come_first && self.lookup(new_directory, new_name).is_ok() {
            self.lookup(directory, name).and_then(|number| self.flush_inode(number))?;
        }
        self.settle_directory(directory, name)?;
        self.settle_directory(new_directory, new_name)?;
        let replacing = self.rename_name(from, to, replace, whiteout)?;
        if let Some(number) = replacing.filter(|number| self.session.handles.pin(*number)) {
            self.written_back(number);
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
        self.change(|update| {
            let parent = self.load_directory_in(update, from.directory)?;
            let child = self.child_in(update, &parent, from.name)?;
            rules::may_remove_name(&parent, &child)?;
            let target = self.load_directory_in(update, to.directory)?;
            let found = dir::lookup(&*update, &self.format, &target, to.name)?;
            let other = found.map(|(number, _)| self.load_in(update, number)).transpose()?;
            if other.is_some() && replace == Replace::No {
                return Err(Error::Exists);
            }
            match other {
                // Two names of one file: nothing is to be done, says POSIX.
                Some(other) if other.number() == child.number() => Ok(None),
                Some(other) if replace == Replace::Exchange => {
                    self.exchange(update, from, to, child, other).map(|()| None)
                }
                None if replace == Replace::Exchange => Err(Error::NotFound),
                other => {
                    let replacing = other.is_some().then_some(child.number());
                    self.move_name(update, (from, to), child, other, whiteout).map(|()| replacing)
                }
            }
        })
    }

    fn move_name<'v>(
        &'v self,
        update: &mut Tx<'v>,
        (from, to): (Name<'_>, Name<'_>),
        mut child: Inode,
        other: Option<Inode>,
        whiteout: Option<Attributes>,
    ) -> Result<()> {
        let kind = file_type(&child)?;
        let is_directory = kind == FileType::Directory;
        let mut target = self.load_directory_in(update, to.directory)?;
        self.may_come_to(update, &target, &child, from, to)?;
        match &other {
            None => {
                rules::may(&target, Deed::AddName)?;
                dir::insert(self, update, &mut target, to.name, child.number(), kind)?;
                if is_directory && from.directory != to.directory {
                    self.raise_links(&mut target)?;
                }
            }
            Some(other) => {
                rules::may_remove_name(&target, other)?;
                self.may_replace(update, &child, other)?;
                dir::retarget(self, update, &mut target, to.name, child.number(), kind)?;
                if is_directory && from.directory == to.directory {
                    lower_links(&mut target);
                }
            }
        }
        self.store_parent(update, &mut target)?;
        if whiteout.is_some() && !self.order.switches_names_across_blocks() {
            self.bring_together(update, from, to)?;
        }
        let mut parent = self.load_directory_in(update, from.directory)?;
        match whiteout {
            None => drop(dir::remove(self, update, &mut parent, from.name)?),
            Some(attributes) => self.leave_whiteout(update, &mut parent, from.name, attributes)?,
        }
        if is_directory && from.directory != to.directory {
            lower_links(&mut parent);
            self.set_parent(update, &mut child, to.directory)?;
        }
        self.store_parent(update, &mut parent)?;
        update.touch(&mut child, &[TimeField::Change]);
        inode::store(update, &self.format, &self.space, &mut child)?;
        match other {
            None => Ok(()),
            Some(other) if is_directory => self.lose_directory(update, other),
            Some(other) => self.lose_name(update, other),
        }
    }

    /// Lets a name that exists lead to a new whiteout.
    fn leave_whiteout(
        &self,
        update: &mut Tx<'_>,
        parent: &mut Inode,
        name: &[u8],
        attributes: Attributes,
    ) -> Result<()> {
        rules::may(parent, Deed::AddName)?;
        let new = NewInode { kind: Kind::CharDevice(0, 0), attributes, xattrs: &[] };
        let (number, mut node) = self.new_child(update, parent, name, &new, Begun::Now)?;
        inode::store(update, &self.format, &self.space, &mut node)?;
        dir::retarget(self, update, parent, name, number, FileType::CharDevice).map(drop)
    }

    fn exchange<'v>(
        &'v self,
        update: &mut Tx<'v>,
        from: Name<'_>,
        to: Name<'_>,
        child: Inode,
        other: Inode,
    ) -> Result<()> {
        let target = self.load_directory_in(update, to.directory)?;
        rules::may_remove_name(&target, &other)?;
        self.may_come_to(update, &target, &child, from, to)?;
        let parent = self.load_directory_in(update, from.directory)?;
        self.may_come_to(update, &parent, &other, to, from)?;
        if !self.order.switches_names_across_blocks() {
            self.bring_together(update, from, to)?;
        }
        for (place, comes, goes) in [(to, &child, &other), (from, &other, &child)] {
            let kind = file_type(comes)?;
            let mut directory = self.load_directory_in(update, place.directory)?;
            dir::retarget(self, update, &mut directory, place.name, comes.number(), kind)?;
            if from.directory != to.directory {
                match (kind == FileType::Directory, file_type(goes)? == FileType::Directory) {
                    (true, false) => self.raise_links(&mut directory)?,
                    (false, true) => lower_links(&mut directory),
                    _ => {}
                }
            }
            self.store_parent(update, &mut directory)?;
        }
        for (mut moved, place) in [(child, to), (other, from)] {
            if file_type(&moved)? == FileType::Directory && from.directory != to.directory {
                self.set_parent(update, &mut moved, place.directory)?;
            }
            update.touch(&mut moved, &[TimeField::Change]);
            inode::store(update, &self.format, &self.space, &mut moved)?;
        }
        Ok(())
    }

    /// Where order counts: sees to it that two names switch at once. Two blocks can't, and one after the other would
    /// leave a file without a name in between; but both switch with the record of a directory that they move in.
    fn bring_together(&self, update: &mut Tx<'_>, one: Name<'_>, other: Name<'_>) -> Result<()> {
        if one.directory != other.directory {
            let problem = "soft updates can't exchange names of two directories, or leave a whiteout in another one: no single write switches both, \
                           and a crash between two would leave a file without a name";
            return Err(Error::Unsupported(problem.into()));
        }
        let mut directory = self.load_directory_in(update, one.directory)?;
        let block = |name| dir::block_of(&*update, &self.format, &directory, name);
        if block(one.name)? == block(other.name)? {
            return Ok(());
        }
        dir::own(self, update, &mut directory, one.name)?;
        dir::own(self, update, &mut directory, other.name)?;
        inode::store(update, &self.format, &self.space, &mut directory)
    }

    fn set_parent(&self, update: &mut Tx<'_>, child: &mut Inode, parent: InodeNumber) -> Result<()> {
        dir::retarget(self, update, child, b"..", parent, FileType::Directory).map(|_| ())
    }

    /// Whether a file may move from one directory to another: a directory not into itself, and nothing
    /// into a tree of another project.
    fn may_come_to(
        &self,
        update: &Tx<'_>,
        target: &Inode,
        child: &Inode,
        from: Name<'_>,
        to: Name<'_>,
    ) -> Result<()> {
        if from.directory == to.directory {
            return Ok(());
        }
        if target.flags().contains(InodeFlags::PROJINHERIT) && target.project() != child.project() {
            return Err(Error::CrossProject);
        }
        if file_type(child)? == FileType::Directory && self.is_below(update, to.directory, child.number())? {
            return Err(Error::Invalid("a directory can't be moved into itself".into()));
        }
        Ok(())
    }

    fn may_replace(&self, update: &Tx<'_>, child: &Inode, other: &Inode) -> Result<()> {
        let is_directory = |inode| Ok::<_, Error>(file_type(inode)? == FileType::Directory);
        match (is_directory(child)?, is_directory(other)?) {
            (true, false) => Err(Error::NotDirectory),
            (false, true) => Err(Error::IsDirectory),
            (true, true) => self.must_be_empty(update, other),
            (false, false) => Ok(()),
        }
    }

    /// Whether a directory is another one or lies below it, by the `..` up to the root.
    fn is_below(&self, update: &Tx<'_>, directory: InodeNumber, top: InodeNumber) -> Result<bool> {
        let mut seen = HashSet::new();
        let mut here = directory;
        while here != InodeNumber::ROOT {
            if here == top {
                return Ok(true);
            }
            if !seen.insert(here) {
                return Err(Error::corrupt(Place::Directory(here), "is its own ancestor"));
            }
            let inode = self.load_directory_in(update, here)?;
            let parent = dir::lookup(update, &self.format, &inode, b"..")?;
            here = parent.ok_or_else(|| Error::corrupt(Place::Directory(here), "has no `..`"))?.0;
        }
        Ok(here == top)
    }
}
