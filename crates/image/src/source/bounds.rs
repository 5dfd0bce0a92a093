//! Bounds of what a source becomes: bytes unpacked, memory for its tree, blocks for data that lie scattered.
//!
//! Owns the limits and what they are measured by: the bytes that whoever made the source had to bring. They are counted
//! once, however often an image names a layer, and not again where an archive lies in another. Excludes the lengths of
//! single fields (`archive::limits`).

use super::catalogue::CatalogueBuilder;
use super::error::SourceError;
use super::input::Section;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// Bytes that every source may become, however small it is.
const ALWAYS: u64 = 1 << 30;
/// Bytes that one byte of the source may become beyond that. Text and programs become 3 to 20 times as large, logs seldom
/// 100 times; only zeros reach what gzip can (1032).
const UNPACKED: u64 = 250;
/// Bytes of memory for names and attributes that one byte of the source may take beyond that. A file takes some 150 bytes,
/// and 20 or more in an archive that is packed well.
const TREE: u64 = 16;
/// Stretches of data in a file of the host that are counted: more are in none that was not made for that.
const STRETCHES_MOST: usize = 1 << 16;
/// Size of an allocation unit on disk, which the least run of data takes.
const BLOCK: u64 = 4096;

/// Amounts that a source has become so far, and its bounds.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    /// The limit, if it was said.
    most: Option<u64>,
    /// Bytes of the source itself.
    source: u64,
    /// Files of the host that are counted, as device and inode.
    files: HashSet<(u64, u64)>,
    unpacked: u64,
}

impl Bounds {
    pub(super) fn new(most: Option<u64>) -> Self {
        Self { most, ..Self::default() }
    }

    /// Counts the file of the host in which a section lies. Its holes are nothing that anybody brought.
    pub(super) fn take_file(&mut self, section: &Section) {
        let Some(file) = section.host_file() else { return };
        let Ok(facts) = file.metadata() else { return };
        if self.files.insert((facts.dev(), facts.ino())) {
            self.take(data_in(file, facts.len()));
        }
    }

    /// Counts bytes of a stream.
    pub(super) fn take(&mut self, bytes: u64) {
        self.source = self.source.saturating_add(bytes);
    }

    /// Counts bytes that were unpacked.
    ///
    /// # Errors
    /// They are more than they may be.
    pub(super) fn unpack(&mut self, bytes: usize, name: &str) -> Result<(), SourceError> {
        self.unpacked = self.unpacked.saturating_add(bytes as u64);
        self.sized(self.unpacked, name)
    }

    /// Looks at a tree that grows.
    ///
    /// # Errors
    /// It takes more memory, or its data more blocks, than they may.
    pub(super) fn tree(&self, tree: &CatalogueBuilder, name: &str) -> Result<(), SourceError> {
        self.sized(tree.pieces().saturating_mul(BLOCK), name)?;
        let memory = tree.memory();
        if memory <= self.most.unwrap_or(ALWAYS).max(self.source.saturating_mul(TREE)) {
            return Ok(());
        }
        let given = self.most.is_some();
        Err(SourceError::TooMany { archive: name.to_owned(), bytes: self.source, memory, given })
    }

    fn sized(&self, size: u64, name: &str) -> Result<(), SourceError> {
        if size <= self.most.unwrap_or_else(|| self.source.saturating_mul(UNPACKED).max(ALWAYS)) {
            return Ok(());
        }
        let (packed, given) = (self.source, self.most.is_some());
        Err(SourceError::TooLarge { archive: name.to_owned(), packed, unpacked: size, given })
    }
}

/// Bytes of a file that lie in no hole. Its blocks say less: some file systems count them only when they place them, and some
/// pack them.
fn data_in(file: &File, len: u64) -> u64 {
    let (mut data, mut at) = (0, 0);
    for _ in 0..STRETCHES_MOST {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start.min(len),
            Err(Errno::NXIO) => break,
            // It knows no holes.
            Err(_) => return len,
        };
        at = rustix::fs::seek(file, SeekFrom::Hole(start)).map_or(len, |end| end.clamp(start, len));
        data += at - start;
        if at == len {
            break;
        }
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn only_what_somebody_brought_counts_and_once() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("archive");
        let file = File::create_new(&path).unwrap();
        file.write_all_at(&[1; 8192], 0).unwrap();
        file.set_len(1 << 40).unwrap();
        file.sync_all().unwrap();
        let mut bounds = Bounds::new(None);
        let section = || Section::whole(File::open(&path).unwrap()).unwrap();
        bounds.take_file(&section());
        let once = bounds.source;
        assert!((8192..1 << 20).contains(&once), "{once}");
        // A layer in it, the file under another handle, and what was unpacked from it.
        bounds.take_file(&section().part(512, 512).unwrap());
        bounds.take_file(&section());
        bounds.take_file(&Section::spooled(file, 8192));
        assert_eq!(bounds.source, once);
    }

    #[test]
    fn what_is_packed_as_programs_are_may_become_any_size() {
        let mut bounds = Bounds::new(None);
        bounds.take(2 << 30);
        bounds.unpack(40 << 30, "x").unwrap();
        assert!(bounds.unpack(500 << 30, "x").is_err());
    }
}
