//! Kinds of images that do not begin with a superblock: a hint for the user.

use ondisk::superblock::{RawSuperblock, SUPERBLOCK_LEN};

use super::Device;
use super::partitions::partitions;

/// Formats that are often taken for images: where their magic stands, the magic, the name.
const OTHERS: [(u64, &[u8], &str); 21] = [
    (0, b"QFI\xfb", "a qcow2 image: `qemu-img convert -O raw` makes a raw one"),
    (0, b"\x1f\x8b", "compressed with gzip: `gzip -d` unpacks it"),
    (0, b"\x28\xb5\x2f\xfd", "compressed with zstd: `zstd -d` unpacks it"),
    (0, b"\xfd7zXZ", "compressed with xz: `xz -d` unpacks it"),
    (257, b"ustar", "a tar archive: `plat build` makes an image of it"),
    (0, b"XFSB", "an XFS volume"),
    (0, b"hsqs", "a squashfs volume"),
    (0x1_0040, b"_BHRfS_M", "a btrfs volume"),
    (0x400, b"\x10\x20\xf5\xf2", "an F2FS volume"),
    (0x400, b"\xe2\xe1\xf5\xe0", "an EROFS volume"),
    (0, b"BZh", "compressed with bzip2"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"KDMV", "a VMDK image: `qemu-img convert -O raw` makes a raw one"),
    (0, b"vhdxfile", "a VHDX image: `qemu-img convert -O raw` makes a raw one"),
    (0, b"conectix", "a VHD image: `qemu-img convert -O raw` makes a raw one"),
    (0x40, b"\x7f\x10\xda\xbe", "a VDI image: `qemu-img convert -O raw` makes a raw one"),
    (0, b"\x3a\xff\x26\xed", "an Android sparse image: `simg2img` makes a raw one"),
    (0, b"LUKS\xba\xbe", "encrypted with LUKS: `cryptsetup open` makes a device of it"),
    (0x8001, b"CD001", "an ISO 9660 volume"),
    (3, b"NTFS    ", "an NTFS volume"),
    (3, b"EXFAT   ", "an exFAT volume"),
];

fn has_magic(device: &dyn Device, at: u64, magic: &[u8]) -> bool {
    let mut found = vec![0; magic.len()];
    device.read_at(at, &mut found).is_ok() && found == magic
}

/// The first backup of a superblock for one of the block sizes, as (block, block size): where it stands, a volume may be
/// saved though it does not begin with a superblock.
#[must_use]
pub fn backup_superblock(device: &dyn Device) -> Option<(u64, u64)> {
    let mut bytes = [0; SUPERBLOCK_LEN];
    (10..=16).map(|log2| 1_u64 << log2).find_map(|block_size| {
        let block = 8 * block_size + u64::from(block_size == 1024);
        device.read_at(block * block_size, &mut bytes).ok()?;
        let raw = RawSuperblock::parse(&bytes).ok()?;
        let fits = 1024_u64.checked_shl(raw.s_log_block_size.get()) == Some(block_size);
        (fits && raw.s_block_group_nr.get() == 1).then_some((block, block_size))
    })
}

/// Contents of a device without a superblock in words, if they are recognised.
#[must_use]
pub fn lookalike(device: &dyn Device, name: &str) -> Option<String> {
    if let Some((_, _, what)) = OTHERS.iter().find(|(at, magic, _)| has_magic(device, *at, magic)) {
        return Some(format!("it looks like {what}"));
    }
    if let Some((block, size)) = backup_superblock(device) {
        return Some(format!(
            "a backup superblock is at block {block}: `plat check -b {block} -B {size}` repairs with it"
        ));
    }
    let found = partitions(device).ok().filter(|found| !found.is_empty())?;
    let names = found.iter().map(|part| {
        let cut = if part.whole_on(device).is_err() { " (cut off)" } else { "" };
        format!("{name}@part{}{cut}", part.number)
    });
    let names: Vec<String> = names.collect();
    Some(format!("it is a disk with partitions: {}", names.join(", ")))
}
