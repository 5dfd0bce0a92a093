//! Superblocks with another seed than the one by which the volume is sealed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ondisk::features::Incompat;
use ondisk::units::InodeNumber;
use platfs::check::{Issue, Options, check};
use platfs::device::{Device, MemoryDevice};
use platfs::ondisk;

use crate::check::inodes::contents;
use crate::check::kept::made;
use crate::check::plant::{Image, assert_found, checked, ready, repaired};

fn ids(heard: &[Issue]) -> Vec<&'static str> {
    heard.iter().map(|issue| issue.kind.id).collect()
}

/// Any bit of the UUID: with a backup that knows better and without one the repair changes nothing but that bit.
#[test]
fn each_bit_of_the_uuid_is_found() {
    let test = "each_bit_of_the_uuid_is_found";
    let alone = ["-t", "ext4", "-b", "4096", "-O", "^has_journal,^metadata_csum_seed"];
    let Some(alone) = made(test, &alone, "2M", "write FILE a\n") else { return };
    for (base, sound, step) in [("of many groups", Image::of("ext4"), 9), ("of one group", alone, 1)] {
        for bit in (0..128).step_by(step) {
            let mut image = Image::from_bytes(sound.bytes.clone());
            image.superblock_unsealed(|raw| raw.s_uuid[bit / 8] ^= 1 << (bit % 8));
            let (heard, outcome) = checked(&image.bytes);
            assert_eq!(ids(&heard), ["superblock-damaged"], "{base}, bit {bit}: {heard:#?}");
            let after = repaired(&outcome);
            assert_eq!(
                Image::from_bytes(after.clone()).superblock_now().s_uuid,
                sound.superblock_now().s_uuid
            );
            assert!(after[2048..] == sound.bytes[2048..], "{base}, bit {bit}");
            if [0, 77, 127].contains(&bit) {
                assert_found(&image, &["superblock-damaged"], true);
            }
        }
    }
}

/// Where no bit leads to the seed, it is stored: for UUIDs under a right checksum of the superblock, too, as a change of
/// the UUID that broke off leaves them, and for seeds that are stored already.
#[test]
fn another_seed_is_stored() {
    if !ready("another_seed_is_stored") {
        return;
    }
    for base in ["ext4", "ext4_4k"] {
        let mut image = Image::of(base);
        let before = contents(&image.bytes, "large");
        image.superblock(|raw| raw.s_uuid = [9; 16]);
        assert_found(&image, &["superblock-damaged"], true);
        let after = Image::from_bytes(repaired(&checked(&image.bytes).1));
        assert_eq!(contents(&after.bytes, "large"), before);
        assert!(after.superblock_now().features().incompat.contains(Incompat::CSUM_SEED));
        assert_eq!(after.superblock_now().s_uuid, [9; 16]);
        // The stored one, with a wrong bit.
        let mut stored = after;
        stored.superblock(|raw| raw.s_checksum_seed.set(raw.s_checksum_seed.get() ^ 1 << 20));
        assert_found(&stored, &["superblock-damaged"], true);
    }
}

/// Inodes of 128 bytes store half a checksum: their directories say the seed.
#[test]
fn inodes_with_half_a_checksum() {
    let options = ["-t", "ext4", "-b", "1024", "-I", "128", "-O", "^has_journal"];
    let Some(mut image) = made("half-checksums", &options, "4M", "write FILE a\n") else { return };
    image.superblock_unsealed(|raw| raw.s_uuid[3] ^= 8);
    assert_found(&image, &["superblock-damaged"], true);
    assert_eq!(contents(&repaired(&checked(&image.bytes).1), "a"), b"some contents\n");
}

/// Inodes that another seed sealed are sound, though all of their block's are.
#[test]
fn a_change_of_the_uuid_that_broke_off() {
    if !ready("a_change_of_the_uuid_that_broke_off") {
        return;
    }
    let mut image = Image::of("ext4");
    let number = image.inode_of("large");
    let before = contents(&image.bytes, "large");
    let geometry = image.format.geometry;
    let first = number.get() - number.index() % geometry.inodes_per_block();
    let mut another = image.superblock_now();
    another.s_uuid = [9; 16];
    let sealer = ondisk::seal::Sealer::from_superblock(&another);
    for number in (first..first + geometry.inodes_per_block()).filter_map(InodeNumber::new) {
        let mut inode = image.read_inode(number);
        sealer.seal_inode(&mut inode);
        let at = image.inode_at(number);
        image.bytes[at..at + inode.bytes().len()].copy_from_slice(inode.bytes());
    }
    let (heard, outcome) = checked(&image.bytes);
    assert!(!heard.is_empty() && heard.iter().all(|issue| issue.kind.id == "inode-checksum"), "{heard:#?}");
    assert_eq!(contents(&repaired(&outcome), "large"), before);
}

/// Counts requests.
struct Counted(MemoryDevice, AtomicU64);

impl Device for Counted {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> std::io::Result<()> {
        Err(std::io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A volume that claims 262,000 groups on a device of one: no pass goes behind the device.
#[test]
fn claims_beyond_the_device_are_not_followed() {
    let options = ["-t", "ext4", "-b", "4096", "-N", "16", "-O", "64bit,^metadata_csum,^has_journal"];
    let Some(mut image) = made("claims", &options, "16M", "write FILE a\n") else { return };
    let sound = requests(&image.bytes);
    image.superblock(|raw| {
        raw.s_blocks_count_hi.set(2);
        raw.s_inodes_count.set(((2_u64 << 32) / 32768 + 1) as u32 * raw.s_inodes_per_group.get());
    });
    let claims = requests(&image.bytes);
    assert_eq!(claims.0, ["volume-cut-short"]);
    assert!(claims.1 <= sound.1 + 100, "{} requests, {} of a sound volume", claims.1, sound.1);
    assert!(claims.2 <= sound.2, "{} pieces, {} of a sound volume", claims.2, sound.2);
}

/// Issues, requests, and pieces of the inode tables.
fn requests(bytes: &[u8]) -> (Vec<&'static str>, u64, u64) {
    #[derive(Default)]
    struct Pieces(Vec<&'static str>, u64);
    impl platfs::check::Sink for Pieces {
        fn issue(&mut self, issue: Issue) -> platfs::check::Decision {
            self.0.push(issue.kind.id);
            platfs::check::Decision::Repair
        }

        fn progress(&mut self, progress: platfs::check::Progress) {
            if progress.pass == "inodes" {
                self.1 = self.1.max(progress.of);
            }
        }
    }
    let device = Arc::new(Counted(MemoryDevice::from_bytes(bytes), AtomicU64::new(0)));
    let mut pieces = Pieces::default();
    check(Arc::clone(&device) as Arc<dyn Device>, &Options::default(), &mut pieces).unwrap();
    (pieces.0, device.1.load(Ordering::Relaxed), pieces.1)
}
