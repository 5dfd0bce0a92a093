//! Regions of attributes: entries that grow up and values that grow down, judged one by one.

use ondisk::units::InodeNumber;
use ondisk::xattr::{
    ENTRY_LEN, Entry, HEADER_LEN, INODE_HEADER_LEN, NameIndex, RawEntry, Value, entry_hash, entry_hash_signed,
};
use zerocopy::FromBytes;

/// Largest value that is believed, in bytes.
const VALUE_MAX: usize = 1 << 24;

/// A region, from its header on.
#[derive(Clone, Copy)]
pub(super) struct Region<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) in_inode: bool,
    /// True if empty values must lie in the region too: needed where contents are looked for in it.
    pub(super) strict: bool,
}

/// Flaw of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flaw {
    /// Its place or name: what follows can't be found.
    Structure,
    /// It has no name.
    Name,
    /// Its value lies where none can be.
    Value,
    /// Its value, which is empty, does.
    EmptyValue,
    /// Its hash is not that of name and value.
    Hash,
}

/// An entry with its parts, as far as they make sense.
pub(super) struct ParsedEntry<'a> {
    pub(super) raw: &'a RawEntry,
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) flaw: Option<Flaw>,
}

impl<'a> ParsedEntry<'a> {
    /// The entry, to be stored again.
    pub(super) fn entry(&self) -> Entry<'a> {
        let value = match self.value_inode() {
            Some(number) => Value::Inode { number, size: self.raw.e_value_size.get() },
            None => Value::Here(self.value),
        };
        Entry { index: NameIndex(self.raw.e_name_index), name: self.name, value, hash: self.raw.e_hash.get() }
    }

    pub(super) fn value_inode(&self) -> Option<InodeNumber> {
        InodeNumber::new(self.raw.e_value_inum.get())
    }
}

fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// Takes a part of a region; false where it lies outside or is taken.
fn take(spans: &mut Vec<(usize, usize)>, len: usize, start: usize, count: usize) -> bool {
    let end = start.saturating_add(count);
    if end > len || spans.iter().any(|(from, until)| start < *until && *from < end) {
        return false;
    }
    match spans.last_mut() {
        Some(last) if last.1 == start => last.1 = end,
        Some(last) if last.0 == end => last.0 = start,
        _ => spans.push((start, end)),
    }
    true
}

impl<'a> Region<'a> {
    fn header_len(self) -> usize {
        if self.in_inode { INODE_HEADER_LEN } else { HEADER_LEN }
    }

    /// Where offsets of values count from.
    fn base(self) -> usize {
        if self.in_inode { INODE_HEADER_LEN } else { 0 }
    }

    /// Shows each entry, until `each` has seen enough; returns true if the end of the list is right too.
    /// `spans` is memory to use.
    pub(super) fn walk(
        self,
        spans: &mut Vec<(usize, usize)>,
        mut each: impl FnMut(ParsedEntry<'a>) -> bool,
    ) -> bool {
        let mut at = self.header_len();
        spans.clear();
        if !take(spans, self.bytes.len(), 0, at) {
            return false;
        }
        let mut room = self.bytes.len() - at;
        while !self.is_end(at, room) {
            let Some((seen, next)) = self.entry(at, &mut room, spans) else {
                return false;
            };
            let stop = seen.flaw == Some(Flaw::Structure);
            if !each(seen) || stop {
                return !stop;
            }
            at = next;
        }
        take(spans, self.bytes.len(), at, 4)
    }

    /// Returns true if the list of entries ends here.
    fn is_end(self, at: usize, room: usize) -> bool {
        let end = self.bytes.get(at..at + 4).is_none_or(|word| word == [0; 4]);
        end || self.in_inode && room < ENTRY_LEN
    }

    /// The entry at an offset, and the offset of the next.
    fn entry(
        self,
        at: usize,
        room: &mut usize,
        spans: &mut Vec<(usize, usize)>,
    ) -> Option<(ParsedEntry<'a>, usize)> {
        let (raw, tail) = RawEntry::ref_from_prefix(self.bytes.get(at..)?).ok()?;
        let len = usize::from(raw.e_name_len);
        let whole = padded(ENTRY_LEN + len);
        let name = tail.get(..len);
        let mut seen = ParsedEntry { raw, name: name.unwrap_or_default(), value: &[], flaw: None };
        if name.is_none() || !take(spans, self.bytes.len(), at, whole) {
            seen.flaw = Some(Flaw::Structure);
            return Some((seen, at));
        }
        *room = room.saturating_sub(whole);
        if !self.in_inode && raw.e_name_index == 0 {
            seen.flaw = Some(Flaw::Name);
        } else if raw.e_value_inum.get() == 0 {
            self.value(&mut seen, room, spans);
        }
        Some((seen, at + whole))
    }

    /// A value beside its entry, and the hash of both.
    fn value(self, seen: &mut ParsedEntry<'a>, room: &mut usize, spans: &mut Vec<(usize, usize)>) {
        let size = seen.raw.e_value_size.get() as usize;
        let start = self.base() + usize::from(seen.raw.e_value_offs.get());
        let fits =
            if self.in_inode { size <= *room } else { size <= VALUE_MAX && start + size <= self.bytes.len() };
        if size == 0 && self.strict && start > self.bytes.len() {
            seen.flaw = Some(Flaw::EmptyValue);
            return;
        }
        if !fits || size > 0 && !take(spans, self.bytes.len(), start, padded(size)) {
            seen.flaw = Some(Flaw::Value);
            return;
        }
        if self.in_inode {
            *room -= size;
        }
        let whole = self.bytes.get(start..start + padded(size)).unwrap_or_default();
        seen.value = whole.get(..size).unwrap_or_default();
        let hash = seen.raw.e_hash.get();
        let counts = hash != 0 || !self.in_inode;
        if counts && hash != entry_hash(seen.name, whole) && hash != entry_hash_signed(seen.name, whole) {
            seen.flaw = Some(Flaw::Hash);
        }
    }
}
