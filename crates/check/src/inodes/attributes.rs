//! Extended attributes: regions in inodes and blocks, blocks that inodes share, values in inodes of
//! their own.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use ondisk::features::{Compat, Incompat};
use ondisk::inode::{Inode, InodeFlags};
use ondisk::units::{Block, InodeNumber, join_u64};
use ondisk::xattr::{self, Entry, NameIndex, RawHeader, Value};
use zerocopy::FromBytes;

use super::record::{Examination, Scratch};
use super::region::{Flaw, ParsedEntry, Region};
use crate::facts::Facts;
use crate::issue::Location;
use crate::kinds::Kind;
use crate::kinds::inodes::{
    VALUE_FEATURE, VALUE_REFERENCES, XATTR_BLOCK, XATTR_BLOCK_CHECKSUM, XATTR_HASH, XATTR_NAME,
    XATTR_REFERENCES, XATTR_STRUCTURE, XATTR_VALUE, XATTR_VALUE_INODE,
};
use crate::reporter::{Finding, Report};
use crate::slices::word;
use crate::staged::staging;
use crate::subject::Subject;
use platfs_device::Result;

/// Parts that [`Registry`] is split into, so that threads seldom wait for each other.
const SHARDS: usize = 64;

/// Attributes of one inode that others know of too.
#[derive(Default)]
pub(super) struct AttributeClaims {
    /// Its block of attributes.
    block: Option<Block>,
    /// Contents of the block, where this inode is the first to look.
    fresh: Option<Shared>,
    /// Inodes that hold values, for entries in the inode; then those for entries in a fresh block.
    values: Vec<InodeNumber>,
    block_values: Vec<InodeNumber>,
}

impl AttributeClaims {
    pub(super) fn clear(&mut self) {
        (self.block, self.fresh) = (None, None);
        self.values.clear();
        self.block_values.clear();
    }
}

/// A block of attributes.
#[derive(Clone, Copy, Default)]
struct Shared {
    stated: u32,
    seen: u32,
    /// Clusters of values in inodes that its entries are charged with.
    charge: u64,
    /// True if it was given up.
    dropped: bool,
    /// True if it is no block of attributes, and is to stay: it says nothing.
    left: bool,
}

/// Blocks of attributes and inodes of values, with all that refer to them: some 30 bytes for each.
pub(super) struct Registry {
    blocks: Vec<Mutex<HashMap<u64, Shared>>>,
    values: Mutex<BTreeMap<InodeNumber, u64>>,
}

impl Default for Registry {
    fn default() -> Self {
        Registry { blocks: (0..SHARDS).map(|_| Mutex::default()).collect(), values: Mutex::default() }
    }
}

impl Registry {
    fn with<T>(&self, block: Block, work: impl FnOnce(&mut HashMap<u64, Shared>) -> T) -> Option<T> {
        let shard = self.blocks.get(usize::try_from(block.0).unwrap_or_default() % SHARDS)?;
        Some(work(&mut shard.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn look(&self, block: Block) -> Option<Shared> {
        self.with(block, |blocks| blocks.get(&block.0).copied()).flatten()
    }

    fn drop(&self, block: Block) {
        self.with(block, |blocks| blocks.insert(block.0, Shared { dropped: true, ..Shared::default() }));
    }

    /// Takes over what an inode in use holds.
    pub(super) fn commit(&self, subject: &Subject, facts: &Facts, scratch: &mut Scratch) {
        let held = &mut scratch.held;
        if let Some(block) = held.block {
            let fresh = held.fresh.unwrap_or_default();
            let first = self.with(block, |blocks| {
                let shared = blocks.entry(block.0).or_insert(fresh);
                shared.seen += 1;
                shared.seen == 1
            });
            if first == Some(true) {
                facts.claim(subject, block, 1);
                held.values.append(&mut held.block_values);
            }
        }
        if !held.values.is_empty() {
            let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
            for number in held.values.drain(..) {
                *values.entry(number).or_default() += 1;
            }
        }
    }

    /// Compares what was counted with what is stated, once all inodes are known.
    ///
    /// # Errors
    /// Repairs take more memory than they may.
    pub(super) fn settle(&self, subject: &Subject, facts: &Facts, report: &mut Report<'_>) -> Result<()> {
        let staging = staging("attributes");
        let mut wrong = Vec::new();
        for shard in &self.blocks {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let differ = shard
                .iter()
                .filter(|(_, shared)| !shared.dropped && !shared.left && shared.stated != shared.seen);
            wrong.extend(differ.map(|(block, shared)| (Block(*block), *shared)));
        }
        wrong.sort_unstable_by_key(|(block, _)| *block);
        for (block, Shared { stated, seen, .. }) in wrong {
            let place = Location::default().at_block(block);
            let finding = Finding::new(place, stated.to_string(), "the count is set right");
            let finding = finding.expected(seen.to_string()).overused(stated < seen);
            if report.found(&XATTR_REFERENCES, finding)
                && let Ok(mut bytes) = subject.block(block)
            {
                xattr::set_references(&mut bytes, seen);
                subject.sealer.seal_attribute_block(block, &mut bytes);
                subject.write(block, &bytes).map_err(staging)?;
            }
        }
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, seen) in values.iter() {
            settle_value(subject, facts, *number, *seen, report).map_err(staging)?;
        }
        Ok(())
    }
}

/// References that an inode of a value counts: time of change and version hold them.
fn references(inode: &Inode) -> u64 {
    join_u64(inode.raw().i_ctime.get(), inode.raw().i_version_lo.get())
}

fn settle_value(
    subject: &Subject,
    facts: &Facts,
    number: InodeNumber,
    seen: u64,
    report: &mut Report<'_>,
) -> std::io::Result<()> {
    let index = u64::from(number.index());
    if !facts.used.contains(index) {
        return Ok(());
    }
    let Some(mut inode) = read_inode(subject, number) else { return Ok(()) };
    if !inode.flags().contains(InodeFlags::EA_INODE) {
        return Ok(());
    }
    // What refers to it counts as one name.
    facts.links.raise(index);
    facts.values.insert(index);
    let stated = references(&inode);
    // Values that Lustre wrote have no count; their times are all the same.
    if stated == seen || inode.raw().i_ctime.get() == inode.raw().i_atime.get() {
        return Ok(());
    }
    let finding = Finding::new(Location::inode(number), stated.to_string(), "the count is set right");
    if report.found(&VALUE_REFERENCES, finding.expected(seen.to_string()).overused(stated < seen)) {
        inode.raw_mut().i_ctime.set(ondisk::units::high_u32(seen));
        inode.raw_mut().i_version_lo.set(ondisk::units::low_u32(seen));
        subject.write_inode(&mut inode)?;
    }
    Ok(())
}

fn read_inode(subject: &Subject, number: InodeNumber) -> Option<Inode> {
    use platfs_device::Device;
    let mut record = vec![0; usize::from(subject.geometry.inode_size)];
    subject.device.read_at(subject.inode_offset(number)?, &mut record).ok()?;
    Some(Inode::unjudged(number, &record))
}

/// Contents of a region's entries, and the first flaw among them.
#[derive(Default)]
struct RegionSummary {
    flaw: Option<(&'static Kind, String)>,
    charge: u64,
    values: Vec<InodeNumber>,
    /// Inodes of values that lack their flag.
    unmarked: Vec<InodeNumber>,
}

impl Examination<'_, '_, '_, '_> {
    /// Judges every entry; a silent reporter stops at the first flaw. `keep` is given what can stay.
    fn judge<'a>(
        &self,
        region: Region<'a>,
        spans: &mut Vec<(usize, usize)>,
        mut keep: impl FnMut(Entry<'a>),
    ) -> RegionSummary {
        let silent = self.reporter.is_silent();
        let mut judged = RegionSummary::default();
        let ended = region.walk(spans, |seen| {
            let flaw = self.flaw(&seen, &mut judged);
            if flaw.is_none() || matches!(seen.flaw, Some(Flaw::Hash | Flaw::EmptyValue)) {
                keep(seen.entry());
            }
            if judged.flaw.is_none() {
                judged.flaw = flaw;
            }
            !(silent && judged.flaw.is_some())
        });
        if !ended && judged.flaw.is_none() {
            judged.flaw = Some((&XATTR_STRUCTURE, "the list of attributes has no end".into()));
        }
        judged
    }

    fn flaw(&self, seen: &ParsedEntry<'_>, judged: &mut RegionSummary) -> Option<(&'static Kind, String)> {
        let name = || String::from_utf8_lossy(seen.name).into_owned();
        let (size, offset) = (seen.raw.e_value_size.get(), seen.raw.e_value_offs.get());
        match seen.flaw {
            Some(Flaw::Structure) => {
                Some((&XATTR_STRUCTURE, "an entry reaches over its bounds or over another".into()))
            }
            Some(Flaw::Name) => Some((&XATTR_NAME, format!("\"{}\" has no kind of name", name()))),
            Some(Flaw::Value | Flaw::EmptyValue) => Some((
                &XATTR_VALUE,
                format!("the value of \"{}\", {size} bytes at {offset}, can't be there", name()),
            )),
            Some(Flaw::Hash) => Some((
                &XATTR_HASH,
                format!("\"{}\" and its value have another hash than {:#010x}", name(), seen.raw.e_hash),
            )),
            None => {
                let number = seen.value_inode()?;
                match self.value_inode(seen, number, judged) {
                    Ok(()) => None,
                    Err(problem) => {
                        Some((&XATTR_VALUE_INODE, format!("the value of \"{}\": {problem}", name())))
                    }
                }
            }
        }
    }

    /// An entry whose value is in an inode of its own.
    fn value_inode(
        &self,
        seen: &ParsedEntry<'_>,
        number: InodeNumber,
        judged: &mut RegionSummary,
    ) -> std::result::Result<(), String> {
        let subject = self.subject();
        let inside = self.pass.special.is_ordinary(number) && number.get() <= subject.geometry.inodes();
        let inode = inside.then(|| read_inode(subject, number)).flatten();
        let inode = inode.ok_or_else(|| format!("inode {number} can't hold it"))?;
        let size = seen.raw.e_value_size.get();
        if size == 0 || u64::from(size) != inode.size() {
            return Err(format!("{size} bytes, and inode {number} has {}", inode.size()));
        }
        let entry = Entry { value: Value::Inode { number, size: 0 }, ..seen.entry() };
        let marked = inode.flags().contains(InodeFlags::EA_INODE);
        if entry.agrees_with_value_inode(inode.raw().i_atime.get()) {
            let cluster = 1_u64 << (subject.geometry.block_size.log2() + subject.geometry.cluster_log2);
            judged.charge += u64::from(seen.raw.e_value_size.get()).div_ceil(cluster);
        } else if inode.raw().i_mtime.get() != self.inode().number().get()
            || inode.generation() != self.inode().generation()
        {
            return Err(format!("inode {number} holds another value"));
        }
        if !marked {
            judged.unmarked.push(number);
        }
        judged.values.push(number);
        Ok(())
    }

    /// Values in inodes of their own need a feature.
    fn value_feature(&mut self, values: &[InodeNumber]) {
        let (Some(number), false) = (values.first(), self.subject().has_incompat(Incompat::EA_INODE)) else {
            return;
        };
        if !self.pass.special.wants_values()
            && self.tell_quietly(&VALUE_FEATURE, || {
                Finding::unplaced(
                    format!("the value of an attribute is in inode {number}"),
                    "the feature is set",
                )
            })
        {
            self.pass.special.want_values();
        }
    }

    /// Inodes with values that lack their flag get it.
    fn mark_values(&mut self, unmarked: &[InodeNumber]) {
        for number in unmarked {
            let mends = self.tell_quietly(&XATTR_VALUE_INODE, || {
                let found = format!("inode {number} holds a value and lacks the flag for it");
                Finding::unplaced(found, "the flag is set")
            });
            if mends && let Some(mut inode) = read_inode(self.subject(), *number) {
                let flags = inode.flags() | InodeFlags::EA_INODE;
                inode.set_flags(flags);
                if let Err(problem) = self.subject().write_inode(&mut inode) {
                    self.failed.get_or_insert(problem);
                }
            }
        }
    }

    /// Reports something beside the record.
    fn tell_quietly(&mut self, kind: &'static Kind, words: impl FnOnce() -> Finding) -> bool {
        let place = self.place();
        self.reporter.found(kind, || words().at(place))
    }

    /// The attributes in the record itself.
    pub(super) fn in_inode_attributes(&mut self) {
        self.scratch.held.values.clear();
        self.charged = 0;
        let Some(at) = self.region_offset() else { return };
        let mut spans = std::mem::take(&mut self.scratch.spans);
        let bytes = self.inode().bytes().get(at..).unwrap_or_default();
        let strict = self.has(InodeFlags::INLINE_DATA);
        let judged = self.judge(Region { bytes, in_inode: true, strict }, &mut spans, |_| ());
        let RegionSummary { flaw, charge, values, unmarked } = judged;
        self.charged = charge;
        if let Some((kind, found)) = flaw
            && self.tell(kind, |_| Finding::unplaced(found, "the attributes that can be read are rewritten"))
        {
            let copy = self.inode().bytes().get(at..).unwrap_or_default().to_vec();
            let mut kept = Vec::new();
            let region = Region { bytes: &copy, in_inode: true, strict };
            self.judge(region, &mut spans, |entry| kept.push(entry));
            if xattr::store_in_inode(&mut self.scratch.inode, &kept).is_err() {
                let _ = xattr::store_in_inode(&mut self.scratch.inode, &[]);
            }
            self.cut();
        }
        self.scratch.spans = spans;
        self.value_feature(&values);
        self.mark_values(&unmarked);
        self.scratch.held.values.extend(values);
    }

    /// Where attributes begin in the record, if there are any.
    fn region_offset(&self) -> Option<usize> {
        let inode = self.inode();
        let at = inode.attributes_offset()?;
        let room = inode.bytes().len().checked_sub(at)?;
        (room > 4 && word(inode.bytes(), at) == xattr::MAGIC).then_some(at)
    }

    /// The block of attributes; clusters that it takes, with those of values.
    pub(super) fn attribute_block_contents(&mut self) -> u64 {
        let block = self.attribute_block();
        let feature = self.subject().has_compat(Compat::EXT_ATTR);
        if block.0 == 0 || !feature || !self.subject().geometry.contains(block, 1) {
            return 0;
        }
        let known = self.pass.attributes.look(block);
        if known.is_some_and(|shared| shared.dropped) {
            self.drop_attribute_block();
            return 0;
        }
        let shared = match known {
            Some(shared) => shared,
            None => {
                let Some(shared) = self.fresh_block(block) else { return 0 };
                self.scratch.held.fresh = Some(shared);
                shared
            }
        };
        self.scratch.held.block = Some(block);
        1 + shared.charge
    }

    fn drop_attribute_block(&mut self) {
        self.scratch.inode.set_attribute_block(Block(0));
        self.cut();
    }

    /// Looks at a block that no inode has brought so far; `None` where it is given up.
    fn fresh_block(&mut self, block: Block) -> Option<Shared> {
        let mut bytes = self.scratch.nodes.pop().unwrap_or_default();
        bytes.resize(self.subject().block_len(), 0);
        let read = self.subject().read(block, &mut bytes).map_err(|problem| problem.to_string());
        let shared = match read.and_then(|()| header(&bytes)) {
            Ok(stated) => self.judge_block(block, &mut bytes, stated),
            Err(found) => {
                let repair = "the block is given up with all attributes in it";
                if self.tell_map(&XATTR_BLOCK, (Some(block), None), || found, repair) {
                    self.pass.attributes.drop(block);
                    self.drop_attribute_block();
                    None
                } else {
                    Some(Shared { left: true, ..Shared::default() })
                }
            }
        };
        self.scratch.nodes.push(bytes);
        shared
    }

    fn judge_block(&mut self, block: Block, bytes: &mut [u8], stated: u32) -> Option<Shared> {
        let mut spans = std::mem::take(&mut self.scratch.spans);
        let RegionSummary { flaw, charge, values, unmarked } =
            self.judge(Region { bytes, in_inode: false, strict: false }, &mut spans, |_| ());
        let mut shared = Shared { stated, charge, ..Shared::default() };
        let right = self.subject().sealer.attribute_block_is_right(block, bytes);
        let at = (Some(block), None);
        if let Some((kind, found)) = flaw {
            let repair = "the attributes that can be read are rewritten";
            if self.tell_map(kind, at, || found, repair) {
                let (copy, mut kept) = (bytes.to_vec(), Vec::new());
                let region = Region { bytes: &copy, in_inode: false, strict: false };
                self.judge(region, &mut spans, |entry| kept.push(entry));
                if xattr::store_in_block(bytes, &kept, stated).is_err() {
                    shared.charge = 0;
                }
                self.stage_attribute_block(block, bytes);
                self.cut = true;
            }
        } else if !right {
            let found = || "the checksum is wrong, all that can be judged is right".to_owned();
            if self.tell_map(&XATTR_BLOCK_CHECKSUM, at, found, "the checksum is recomputed") {
                self.stage_attribute_block(block, bytes);
            }
        }
        self.scratch.spans = spans;
        self.value_feature(&values);
        self.mark_values(&unmarked);
        self.scratch.held.block_values = values;
        Some(shared)
    }

    fn stage_attribute_block(&mut self, block: Block, bytes: &mut [u8]) {
        self.subject().sealer.seal_attribute_block(block, bytes);
        self.stage(block, bytes);
    }

    /// Bytes of contents in the inode: 60, and those in the attribute for the rest; `None` where that
    /// can't be read.
    pub(super) fn inline_len(&self) -> Option<u64> {
        let entries = xattr::in_inode(self.inode()).ok()?;
        let data = entries.iter().find(|entry| entry.index == NameIndex::SYSTEM && entry.name == b"data")?;
        Some((ondisk::inode::I_BLOCK_LEN + data.value.len()) as u64)
    }
}

/// References that the header of a block states.
fn header(bytes: &[u8]) -> std::result::Result<u32, String> {
    let (header, _) = RawHeader::read_from_prefix(bytes).map_err(|_| "no room for a header".to_owned())?;
    if header.h_magic.get() != xattr::MAGIC {
        return Err(format!("magic {:#010x} instead of {:#010x}", header.h_magic, xattr::MAGIC));
    }
    if header.h_blocks.get() != 1 {
        return Err(format!("{} blocks instead of 1", header.h_blocks));
    }
    Ok(header.h_refcount.get())
}
