//! A check of volumes that our own plan made: silent, and repairs of what was planted.

use std::sync::Arc;

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
    use std::sync::atomic::Ordering;

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
