//! Loading: all inodes of a directory are made first, and then one call
//! writes the directory whole. Also where the next data of a loader would come to lie, so that it can choose what
//! fits there.
//!
//! Only volumes opened for loading have these verbs: between them the volume is not as others may find it.

use ondisk::inode::FileType;
use ondisk::units::{ClusterRun, InodeNumber};

use super::attrs::file_type;
use super::changing::change;
use super::names::{FirstBlock, NewInode, check_name};
use crate::dir::DirName;
use crate::error::{Error, Result};
use crate::volume::Volume;

/// The verbs of a loader.
#[derive(Clone, Copy)]
pub struct Loader<'v> {
    volume: &'v Volume,
}

impl Volume {
    /// The verbs of a loader, on a volume that was opened for loading.
    ///
    /// # Errors
    /// A volume that was not.
    pub fn loader(&self) -> Result<Loader<'_>> {
        if self.session.is_loading() {
            return Ok(Loader { volume: self });
        }
        Err(Error::Unsupported("inodes without a name, on a volume that was not opened for loading".into()))
    }
}

impl Loader<'_> {
    /// Creates an inode of a directory, counted as if it had its name. The name, and of a new directory all blocks, come
    /// with [`Loader::write_names`].
    ///
    /// # Errors
    /// As [`Volume::create`], but for what concerns the directory's blocks.
    pub fn create(&self, directory: InodeNumber, name: &[u8], new: &NewInode<'_>) -> Result<InodeNumber> {
        check_name(name)?;
        change(self.volume, |tx| {
            let mut parent = tx.directory(directory)?;
            let (number, mut child) = tx.new_child(&mut parent, name, new, FirstBlock::Later)?;
            tx.store(&mut child)?;
            if new.kind.file_type() == FileType::Directory {
                tx.store(&mut parent)?;
            }
            Ok(number)
        })
    }

    /// Counts one more name of an inode that is no directory; the name comes with [`Loader::write_names`].
    ///
    /// # Errors
    /// As [`Volume::link`], but for what concerns the directory.
    pub fn link(&self, number: InodeNumber) -> Result<()> {
        change(self.volume, |tx| {
            let mut child = tx.inode(number)?;
            if file_type(&child)? == FileType::Directory {
                return Err(Error::IsDirectory);
            }
            if child.links() >= tx.links_max() {
                return Err(Error::TooManyLinks);
            }
            let links = child.links() + 1;
            child.raw_mut().i_links_count.set(links);
            tx.store(&mut child)
        })
    }

    /// Gives a new or empty directory all its names, which must differ: its blocks lie in one run, if there is one.
    ///
    /// # Errors
    /// [`Error::DirectoryFull`], [`Error::NoSpace`], [`Error::NotDirectory`]. Then nothing has changed.
    pub fn write_names(
        &self,
        directory: InodeNumber,
        parent: InodeNumber,
        names: &[DirName<'_>],
    ) -> Result<()> {
        change(self.volume, |tx| {
            let mut node = tx.directory(directory)?;
            tx.dir(&mut node).write_whole(parent, names)?;
            tx.store(&mut node)
        })
    }

    /// The free run in which a loader's next blocks would lie, from the first of them on; at most `most` clusters
    /// of it. `None`: nothing is free from there on.
    ///
    /// # Errors
    /// A bitmap that can't be read; a volume that was not opened for loading.
    pub fn room_ahead(&self, most: u32) -> Result<Option<ClusterRun>> {
        self.volume.space.room_ahead(1, most)
    }

    /// Has a loader's next blocks lie at a cluster, or behind it.
    pub fn go_on_at(&self, cluster: ondisk::units::Cluster) {
        self.volume.space.go_on_at(cluster);
    }
}
