//! Which volumes are opened for writing, and what that does to them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use platfs::device::{Device, MemoryDevice};
use platfs::mkfs::{FsType, Options, Plan, parse_features};
use platfs::{Error, OpenOptions, Volume, read_superblock};

fn made(fs_type: FsType, features: &str) -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(32 << 20);
    let mut options = Options::new(fs_type);
    options.features = parse_features(features).unwrap();
    Plan::new(&options, device.size()).unwrap().write(&device).unwrap();
    Arc::new(device)
}

fn writing() -> OpenOptions {
    OpenOptions::new().write(true)
}

fn refusal(device: &Arc<MemoryDevice>, options: &OpenOptions) -> String {
    let device: Arc<dyn Device> = device.clone();
    match Volume::open(device, options) {
        Err(Error::Unsupported(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened"),
    }
}

#[test]
fn a_journal_is_passed_over_only_if_that_is_asked_for() {
    let device = made(FsType::Ext4, "");
    assert!(refusal(&device, &writing()).contains("unordered"));
    Volume::open(device.clone(), &writing().unordered(true)).unwrap();
    Volume::open(made(FsType::Ext2, ""), &writing()).unwrap();
}

#[test]
fn what_was_not_closed_is_written_only_by_force() {
    let device = made(FsType::Ext2, "");
    let volume = Volume::open(device.clone(), &writing()).unwrap();
    volume.truncate(volume.resolve(b"/lost+found").unwrap(), 0).unwrap_err();
    drop(volume);
    assert!(refusal(&device, &writing()).contains("not closed cleanly"));
    let volume = Volume::open(device.clone(), &writing().force(true)).unwrap();
    volume.close().unwrap();
}

#[test]
fn a_volume_in_use_by_another_host_is_refused() {
    let device = made(FsType::Ext2, "mmp");
    Volume::open(device.clone(), &writing()).unwrap();
    let superblock = read_superblock(&*device).unwrap();
    let block_len = 1024 << superblock.s_log_block_size.get();
    let sequence = superblock.s_mmp_block.get() * block_len + 4;
    device.write_at(sequence, &7_u32.to_le_bytes()).unwrap();
    assert!(refusal(&device, &writing().force(true)).contains("another host"));
    Volume::open(device.clone(), &OpenOptions::new()).unwrap();
}
