//! Features that may be turned on and off, and the changes that go along with each.
//!
//! Excludes: the features of checksums, which `checksums` brings about when all others are there.

use ondisk::features::{Compat, FEATURE_NAMES, FeatureBit, Features, Incompat, RoCompat};
use ondisk::file_size;
use ondisk::inode::{FileType, InodeFlags};
use ondisk::quota::QuotaKind;
use platfs::mkfs::FeatureEdit;

use super::{TuneWork, headers, hidden, width};
use crate::Result;
use crate::error::{Error, refused};

/// The order in which features are turned off: what depends on others comes first.
const OFF_FIRST: [&str; 6] =
    ["orphan_file", "fast_commit", "quota", "project", "has_journal", "resize_inode"];
/// The order in which features are turned on: what others depend on comes first.
const ON_FIRST: [&str; 5] = ["sparse_super", "fast_commit", "has_journal", "orphan_file", "project"];

/// `s_encrypt_algos`: AES-256-XTS for contents, AES-256-CTS for names.
const ENCRYPTION_MODES: [u8; 4] = [1, 4, 0, 0];

/// Turns the features that are asked for on and off.
pub(super) fn apply(work: &mut TuneWork<'_>) -> Result<()> {
    let (on, off) = wanted(work)?;
    for bit in off {
        turn_off(work, bit)?;
    }
    replace_journal(work)?;
    for bit in on {
        turn_on(work, bit)?;
    }
    for (kind, keeps) in &work.request.quotas {
        if *keeps {
            hidden::add_quota(work, *kind)?;
        } else {
            hidden::remove_quota(work, *kind)?;
        }
    }
    if work.request.encoding.is_some() && !work.draft.features().incompat.contains(Incompat::CASEFOLD) {
        turn_on(work, FeatureBit::Incompat(Incompat::CASEFOLD))?;
    }
    let orphans = work.draft.features().compat.contains(Compat::ORPHAN_FILE);
    match work.request.orphan_file_size {
        Some(_) if orphans => {
            return refused(
                "the orphan file has its size; turn the feature off and on again (-O ^orphan_file)",
            );
        }
        Some(_) => turn_on(work, FeatureBit::Compat(Compat::ORPHAN_FILE))?,
        None => {}
    }
    protection(work)
}

/// A journal that is asked for takes the place of the one that is there.
fn replace_journal(work: &mut TuneWork<'_>) -> Result<()> {
    if work.request.journal.is_none() {
        return Ok(());
    }
    let journal = FeatureBit::Compat(Compat::HAS_JOURNAL);
    let orphans = work.draft.features().compat.contains(Compat::ORPHAN_FILE);
    if work.draft.features().has(journal) {
        hidden::remove_journal(work)?;
    }
    hidden::add_journal(work)?;
    debug_assert!(!orphans || work.draft.features().compat.contains(Compat::ORPHAN_FILE));
    Ok(())
}

fn protection(work: &mut TuneWork<'_>) -> Result<()> {
    let mmp = &work.request.mmp;
    let has = work.draft.features().incompat.contains(Incompat::MMP);
    match (mmp.interval, mmp.clear) {
        (None, false) => Ok(()),
        _ if !has => refused("the volume has no protection against two mounts (-O mmp)"),
        (interval, _) => {
            work.deepen()?;
            let interval = interval.unwrap_or_else(|| work.draft.superblock().s_mmp_update_interval.get());
            hidden::write_mmp(work, interval)
        }
    }
}

fn rank(names: &[&str], bit: FeatureBit) -> usize {
    let position = names.iter().position(|name| name_of(bit) == *name);
    position.unwrap_or(names.len())
}

pub(super) fn name_of(bit: FeatureBit) -> &'static str {
    FEATURE_NAMES.iter().find(|feature| feature.bit == bit).map_or("?", |feature| feature.name)
}

/// Features to turn on and to turn off, of those that are not so already, in order.
fn wanted(work: &TuneWork<'_>) -> Result<(Vec<FeatureBit>, Vec<FeatureBit>)> {
    let before = work.draft.features();
    let mut after = before;
    for edit in &work.request.features {
        match edit {
            FeatureEdit::None => {
                return Err(Error::Usage("-O none: name the features that are to be cleared".into()));
            }
            FeatureEdit::Set(bit) => after.set(*bit, true),
            FeatureEdit::Clear(bit) => after.set(*bit, false),
        }
    }
    let changed = |on: bool| {
        let bits = FEATURE_NAMES.iter().map(|feature| feature.bit);
        let changed = bits.filter(|bit| before.has(*bit) != after.has(*bit) && after.has(*bit) == on);
        changed.collect::<Vec<_>>()
    };
    let (mut on, mut off) = (changed(true), changed(false));
    // The orphan file is in the journal's care.
    let orphans = FeatureBit::Compat(Compat::ORPHAN_FILE);
    if off.contains(&FeatureBit::Compat(Compat::HAS_JOURNAL))
        && before.has(orphans)
        && !off.contains(&orphans)
    {
        off.push(orphans);
    }
    on.sort_by_key(|bit| rank(&ON_FIRST, *bit));
    off.sort_by_key(|bit| rank(&OFF_FIRST, *bit));
    Ok((on, off))
}

/// Returns true for a feature of checksums, which is brought about later.
fn is_of_checksums(bit: FeatureBit) -> bool {
    matches!(
        bit,
        FeatureBit::RoCompat(RoCompat::METADATA_CSUM | RoCompat::GDT_CSUM)
            | FeatureBit::Incompat(Incompat::CSUM_SEED)
    )
}

fn flag(work: &mut TuneWork<'_>, bit: FeatureBit, on: bool) -> Result<()> {
    work.draft.reshape(|raw| {
        let mut features: Features = raw.features();
        features.set(bit, on);
        raw.set_features(features);
    })
}

fn turn_on(work: &mut TuneWork<'_>, bit: FeatureBit) -> Result<()> {
    if is_of_checksums(bit) {
        return Ok(());
    }
    if let Some(why) = never_on(bit) {
        return refused(format!("{} can't be turned on: {why}", name_of(bit)));
    }
    needs(work, bit)?;
    match bit {
        FeatureBit::Compat(Compat::HAS_JOURNAL) if work.draft.features().has(bit) => Ok(()),
        FeatureBit::Compat(Compat::HAS_JOURNAL) => hidden::add_journal(work),
        FeatureBit::Compat(Compat::ORPHAN_FILE) => hidden::add_orphan_file(work),
        FeatureBit::Compat(Compat::DIR_INDEX) => {
            if work.draft.superblock().s_def_hash_version == 0 {
                work.draft.superblock_mut().s_def_hash_version = 1;
            }
            seed_hashes(work);
            super::directories::index_all(work)
        }
        FeatureBit::Incompat(Incompat::MMP) => hidden::add_mmp(work),
        FeatureBit::Incompat(Incompat::BIT64) => width::change(work, true),
        FeatureBit::Incompat(Incompat::FILETYPE) => types(work, true),
        FeatureBit::Incompat(Incompat::ENCRYPT) => {
            work.draft.superblock_mut().s_encrypt_algos = ENCRYPTION_MODES;
            flag(work, bit, true)
        }
        FeatureBit::Incompat(Incompat::CASEFOLD) => {
            let encoding = work.request.encoding.map_or((1, 0), |encoding| (encoding.number, encoding.flags));
            work.draft.superblock_mut().s_encoding.set(encoding.0);
            work.draft.superblock_mut().s_encoding_flags.set(encoding.1);
            flag(work, bit, true)
        }
        FeatureBit::RoCompat(RoCompat::SPARSE_SUPER) => headers::thin_backups(work),
        FeatureBit::RoCompat(RoCompat::PROJECT) => {
            flag(work, bit, true)?;
            hidden::add_quota(work, QuotaKind::Project)
        }
        FeatureBit::RoCompat(RoCompat::QUOTA) => {
            hidden::add_quota(work, QuotaKind::User)?;
            hidden::add_quota(work, QuotaKind::Group)?;
            let project = work.draft.features().ro_compat.contains(RoCompat::PROJECT);
            if project { hidden::add_quota(work, QuotaKind::Project) } else { Ok(()) }
        }
        _ => flag(work, bit, true),
    }
}

/// A volume whose seed was never set gets one.
fn seed_hashes(work: &mut TuneWork<'_>) {
    let random = work.request.random;
    let raw = work.draft.superblock_mut();
    if raw.s_hash_seed.iter().all(|word| word.get() == 0) {
        for (word, bytes) in raw.s_hash_seed.iter_mut().zip(random.chunks_exact(4)) {
            word.set(bytes.try_into().map_or(0, u32::from_le_bytes));
        }
    }
}

/// Types stand in all entries of directories, or in none.
fn types(work: &mut TuneWork<'_>, on: bool) -> Result<()> {
    work.deepen()?;
    work.expected.insert("entry-type");
    flag(work, FeatureBit::Incompat(Incompat::FILETYPE), on)
}

fn turn_off(work: &mut TuneWork<'_>, bit: FeatureBit) -> Result<()> {
    if is_of_checksums(bit) {
        return Ok(());
    }
    if let Some(why) = never_off(bit) {
        return refused(format!("{} can't be turned off: {why}", name_of(bit)));
    }
    match bit {
        FeatureBit::Compat(Compat::HAS_JOURNAL) => hidden::remove_journal(work),
        FeatureBit::Compat(Compat::ORPHAN_FILE) => hidden::remove_orphan_file(work),
        FeatureBit::Compat(Compat::RESIZE_INODE) => headers::give_up_growth(work),
        FeatureBit::Compat(Compat::DIR_INDEX) => {
            work.deepen()?;
            // Directories lose their indexes, and blocks of the indexes their places.
            let rebuilt = ["inode-index-flag", "directory-checksum-missing", "directory-checksum"];
            work.expected.extend(rebuilt);
            flag(work, bit, false)
        }
        FeatureBit::Incompat(Incompat::MMP) => hidden::remove_mmp(work),
        FeatureBit::Incompat(Incompat::BIT64) => width::change(work, false),
        FeatureBit::Incompat(Incompat::FILETYPE) => types(work, false),
        FeatureBit::Incompat(Incompat::CASEFOLD) => {
            work.deepen()?;
            work.draft.superblock_mut().s_encoding.set(0);
            work.draft.superblock_mut().s_encoding_flags.set(0);
            flag(work, bit, false)
        }
        FeatureBit::RoCompat(RoCompat::QUOTA) => {
            QuotaKind::ALL.into_iter().try_for_each(|kind| hidden::remove_quota(work, kind))
        }
        FeatureBit::RoCompat(RoCompat::PROJECT) => {
            hidden::remove_quota(work, QuotaKind::Project)?;
            flag(work, bit, false)
        }
        FeatureBit::RoCompat(RoCompat::HUGE_FILE) => {
            work.deepen()?;
            refuse_large_files(work)?;
            flag(work, bit, false)
        }
        // The check of the draft says whether a file needs the feature.
        _ => {
            if bit != FeatureBit::RoCompat(RoCompat::READONLY) {
                work.deepen()?;
            }
            flag(work, bit, false)
        }
    }
}

/// Linux does not open a file whose size is beyond what it may be without huge_file, and no check says so.
fn refuse_large_files(work: &TuneWork<'_>) -> Result<()> {
    let geometry = work.draft.geometry();
    let (size, first) = (geometry.block_size, geometry.first_inode);
    super::checksums::each_inode(&work.draft, &mut |inode| {
        // The inode that keeps blocks for growth has the size of its whole map.
        if inode.number().get() < first {
            return Ok(false);
        }
        let limit = file_size::limit(size, inode.flags().contains(InodeFlags::EXTENTS), false);
        let is_file = inode.file_type() == Some(FileType::Regular) && inode.links() > 0;
        if is_file && inode.size() > limit {
            return refused(format!(
                "huge_file can't be turned off: the file of inode {} has {} bytes, and without it at most {limit} are possible",
                inode.number(),
                inode.size()
            ));
        }
        Ok(false)
    })
}

/// Features that have to be there first.
fn needs(work: &TuneWork<'_>, bit: FeatureBit) -> Result<()> {
    let features = work.draft.features();
    let small = work.draft.geometry().inode_size == 128;
    let missing = match bit {
        FeatureBit::Compat(Compat::ORPHAN_FILE | Compat::FAST_COMMIT)
            if !features.compat.contains(Compat::HAS_JOURNAL) && !makes_journal(work) =>
        {
            "a journal (-O has_journal)"
        }
        FeatureBit::RoCompat(RoCompat::PROJECT) | FeatureBit::Incompat(Incompat::INLINE_DATA) if small => {
            "inodes of 256 bytes (-I 256)"
        }
        FeatureBit::Incompat(Incompat::BIT64) if !features.incompat.contains(Incompat::EXTENTS) => {
            "extents (-O extents)"
        }
        _ => return Ok(()),
    };
    refused(format!("{} needs {missing}", name_of(bit)))
}

fn makes_journal(work: &TuneWork<'_>) -> bool {
    let journal = FeatureBit::Compat(Compat::HAS_JOURNAL);
    work.request.journal.is_some() || work.request.features.contains(&FeatureEdit::Set(journal))
}

/// Features that no volume gets afterwards, and why.
fn never_on(bit: FeatureBit) -> Option<&'static str> {
    Some(match bit {
        FeatureBit::RoCompat(RoCompat::BIGALLOC) => {
            "every file would have to begin and end at whole clusters; make a new volume with `plat build`"
        }
        FeatureBit::Incompat(Incompat::META_BG) => "descriptors would have to move into each meta group",
        FeatureBit::Compat(Compat::RESIZE_INODE) => "blocks for growth are kept when a volume is made",
        FeatureBit::Compat(Compat::SPARSE_SUPER2) => "backups are placed when a volume is made",
        FeatureBit::Incompat(Incompat::RECOVER | Incompat::JOURNAL_DEV)
        | FeatureBit::RoCompat(RoCompat::ORPHAN_PRESENT) => "it is a mark that file systems set themselves",
        FeatureBit::Compat(
            Compat::DIR_PREALLOC
            | Compat::IMAGIC_INODES
            | Compat::LAZY_BG
            | Compat::EXCLUDE_INODE
            | Compat::EXCLUDE_BITMAP,
        )
        | FeatureBit::Incompat(Incompat::COMPRESSION | Incompat::DIRDATA)
        | FeatureBit::RoCompat(
            RoCompat::BTREE_DIR | RoCompat::HAS_SNAPSHOT | RoCompat::REPLICA | RoCompat::SHARED_BLOCKS,
        ) => "nothing makes use of it, or Linux does not know it",
        _ => return None,
    })
}

/// Features that no volume loses, and why.
fn never_off(bit: FeatureBit) -> Option<&'static str> {
    Some(match bit {
        FeatureBit::RoCompat(RoCompat::BIGALLOC) => "bitmaps would have to become many times as long",
        FeatureBit::Incompat(Incompat::META_BG) => "descriptors would have to move behind the superblock",
        FeatureBit::RoCompat(RoCompat::SPARSE_SUPER) => "places of the backups are in use by files",
        FeatureBit::Compat(Compat::SPARSE_SUPER2) => "places of the other backups are in use by files",
        FeatureBit::Incompat(Incompat::RECOVER) => {
            "it says that the journal is to be replayed: mount the volume, or `plat check -p`"
        }
        _ => return None,
    })
}
