//! Inodes that are something else than files of the tree: the reserved ones and those that the
//! superblock names.

use std::sync::atomic::{AtomicBool, Ordering};

use ondisk::features::{Compat, Features, Incompat, RoCompat};
use ondisk::units::InodeNumber;

use crate::facts::Facts;
use crate::issue::Location;
use crate::kinds::inodes::LARGE_FILE_FEATURE;
use crate::kinds::opening::{ORPHAN_FILE_NUMBER, QUOTA_INODE_NUMBER};
use crate::reporter::{Finding, Report};
use crate::subject::Subject;

/// Inode of the list of bad blocks.
const BAD_BLOCKS: u32 = 1;
/// Inodes of the quota files of users and groups.
const QUOTA: [u32; 2] = [3, 4];
/// Inode that keeps blocks for more descriptors.
const RESIZE: u32 = 7;
/// Inode of the journal, unless the superblock names another.
const JOURNAL: u32 = 8;

/// Purpose of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// The root directory.
    Root,
    /// The list of bad blocks.
    BadBlocks,
    /// Blocks kept for more descriptors.
    Resize,
    /// A hidden file that is in use: journal, quota, orphans.
    Hidden,
    /// A hidden file that nothing uses: must be empty.
    Vacant,
    /// Reserved without a purpose of its own.
    Reserved,
    /// A file of the tree.
    Ordinary,
}

/// The numbers that the superblock names.
pub(super) struct Special {
    first: u32,
    journal: bool,
    /// Of users, groups and projects, as the superblock names them.
    quota: [u32; 3],
    uses_quota: bool,
    orphans: u32,
    uses_orphans: bool,
    /// Deletion times below this are numbers of inodes on a list of orphans that was lost; 0 where
    /// the volume is from a time when such times could be true.
    pub(super) low_time: u32,
    extents: AtomicBool,
    /// True if an inode has a tree and the flag for it, on a volume without the feature.
    trees: AtomicBool,
    inline: AtomicBool,
    values: AtomicBool,
    resize: AtomicBool,
}

impl Special {
    pub(super) fn of(subject: &Subject) -> Self {
        let raw = &subject.raw;
        let inodes = subject.geometry.inodes();
        let early = [raw.s_wtime, raw.s_mtime, raw.s_mkfs_time]
            .into_iter()
            .any(|time| time.get() != 0 && time.get() < inodes);
        Special {
            first: subject.geometry.first_inode,
            journal: raw.s_journal_inum.get() == JOURNAL,
            quota: [raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum]
                .map(|inode| inode.get()),
            uses_quota: subject.has_ro_compat(RoCompat::QUOTA),
            orphans: raw.s_orphan_file_inum.get(),
            uses_orphans: subject.has_compat(Compat::ORPHAN_FILE),
            low_time: if early { 0 } else { inodes },
            extents: AtomicBool::new(false),
            trees: AtomicBool::new(false),
            inline: AtomicBool::new(false),
            values: AtomicBool::new(false),
            resize: AtomicBool::new(false),
        }
    }

    /// Returns true if the inode belongs to a quota file by its number, in use or not.
    fn is_for_quota(&self, number: u32) -> bool {
        let [_, _, project] = self.quota;
        QUOTA.contains(&number) || number == project && self.uses_quota
    }

    pub(super) fn role(&self, inode: InodeNumber) -> Role {
        let number = inode.get();
        if inode == InodeNumber::ROOT {
            Role::Root
        } else if number == BAD_BLOCKS {
            Role::BadBlocks
        } else if number == JOURNAL {
            if self.journal { Role::Hidden } else { Role::Vacant }
        } else if self.is_for_quota(number) {
            if self.uses_quota && self.quota.contains(&number) { Role::Hidden } else { Role::Vacant }
        } else if number == self.orphans && self.uses_orphans {
            Role::Hidden
        } else if number == RESIZE {
            Role::Resize
        } else if number < self.first {
            Role::Reserved
        } else {
            Role::Ordinary
        }
    }

    /// Returns true if the inode is in use without links: reserved ones always are.
    pub(super) fn is_used_without_links(&self, inode: InodeNumber) -> bool {
        inode.get() < self.first || self.is_for_quota(inode.get())
    }

    /// Returns true if the inode lies behind the reserved ones.
    pub(super) fn is_ordinary(&self, inode: InodeNumber) -> bool {
        inode.get() >= self.first
    }

    /// The feature for extents is to be set.
    pub(super) fn want_extents(&self) {
        self.extents.store(true, Ordering::Relaxed);
    }

    /// An inode without doubt is mapped by extents: the feature was lost.
    pub(super) fn note_tree(&self) {
        self.trees.store(true, Ordering::Relaxed);
    }

    /// Returns true if such an inode was seen.
    pub(super) fn has_trees(&self) -> bool {
        self.trees.load(Ordering::Relaxed)
    }

    pub(super) fn wants_extents(&self) -> bool {
        self.extents.load(Ordering::Relaxed)
    }

    /// The feature for inline contents is to be set.
    pub(super) fn want_inline(&self) {
        self.inline.store(true, Ordering::Relaxed);
    }

    pub(super) fn wants_inline(&self) -> bool {
        self.inline.load(Ordering::Relaxed)
    }

    /// The feature for values in inodes of their own is to be set.
    pub(super) fn want_values(&self) {
        self.values.store(true, Ordering::Relaxed);
    }

    pub(super) fn wants_values(&self) -> bool {
        self.values.load(Ordering::Relaxed)
    }

    /// The inode that keeps blocks for descriptors is to be rebuilt.
    pub(super) fn want_resize(&self) {
        self.resize.store(true, Ordering::Relaxed);
    }

    pub(super) fn wants_resize(&self) -> bool {
        self.resize.load(Ordering::Relaxed)
    }

    /// The features of the volume, with those that repairs set.
    pub(super) fn features(&self, mut features: Features) -> Features {
        for (feature, wanted) in [
            (Incompat::EXTENTS, self.wants_extents()),
            (Incompat::INLINE_DATA, self.wants_inline()),
            (Incompat::EA_INODE, self.wants_values()),
        ] {
            features.incompat.set(feature, features.incompat.contains(feature) || wanted);
        }
        features
    }
}

/// Files that the superblock names as hidden ones, though the features for these are off: most likely a
/// field was changed by accident, and the file is one like others.
pub(super) fn stray_files(subject: &mut Subject, facts: &Facts, report: &mut Report<'_>) {
    // Also one that is free: programs take it for used, if it is in the part of a table that was begun.
    let is_begun = |number: u32| {
        let found = InodeNumber::new(number).and_then(|number| subject.geometry.locate_inode(number));
        found.is_some_and(|(group, index)| index < subject.inodes_begun(group))
    };
    let is_file = |number: u32| {
        let number = InodeNumber::new(number).filter(|_| number >= subject.geometry.first_inode);
        number.is_some_and(|number| facts.used.contains(u64::from(number.index())))
    };
    let raw = &subject.raw;
    let [user, group, project] =
        [raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum].map(|number| number.get());
    let orphans = raw.s_orphan_file_inum.get();
    let quota = [user, group].into_iter().find(|number| is_file(*number));
    let is_far = |number: &u32| *number >= subject.geometry.first_inode && is_begun(*number);
    let quota = quota.or(Some(project).filter(is_far));
    let quota = quota.filter(|_| !subject.has_ro_compat(RoCompat::QUOTA));
    let orphans =
        Some(orphans).filter(|number| !subject.has_compat(Compat::ORPHAN_FILE) && is_begun(*number));
    let repair = "the field is cleared";
    let mut clears =
        |kind, found: String| report.found(kind, Finding::new(Location::default(), found, repair));
    if quota.is_some_and(|file| {
        clears(&QUOTA_INODE_NUMBER, format!("quota in inode {file}, without the feature"))
    }) {
        subject.raw.s_usr_quota_inum.set(0);
        subject.raw.s_grp_quota_inum.set(0);
        subject.raw.s_prj_quota_inum.set(0);
        subject.backups_follow = true;
    }
    if orphans.is_some_and(|file| clears(&ORPHAN_FILE_NUMBER, format!("inode {file}"))) {
        subject.raw.s_orphan_file_inum.set(0);
        subject.backups_follow = true;
    }
}

/// Files of 2 GiB and more need a feature that says so; the features as they should be.
pub(super) fn large_files(features: &mut Features, large: bool, report: &mut Report<'_>) {
    if large && !features.ro_compat.contains(RoCompat::LARGE_FILE) {
        let found = "a file has 2 GiB or more, which the volume's features do not name";
        if report.found(&LARGE_FILE_FEATURE, Finding::new(Location::default(), found, "the feature is set")) {
            features.ro_compat |= RoCompat::LARGE_FILE;
        }
    }
}
