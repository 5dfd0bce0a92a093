//! Opening for writing: volumes that are refused, and the effects on those that are not.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use platfs::device::{Device, FileDevice, MemoryDevice, Protection};
use platfs::mkfs::{FsType, Options, Plan, parse_features};
use platfs::ondisk::features::{Incompat, RoCompat};
use platfs::ondisk::orphan_file;
use platfs::ondisk::seal::Sealer;
use platfs::ondisk::superblock::STATE_VALID;
use platfs::ondisk::units::InodeNumber;
use platfs::{Attributes, Error, Kind, NewInode, OpenOptions, State, Volume, WriteOptions, read_superblock};
use testkit::fsck;
use testkit::scratch::Scratch;
use zerocopy::IntoBytes;

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
        Err(Error::Unsupported(why) | Error::InUse(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened"),
    }
}

#[test]
fn a_journal_is_used_unless_it_is_to_be_passed_over() {
    let device = made(FsType::Ext4, "");
    let new = NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] };
    for (unordered, valid) in [(false, true), (true, false)] {
        let volume = Volume::open(device.clone(), &writing().unordered(unordered)).unwrap();
        volume.create(InodeNumber::ROOT, format!("{unordered}").as_bytes(), &new).unwrap();
        volume.sync().unwrap();
        let raw = read_superblock(&*device).unwrap();
        assert_eq!(raw.features().incompat.contains(Incompat::RECOVER), !unordered);
        assert_eq!(raw.s_state.get() & STATE_VALID != 0, valid);
        volume.close().unwrap();
        let raw = read_superblock(&*device).unwrap();
        assert!(raw.s_state.get() & STATE_VALID != 0 && !raw.features().incompat.contains(Incompat::RECOVER));
    }
}

#[test]
fn a_journal_on_another_device_is_not_written() {
    let device = made(FsType::Ext4, "");
    let mut raw = read_superblock(&*device).unwrap();
    raw.s_journal_inum.set(0);
    Volume::open(device.clone(), &OpenOptions::new()).unwrap().format().sealer.seal_superblock(&mut raw);
    device.write_at(1024, raw.as_bytes()).unwrap();
    assert!(refusal(&device, &writing()).contains("another device"));
    Volume::open(device.clone(), &writing().unordered(true)).unwrap();
}

/// A directory in their place would be kept from changes by its own blocks, and be written over.
#[test]
fn files_of_the_volumes_own_are_regular_files() {
    let device = made(FsType::Ext4, "quota");
    let mut raw = read_superblock(&*device).unwrap();
    raw.s_usr_quota_inum.set(InodeNumber::ROOT.get());
    Volume::open(device.clone(), &OpenOptions::new()).unwrap().format().sealer.seal_superblock(&mut raw);
    device.write_at(1024, raw.as_bytes()).unwrap();
    match Volume::open(device.clone(), &writing()) {
        Err(Error::Corrupt(why)) => assert!(why.to_string().contains("no regular file"), "{why}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened"),
    }
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
    let mut mark = platfs::device::mmp::read_block(&*device, &superblock).unwrap();
    mark.mmp_seq.set(7);
    mark.set_names(b"elsewhere", b"sda");
    Sealer::from_superblock(&superblock).seal_mmp(mark.as_mut_bytes());
    device.write_at(superblock.s_mmp_block.get() * block_len, mark.as_bytes()).unwrap();
    assert!(refusal(&device, &writing().force(true)).contains("'elsewhere'"));
    Volume::open(device.clone(), &OpenOptions::new()).unwrap();
    // A block that is none keeps writers off, too.
    device.write_at(superblock.s_mmp_block.get() * block_len, &[9]).unwrap();
    let damaged = Volume::open(device.clone(), &writing());
    assert!(matches!(damaged, Err(Error::Corrupt(_))));
}

/// A device that another host takes.
struct Taken(Arc<MemoryDevice>, AtomicBool);

impl Device for Taken {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn protection(&self) -> Protection {
        if self.1.load(Ordering::SeqCst) { Protection::Lost } else { Protection::Alone }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        if self.1.load(Ordering::SeqCst) {
            return Err(std::io::ErrorKind::ReadOnlyFilesystem.into());
        }
        self.0.write_at(offset, data)
    }

    fn flush(&self) -> std::io::Result<()> {
        if self.1.load(Ordering::SeqCst) {
            Err(std::io::ErrorKind::ReadOnlyFilesystem.into())
        } else {
            Ok(())
        }
    }
}

/// Where another host took the volume before this one changed anything, nothing is lost: closing it is no failure.
#[test]
fn a_volume_that_was_taken_over_unchanged_closes_well() {
    let new = NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] };
    for fs_type in [FsType::Ext2, FsType::Ext4] {
        for (before, after, is_well) in [(false, false, true), (false, true, true), (true, false, false)] {
            let device = Arc::new(Taken(made(fs_type, ""), AtomicBool::new(false)));
            let volume = Volume::open(device.clone(), &writing()).unwrap();
            if before {
                volume.create(InodeNumber::ROOT, b"before", &new).unwrap();
            }
            device.1.store(true, Ordering::SeqCst);
            if after {
                volume.create(InodeNumber::ROOT, b"after", &new).unwrap_err();
            }
            let closed = volume.close();
            assert_eq!(closed.is_ok(), is_well, "{before} {after}: {closed:?}");
        }
    }
}

fn on_disk(image: &Path, fs_type: FsType, features: &str) -> Arc<FileDevice> {
    let file = File::options().read(true).write(true).create_new(true).open(image).unwrap();
    file.set_len(32 << 20).unwrap();
    let device = Arc::new(FileDevice::new(file).unwrap());
    let mut options = Options::new(fs_type);
    options.features = parse_features(features).unwrap();
    Plan::new(&options, device.size()).unwrap().write(&*device).unwrap();
    device
}

fn debugfs(image: &Path, request: &str) {
    let done = Command::new("debugfs").args(["-w", "-R", request]).arg(image).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Two deleted files that were open when the volume was left, and one that was not deleted.
fn leave_orphans(device: Arc<FileDevice>) -> [InodeNumber; 2] {
    let volume = Volume::open(device, &writing().unordered(true)).unwrap();
    let new = NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] };
    let orphans = [b"one", b"two", b"six"].map(|name| {
        let file = volume.create(InodeNumber::ROOT, name, &new).unwrap();
        volume.write_at(file, 0, &[7; 50_000], WriteOptions::default()).unwrap();
        volume.uses().retain(file).unwrap();
        file
    });
    volume.unlink(InodeNumber::ROOT, b"one").unwrap();
    volume.unlink(InodeNumber::ROOT, b"two").unwrap();
    volume.close().unwrap();
    [orphans[0], orphans[1]]
}

#[test]
fn files_deleted_while_open_are_gone_when_the_volume_is_opened_again() {
    let scratch = Scratch::new("orphans");
    let image = scratch.join("disk.img");
    let device = on_disk(&image, FsType::Ext4, "^has_journal");
    leave_orphans(device.clone());
    let superblock = read_superblock(&*device).unwrap();
    assert_ne!(superblock.s_last_orphan.get(), 0);
    let volume = Volume::open(device.clone(), &writing()).unwrap();
    assert!(volume.space().free().unwrap().0 > superblock.free_blocks_count() + 90);
    assert_eq!(volume.superblock().s_last_orphan.get(), 0);
    volume.close().unwrap();
    fsck::assert_clean(&image);
}

#[test]
fn a_list_of_orphans_that_leads_in_a_circle_is_refused_and_nothing_changed() {
    let scratch = Scratch::new("orphan-circle");
    let image = scratch.join("disk.img");
    let device = on_disk(&image, FsType::Ext2, "");
    leave_orphans(device.clone());
    debugfs(&image, "set_inode_field <12> dtime 13");
    let before = std::fs::read(&image).unwrap();
    let error = Volume::open(device, &writing()).err().unwrap();
    assert!(error.to_string().contains("circle"), "{error}");
    assert!(std::fs::read(&image).unwrap() == before);
}

/// An orphan of two links is one whose truncation was interrupted.
#[test]
fn files_whose_cut_was_interrupted_are_cut() {
    let scratch = Scratch::new("orphan-cut");
    let image = scratch.join("disk.img");
    let device = on_disk(&image, FsType::Ext2, "");
    leave_orphans(device.clone());
    let volume = Volume::open(device.clone(), &writing()).unwrap();
    let kept = volume.lookup(InodeNumber::ROOT, b"six").unwrap();
    volume.close().unwrap();
    debugfs(&image, "set_inode_field six size 1000");
    debugfs(&image, &format!("set_super_value last_orphan {kept}"));
    let volume = Volume::open(device, &writing()).unwrap();
    assert_eq!(volume.metadata(kept).unwrap().size, 1000);
    assert!(volume.metadata(kept).unwrap().sectors <= 8);
    volume.close().unwrap();
    fsck::assert_clean(&image);
}

#[test]
fn the_orphan_file_is_read_and_emptied() {
    let scratch = Scratch::new("orphan-file");
    let image = scratch.join("disk.img");
    let device = on_disk(&image, FsType::Ext4, "orphan_file,metadata_csum");
    let [last, first] = leave_orphans(device.clone());
    // Moves the list into the file, as Linux would have it.
    let mut raw = read_superblock(&*device).unwrap();
    assert_eq!(raw.s_last_orphan.get(), first.get());
    let reading = Volume::open(device.clone(), &OpenOptions::new()).unwrap();
    let format = reading.format().clone();
    let file = InodeNumber::new(raw.s_orphan_file_inum.get()).unwrap();
    let start = match reading.map(file).unwrap().next().unwrap().unwrap().state {
        State::Mapped(start) => start,
        other => panic!("{other:?}"),
    };
    let mut bytes = vec![0; format.geometry.block_size.bytes_usize()];
    let seed = format.sealer.inode_seed(file, reading.metadata(file).unwrap().generation);
    bytes[4..8].copy_from_slice(&first.get().to_le_bytes());
    let tail = bytes.len() - 8;
    bytes[tail..tail + 4].copy_from_slice(&orphan_file::ORPHAN_MAGIC.to_le_bytes());
    let checksum = seed.orphan_block_checksum(start, &bytes).unwrap();
    bytes[tail + 4..].copy_from_slice(&checksum.to_le_bytes());
    device.write_at(format.geometry.byte_offset(start), &bytes).unwrap();
    // The second of the list stays there.
    raw.s_last_orphan.set(last.get());
    let mut features = raw.features();
    features.ro_compat |= RoCompat::ORPHAN_PRESENT;
    raw.set_features(features);
    format.sealer.seal_superblock(&mut raw);
    device.write_at(1024, raw.as_bytes()).unwrap();

    let free = raw.free_blocks_count();
    let volume = Volume::open(device.clone(), &writing().unordered(true)).unwrap();
    assert!(volume.space().free().unwrap().0 > free + 20);
    volume.close().unwrap();
    assert!(!read_superblock(&*device).unwrap().features().ro_compat.contains(RoCompat::ORPHAN_PRESENT));
    fsck::assert_clean(&image);
}

#[test]
fn policies_and_their_tunables_are_as_asked_for() {
    use platfs::placement::{BlockPolicyKind, DirectoryPolicyKind};
    let new = NewInode { kind: Kind::Directory, attributes: Attributes::default(), xattrs: &[] };
    let groups_used = |directories| {
        let device = MemoryDevice::new(64 << 20);
        let options = Options { block_size: Some(1024), ..Options::new(FsType::Ext2) };
        Plan::new(&options, device.size()).unwrap().write(&device).unwrap();
        let volume = Volume::open(Arc::new(device), &writing().directories(directories)).unwrap();
        let above = volume.create(InodeNumber::ROOT, b"above", &new).unwrap();
        let made = (0..6).map(|i| volume.create(above, format!("{i}").as_bytes(), &new).unwrap());
        let group = |inode: InodeNumber| (inode.0.get() - 1) / volume.format().geometry.inodes_per_group;
        made.map(group).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(groups_used(DirectoryPolicyKind::Spread), 6);
    // A group of 8 MiB holds a few directories of 1 MiB each.
    assert_eq!(groups_used(DirectoryPolicyKind::Dirpref), 2);

    let windows = |value| writing().policy(BlockPolicyKind::Window).tunables(&[("rsv_default", value)]);
    assert!(Volume::open(made(FsType::Ext2, ""), &windows(16)).is_ok());
    for wrong in [windows(u32::MAX), writing().tunables(&[("rsv_default", 16)])] {
        let refused = Volume::open(made(FsType::Ext2, ""), &wrong).err().unwrap();
        assert!(matches!(&refused, Error::Invalid(why) if why.contains("rsv_default")), "{refused}");
    }
}
