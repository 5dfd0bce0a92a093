//! New numbers for inodes behind the end, and the names that lead to them.
//!
//! Owns: a pass over the inodes behind the end. Excludes: the change of one (`ops`).

use std::collections::HashMap;

use ondisk::features::Incompat;
use ondisk::inode::{FileType, InodeFlags};
use ondisk::units::InodeNumber;

use super::Closed;
use crate::error::Result;
use crate::ops::{NamePlace, Renumbered, renew_values, renumber};
use crate::volume::VersionedInode;

/// Outcome of a pass over the inodes behind the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pass {
    /// Inodes that have other numbers now, and those whose values went to other inodes.
    pub done: u64,
    /// Inodes of which not all names were found.
    pub nameless: u64,
    /// It was called off.
    pub called_off: bool,
}

impl Closed<'_> {
    /// Gives all inodes behind the end other numbers. Others may use them meanwhile, by the numbers that they know.
    ///
    /// # Errors
    /// No free inode before the end, as others took it; what is too large for the journal; damage; the device's failure.
    /// Those that have other numbers by then keep them.
    pub fn renumber(&self, goes_on: &dyn Fn() -> bool) -> Result<Pass> {
        let (leaving, are_values) = self.behind()?;
        let mut pass = Pass::default();
        if are_values {
            pass.done += self.renew_values(goes_on)?;
        }
        if leaving.is_empty() {
            return Ok(pass);
        }
        let followed = &self.volume.session.followed;
        followed.begin(leaving.iter().copied());
        // A directory that was made before is in the bitmaps then.
        self.volume.sync()?;
        let names = self.names()?;
        for number in leaving {
            if !goes_on() {
                return Ok(Pass { called_off: true, ..pass });
            }
            let places = || {
                let mut places = names.get(&number).cloned().unwrap_or_default();
                places.extend(followed.places(number).into_iter().map(|directory| (directory, None)));
                places
            };
            match renumber(self.volume, number, self.shrinkage.last_inode(), &places)? {
                Renumbered::Done => pass.done += 1,
                Renumbered::NamesMissing => pass.nameless += 1,
                Renumbered::Needless => {}
            }
        }
        Ok(pass)
    }

    /// The inodes in use behind the end but those with values of attributes, and whether there are such.
    fn behind(&self) -> Result<(Vec<InodeNumber>, bool)> {
        let (mut leaving, mut are_values) = (Vec::new(), false);
        for group in self.shrinkage.after.geometry.groups..self.shrinkage.before.groups {
            for number in self.files_of(group)? {
                let is_value =
                    VersionedInode::read(self.volume, number)?.node().flags().contains(InodeFlags::EA_INODE);
                are_values |= is_value;
                leaving.extend((!is_value).then_some(number));
            }
        }
        Ok((leaving, are_values))
    }

    /// Where the names of inodes behind the end are.
    fn names(&self) -> Result<HashMap<InodeNumber, Vec<NamePlace>>> {
        let (volume, last) = (self.volume, self.shrinkage.last_inode());
        let mut names: HashMap<_, Vec<_>> = HashMap::new();
        for group in 0..self.shrinkage.before.groups {
            for number in self.files_of(group)? {
                let mut seen = VersionedInode::read(volume, number)?;
                if seen.node().file_type() != Some(FileType::Directory) {
                    continue;
                }
                let found = seen.seqlock_read(|view, node| match node.file_type() {
                    Some(FileType::Directory) => {
                        view.dir(node).leading_to(None, &|number| number.get() > last)
                    }
                    _ => Ok(Vec::new()),
                })?;
                for (on_disk, at) in found {
                    names.entry(volume.format.logical_number(on_disk)).or_default().push((number, Some(at)));
                }
            }
        }
        Ok(names)
    }

    /// Puts values of attributes that lie in inodes behind the end into others.
    fn renew_values(&self, goes_on: &dyn Fn() -> bool) -> Result<u64> {
        let (volume, last) = (self.volume, self.shrinkage.last_inode());
        let mut done = 0;
        if !volume.format.has_incompat(Incompat::EA_INODE) {
            return Ok(done);
        }
        for group in 0..self.shrinkage.before.groups {
            for number in self.files_of(group)? {
                let mut seen = VersionedInode::read(volume, number)?;
                let is_file = seen.node().file_type().is_some();
                if is_file
                    && seen.seqlock_read(|view, node| view.xattrs(node).has_values_above(last))?
                    && goes_on()
                {
                    done += u64::from(renew_values(volume, number, last)?);
                }
            }
        }
        Ok(done)
    }
}
