//! Caches and places of the machine's processors, as `/sys` and `/proc` state them.
//!
//! Owns: how many there could be, whether some share a cache, and which one a thread ran on. Excludes what follows from
//! it.

#![expect(clippy::disallowed_methods, reason = "what the kernel shows of threads and processors")]

use std::fs;
use std::io;
use std::path::Path;

const PROCESSORS: &str = "/sys/devices/system/cpu";

/// Processors that there could be, as the kernel counts queues.
pub(crate) fn possible() -> io::Result<u16> {
    let text = fs::read_to_string(Path::new(PROCESSORS).join("possible"))?;
    count(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// How many numbers a list of ranges (`0-3,8`) has.
fn count(ranges: &str) -> Option<u16> {
    ranges.trim().split(',').try_fold(0_u16, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// Returns true if any two processors share a cache: among those the kernel moves a thread as it is woken. Where nothing is
/// known of caches, any two do.
pub(super) fn share_a_cache() -> bool {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return false;
    }
    let mut known = false;
    for processor in 0..possible().unwrap_or(0) {
        for level in 0..8 {
            let list = format!("{PROCESSORS}/cpu{processor}/cache/index{level}/shared_cpu_list");
            let Ok(list) = fs::read_to_string(list) else { break };
            known = true;
            if count(&list).is_some_and(|count| count > 1) {
                return true;
            }
        }
    }
    !known
}

/// The processor that a thread ran on last; `None` where `/proc` does not say it.
pub(super) fn of(thread: u32) -> Option<usize> {
    processor(&fs::read_to_string(format!("/proc/{thread}/stat")).ok()?)
}

/// The processor in a line about a thread. Its name may hold anything.
fn processor(stat: &str) -> Option<usize> {
    // Counted from what follows the name, the third field.
    const FIELD: usize = 39 - 3;
    stat.rsplit_once(") ")?.1.split_ascii_whitespace().nth(FIELD)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_a_processor() {
        assert!(of(std::process::id()).is_some_and(|processor| processor < usize::from(possible().unwrap())));
        assert_eq!(of(0), None);
        assert_eq!(processor("7 (a) b) S 1"), None);
    }

    #[test]
    fn ranges_of_processors_are_counted() {
        assert_eq!(count("0-1\n"), Some(2));
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-3,8-11,17"), Some(9));
        for nonsense in ["", "a", "3-1", "0-65535", "1-"] {
            assert_eq!(count(nonsense), None, "{nonsense}");
        }
    }
}
