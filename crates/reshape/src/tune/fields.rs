//! Fields of the superblock that nothing else depends on, but for the seed of directory hashes.

use ondisk::superblock::{RawSuperblock, STATE_ERROR};
use ondisk::units::{high_u16, low_u16};
use platfs::mkfs::OnError;

use super::TuneWork;
use crate::Result;
use crate::error::{Error, refused};

/// `s_flags`: a playground for experimental code.
const FLAG_TEST: u32 = 4;
/// `s_default_mount_opts`: the two bits of the journalling mode, which are one number.
const JOURNAL_MODE: u32 = 0x60;

/// A field, and what it becomes.
#[derive(Clone, PartialEq, Debug)]
pub enum Field {
    /// Label, at most 16 bytes.
    Label(Vec<u8>),
    /// Directory last mounted on, at most 64 bytes.
    LastMounted(Vec<u8>),
    /// Share of the blocks reserved for the super-user, in percent, 0 to 50.
    ReservedPercent(f64),
    /// Number of blocks reserved for the super-user.
    ReservedBlocks(u64),
    /// User who may take reserved blocks.
    ReservedUser(u32),
    /// Group that may take reserved blocks.
    ReservedGroup(u32),
    /// Behaviour on errors.
    OnError(OnError),
    /// Mounts until a check is due; -1 or 0: never.
    MostMounts(i16),
    /// Mounts since the last check.
    Mounts(u16),
    /// Seconds until a check is due; 0: never.
    CheckInterval(u32),
    /// When the volume was last checked, in seconds since 1970.
    LastChecked(u64),
    /// Bits of the default mount options, and whether they are set or cleared.
    MountOption(u32, bool),
    /// Default mount options as text, at most 63 bytes.
    MountText(Vec<u8>),
    /// Blocks per disk of a RAID.
    Stride(u16),
    /// Blocks per stripe of a RAID.
    StripeWidth(u32),
    /// Number of the hash by which new directories are indexed.
    HashAlgorithm(u8),
    /// Seed of directory hashes: every index is rebuilt.
    HashSeed([u8; 16]),
    /// Flag of a volume for experimental code.
    TestVolume(bool),
    /// The next fsck checks the volume.
    ForceCheck,
}

/// Stores all fields that are asked for.
pub(super) fn apply(work: &mut TuneWork<'_>) -> Result<()> {
    for field in &work.request.fields {
        if let Field::HashSeed(_) = field {
            work.deepen()?;
            // Each index is ordered by hashes of the old seed.
            work.expected.extend(["index-hash", "index-order"]);
        }
        field.store(work.draft.superblock_mut())?;
    }
    Ok(())
}

fn text(what: &str, field: &mut [u8], text: &[u8], most: usize) -> Result<()> {
    if text.len() > most {
        return Err(Error::Usage(format!("{what} has {} bytes, and {most} fit", text.len())));
    }
    field.fill(0);
    for (to, from) in field.iter_mut().zip(text) {
        *to = *from;
    }
    Ok(())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of a count, rounded down as tune2fs does; the share is from 0 to 50 percent"
)]
fn share(percent: f64, blocks: u64) -> Result<u64> {
    if (0.0..=50.0).contains(&percent) {
        Ok((percent * blocks as f64 / 100.0) as u64)
    } else {
        Err(Error::Usage(format!("{percent} percent of reserved blocks are not from 0 to 50")))
    }
}

/// `s_errors`.
pub(super) fn number_of(behaviour: OnError) -> u16 {
    match behaviour {
        OnError::Continue => 1,
        OnError::RemountReadOnly => 2,
        OnError::Panic => 3,
    }
}

/// The behaviour that a number stands for.
pub(super) fn behaviour(number: u16) -> Option<OnError> {
    let all = [OnError::Continue, OnError::RemountReadOnly, OnError::Panic];
    all.into_iter().find(|one| number_of(*one) == number)
}

impl Field {
    pub(super) fn store(&self, raw: &mut RawSuperblock) -> Result<()> {
        match self {
            Field::Label(label) => text("the label", &mut raw.s_volume_name, label, 16)?,
            Field::LastMounted(path) => text("the directory", &mut raw.s_last_mounted, path, 64)?,
            Field::MountText(options) => {
                text("the text of mount options", &mut raw.s_mount_opts, options, 63)?
            }
            Field::ReservedPercent(percent) => {
                let blocks = share(*percent, raw.blocks_count())?;
                raw.set_reserved_blocks_count(blocks);
            }
            Field::ReservedBlocks(blocks) => reserve(raw, *blocks)?,
            Field::ReservedUser(uid) => {
                raw.s_def_resuid.set(low_u16(*uid));
                raw.s_def_resuid_hi.set(high_u16(*uid));
            }
            Field::ReservedGroup(gid) => {
                raw.s_def_resgid.set(low_u16(*gid));
                raw.s_def_resgid_hi.set(high_u16(*gid));
            }
            Field::MountOption(bits, on) => mount_option(raw, *bits, *on),
            Field::HashSeed(seed) => {
                for (word, bytes) in raw.s_hash_seed.iter_mut().zip(seed.chunks_exact(4)) {
                    word.set(bytes.try_into().map_or(0, u32::from_le_bytes));
                }
            }
            other => other.store_number(raw),
        }
        Ok(())
    }

    fn store_number(&self, raw: &mut RawSuperblock) {
        match self {
            Field::OnError(behaviour) => raw.s_errors.set(number_of(*behaviour)),
            Field::MostMounts(most) => raw.s_max_mnt_count.set(most.cast_unsigned()),
            Field::Mounts(mounts) => raw.s_mnt_count.set(*mounts),
            Field::CheckInterval(seconds) => raw.s_checkinterval.set(*seconds),
            Field::LastChecked(seconds) => {
                let times = ondisk::superblock::SuperblockTimes { checked: *seconds, ..raw.times() };
                raw.set_times(times);
            }
            Field::Stride(blocks) => raw.s_raid_stride.set(*blocks),
            Field::StripeWidth(blocks) => raw.s_raid_stripe_width.set(*blocks),
            Field::HashAlgorithm(number) => raw.s_def_hash_version = *number,
            Field::TestVolume(on) => {
                let flags = raw.s_flags.get() & !FLAG_TEST;
                raw.s_flags.set(flags | if *on { FLAG_TEST } else { 0 });
            }
            Field::ForceCheck => raw.s_state.set(raw.s_state.get() | STATE_ERROR),
            _ => {}
        }
    }
}

fn reserve(raw: &mut RawSuperblock, blocks: u64) -> Result<()> {
    let most = raw.blocks_count() / 2;
    if blocks > most {
        return refused(format!("{blocks} reserved blocks are more than half of the volume, {most} blocks"));
    }
    raw.set_reserved_blocks_count(blocks);
    Ok(())
}

/// The journalling mode is one of three; setting one takes the place of another.
fn mount_option(raw: &mut RawSuperblock, bits: u32, on: bool) {
    let word = raw.s_default_mount_opts.get();
    let mode = bits & JOURNAL_MODE;
    let cleared = if mode == 0 { word & !bits } else { word & !JOURNAL_MODE };
    let new = match (on, mode) {
        (true, _) => cleared | bits,
        // Clearing a mode that is not set leaves the one that is.
        (false, mode) if mode != 0 && word & JOURNAL_MODE != mode => word,
        (false, _) => cleared,
    };
    raw.s_default_mount_opts.set(new);
}
