//! The mark in the superblock of a volume that soft updates write: that what a crash leaves is what they leave.
//!
//! A volume that was not closed cleanly may have been left by a program that keeps no order. The mark stands in the
//! field that says where the volume was last mounted, which is there to be read by people, and names the time of the
//! superblock's last write: any other writer of the volume changes one or the other.

use ondisk::superblock::RawSuperblock;

const WORDS: &str = "soft updates of platfs, ";

fn words(raw: &RawSuperblock) -> String {
    format!("{WORDS}{}", raw.times().written)
}

/// Marks a superblock whose times are those it is written with.
pub(crate) fn put(raw: &mut RawSuperblock) {
    let words = words(raw);
    raw.s_last_mounted = [0; 64];
    raw.s_last_mounted.iter_mut().zip(words.bytes()).for_each(|(to, byte)| *to = byte);
}

/// True if the volume was last written with soft updates, and not closed.
pub(crate) fn is_there(raw: &RawSuperblock) -> bool {
    raw.last_mounted() == words(raw).as_bytes()
}

/// Takes the mark off, if there is one, or the rest of one that does not count any more.
pub(crate) fn remove(raw: &mut RawSuperblock) {
    if raw.last_mounted().starts_with(WORDS.as_bytes()) {
        raw.s_last_mounted = [0; 64];
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    #[test]
    fn a_mark_counts_until_somebody_writes() {
        let mut raw = RawSuperblock::new_zeroed();
        let mut times = raw.times();
        times.written = 1_700_000_000;
        raw.set_times(times);
        assert!(!is_there(&raw));
        put(&mut raw);
        assert!(is_there(&raw));
        times.written += 1;
        raw.set_times(times);
        assert!(!is_there(&raw));
        remove(&mut raw);
        assert_eq!(raw.last_mounted(), b"");
    }
}
