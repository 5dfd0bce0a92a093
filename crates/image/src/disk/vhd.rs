//! Fixed VHD, after Microsoft's specification (version 1.0): the raw disk, and behind it a sector that describes it.
//!
//! The size is the one in that sector, as Hyper-V, Azure and QEMU take it; the geometry of cylinders, which can't say
//! every size, is the nearest below.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::Seeds;
use ondisk::units::saturated;

const SECTOR: u64 = 512;
/// Seconds from 1970 to the year 2000, in which times begin here.
const EPOCH: u64 = 946_684_800;
/// Where the sum of the sector's bytes stands.
const CHECKSUM: usize = 64;
/// QEMU and Hyper-V take no larger ones: 2040 GiB.
const MOST: u64 = 2040 << 30;

/// Ends a raw disk of `len` bytes with its sector.
pub(super) fn end(file: &File, len: u64, seeds: &Seeds) -> io::Result<()> {
    let size = len.next_multiple_of(SECTOR);
    if size > MOST {
        return Err(io::Error::other(format!("a VHD holds at most {MOST} bytes, and the disk has {size}")));
    }
    file.write_all_at(&footer(size, seeds), size)
}

fn footer(size: u64, seeds: &Seeds) -> Vec<u8> {
    let (cylinders, heads, sectors) = geometry(size / SECTOR);
    let seconds = saturated::<u32>(seeds.time.saturating_sub(EPOCH));
    let mut footer = b"conectix".to_vec();
    // The bit that is always set; version 1.0; nothing follows a fixed disk.
    footer.extend(2_u32.to_be_bytes());
    footer.extend(0x1_0000_u32.to_be_bytes());
    footer.extend(u64::MAX.to_be_bytes());
    footer.extend(seconds.to_be_bytes());
    // The program that others take to mean: the size counts, not the geometry.
    footer.extend(b"win \x00\x0a\x00\x00Wi2k");
    footer.extend(size.to_be_bytes());
    footer.extend(size.to_be_bytes());
    footer.extend(cylinders.to_be_bytes());
    footer.extend([heads, sectors]);
    // A fixed disk.
    footer.extend(2_u32.to_be_bytes());
    footer.extend([0; 4]);
    footer.extend(seeds.uuid);
    footer.resize(512, 0);
    let sum = !footer.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    footer.splice(CHECKSUM..CHECKSUM + 4, sum.to_be_bytes());
    footer
}

/// Cylinders, heads and sectors of a track for that many sectors, as the specification's appendix computes them.
fn geometry(sectors: u64) -> (u16, u8, u8) {
    let total = sectors.min(65_535 * 16 * 255);
    let (per_track, heads, tracks) = if total >= 65_535 * 16 * 63 {
        (255, 16, total / 255)
    } else {
        let heads = (total / 17).div_ceil(1024).max(4);
        if total / 17 < heads * 1024 && heads <= 16 {
            (17, heads, total / 17)
        } else if total / 31 < 16 * 1024 {
            (31, 16, total / 31)
        } else {
            (63, 16, total / 63)
        }
    };
    let small = |number: u64| saturated::<u8>(number);
    (saturated::<u16>(tracks / heads), small(heads), small(per_track))
}
