//! Fields of the superblock that are wrong though the volume can be read by it.

use ondisk::features::{Compat, Features, Incompat, RoCompat};
use ondisk::geometry::Geometry;
use ondisk::inode::OLD_SIZE;
use ondisk::superblock::{RawSuperblock, STATE_ERROR, STATE_VALID};

use super::issue::Location;
use super::kinds::{Kind, opening as kind};
use super::reporter::{Finding, Report};
use platfs_device::Device;

/// Extra bytes of inodes that every field this code knows fits in.
const EXTRA_SIZE: u16 = ondisk::inode::EXTRA_SIZE;
/// Extra bytes of inodes that have a whole checksum, the least there are.
const LEAST_EXTRA: u16 = 4;

/// The superblock under examination, and where issues go.
struct Fields<'a, 'r, 's> {
    raw: &'a mut RawSuperblock,
    report: &'r mut Report<'s>,
    /// True if backups have a copy of what was repaired.
    lasting: bool,
}

impl Fields<'_, '_, '_> {
    /// Reports a field that is wrong, which it is if something was found; `mend` repairs it.
    fn rule(
        &mut self,
        kind: &'static Kind,
        found: Option<String>,
        repair: &str,
        mend: impl FnOnce(&mut RawSuperblock),
    ) {
        let Some(found) = found else { return };
        if self.report.found(kind, Finding::new(Location::default(), found, repair)) {
            mend(self.raw);
            self.lasting = true;
        }
    }

    fn features(&mut self, change: impl FnOnce(&mut Features)) {
        let mut features = self.raw.features();
        change(&mut features);
        self.raw.set_features(features);
    }
}

/// Checks fields that need nothing but the superblock; returns true if backups have copies of what was repaired.
pub(super) fn check(raw: &mut RawSuperblock, now: i64, report: &mut Report<'_>) -> bool {
    let mut fields = Fields { raw, report, lasting: false };
    sizes(&mut fields);
    combinations(&mut fields);
    quota_inodes(&mut fields);
    let lasting = fields.lasting;
    times(&mut fields, now);
    state(&mut fields);
    lasting
}

fn sizes(fields: &mut Fields<'_, '_, '_>) {
    let features = fields.raw.features();
    let early = fields.raw.s_rev_level.get() == 0 && features != Features::default();
    fields.rule(
        &kind::REVISION,
        early.then(|| features.names().join(", ")),
        "it becomes 1, with the same sizes",
        RawSuperblock::begin_revision_1,
    );
    let raw = &*fields.raw;
    let (blocks, reserved) = (raw.blocks_count(), raw.reserved_blocks_count());
    fields.rule(
        &kind::RESERVED_BLOCKS,
        (reserved > blocks / 2).then(|| format!("{reserved} of {blocks} blocks")),
        "a twentieth is reserved, as by default",
        |raw| raw.set_reserved_blocks_count(blocks / 20),
    );
    let size = fields.raw.s_desc_size.get();
    let odd = size != 0 && (!size.is_power_of_two() || size > 1024);
    fields.rule(
        &kind::DESCRIPTOR_SIZE,
        (odd && !features.incompat.contains(Incompat::BIT64)).then(|| format!("{size} bytes")),
        "it becomes 0: descriptors have 32 bytes without 64bit",
        |raw| raw.s_desc_size.set(0),
    );
    let inode_size = fields.raw.inode_size();
    if usize::from(inode_size) <= OLD_SIZE {
        return;
    }
    let most = inode_size - 128;
    let wrong = |extra: u16| extra != 0 && (extra < LEAST_EXTRA || extra > most || !extra.is_multiple_of(4));
    let becomes = format!("it becomes {EXTRA_SIZE}");
    let (least, wanted) = (fields.raw.s_min_extra_isize.get(), fields.raw.s_want_extra_isize.get());
    fields.rule(
        &kind::MIN_EXTRA_SIZE,
        wrong(least).then(|| format!("at least {least} bytes")),
        &becomes,
        |raw| raw.s_min_extra_isize.set(EXTRA_SIZE),
    );
    fields.rule(&kind::WANT_EXTRA_SIZE, wrong(wanted).then(|| format!("{wanted} bytes")), &becomes, |raw| {
        raw.s_want_extra_isize.set(EXTRA_SIZE)
    });
}

/// Features that exclude or need each other.
fn combinations(fields: &mut Fields<'_, '_, '_>) {
    let features = fields.raw.features();
    let mut rule = |kind, wrong: bool, found: &str, repair, change: fn(&mut Features)| {
        let mut repaired = false;
        fields.rule(kind, wrong.then(|| found.to_owned()), repair, |_| repaired = true);
        if repaired {
            fields.features(change);
        }
    };
    rule(
        &kind::TWO_CHECKSUMS,
        features.metadata_csum() && features.ro_compat.contains(RoCompat::GDT_CSUM),
        "metadata_csum and uninit_bg",
        "uninit_bg is turned off",
        |features| features.ro_compat -= RoCompat::GDT_CSUM,
    );
    rule(
        &kind::SEED_WITHOUT_CHECKSUMS,
        !features.metadata_csum() && features.incompat.contains(Incompat::CSUM_SEED),
        "metadata_csum_seed without metadata_csum",
        "it is turned off",
        |features| features.incompat -= Incompat::CSUM_SEED,
    );
    rule(
        &kind::WIDE_WITHOUT_EXTENTS,
        features.incompat.contains(Incompat::BIT64) && !features.incompat.contains(Incompat::EXTENTS),
        "64bit without extent",
        "extent is turned on",
        |features| features.incompat |= Incompat::EXTENTS,
    );
    rule(
        &kind::RESIZE_WITH_META_BG,
        features.compat.contains(Compat::RESIZE_INODE) && features.incompat.contains(Incompat::META_BG),
        "resize_inode and meta_bg",
        "resize_inode is turned off",
        |features| features.compat -= Compat::RESIZE_INODE,
    );
    let left = fields.raw.features();
    if features.incompat.contains(Incompat::CSUM_SEED) && !left.incompat.contains(Incompat::CSUM_SEED) {
        fields.raw.s_checksum_seed.set(0);
    }
    reserved_descriptors(fields, features);
}

/// Blocks are reserved for descriptors only where an inode has them; `before` are the features as they were.
fn reserved_descriptors(fields: &mut Fields<'_, '_, '_>, before: Features) {
    let resizes = fields.raw.features().compat.contains(Compat::RESIZE_INODE);
    let reserved = fields.raw.s_reserved_gdt_blocks.get();
    if !resizes && before.compat.contains(Compat::RESIZE_INODE) {
        // Follows from turning it off.
        fields.raw.s_reserved_gdt_blocks.set(0);
    } else {
        fields.rule(
            &kind::RESERVED_DESCRIPTORS,
            (!resizes && reserved != 0).then(|| format!("{reserved} blocks without resize_inode")),
            "none are reserved",
            |raw| raw.s_reserved_gdt_blocks.set(0),
        );
    }
}

/// Inodes that hold quota can't be one of those with another task.
fn quota_inodes(fields: &mut Fields<'_, '_, '_>) {
    let inodes = fields.raw.s_inodes_count.get();
    let wrong = |inode: u32| inode != 0 && (matches!(inode, 1 | 2 | 5..=10) || inode > inodes);
    let (user, group, project) = (
        fields.raw.s_usr_quota_inum.get(),
        fields.raw.s_grp_quota_inum.get(),
        fields.raw.s_prj_quota_inum.get(),
    );
    let repair = "the field is cleared: no such quota is kept";
    let words =
        |wrong: bool, whose: &str, inode: u32| wrong.then(|| format!("{whose} quota in inode {inode}"));
    let rule = &kind::QUOTA_INODE_NUMBER;
    // Of two in one inode the one goes that has another by custom: 3 is the users', 4 the groups'.
    let twice = |inode: u32, other: u32| inode != 0 && inode == other;
    let (shares, usual) = (twice(user, group), user == 3);
    let wrong_user = wrong(user) || shares && !usual;
    let wrong_group = wrong(group) || shares && usual;
    let wrong_project = wrong(project) || twice(project, user) || twice(project, group);
    fields.rule(rule, words(wrong_user, "user", user), repair, |raw| raw.s_usr_quota_inum.set(0));
    fields.rule(rule, words(wrong_group, "group", group), repair, |raw| raw.s_grp_quota_inum.set(0));
    fields.rule(rule, words(wrong_project, "project", project), repair, |raw| raw.s_prj_quota_inum.set(0));
}

/// Times that have not come yet, where it is known what time it is. Compared as 32 bits, as they are kept.
fn times(fields: &mut Fields<'_, '_, '_>, now: i64) {
    let Some(now) = u32::try_from(now).ok().filter(|now| *now != 0) else { return };
    let (mounted, written) = (fields.raw.s_mtime.get(), fields.raw.s_wtime.get());
    let found = |time: u32| (time > now).then(|| format!("{time} seconds since 1970, now it is {now}"));
    let repair = "it becomes the time of this check";
    fields.rule(&kind::MOUNTED_LATER, found(mounted), repair, |raw| raw.s_mtime.set(now));
    fields.rule(&kind::WRITTEN_LATER, found(written), repair, |raw| raw.s_wtime.set(now));
}

/// Marks of a volume that was not closed, or in which Linux met errors. They go at the end of a check
/// that leaves nothing wrong ([`settle`]).
fn state(fields: &mut Fields<'_, '_, '_>) {
    let (state, errors) = (fields.raw.s_state.get(), fields.raw.s_error_count.get());
    let mut found = Vec::new();
    if state & STATE_ERROR != 0 || errors != 0 {
        found.push(format!("Linux noted {errors} errors in it"));
    }
    if state & STATE_VALID == 0 {
        found.push("it was not closed, or is in use".to_owned());
    }
    fields.rule(
        &kind::VOLUME_STATE,
        (!found.is_empty()).then(|| found.join("; ")),
        "it is marked as in order once everything else is",
        |raw| {
            raw.s_state.set((state | STATE_VALID) & !STATE_ERROR);
            raw.s_error_count.set(0);
        },
    );
}

/// Marks the volume as checked and in order.
pub(super) fn settle(raw: &mut RawSuperblock, now: i64) {
    raw.s_state.set(STATE_VALID);
    raw.s_mnt_count.set(0);
    if now > 0 {
        let times = ondisk::superblock::SuperblockTimes { checked: now.cast_unsigned(), ..raw.times() };
        raw.set_times(times);
    }
    if raw.s_error_count.get() == 0 {
        raw.s_first_error_time.set(0);
        raw.s_last_error_time.set(0);
    }
}

/// Says that the device ends before the volume does. Then nothing else is reported, and nothing is repaired: what seems
/// lost may only lie behind the end of a partition that was made too short.
pub(super) fn is_cut_short(device: &dyn Device, geometry: &Geometry, report: &mut Report<'_>) -> bool {
    let blocks = device.size() >> geometry.block_size.log2();
    let short = blocks < geometry.blocks;
    if short {
        let found = format!(
            "the device ends after {blocks} of {} blocks; the volume needs {} bytes",
            geometry.blocks,
            geometry.blocks.saturating_mul(u64::from(geometry.block_size.bytes()))
        );
        report.found_last(&kind::VOLUME_CUT_SHORT, Finding::new(Location::default(), found, ""));
    }
    short
}
