//! Files and blocks of the volume itself: the journal, the orphan file, files of quota, the block of mount protection.

use ondisk::invariant;
use std::collections::BTreeMap;
use std::sync::Arc;

use ondisk::features::{Compat, Incompat, RoCompat};
use ondisk::inode::{Inode, InodeFlags, TimeField};
use ondisk::journal::{MIN_JOURNAL_BLOCKS, RawJournalSuperblock};
use ondisk::mmp::{MMP_DEFAULT_INTERVAL, MMP_MAX_INTERVAL, RawMmp};
use ondisk::orphan_file;
use ondisk::quota::{self, QuotaKind, Usage};
use ondisk::superblock::{JOURNAL_MAP_COPIED, RawSuperblock};
use ondisk::units::{Block, Group, InodeNumber, low_u32};
use platfs::mkfs::default_journal_blocks;
use platfs::{OpenOptions, Volume};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use super::TuneWork;
use crate::Result;
use crate::draft::runs_of;
use crate::error::{Error, refused};

/// Most blocks of a journal, as mke2fs allows.
const JOURNAL_MOST: u64 = 10_240_000;
/// Volumes with fewer blocks get no journal.
const LEAST_VOLUME: u64 = 2048;
/// Part of the journal's size that the fast-commit area has where nothing else is said.
const FAST_COMMIT_SHARE: u64 = 64;

impl TuneWork<'_> {
    fn set_compat(&mut self, feature: Compat, on: bool) -> Result<()> {
        self.draft.reshape(|raw| {
            let mut features = raw.features();
            features.compat.set(feature, on);
            raw.set_features(features);
        })
    }

    /// An inode of the volume itself, in use and without blocks.
    fn own_file(&self, number: InodeNumber, size: u64) -> Inode {
        let mut inode = Inode::blank(number, self.draft.geometry().inode_size);
        inode.raw_mut().i_mode.set(0o100_600);
        inode.raw_mut().i_links_count.set(1);
        inode.set_size(size);
        for field in [TimeField::Access, TimeField::Change, TimeField::Modify, TimeField::Create] {
            inode.set_time(field, self.draft.limits().now);
        }
        inode
    }

    /// Gives back an inode of the volume itself and all its blocks; a reserved one stays taken. The blocks that its
    /// contents had.
    fn give_up_file(&mut self, number: u32) -> Result<u64> {
        let Some(number) = InodeNumber::new(number) else { return Ok(0) };
        let inode = self.draft.inode(number)?;
        let map = self.draft.map_of(&inode)?;
        let runs: Vec<(Block, u64)> = runs_of(&map).collect();
        self.draft.release(&runs)?;
        if number.get() < self.draft.geometry().first_inode {
            self.draft.clear_inode(number)?;
        } else {
            self.draft.release_inode(number)?;
        }
        Ok(map.runs.iter().map(|run| run.count).sum())
    }
}

/// Blocks of the log and of the area for fast commits.
fn journal_size(work: &TuneWork<'_>) -> Result<(u32, u32)> {
    let geometry = work.draft.geometry();
    let options = work.request.journal.unwrap_or_default();
    let log = match options.size {
        Some(bytes) => bytes >> geometry.block_size.log2(),
        None => u64::from(default_journal_blocks(geometry.blocks)),
    };
    let fast = match options.fast_commit_size {
        _ if !work.draft.features().compat.contains(Compat::FAST_COMMIT) => 0,
        Some(bytes) => bytes >> geometry.block_size.log2(),
        None => log / FAST_COMMIT_SHARE,
    };
    if geometry.blocks < LEAST_VOLUME {
        return refused(format!("{} blocks are too few for a journal", geometry.blocks));
    }
    if log < u64::from(MIN_JOURNAL_BLOCKS) || log.saturating_add(fast) > JOURNAL_MOST {
        let least = MIN_JOURNAL_BLOCKS;
        return Err(Error::Usage(format!(
            "a journal of {log} blocks is not from {least} to {JOURNAL_MOST} blocks of {} bytes",
            geometry.block_size.bytes()
        )));
    }
    Ok((low_u32(log), low_u32(fast)))
}

/// Makes a journal.
pub(super) fn add_journal(work: &mut TuneWork<'_>) -> Result<()> {
    work.deepen()?;
    let (log, fast) = journal_size(work)?;
    let (blocks, geometry) = (log + fast, *work.draft.geometry());
    let goal = match work.request.journal.and_then(|options| options.location) {
        Some(place) => Block(place.in_blocks(geometry.block_size)),
        None => geometry.group_start(Group(geometry.groups / 2)),
    };
    if !geometry.contains(goal, 1) {
        return Err(Error::Usage(format!("the journal can't begin at block {goal}, outside the volume")));
    }
    let mut inode = work.own_file(InodeNumber::JOURNAL, u64::from(blocks) << geometry.block_size.log2());
    let runs = work.draft.give_blocks(&mut inode, goal, u64::from(blocks))?;
    // What looks like transactions must not stand there.
    work.draft.zero_first(&runs)?;
    work.draft.put_inode(&mut inode)?;
    let superblock =
        RawJournalSuperblock::empty(geometry.block_size, blocks, fast, work.draft.superblock().s_uuid);
    let mut bytes = vec![0; geometry.block_size.bytes_usize()];
    if let (Some(to), Some((first, _))) = (bytes.get_mut(..superblock.as_bytes().len()), runs.first()) {
        to.copy_from_slice(superblock.as_bytes());
        work.draft.put_block(*first, &bytes)?;
    }
    name_journal(work, &inode, i64::from(blocks));
    work.set_compat(Compat::HAS_JOURNAL, true)
}

/// Names the journal in the superblock, with the copy of its map.
fn name_journal(work: &mut TuneWork<'_>, inode: &Inode, blocks: i64) {
    overhead(work, blocks);
    let raw = work.draft.superblock_mut();
    raw.s_journal_inum.set(InodeNumber::JOURNAL.get());
    raw.s_jnl_backup_type = JOURNAL_MAP_COPIED;
    for (to, word) in raw.s_jnl_blocks.iter_mut().zip(inode.raw().i_block.chunks_exact(4)) {
        to.set(word.try_into().map_or(0, u32::from_le_bytes));
    }
    raw.s_jnl_blocks[15] = inode.raw().i_size_high;
    raw.s_jnl_blocks[16] = inode.raw().i_size_lo;
}

/// Corrects the blocks that Linux does not count as space for files, where they are noted.
fn overhead(work: &mut TuneWork<'_>, blocks: i64) {
    let ratio = i64::from(work.draft.geometry().blocks_per_cluster());
    let raw = work.draft.superblock_mut();
    let noted = i64::from(raw.s_overhead_clusters.get());
    if noted > 0 {
        let clusters = (blocks.abs() + ratio - 1) / ratio * blocks.signum();
        raw.s_overhead_clusters.set(u32::try_from((noted + clusters).max(0)).unwrap_or(0));
    }
}

/// Gives up the journal: an inode of the volume, or the name of a device.
pub(super) fn remove_journal(work: &mut TuneWork<'_>) -> Result<()> {
    work.deepen()?;
    let number = work.draft.superblock().s_journal_inum.get();
    if number == 0 {
        work.notes.push("the journal's device still names this volume as its user".into());
    } else {
        let blocks = work.give_up_file(number)?;
        overhead(work, -invariant!(i64::try_from(blocks), "a file has fewer blocks than the volume"));
    }
    forget_journal(work.draft.superblock_mut());
    work.set_compat(Compat::HAS_JOURNAL, false)
}

/// Names no journal any more.
pub(super) fn forget_journal(raw: &mut RawSuperblock) {
    raw.s_journal_inum.set(0);
    raw.s_journal_dev.set(0);
    raw.s_journal_uuid = [0; 16];
    raw.s_jnl_backup_type = 0;
    raw.s_jnl_blocks = [U32::new(0); 17];
}

/// Makes the file that lists orphans.
pub(super) fn add_orphan_file(work: &mut TuneWork<'_>) -> Result<()> {
    work.deepen()?;
    let geometry = *work.draft.geometry();
    let blocks = match work.request.orphan_file_size {
        Some(length) => length.in_blocks(geometry.block_size),
        None => u64::from(orphan_file::default_blocks(geometry.blocks)),
    };
    let ratio = u64::from(geometry.blocks_per_cluster());
    let blocks = blocks.max(1).div_ceil(ratio).saturating_mul(ratio);
    if blocks > geometry.blocks {
        return Err(Error::Usage(format!("an orphan file of {blocks} blocks does not fit the volume")));
    }
    let number = work.draft.take_inode()?;
    let mut inode = work.own_file(number, blocks << geometry.block_size.log2());
    let goal = geometry.locate_inode(number).map_or(Block(0), |(group, _)| geometry.group_start(group));
    let runs = work.draft.give_blocks(&mut inode, goal, blocks)?;
    let seed = work.draft.sealer().inode_seed(number, inode.generation());
    let mut bytes = vec![0; geometry.block_size.bytes_usize()];
    for block in runs.iter().flat_map(|(start, count)| (start.0..start.0 + count).map(Block)) {
        orphan_file::write(seed, block, &[], &mut bytes);
        work.draft.put_block(block, &bytes)?;
    }
    work.draft.put_inode(&mut inode)?;
    work.draft.superblock_mut().s_orphan_file_inum.set(number.get());
    work.set_compat(Compat::ORPHAN_FILE, true)
}

/// Gives up the file that lists orphans, which lists none: the volume was closed.
pub(super) fn remove_orphan_file(work: &mut TuneWork<'_>) -> Result<()> {
    work.deepen()?;
    work.give_up_file(work.draft.superblock().s_orphan_file_inum.get())?;
    work.draft.superblock_mut().s_orphan_file_inum.set(0);
    work.draft.reshape(|raw| {
        let mut features = raw.features();
        features.compat -= Compat::ORPHAN_FILE;
        features.ro_compat -= RoCompat::ORPHAN_PRESENT;
        raw.set_features(features);
    })
}

fn quota_field<'w>(work: &'w mut TuneWork<'_>, kind: QuotaKind) -> &'w mut U32 {
    let raw = work.draft.superblock_mut();
    match kind {
        QuotaKind::User => &mut raw.s_usr_quota_inum,
        QuotaKind::Group => &mut raw.s_grp_quota_inum,
        QuotaKind::Project => &mut raw.s_prj_quota_inum,
    }
}

/// Sums the usage of each id. Values of attributes in inodes of their own are not counted here: that is left to the check of
/// the draft.
fn usage(work: &TuneWork<'_>, kind: QuotaKind) -> Result<BTreeMap<u32, Usage>> {
    let raw = work.draft.superblock();
    let own = [raw.s_prj_quota_inum.get(), raw.s_orphan_file_inum.get()];
    let (first, block_size) = (work.draft.geometry().first_inode, work.draft.geometry().block_size);
    let mut table: BTreeMap<u32, Usage> = BTreeMap::new();
    super::checksums::each_inode(&work.draft, &mut |inode| {
        let number = inode.number();
        let counts = number == InodeNumber::ROOT || number.get() >= first && !own.contains(&number.get());
        if counts && inode.links() > 0 && !inode.flags().contains(InodeFlags::EA_INODE) {
            let id = match kind {
                QuotaKind::User => inode.uid(),
                QuotaKind::Group => inode.gid(),
                QuotaKind::Project => inode.project(),
            };
            let used = table.entry(id).or_default();
            used.bytes = used.bytes.saturating_add(inode.sectors(block_size).saturating_mul(512));
            used.inodes += 1;
        }
        Ok(false)
    })?;
    Ok(table)
}

/// Makes the file of a kind of quota, with what is in use.
pub(super) fn add_quota(work: &mut TuneWork<'_>, kind: QuotaKind) -> Result<()> {
    if quota_field(work, kind).get() != 0 {
        return Ok(());
    }
    if kind == QuotaKind::Project && work.draft.geometry().inode_size == 128 {
        return refused("quota of projects needs inodes of 256 bytes (-I 256)");
    }
    work.deepen()?;
    if kind == QuotaKind::Project {
        work.draft.reshape(|raw| {
            let mut features = raw.features();
            features.ro_compat |= RoCompat::PROJECT;
            raw.set_features(features);
        })?;
    }
    let number = match kind {
        QuotaKind::User => InodeNumber::constant(3),
        QuotaKind::Group => InodeNumber::constant(4),
        QuotaKind::Project => work.draft.take_inode()?,
    };
    let contents = match earlier_limits(work, kind)? {
        Some(limits) => quota::update(kind, &limits, &usage(work, kind)?),
        None => quota::encode(kind, &usage(work, kind)?),
    };
    let geometry = *work.draft.geometry();
    let mut inode = work.own_file(number, contents.len() as u64);
    inode.set_flags(InodeFlags::IMMUTABLE);
    let blocks = geometry.block_size.blocks_for(contents.len() as u64);
    let runs = work.draft.give_blocks(&mut inode, geometry.group_start(Group(0)), blocks)?;
    let places = runs.iter().flat_map(|(start, count)| (start.0..start.0 + count).map(Block));
    for (block, piece) in places.zip(contents.chunks(geometry.block_size.bytes_usize())) {
        let mut bytes = piece.to_vec();
        bytes.resize(geometry.block_size.bytes_usize(), 0);
        work.draft.put_block(block, &bytes)?;
    }
    work.draft.put_inode(&mut inode)?;
    quota_field(work, kind).set(number.get());
    work.expected.insert("quota-usage");
    set_quota_feature(work)
}

/// The limits of an ordinary file from before the feature `quota`; it stays.
fn earlier_limits(work: &mut TuneWork<'_>, kind: QuotaKind) -> Result<Option<Vec<u8>>> {
    let volume = Volume::open(Arc::clone(work.draft.base()), &OpenOptions::new())?;
    let limits = volume.quota().earlier(kind)?;
    if limits.is_some() {
        work.notes
            .push(format!("the limits of /aquota.{kind} are taken over; the file itself is of no use now"));
    }
    Ok(limits)
}

/// Gives up the file of a kind of quota, and the limits in it.
pub(super) fn remove_quota(work: &mut TuneWork<'_>, kind: QuotaKind) -> Result<()> {
    let number = quota_field(work, kind).get();
    if number != 0 {
        work.deepen()?;
        work.give_up_file(number)?;
        quota_field(work, kind).set(0);
    }
    set_quota_feature(work)
}

/// The feature stands for any of the files.
fn set_quota_feature(work: &mut TuneWork<'_>) -> Result<()> {
    work.draft.reshape(|raw| {
        let any = [raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum];
        let mut features = raw.features();
        features.ro_compat.set(RoCompat::QUOTA, any.iter().any(|number| number.get() != 0));
        raw.set_features(features);
    })
}

/// Begins the protection against two mounts.
pub(super) fn add_mmp(work: &mut TuneWork<'_>) -> Result<()> {
    work.deepen()?;
    let place = work.draft.take(Block(0), 1)?;
    let Some((block, _)) = place.first().copied() else { return refused("no block is free") };
    work.draft.superblock_mut().s_mmp_block.set(block.0);
    work.draft.reshape(|raw| {
        let mut features = raw.features();
        features.incompat |= Incompat::MMP;
        raw.set_features(features);
    })?;
    write_mmp(work, work.request.mmp.interval.unwrap_or(0))
}

/// Writes the block of the protection as that of a volume that nobody uses.
pub(super) fn write_mmp(work: &mut TuneWork<'_>, interval: u16) -> Result<()> {
    if interval > MMP_MAX_INTERVAL {
        return Err(Error::Usage(format!("an interval of {interval} seconds is over {MMP_MAX_INTERVAL}")));
    }
    let interval = if interval == 0 { MMP_DEFAULT_INTERVAL } else { interval };
    let (node, device) = &work.request.mmp.names;
    let time = work.draft.limits().now.since_1970();
    let mut bytes = vec![0; work.draft.geometry().block_size.bytes_usize()];
    let mmp = RawMmp::clean(time, interval, node, device);
    let to = invariant!(bytes.get_mut(..size_of::<RawMmp>()), "the smallest block holds the structure");
    to.copy_from_slice(mmp.as_bytes());
    work.draft.sealer().seal_mmp(&mut bytes);
    work.draft.superblock_mut().s_mmp_update_interval.set(interval);
    work.draft.put_block(Block(work.draft.superblock().s_mmp_block.get()), &bytes)
}

/// Ends the protection against two mounts.
pub(super) fn remove_mmp(work: &mut TuneWork<'_>) -> Result<()> {
    work.deepen()?;
    let block = Block(work.draft.superblock().s_mmp_block.get());
    work.draft.release(&[(block, 1)])?;
    work.draft.superblock_mut().s_mmp_block.set(0);
    work.draft.superblock_mut().s_mmp_update_interval.set(0);
    work.draft.reshape(|raw| {
        let mut features = raw.features();
        features.incompat -= Incompat::MMP;
        raw.set_features(features);
    })
}
