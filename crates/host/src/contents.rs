//! Contents of a file of the host: where its data lie, and a copy that has its holes.

use rustix::fs::SeekFrom as Position;
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;

/// Runs of data in the first bytes of a file; all else are holes.
#[derive(Debug)]
pub struct Runs<F> {
    file: F,
    at: u64,
    size: u64,
}

/// Runs of data, as start and length, in the first `size` bytes of a file. It moves the file's position.
pub fn runs<F: AsFd>(file: F, size: u64) -> Runs<F> {
    Runs { file, at: 0, size }
}

impl<F: AsFd> Runs<F> {
    fn find(&mut self) -> Result<Option<(u64, u64)>, Errno> {
        let start = match rustix::fs::seek(&self.file, Position::Data(self.at)) {
            Ok(start) => start.max(self.at),
            // No data from here to the end.
            Err(Errno::NXIO) => return Ok(None),
            // A file system that knows no holes.
            Err(Errno::INVAL) if self.at == 0 => return Ok(Some((0, self.size))),
            Err(error) => return Err(error),
        };
        if start >= self.size {
            return Ok(None);
        }
        let end = rustix::fs::seek(&self.file, Position::Hole(start))?.min(self.size);
        Ok((end > start).then(|| (start, end - start)))
    }
}

impl<F: AsFd> Iterator for Runs<F> {
    type Item = Result<(u64, u64), Errno>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.size {
            return None;
        }
        let found = self.find().transpose();
        self.at = match &found {
            Some(Ok((start, len))) => start + len,
            Some(Err(_)) | None => self.size,
        };
        found
    }
}

/// Copies the first `size` bytes of a file into an empty one. What is a hole stays one; where the file is shorter by now,
/// the rest is a hole.
///
/// # Errors
/// The system's.
pub fn copy(mut from: &File, mut to: &File, size: u64) -> io::Result<()> {
    to.set_len(size)?;
    // A handle of its own would share the position; each run is sought before it is copied.
    for run in runs(from, size) {
        let (start, len) = run?;
        from.seek(SeekFrom::Start(start))?;
        to.seek(SeekFrom::Start(start))?;
        io::copy(&mut from.take(len), &mut to)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    #[test]
    fn copies_have_the_data_and_the_holes() {
        let top = tempfile::tempdir().unwrap();
        let make = |name: &str| File::create_new(top.path().join(name)).unwrap();
        let read = |name: &str| std::fs::read(top.path().join(name)).unwrap();
        drop((make("a"), make("b")));
        let open = |name| File::options().read(true).write(true).open(top.path().join(name)).unwrap();
        let (from, to) = (open("a"), open("b"));
        from.set_len(8 << 20).unwrap();
        from.write_all_at(b"begin", 0).unwrap();
        from.write_all_at(b"middle", (3 << 20) + 7).unwrap();
        copy(&from, &to, 8 << 20).unwrap();
        assert!(read("a") == read("b"));
        assert!(to.metadata().unwrap().blocks() <= from.metadata().unwrap().blocks() + 16);
        let empty = make("c");
        copy(&from, &empty, 0).unwrap();
        assert_eq!(read("c").len(), 0);
        // One that became shorter.
        let longer = make("d");
        copy(&from, &longer, 9 << 20).unwrap();
        assert_eq!(longer.metadata().unwrap().len(), 9 << 20);
    }
}
