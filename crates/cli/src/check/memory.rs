//! How much memory a check may take: a volume that holds very much needs it, a hostile one must not take all.

use crate::memory;

/// What a check may take where the machine does not say what it has.
const LEAST: u64 = 2 << 30;

/// Three quarters of the machine's memory for what is known of the volume, and as much at most for repairs.
#[must_use]
pub fn bound() -> u64 {
    memory::of_machine().map_or(LEAST, |bytes| (bytes / 4 * 3).max(LEAST))
}
