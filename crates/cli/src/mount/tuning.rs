//! What the kernel lets a mount have of memory. Its defaults for FUSE are careful with servers that
//! anybody may run: one part in a hundred of memory for pages not written yet, strictly. Where we may,
//! a mount gets what a disk gets; where not, it is only slower.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Read-ahead in KiB: one request of the longest.
const READ_AHEAD: u32 = 1024;

/// Raises the limits of what is mounted on a directory, as far as that is allowed.
pub fn raise_limits(directory: &Path) {
    let Ok(facts) = fs::metadata(directory) else { return };
    let device = facts.dev();
    let name = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let knobs = PathBuf::from("/sys/class/bdi").join(name);
    for (knob, value) in [("strict_limit", 0), ("max_ratio", 100), ("read_ahead_kb", READ_AHEAD)] {
        // Only root may, and not every kernel has them all.
        let _ = fs::write(knobs.join(knob), value.to_string());
    }
}
