//! A check of volumes that our own plan made: silent, and repairs of what was planted.

use std::sync::Arc;

use super::*;
use crate::device::MemoryDevice;
use crate::mkfs::{FsType, Options as MkfsOptions, Plan};

/// Hears everything and repairs everything.
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
