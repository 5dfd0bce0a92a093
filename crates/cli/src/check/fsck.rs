//! Being called as `fsck.ext4` and the like, by fsck(8) and by scripts: names, exit codes, and volumes
//! that are passed over because they are marked clean.

use std::ffi::OsString;
use std::path::Path;

use ondisk::features::{Incompat, RoCompat};
use ondisk::inode::Timestamp;
use ondisk::seal::Sealer;
use ondisk::superblock::{RawSuperblock, STATE_ERROR, STATE_VALID};

/// Nothing is wrong.
pub const SOUND: u8 = 0;
/// All that was wrong is repaired.
pub const REPAIRED: u8 = 1;
/// Something is wrong still.
pub const UNSOUND: u8 = 4;
/// The check could not be done.
pub const FAILED: u8 = 8;
/// Wrong usage.
pub const USAGE: u8 = 16;
/// The check was stopped by the user or a signal.
pub const CANCELLED: u8 = 32;

const NAMES: [&str; 5] = ["fsck.ext2", "fsck.ext3", "fsck.ext4", "e2fsck", "fsck.plat"];

/// Turns a call by one of fsck's names into one of `plat check`; all else stays.
#[must_use]
pub fn by_name(arguments: Vec<OsString>) -> Vec<OsString> {
    let name = arguments.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    if !NAMES.iter().any(|known| name == *known) {
        return arguments;
    }
    let turned = ["plat", "check", "--fsck"].into_iter().map(OsString::from);
    turned.chain(arguments.into_iter().skip(1)).collect()
}

/// The exit code of wrong usage: fsck's for a check, 2 for all else. `arguments` are those that
/// [`by_name`] gave.
#[must_use]
pub fn usage_code(arguments: &[OsString]) -> u8 {
    if crate::usage::command_of(arguments) == "check" { USAGE } else { 2 }
}

/// Why a volume is to be checked without `-f`, in a few words; `None` for one that is marked
/// clean and not due.
#[must_use]
pub fn why(raw: &RawSuperblock, now: Timestamp) -> Option<String> {
    let (state, features) = (raw.s_state.get(), raw.features());
    if !Sealer::from_superblock(raw).superblock_is_right(raw) {
        return Some("the checksum of its superblock is wrong".into());
    }
    if features.incompat.contains(Incompat::RECOVER) {
        return Some("its journal is to be replayed".into());
    }
    if state & STATE_ERROR != 0 {
        return Some("it is marked as having errors".into());
    }
    if state & STATE_VALID == 0 {
        return Some("it was not cleanly unmounted".into());
    }
    if raw.s_last_orphan.get() != 0 || features.ro_compat.contains(RoCompat::ORPHAN_PRESENT) {
        return Some("files were deleted while open and are not cleaned up".into());
    }
    // Signed on disk: a negative maximum is none.
    let (mounts, most) = (raw.s_mnt_count.get(), raw.s_max_mnt_count.get());
    if (1..=u16::MAX / 2).contains(&most) && mounts >= most {
        return Some(format!("it was mounted {mounts} times since its last check"));
    }
    let (checked, interval) = (i64::from(raw.s_lastcheck.get()), i64::from(raw.s_checkinterval.get()));
    if interval != 0 && now.seconds >= checked + interval {
        let days = (now.seconds - checked) / 86_400;
        return Some(format!("its last check was {days} days ago"));
    }
    None
}

/// The line about a volume that is passed over.
#[must_use]
pub fn clean_line(raw: &RawSuperblock) -> String {
    let (inodes, blocks) = (raw.s_inodes_count.get(), raw.blocks_count());
    format!(
        "clean, {}/{inodes} files, {}/{blocks} blocks",
        inodes.saturating_sub(raw.s_free_inodes_count.get()),
        blocks.saturating_sub(raw.free_blocks_count())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn helpers_of_fsck_are_called_their_way() {
        assert_eq!(
            by_name(words("/sbin/fsck.ext4 -a -C0 /dev/sda1")),
            words("plat check --fsck -a -C0 /dev/sda1")
        );
        assert_eq!(by_name(words("e2fsck -fn a")), words("plat check --fsck -fn a"));
        assert_eq!(by_name(words("plat check a")), words("plat check a"));
        assert_eq!((usage_code(&words("plat check")), usage_code(&words("plat ls"))), (USAGE, 2));
        assert_eq!(usage_code(&words("plat -q --sandbox off check --bad")), USAGE);
    }

    #[test]
    fn a_volume_is_due_by_its_state_mounts_and_time() {
        let mut raw = RawSuperblock::zeroed();
        let day = |day: i64| Timestamp::from_seconds(day * 86_400);
        raw.s_state.set(STATE_VALID);
        raw.s_max_mnt_count.set(u16::MAX);
        raw.s_mnt_count.set(7);
        assert_eq!(why(&raw, day(20_000)), None);
        raw.s_max_mnt_count.set(7);
        assert_eq!(why(&raw, day(20_000)).unwrap(), "it was mounted 7 times since its last check");
        raw.s_mnt_count.set(6);
        raw.s_checkinterval.set(86_400);
        assert_eq!(why(&raw, day(20_000)).unwrap(), "its last check was 20000 days ago");
        assert_eq!(why(&raw, day(0)), None);
        raw.s_state.set(STATE_VALID | STATE_ERROR);
        assert!(why(&raw, day(0)).unwrap().contains("errors"));
        raw.s_state.set(0);
        assert!(why(&raw, day(0)).unwrap().contains("not cleanly"));
    }
}
