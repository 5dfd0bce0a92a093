//! Summary of a volume.

use ondisk::features::{Compat, Features, Incompat, RoCompat};
use ondisk::superblock::{RawSuperblock, STATE_ERROR, STATE_VALID};
use serde_json::Value;

use super::{Fact, Findings};
use crate::words::{self, human};

/// The type that Linux would mount this as: ext4 as soon as there is a feature that ext3 lacks.
fn type_of(features: Features) -> &'static str {
    let old_incompat = Incompat::FILETYPE | Incompat::RECOVER | Incompat::META_BG;
    let old_ro_compat = RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE | RoCompat::BTREE_DIR;
    let is_old = old_incompat.contains(features.incompat) && old_ro_compat.contains(features.ro_compat);
    match (is_old, features.compat.contains(Compat::HAS_JOURNAL)) {
        _ if features.incompat.contains(Incompat::JOURNAL_DEV) => "journal",
        (false, _) => "ext4",
        (true, true) => "ext3",
        (true, false) => "ext2",
    }
}

/// Bytes of a block as the superblock says, whatever it says.
pub(super) fn block_bytes(raw: &RawSuperblock) -> u64 {
    1024_u64.checked_shl(raw.s_log_block_size.get()).unwrap_or(0)
}

/// A number of blocks as bytes, and as people read it.
fn space(key: &'static str, label: &'static str, raw: &RawSuperblock, blocks: u64) -> Fact {
    let bytes = blocks.saturating_mul(block_bytes(raw));
    Fact::new(key, label, bytes).shown(format!("{} ({blocks} blocks)", human(bytes)))
}

fn state(raw: &RawSuperblock) -> Fact {
    let bits = raw.s_state.get();
    let clean = bits & STATE_VALID != 0 && !raw.features().incompat.contains(Incompat::RECOVER);
    let text = match (clean, bits & STATE_ERROR != 0) {
        (true, false) => "clean",
        (false, false) => "not cleanly unmounted",
        (true, true) => "clean with errors",
        (false, true) => "not cleanly unmounted, with errors",
    };
    Fact::new("state", "State", text)
}

fn journal(findings: &Findings) -> Fact {
    let raw = &findings.raw;
    let text = match &findings.journal {
        _ if !raw.features().compat.contains(Compat::HAS_JOURNAL) => "none",
        _ if raw.features().incompat.contains(Incompat::RECOVER) => "needs recovery",
        _ if raw.s_journal_inum.get() == 0 => "on another device",
        Some(journal) if journal.is_clean() => "clean",
        // Replay is only asked for by the feature; Linux clears this start when it next mounts.
        Some(_) => "clean, though it has a start",
        None => "unknown",
    };
    Fact::new("journal", "Journal", text)
}

fn moment(key: &'static str, label: &'static str, seconds: u64) -> Fact {
    if seconds == 0 {
        return Fact::new(key, label, Value::Null).shown("never");
    }
    Fact::new(key, label, words::whole_seconds(seconds))
}

/// The facts that come first.
#[must_use]
pub fn summary(findings: &Findings) -> Vec<Fact> {
    let raw = &findings.raw;
    let (blocks, free) = (raw.blocks_count(), raw.free_blocks_count());
    let inodes = raw.s_inodes_count.get();
    let used_inodes = inodes.saturating_sub(raw.s_free_inodes_count.get());
    let (times, mounted) = (raw.times(), raw.last_mounted());
    let label = words::lossy(raw.label());
    let mut facts = vec![
        Fact::new("type", "Type", type_of(raw.features())),
        Fact::new("label", "Label", label.clone()).shown(if label.is_empty() { "<none>" } else { &label }),
        Fact::new("uuid", "UUID", words::uuid(&raw.s_uuid)),
        space("size_bytes", "Size", raw, blocks),
        space("used_bytes", "Used", raw, blocks.saturating_sub(free)),
        space("free_bytes", "Free", raw, free),
        space("reserved_bytes", "Reserved", raw, raw.reserved_blocks_count()),
        Fact::new("block_size", "Blocks of", block_bytes(raw)).shown(human(block_bytes(raw))),
        Fact::new("inodes_used", "Inodes used", used_inodes).shown(format!("{used_inodes} of {inodes}")),
        state(raw),
        journal(findings),
        moment("created", "Created", times.made),
        moment("last_mounted", "Last mounted", times.mounted),
        Fact::new("last_mounted_on", "Last mounted on", words::lossy(mounted)),
        moment("last_written", "Last written", times.written),
        moment("last_checked", "Last checked", times.checked),
    ];
    if mounted.is_empty() {
        facts.retain(|fact| fact.key != "last_mounted_on");
    }
    let problems: Vec<Value> = findings.problems.iter().map(|problem| problem.as_str().into()).collect();
    if !problems.is_empty() {
        facts.push(Fact::new("problems", "Problem", problems).shown(findings.problems.join("; ")));
    }
    facts
}
