//! Where a check begins and ends: the superblock and the descriptors read, and what is written of
//! superblocks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use ondisk::features::{Compat, Incompat};
use ondisk::geometry::Geometry;
use ondisk::seal::Sealer;
use ondisk::superblock::{RawSuperblock, STATE_VALID, SUPERBLOCK_OFFSET};
use ondisk::units::{Group, low_u16};
use zerocopy::IntoBytes;

use super::facts::Facts;
use super::issue::{Location, Summary};
use super::kinds::opening::{
    DESCRIPTORS_UNREADABLE, JOURNAL_DAMAGED, JOURNAL_HAS_DATA, JOURNAL_NEEDS_REPLAY,
};
use super::reporter::{Finding, Report};
use super::staged::{Staged, staging};
use super::subject::Subject;
use super::superblock::{self, ChosenSuperblock};
use super::{Options, descriptors, fields};
use platfs_device::journal::{self, FastCommits, Recovery};
use platfs_device::{Device, Error, Result};

/// Reads superblock and descriptors.
///
/// # Errors
/// As [`super::check`].
pub(super) fn open(
    device: &Arc<Staged>,
    options: &Options,
    fast_commits: &dyn FastCommits,
    report: &mut Report<'_>,
) -> Result<Subject> {
    let chosen = superblock::choose(device, options, report)?;
    refuse_elsewhere(&chosen.raw)?;
    // What waits in the journal of a volume without its end may belong there.
    let cut = fields::is_cut_short(&**device, &Geometry::from_superblock(&chosen.raw)?, report);
    let opened = if cut { Opened::Kept(chosen.raw) } else { replay(device, &chosen, fast_commits, report)? };
    let (mut raw, log_left) = match opened {
        Opened::Kept(raw) => (raw, false),
        Opened::LogLeft(raw) => (raw, true),
    };
    let replayed = !device.is_unchanged();
    if chosen.from_backup {
        // Backups say neither that a volume was closed nor how it fares.
        raw.s_state.set(STATE_VALID);
    }
    let lasting = fields::check(&mut raw, options.now.seconds, report);
    let mut geometry = Geometry::from_superblock(&raw)?;
    if cut {
        // A volume may claim any length: no pass goes behind the device.
        geometry = geometry.within(device.size() >> geometry.block_size.log2());
    }
    let descriptors = descriptors::read(&**device, &geometry, options.memory, |block, error| {
        let finding = Finding::new(Location::default().at_block(block), error.to_string(), "");
        report.found(&DESCRIPTORS_UNREADABLE, finding);
    })?;
    Ok(Subject {
        device: Arc::clone(device),
        geometry,
        features: raw.features(),
        sealer: Sealer::from_superblock(&raw),
        raw,
        descriptors,
        renewed: BTreeSet::new(),
        descriptors_left: BTreeSet::new(),
        unused_doubted: BTreeMap::new(),
        resize_wanted: false,
        journal_wanted: None,
        log_left,
        cut_wanted: BTreeSet::new(),
        orphan_file_wanted: false,
        owners_known: AtomicBool::new(false),
        contested: Mutex::default(),
        superblock_left: chosen.left,
        // Linux brings the sums of the superblock up to date when it closes a volume, not in the journal.
        superblock_renewed: chosen.from_backup || replayed,
        backups_follow: lasting,
        threads: options.threads,
        now: options.now,
    })
}

/// The superblock to go on with once the journal was looked at.
enum Opened {
    Kept(RawSuperblock),
    /// The log holds changes, and the sink leaves them there.
    LogLeft(RawSuperblock),
}

/// Brings in what waits in the journal, in memory, so that the check sees the volume as a mount would;
/// every repair builds on it, whatever the sink decides. A journal that can't be replayed is reported
/// by its own rules; the superblock to go on with.
///
/// # Errors
/// There are fast commits and no writer to bring them in: any repair without them would lose them.
fn replay(
    device: &Arc<Staged>,
    chosen: &ChosenSuperblock,
    fast_commits: &dyn FastCommits,
    report: &mut Report<'_>,
) -> Result<Opened> {
    let mut raw = chosen.raw;
    let mut features = raw.features();
    // Neither a backup knows whether a journal waits, nor programs that mind no journal; the journal does.
    let marked = features.incompat.contains(Incompat::RECOVER);
    if !features.compat.contains(Compat::HAS_JOURNAL) {
        return Ok(Opened::Kept(raw));
    }
    features.incompat |= Incompat::RECOVER;
    raw.set_features(features);
    let dynamic: Arc<dyn Device> = Arc::clone(device) as Arc<dyn Device>;
    let plan = match journal::plan(&dynamic, &raw, fast_commits) {
        Ok(plan) if !marked && plan.is_empty() => return Ok(Opened::Kept(chosen.raw)),
        Ok(plan) => plan,
        Err(error @ Error::FastCommits(_)) => return Err(error),
        Err(_) if !marked => return Ok(Opened::Kept(chosen.raw)),
        Err(error) => return Ok(Opened::Kept(unreplayable(device, raw, &error, report))),
    };
    if !marked && !chosen.from_backup && !unmarked(&plan.recovery, report) {
        return Ok(Opened::LogLeft(chosen.raw));
    }
    match plan.recovery.missing() {
        None => {
            let finding =
                Finding::new(Location::default(), plan.recovery.to_string(), "the journal is replayed");
            report.found(&JOURNAL_NEEDS_REPLAY, finding);
        }
        Some(missing) => {
            let found = format!("{missing}; before that {}", plan.recovery);
            let finding =
                Finding::new(Location::default(), found, "what is whole is replayed, the rest is lost");
            report.found(&JOURNAL_DAMAGED, finding);
        }
    }
    device.note_last(plan.superblock_at(), ondisk::journal::JOURNAL_SUPERBLOCK_LEN as u64);
    Sealer::from_superblock(&raw).seal_superblock(&mut raw);
    let done = device
        .write_at(SUPERBLOCK_OFFSET, raw.as_bytes())
        .map_err(staging("the superblock"))
        .and_then(|()| plan.write_at_once(&**device));
    let after = done.and_then(|()| platfs_device::read_superblock(&**device)).and_then(superblock::usable_as);
    Ok(Opened::Kept(after.unwrap_or_else(|_| {
        features.incompat -= Incompat::RECOVER;
        raw.set_features(features);
        raw
    })))
}

/// A log that the superblock does not name as one to replay; says whether it is replayed.
fn unmarked(recovery: &Recovery, report: &mut Report<'_>) -> bool {
    let found = format!("no replay is called for, but it holds {recovery}");
    report.found(&JOURNAL_HAS_DATA, Finding::new(Location::default(), found, "the journal is replayed"))
}

/// A journal of which nothing can be brought in is emptied, if it is one. Where its superblock or inode is no use, or
/// the device fails, rules of their own come later.
fn unreplayable(
    device: &Arc<Staged>,
    mut raw: RawSuperblock,
    error: &Error,
    report: &mut Report<'_>,
) -> RawSuperblock {
    let found = format!("it can't be replayed: {error}");
    let dynamic: Arc<dyn Device> = Arc::clone(device) as Arc<dyn Device>;
    let emptied =
        if matches!(error, Error::Io { .. }) { None } else { journal::emptied(&dynamic, &raw).ok() };
    let Some((offset, bytes)) = emptied else {
        report.found(&JOURNAL_NEEDS_REPLAY, Finding::new(Location::default(), found, ""));
        return raw;
    };
    let finding = Finding::new(Location::default(), found, "the log is emptied, what only it held is lost");
    if report.found(&JOURNAL_DAMAGED, finding) {
        device.note_last(offset, bytes.len() as u64);
        if device.write_at(offset, &bytes).is_ok() {
            let mut features = raw.features();
            features.incompat -= Incompat::RECOVER;
            raw.set_features(features);
        }
    }
    raw
}

/// A journal on another device is not looked at: what it holds is newer than what is here, and repairs without it would
/// be overwritten by it.
fn refuse_elsewhere(raw: &RawSuperblock) -> Result<()> {
    let is_elsewhere = raw.s_journal_inum.get() == 0 && raw.features().compat.contains(Compat::HAS_JOURNAL);
    if is_elsewhere && raw.features().incompat.contains(Incompat::RECOVER) {
        return Err(journal::elsewhere());
    }
    Ok(())
}

/// Stages the superblock where it was repaired, and sums up.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn close(subject: &mut Subject, facts: &Facts, report: Report<'_>) -> Result<Summary> {
    let mut summary = report.summary;
    let mut before = [0; ondisk::superblock::SUPERBLOCK_LEN];
    let unread = subject.device.read_at(SUPERBLOCK_OFFSET, &mut before).is_err();
    let changed = unread || before != subject.raw.as_bytes();
    if !subject.superblock_left && (changed || !subject.device.is_unchanged()) {
        if summary.is_sound() {
            fields::settle(&mut subject.raw, subject.now.seconds);
        }
        subject.raw.s_block_group_nr.set(0);
        subject.sealer.seal_superblock(&mut subject.raw);
        let staged = subject.device.write_at(SUPERBLOCK_OFFSET, subject.raw.as_bytes());
        staged.map_err(staging("the superblock"))?;
    }
    if subject.backups_follow && !subject.superblock_left {
        write_backups(subject);
    }
    summary.inodes = u64::from(subject.geometry.inodes());
    summary.inodes_used = facts.used.count();
    summary.blocks = subject.raw.blocks_count();
    let free = subject.geometry.clusters().saturating_sub(facts.claimed.count());
    summary.blocks_used =
        subject.geometry.blocks.saturating_sub(free * u64::from(subject.geometry.blocks_per_cluster()));
    summary.directories = facts.directories.len() as u64;
    Ok(summary)
}

/// Writes the superblock over its backups. They say neither that the volume was closed nor that a
/// journal waits, which are facts of another moment when a backup is used.
fn write_backups(subject: &Subject) {
    let mut copy: RawSuperblock = subject.raw;
    copy.s_state.set(copy.s_state.get() & !STATE_VALID);
    let mut features = copy.features();
    features.incompat -= Incompat::RECOVER;
    copy.set_features(features);
    for group in (1..subject.geometry.groups).map(Group) {
        let place = subject.geometry.superblock_block(group);
        if subject.geometry.backups.has_superblock(group) && !subject.is_contested(place) {
            // The field has 16 bits of the number.
            copy.s_block_group_nr.set(low_u16(group.0));
            subject.sealer.seal_superblock(&mut copy);
            // A backup that can't be staged is none; the volume does not need it now.
            let _ = subject.device.write_at(subject.geometry.superblock_offset(group), copy.as_bytes());
        }
    }
}
