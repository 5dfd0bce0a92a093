//! The parts of a quota file, each in a block of its own, to be read and changed where they stand.
//!
//! Owns: header, nodes, leaves and records as typed views of one block of the tree. Excludes: which blocks these are, and
//! whole files ([`super::encode`], [`super::decode`]).

use crate::invariant_or;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{
    QUOTA_BLOCK, QuotaKind, RECORDS_PER_BLOCK, ROOT, RawHeader, RawLeafHeader, RawRecord, Usage, VERSION,
};

/// Bytes of the unit in which limits of space are kept.
pub const LIMIT_UNIT: u64 = 1024;
/// The block at which the tree begins.
pub const ROOT_BLOCK: u32 = ROOT;
/// Levels of the tree above its leaves.
pub const DEPTH: u32 = super::LEVELS;

/// Limits of an id: none is zero, and no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Bytes that may be exceeded for a while.
    pub soft_bytes: u64,
    /// Bytes that may not be exceeded.
    pub hard_bytes: u64,
    /// Inodes that may be exceeded for a while.
    pub soft_inodes: u64,
    /// Inodes that may not be exceeded.
    pub hard_inodes: u64,
}

/// Record of one id in a quota file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// User, group or project.
    pub id: u32,
    /// Usage of the id.
    pub usage: Usage,
    /// Limits of the id.
    pub limits: Limits,
    /// When the grace for space ends, in seconds since 1970; zero while the soft limit is kept.
    pub bytes_until: u64,
    /// When the grace for inodes ends.
    pub inodes_until: u64,
}

impl Record {
    /// True if it says no more than that there is no limit and nothing in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.usage == Usage::default() && self.limits == Limits::default()
    }

    pub(super) fn from_raw(raw: &RawRecord) -> Self {
        let record = Record {
            id: raw.dqb_id.get(),
            usage: Usage { bytes: raw.dqb_curspace.get(), inodes: raw.dqb_curinodes.get() },
            limits: Limits {
                soft_bytes: raw.dqb_bsoftlimit.get().saturating_mul(LIMIT_UNIT),
                hard_bytes: raw.dqb_bhardlimit.get().saturating_mul(LIMIT_UNIT),
                soft_inodes: raw.dqb_isoftlimit.get(),
                hard_inodes: raw.dqb_ihardlimit.get(),
            },
            bytes_until: raw.dqb_btime.get(),
            inodes_until: raw.dqb_itime.get(),
        };
        // Of the first id, this may be the mark of a record in use.
        let is_mark = record.inodes_until == 1 && record.limits.soft_inodes == 0;
        Record { inodes_until: if is_mark { 0 } else { record.inodes_until }, ..record }
    }

    pub(super) fn raw(&self) -> RawRecord {
        let mut raw = RawRecord::new_zeroed();
        raw.dqb_id.set(self.id);
        raw.dqb_curspace.set(self.usage.bytes);
        raw.dqb_curinodes.set(self.usage.inodes);
        raw.dqb_bsoftlimit.set(self.limits.soft_bytes.div_ceil(LIMIT_UNIT));
        raw.dqb_bhardlimit.set(self.limits.hard_bytes.div_ceil(LIMIT_UNIT));
        raw.dqb_isoftlimit.set(self.limits.soft_inodes);
        raw.dqb_ihardlimit.set(self.limits.hard_inodes);
        raw.dqb_btime.set(self.bytes_until);
        raw.dqb_itime.set(self.inodes_until);
        // A record of zeros would read as an empty slot; a time in the past marks it as used.
        if raw.as_bytes().iter().all(|byte| *byte == 0) {
            raw.dqb_itime.set(1);
        }
        raw
    }
}

/// Header of the file, in its first block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Seconds for which a soft limit of space may be exceeded.
    pub bytes_grace: u32,
    /// Seconds for which a soft limit of inodes may be exceeded.
    pub inodes_grace: u32,
    /// Blocks of the tree, this one included.
    pub blocks: u32,
    /// The first of a list of unused blocks; zero for none.
    pub free_block: u32,
    /// The first of a list of leaves with room; zero for none.
    pub free_leaf: u32,
}

impl Header {
    /// Reads the header of a file of `size` bytes.
    ///
    /// # Errors
    /// The rule that is broken, in words that complete "quota file: ...".
    pub fn parse(kind: QuotaKind, block: &[u8], size: u64) -> Result<Self, String> {
        // spec: quota
        let Ok((raw, _)) = RawHeader::read_from_prefix(block) else {
            return Err("shorter than its header".to_owned());
        };
        if raw.dqh_magic.get() != kind.magic() || raw.dqh_version.get() != VERSION {
            let (magic, version) = (raw.dqh_magic.get(), raw.dqh_version.get());
            return Err(format!("magic {magic:#010x} and version {version} are not those of its kind"));
        }
        let header = Header {
            bytes_grace: raw.dqi_bgrace.get(),
            inodes_grace: raw.dqi_igrace.get(),
            blocks: raw.dqi_blocks.get(),
            free_block: raw.dqi_free_blk.get(),
            free_leaf: raw.dqi_free_entry.get(),
        };
        let has = size.div_ceil(QUOTA_BLOCK as u64);
        if u64::from(header.blocks) > has || header.blocks <= ROOT {
            return Err(format!("its header counts {} blocks, but it has {has}", header.blocks));
        }
        match [header.free_block, header.free_leaf].into_iter().find(|block| *block >= header.blocks) {
            Some(block) => Err(format!("its header leads to block {block} of {}", header.blocks)),
            None => Ok(header),
        }
    }

    /// Writes what changes into the first block, which has a header.
    pub fn store(&self, block: &mut [u8]) {
        if let Ok((raw, _)) = RawHeader::mut_from_prefix(block) {
            raw.dqi_bgrace.set(self.bytes_grace);
            raw.dqi_igrace.set(self.inodes_grace);
            raw.dqi_blocks.set(self.blocks);
            raw.dqi_free_blk.set(self.free_block);
            raw.dqi_free_entry.set(self.free_leaf);
        }
    }
}

/// The slot of an id in a node of a level, counted from the root.
#[must_use]
pub fn slot(id: u32, level: u32) -> usize {
    usize::from(*invariant_or!(id.to_be_bytes().get(level as usize), &0, "an id has a byte for each level"))
}

/// The block to which a slot of a node leads; zero for none.
#[must_use]
pub fn child(node: &[u8], slot: usize) -> u32 {
    super::reference_at(node, slot * 4)
}

/// Has a slot of a node lead to a block.
pub fn set_child(node: &mut [u8], slot: usize, to: u32) {
    let place = invariant_or!(node.get_mut(slot * 4..slot * 4 + 4), return, "a slot lies inside its node");
    place.copy_from_slice(&to.to_le_bytes());
}

/// The list that a leaf, or an unused block, is on: the next block and the one before; zero for none.
#[must_use]
pub fn links(block: &[u8]) -> (u32, u32) {
    (super::reference_at(block, 0), super::reference_at(block, 4))
}

/// Sets the neighbours of a block in its list.
pub fn set_links(block: &mut [u8], next: u32, before: u32) {
    set_child(block, 0, next);
    set_child(block, 1, before);
}

/// Sets the block behind one in its list.
pub fn set_links_next(block: &mut [u8], next: u32) {
    set_child(block, 0, next);
}

/// Sets the block before one in its list.
pub fn set_links_before(block: &mut [u8], before: u32) {
    set_child(block, 1, before);
}

/// The records that a leaf says it has.
#[must_use]
pub fn used(leaf: &[u8]) -> usize {
    RawLeafHeader::ref_from_prefix(leaf).map_or(0, |(header, _)| usize::from(header.dqdh_entries.get()))
}

/// True if a leaf with this number of records has no room.
#[must_use]
pub fn is_full(used: usize) -> bool {
    used >= RECORDS_PER_BLOCK
}

/// Sets how many records a leaf has.
pub fn set_used(leaf: &mut [u8], used: usize) {
    if let Ok((header, _)) = RawLeafHeader::mut_from_prefix(leaf) {
        header.dqdh_entries.set(invariant_or!(u16::try_from(used), return, "a leaf has few records"));
    }
}

fn offset_of(at: usize) -> usize {
    size_of::<RawLeafHeader>() + at * size_of::<RawRecord>()
}

fn raw_at(leaf: &[u8], offset: usize) -> Option<&RawRecord> {
    RawRecord::ref_from_bytes(leaf.get(offset..offset.checked_add(size_of::<RawRecord>())?)?).ok()
}

/// Where in a leaf the record of an id stands.
#[must_use]
pub fn find(leaf: &[u8], id: u32) -> Option<usize> {
    (0..RECORDS_PER_BLOCK).map(offset_of).find(|at| record(leaf, *at).is_some_and(|record| record.id == id))
}

/// The first place of a leaf that holds no record.
#[must_use]
pub fn room(leaf: &[u8]) -> Option<usize> {
    (0..RECORDS_PER_BLOCK).map(offset_of).find(|at| leaf.len() >= QUOTA_BLOCK && record(leaf, *at).is_none())
}

/// The records that a leaf has, whatever it says.
#[must_use]
pub fn count(leaf: &[u8]) -> usize {
    (0..RECORDS_PER_BLOCK).filter(|at| record(leaf, offset_of(*at)).is_some()).count()
}

/// The record at an offset in a leaf; `None` where there is none.
#[must_use]
pub fn record(leaf: &[u8], offset: usize) -> Option<Record> {
    let raw = raw_at(leaf, offset)?;
    raw.as_bytes().iter().any(|byte| *byte != 0).then(|| Record::from_raw(raw))
}

/// Puts a record at an offset in a leaf.
pub fn put(leaf: &mut [u8], offset: usize, record: &Record) {
    let raw = record.raw();
    let place = leaf.get_mut(offset..offset.saturating_add(size_of::<RawRecord>()));
    invariant_or!(place, return, "a record lies inside its leaf").copy_from_slice(raw.as_bytes());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::encode;
    use super::*;

    #[test]
    fn a_record_is_found_changed_and_read_again() {
        let usage =
            BTreeMap::from([(0, Usage { bytes: 4096, inodes: 2 }), (7, Usage { bytes: 1, inodes: 1 })]);
        let mut file = encode(QuotaKind::User, &usage);
        let header = Header::parse(QuotaKind::User, &file, file.len() as u64).unwrap();
        assert_eq!((header.blocks, header.free_block, header.free_leaf), (6, 0, 5));
        assert!(Header::parse(QuotaKind::Group, &file, file.len() as u64).is_err());
        assert!(Header::parse(QuotaKind::User, &file, 5 * 1024).is_err());
        let leaf = &mut file[5 * QUOTA_BLOCK..6 * QUOTA_BLOCK];
        assert_eq!(used(leaf), 2);
        let at = find(leaf, 7).unwrap();
        let limits = Limits { soft_bytes: 1 << 20, hard_bytes: 2 << 20, soft_inodes: 3, hard_inodes: 4 };
        let new = Record { id: 7, limits, bytes_until: 5, inodes_until: 6, ..record(leaf, at).unwrap() };
        put(leaf, at, &new);
        assert_eq!(record(leaf, at), Some(new));
        assert_eq!(find(leaf, 8), None);
        assert!(room(leaf).is_some_and(|room| room > at));
    }

    #[test]
    fn the_empty_record_of_the_first_id_is_there() {
        let mut leaf = vec![0; QUOTA_BLOCK];
        put(&mut leaf, 16, &Record::default());
        assert_eq!(find(&leaf, 0), Some(16));
        assert_eq!(find(&leaf, 1), None);
    }
}
