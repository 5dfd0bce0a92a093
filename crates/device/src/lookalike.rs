//! Contents that are no volume of ext2, ext3 or ext4: their names and remedies for the user, and whether they are an image
//! of another format.

use ondisk::superblock::{RawSuperblock, SUPERBLOCK_LEN};
use ondisk::units::bounded;

use super::Device;
use super::partitions::partitions;
use super::superblock::read_superblock;

/// Contents that are often taken for a volume.
struct Other {
    /// Where its magic stands.
    at: u64,
    /// The magic.
    magic: &'static [u8],
    /// Name of the format and the remedy; `NAME` stands for the file's name.
    what: &'static str,
    /// True for a disk or a volume of any format.
    is_image: bool,
}

const fn image(at: u64, magic: &'static [u8], what: &'static str) -> Other {
    Other { at, magic, what, is_image: true }
}

const fn other(at: u64, magic: &'static [u8], what: &'static str) -> Other {
    Other { at, magic, what, is_image: false }
}

const OTHERS: [Other; 21] = [
    image(
        0,
        b"QFI\xfb",
        "a qcow2 image: `qemu-img convert -O raw NAME NAME.img` makes a raw one; `plat build --format raw` builds one at once",
    ),
    other(0, b"\x1f\x8b", "compressed with gzip: `gzip -dc NAME >NAME.img` unpacks it"),
    image(
        0,
        b"\x28\xb5\x2f\xfd",
        "compressed with zstd: `zstd -d NAME -o NAME.img` unpacks it; `plat build --format raw` does not pack",
    ),
    other(0, b"\xfd7zXZ", "compressed with xz: `xz -dc NAME >NAME.img` unpacks it"),
    other(257, b"ustar", "a tar archive: `plat build NAME NAME.img` makes an image of it"),
    image(0, b"XFSB", "an XFS volume"),
    image(0, b"hsqs", "a squashfs volume"),
    image(0x1_0040, b"_BHRfS_M", "a btrfs volume"),
    image(0x400, b"\x10\x20\xf5\xf2", "an F2FS volume"),
    image(0x400, b"\xe2\xe1\xf5\xe0", "an EROFS volume"),
    other(0, b"BZh", "compressed with bzip2: `bzip2 -dc NAME >NAME.img` unpacks it"),
    other(0, b"PK\x03\x04", "a zip archive: `unzip NAME` unpacks it"),
    image(0, b"KDMV", "a VMDK image: `qemu-img convert -O raw NAME NAME.img` makes a raw one"),
    image(0, b"vhdxfile", "a VHDX image: `qemu-img convert -O raw NAME NAME.img` makes a raw one"),
    image(
        0,
        b"conectix",
        "a VHD image: `qemu-img convert -O raw NAME NAME.img` makes a raw one; `plat build --format raw` builds one at once",
    ),
    image(0x40, b"\x7f\x10\xda\xbe", "a VDI image: `qemu-img convert -O raw NAME NAME.img` makes a raw one"),
    image(
        0,
        b"\x3a\xff\x26\xed",
        "an Android sparse image: `simg2img NAME NAME.img` makes a raw one; `plat build --format raw` builds one at once",
    ),
    image(0, b"LUKS\xba\xbe", "encrypted with LUKS: `cryptsetup open NAME plain` makes a device of it"),
    image(0x8001, b"CD001", "an ISO 9660 volume"),
    image(3, b"NTFS    ", "an NTFS volume"),
    image(3, b"EXFAT   ", "an exFAT volume"),
];

/// Bytes at the start of a file that are zero where nothing was written yet.
const BLANK: u64 = 128 << 10;

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
    if let Some(other) = OTHERS.iter().find(|other| has_magic(device, other.at, other.magic)) {
        return Some(format!("it looks like {}", other.what.replace("NAME", name)));
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

/// Returns true if a device holds a disk or a volume of any format, or only zeros: no text, program or archive.
#[must_use]
pub fn is_image_or_blank(device: &dyn Device) -> bool {
    read_superblock(device).is_ok()
        || OTHERS.iter().any(|other| other.is_image && has_magic(device, other.at, other.magic))
        || partitions(device).is_ok_and(|found| !found.is_empty())
        || backup_superblock(device).is_some()
        || is_blank(device)
}

/// Returns true if a device holds nothing but zeros at its beginning and at its end.
#[must_use]
pub fn is_blank(device: &dyn Device) -> bool {
    let len = device.size().min(BLANK);
    let is_zero = |at: u64| {
        let mut bytes = vec![0; bounded::<usize>(len)];
        device.data_from(at) >= at + len
            || device.read_at(at, &mut bytes).is_ok() && bytes.iter().all(|byte| *byte == 0)
    };
    is_zero(0) && is_zero(device.size() - len)
}
