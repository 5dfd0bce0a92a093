//! The volume as a whole: its superblock in words, its groups, and a map of what is in use.

use ondisk::features::Compat;
use ondisk::geometry::Geometry;
use ondisk::journal::{JOURNAL_SUPERBLOCK_LEN, RawJournalSuperblock};
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Group, low_u32};
use platfs::{InodeNumber, Volume};
use platfs_forensics::facts::{self, Fact, Findings};
use serde_json::{Value, json};

use crate::browse::range;
use crate::session::{Answer, Events, Open};

/// Most groups of one answer.
const GROUPS: u64 = 1_000;
/// Most cells of a map.
const CELLS: u64 = 4_096;
/// Volumes of more groups are shown by the counts of their descriptors: each bitmap is a block to be read.
const BITMAPS: u32 = 16_384;
/// Groups between two reports of the map.
const STEP: u32 = 256;

fn rows(facts: &[Fact]) -> Value {
    facts.iter().map(|fact| json!([fact.label, fact.text])).collect()
}

/// Every field of the superblock in words, and of the journal's.
pub(crate) fn superblock(open: &Open) -> Answer {
    let raw = open.volume.superblock();
    let mut found = Findings { raw, journal: None, mark: None, problems: Vec::new() };
    match journal(&open.volume, &found.raw) {
        Ok(journal) => found.journal = journal,
        Err(error) => found.problems.push(error.to_string()),
    }
    Ok(json!({
        "summary": rows(&facts::summary(&found)),
        "fields": rows(&facts::superblock(&found.raw)),
        "journal": rows(&facts::journal(&found)),
        "groups": open.volume.format().geometry.groups,
    }))
}

/// The superblock of a journal in the volume.
fn journal(volume: &Volume, raw: &RawSuperblock) -> platfs::Result<Option<RawJournalSuperblock>> {
    let inode = InodeNumber::new(raw.s_journal_inum.get());
    let Some(inode) = inode.filter(|_| raw.features().compat.contains(Compat::HAS_JOURNAL)) else {
        return Ok(None);
    };
    let mut bytes = [0; JOURNAL_SUPERBLOCK_LEN];
    volume.read_at(inode, 0, &mut bytes)?;
    Ok(Some(RawJournalSuperblock::parse(&bytes)?))
}

/// The descriptors of some groups.
pub(crate) fn groups(open: &Open, question: &Value) -> Answer {
    let geometry = &open.volume.format().geometry;
    let (from, count) = range(question)?;
    let end = from.saturating_add(count.min(GROUPS)).min(geometry.groups.into());
    let groups = (from..end).map(|group| {
        let group = Group(low_u32(group));
        let place = json!({ "group": group.0, "start": geometry.group_start(group).0, "blocks": geometry.group_blocks(group) });
        let mut row = place;
        match open.volume.space().descriptor(group) {
            Ok(raw) => {
                row["free"] = raw.free_clusters().into();
                row["free_inodes"] = raw.free_inodes().into();
                row["directories"] = raw.used_directories().into();
                row["block_bitmap"] = raw.block_bitmap().0.into();
                row["inode_bitmap"] = raw.inode_bitmap().0.into();
                row["inode_table"] = raw.inode_table().0.into();
            }
            Err(error) => row["problem"] = error.to_string().into(),
        }
        row
    });
    Ok(json!({ "groups": groups.collect::<Vec<_>>() }))
}

/// Sums of a cell, in blocks.
#[derive(Clone, Copy, Default)]
struct Cell {
    used: u64,
    metadata: u64,
}

/// A map under way: cells of equal size, the last may be smaller.
struct Survey<'o> {
    geometry: &'o Geometry,
    /// Blocks of a cell.
    cell: u64,
    cells: Vec<Cell>,
}

impl Survey<'_> {
    fn of(geometry: &Geometry) -> Survey<'_> {
        let blocks = geometry.blocks.max(1);
        // A multiple of 64 clusters, so that a byte of a bitmap lies in one cell.
        let unit = 64_u64 << geometry.cluster_log2;
        let cell = blocks.div_ceil(CELLS).max(1).next_multiple_of(unit);
        let count = usize::try_from(blocks.div_ceil(cell)).unwrap_or(0);
        Survey { geometry, cell, cells: vec![Cell::default(); count] }
    }

    fn at(&mut self, block: u64) -> Option<&mut Cell> {
        let cell = usize::try_from(block / self.cell.max(1)).ok()?;
        self.cells.get_mut(cell)
    }

    /// Spreads a run over its cells.
    fn run(&mut self, start: u64, count: u64, mut add: impl FnMut(&mut Cell, u64)) {
        let (mut at, end) = (start, start.saturating_add(count).min(self.geometry.blocks));
        while at < end {
            let behind = (at / self.cell + 1).saturating_mul(self.cell).min(end);
            let Some(cell) = self.at(at) else { return };
            add(cell, behind - at);
            at = behind;
        }
    }

    /// Adds the used clusters of a group's bitmap, by stretches of set bits.
    fn bitmap(&mut self, group: Group, bitmap: &[u8]) {
        let (start, log2) = (self.geometry.group_start(group).0, self.geometry.cluster_log2);
        let count = self.geometry.group_clusters(group);
        let mut open: Option<u32> = None;
        for bit in 0..=count {
            let byte = bitmap.get(bit as usize / 8).copied().unwrap_or(0);
            let is_used = bit < count && byte >> (bit % 8) & 1 == 1;
            match (is_used, open) {
                (true, None) => open = Some(bit),
                (false, Some(from)) => {
                    let (first, run) = (u64::from(from) << log2, u64::from(bit - from) << log2);
                    self.run(start + first, run, |cell, blocks| cell.used += blocks);
                    open = None;
                }
                _ => {}
            }
        }
    }

    /// Adds what the volume keeps for itself in a group.
    fn metadata(&mut self, open: &Open, group: Group) -> platfs::Result<u64> {
        let raw = open.volume.space().descriptor(group)?;
        let geometry = self.geometry;
        let header = geometry.group_header(group);
        let table = (raw.inode_table(), u64::from(geometry.inode_table_blocks()));
        let own = [
            (header.start, u64::from(header.count)),
            (raw.block_bitmap(), 1),
            (raw.inode_bitmap(), 1),
            table,
        ];
        for (start, count) in own.into_iter().filter(|(start, count)| geometry.contains(*start, *count)) {
            self.run(start.0, count, |cell, blocks| cell.metadata += blocks);
        }
        Ok(u64::from(raw.free_clusters()) << geometry.cluster_log2)
    }
}

/// Maps the blocks in use, by cells. Groups whose bitmap or descriptor can't be read are named.
pub(crate) fn map(open: &Open, events: &mut dyn Events) -> Answer {
    let geometry = &open.volume.format().geometry;
    let mut survey = Survey::of(geometry);
    let by_bitmaps = geometry.groups <= BITMAPS;
    let (mut problems, mut broken) = (Vec::new(), 0_u64);
    for group in (0..geometry.groups).map(Group) {
        if group.0.is_multiple_of(STEP) {
            let event = json!({ "pass": "groups", "done": group.0, "of": geometry.groups });
            events.event(&event.to_string());
        }
        let looked = survey.metadata(open, group).and_then(|free| {
            if by_bitmaps {
                let bitmap = open.volume.block_bitmap(group)?;
                survey.bitmap(group, &bitmap);
                return Ok(());
            }
            let blocks = u64::from(geometry.group_blocks(group));
            survey.run(geometry.group_start(group).0, blocks.saturating_sub(free), |cell, blocks| {
                cell.used += blocks
            });
            Ok(())
        });
        if let Err(error) = looked {
            broken += 1;
            if problems.len() < 20 {
                problems.push(format!("group {group}: {error}"));
            }
        }
    }
    Ok(json!({
        "cell": survey.cell,
        "blocks": geometry.blocks,
        "per_group": geometry.group_blocks(Group(0)),
        "exact": by_bitmaps,
        "used": survey.cells.iter().map(|cell| cell.used).collect::<Vec<_>>(),
        "metadata": survey.cells.iter().map(|cell| cell.metadata.min(cell.used)).collect::<Vec<_>>(),
        "broken": broken,
        "problems": problems,
    }))
}
