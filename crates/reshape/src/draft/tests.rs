//! Drafts of volumes in memory.

use ondisk::inode::{InodeFlags, Timestamp};
use ondisk::units::InodeNumber;
use platfs::mkfs::{FsType, Options, Plan, parse_features};
use platfs_device::MemoryDevice;

use super::*;

const LIMITS: Limits =
    Limits { memory: 64 << 20, threads: 1, now: Timestamp { seconds: 1_700_000_000, nanoseconds: 0 } };

fn volume(features: &str, block_size: u32) -> Arc<dyn Device> {
    let device = MemoryDevice::new(64 << 20);
    let mut options = Options::new(FsType::Ext4);
    options.block_size = Some(block_size);
    options.features = parse_features(features).unwrap();
    Plan::new(&options, 64 << 20).unwrap().write(&device).unwrap();
    Arc::new(device)
}

fn bytes(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; 64 << 20];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

const KINDS: [&str; 4] = ["", "^metadata_csum,uninit_bg", "bigalloc", "^flex_bg,^64bit,^extents"];

#[test]
fn what_is_taken_and_given_back_leaves_a_sound_volume() {
    for (features, block_size) in KINDS.iter().flat_map(|kind| [(kind, 1024), (kind, 4096)]) {
        let device = volume(features, block_size);
        let before = bytes(&*device);
        let mut draft = Draft::open(Arc::clone(&device), LIMITS).unwrap();
        let free = draft.superblock().free_blocks_count();
        let runs = draft.take(Block(9000), 3000).unwrap();
        let taken: u64 = runs.iter().map(|(_, count)| count).sum();
        assert_eq!(draft.superblock().free_blocks_count(), free - taken, "{features} {block_size}");
        let inode = draft.take_inode().unwrap();
        assert!(draft.claim(&runs).is_err(), "{features}: no block is taken twice");
        draft.release(&runs).unwrap();
        assert!(draft.release(&runs).is_err(), "{features}: no block is given back twice");
        draft.release_inode(inode).unwrap();
        let change = draft.finish(&[]).unwrap_or_else(|error| panic!("{features} {block_size}: {error}"));
        assert_eq!(bytes(&*device), before, "the device is only read");
        change.apply().unwrap();
        assert!(judge(&device, &LIMITS, &[]).unwrap().refusal.is_none());
    }
}

#[test]
fn what_would_not_be_sound_is_refused_and_not_written() {
    let device = volume("", 4096);
    let before = bytes(&*device);
    let mut draft = Draft::open(Arc::clone(&device), LIMITS).unwrap();
    draft.take(Block(0), 10).unwrap();
    let error = draft.finish(&[]).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("would not be sound") && error.contains("marked in use"), "{error}");
    assert_eq!(bytes(&*device), before);
    // What is expected is repaired with the change.
    let mut draft = Draft::open(Arc::clone(&device), LIMITS).unwrap();
    draft.take(Block(0), 10).unwrap();
    let change = draft.finish(&["block-bitmap"]).unwrap();
    assert!(!change.is_atomic());
    change.apply().unwrap();
    assert!(judge(&device, &LIMITS, &[]).unwrap().refusal.is_none());
}

#[test]
fn fields_of_the_superblock_are_written_at_once_with_their_backups() {
    let device = volume("", 1024);
    let mut draft = Draft::open(Arc::clone(&device), LIMITS).unwrap();
    draft.superblock_mut().s_volume_name[..3].copy_from_slice(b"new");
    let change = draft.finish_fields().unwrap();
    assert!(change.is_atomic() && !change.is_empty());
    change.apply().unwrap();
    assert_eq!(read_superblock(&*device).unwrap().label(), b"new");
    let mut backup = [0; 1024];
    device.read_at(8193 * 1024, &mut backup).unwrap();
    assert_eq!(RawSuperblock::parse(&backup).unwrap().label(), b"new");
    assert!(judge(&device, &LIMITS, &[]).unwrap().refusal.is_none());
    // Nothing to change is nothing to write.
    assert!(Draft::open(device, LIMITS).unwrap().finish_fields().unwrap().is_empty());
}

#[test]
fn volumes_that_need_a_mount_or_a_repair_are_refused() {
    for (edit, words) in [
        ((|raw: &mut RawSuperblock| raw.s_state.set(3)) as fn(&mut RawSuperblock), "having errors"),
        (|raw| raw.s_state.set(0), "not closed"),
        (|raw| raw.s_last_orphan.set(12), "deleted while open"),
        (
            |raw| {
                let mut features = raw.features();
                features.incompat |= Incompat::RECOVER;
                raw.set_features(features);
            },
            "replayed",
        ),
    ] {
        let device = volume("^metadata_csum", 4096);
        let mut raw = read_superblock(&*device).unwrap();
        edit(&mut raw);
        device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).unwrap();
        let error = Draft::open(device, LIMITS).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn maps_of_hidden_files_are_followed() {
    let draft = Draft::open(volume("", 4096), LIMITS).unwrap();
    let journal = draft.inode(InodeNumber::JOURNAL).unwrap();
    assert!(journal.flags().contains(InodeFlags::EXTENTS));
    let map = draft.map_of(&journal).unwrap();
    let blocks: u64 = runs_of(&map).map(|(_, count)| count).sum();
    assert_eq!(blocks << 12, journal.size());
}
