//! Quota files of format vfsv1 (version 1): a header, a radix tree over ids, and blocks of usage
//! records.
//!
//! Source: the quota file format as the kernel and the quota tools read it: blocks of 1 KiB; block 0
//! holds header and information; block 1 is the root of a tree of four levels, one byte of the id
//! each, whose references name blocks; the leaves list records of 72 bytes.

use crate::invariant_or;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub mod parts;
mod sound;
use parts::Record;
pub use sound::flaw;

/// Bytes of a block of the tree, whatever the volume's block size.
pub const QUOTA_BLOCK: usize = 1024;
const VERSION: u32 = 1;
/// Grace for going over a soft limit, in seconds: one week.
const GRACE: u32 = 7 * 24 * 3600;
const ROOT: u32 = 1;
const LEVELS: u32 = 4;
const RECORDS_PER_BLOCK: usize = (QUOTA_BLOCK - size_of::<RawLeafHeader>()) / size_of::<RawRecord>();

/// Kind of owner for whom a file counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum QuotaKind {
    /// Owners.
    User,
    /// Group owners.
    Group,
    /// Projects.
    Project,
}

impl QuotaKind {
    /// Every kind, in the order of their superblock fields.
    pub const ALL: [QuotaKind; 3] = [QuotaKind::User, QuotaKind::Group, QuotaKind::Project];

    /// Its name: `user`, `group` or `project`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            QuotaKind::User => "user",
            QuotaKind::Group => "group",
            QuotaKind::Project => "project",
        }
    }

    fn magic(self) -> u32 {
        match self {
            QuotaKind::User => 0xD9C0_1F11,
            QuotaKind::Group => 0xD9C0_1927,
            QuotaKind::Project => 0xD9C0_3F14,
        }
    }
}

impl fmt::Display for QuotaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Usage of one id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Space in bytes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    dqh_magic: U32,
    dqh_version: U32,
    dqi_bgrace: U32,
    dqi_igrace: U32,
    dqi_flags: U32,
    dqi_blocks: U32,
    dqi_free_blk: U32,
    dqi_free_entry: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLeafHeader {
    dqdh_next_free: U32,
    dqdh_prev_free: U32,
    dqdh_entries: U16,
    dqdh_pad1: U16,
    dqdh_pad2: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRecord {
    dqb_id: U32,
    dqb_pad: U32,
    dqb_ihardlimit: U64,
    dqb_isoftlimit: U64,
    dqb_curinodes: U64,
    dqb_bhardlimit: U64,
    dqb_bsoftlimit: U64,
    dqb_curspace: U64,
    dqb_btime: U64,
    dqb_itime: U64,
}

const _: () = {
    assert!(size_of::<RawHeader>() == 32);
    assert!(size_of::<RawLeafHeader>() == 16);
    assert!(size_of::<RawRecord>() == 72);
};

/// A file being laid out, block by block.
struct Builder {
    file: Vec<u8>,
    blocks: u32,
    /// The leaf that still has room, and its records so far.
    open_leaf: Option<(u32, usize)>,
}

impl Builder {
    fn append_block(&mut self) -> u32 {
        let number = self.blocks;
        self.blocks += 1;
        self.file.resize(self.file.len() + QUOTA_BLOCK, 0);
        number
    }

    fn put(&mut self, block: u32, offset: usize, bytes: &[u8]) {
        let at = block as usize * QUOTA_BLOCK + offset;
        let to = self.file.get_mut(at..at + bytes.len());
        invariant_or!(to, return, "a field lies inside its block").copy_from_slice(bytes);
    }

    fn reference(&self, block: u32, slot: u8) -> u32 {
        let at = block as usize * QUOTA_BLOCK + usize::from(slot) * 4;
        reference_at(&self.file, at)
    }

    /// The block below `block` at `slot`, made by `make` if missing.
    fn descend(&mut self, block: u32, slot: u8, make: impl FnOnce(&mut Self) -> u32) -> u32 {
        match self.reference(block, slot) {
            0 => {
                let below = make(self);
                self.put(block, usize::from(slot) * 4, &below.to_le_bytes());
                below
            }
            below => below,
        }
    }

    fn insert(&mut self, id: u32, record: &RawRecord) {
        let bytes = id.to_be_bytes();
        let mut block = ROOT;
        for slot in bytes.iter().take(LEVELS as usize - 1) {
            block = self.descend(block, *slot, Builder::append_block);
        }
        let (leaf, index) = match self.open_leaf {
            Some((leaf, used)) => (leaf, used),
            None => (self.append_block(), 0),
        };
        self.descend(block, bytes[3], |_| leaf);
        self.put(leaf, size_of::<RawLeafHeader>() + index * size_of::<RawRecord>(), record.as_bytes());
        let used = invariant_or!(u16::try_from(index + 1), return, "a leaf has few records");
        self.put(leaf, 8, &used.to_le_bytes());
        self.open_leaf = (index + 1 < RECORDS_PER_BLOCK).then_some((leaf, index + 1));
    }
}

fn record(id: u32, usage: Usage) -> RawRecord {
    Record { id, usage, ..Record::default() }.raw()
}

fn reference_at(file: &[u8], at: usize) -> u32 {
    file.get(at..at.saturating_add(4)).and_then(|word| word.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// The complete contents of a quota file without limits.
#[must_use]
pub fn encode(kind: QuotaKind, usage: &BTreeMap<u32, Usage>) -> Vec<u8> {
    let mut header = <RawHeader as zerocopy::FromZeros>::new_zeroed();
    header.dqi_bgrace.set(GRACE);
    header.dqi_igrace.set(GRACE);
    let records = usage.iter().map(|(id, usage)| (*id, record(*id, *usage))).collect();
    build(kind, header, &records)
}

/// The complete contents of a quota file that counts `usage`; limits and times of grace are those of
/// the `old` contents, as far as these can be read.
#[must_use]
pub fn update(kind: QuotaKind, old: &[u8], usage: &BTreeMap<u32, Usage>) -> Vec<u8> {
    let mut records: BTreeMap<u32, RawRecord> = BTreeMap::new();
    let Ok(header) = walk(kind, old, |raw| _ = records.insert(raw.dqb_id.get(), *raw)) else {
        return salvaged(kind, old, usage);
    };
    for (id, raw) in &mut records {
        let Usage { bytes, inodes } = usage.get(id).copied().unwrap_or_default();
        raw.dqb_curspace.set(bytes);
        raw.dqb_curinodes.set(inodes);
    }
    for (id, usage) in usage {
        records.entry(*id).or_insert_with(|| record(*id, *usage));
    }
    build(kind, header, &records)
}

/// As [`update`], from contents that are damaged: what was used by ids without limits does not matter any more.
#[must_use]
pub fn salvaged(kind: QuotaKind, old: &[u8], usage: &BTreeMap<u32, Usage>) -> Vec<u8> {
    let mut records = salvage(kind, old);
    records.retain(|_, record| record.limits != parts::Limits::default());
    for (id, record) in &mut records {
        record.usage = usage.get(id).copied().unwrap_or_default();
    }
    for (id, usage) in usage {
        records.entry(*id).or_insert_with(|| Record { id: *id, usage: *usage, ..Record::default() });
    }
    renew(kind, old, &records)
}

fn build(kind: QuotaKind, mut header: RawHeader, records: &BTreeMap<u32, RawRecord>) -> Vec<u8> {
    let mut builder = Builder { file: vec![0; 2 * QUOTA_BLOCK], blocks: 2, open_leaf: None };
    for (id, record) in records {
        builder.insert(*id, record);
    }
    header.dqh_magic.set(kind.magic());
    header.dqh_version.set(VERSION);
    header.dqi_free_blk.set(0);
    header.dqi_blocks.set(builder.blocks);
    header.dqi_free_entry.set(builder.open_leaf.map_or(0, |(leaf, _)| leaf));
    builder.put(0, 0, header.as_bytes());
    builder.file
}

/// Most blocks a decoder visits: bounds the time on trees that point back into themselves.
const MOST_BLOCKS: usize = 1 << 20;

/// The usage that a quota file records, limits left out.
///
/// # Errors
/// The rule that is broken, in words that complete "quota file: ...".
pub fn decode(kind: QuotaKind, file: &[u8]) -> Result<BTreeMap<u32, Usage>, String> {
    // spec: quota
    let mut usage = BTreeMap::new();
    walk(kind, file, |raw| {
        let used = Usage { bytes: raw.dqb_curspace.get(), inodes: raw.dqb_curinodes.get() };
        usage.insert(raw.dqb_id.get(), used);
    })?;
    Ok(usage)
}

/// All that a quota file says of its ids, by id.
///
/// # Errors
/// As [`decode`].
pub fn records(kind: QuotaKind, file: &[u8]) -> Result<BTreeMap<u32, Record>, String> {
    let mut all = BTreeMap::new();
    walk(kind, file, |raw| _ = all.insert(raw.dqb_id.get(), Record::from_raw(raw)))?;
    Ok(all)
}

/// The contents of a quota file of these records, with the times of grace of the `old` contents as far as these have a
/// header.
fn renew(kind: QuotaKind, old: &[u8], records: &BTreeMap<u32, Record>) -> Vec<u8> {
    let mut header = <RawHeader as zerocopy::FromZeros>::new_zeroed();
    let graces = match RawHeader::read_from_prefix(old) {
        Ok((old, _)) if old.dqh_magic.get() == kind.magic() => [old.dqi_bgrace.get(), old.dqi_igrace.get()],
        _ => [GRACE; 2],
    };
    header.dqi_bgrace.set(graces[0]);
    header.dqi_igrace.set(graces[1]);
    build(kind, header, &records.iter().map(|(id, record)| (*id, record.raw())).collect())
}

/// True if contents begin as a quota file of a kind does.
#[must_use]
pub fn is_of_kind(kind: QuotaKind, file: &[u8]) -> bool {
    RawHeader::read_from_prefix(file).is_ok_and(|(header, _)| header.dqh_magic.get() == kind.magic())
}

/// The records of all leaves that a damaged tree leads to; what leads outside is passed over, as it is where a crash kept
/// the end of the file from the device. The first record of an id counts.
#[must_use]
pub fn salvage(kind: QuotaKind, file: &[u8]) -> BTreeMap<u32, Record> {
    let mut all = BTreeMap::new();
    let mut waiting = if is_of_kind(kind, file) { vec![(ROOT, LEVELS)] } else { Vec::new() };
    let mut seen = BTreeSet::new();
    while let Some((block, levels)) = waiting.pop() {
        let at = (block as usize).saturating_mul(QUOTA_BLOCK);
        let Some(bytes) = at.checked_add(QUOTA_BLOCK).and_then(|end| file.get(at..end)) else { continue };
        if block == 0 || !seen.insert((block, levels)) {
            continue;
        }
        if levels == 0 {
            let records = bytes.get(size_of::<RawLeafHeader>()..).unwrap_or_default();
            let records = records.chunks_exact(size_of::<RawRecord>());
            for raw in records.filter_map(|raw| RawRecord::ref_from_bytes(raw).ok()) {
                if raw.as_bytes().iter().any(|byte| *byte != 0) {
                    all.entry(raw.dqb_id.get()).or_insert_with(|| Record::from_raw(raw));
                }
            }
        } else {
            let below = (0..256).map(|slot| reference_at(bytes, slot * 4));
            waiting.extend(below.filter(|block| *block != 0).map(|block| (block, levels - 1)));
        }
    }
    all
}

/// Says how the sums in the header are wrong, which say how many blocks there are and which of them have room:
/// programs that believe them write behind the end. `None` also where there is no header.
#[must_use]
pub fn wrong_sums(file: &[u8]) -> Option<String> {
    let (header, _) = RawHeader::read_from_prefix(file).ok()?;
    let has = file.len().div_ceil(QUOTA_BLOCK);
    let blocks = header.dqi_blocks.get();
    if usize::try_from(blocks).is_ok_and(|blocks| blocks > has) {
        return Some(format!("its header counts {blocks} blocks, but it has {has}"));
    }
    let free = [("free block", header.dqi_free_blk.get()), ("block with room", header.dqi_free_entry.get())];
    let (what, block) = free.into_iter().find(|(_, block)| *block >= blocks)?;
    Some(format!("its header says that block {block} is the first {what}, of {blocks}"))
}

/// Calls `each` with every record; the header.
fn walk(kind: QuotaKind, file: &[u8], mut each: impl FnMut(&RawRecord)) -> Result<RawHeader, String> {
    let Ok((header, _)) = RawHeader::read_from_prefix(file) else {
        return Err("shorter than its header".to_owned());
    };
    if header.dqh_magic.get() != kind.magic() || header.dqh_version.get() != VERSION {
        let (magic, version) = (header.dqh_magic.get(), header.dqh_version.get());
        return Err(format!("magic {magic:#010x} and version {version} are not those of its kind"));
    }
    let mut waiting = vec![(ROOT, LEVELS)];
    let mut visited = 0;
    // Ids that lie apart share leaves, too.
    let (mut leaves, mut ids) = (BTreeSet::new(), BTreeSet::new());
    while let Some((block, levels)) = waiting.pop() {
        visited += 1;
        if visited > MOST_BLOCKS {
            return Err("its tree does not end".to_owned());
        }
        let at = (block as usize).saturating_mul(QUOTA_BLOCK);
        let Some(bytes) = at.checked_add(QUOTA_BLOCK).and_then(|end| file.get(at..end)) else {
            return Err(format!("block {block} is behind its end"));
        };
        if levels == 0 {
            if !leaves.insert(block) {
                continue;
            }
            let records = bytes.get(size_of::<RawLeafHeader>()..).unwrap_or_default();
            let records =
                records.chunks_exact(size_of::<RawRecord>()).filter(|raw| raw.iter().any(|byte| *byte != 0));
            for record in records.filter_map(|raw| RawRecord::ref_from_bytes(raw).ok()) {
                let id = record.dqb_id.get();
                if !ids.insert(id) {
                    return Err(format!("id {id} stands in two leaves"));
                }
                each(record);
            }
        } else {
            let mut below: Vec<u32> = (0..256).map(|slot| reference_at(bytes, slot * 4)).collect();
            // Neighbouring ids share leaves.
            below.dedup();
            waiting.extend(below.into_iter().filter(|block| *block != 0).map(|block| (block, levels - 1)));
        }
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_owner_gives_the_file_of_a_new_volume() {
        let usage = BTreeMap::from([(0, Usage { bytes: 16384, inodes: 2 })]);
        let file = encode(QuotaKind::User, &usage);
        assert_eq!(file.len(), 6 * QUOTA_BLOCK);
        assert_eq!(file[..8], [0x11, 0x1F, 0xC0, 0xD9, 1, 0, 0, 0]);
        // Block 2 is the first below the root, block 5 the leaf.
        assert_eq!(reference_at(&file, QUOTA_BLOCK), 2);
        assert_eq!(reference_at(&file, 4 * QUOTA_BLOCK), 5);
        assert_eq!(reference_at(&file, 28), 5, "the leaf has room");
        assert_eq!(decode(QuotaKind::User, &file).unwrap(), usage);
        assert!(decode(QuotaKind::Group, &file).is_err());
    }

    #[test]
    fn an_empty_record_of_the_first_id_stays_visible() {
        let usage = BTreeMap::from([(0, Usage::default())]);
        assert_eq!(decode(QuotaKind::Project, &encode(QuotaKind::Project, &usage)).unwrap(), usage);
    }

    #[test]
    fn sums_are_of_blocks_that_there_are() {
        let file = encode(QuotaKind::User, &BTreeMap::from([(0, Usage::default())]));
        assert_eq!(wrong_sums(&file), None);
        for (offset, value) in [(20, 7), (24, 6), (28, u32::MAX)] {
            let mut wrong = file.clone();
            wrong[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
            assert!(wrong_sums(&wrong).is_some(), "{offset}");
        }
        assert_eq!(wrong_sums(&[0; 31]), None);
    }

    #[test]
    fn limits_stay_where_usage_changes() {
        let mut file = encode(QuotaKind::User, &BTreeMap::from([(7, Usage { bytes: 1, inodes: 1 })]));
        // The hard limit of inodes in the only record.
        file[5 * QUOTA_BLOCK + 16 + 8] = 99;
        let usage = BTreeMap::from([(3, Usage { bytes: 5, inodes: 2 }), (7, Usage { bytes: 9, inodes: 8 })]);
        let after = update(QuotaKind::User, &file, &usage);
        assert_eq!(decode(QuotaKind::User, &after).unwrap(), usage);
        assert_eq!(after[5 * QUOTA_BLOCK + 16 + 72 + 8], 99, "the second record, of id 7");
        assert_eq!(update(QuotaKind::User, b"nothing", &usage), encode(QuotaKind::User, &usage));
    }

    #[test]
    fn what_a_cut_file_still_has_is_salvaged() {
        let usage: BTreeMap<u32, Usage> =
            (0..400).map(|id| (id * 7, Usage { bytes: u64::from(id), inodes: 1 })).collect();
        let file = encode(QuotaKind::User, &usage);
        let whole = records(QuotaKind::User, &file).unwrap();
        assert_eq!(salvage(QuotaKind::User, &file), whole);
        assert_eq!(decode(QuotaKind::User, &renew(QuotaKind::User, &file, &whole)).unwrap(), usage);
        let part = salvage(QuotaKind::User, &file[..20 * QUOTA_BLOCK]);
        assert!(!part.is_empty() && part.iter().all(|(id, record)| whole[id] == *record));
        assert!(salvage(QuotaKind::Group, &file).is_empty());
    }

    #[test]
    fn a_tree_that_points_to_its_root_ends() {
        let mut file = encode(QuotaKind::User, &BTreeMap::new());
        for slot in 0..256 {
            file[QUOTA_BLOCK + slot * 4] = 1;
        }
        let _ = (decode(QuotaKind::User, &file), salvage(QuotaKind::User, &file));
    }

    proptest! {
        #[test]
        fn any_usage_round_trips(usage in prop::collection::btree_map(any::<u32>(), (any::<u64>(), any::<u64>()), 0..200)) {
            let usage: BTreeMap<u32, Usage> =
                usage.into_iter().map(|(id, (bytes, inodes))| (id, Usage { bytes, inodes })).collect();
            prop_assert_eq!(decode(QuotaKind::Group, &encode(QuotaKind::Group, &usage)).unwrap(), usage);
        }

        #[test]
        fn any_bytes_decode_or_complain(mut bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
            if bytes.len() > 8 {
                bytes[..8].copy_from_slice(&[0x11, 0x1F, 0xC0, 0xD9, 1, 0, 0, 0]);
            }
            let _ = (decode(QuotaKind::User, &bytes), salvage(QuotaKind::User, &bytes));
        }
    }
}
