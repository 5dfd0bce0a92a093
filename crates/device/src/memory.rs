//! A device in memory, sparse: only chunks that were written take space.

#![expect(clippy::cast_possible_truncation, reason = "every cast is of a value below the chunk size")]

use std::collections::HashMap;
use std::io;
use std::sync::{PoisonError, RwLock};

use super::{Device, Protection, check_range};
use ondisk::units::saturated;

const CHUNK: u64 = 64 * 1024;

/// A sparse device in memory.
#[derive(Debug, Default)]
pub struct MemoryDevice {
    size: u64,
    chunks: RwLock<HashMap<u64, Box<[u8]>>>,
}

impl MemoryDevice {
    /// A device of `size` bytes that reads as zeros.
    #[must_use]
    pub fn new(size: u64) -> Self {
        MemoryDevice { size, chunks: RwLock::default() }
    }

    /// A device that holds a copy of `bytes`.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let chunks = bytes.chunks(CHUNK as usize).enumerate().filter(|(_, c)| c.iter().any(|b| *b != 0));
        let chunks = chunks.map(|(index, bytes)| {
            let mut chunk = vec![0; CHUNK as usize].into_boxed_slice();
            chunk[..bytes.len()].copy_from_slice(bytes);
            (index as u64, chunk)
        });
        MemoryDevice { size: bytes.len() as u64, chunks: RwLock::new(chunks.collect()) }
    }
}

/// The pieces of a range that lie in one chunk each: chunk, offset in it, length.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset + len as u64;
    let mut at = offset;
    std::iter::from_fn(move || {
        let stop = (at / CHUNK + 1).saturating_mul(CHUNK).min(end);
        let piece = (at / CHUNK, (at % CHUNK) as usize, (stop - at) as usize);
        at = stop;
        (piece.2 > 0).then_some(piece)
    })
}

impl Device for MemoryDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, mut buffer: &mut [u8]) -> io::Result<()> {
        check_range(self.size, offset, buffer.len(), io::ErrorKind::UnexpectedEof)?;
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        for (chunk, start, len) in pieces(offset, buffer.len()) {
            let (piece, rest) = buffer.split_at_mut(len);
            match chunks.get(&chunk) {
                Some(bytes) => piece.copy_from_slice(&bytes[start..start + len]),
                None => piece.fill(0),
            }
            buffer = rest;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, mut data: &[u8]) -> io::Result<()> {
        check_range(self.size, offset, data.len(), io::ErrorKind::WriteZero)?;
        let mut chunks = self.chunks.write().unwrap_or_else(PoisonError::into_inner);
        for (chunk, start, len) in pieces(offset, data.len()) {
            let (piece, rest) = data.split_at(len);
            data = rest;
            // Zeros need no space where nothing else was written.
            if piece.iter().all(|byte| *byte == 0) && !chunks.contains_key(&chunk) {
                continue;
            }
            let bytes = chunks.entry(chunk).or_insert_with(|| vec![0; CHUNK as usize].into_boxed_slice());
            bytes[start..start + len].copy_from_slice(piece);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// No other process has this memory.
    fn protection(&self) -> Protection {
        Protection::Alone
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.write_zeros(offset, len)
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        let len = saturated::<usize>(len);
        check_range(self.size, offset, len, io::ErrorKind::WriteZero)?;
        let mut chunks = self.chunks.write().unwrap_or_else(PoisonError::into_inner);
        let (first, last) = (offset / CHUNK, (offset + len as u64) / CHUNK);
        chunks.retain(|chunk, bytes| {
            if !(first..=last).contains(chunk) {
                return true;
            }
            let base = chunk * CHUNK;
            let from = offset.saturating_sub(base).min(CHUNK) as usize;
            let to = (offset + len as u64).saturating_sub(base).min(CHUNK) as usize;
            bytes[from..to.max(from)].fill(0);
            to - from < CHUNK as usize
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_was_written_across_chunks_and_zeros_elsewhere() {
        let device = MemoryDevice::new(1 << 40);
        let data: Vec<u8> = (0..200_000_u32).map(|i| i.to_le_bytes()[0]).collect();
        device.write_at(CHUNK - 10, &data).unwrap();
        let mut back = vec![1; data.len() + 20];
        device.read_at(CHUNK - 20, &mut back).unwrap();
        assert_eq!(back[..10], [0; 10]);
        assert_eq!(back[10..data.len() + 10], data);
        device.write_zeros(CHUNK, CHUNK).unwrap();
        device.read_at(CHUNK - 20, &mut back).unwrap();
        assert_eq!(back[10..20], data[..10]);
        assert!(back[20..20 + CHUNK as usize].iter().all(|b| *b == 0));
        assert_eq!(back[20 + CHUNK as usize], data[10 + CHUNK as usize]);
    }

    #[test]
    fn the_end_is_a_wall() {
        let device = MemoryDevice::new(100);
        assert!(device.write_at(99, &[1, 2]).is_err());
        assert!(device.read_at(u64::MAX, &mut [0]).is_err());
    }
}
