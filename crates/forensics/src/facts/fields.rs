//! The fields of the superblock, with the labels of dumpe2fs(8).

use ondisk::features::{Compat, Incompat, RoCompat};
use ondisk::journal::RawJournalSuperblock;
use ondisk::mmp::MmpUse;
use ondisk::superblock::RawSuperblock;
use ondisk::units::join_u32;
use serde_json::Value;

use super::summary::block_bytes;
use super::{Fact, Findings};
use crate::words::{self, human};

/// Names of the set bits of a word; bits without one by their number.
fn bits(word: u32, names: &[(u32, &str)]) -> Vec<String> {
    let mut found: Vec<String> =
        names.iter().filter(|(bit, _)| word & bit == *bit).map(|(_, name)| (*name).to_owned()).collect();
    let rest = names.iter().fold(word, |rest, (bit, _)| rest & !bit);
    found.extend((0..32).map(|n| rest & 1 << n).filter(|bit| *bit != 0).map(|bit| format!("{bit:#x}")));
    found
}

fn list(key: &'static str, label: &'static str, names: Vec<String>) -> Fact {
    let text = if names.is_empty() { "(none)".to_owned() } else { names.join(" ") };
    Fact::new(key, label, names).shown(text)
}

fn named(key: &'static str, label: &'static str, code: u32, names: &[&'static str]) -> Fact {
    match names.get(code as usize) {
        Some(name) if !name.is_empty() => Fact::new(key, label, *name),
        _ => Fact::new(key, label, format!("unknown ({code})")),
    }
}

fn moment(key: &'static str, label: &'static str, seconds: u64) -> Fact {
    if seconds == 0 {
        return Fact::new(key, label, Value::Null).shown("n/a");
    }
    Fact::new(key, label, words::whole_seconds(seconds))
}

fn uuid(key: &'static str, label: &'static str, bytes: &[u8; 16]) -> Fact {
    if bytes == &[0; 16] {
        return Fact::new(key, label, Value::Null);
    }
    Fact::new(key, label, words::uuid(bytes))
}

const FLAGS: [(u32, &str); 3] =
    [(1, "signed_directory_hash"), (2, "unsigned_directory_hash"), (4, "test_filesystem")];
const MOUNT_OPTIONS: [(u32, &str); 9] = [
    (0x1, "debug"),
    (0x2, "bsdgroups"),
    (0x4, "user_xattr"),
    (0x8, "acl"),
    (0x10, "uid16"),
    (0x100, "nobarrier"),
    (0x200, "block_validity"),
    (0x400, "discard"),
    (0x800, "nodelalloc"),
];
const STATES: [(u32, &str); 3] = [(1, "clean"), (2, "errors"), (4, "orphans")];

/// The marks of the state. That of a clean volume stands while a journal is in use too, and means nothing then.
fn states(raw: &RawSuperblock) -> Vec<String> {
    let mut states = bits(raw.s_state.get().into(), &STATES);
    if raw.features().incompat.contains(Incompat::RECOVER) {
        states.retain(|state| state != "clean");
        states.insert(0, "needs recovery".to_owned());
    }
    states
}
const SYSTEMS: [&str; 5] = ["Linux", "Hurd", "Masix", "FreeBSD", "Lites"];
const HASHES: [&str; 7] =
    ["legacy", "half_md4", "tea", "legacy_unsigned", "half_md4_unsigned", "tea_unsigned", "siphash"];

/// Default mount options; the two bits of the journalling mode are one word.
fn mount_options(raw: &RawSuperblock) -> Vec<String> {
    let word = raw.s_default_mount_opts.get();
    let mode = ["", "journal_data", "journal_data_ordered", "journal_data_writeback"];
    let mode = mode.get((word >> 5 & 3) as usize).copied().filter(|name| !name.is_empty());
    let mut names = bits(word & !0x60, &MOUNT_OPTIONS);
    names.extend(mode.map(str::to_owned));
    names
}

/// All fields of a superblock.
#[must_use]
pub fn superblock(raw: &RawSuperblock) -> Vec<Fact> {
    let mut all = identity(raw);
    all.extend(space(raw));
    all.extend(layout(raw));
    all.extend(history(raw));
    all.extend(inodes_and_journal(raw));
    all.extend(protection(raw));
    all
}

fn identity(raw: &RawSuperblock) -> Vec<Fact> {
    let revision = raw.s_rev_level.get();
    let revision_name = if revision == 0 { "0 (original)" } else { "1 (dynamic)" };
    let label = words::lossy(raw.label());
    let mounted = words::lossy(raw.last_mounted());
    let or = |text: &str, none: &str| if text.is_empty() { none.to_owned() } else { text.to_owned() };
    vec![
        Fact::new("volume_name", "Filesystem volume name", label.clone()).shown(or(&label, "<none>")),
        Fact::new("last_mounted_on", "Last mounted on", mounted.clone())
            .shown(or(&mounted, "<not available>")),
        uuid("uuid", "Filesystem UUID", &raw.s_uuid),
        Fact::new("magic", "Filesystem magic number", format!("0x{:04X}", raw.s_magic.get())),
        Fact::new("revision", "Filesystem revision #", revision).shown(revision_name),
        list("features", "Filesystem features", raw.features().names()),
        list("flags", "Filesystem flags", bits(raw.s_flags.get(), &FLAGS)),
        list("default_mount_options", "Default mount options", mount_options(raw)),
        list("state", "Filesystem state", states(raw)),
        named(
            "errors_behavior",
            "Errors behavior",
            raw.s_errors.get().into(),
            &["Unknown (continue)", "Continue", "Remount read-only", "Panic"],
        ),
        named("creator_os", "Filesystem OS type", raw.s_creator_os.get(), &SYSTEMS),
    ]
}

fn space(raw: &RawSuperblock) -> Vec<Fact> {
    vec![
        Fact::new("inodes", "Inode count", raw.s_inodes_count.get()),
        Fact::new("blocks", "Block count", raw.blocks_count()),
        Fact::new("reserved_blocks", "Reserved block count", raw.reserved_blocks_count()),
        Fact::new("overhead_clusters", "Overhead clusters", raw.s_overhead_clusters.get()),
        Fact::new("free_blocks", "Free blocks", raw.free_blocks_count()),
        Fact::new("free_inodes", "Free inodes", raw.s_free_inodes_count.get()),
    ]
}

fn layout(raw: &RawSuperblock) -> Vec<Fact> {
    let features = raw.features();
    let mut all = vec![
        Fact::new("first_block", "First block", raw.s_first_data_block.get()),
        Fact::new("block_size", "Block size", block_bytes(raw)),
    ];
    if features.ro_compat.contains(RoCompat::BIGALLOC) {
        let cluster = 1024_u64.checked_shl(raw.s_log_cluster_size.get()).unwrap_or(0);
        all.push(Fact::new("cluster_size", "Cluster size", cluster));
        all.push(Fact::new("clusters_per_group", "Clusters per group", raw.s_clusters_per_group.get()));
    }
    if features.incompat.contains(Incompat::BIT64) {
        all.push(Fact::new("descriptor_size", "Group descriptor size", raw.s_desc_size.get()));
    }
    let per_group = raw.s_inodes_per_group.get();
    let table_blocks = (u64::from(per_group) * u64::from(raw.inode_size()))
        .checked_next_multiple_of(block_bytes(raw))
        .and_then(|bytes| bytes.checked_div(block_bytes(raw)))
        .unwrap_or(0);
    all.extend([
        Fact::new("reserved_gdt_blocks", "Reserved GDT blocks", raw.s_reserved_gdt_blocks.get()),
        Fact::new("blocks_per_group", "Blocks per group", raw.s_blocks_per_group.get()),
        Fact::new("inodes_per_group", "Inodes per group", per_group),
        Fact::new("inode_blocks_per_group", "Inode blocks per group", table_blocks),
    ]);
    if features.incompat.contains(Incompat::META_BG) {
        all.push(Fact::new("first_meta_group", "First meta block group", raw.s_first_meta_bg.get()));
    }
    if features.compat.contains(Compat::SPARSE_SUPER2) {
        let groups: Vec<u32> = raw.s_backup_bgs.iter().map(|group| group.get()).collect();
        let text = groups.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        all.push(Fact::new("backup_groups", "Backup block groups", groups).shown(text));
    }
    if raw.s_raid_stride.get() != 0 {
        all.push(Fact::new("raid_stride", "RAID stride", raw.s_raid_stride.get()));
    }
    if raw.s_raid_stripe_width.get() != 0 {
        all.push(Fact::new("raid_stripe_width", "RAID stripe width", raw.s_raid_stripe_width.get()));
    }
    if features.incompat.contains(Incompat::FLEX_BG) {
        let groups = 1_u64.checked_shl(raw.s_log_groups_per_flex.into()).unwrap_or(0);
        all.push(Fact::new("flex_group_size", "Flex block group size", groups));
    }
    all
}

fn history(raw: &RawSuperblock) -> Vec<Fact> {
    let times = raw.times();
    let written = raw.s_kbytes_written.get();
    // -1 stands for "never"; the field is read as a signed one.
    let most = raw.s_max_mnt_count.get().cast_signed();
    let interval = u64::from(raw.s_checkinterval.get());
    let interval_text = if interval == 0 { "0 (<none>)".to_owned() } else { format!("{interval} seconds") };
    vec![
        moment("created", "Filesystem created", times.made),
        moment("last_mount", "Last mount time", times.mounted),
        moment("last_write", "Last write time", times.written),
        Fact::new("mount_count", "Mount count", raw.s_mnt_count.get()),
        Fact::new("max_mount_count", "Maximum mount count", most),
        moment("last_check", "Last checked", times.checked),
        Fact::new("check_interval_seconds", "Check interval", interval).shown(interval_text),
        Fact::new("lifetime_writes_kib", "Lifetime writes", written)
            .shown(human(written.saturating_mul(1024))),
    ]
}

fn inodes_and_journal(raw: &RawSuperblock) -> Vec<Fact> {
    let uid = join_u32(raw.s_def_resuid_hi.get(), raw.s_def_resuid.get());
    let gid = join_u32(raw.s_def_resgid_hi.get(), raw.s_def_resgid.get());
    let mut all = vec![
        Fact::new("reserved_uid", "Reserved blocks uid", uid),
        Fact::new("reserved_gid", "Reserved blocks gid", gid),
        Fact::new("first_inode", "First inode", raw.first_inode()),
        Fact::new("inode_size", "Inode size", raw.inode_size()),
    ];
    if raw.inode_size() > 128 {
        all.push(Fact::new("required_extra_isize", "Required extra isize", raw.s_min_extra_isize.get()));
        all.push(Fact::new("desired_extra_isize", "Desired extra isize", raw.s_want_extra_isize.get()));
    }
    if raw.features().compat.contains(Compat::HAS_JOURNAL) {
        all.push(Fact::new("journal_inode", "Journal inode", raw.s_journal_inum.get()));
        if raw.s_journal_dev.get() != 0 {
            let device = format!("{:#06x}", raw.s_journal_dev.get());
            all.push(Fact::new("journal_device", "Journal device", device));
        }
        all.push(uuid("journal_uuid", "Journal UUID", &raw.s_journal_uuid));
        all.push(named(
            "journal_backup",
            "Journal backup",
            raw.s_jnl_backup_type.into(),
            &["none", "inode blocks"],
        ));
    }
    if raw.s_last_orphan.get() != 0 {
        all.push(Fact::new("first_orphan", "First orphan inode", raw.s_last_orphan.get()));
    }
    if raw.s_def_hash_version != 0 || raw.features().compat.contains(Compat::DIR_INDEX) {
        all.push(named("directory_hash", "Default directory hash", raw.s_def_hash_version.into(), &HASHES));
        let mut seed = [0; 16];
        for (to, from) in seed.chunks_exact_mut(4).zip(&raw.s_hash_seed) {
            to.copy_from_slice(&from.get().to_le_bytes());
        }
        all.push(uuid("directory_hash_seed", "Directory Hash Seed", &seed));
    }
    all
}

fn protection(raw: &RawSuperblock) -> Vec<Fact> {
    let features = raw.features();
    let mut all = Vec::new();
    let options = raw.s_mount_opts.split(|byte| *byte == 0).next().unwrap_or_default();
    if !options.is_empty() {
        all.push(Fact::new("mount_options", "Mount options", words::lossy(options)));
    }
    if features.compat.contains(Compat::ORPHAN_FILE) {
        all.push(Fact::new("orphan_file_inode", "Orphan file inode", raw.s_orphan_file_inum.get()));
    }
    if features.incompat.contains(Incompat::MMP) {
        all.push(Fact::new("mmp_block", "MMP block number", raw.s_mmp_block.get()));
        all.push(Fact::new("mmp_interval", "MMP update interval", raw.s_mmp_update_interval.get()));
    }
    for (inode, key, label) in [
        (raw.s_usr_quota_inum.get(), "user_quota_inode", "User quota inode"),
        (raw.s_grp_quota_inum.get(), "group_quota_inode", "Group quota inode"),
        (raw.s_prj_quota_inum.get(), "project_quota_inode", "Project quota inode"),
    ] {
        if inode != 0 {
            all.push(Fact::new(key, label, inode));
        }
    }
    if features.incompat.contains(Incompat::CASEFOLD) {
        all.push(named("encoding", "Character encoding", raw.s_encoding.get().into(), &["", "utf8-12.1"]));
    }
    if raw.s_error_count.get() != 0 {
        all.push(Fact::new("error_count", "FS Error count", raw.s_error_count.get()));
        let first = u64::from(raw.s_first_error_time.get()) | u64::from(raw.s_first_error_time_hi) << 32;
        let last = u64::from(raw.s_last_error_time.get()) | u64::from(raw.s_last_error_time_hi) << 32;
        all.push(moment("first_error", "First error time", first));
        all.push(moment("last_error", "Last error time", last));
        all.push(Fact::new("last_error_inode", "Last error inode #", raw.s_last_error_ino.get()));
        all.push(Fact::new("last_error_block", "Last error block #", raw.s_last_error_block.get()));
    }
    if features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        all.push(named("checksum_type", "Checksum type", raw.s_checksum_type.into(), &["", "crc32c"]));
        all.push(Fact::new("checksum", "Checksum", format!("{:#010x}", raw.s_checksum.get())));
    }
    if features.incompat.contains(Incompat::CSUM_SEED) {
        let seed = format!("{:#010x}", raw.s_checksum_seed.get());
        all.push(Fact::new("checksum_seed", "Checksum seed", seed));
    }
    all
}

/// The host that has the volume, by the block of multiple mount protection, where there is one.
#[must_use]
pub fn mark(findings: &Findings) -> Vec<Fact> {
    let Some(mark) = &findings.mark else { return Vec::new() };
    let state = match mark.usage() {
        MmpUse::Clean => "not in use",
        MmpUse::Mounted => "in use",
        MmpUse::Check => "under check",
        MmpUse::Unknown => "unknown",
    };
    vec![
        Fact::new("state", "MMP state", state),
        Fact::new("sequence", "MMP sequence", format!("{:#010x}", mark.mmp_seq.get())),
        Fact::new("node", "MMP node name", words::lossy(mark.node())),
        Fact::new("device", "MMP device name", words::lossy(mark.device())),
        moment("time", "MMP update time", mark.mmp_time.get()),
    ]
}

/// The journal's own superblock, where it could be read.
#[must_use]
pub fn journal(findings: &Findings) -> Vec<Fact> {
    let Some(journal) = &findings.journal else { return Vec::new() };
    let bytes = u64::from(journal.s_maxlen.get()) * u64::from(journal.s_blocksize.get());
    let names: Vec<String> = journal.feature_names().into_iter().map(str::to_owned).collect();
    let mut all = vec![
        list("features", "Journal features", names),
        Fact::new("size_bytes", "Total journal size", bytes).shown(human(bytes)),
        Fact::new("blocks", "Total journal blocks", journal.s_maxlen.get()),
        Fact::new("first_block", "Journal first block", journal.s_first.get()),
        Fact::new("fast_commit_blocks", "Fast commit length", journal.s_num_fc_blks.get()),
        hex("sequence", "Journal sequence", journal.s_sequence.get()),
        Fact::new("start", "Journal start", journal.s_start.get()),
    ];
    all.extend(journal_trouble(journal));
    all
}

fn journal_trouble(journal: &RawJournalSuperblock) -> Option<Fact> {
    let number = journal.s_errno.get();
    (number != 0).then(|| Fact::new("error", "Journal errno", number.cast_signed()))
}

fn hex(key: &'static str, label: &'static str, value: u32) -> Fact {
    Fact::new(key, label, value).shown(format!("{value:#010x}"))
}
