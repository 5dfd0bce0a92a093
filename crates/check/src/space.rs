//! Bitmaps, counts and descriptors: that they say what was found in use.
//!
//! Consequences of repairs made elsewhere are mended without a word: see [`Facts`]. A count is
//! wrong when it is neither what was found nor what its own bitmap says (then the bitmap is to blame).

use std::sync::atomic::{AtomicU64, Ordering};

use ondisk::group::{GroupFlags, RawGroupDescriptor};
use ondisk::inode::FileType;
use ondisk::units::{Block, Group, InodeNumber, bounded, saturated};

use super::bitmap::{self, Compared, Stored};
use super::facts::Facts;
use super::issue::Location;
use super::kinds::{Kind, space as kind};
use super::paged::Bits;
use super::parts::Part;
use super::reporter::{Finding, Report};
use super::staged::staging;
use super::subject::Subject;
use super::{descriptors, parallel, resize};
use platfs_device::{Device, Result};

/// Groups in a piece of the work that threads share.
const GROUPS_PER_PIECE: u64 = 32;

/// Sums over groups.
#[derive(Default)]
struct GroupTotals {
    /// As their descriptors state.
    stated_clusters: AtomicU64,
    stated_inodes: AtomicU64,
    /// As their bitmaps say.
    marked_clusters: AtomicU64,
    marked_inodes: AtomicU64,
    /// As they should be.
    found_clusters: AtomicU64,
    found_inodes: AtomicU64,
}

/// Compares bitmaps and counts with what was found, and stages what changed.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn check(subject: &mut Subject, facts: &Facts, report: &mut Report<'_>) -> Result<()> {
    resize::finish(subject, facts)?;
    let (sums, suspects) = (GroupTotals::default(), Bits::new(u64::from(subject.geometry.groups)));
    let groups = u64::from(subject.geometry.groups);
    let pieces = groups.div_ceil(GROUPS_PER_PIECE);
    let quiet = &*subject;
    parallel::share(
        subject.threads,
        pieces,
        |piece| report.progress("bitmaps", piece * GROUPS_PER_PIECE, groups),
        |piece| {
            for group in piece * GROUPS_PER_PIECE..((piece + 1) * GROUPS_PER_PIECE).min(groups) {
                let group = Group(bounded::<u32>(group));
                if !Examined::of(quiet, facts, group).is_sound(quiet, &sums) {
                    suspects.insert(u64::from(group.0));
                }
            }
        },
    );
    let mut repair = Repair { subject, facts, report };
    for group in suspects.iter() {
        repair.group(Group(bounded::<u32>(group)))?;
    }
    repair.totals(&sums);
    descriptors::write(subject)
}

/// Result of the examination of one group's bitmaps.
struct Examined {
    group: Group,
    raw: RawGroupDescriptor,
    blocks: BitmapState,
    inodes: BitmapState,
    /// Directories found, and those that the bitmap knows.
    directories: u32,
    marked_directories: u32,
    /// Inodes behind the last one in use.
    tail: u32,
    renewed: bool,
}

/// One of the two bitmaps.
struct BitmapState {
    stored: Stored,
    compared: Compared,
    base: u64,
    count: u32,
    /// Bits that the bitmap has in every group, and that its checksum covers.
    span: u32,
}

impl BitmapState {
    fn free(&self) -> u32 {
        self.count - self.compared.found
    }

    fn marked_free(&self) -> u32 {
        self.count - self.compared.stated
    }

    fn checksum_is_right(&self, subject: &Subject, stated: u32) -> bool {
        let Stored::Bytes(bytes) = &self.stored else { return true };
        subject.sealer.bitmap_checksum(bytes, self.span).is_none_or(|right| right == stated)
    }

    /// Counts the reported differences as the bitmap states them, because they stay.
    fn keep(&mut self) {
        let kept = |numbers: &[u64]| saturated::<u32>(numbers.len());
        let used = self.compared.found + kept(&self.compared.idle);
        self.compared.found = used.saturating_sub(kept(&self.compared.missing)).min(self.count);
    }

    fn is_sound(&self) -> bool {
        !self.compared.differs && self.stored.is_padded(self.count)
    }

    /// The bytes it should have; where it is not to be repaired, what is reported stays.
    fn bytes(&self, found: &Bits, block_len: usize, repairs: bool) -> Vec<u8> {
        let except =
            if repairs { Vec::new() } else { [&*self.compared.missing, &*self.compared.idle].concat() };
        bitmap::bytes(found, self.base, self.count, block_len, &except)
    }
}

impl Examined {
    fn of(subject: &Subject, facts: &Facts, group: Group) -> Self {
        let raw = subject.descriptor(group).copied().unwrap_or_else(RawGroupDescriptor::zeroed);
        let renewed = subject.renewed.contains(&group.0);
        let blocks = blocks_of(subject, facts, group, &raw, renewed);
        let inodes = inodes_of(subject, facts, group, &raw, renewed);
        let mut examined =
            Examined { group, raw, blocks, inodes, directories: 0, marked_directories: 0, tail: 0, renewed };
        examined.walk_inodes(facts);
        examined
    }

    fn walk_inodes(&mut self, facts: &Facts) {
        let (mut last, mut unknown) = (None, false);
        for at in (0..u64::from(self.inodes.count)).step_by(64) {
            let left = u64::from(self.inodes.count) - at;
            let mask = if left >= 64 { u64::MAX } else { (1 << left) - 1 };
            let mut used = facts.used.window(self.inodes.base + at) & mask;
            while used != 0 {
                let index = at + u64::from(used.trailing_zeros());
                used &= used - 1;
                last = Some(index);
                let inode = u32::try_from(self.inodes.base + index + 1).ok().and_then(InodeNumber::new);
                let file_type = inode.and_then(|inode| facts.file_type(inode));
                unknown |= file_type.is_none();
                if file_type == Some(FileType::Directory) {
                    self.directories += 1;
                    self.marked_directories += u32::from(self.inodes.stored.has(index).unwrap_or(true));
                }
            }
        }
        let begun = last.map_or(0, |last| bounded::<u32>(last + 1));
        self.tail = self.inodes.count.saturating_sub(begun);
        if unknown && facts.unread.load(Ordering::Relaxed) {
            // Inodes that can't be read may be any.
            self.directories = self.raw.used_directories();
        }
    }

    /// Returns true if there is nothing to report or to mend; adds to the sums.
    fn is_sound(&self, subject: &Subject, sums: &GroupTotals) -> bool {
        sums.stated_clusters.fetch_add(u64::from(self.raw.free_clusters()), Ordering::Relaxed);
        sums.stated_inodes.fetch_add(u64::from(self.raw.free_inodes()), Ordering::Relaxed);
        sums.marked_clusters.fetch_add(u64::from(self.blocks.marked_free()), Ordering::Relaxed);
        sums.marked_inodes.fetch_add(u64::from(self.inodes.marked_free()), Ordering::Relaxed);
        sums.found_clusters.fetch_add(u64::from(self.blocks.free()), Ordering::Relaxed);
        sums.found_inodes.fetch_add(u64::from(self.inodes.free()), Ordering::Relaxed);
        !self.renewed
            && !subject.unused_doubted.contains_key(&self.group.0)
            && self.blocks.is_sound()
            && self.inodes.is_sound()
            && self.blocks.checksum_is_right(subject, self.raw.block_bitmap_checksum())
            && self.inodes.checksum_is_right(subject, self.raw.inode_bitmap_checksum())
            && self.raw.free_clusters() == self.blocks.free()
            && self.raw.free_inodes() == self.inodes.free()
            && self.raw.used_directories() == self.directories
            && self.unused_fits(subject)
    }

    /// Returns true if the part of the table said to be unused is unused.
    fn unused_fits(&self, subject: &Subject) -> bool {
        !subject.features.descriptor_csum() || self.raw.unused_inodes() <= self.tail
    }
}

/// Takes all that bitmaps call used for used, since inodes that can't be read may have it.
pub(super) fn keep_marked(subject: &Subject, facts: &Facts) {
    for group in (0..subject.geometry.groups).map(Group) {
        let Some(raw) = subject.descriptor(group) else { continue };
        let base = u64::from(group.0) * u64::from(subject.geometry.clusters_per_group());
        let begun = !subject.group_has(group, GroupFlags::BLOCK_UNINIT);
        let stored = begun.then(|| Stored::read(subject, raw.block_bitmap()));
        let marked = |at: u64| stored.as_ref().and_then(|stored| stored.has(at)) == Some(true);
        for at in (0..u64::from(subject.geometry.group_clusters(group))).filter(|at| marked(*at)) {
            facts.claimed.insert(base + at);
        }
    }
}

/// A group's block bitmap and the clusters found in use.
fn blocks_of(
    subject: &Subject,
    facts: &Facts,
    group: Group,
    raw: &RawGroupDescriptor,
    renewed: bool,
) -> BitmapState {
    let geometry = &subject.geometry;
    let span = geometry.clusters_per_group();
    let base = u64::from(group.0) * u64::from(span);
    let stored = match () {
        () if renewed => Stored::Void,
        () if subject.group_has(group, GroupFlags::BLOCK_UNINIT) => {
            Stored::Uninit(own_structures(subject, group))
        }
        () => Stored::read(subject, raw.block_bitmap()),
    };
    let count = geometry.group_clusters(group);
    let given_up = facts.has_given_up();
    let compared = bitmap::compare(&stored, &facts.claimed, base, count, |at, missing, idle| {
        (missing & !facts.taken.window(at), if given_up { 0 } else { idle })
    });
    BitmapState { stored, compared, base, count, span }
}

/// A group's inode bitmap and the inodes found in use.
fn inodes_of(
    subject: &Subject,
    facts: &Facts,
    group: Group,
    raw: &RawGroupDescriptor,
    renewed: bool,
) -> BitmapState {
    let count = subject.geometry.inodes_per_group;
    let base = u64::from(group.0) * u64::from(count);
    let stored = match () {
        () if renewed => Stored::Void,
        () if subject.group_has(group, GroupFlags::INODE_UNINIT) => Stored::Uninit(Bits::new(0)),
        () => Stored::read(subject, raw.inode_bitmap()),
    };
    let compared = bitmap::compare(&stored, &facts.used, base, count, |at, missing, idle| {
        let altered = facts.altered.window(at);
        (missing & !altered, idle & !altered)
    });
    BitmapState { stored, compared, base, count, span: count }
}

/// The clusters of a group that its own structures take, counted from its first: those that Linux sets
/// when it begins the bitmap.
fn own_structures(subject: &Subject, group: Group) -> Bits {
    let geometry = &subject.geometry;
    let bits = Bits::new(u64::from(geometry.group_clusters(group)));
    let first = geometry.cluster_of(geometry.group_start(group)).0;
    let add = |start: Block, count: u64| {
        if count > 0 && geometry.group_of_block(start) == Some(group) {
            let (from, end) =
                (geometry.cluster_of(start).0, geometry.cluster_of(Block(start.0 + count - 1)).0);
            bits.insert_range(from - first, end + 1 - first, |_| ());
        }
    };
    let header = geometry.group_header(group);
    add(header.start, u64::from(header.count));
    for part in Part::ALL {
        if let Some(raw) = subject.descriptor(group) {
            add(part.of(raw), part.blocks(subject));
        }
    }
    bits
}

/// A count as it stands and as it was found.
struct Count {
    stated: u64,
    found: u64,
    /// True if an issue that was reported explains the difference.
    follows: bool,
}

/// The telling and mending of what was not sound.
struct Repair<'a, 'r, 's> {
    subject: &'a mut Subject,
    facts: &'a Facts,
    report: &'r mut Report<'s>,
}

impl Repair<'_, '_, '_> {
    fn group(&mut self, group: Group) -> Result<()> {
        let mut examined = Examined::of(self.subject, self.facts, group);
        let facts = self.facts;
        let words = BitmapKind::of_blocks(self.subject);
        self.bitmap(group, &mut examined.blocks, &facts.claimed, &words)?;
        self.bitmap(group, &mut examined.inodes, &facts.used, &BitmapKind::OF_INODES)?;
        self.counts(&examined);
        Ok(())
    }

    /// Reports a bitmap that is wrong; returns true if it is to be repaired, `None` where all is well.
    fn tell(
        &mut self,
        side: &BitmapState,
        words: &BitmapKind,
        group: Group,
        raw: &RawGroupDescriptor,
    ) -> Option<bool> {
        let (place, sum) = ((words.place)(raw), (words.sum)(raw));
        let here = Location::group(group).at_block(place);
        let mut found = Vec::new();
        let list = |numbers: &[u64]| bitmap::ranges(numbers, words.zero, words.each);
        if !side.compared.missing.is_empty() {
            found.push(format!("in use and marked free: {} {}", words.what, list(&side.compared.missing)));
        }
        if !side.compared.idle.is_empty() {
            found.push(format!("free and marked in use: {} {}", words.what, list(&side.compared.idle)));
        }
        let renew = "it is rewritten from what is in use";
        if let Stored::Unreadable(error) = &side.stored {
            return Some(self.report.found(words.unreadable, Finding::new(here, error.clone(), renew)));
        }
        if !found.is_empty() {
            let kind = match side.stored {
                Stored::Uninit(_) => words.uninit,
                _ => words.wrong,
            };
            let finding = Finding::new(here, found.join("; "), renew);
            return Some(self.report.found(kind, finding.overused(!side.compared.missing.is_empty())));
        }
        if side.compared.differs {
            return Some(true);
        }
        if !side.stored.is_padded(side.count) {
            let found = format!("bits behind bit {} are not all set", side.count - 1);
            return Some(self.report.found(words.padding, Finding::new(here, found, "they are set")));
        }
        if side.checksum_is_right(self.subject, sum) {
            return None;
        }
        let found = format!("{sum:#x}");
        Some(self.report.found(words.checksum, Finding::new(here, found, "the checksum is recomputed")))
    }

    /// Reports a bitmap and rewrites it; `side` is then what the group has.
    fn bitmap(
        &mut self,
        group: Group,
        side: &mut BitmapState,
        found: &Bits,
        words: &BitmapKind,
    ) -> Result<()> {
        let Some(raw) = self.subject.descriptor(group).copied() else { return Ok(()) };
        let place = (words.place)(&raw);
        let Some(repairs) = self.tell(side, words, group, &raw) else { return Ok(()) };
        if !repairs {
            side.keep();
        }
        let stays = nothing_follows(side) || self.report.all_stays();
        if !repairs && stays || !is_writable(self.subject, place) {
            return Ok(());
        }
        let bytes = side.bytes(found, self.subject.block_len(), repairs);
        self.subject.write(place, &bytes).map_err(staging("a bitmap"))?;
        let sum = self.subject.sealer.bitmap_checksum(&bytes, side.span);
        self.edit(group, |raw| {
            raw.set_flags(raw.flags() - words.flag);
            if let Some(sum) = sum {
                (words.set_sum)(raw, sum);
            }
        });
        Ok(())
    }

    /// Reports a count that differs from what was found; returns true if it is to be mended. Silent where an issue explains
    /// it.
    fn count(&mut self, kind: &'static Kind, group: Option<Group>, count: Count) -> bool {
        let Count { stated, found, follows } = count;
        if stated == found {
            return false;
        }
        let place = group.map_or_else(Location::default, Location::group);
        let finding = Finding::new(place, stated.to_string(), format!("it becomes {found}"))
            .expected(found.to_string());
        if follows { !self.report.all_stays() } else { self.report.found(kind, finding) }
    }

    fn counts(&mut self, examined: &Examined) {
        let group = examined.group;
        let raw = examined.raw;
        let (blocks, inodes) = (&examined.blocks, &examined.inodes);
        let wide = u64::from;
        let follows = examined.renewed || raw.free_clusters() == blocks.marked_free();
        let free = blocks.free();
        let count = Count { stated: wide(raw.free_clusters()), found: wide(free), follows };
        if self.count(&kind::GROUP_FREE_BLOCKS, Some(group), count) {
            self.edit(group, |raw| raw.set_free_clusters(free));
        }
        let follows = examined.renewed || raw.free_inodes() == inodes.marked_free();
        let free = inodes.free();
        let count = Count { stated: wide(raw.free_inodes()), found: wide(free), follows };
        if self.count(&kind::GROUP_FREE_INODES, Some(group), count) {
            self.edit(group, |raw| raw.set_free_inodes(free));
        }
        let altered = (0..u64::from(inodes.count))
            .step_by(64)
            .any(|at| self.facts.altered.window(inodes.base + at) != 0);
        let follows = examined.renewed || altered || raw.used_directories() == examined.marked_directories;
        let (stated, found) = (wide(raw.used_directories()), wide(examined.directories));
        if self.count(&kind::GROUP_DIRECTORIES, Some(group), Count { stated, found, follows }) {
            self.edit(group, |raw| raw.set_used_directories(examined.directories));
        }
        self.unused(examined);
    }

    /// The end of the table that was never used.
    fn unused(&mut self, examined: &Examined) {
        let (group, tail) = (examined.group, examined.tail);
        if let Some(stated) = self.subject.unused_doubted.remove(&group.0) {
            let finding =
                Finding::new(Location::group(group), stated.to_string(), format!("it becomes {tail}"))
                    .expected(format!("at most {tail}"));
            // Where it fits, the count of free inodes was to blame, or a bit of the bitmap.
            let repairs = stated <= tail || self.report.found(&kind::GROUP_UNUSED_INODES, finding);
            let becomes = if repairs { stated.min(tail) } else { stated };
            self.edit(group, |raw| raw.set_unused_inodes(becomes));
        } else if !examined.unused_fits(self.subject) && !self.report.all_stays() {
            self.edit(group, |raw| raw.set_unused_inodes(tail));
        }
    }

    fn edit(&mut self, group: Group, change: impl FnOnce(&mut RawGroupDescriptor)) {
        if let Some(raw) = self.subject.descriptor_mut(group) {
            change(raw);
        }
    }

    /// The sums in the superblock.
    fn totals(&mut self, sums: &GroupTotals) {
        let groups = || (0..self.subject.geometry.groups).map(Group);
        let sum = |of: fn(&RawGroupDescriptor) -> u32| -> u64 {
            groups().filter_map(|group| self.subject.descriptor(group)).map(|raw| u64::from(of(raw))).sum()
        };
        let (clusters, inodes) =
            (sum(RawGroupDescriptor::free_clusters), sum(RawGroupDescriptor::free_inodes));
        let each = u64::from(self.subject.geometry.blocks_per_cluster());
        let renewed = self.subject.superblock_renewed || !self.subject.renewed.is_empty();
        let raw = &self.subject.raw;
        let (free_blocks, free_inodes) = (raw.free_blocks_count(), u64::from(raw.s_free_inodes_count.get()));
        let seen = |of: &AtomicU64, each: u64, stated| of.load(Ordering::Relaxed) * each == stated;
        let follows = renewed
            || seen(&sums.stated_clusters, each, free_blocks)
            || seen(&sums.marked_clusters, each, free_blocks);
        // A right sum stays where a group's wrong count is to stay.
        let right = seen(&sums.found_clusters, each, free_blocks);
        let count = Count { stated: free_blocks, found: clusters * each, follows };
        if !right && self.count(&kind::FREE_BLOCKS, None, count) {
            self.subject.raw.set_free_blocks_count(clusters * each);
        }
        let follows =
            renewed || seen(&sums.stated_inodes, 1, free_inodes) || seen(&sums.marked_inodes, 1, free_inodes);
        let right = seen(&sums.found_inodes, 1, free_inodes);
        let count = Count { stated: free_inodes, found: inodes, follows };
        if !right && self.count(&kind::FREE_INODES, None, count) {
            self.subject.raw.s_free_inodes_count.set(bounded::<u32>(inodes));
        }
    }
}

/// Returns true if everything in which a bitmap is wrong was reported.
fn nothing_follows(side: &BitmapState) -> bool {
    matches!(side.stored, Stored::Unreadable(_)) || !side.compared.unreported
}

/// Returns true if a bitmap can be written at its place: inside the volume, and the device reaches there.
fn is_writable(subject: &Subject, place: Block) -> bool {
    let end = subject.geometry.byte_offset(Block(place.0.saturating_add(1)));
    place.0 != 0 && subject.geometry.contains(place, 1) && end <= subject.device.size()
}

/// In what the two bitmaps differ.
struct BitmapKind {
    what: &'static str,
    /// Number that the first bit of the first group stands for, and how many each bit covers.
    zero: u64,
    each: u64,
    wrong: &'static Kind,
    uninit: &'static Kind,
    padding: &'static Kind,
    checksum: &'static Kind,
    unreadable: &'static Kind,
    flag: GroupFlags,
    place: fn(&RawGroupDescriptor) -> Block,
    sum: fn(&RawGroupDescriptor) -> u32,
    set_sum: fn(&mut RawGroupDescriptor, u32),
}

impl BitmapKind {
    const OF_INODES: BitmapKind = BitmapKind {
        what: "inodes",
        zero: 1,
        each: 1,
        wrong: &kind::INODE_BITMAP,
        uninit: &kind::INODE_BITMAP,
        padding: &kind::INODE_BITMAP_PADDING,
        checksum: &kind::INODE_BITMAP_CHECKSUM,
        unreadable: &kind::INODE_BITMAP_UNREADABLE,
        flag: GroupFlags::INODE_UNINIT,
        place: RawGroupDescriptor::inode_bitmap,
        sum: RawGroupDescriptor::inode_bitmap_checksum,
        set_sum: RawGroupDescriptor::set_inode_bitmap_checksum,
    };

    fn of_blocks(subject: &Subject) -> BitmapKind {
        BitmapKind {
            what: "blocks",
            zero: u64::from(subject.geometry.first_data_block),
            each: u64::from(subject.geometry.blocks_per_cluster()),
            wrong: &kind::BLOCK_BITMAP,
            uninit: &kind::BLOCKS_UNINIT,
            padding: &kind::BLOCK_BITMAP_PADDING,
            checksum: &kind::BLOCK_BITMAP_CHECKSUM,
            unreadable: &kind::BLOCK_BITMAP_UNREADABLE,
            flag: GroupFlags::BLOCK_UNINIT,
            place: RawGroupDescriptor::block_bitmap,
            sum: RawGroupDescriptor::block_bitmap_checksum,
            set_sum: RawGroupDescriptor::set_block_bitmap_checksum,
        }
    }
}
