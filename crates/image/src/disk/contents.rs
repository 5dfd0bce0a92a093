//! The bytes of a disk, and which of them count.
//!
//! Blocks that the volume's bitmaps call free do not count, and read as zeros here. All else counts, also where it is
//! zero: tables that are not used yet, the empty log of a journal. Excluded: how that is written down.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ondisk::invariant;
use ondisk::units::bounded;
use platfs::device::FileDevice;
use platfs::ondisk::units::Group;
use platfs::{OpenOptions, Volume};

/// Bytes read at once.
pub(super) const PIECE: u64 = PIECE_LEN as u64;
pub(super) const PIECE_LEN: usize = 1 << 20;

/// A disk with a volume on it.
pub(super) struct Contents {
    file: File,
    /// Bytes.
    pub(super) len: u64,
    /// Bytes of a block of the volume.
    pub(super) block: u64,
    /// Ranges that count: rising, not empty, not touching.
    pub(super) used: Vec<Range<u64>>,
}

/// Adds a range behind those that are there.
fn add(used: &mut Vec<Range<u64>>, next: Range<u64>) {
    match used.last_mut() {
        Some(last) if last.end >= next.start => last.end = last.end.max(next.end),
        _ if next.is_empty() => {}
        _ => used.push(next),
    }
}

impl Contents {
    /// The volume that a file holds, which is also given as a device.
    pub(super) fn of(file: &File, device: FileDevice) -> io::Result<Self> {
        let len = file.metadata()?.len();
        let volume = Volume::open(Arc::new(device), &OpenOptions::new()).map_err(io::Error::other)?;
        let geometry = volume.format().geometry;
        // What lies before the first block that has a bit: the room of a boot loader.
        let mut used = Vec::new();
        add(&mut used, 0..geometry.byte_offset(geometry.group_start(Group(0))));
        for group in (0..geometry.groups).map(Group) {
            let bitmap = volume.block_bitmap(group).map_err(io::Error::other)?;
            let start = geometry.byte_offset(geometry.group_start(group));
            let end = start + (u64::from(geometry.group_blocks(group)) << geometry.block_size.log2());
            let cluster = u64::from(geometry.blocks_per_cluster()) << geometry.block_size.log2();
            for run in runs(&bitmap, geometry.group_clusters(group)) {
                let (from, to) =
                    (start + u64::from(run.start) * cluster, start + u64::from(run.end) * cluster);
                add(&mut used, from..to.min(end).min(len));
            }
        }
        let block = u64::from(geometry.block_size.bytes());
        Ok(Contents { file: file.try_clone()?, len, block, used })
    }

    /// Has everything count.
    pub(super) fn use_all(&mut self) {
        self.used.clear();
        add(&mut self.used, 0..self.len);
    }

    /// Takes in what a file has become longer by.
    pub(super) fn lengthen(&mut self, file: &File) -> io::Result<()> {
        let len = file.metadata()?.len();
        add(&mut self.used, self.len..len);
        self.len = len;
        Ok(())
    }

    /// Fills `buffer` from byte `at`: zeros where nothing counts, and behind the end.
    pub(super) fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        buffer.fill(0);
        let end = at.saturating_add(buffer.len() as u64);
        let first = self.used.partition_point(|range| range.end <= at);
        for range in self.used.iter().skip(first).take_while(|range| range.start < end) {
            let (from, to) = (range.start.max(at), range.end.min(end));
            let place = |byte: u64| bounded::<usize>(byte - at);
            let part =
                invariant!(buffer.get_mut(place(from)..place(to)), "a range that is read lies in the buffer");
            self.file.read_exact_at(part, from)?;
        }
        Ok(())
    }

    /// Returns the ranges that count in whole units of `unit` bytes, by their numbers.
    pub(super) fn units(&self, unit: u64) -> Vec<Range<u64>> {
        let mut units = Vec::new();
        for range in &self.used {
            add(&mut units, range.start / unit..range.end.div_ceil(unit));
        }
        units
    }
}

/// The runs of ones among the first `count` bits.
fn runs(bitmap: &[u8], count: u32) -> Vec<Range<u32>> {
    let is_set = |bit: u32| bitmap.get((bit / 8) as usize).is_none_or(|byte| byte >> (bit % 8) & 1 == 1);
    let mut runs: Vec<Range<u32>> = Vec::new();
    for bit in (0..count).filter(|bit| is_set(*bit)) {
        match runs.last_mut() {
            Some(last) if last.end == bit => last.end += 1,
            _ => runs.push(bit..bit + 1),
        }
    }
    runs
}

/// Returns true if all bytes are zero.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}
