//! The superblock of a new volume: everything that sizes and files do not decide.

use ondisk::features::{Compat, Incompat};
use ondisk::seal::crc32c;
use ondisk::superblock::{FLAG_SIGNED_HASH, MAGIC, RawSuperblock, STATE_VALID, SuperblockTimes};

use super::options::{OnError, Options};
use super::shape::Shape;

/// `s_default_mount_opts`: user attributes and ACLs.
const MOUNT_USER_XATTR_AND_ACL: u32 = 0x4 | 0x8;
/// `s_def_hash_version`: half-MD4.
const HASH_HALF_MD4: u8 = 1;
/// `s_flags`: a playground for experimental code.
const FLAG_TEST: u32 = 4;
/// `s_checksum_type`: CRC-32C.
const CHECKSUM_CRC32C: u8 = 1;
/// Bytes of the extra inode fields that new inodes use.
const EXTRA_FIELDS: u16 = ondisk::inode::EXTRA_SIZE;
/// `s_max_mnt_count`: no check after a number of mounts.
const NEVER: u16 = u16::MAX;

fn on_error(behaviour: OnError) -> u16 {
    match behaviour {
        OnError::Continue => 1,
        OnError::RemountReadOnly => 2,
        OnError::Panic => 3,
    }
}

/// Copies as much of `text` as the field holds.
fn set_text(field: &mut [u8], text: &[u8]) {
    for (to, from) in field.iter_mut().zip(text) {
        *to = *from;
    }
}

/// Superblock fields of every kind of volume, the journal device included.
pub(super) fn identity(options: &Options) -> RawSuperblock {
    let mut raw = RawSuperblock::zeroed();
    raw.s_magic.set(MAGIC);
    raw.s_state.set(STATE_VALID);
    raw.s_rev_level.set(u32::from(!options.old_revision));
    raw.s_errors.set(on_error(options.on_error));
    raw.s_max_mnt_count.set(NEVER);
    raw.s_creator_os.set(options.creator_os);
    raw.s_uuid = options.uuid;
    let now = options.time;
    raw.set_times(SuperblockTimes { written: now, mounted: 0, made: now, checked: now });
    set_text(&mut raw.s_volume_name, &options.label);
    set_text(&mut raw.s_last_mounted, &options.last_mounted);
    for (word, bytes) in raw.s_hash_seed.iter_mut().zip(options.hash_seed.chunks_exact(4)) {
        word.set(bytes.try_into().map_or(0, u32::from_le_bytes));
    }
    raw.s_def_hash_version = HASH_HALF_MD4;
    raw.s_first_ino.set(ondisk::units::InodeNumber::FIRST_OLD.get());
    if !options.old_revision {
        raw.s_default_mount_opts.set(MOUNT_USER_XATTR_AND_ACL);
    }
    raw.s_kbytes_written.set(1);
    raw
}

/// The superblock of a volume of this shape, before its files are planned.
pub(super) fn of_volume(options: &Options, shape: &Shape) -> RawSuperblock {
    let mut raw = identity(options);
    shape.store(&mut raw);
    // Hashes of names as mke2fs on machines whose characters are signed, such as x86.
    let test = if options.test_volume { FLAG_TEST } else { 0 };
    raw.s_flags.set(FLAG_SIGNED_HASH | test);
    if shape.inode_size > 128 {
        raw.s_min_extra_isize.set(EXTRA_FIELDS);
        raw.s_want_extra_isize.set(EXTRA_FIELDS);
    }
    raw.s_raid_stride.set(options.stride.unwrap_or(0));
    raw.s_raid_stripe_width.set(options.stripe_width.unwrap_or(0));
    if shape.features.metadata_csum() {
        raw.s_checksum_type = CHECKSUM_CRC32C;
    }
    if shape.features.incompat.contains(Incompat::CSUM_SEED) {
        raw.s_checksum_seed.set(options.checksum_seed.unwrap_or_else(|| crc32c(!0, &options.uuid)));
    }
    if shape.features.incompat.contains(Incompat::CASEFOLD) {
        raw.s_encoding.set(options.encoding.number);
        raw.s_encoding_flags.set(options.encoding.flags);
    }
    if shape.features.incompat.contains(Incompat::ENCRYPT) {
        // AES-256-XTS for contents and AES-256-CTS for names.
        set_text(&mut raw.s_encrypt_algos, &[1, 4]);
    }
    debug_assert!(!shape.features.compat.contains(Compat::HAS_JOURNAL) || !options.old_revision);
    raw
}
