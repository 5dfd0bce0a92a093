//! The block of multiple mount protection: whether it is one, and where it is rewritten.
//!
//! Only the superblock says where it is, and a wrong field can name any block of any file. A block that is none is
//! written behind the pass over inodes, when all owners are known: in its place if that has no other owner, or in
//! a free block.

use ondisk::features::Incompat;
use ondisk::mmp::RawMmp;
use ondisk::units::Block;
use zerocopy::IntoBytes;

use super::facts::Facts;
use super::issue::Location;
use super::kinds::opening::MOUNT_PROTECTION;
use super::reporter::{Finding, Report};
use super::slices::put;
use super::staged::staging;
use super::subject::Subject;
use platfs_device::{Device, Result};

/// Fate of the block, decided once all owners of blocks are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// There is none, or it is sound.
    Settled,
    /// It is damaged, and is to stay so.
    Stays,
    /// It is to be rewritten.
    Anew,
}

/// Judges the block, and claims a sound one.
pub(super) fn judge(subject: &Subject, facts: &Facts, report: &mut Report<'_>) -> Verdict {
    if !subject.has_incompat(Incompat::MMP) {
        return Verdict::Settled;
    }
    let place = Block(subject.raw.s_mmp_block.get());
    let Some(problem) = problem(subject, place) else {
        // It is neither part of the layout nor of an inode.
        facts.claimed.insert(subject.geometry.cluster_of(place).0);
        return Verdict::Settled;
    };
    let repair = "it is rewritten, as of a volume that is not in use; in a free block if its place belongs to \
                  something else";
    let finding = Finding::new(Location::default().at_block(place), problem, repair);
    if report.found(&MOUNT_PROTECTION, finding) { Verdict::Anew } else { Verdict::Stays }
}

fn is_possible(subject: &Subject, place: Block) -> bool {
    let on_device = subject.device.size() >> subject.geometry.block_size.log2();
    place.0 > u64::from(subject.geometry.first_data_block)
        && place.0 < on_device
        && subject.geometry.contains(place, 1)
}

fn problem(subject: &Subject, place: Block) -> Option<String> {
    if !is_possible(subject, place) {
        return Some("it lies outside the volume".to_owned());
    }
    let bytes = match subject.block(place) {
        Ok(bytes) => bytes,
        Err(error) => return Some(error.to_string()),
    };
    let mut sealed = bytes.clone();
    subject.sealer.seal_mmp(&mut sealed);
    match RawMmp::parse(place, &bytes) {
        Err(error) => Some(error.problem().to_owned()),
        Ok(_) if sealed != bytes => Some("its checksum is wrong".to_owned()),
        Ok(_) => None,
    }
}

/// Does what [`judge`] says. Without a free block for a new one mmp is turned off.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn finish(subject: &mut Subject, facts: &Facts, verdict: Verdict) -> Result<()> {
    if verdict == Verdict::Settled {
        return Ok(());
    }
    let old = Block(subject.raw.s_mmp_block.get());
    let is_its_own = is_possible(subject, old) && facts.claimed.insert(subject.geometry.cluster_of(old).0);
    if verdict == Verdict::Stays {
        return Ok(());
    }
    let place = if is_its_own {
        Some(old)
    } else {
        facts.gave_up();
        facts.allocate(subject, old, 1)
    };
    subject.backups_follow |= place != Some(old);
    let Some(place) = place else {
        subject.features.incompat -= Incompat::MMP;
        subject.raw.set_features(subject.features);
        subject.raw.s_mmp_block.set(0);
        return Ok(());
    };
    subject.raw.s_mmp_block.set(place.0);
    let interval = subject.raw.s_mmp_update_interval.get();
    let clean = RawMmp::clean(subject.now.seconds.cast_unsigned(), interval, b"", b"");
    let mut bytes = vec![0; subject.block_len()];
    put(&mut bytes, 0, clean.as_bytes());
    subject.sealer.seal_mmp(&mut bytes);
    subject.write(place, &bytes).map_err(staging("the block of mount protection"))
}
