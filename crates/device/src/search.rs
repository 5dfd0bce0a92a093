//! Volumes anywhere on a disk, found by their superblocks: where a partition table is lost, or something lies between (LVM,
//! an image in a file).
//!
//! Owns the search. Excludes what is in a volume, and partition tables.

use std::io;

use ondisk::geometry::Geometry;
use ondisk::seal::Sealer;
use ondisk::superblock::{RawSuperblock, SUPERBLOCK_LEN, SUPERBLOCK_OFFSET};
use ondisk::units::{Group, saturated};

use crate::Device;

/// Volumes begin where sectors do.
const SECTOR: usize = 512;
/// Bytes that are read at once, and at once where that fails.
const PIECE: usize = 1 << 20;
const SMALL: usize = 4096;
/// Where a superblock has its magic.
const MAGIC_AT: usize = 56;
const MAGIC: [u8; 2] = [0x53, 0xEF];
/// Volumes that are told of: a disk of random bytes has fewer.
const MOST: usize = 4096;

/// A volume that was found.
#[derive(Clone, Debug)]
pub struct FoundVolume {
    /// Its first byte.
    pub start: u64,
    /// Its bytes, as its superblock says; more than the disk has where that was cut off.
    pub size: u64,
    /// The group whose copy of the superblock was found; 0 is the primary one.
    pub group: u32,
    /// First byte of another volume that this one lies in, as far as that volume's superblock is right: an image in a
    /// file, or one of both is what was there before.
    pub inside: Option<u64>,
    /// The superblock.
    pub superblock: RawSuperblock,
}

/// Looks at each sector of a disk, and tells of volumes in the order in which they lie. Copies of superblocks inside their
/// own volume are left out. What can't be read is passed over, and holes are not read.
///
/// # Errors
/// Those of `alive`, which gets the bytes that were looked at.
pub fn search(
    disk: &dyn Device,
    mut alive: impl FnMut(u64) -> io::Result<()>,
) -> io::Result<Vec<FoundVolume>> {
    let mut found: Vec<FoundVolume> = Vec::new();
    let mut piece = vec![0; PIECE + SUPERBLOCK_LEN];
    let mut at = data(disk, 0);
    while at < disk.size() && found.len() < MOST {
        let len = saturated::<usize>(disk.size() - at).min(piece.len());
        let bytes = piece.get_mut(..len).unwrap_or_default();
        read(disk, at, bytes);
        for offset in (0..PIECE.min(len)).step_by(SECTOR) {
            let volume = bytes.get(offset..).and_then(|bytes| volume(at + offset as u64, bytes));
            found.extend(volume.and_then(|volume| placed(volume, &found)));
        }
        at = data(disk, at + PIECE as u64);
        alive(at.min(disk.size()))?;
    }
    found.sort_by_key(|volume| volume.start);
    Ok(found)
}

/// The first sector from a place on that may hold more than zeros.
fn data(disk: &dyn Device, at: u64) -> u64 {
    let sector = disk.data_from(at) / SECTOR as u64 * SECTOR as u64;
    sector.max(at)
}

/// A volume among those that are known; `None` for a copy inside its own.
fn placed(volume: FoundVolume, known: &[FoundVolume]) -> Option<FoundVolume> {
    let around =
        |known: &&FoundVolume| (known.start..known.start.saturating_add(known.size)).contains(&volume.start);
    let same = |known: &FoundVolume| {
        known.start == volume.start || known.superblock.s_uuid == volume.superblock.s_uuid
    };
    if known.iter().filter(around).any(same) {
        return None;
    }
    // An image in a file goes no further than its volume.
    let inside = known.iter().filter(|known| known.inside.is_none()).find(around).map(|known| known.start);
    Some(FoundVolume { inside, ..volume })
}

/// Reads a piece; zeros stand for what can't be read.
fn read(disk: &dyn Device, at: u64, bytes: &mut [u8]) {
    if disk.read_at(at, bytes).is_ok() {
        return;
    }
    for (number, part) in (0_u64..).zip(bytes.chunks_mut(SMALL)) {
        if disk.read_at(at + number * SMALL as u64, part).is_err() {
            part.fill(0);
        }
    }
}

/// The volume whose superblock, or copy of it, begins here.
fn volume(at: u64, bytes: &[u8]) -> Option<FoundVolume> {
    if bytes.get(MAGIC_AT..MAGIC_AT + 2)? != MAGIC {
        return None;
    }
    let superblock = RawSuperblock::parse(bytes.get(..SUPERBLOCK_LEN)?).ok()?;
    let geometry = Geometry::from_superblock(&superblock).ok()?;
    if !Sealer::from_superblock(&superblock).superblock_is_right(&superblock) {
        return None;
    }
    let group = u32::from(superblock.s_block_group_nr.get());
    let offset = match group {
        0 => SUPERBLOCK_OFFSET,
        group => geometry.superblock_offset(Group(group)),
    };
    let start = at.checked_sub(offset)?;
    let size = superblock.blocks_count().checked_mul(u64::from(geometry.block_size.bytes()))?;
    let is_there = start.is_multiple_of(SECTOR as u64) && group < geometry.groups;
    is_there.then_some(FoundVolume { start, size, group, inside: None, superblock })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::MemoryDevice;

    /// A superblock of a volume of 4 groups with 4,096 blocks of 1 KiB.
    fn superblock(group: u16, uuid: u8) -> Vec<u8> {
        let mut bytes = vec![0; SUPERBLOCK_LEN];
        let mut put = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        for (at, value) in
            [(0, 4096), (4, 16_384), (20, 1), (32, 4096), (36, 4096), (40, 1024), (76, 1), (84, 11)]
        {
            put(at, value);
        }
        put(88, 128 | u32::from(group) << 16);
        put(0x60, 2);
        bytes[MAGIC_AT..MAGIC_AT + 2].copy_from_slice(&MAGIC);
        bytes[0x68..0x78].fill(uuid);
        bytes
    }

    /// Counts what is read of a device.
    struct Counted(MemoryDevice, AtomicU64);

    impl Device for Counted {
        fn size(&self) -> u64 {
            self.0.size()
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            self.1.fetch_add(buffer.len() as u64, Ordering::Relaxed);
            self.0.read_at(offset, buffer)
        }

        fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.0.write_at(offset, data)
        }

        fn flush(&self) -> io::Result<()> {
            self.0.flush()
        }

        fn data_from(&self, offset: u64) -> u64 {
            let places = PLACES.map(|at| at + 1024);
            places
                .into_iter()
                .find(|at| at + SUPERBLOCK_LEN as u64 > offset)
                .map_or(self.size(), |at| at.max(offset))
        }
    }

    /// Volumes on a disk that is nearly all a hole.
    const PLACES: [u64; 3] = [3 << 30, (3 << 30) + (900 << 20) + 512, 1 << 40];

    #[test]
    fn holes_are_not_read() {
        let disk = Counted(MemoryDevice::new(2 << 40), AtomicU64::new(0));
        for (place, uuid) in PLACES.into_iter().zip(1..) {
            disk.write_at(place + 1024, &superblock(0, uuid)).unwrap();
        }
        let mut last = 0;
        let found = search(&disk, |bytes| {
            last = bytes;
            Ok(())
        });
        let found: Vec<u64> = found.unwrap().iter().map(|one| one.start).collect();
        assert_eq!((&found[..], last), (&PLACES[..], 2 << 40));
        assert!(disk.1.into_inner() < 8 << 20);
    }

    #[test]
    fn volumes_are_found_by_any_of_their_superblocks() {
        let disk = MemoryDevice::new(64 << 20);
        let put = |at: u64, bytes: &[u8]| disk.write_at(at, bytes).unwrap();
        let (first, second, third) = (1 << 20, (20 << 20) + 512, 40 << 20);
        put(first + 1024, &superblock(0, 1));
        // A copy in its own journal, an image in a file, and noise with the magic.
        put(first + (5 << 20) + 1024, &superblock(0, 1));
        put(first + (6 << 20) + 1024, &superblock(0, 9));
        put((50 << 20) + 56, &MAGIC);
        // Only a copy is left; and one across the border of two pieces.
        put(second + (4096 + 1) * 1024, &superblock(1, 2));
        put(third - 1536 + 1024, &superblock(0, 3));
        let found = search(&disk, |_| Ok(())).unwrap();
        let found: Vec<_> = found.iter().map(|one| (one.start, one.size, one.group, one.inside)).collect();
        let size = 16 << 20;
        let expected = [
            (first, size, 0, None),
            (first + (6 << 20), size, 0, Some(first)),
            (second, size, 1, None),
            (third - 1536, size, 0, None),
        ];
        assert_eq!(found, expected);
    }
}
