//! Where to divide a leaf that is too full.

use ondisk::dirent::Record;
use ondisk::dirhash::NameHasher;

/// An entry of a leaf, and the bytes that it covers there with the slack behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafEntry<'r> {
    pub(super) record: Record<'r>,
    pub(super) len: usize,
}

/// The entries of two leaves and the index hash of the second.
#[derive(Debug)]
pub(super) struct Halves<'r> {
    pub(super) low: Vec<Record<'r>>,
    pub(super) high: Vec<Record<'r>>,
    /// Least hash of `high`; bit 0 is set if `low` ends with the same hash.
    pub(super) hash: u32,
}

/// Divides entries by hash into two leaves of at most `space` bytes, as evenly as their sizes
/// allow. Names with one hash stay together unless that would leave one leaf three times as full
/// as the other: a search that has to go on to a second leaf costs more than uneven leaves.
///
/// The entries take at most `space` bytes and one entry more, and no entry is larger than half the
/// rest, so that an even division always fits.
pub(super) fn halve(records: Vec<Record<'_>>, space: usize, hasher: NameHasher) -> Halves<'_> {
    let mut hashed: Vec<_> = records.into_iter().map(|r| (hasher.hash(r.name()).major, r)).collect();
    hashed.sort_by_key(|(hash, _)| *hash);
    let sizes: Vec<_> = hashed.iter().map(|(hash, record)| (*hash, record.needs())).collect();
    let cut = cut(&sizes, space);
    let high = hashed.split_off(cut.min(hashed.len()));
    let last = hashed.last().map(|(hash, _)| *hash);
    let hash = high.first().map_or(0, |(hash, _)| hash | u32::from(last == Some(*hash)));
    let records = |half: Vec<(u32, _)>| half.into_iter().map(|(_, record)| record).collect();
    Halves { low: records(hashed), high: records(high), hash }
}

/// Divides a leaf as Linux does (`do_split`), and adds a record to its half. Entries of the greatest hashes leave, in order
/// of hash, while they cover at most half of a block; those that stay keep their order. If that would move all, half of them
/// by number leave.
///
/// `entries` are of one leaf, at least two.
pub(super) fn halve_as_linux<'r>(
    entries: &[LeafEntry<'r>],
    record: Record<'r>,
    block_size: usize,
    hasher: NameHasher,
) -> Halves<'r> {
    let hash_of = |record: &Record<'_>| hasher.hash(record.name()).major;
    let mut hashed: Vec<_> = entries.iter().enumerate().map(|(at, e)| (hash_of(&e.record), at)).collect();
    hashed.sort_unstable();
    let sizes: Vec<_> = hashed.iter().map(|&(_, at)| entries[at].len).collect();
    let leaving = hashed.split_off(cut_as_linux(&sizes, block_size));
    let least = leaving.first().map_or(0, |(hash, _)| *hash);
    let goes_on = hashed.last().is_some_and(|(hash, _)| *hash == least);
    let mut staying: Vec<_> = hashed.into_iter().map(|(_, at)| at).collect();
    staying.sort_unstable();
    let mut low: Vec<_> = staying.into_iter().map(|at| entries[at].record).collect();
    let mut high: Vec<_> = leaving.into_iter().map(|(_, at)| entries[at].record).collect();
    if hash_of(&record) >= least {
        high.push(record)
    } else {
        low.push(record)
    }
    Halves { low, high, hash: least | u32::from(goes_on) }
}

/// Number of entries that stay, of the bytes they cover in order of hash.
fn cut_as_linux(sizes: &[usize], block_size: usize) -> usize {
    let (mut covered, mut moved) = (0, 0);
    for len in sizes.iter().rev() {
        if covered + len / 2 > block_size / 2 {
            return sizes.len() - moved;
        }
        covered += len;
        moved += 1;
    }
    sizes.len() / 2
}

/// Number of entries in the lower half, of (hash, bytes) in order of hash.
fn cut(sizes: &[(u32, usize)], space: usize) -> usize {
    let total: usize = sizes.iter().map(|(_, bytes)| bytes).sum();
    let (mut even, mut clean) = ((usize::MAX, 0), (usize::MAX, 0));
    let mut low = 0;
    for (at, pair) in sizes.windows(2).enumerate() {
        low += pair[0].1;
        let high = total - low;
        if low > space || high > space {
            continue;
        }
        let candidate = (low.abs_diff(high), at + 1);
        even = even.min(candidate);
        if pair[0].0 != pair[1].0 {
            clean = clean.min(candidate);
        }
    }
    if clean.0 <= total / 2 { clean.1 } else { even.1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_halves_by_bytes_not_by_number() {
        assert_eq!(cut(&[(2, 100), (4, 12), (6, 12), (8, 12), (10, 64)], 1000), 1);
        assert_eq!(cut(&[(2, 12), (4, 12), (6, 12), (8, 12)], 1000), 2);
    }

    #[test]
    fn equal_hashes_stay_together_unless_one_leaf_gets_three_times_the_other() {
        assert_eq!(cut(&[(2, 12), (4, 12), (4, 12), (6, 12)], 1000), 1);
        assert_eq!(cut(&[(2, 12), (4, 12), (4, 12), (4, 12), (4, 12), (4, 12)], 1000), 3);
        assert_eq!(cut(&[(4, 12); 6], 1000), 3);
    }

    #[test]
    fn linux_moves_what_covers_half_a_block_and_of_all_half_by_number() {
        assert_eq!(cut_as_linux(&[256, 256, 256, 256], 1024), 2);
        // The second from above would lie with its greater part in the lower half.
        assert_eq!(cut_as_linux(&[100, 24, 600, 300], 1024), 3);
        assert_eq!(cut_as_linux(&[12, 12, 12, 12], 1024), 2);
    }

    #[test]
    fn neither_half_exceeds_its_leaf() {
        // Fullest leaf of 1 KiB with one more longest name.
        let sizes = [(2, 264), (4, 264), (6, 264), (8, 220), (10, 264)];
        let cut = cut(&sizes, 1012);
        let bytes = |part: &[(u32, usize)]| part.iter().map(|(_, bytes)| bytes).sum::<usize>();
        assert!(bytes(&sizes[..cut]) <= 1012 && bytes(&sizes[cut..]) <= 1012);
    }
}
