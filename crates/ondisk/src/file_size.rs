//! The largest size of a file: bounded by the reach of its map, and by its count of blocks.
//!
//! Source: Linux, which opens no file whose size is beyond (measured by `ftruncate` on its driver, block sizes 1 to 4
//! KiB, with and without `huge_file`; `crates/fs/tests/all/file_size.rs` asks again).

use crate::block_map;
use crate::units::BlockSize;

/// One past the last file block that an extent tree or a map of block pointers reaches.
#[must_use]
pub fn reach(size: BlockSize, has_extents: bool) -> u64 {
    // Of a tree the last number is kept free, so that no size overflows.
    if has_extents { u64::from(u32::MAX) } else { block_map::limit(size) }
}

/// The largest size in bytes of a regular file with an extent tree or with block pointers, on a volume with `huge_file`
/// or without.
#[must_use]
pub fn limit(size: BlockSize, has_extents: bool, has_huge_file: bool) -> u64 {
    // Without huge_file 32 bits count sectors: of whole blocks, and the blocks of a full indirect map take their share.
    // Those of a tree are too few to count.
    let counted = u64::from(u32::MAX) >> (size.log2() - 9);
    let charged = match (has_huge_file, has_extents) {
        (true, _) => u64::MAX,
        (false, true) => counted,
        (false, false) => counted - block_map::indirect_blocks(size, counted),
    };
    reach(size, has_extents).min(charged) << size.log2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_as_large_as_linux_lets_them_be() {
        let limits = |bytes| {
            let size = BlockSize::from_bytes(bytes).unwrap();
            [(false, false), (false, true), (true, false), (true, true)].map(|(e, h)| limit(size, e, h))
        };
        assert_eq!(limits(1024), [17_247_252_480, 17_247_252_480, 2_199_023_254_528, 4_398_046_510_080]);
        assert_eq!(limits(2048), [275_415_851_008, 275_415_851_008, 2_199_023_253_504, 8_796_093_020_160]);
        assert_eq!(
            limits(4096),
            [2_196_873_666_560, 4_402_345_721_856, 2_199_023_251_456, 17_592_186_040_320]
        );
    }
}
