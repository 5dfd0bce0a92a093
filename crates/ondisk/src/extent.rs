//! Extent tree nodes: the 60 bytes in the inode and whole blocks below it.
//!
//! Source: the ext4 data structure documentation of Linux ("Extent Tree"). A node is decoded into
//! a list and written back whole; the walk through the tree, and where nodes lie, belong to the
//! file system.

use crate::invariant_or;
use crate::units::{Block, FileBlock, high_u32, join_u64, low_u16, low_u32, saturated};

/// `eh_magic`.
pub const EXTENT_MAGIC: u16 = 0xF30A;
/// Bytes of the header and of each entry.
pub const ENTRY_LEN: usize = 12;
/// Deepest tree the format can need: five levels cover 2^32 blocks even with 1 KiB nodes.
pub const MAX_DEPTH: u16 = 5;
/// Longest initialised extent, in blocks.
pub const MAX_WRITTEN: u32 = 32_768;
/// Longest unwritten extent, in blocks.
pub const MAX_UNWRITTEN: u32 = 32_767;

/// A run of file blocks on a run of disk blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First file block.
    pub logical: FileBlock,
    /// First disk block.
    pub start: Block,
    /// Blocks, 1 to 32,768.
    pub count: u32,
    /// Allocated but reads as zeros.
    pub unwritten: bool,
}

impl Extent {
    /// Reads an entry of a leaf; unlike in a decoded [`Node`] the count may be 0, and nothing is
    /// known of its neighbours. Missing bytes read as zeros.
    #[must_use]
    #[inline]
    pub fn read(record: &[u8]) -> Self {
        // spec: extent: lengths above 32,768 are unwritten.
        let stored = u32::from(u16_at(record, 4));
        let unwritten = stored > MAX_WRITTEN;
        Extent {
            logical: FileBlock(u32_at(record, 0)),
            start: Block(join_u64(u32::from(u16_at(record, 6)), u32_at(record, 8))),
            count: if unwritten { stored - MAX_WRITTEN } else { stored },
            unwritten,
        }
    }

    /// The entry as a leaf holds it.
    #[must_use]
    pub fn encode(&self) -> [u8; ENTRY_LEN] {
        let stored = if self.unwritten { self.count + MAX_WRITTEN } else { self.count };
        let mut record = [0; ENTRY_LEN];
        write_at(&mut record, 0, &self.logical.0.to_le_bytes());
        write_at(&mut record, 4, &low_u16(stored).to_le_bytes());
        write_at(&mut record, 6, &low_u16(high_u32(self.start.0)).to_le_bytes());
        write_at(&mut record, 8, &low_u32(self.start.0).to_le_bytes());
        record
    }

    /// One past the last file block; may be 2^32.
    #[must_use]
    #[inline]
    pub fn logical_end(&self) -> u64 {
        u64::from(self.logical.0) + u64::from(self.count)
    }

    /// One past the last disk block.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start.0.saturating_add(u64::from(self.count))
    }
}

/// An index entry: the subtree that begins at a file block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Child {
    /// First file block the subtree may hold.
    pub logical: FileBlock,
    /// The node's block.
    pub node: Block,
}

impl Child {
    /// Reads an entry of an index node. Missing bytes read as zeros.
    #[must_use]
    #[inline]
    pub fn read(record: &[u8]) -> Self {
        let node = Block(join_u64(u32::from(u16_at(record, 8)), u32_at(record, 4)));
        Child { logical: FileBlock(u32_at(record, 0)), node }
    }

    /// The entry as an index node holds it.
    #[must_use]
    pub fn encode(&self) -> [u8; ENTRY_LEN] {
        let mut record = [0; ENTRY_LEN];
        write_at(&mut record, 0, &self.logical.0.to_le_bytes());
        write_at(&mut record, 4, &low_u32(self.node.0).to_le_bytes());
        write_at(&mut record, 8, &low_u16(high_u32(self.node.0)).to_le_bytes());
        record
    }
}

/// The head of a node, before anything about it is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// [`EXTENT_MAGIC`].
    pub magic: u16,
    /// Entries in use.
    pub count: u16,
    /// Entries that fit.
    pub capacity: u16,
    /// Levels below; 0 for a leaf.
    pub depth: u16,
}

impl Head {
    /// Reads the head of a node. Missing bytes read as zeros.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        Head {
            magic: u16_at(bytes, 0),
            count: u16_at(bytes, 2),
            capacity: u16_at(bytes, 4),
            depth: u16_at(bytes, 6),
        }
    }

    /// Writes the head over that of a node; the generation behind it stays.
    pub fn store(&self, bytes: &mut [u8]) {
        let head = [self.magic, self.count, self.capacity, self.depth].map(u16::to_le_bytes).concat();
        write_at(bytes, 0, &head);
    }
}

/// Entries of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entries {
    /// Depth 0: extents.
    Leaf(Vec<Extent>),
    /// Depth 1 and more: subtrees.
    Index(Vec<Child>),
}

/// A decoded node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Levels below this node; 0 for a leaf.
    pub depth: u16,
    /// Entries that fit.
    pub capacity: u16,
    /// The entries, rising and without overlap.
    pub entries: Entries,
}

/// Entries that fit into a node of `len` bytes.
#[must_use]
pub fn capacity(len: usize) -> u16 {
    saturated::<u16>((len / ENTRY_LEN).saturating_sub(1))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

impl Node {
    /// An empty leaf for a node of `len` bytes.
    #[must_use]
    pub fn empty(len: usize) -> Self {
        Node { depth: 0, capacity: capacity(len), entries: Entries::Leaf(Vec::new()) }
    }

    /// Decodes a node.
    ///
    /// # Errors
    /// The rule that is broken, in words that complete "extent node: ...".
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let (Head { count, capacity, depth, .. }, records) = checked(bytes)?;
        let entries = if depth == 0 {
            let mut extents = Vec::with_capacity(usize::from(count));
            check_extents(records, |extent| extents.push(extent))?;
            Entries::Leaf(extents)
        } else {
            let mut children = Vec::with_capacity(usize::from(count));
            check_children(records, |child| children.push(child))?;
            Entries::Index(children)
        };
        Ok(Node { depth, capacity, entries })
    }

    /// True if the entries rise: extents without overlap, children by their first file block.
    #[must_use]
    pub fn is_in_order(&self) -> bool {
        match &self.entries {
            Entries::Leaf(extents) => extents.is_sorted_by(|a, b| a.logical_end() <= u64::from(b.logical.0)),
            Entries::Index(children) => children.is_sorted_by(|a, b| a.logical < b.logical),
        }
    }

    /// Writes the node over a buffer it fits; the generation and bytes behind the entries stay.
    pub fn store(&self, bytes: &mut [u8]) {
        let count = match &self.entries {
            Entries::Leaf(extents) => extents.len(),
            Entries::Index(children) => children.len(),
        };
        debug_assert!(count <= usize::from(self.capacity) && self.capacity <= capacity(bytes.len()));
        let count =
            invariant_or!(u16::try_from(count), return, "a node has no more entries than room for them");
        Head { magic: EXTENT_MAGIC, count, capacity: self.capacity, depth: self.depth }.store(bytes);
        match &self.entries {
            Entries::Leaf(extents) => {
                for (index, extent) in extents.iter().enumerate() {
                    write_at(bytes, ENTRY_LEN * (index + 1), &extent.encode());
                }
            }
            Entries::Index(children) => {
                for (index, child) in children.iter().enumerate() {
                    write_at(bytes, ENTRY_LEN * (index + 1), &child.encode());
                }
            }
        }
    }

    /// Offset of the checksum tail in a node block: behind the last possible entry.
    #[must_use]
    pub fn tail_offset(bytes: &[u8]) -> usize {
        ENTRY_LEN * (1 + usize::from(u16_at(bytes, 4)))
    }
}

fn write_at(bytes: &mut [u8], at: usize, data: &[u8]) {
    let to = invariant_or!(bytes.get_mut(at..at + data.len()), return, "an entry lies inside its node");
    to.copy_from_slice(data);
}

/// The head of a node, and its records, as many as are in use.
fn checked(bytes: &[u8]) -> Result<(Head, impl Iterator<Item = &[u8]>), String> {
    // spec: extent
    let head @ Head { magic, count, capacity: most, depth } = Head::read(bytes);
    if magic != EXTENT_MAGIC {
        return Err(format!("magic is {magic:#06x}, not {EXTENT_MAGIC:#06x}"));
    }
    if most > capacity(bytes.len()) || most == 0 || count > most {
        return Err(format!("{count} entries of at most {most} do not fit {} bytes", bytes.len()));
    }
    if depth > MAX_DEPTH {
        return Err(format!("depth {depth} is over {MAX_DEPTH}"));
    }
    if depth > 0 && count == 0 {
        return Err("index node is empty".to_owned());
    }
    let records = bytes.get(ENTRY_LEN..).unwrap_or_default().chunks_exact(ENTRY_LEN);
    Ok((head, records.take(usize::from(count))))
}

/// Hands out the extents of a leaf, which rise and do not overlap.
fn check_extents<'a>(
    records: impl Iterator<Item = &'a [u8]>,
    mut each: impl FnMut(Extent),
) -> Result<(), String> {
    let mut free_from = 0_u64;
    for record in records {
        let extent = Extent::read(record);
        if extent.count == 0 {
            return Err(format!("extent at file block {} is empty", extent.logical));
        }
        if u64::from(extent.logical.0) < free_from || extent.logical_end() > 1 << 32 {
            return Err(format!("extent at file block {} overlaps or is out of order", extent.logical));
        }
        free_from = extent.logical_end();
        each(extent);
    }
    Ok(())
}

/// Hands out the entries of an index node, which rise.
fn check_children<'a>(
    records: impl Iterator<Item = &'a [u8]>,
    mut each: impl FnMut(Child),
) -> Result<(), String> {
    let mut last = None;
    for record in records {
        let child = Child::read(record);
        if last.is_some_and(|last| last >= child.logical) {
            return Err(format!("index entry at file block {} is out of order", child.logical));
        }
        last = Some(child.logical);
        each(child);
    }
    Ok(())
}

/// The entry at or before a file block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Of a leaf; none if the block lies before all of them.
    Extent(Option<Extent>),
    /// Of an index node; a block before all of them belongs to the first.
    Child(Child),
}

/// Answer of a node about a file block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lookup {
    /// Levels below the node.
    pub depth: u16,
    /// The entry at or before the block.
    pub entry: Entry,
    /// Where the entry behind that one begins.
    pub next: Option<FileBlock>,
}

impl Lookup {
    /// Looks for a file block in a node, which is checked as [`Node::parse`] does, without decoding it into lists.
    ///
    /// # Errors
    /// As [`Node::parse`].
    pub fn find(bytes: &[u8], at: FileBlock) -> Result<Self, String> {
        let (Head { depth, .. }, records) = checked(bytes)?;
        let mut next = None;
        if depth == 0 {
            let mut before = None;
            check_extents(records, |extent| {
                if extent.logical <= at {
                    before = Some(extent);
                } else if next.is_none() {
                    next = Some(extent.logical);
                }
            })?;
            return Ok(Lookup { depth, entry: Entry::Extent(before), next });
        }
        let mut taken = None;
        check_children(records, |child| {
            if taken.is_none() || child.logical <= at {
                taken = Some(child);
            } else if next.is_none() {
                next = Some(child.logical);
            }
        })?;
        let child = taken.ok_or("index node is empty")?;
        Ok(Lookup { depth, entry: Entry::Child(child), next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extent(logical: u32, start: u64, count: u32, unwritten: bool) -> Extent {
        Extent { logical: FileBlock(logical), start: Block(start), count, unwritten }
    }

    #[test]
    fn longest_extents_of_both_kinds_round_trip() {
        let mut bytes = [0; 60];
        let mut node = Node::empty(60);
        let list = vec![extent(0, 1 << 40, MAX_WRITTEN, false), extent(40_000, 9, MAX_UNWRITTEN, true)];
        node.entries = Entries::Leaf(list);
        node.store(&mut bytes);
        assert_eq!(Node::parse(&bytes).unwrap(), node);
        assert_eq!(node.capacity, 4);
    }

    #[test]
    fn broken_nodes_differ_by_their_reason() {
        let mut bytes = [0; 60];
        assert!(Node::parse(&bytes).unwrap_err().contains("magic"));
        let mut node = Node::empty(60);
        node.entries = Entries::Leaf(vec![extent(5, 9, 10, false), extent(14, 50, 1, false)]);
        node.store(&mut bytes);
        assert!(Node::parse(&bytes).unwrap_err().contains("out of order"));
        bytes[2] = 5;
        assert!(Node::parse(&bytes).unwrap_err().contains("do not fit"));
        bytes[2] = 0;
        bytes[6] = 1;
        assert!(Node::parse(&bytes).unwrap_err().contains("empty"));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_complain_and_what_decodes_round_trips(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if bytes.len() > 8 && bytes[8] & 1 == 0 {
                bytes[..2].copy_from_slice(&EXTENT_MAGIC.to_le_bytes());
                bytes[3] = 0;
                bytes[5] = 0;
                bytes[6] &= 1;
                bytes[7] = 0;
            }
            if let Ok(node) = Node::parse(&bytes) {
                let mut again = bytes.clone();
                node.store(&mut again);
                prop_assert_eq!(Node::parse(&again).unwrap(), node);
            }
        }

        #[test]
        fn a_block_is_found_as_in_the_decoded_node(mut entries in prop::collection::vec((0_u32..60, 0_u16..9), 0..8),
            depth in 0_u16..2, at in 0_u32..70, rising in any::<bool>()) {
            if rising {
                entries.sort_unstable();
                entries.dedup_by_key(|entry| entry.0);
            }
            let mut bytes = vec![0; 12 * 9];
            let head = Head { magic: EXTENT_MAGIC, count: u16::try_from(entries.len()).unwrap(), capacity: 8, depth };
            head.store(&mut bytes);
            for (index, (logical, count)) in entries.iter().enumerate() {
                let extent = Extent { count: u32::from(*count), ..extent(*logical, 1000, 0, false) };
                write_at(&mut bytes, 12 * (index + 1), &extent.encode());
            }
            let at = FileBlock(at);
            let found = Lookup::find(&bytes, at);
            match Node::parse(&bytes) {
                Err(problem) => prop_assert_eq!(found, Err(problem)),
                Ok(Node { entries: Entries::Leaf(list), .. }) => {
                    let place = list.partition_point(|extent| extent.logical <= at);
                    let before = place.checked_sub(1).map(|index| list[index]);
                    let next = list.get(place).map(|extent| extent.logical);
                    prop_assert_eq!(found, Ok(Lookup { depth, entry: Entry::Extent(before), next }));
                }
                Ok(Node { entries: Entries::Index(list), .. }) => {
                    let place = list.partition_point(|child| child.logical <= at).max(1);
                    let next = list.get(place).map(|child| child.logical);
                    prop_assert_eq!(found, Ok(Lookup { depth, entry: Entry::Child(list[place - 1]), next }));
                }
            }
        }
    }
}
