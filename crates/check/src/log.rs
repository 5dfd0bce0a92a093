//! The journal as the volume's superblock names it: its inode, its superblock, and the marks of a replay.
//!
//! Excludes what is in the log and its replay.

use ondisk::extent::EXTENT_MAGIC;
use ondisk::features::{Compat, Incompat};
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::journal::{BlockKind, JournalIncompat, MIN_JOURNAL_BLOCKS, RawJournalSuperblock};
use ondisk::superblock::JOURNAL_MAP_COPIED;
use ondisk::units::{Block, InodeNumber, join_u64, saturated};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use super::contents;
use super::facts::Facts;
use super::issue::Location;
use super::kinds::opening as kind;
use super::reporter::{Finding, Report};
use super::slices::put;
use super::staged::staging;
use super::subject::{JournalWrite, Subject};
use platfs_device::Result;

/// Where a journal belongs.
const HOME: InodeNumber = InodeNumber::JOURNAL;

/// Checks what the superblock says of a journal inside the volume, and the journal's superblock.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn check(subject: &mut Subject, facts: &Facts, report: &mut Report<'_>) -> Result<()> {
    let named = subject.raw.s_journal_inum.get();
    let has = subject.has_compat(Compat::HAS_JOURNAL);
    if subject.raw.s_journal_uuid != [0; 16] && !outside(subject, named, has, report) {
        return Ok(());
    }
    if !has && named == 0 {
        if subject.has_incompat(Incompat::RECOVER) {
            let finding = Finding::new(Location::default(), "there is no journal", "the mark is taken away");
            if report.found(&kind::REPLAY_WITHOUT_JOURNAL, finding) {
                set_incompat(subject, Incompat::RECOVER, false);
            }
        }
        return Ok(());
    }
    let blocks = match journal_blocks(subject, named) {
        Ok(blocks) => blocks,
        Err(problem) => match mend_inode(subject, facts, named, &problem, report)? {
            Some(blocks) => blocks,
            None => return Ok(()),
        },
    };
    if !has {
        return unnamed(subject, facts, named, &blocks, report);
    }
    superblock(subject, &blocks, report);
    Ok(())
}

/// A journal on another device, which is not looked at, must be the only one; returns true if it is forgotten.
fn outside(subject: &mut Subject, named: u32, has: bool, report: &mut Report<'_>) -> bool {
    let (rule, found, repair) = match (named, has) {
        (0, true) => return false,
        (0, false) => (
            &kind::JOURNAL_DEVICE,
            "the UUID of a device, without has_journal".to_owned(),
            "the UUID is cleared",
        ),
        _ => (
            &kind::TWO_JOURNALS,
            format!("inode {named}, and a device with a UUID of its own"),
            "the UUID is cleared: the journal is the inode",
        ),
    };
    let repairs = report.found(rule, Finding::new(Location::default(), found, repair));
    if repairs {
        subject.raw.s_journal_uuid = [0; 16];
        subject.raw.s_journal_dev.set(0);
        subject.backups_follow = true;
    }
    repairs
}

fn set_incompat(subject: &mut Subject, feature: Incompat, on: bool) {
    subject.features.incompat.set(feature, on);
    subject.raw.set_features(subject.features);
}

fn set_journal(subject: &mut Subject, on: bool) {
    subject.features.compat.set(Compat::HAS_JOURNAL, on);
    subject.raw.set_features(subject.features);
    subject.backups_follow = true;
}

/// The blocks of the journal in inode `number`. Elsewhere than at home it must be one to the letter: any
/// file could be named by mistake.
fn journal_blocks(subject: &Subject, number: u32) -> Result<Vec<Block>, String> {
    let inode = contents::inode(subject, number)?;
    let blocks = usable_blocks(subject, &inode)?;
    if number != HOME.get() {
        judge(subject, &blocks)?;
    }
    Ok(blocks)
}

fn usable_blocks(subject: &Subject, inode: &Inode) -> Result<Vec<Block>, String> {
    if inode.links() == 0 || inode.file_type() != Some(FileType::Regular) {
        return Err("it is no file in use".to_owned());
    }
    if inode.flags().contains(InodeFlags::ENCRYPT) {
        return Err("it is marked as encrypted".to_owned());
    }
    let blocks = inode.size() >> subject.geometry.block_size.log2();
    if blocks < u64::from(MIN_JOURNAL_BLOCKS) {
        return Err(format!("it has {blocks} blocks, fewer than {MIN_JOURNAL_BLOCKS}"));
    }
    contents::blocks(subject, inode)
}

/// The journal's inode is not one: restored from its copy in the superblock, or the journal is given up.
fn mend_inode(
    subject: &mut Subject,
    facts: &Facts,
    named: u32,
    problem: &str,
    report: &mut Report<'_>,
) -> Result<Option<Vec<Block>>> {
    let place = InodeNumber::new(named).map_or_else(Location::default, Location::inode);
    if named != HOME.get()
        && let Ok(blocks) = journal_blocks(subject, HOME.get())
    {
        let repair = format!("the journal is inode {HOME}, which is in order");
        let repairs = report.found(&kind::JOURNAL_INODE, Finding::new(place, problem, repair));
        if repairs {
            subject.raw.s_journal_inum.set(HOME.get());
            subject.backups_follow = true;
        }
        return Ok(repairs.then_some(blocks));
    }
    // The inode that was named may belong to a file; the journal's own can't.
    let copy = copied_inode(subject).filter(|inode| usable_blocks(subject, inode).is_ok());
    let repair = match copy {
        Some(_) if named != HOME.get() => {
            "the journal's own inode is restored from its copy in the superblock"
        }
        Some(_) => "the inode is restored from its copy in the superblock",
        None => "the journal is given up; a new one is made by tune2fs -j",
    };
    if !report.found(&kind::JOURNAL_INODE, Finding::new(place, problem, repair)) {
        return Ok(None);
    }
    let Some(mut inode) = copy else {
        give_up(subject, facts)?;
        return Ok(None);
    };
    if named != HOME.get() {
        subject.raw.s_journal_inum.set(HOME.get());
        subject.backups_follow = true;
    }
    subject.write_inode(&mut inode).map_err(staging("the journal's inode"))?;
    facts.altered.insert(u64::from(inode.number().index()));
    Ok(usable_blocks(subject, &inode).ok())
}

/// The journal's own inode as the superblock's copy of its map and size makes it.
fn copied_inode(subject: &Subject) -> Option<Inode> {
    if subject.raw.s_jnl_backup_type != JOURNAL_MAP_COPIED {
        return None;
    }
    subject.inode_offset(HOME)?;
    let mut inode = Inode::blank(HOME, subject.geometry.inode_size);
    let words = subject.raw.s_jnl_blocks;
    let [.., high, low] = words;
    inode.raw_mut().i_block.copy_from_slice(words.as_bytes().get(..60)?);
    inode.set_size(join_u64(high.get(), low.get()));
    inode.raw_mut().i_mode.set(0o100_600);
    inode.raw_mut().i_links_count.set(1);
    if words.as_bytes().get(..2)? == EXTENT_MAGIC.to_le_bytes() {
        inode.set_flags(InodeFlags::EXTENTS);
    }
    let (runs, nodes) = contents::runs_and_nodes(subject, &inode).ok()?;
    let blocks = runs.iter().map(|run| run.count).sum::<u64>() + nodes.len() as u64;
    let sectors = blocks << (subject.geometry.block_size.log2() - 9);
    inode.set_sectors(sectors, subject.geometry.block_size);
    let now = subject.now;
    for field in [ondisk::inode::TimeField::Modify, ondisk::inode::TimeField::Change] {
        inode.set_time(field, now);
    }
    Some(inode)
}

/// The volume has no journal any more. A file that the superblock named by mistake stays one.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn give_up(subject: &mut Subject, facts: &Facts) -> Result<()> {
    set_journal(subject, false);
    set_incompat(subject, Incompat::RECOVER, false);
    subject.raw.s_journal_inum.set(0);
    subject.raw.s_journal_dev.set(0);
    subject.raw.s_jnl_backup_type = 0;
    subject.raw.s_jnl_blocks = [U32::new(0); 17];
    clear_inode(subject, facts, HOME.get())
}

/// Makes an inode one that was never used. Its blocks are free.
pub(super) fn clear_inode(subject: &Subject, facts: &Facts, number: u32) -> Result<()> {
    let Some(number) = InodeNumber::new(number) else { return Ok(()) };
    let mut inode = Inode::blank(number, subject.geometry.inode_size);
    inode.bytes_mut().fill(0);
    facts.gave_up();
    facts.altered.insert(u64::from(number.index()));
    match subject.inode_offset(number) {
        // Records of zeros have no checksum.
        Some(offset) => platfs_device::Device::write_at(&*subject.device, offset, inode.bytes())
            .map_err(staging("an inode")),
        None => Ok(()),
    }
}

/// There is a journal, but the feature is off.
fn unnamed(
    subject: &mut Subject,
    facts: &Facts,
    named: u32,
    blocks: &[Block],
    report: &mut Report<'_>,
) -> Result<()> {
    let clean = judge(subject, blocks).is_ok_and(|raw| raw.is_clean());
    let repair = if clean { "the feature is turned on again" } else { "the journal is given up" };
    let found = format!("a journal in inode {named}, without has_journal");
    if report.found(&kind::JOURNAL_FEATURE, Finding::new(Location::default(), found, repair)) {
        if clean {
            set_journal(subject, true);
        } else {
            give_up(subject, facts)?;
        }
    }
    Ok(())
}

/// The journal's superblock, if it is one that fits the journal.
fn judge(subject: &Subject, blocks: &[Block]) -> Result<RawJournalSuperblock, String> {
    let first = blocks.first().ok_or("the journal is empty")?;
    let bytes = subject.block(*first).map_err(|error| error.to_string())?;
    let raw = RawJournalSuperblock::parse(&bytes).map_err(|error| error.problem().to_owned())?;
    let features = raw.incompat();
    if features.contains(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3) {
        return Err("it has checksums of two versions".to_owned());
    }
    if !JournalIncompat::KNOWN.contains(features) {
        let unknown = features - JournalIncompat::KNOWN;
        return Err(format!("features {:#x} are unknown", unknown.bits()));
    }
    if raw.h_blocktype.get() == BlockKind::SuperblockV2.code() && raw.s_feature_ro_compat.get() != 0 {
        return Err(format!("read-only features {:#x} are unknown", raw.s_feature_ro_compat.get()));
    }
    if raw.s_blocksize.get() != subject.geometry.block_size.bytes() {
        return Err(format!("its blocks have {} bytes", raw.s_blocksize.get()));
    }
    if features.contains(JournalIncompat::FAST_COMMIT) && raw.log_end() == raw.s_maxlen.get() {
        return Err("its blocks for fast commits leave too few for the log".to_owned());
    }
    if u64::from(raw.s_maxlen.get()) > blocks.len() as u64 {
        return Err(format!("it says {} blocks, but the inode has {}", raw.s_maxlen.get(), blocks.len()));
    }
    if raw.s_nr_users.get() > 1 {
        return Err(format!("{} volumes use it", raw.s_nr_users.get()));
    }
    Ok(raw)
}

fn superblock(subject: &mut Subject, blocks: &[Block], report: &mut Report<'_>) {
    let Some(first) = blocks.first().copied() else { return };
    let place = Location::default().at_block(first);
    match judge(subject, blocks) {
        Err(problem) => {
            let repair = "it is rewritten, as of an empty journal; what waits in the log is not replayed";
            if report.found(&kind::JOURNAL_SUPERBLOCK, Finding::new(place, problem, repair)) {
                set_incompat(subject, Incompat::RECOVER, false);
                // Its place may be a file's, if the map is wrong: that shows later.
                subject.journal_wanted = Some(JournalWrite::Empty);
            }
        }
        Ok(raw) if !raw.is_clean() && !subject.has_incompat(Incompat::RECOVER) && !subject.log_left => {
            let found = format!("the log begins in block {}, but no replay is called for", raw.s_start.get());
            let repair = "the log is emptied: nothing in it can be replayed";
            if report.found(&kind::JOURNAL_HAS_DATA, Finding::new(place, found, repair)) {
                let mut raw = raw;
                raw.s_start.set(0);
                raw.seal();
                subject.journal_wanted = Some(JournalWrite::Edited(Box::new(raw)));
            }
        }
        Ok(mut raw) if raw.s_errno.get() != 0 => {
            let found = format!("error {}", raw.s_errno.get().cast_signed());
            if report.found(&kind::JOURNAL_ERROR, Finding::new(place, found, "the note is cleared")) {
                raw.s_errno.set(0);
                raw.seal();
                subject.journal_wanted = Some(JournalWrite::Edited(Box::new(raw)));
            }
        }
        Ok(_) => {}
    }
}

/// Writes the journal's superblock where that was asked for: once all owners of blocks are known, and files that
/// shared blocks with the journal have copies.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn finish(subject: &mut Subject) -> Result<()> {
    let Some(wanted) = subject.journal_wanted.take() else { return Ok(()) };
    let inode = contents::inode(subject, subject.raw.s_journal_inum.get());
    // A map that was mended since may be too short for a journal: the next check reports it.
    let Ok(blocks) = inode.and_then(|inode| usable_blocks(subject, &inode)) else { return Ok(()) };
    let Some(first) = blocks.first() else { return Ok(()) };
    let raw = match wanted {
        JournalWrite::Empty => empty(subject, blocks.len()),
        JournalWrite::Edited(raw) => *raw,
    };
    stage(subject, *first, &raw)
}

/// The superblock of an empty journal.
fn empty(subject: &Subject, blocks: usize) -> RawJournalSuperblock {
    let len = saturated::<u32>(blocks);
    let mut raw = RawJournalSuperblock::empty(subject.geometry.block_size, len, 0, subject.raw.s_uuid);
    // Far from numbers of transactions that may still stand in the log.
    let sequence = ondisk::seal::crc32c(!0, &subject.now.seconds.to_le_bytes()) | 1;
    raw.s_sequence.set(sequence);
    raw
}

fn stage(subject: &Subject, place: Block, raw: &RawJournalSuperblock) -> Result<()> {
    let mut bytes = vec![0; subject.block_len()];
    put(&mut bytes, 0, raw.as_bytes());
    subject.write(place, &bytes).map_err(staging("the journal's superblock"))
}
