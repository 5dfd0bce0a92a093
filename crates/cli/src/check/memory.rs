//! How much memory a check may take: a volume that holds very much needs it, a hostile one must not take all.

/// What a check may take where the machine does not say what it has.
const LEAST: u64 = 2 << 30;

/// Three quarters of the machine's memory for what is known of the volume, and as much at most for repairs.
#[must_use]
pub fn bound() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    total(&text).map_or(LEAST, |bytes| (bytes / 4 * 3).max(LEAST))
}

/// All memory, in bytes, as Linux reports it.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_where_it_is_known() {
        assert_eq!(total("MemFree: 1 kB\nMemTotal:       24645900 kB\n"), Some(24_645_900 << 10));
        assert_eq!((total(""), total("MemTotal: much kB")), (None, None));
        assert!(bound() >= LEAST);
    }
}
