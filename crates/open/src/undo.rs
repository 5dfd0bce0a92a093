//! The undo file: all that a repair will overwrite, complete and stable before the image is touched.
//!
//! ```text
//!  header   "platundo", version (4), bytes of a piece (4), size of the image (8)
//!  records  offset (8), length (8), digests of the two halves as repaired (2 x 8), old bytes (1,024)
//!  end      SHA-256 of all before
//! ```
//!
//! Numbers are little-endian. A repair that was cut off leaves some sectors old and some new: each half
//! of a piece must be one or the other, or the image was changed since and is not touched. The
//! superblock is always among the pieces, so that a mount in between is noticed.
//!
//! Owns: the format, writing it, and bringing an image back by it. Excludes the repair itself (`platfs::check`), and the
//! name of the way back beside an image ([`crate::door::way_back`]).

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use platfs::check::{PIECE_LEN, Staged};
use platfs::device::Device;
use platfs::ondisk::superblock::SUPERBLOCK_OFFSET;
use platfs_host::{Output, OutputLocation, Privacy};
use sha2::{Digest, Sha256};

const MAGIC: &[u8; 8] = b"platundo";
const VERSION: u32 = 1;
const HEADER_LEN: usize = 24;
const RECORD_LEN: usize = 32 + PIECE_LEN;
const END_LEN: usize = 32;
/// Bytes that storage writes whole: half a piece.
const SECTOR: usize = PIECE_LEN / 2;

/// Where a way back is kept if no place is given: in the working directory, by the image's name.
#[must_use]
pub fn usual_path(image: &str) -> PathBuf {
    let name = Path::new(image).file_name().map_or_else(|| "volume".into(), |name| name.to_string_lossy());
    PathBuf::from(format!("{name}.undo"))
}

/// Writes the undo file of a repair that is about to be applied. It appears whole, under a name that did
/// not exist.
///
/// # Errors
/// Files that can't be written or read.
pub fn save(path: &Path, repaired: &Staged) -> io::Result<()> {
    let place = OutputLocation::of(path)?;
    let output = Output::below(place.directory.try_clone()?, &place.name, 0, Privacy::Private)?;
    let file = output.file()?;
    let mut out = Hashed::new(BufWriter::with_capacity(1 << 20, &file));
    out.write_all(&header(repaired.size()))?;
    let mut superblock_saved = false;
    repaired.each_change(|change| {
        superblock_saved |= change.offset == SUPERBLOCK_OFFSET;
        out.write_all(&record(change.offset, change.old, change.new))
    })?;
    if !superblock_saved {
        let rest = repaired.size().saturating_sub(SUPERBLOCK_OFFSET);
        let mut bytes = vec![0; usize::try_from(rest).unwrap_or(PIECE_LEN).min(PIECE_LEN)];
        repaired.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
        out.write_all(&record(SUPERBLOCK_OFFSET, &bytes, &bytes))?;
    }
    let (mut inner, digest) = out.end();
    inner.write_all(&digest)?;
    inner.flush()?;
    drop(inner);
    file.sync_all()?;
    output.finish()?;
    place.directory.sync()
}

/// Brings an image back to what it was before the repair that made the undo file; the number of
/// bytes written. Nothing is written unless all of the file is right and fits the image.
///
/// # Errors
/// Reason against it, to be put behind the names of both.
pub fn restore(path: &Path, device: &dyn Device) -> Result<u64, String> {
    match platfs_host::open_named(path, false) {
        Ok((_, Some(file))) => bring_back(&file, device),
        Ok((facts, None)) => Err(format!("is {}, not a regular file", facts.kind.noun())),
        Err(error) => Err(error.to_string()),
    }
}

/// As [`restore`], from a file that plat itself kept beside an image: nobody else's where all may put files.
///
/// # Errors
/// As [`restore`].
pub fn restore_own(place: &OutputLocation, device: &dyn Device) -> Result<u64, String> {
    let (file, _) = place.open_own().map_err(|error| error.to_string())?;
    bring_back(&file, device)
}

fn bring_back(file: &File, device: &dyn Device) -> Result<u64, String> {
    let failed = |error: io::Error| error.to_string();
    whole(file, device.size())?;
    let mut superblock: Option<[bool; 2]> = None;
    for_each(file, |record| {
        let fits = record.fits(device)?;
        if record.offset == SUPERBLOCK_OFFSET {
            let before = superblock.unwrap_or_default();
            superblock = Some([before[0] || fits[0], before[1] || fits[1]]);
        } else if fits != [true; 2] {
            return Err(changed(record.offset));
        }
        Ok(())
    })?;
    if superblock != Some([true; 2]) {
        return Err(changed(SUPERBLOCK_OFFSET));
    }
    let mut written = 0;
    for_each(file, |record| {
        written += record.old.len() as u64;
        device.write_at(record.offset, &record.old).map_err(failed)
    })?;
    device.flush().map_err(failed)?;
    Ok(written)
}

fn changed(offset: u64) -> String {
    format!("the image was changed since, or is another one (at byte {offset}); nothing was written")
}

fn header(size: u64) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&u32::try_from(PIECE_LEN).unwrap_or(u32::MAX).to_le_bytes());
    bytes[16..].copy_from_slice(&size.to_le_bytes());
    bytes
}

fn record(offset: u64, old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(RECORD_LEN);
    bytes.extend(offset.to_le_bytes());
    bytes.extend((old.len() as u64).to_le_bytes());
    for half in halves(new) {
        bytes.extend(digest(half));
    }
    bytes.extend(old);
    bytes.resize(RECORD_LEN, 0);
    bytes
}

fn halves(piece: &[u8]) -> [&[u8]; 2] {
    let (first, second) = piece.split_at(piece.len().min(SECTOR));
    [first, second]
}

/// Enough of a SHA-256 to recognise a sector that was changed by accident or by another program.
fn digest(bytes: &[u8]) -> [u8; 8] {
    let mut out = [0; 8];
    out.copy_from_slice(&Sha256::digest(bytes)[..8]);
    out
}

/// A piece, as it was.
struct Record {
    offset: u64,
    new: [[u8; 8]; 2],
    old: Vec<u8>,
}

impl Record {
    fn parse(bytes: &[u8; RECORD_LEN], size: u64) -> Option<Self> {
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (offset, len) = (number(0)?, usize::try_from(number(8)?).ok()?);
        if len > PIECE_LEN || offset.checked_add(len as u64)? > size {
            return None;
        }
        let new = [number(16)?.to_le_bytes(), number(24)?.to_le_bytes()];
        Some(Record { offset, new, old: bytes.get(32..32 + len)?.to_vec() })
    }

    /// Returns true for each half that is as it was, or as the repair made it.
    fn fits(&self, device: &dyn Device) -> Result<[bool; 2], String> {
        let mut now = vec![0; self.old.len()];
        device.read_at(self.offset, &mut now).map_err(|error| error.to_string())?;
        let (now, old) = (halves(&now), halves(&self.old));
        Ok([0, 1].map(|half| now[half] == old[half] || digest(now[half]) == self.new[half]))
    }
}

/// A file from its beginning, and its length.
fn begin(mut file: &File) -> Result<(BufReader<&File>, u64), String> {
    let failed = |error: io::Error| error.to_string();
    file.rewind().map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len();
    Ok((BufReader::with_capacity(1 << 20, file), len))
}

/// Checks that a file is an undo file of an image of this size, without a bit missing or changed.
fn whole(file: &File, size: u64) -> Result<(), String> {
    let (mut file, len) = begin(file)?;
    let damaged = || "the undo file is cut short or damaged".to_owned();
    let mut head = [0; HEADER_LEN];
    file.read_exact(&mut head)
        .ok()
        .filter(|()| head.starts_with(MAGIC))
        .ok_or("is no undo file of plat check")?;
    if head[8..16] != header(size)[8..16] {
        return Err("the undo file is of another version of plat".into());
    }
    let records = len.checked_sub((HEADER_LEN + END_LEN) as u64).ok_or_else(damaged)?;
    let mut hash = Sha256::new_with_prefix(head);
    let copied =
        io::copy(&mut file.by_ref().take(records), &mut Hashing(&mut hash)).map_err(|e| e.to_string())?;
    let mut end = [0; END_LEN];
    file.read_exact(&mut end).map_err(|_| damaged())?;
    if copied != records || !records.is_multiple_of(RECORD_LEN as u64) || hash.finalize()[..] != end {
        return Err(damaged());
    }
    if head != header(size) {
        return Err("the undo file is of an image of another size".into());
    }
    Ok(())
}

/// Every record of a file that is [`whole`].
fn for_each(file: &File, mut work: impl FnMut(Record) -> Result<(), String>) -> Result<(), String> {
    let damaged = |_| "the undo file is cut short or damaged".to_owned();
    let (mut file, len) = begin(file)?;
    let mut head = [0; HEADER_LEN];
    file.read_exact(&mut head).map_err(damaged)?;
    let size = u64::from_le_bytes(head[16..].try_into().unwrap_or_default());
    let mut bytes = [0; RECORD_LEN];
    for _ in 0..len.saturating_sub((HEADER_LEN + END_LEN) as u64) / RECORD_LEN as u64 {
        file.read_exact(&mut bytes).map_err(damaged)?;
        work(Record::parse(&bytes, size).ok_or_else(|| damaged(io::ErrorKind::InvalidData.into()))?)?;
    }
    Ok(())
}

/// A sink that only hashes.
struct Hashing<'h>(&'h mut Sha256);

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An output whose hash is known at the end.
struct Hashed<W> {
    inner: W,
    hash: Sha256,
}

impl<W: Write> Hashed<W> {
    fn new(inner: W) -> Self {
        Hashed { inner, hash: Sha256::new() }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.inner.write_all(bytes)
    }

    fn end(self) -> (W, [u8; 32]) {
        (self.inner, self.hash.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use platfs::device::MemoryDevice;

    use super::*;

    const SIZE: u64 = (1 << 20) + 100;

    /// A device, and repairs of it in several places.
    fn repaired() -> (Arc<MemoryDevice>, Staged) {
        let device = Arc::new(MemoryDevice::new(SIZE));
        device.write_at(1024, &[5; 5000]).unwrap();
        let staged = Staged::new(Arc::clone(&device) as Arc<dyn Device>, 1 << 20);
        staged.write_at(2000, &[1; 3000]).unwrap();
        staged.write_at(SIZE - 50, &[2; 50]).unwrap();
        (device, staged)
    }

    fn bytes(device: &dyn Device) -> Vec<u8> {
        let mut bytes = vec![0; (1 << 20) + 100];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn an_image_comes_back_also_from_half_a_repair() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("undo");
        let (device, staged) = repaired();
        let before = bytes(&*device);
        save(&path, &staged).unwrap();
        assert!(save(&path, &staged).is_err(), "no file is written over");
        staged.apply().unwrap();
        assert_ne!(bytes(&*device), before);
        let after = bytes(&*device);
        device.write_at(2048, &before[2048..2560]).unwrap();
        restore(&path, &*device).unwrap();
        assert_eq!(bytes(&*device), before);
        device.write_at(0, &after).unwrap();
        restore(&path, &*device).unwrap();
        assert_eq!(bytes(&*device), before);
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("undo");
        let (device, staged) = repaired();
        save(&path, &staged).unwrap();
        staged.apply().unwrap();
        device.write_at(3000, &[9]).unwrap();
        let now = bytes(&*device);
        assert!(restore(&path, &*device).unwrap_err().contains("changed since"));
        assert_eq!(bytes(&*device), now);
        let other = MemoryDevice::new(SIZE + 1);
        assert!(restore(&path, &other).unwrap_err().contains("another size"));
        let whole = std::fs::read(&path).unwrap();
        for at in [0, 9, 30, 100, whole.len() - 1] {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            assert!(restore(&path, &*device).is_err(), "byte {at}");
        }
        for len in [0, 10, 40, whole.len() - 1] {
            std::fs::write(&path, &whole[..len]).unwrap();
            assert!(restore(&path, &*device).is_err(), "{len} bytes");
        }
        assert_eq!(bytes(&*device), now);
    }
}
