//! Finding the way again in a block with broken entries.
//!
//! Entries are a chain: each says where the next begins. A broken one breaks the chain, but what comes
//! behind it mostly is whole. So the places where a chain begins that ends exactly with the block are
//! looked for, from its end on, and only what is before the first of them is lost.

use ondisk::dirent::{Layout, entries_without_tail, entry_len};
use ondisk::units::InodeNumber;

/// Offset behind `at` where sound entries begin again; the end of the region if they never do.
/// `inodes` is the highest number that an entry may name; `opaque` names may hold any byte.
pub(super) fn next_sound(region: &[u8], layout: Layout, at: usize, inodes: u32, opaque: bool) -> usize {
    let end = region.len();
    // One that covers its own head only has the next where it says.
    let stated = region.get(at + 4..at + 6) == Some(&[8, 0]);
    let from = at.next_multiple_of(4).saturating_add(if stated { 8 } else { 12 });
    let mut sound = vec![false; end / 4 + 1];
    if let Some(last) = sound.get_mut(end / 4) {
        *last = true;
    }
    let mut first = end;
    for place in (from..end).step_by(4).rev() {
        let parsed = entries_without_tail(region.get(place..).unwrap_or_default(), layout).next();
        let Some(Ok(entry)) = parsed else { continue };
        let likely = entry.inode.is_none_or(|inode| inode.get() <= inodes)
            && entry.type_code <= 7
            && (opaque || entry.inode.is_none() || !entry.name.iter().any(|byte| matches!(byte, 0 | b'/')));
        if likely && sound.get((place + entry.len) / 4) == Some(&true) {
            if let Some(here) = sound.get_mut(place / 4) {
                *here = true;
            }
            first = place;
        }
    }
    // The likeliest place is the one that follows from the broken entry's own length of its name.
    let own = region.get(at + 6).map_or(end, |len| at + entry_len(usize::from(*len)));
    if own >= from && own < end && sound.get(own / 4) == Some(&true) { own } else { first }
}

/// Reads what is left of a broken entry whose successor begins at `next`: its inode and the length of
/// its name.
pub(super) fn head(region: &[u8], at: usize, next: usize) -> Option<(InodeNumber, usize)> {
    let header: [u8; 8] = *region.get(at..)?.first_chunk()?;
    let [i0, i1, i2, i3, _, _, name_len, _] = header;
    let inode = InodeNumber::new(u32::from_le_bytes([i0, i1, i2, i3]))?;
    let len = usize::from(name_len);
    let name = region.get(at + 8..at + 8 + len)?;
    let sound = len > 0 && at + entry_len(len) <= next && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
    sound.then_some((inode, len))
}

#[cfg(test)]
mod tests {
    use ondisk::dirent::{self, Name, Record};
    use ondisk::inode::FileType;
    use ondisk::units::BlockSize;

    use super::*;

    #[test]
    fn only_the_broken_entry_is_lost() {
        let layout =
            Layout { block_size: BlockSize::from_bytes(1024).unwrap(), file_types: true, checksums: false };
        let names: Vec<String> = (0..20).map(|at| format!("file-number-{at}")).collect();
        let record = |at: usize| {
            let name = Name::new(names[at].as_bytes()).unwrap();
            Record::new(name, InodeNumber::constant(12), FileType::Regular, layout)
        };
        let mut block = vec![0; 1024];
        assert!(dirent::fill(&mut block, layout, (0..20).map(record)));
        let places: Vec<_> = dirent::entries(&block, layout).map(|entry| entry.unwrap().offset).collect();
        for (at, bad) in [(3, [0_u8, 0]), (7, [0xFF, 0xFF]), (10, [13, 0]), (12, [0, 2])] {
            let mut broken = block.clone();
            broken[places[at] + 4..places[at] + 6].copy_from_slice(&bad);
            assert_eq!(next_sound(&broken, layout, places[at], 1000, false), places[at + 1], "{bad:?}");
            let (inode, len) = head(&broken, places[at], places[at + 1]).unwrap();
            assert_eq!((inode.get(), len), (12, names[at].len()));
        }
        let noise = vec![0xAB; 1024];
        assert_eq!(next_sound(&noise, layout, 0, 1000, false), 1024);
    }
}
