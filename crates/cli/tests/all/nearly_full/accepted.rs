//! Bytes that calls have accepted, and the check that they are there.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The bytes that belong at a place of a file.
pub fn pattern(name: &str, at: u64, len: usize) -> Vec<u8> {
    let seed = name.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let byte = |at: u64| (seed ^ (at >> 9)).to_le_bytes()[usize::from(at.is_multiple_of(3))] | 1;
    (at..at + len as u64).map(byte).collect()
}

/// Ranges of files whose bytes were accepted.
#[derive(Default)]
pub struct Accepted {
    files: BTreeMap<String, Vec<(u64, u64)>>,
    ends: BTreeMap<String, u64>,
}

impl Accepted {
    /// Notes that bytes were accepted by another call.
    pub fn note(&mut self, name: &str, at: u64, len: u64) {
        self.files.entry(name.into()).or_default().push((at, len));
    }

    fn took(&mut self, name: &str, at: u64, done: io::Result<usize>) -> io::Result<u64> {
        let count = done? as u64;
        self.note(name, at, count);
        Ok(count)
    }

    pub fn write_at(&mut self, file: &File, name: &str, at: u64, len: usize) -> io::Result<u64> {
        let done = file.write_at(&pattern(name, at, len), at);
        self.took(name, at, done)
    }

    fn end(&self, name: &str) -> u64 {
        self.ends.get(name).copied().unwrap_or(0)
    }

    /// Goes on where the last call of it ended, by pieces.
    pub fn write_vectored(&mut self, mut file: &File, name: &str, len: usize) -> io::Result<u64> {
        let at = self.end(name);
        let bytes = pattern(name, at, len);
        let pieces: Vec<_> = bytes.chunks(len / 5 + 1).map(IoSlice::new).collect();
        let done = self.took(name, at, file.write_vectored(&pieces))?;
        self.ends.insert(name.into(), at + done);
        Ok(done)
    }

    /// Goes on at the end of a file that is open for appending.
    pub fn append(&mut self, mut file: &File, name: &str, len: usize) -> io::Result<u64> {
        let at = self.end(name);
        let done = self.took(name, at, file.write(&pattern(name, at, len)))?;
        self.ends.insert(name.into(), at + done);
        Ok(done)
    }

    /// Copies a file that holds what belongs into `copied`, by `sendfile`.
    pub fn send(&mut self, from: &Path, root: &Path, name: &str) -> io::Result<()> {
        let (source, target) = (File::open(from)?, File::create(root.join(name))?);
        let len = source.metadata()?.len();
        let mut done = 0;
        while done < len {
            let count = rustix::fs::sendfile(&target, &source, None, usize::try_from(len - done).unwrap())?;
            if count == 0 {
                break;
            }
            self.note(&format!("{name}=copied"), done, count as u64);
            done += count as u64;
        }
        Ok(())
    }

    pub fn remove(&mut self, root: &Path, name: &str) {
        fs::remove_file(root.join(name)).unwrap();
        self.files.remove(name);
    }

    /// The contents of a file are gone.
    pub fn forget(&mut self, name: &str) {
        self.files.remove(name);
    }

    pub fn join(&mut self, other: Accepted) {
        self.files.extend(other.files);
    }

    /// Bytes that were accepted and are not there.
    pub fn lost(&self, root: &Path) -> Vec<String> {
        let mut lost = Vec::new();
        for (name, ranges) in &self.files {
            let (name, like) = name.split_once('=').unwrap_or((name, name));
            let file = File::open(root.join(name)).unwrap();
            for (at, len) in ranges {
                let wanted = pattern(like, *at, usize::try_from(*len).unwrap());
                let mut found = vec![0; wanted.len()];
                let is_there = file.read_exact_at(&mut found, *at).is_ok() && found == wanted;
                if !is_there {
                    lost.push(format!("{name}: of {len} bytes at {at}"));
                }
            }
        }
        lost
    }

    pub fn assert_there(&self, root: &Path) {
        let lost = self.lost(root);
        assert!(lost.is_empty(), "accepted and lost: {} ranges, such as {:?}", lost.len(), lost.first());
    }
}
