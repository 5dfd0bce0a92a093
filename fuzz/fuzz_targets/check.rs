//! The check of any bytes: patches over volumes; and the input itself as a superblock and what follows it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use platfs::check::{Decision, Issue, Options, Sink, check};
use platfs::device::{Device, MemoryDevice};
use platfs_fuzz::Patched;
use std::sync::Arc;

/// Leaves everything as it is.
#[derive(Default)]
struct Look(Vec<&'static str>);

impl Sink for Look {
    fn issue(&mut self, issue: Issue) -> Decision {
        if self.0.len() < 100 {
            self.0.push(issue.kind.id);
        }
        Decision::Leave
    }
}

fuzz_target!(|bytes: &[u8]| {
    let options = Options { memory: 256 << 20, ..Options::default() };
    let raw = MemoryDevice::new(4 << 20);
    if raw.write_at(1024, bytes.get(..1 << 20).unwrap_or(bytes)).is_ok() {
        let _ = raw.write_at(1024 + 56, &[0x53, 0xEF]);
        let _ = check(Arc::new(raw), &options, &mut Look::default());
    }
    let Some(device) = Patched::new(bytes) else { return };
    let mut look = Look::default();
    if let Ok(outcome) = check(Arc::new(device), &options, &mut look) {
        // What waits in the journal is brought in whatever is decided.
        let replayed = look.0.contains(&"journal-needs-replay");
        assert!(replayed || outcome.repaired.is_unchanged(), "a change that nobody decided for: {:?}", look.0);
    }
});
