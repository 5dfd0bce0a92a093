//! A check of volumes that our own plan made: silent, and repairs of what was planted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use platfs::mkfs::{FsType, Options as MkfsOptions, Plan};
use platfs_device::MemoryDevice;

/// Receives every issue and repairs all.
#[derive(Default)]
struct Ears(Vec<Issue>);

impl Sink for Ears {
    fn issue(&mut self, issue: Issue) -> Decision {
        self.0.push(issue);
        Decision::Repair
    }
}

fn empty_volume() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(8 << 20));
    Plan::new(&MkfsOptions::new(FsType::Ext4), 8 << 20).unwrap().write(&*device).unwrap();
    device
}

#[test]
fn an_empty_volume_is_sound() {
    let mut ears = Ears::default();
    let outcome = check(empty_volume(), &Options::default(), &mut ears).unwrap();
    assert_eq!(ears.0, []);
    assert!(outcome.summary.is_sound() && outcome.repaired.is_unchanged());
}

/// Nothing is written to a block whose owners are not known, nor to one that two own and are to.
#[test]
fn blocks_are_written_once_their_owners_are_known() {
    let staged = Arc::new(Staged::new(empty_volume(), 1 << 20));
    let mut ears = Ears::default();
    let subject =
        opening::open(&staged, &Options::default(), &NoWriter, &mut Report::new(&mut ears)).unwrap();
    let place = ondisk::units::Block(4000);
    let bytes = vec![7; subject.block_len()];
    let refused = subject.write(place, &bytes).unwrap_err().to_string();
    assert!(refused.contains("block 4000") && staged.is_unchanged(), "{refused}");
    subject.owners_known.store(true, Ordering::Relaxed);
    let cluster = subject.geometry.cluster_of(place).0;
    subject.contested.lock().unwrap().insert(cluster);
    subject.write(place, &bytes).unwrap();
    assert!(staged.is_unchanged());
    subject.contested.lock().unwrap().clear();
    subject.write(place, &bytes).unwrap();
    assert_eq!(subject.block(place).unwrap(), bytes);
}

/// Counts what is read, and knows where it holds nothing.
struct Sparse(MemoryDevice, AtomicU64);

impl Device for Sparse {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.1.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write_at(offset, data)
    }

    fn flush(&self) -> std::io::Result<()> {
        self.0.flush()
    }

    fn data_from(&self, offset: u64) -> u64 {
        let mut page = [0; 4096];
        let mut at = offset;
        while at + 4096 <= self.size() && self.0.read_at(at, &mut page).is_ok() && page == [0; 4096] {
            at += 4096;
        }
        at
    }
}

/// Tables of volumes without flags of groups are read to their ends, but for what storage knows as empty.
#[test]
fn holes_of_inode_tables_are_not_read() {
    let device = MemoryDevice::new(1 << 30);
    Plan::new(&MkfsOptions::new(FsType::Ext3), 1 << 30).unwrap().write(&device).unwrap();
    let device = Arc::new(Sparse(device, AtomicU64::new(0)));
    let mut ears = Ears::default();
    check(Arc::clone(&device) as Arc<dyn Device>, &Options::default(), &mut ears).unwrap();
    assert_eq!(ears.0, []);
    // 65,536 inodes of 256 bytes.
    assert!(device.1.load(Ordering::Relaxed) < 4 << 20, "{:?} bytes", device.1);
}

/// Repairs all but what is put in the place of `.`.
#[derive(Default)]
struct KeepsDot(Vec<Issue>);

impl Sink for KeepsDot {
    fn issue(&mut self, issue: Issue) -> Decision {
        let decision = if issue.kind.id == "directory-dot" { Decision::Leave } else { Decision::Repair };
        self.0.push(issue);
        decision
    }
}

#[test]
fn dotdot_has_no_repair_where_what_stays_before_it_takes_its_room() {
    let device = MemoryDevice::new(8 << 20);
    Plan::new(&MkfsOptions::new(FsType::Ext2), 8 << 20).unwrap().write(&device).unwrap();
    let mut bytes = vec![0; 8 << 20];
    device.read_at(0, &mut bytes).unwrap();
    let dot = [2, 0, 0, 0, 12, 0, 1, 2, b'.', 0, 0, 0];
    let root = (0..bytes.len()).step_by(1024).find(|at| bytes[*at..].starts_with(&dot)).unwrap();
    // One entry of another name fills the block.
    device.write_at(root as u64, &[2, 0, 0, 0, 0, 4, 1, 2, b'x']).unwrap();
    let mut sink = KeepsDot::default();
    check(Arc::new(device), &Options::default(), &mut sink).unwrap();
    let dotdot = sink.0.iter().find(|issue| issue.kind.id == "directory-dotdot").unwrap();
    assert_eq!(dotdot.repair, "", "it would be said to be put back, and not be");
}
