//! Goes through files and reports the runs of each, and how many pieces they make.

use std::collections::HashSet;

use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::{Pieces, Walk};

use super::runs::{Run, Runs};
use crate::console::{Console, Failure};
use crate::reading::{OpenImage, joined};

/// Receives the runs: of each file `begin`, then its runs, then `file`, which is missing if it can't be read to its end.
pub(super) trait Listener {
    /// A file begins; the runs of the one before count only if it ended.
    fn begin(&mut self) {}
    /// The next run of the file.
    fn run(&mut self, _run: &Run) {}
    /// The file ends.
    fn file(
        &mut self,
        console: &mut Console<'_>,
        path: &[u8],
        kind: FileType,
        count: &Pieces,
    ) -> Result<(), Failure>;
}

/// A way through the files of an image: regular ones, each once however many names it has, and
/// directories if they are wanted.
pub(super) struct Files<'i> {
    image: &'i OpenImage,
    directories: bool,
    /// Files of several names that were reported.
    seen: HashSet<InodeNumber>,
}

impl<'i> Files<'i> {
    pub(super) fn of(image: &'i OpenImage, directories: bool) -> Self {
        Files { image, directories, seen: HashSet::new() }
    }

    /// A file, or a directory with all below it. What can't be read is complained about and left out.
    pub(super) fn below(
        &mut self,
        console: &mut Console<'_>,
        path: &[u8],
        inode: InodeNumber,
        to: &mut dyn Listener,
    ) -> Result<(), Failure> {
        let mut walk = Walk::new(&self.image.volume);
        match walk.enter(path, inode) {
            Err(platfs::Error::NotDirectory) => return self.file(console, path, inode, to),
            entered => self.entered(console, path, entered)?,
        }
        self.directory(console, path, inode, to)?;
        while walk.depth() > 0 {
            let Some(entry) = walk.next_entry() else {
                walk.leave();
                continue;
            };
            let entry = entry.clone();
            let path = joined(walk.path(), &entry.name);
            match self.image.volume.entry_type(&entry) {
                Ok(FileType::Directory) => {
                    let entered = walk.enter(&entry.name, entry.inode);
                    self.entered(console, &path, entered)?;
                    self.directory(console, &path, entry.inode, to)?;
                }
                Ok(FileType::Regular) => self.file(console, &path, entry.inode, to)?,
                Ok(_) => {}
                Err(error) => console.complain(self.image.failure(&path, &error))?,
            }
        }
        Ok(())
    }

    fn entered(
        &self,
        console: &mut Console<'_>,
        path: &[u8],
        entered: platfs::Result<Option<platfs::Error>>,
    ) -> Result<(), Failure> {
        match entered {
            Ok(Some(error)) | Err(error) => console.complain(self.image.failure(path, &error)),
            Ok(None) => Ok(()),
        }
    }

    fn directory(
        &mut self,
        console: &mut Console<'_>,
        path: &[u8],
        inode: InodeNumber,
        to: &mut dyn Listener,
    ) -> Result<(), Failure> {
        if self.directories { self.file(console, path, inode, to) } else { Ok(()) }
    }

    fn file(
        &mut self,
        console: &mut Console<'_>,
        path: &[u8],
        inode: InodeNumber,
        to: &mut dyn Listener,
    ) -> Result<(), Failure> {
        match self.count(inode, to) {
            Ok(Some((kind, count))) => to.file(console, path, kind, &count),
            Ok(None) => Ok(()),
            Err(error) => console.complain(self.image.failure(path, &error)),
        }
    }

    /// The pieces of a file that was not reported before.
    fn count(
        &mut self,
        inode: InodeNumber,
        to: &mut dyn Listener,
    ) -> platfs::Result<Option<(FileType, Pieces)>> {
        let facts = self.image.volume.metadata(inode)?;
        let wanted = match facts.file_type {
            FileType::Regular => facts.links <= 1 || self.seen.insert(inode),
            FileType::Directory => self.directories,
            _ => false,
        };
        if !wanted {
            return Ok(None);
        }
        let mut count = Pieces::default();
        to.begin();
        for run in Runs::of(&self.image.volume, inode)? {
            let run = run?;
            to.run(&run);
            count.add(run.logical, run.start, run.count);
        }
        Ok(Some((facts.file_type, count)))
    }
}
