//! The repair of volumes with patches: what is repaired is sound.

#![no_main]

use libfuzzer_sys::fuzz_target;
use platfs::check::{Decision, Issue, Options, Sink, check};
use platfs::device::Device;
use platfs_fuzz::Patched;
use std::sync::Arc;

/// Repairs everything.
#[derive(Default)]
struct Repair {
    heard: Vec<String>,
    without: bool,
}

impl Sink for Repair {
    fn issue(&mut self, issue: Issue) -> Decision {
        self.without |= issue.repair.is_empty();
        if self.heard.len() < 100 {
            self.heard.push(format!("{} {:?} {}", issue.kind.id, issue.place, issue.found));
        }
        Decision::Repair
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some(device) = Patched::new(bytes) else { return };
    let options = Options { memory: 256 << 20, ..Options::default() };
    let mut first = Repair::default();
    let Ok(outcome) = check(Arc::new(device), &options, &mut first) else { return };
    if first.without {
        return;
    }
    let mut second = Repair::default();
    let again = check(Arc::clone(&outcome.repaired) as Arc<dyn Device>, &options, &mut second);
    assert!(again.is_ok() && second.heard.is_empty(), "{:#?}\nafter the repair of {:#?}", second.heard, first.heard);
});
