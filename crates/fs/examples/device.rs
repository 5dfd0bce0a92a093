//! A volume on a device of one's own: here one that keeps only the chunks that hold anything, and counts.
//!
//! `cargo run -p platfs --example device`
//!
//! That trait also puts volumes into archives, behind decryption, or on storage at the other end of a network.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use platfs::device::Device;
use platfs::mkfs::{FsType, Options as Format};
use platfs::{Image, OpenOptions};

/// Bytes of a chunk.
const CHUNK: u64 = 64 << 10;

/// Storage of any size that takes memory only for what was written.
pub struct Chunks {
    size: u64,
    chunks: Mutex<HashMap<u64, Box<[u8]>>>,
    reads: AtomicU64,
}

impl Chunks {
    /// Storage that reads as zeros.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Chunks { size, chunks: Mutex::default(), reads: AtomicU64::new(0) }
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner).len() as u64 * CHUNK
    }

    /// Calls of `read_at`.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Hands out the parts of a range that lie in one chunk each: its number, the offset in it, and which bytes of the
    /// caller's buffer they are.
    fn parts(&self, offset: u64, len: usize) -> io::Result<Vec<(u64, usize, std::ops::Range<usize>)>> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= self.size);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut parts = Vec::new();
        let mut at = offset;
        while at < end {
            let stop = (at / CHUNK + 1).saturating_mul(CHUNK).min(end);
            let place = |byte: u64| usize::try_from(byte - offset).unwrap_or(len);
            parts.push((at / CHUNK, usize::try_from(at % CHUNK).unwrap_or(0), place(at)..place(stop)));
            at = stop;
        }
        Ok(parts)
    }
}

impl Device for Chunks {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, inside, place) in self.parts(offset, buffer.len())? {
            let to = &mut buffer[place];
            match chunks.get(&number) {
                Some(chunk) => to.copy_from_slice(&chunk[inside..inside + to.len()]),
                None => to.fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, inside, place) in self.parts(offset, data.len())? {
            let from = &data[place];
            if from.iter().all(|byte| *byte == 0) && !chunks.contains_key(&number) {
                continue;
            }
            let empty = || vec![0; usize::try_from(CHUNK).unwrap_or(0)].into_boxed_slice();
            chunks.entry(number).or_insert_with(empty)[inside..inside + from.len()].copy_from_slice(from);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        // Memory has nothing to make stable.
        Ok(())
    }
}

/// Makes a volume of 1 TiB, puts a file into it, and reads that again: bytes of memory taken, and device reads.
///
/// # Errors
/// None that a sound device gives.
pub fn one_tebibyte() -> Result<(u64, u64), Box<dyn Error>> {
    let device = Arc::new(Chunks::new(1 << 40));
    let storage = Arc::clone(&device) as Arc<dyn Device>;
    let image = Image::format(storage, &Format::new(FsType::Ext4), &OpenOptions::new())?;
    image.write("/hello", vec![b'!'; 100_000])?;
    image.close()?;

    let before = device.reads();
    let image = Image::on(Arc::clone(&device) as Arc<dyn Device>, &OpenOptions::new())?;
    assert_eq!(image.read("/hello")?.len(), 100_000);
    Ok((device.taken(), device.reads() - before))
}

fn main() -> Result<(), Box<dyn Error>> {
    let (taken, reads) = one_tebibyte()?;
    println!("a volume of 1 TiB with a file in it takes {} KiB", taken >> 10);
    println!("opening it and reading the file took {reads} reads");
    Ok(())
}
