//! Facts that the passes have found so far: bits per cluster and bytes per inode, and a row per directory.
//!
//! Memory, where the volume is in use, in pages that appear with the first fact in them: 4 bits per cluster
//! (claimed, shared, taken, given up); 16 bits per inode (used, altered, relinked, value, and 4 each of its type, the
//! links it states, where these are unusual, and the names found), 16 more where a count is above 15; 12 bytes
//! per directory; on volumes with encrypted files what [`Policies`] needs. Excludes what only one pass needs.
//!
//! Repairs leave word here of what they took and gave, so that bitmaps and counts that only follow
//! from them are mended without another word: [`Facts::taken`], [`Facts::release`], [`Facts::altered`].

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use ondisk::inode::FileType;
use ondisk::units::{Block, Cluster, InodeNumber};

use super::Options;
use super::paged::{Bits, Budget, Counters, Nibbles};
use super::policies::Policies;
use super::subject::Subject;
use platfs_device::{Device, Error, Result};

/// More names than a volume has; sums of it do not overflow in practice, and wrap without harm.
const NAMES_IN_A_LOST_BLOCK: u64 = 1 << 40;

/// A directory, as the passes over names fill it in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Directory {
    pub(super) inode: InodeNumber,
    /// The directory whose entry leads here; `None` until it is found.
    pub(super) parent: Option<InodeNumber>,
    /// Inode that its `..` names.
    pub(super) dotdot: Option<InodeNumber>,
}

/// Facts about the volume. Tables are indexed by cluster and by [`InodeNumber::index`].
pub(super) struct Facts {
    /// Clusters that something claims.
    pub(super) claimed: Bits,
    /// Clusters that two claim.
    pub(super) shared: Bits,
    /// Clusters that repairs took into use; they are claimed too.
    pub(super) taken: Bits,
    /// Clusters that repairs gave up: something on the device refers to them until the repairs are written.
    given_up: Bits,
    /// True if a repair gave up blocks whose numbers are not known: bits that are still set may be theirs.
    gave_up: AtomicBool,
    /// Inodes in use.
    pub(super) used: Bits,
    /// Inodes that repairs put into use, out of use, or made something else.
    pub(super) altered: Bits,
    /// Type of each inode in use, as directory entries code it ([`FileType::entry_code`]).
    types: Nibbles,
    /// Inodes that hold values of attributes, with attributes that refer to them.
    pub(super) values: Bits,
    /// Under which policy each inode is encrypted.
    pub(super) policies: Policies,
    /// Links that each inode in use states, less those that nearly all of its type have.
    stated: Counters,
    /// Names found for each inode, `.` and `..` included.
    pub(super) links: Counters,
    /// True if inodes could not be read, or parts of directories that are to stay: which names are there is not known.
    pub(super) unread: AtomicBool,
    /// Number of names that repairs took away from unknown files: as many files may lack a name for that reason.
    names_lost: AtomicU64,
    /// Directories without a `..`, which is to stay so.
    pub(super) dotdot_left: Bits,
    /// Inodes whose number of names repairs changed: what they state follows.
    pub(super) relinked: Bits,
    /// Inodes that get a name in lost+found, once all of them are known.
    pub(super) adopted: BTreeSet<InodeNumber>,
    /// True if these are named in the root directory, as there is no room for lost+found; found out when the first
    /// of them is reported.
    pub(super) root_adopts: OnceLock<bool>,
    /// Directories, rising by inode once the pass over inodes is done.
    pub(super) directories: Vec<Directory>,
    /// Where the pass over inodes gathers them.
    pub(super) gathered: Mutex<Vec<Directory>>,
    /// Bytes that tables may take, and what is left of them.
    memory: u64,
    budget: Arc<Budget>,
}

impl Facts {
    /// Nothing is known yet.
    pub(super) fn new(subject: &Subject, options: &Options) -> Self {
        let (clusters, inodes) = (subject.geometry.clusters(), u64::from(subject.geometry.inodes()));
        let budget = Budget::new(options.memory);
        Facts {
            claimed: Bits::within(clusters, &budget),
            shared: Bits::within(clusters, &budget),
            taken: Bits::within(clusters, &budget),
            given_up: Bits::within(clusters, &budget),
            gave_up: AtomicBool::new(false),
            used: Bits::within(inodes, &budget),
            altered: Bits::within(inodes, &budget),
            types: Nibbles::within(inodes, &budget),
            values: Bits::within(inodes, &budget),
            policies: Policies::within(inodes, &budget),
            stated: Counters::within(inodes, &budget),
            links: Counters::within(inodes, &budget),
            unread: AtomicBool::new(false),
            names_lost: AtomicU64::new(0),
            dotdot_left: Bits::within(inodes, &budget),
            relinked: Bits::within(inodes, &budget),
            adopted: BTreeSet::new(),
            root_adopts: OnceLock::new(),
            directories: Vec::new(),
            gathered: Mutex::default(),
            memory: options.memory,
            budget,
        }
    }

    /// Checks that all facts could be kept; asked behind each pass that finds something.
    ///
    /// # Errors
    /// They were not: the volume can't be judged.
    pub(super) fn all_kept(&self) -> Result<()> {
        let rows = (self.directories.len() * size_of::<Directory>()) as u64;
        if !self.budget.is_over() && rows <= self.memory {
            return Ok(());
        }
        let problem = format!(
            "a check of this volume needs more memory than the {} MiB that it may take",
            self.memory >> 20
        );
        Err(Error::Unsupported(problem))
    }

    /// Claims the clusters of blocks that lie inside the volume. Clusters that were claimed before are
    /// shared from now on. An owner of several pieces of one cluster claims it once.
    pub(super) fn claim(&self, subject: &Subject, start: Block, count: u64) {
        if count == 0 {
            return;
        }
        let first = subject.geometry.cluster_of(start).0;
        let last = subject.geometry.cluster_of(Block(start.0 + count - 1)).0;
        self.claimed.insert_range(first, last + 1, |cluster| _ = self.shared.insert(cluster));
    }

    /// Says that a repair gave up blocks which it does not know or that were never claimed: the
    /// blocks of a lost node, of an inode that was cleared.
    pub(super) fn gave_up(&self) {
        self.gave_up.store(true, Ordering::Relaxed);
    }

    /// Returns true if repairs explain set bits of blocks without an owner.
    pub(super) fn has_given_up(&self) -> bool {
        self.gave_up.load(Ordering::Relaxed)
    }

    /// Takes back the claims of blocks that a repair gave up. Clusters with another owner are none of them.
    pub(super) fn release(&self, subject: &Subject, start: Block, count: u64) {
        if count == 0 {
            return;
        }
        self.gave_up();
        let first = subject.geometry.cluster_of(start).0;
        let last = subject.geometry.cluster_of(Block(start.0 + count - 1)).0;
        for cluster in first..=last {
            self.claimed.remove(cluster);
            self.given_up.insert(cluster);
        }
    }

    /// Takes a run of clusters without a claim, enough for `blocks`, for a repair; the search
    /// begins at the cluster of `goal` and goes round. Only where all claims are known: behind the
    /// pass over inodes. The caller writes every block; the device has them before anything that refers to them.
    pub(super) fn allocate(&self, subject: &Subject, goal: Block, blocks: u64) -> Option<Block> {
        let geometry = &subject.geometry;
        let clusters = blocks.div_ceil(u64::from(geometry.blocks_per_cluster())).max(1);
        // A last cluster that the end of the volume, or of the device, cuts short is left alone.
        let end = geometry.blocks.min(subject.device.size() >> geometry.block_size.log2());
        let whole = end.saturating_sub(u64::from(geometry.first_data_block)) >> geometry.cluster_log2;
        let goal = geometry.cluster_of(goal).0.min(whole);
        let found =
            self.claimed.gap(goal, whole, clusters).or_else(|| self.claimed.gap(0, whole, clusters))?;
        self.claimed.insert_range(found, found + clusters, |_| ());
        self.taken.insert_range(found, found + clusters, |_| ());
        let start = geometry.cluster_start(Cluster(found));
        if !(found..found + clusters).any(|cluster| self.given_up.contains(cluster)) {
            let bytes = (clusters << geometry.cluster_log2) << geometry.block_size.log2();
            subject.device.note_fresh(geometry.byte_offset(start), bytes);
        }
        Some(start)
    }

    /// Gives back what [`Facts::allocate`] took and was not written, as if it had not been taken.
    pub(super) fn put_back(&self, subject: &Subject, block: Block) {
        let cluster = subject.geometry.cluster_of(block).0;
        self.claimed.remove(cluster);
        self.taken.remove(cluster);
    }

    /// Says that a repair took away a name, of a file that is not known.
    pub(super) fn name_lost(&self) {
        self.names_lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Says that a repair took away any number of names: those in a block or a directory that is lost.
    pub(super) fn names_lost(&self) {
        self.names_lost.fetch_add(NAMES_IN_A_LOST_BLOCK, Ordering::Relaxed);
    }

    /// Notes names that can't be read and are to stay: from now on no file can be called nameless.
    pub(super) fn names_unknown(&self) {
        self.unread.store(true, Ordering::Relaxed);
    }

    /// Says that a repair took away a name of a file.
    pub(super) fn name_lost_of(&self, inode: InodeNumber) {
        self.relinked.insert(u64::from(inode.index()));
    }

    /// Returns true if repairs explain that an inode lacks `names` names: what was found out of it is known, or so
    /// many names of unknown files are left, which are taken for its own.
    pub(super) fn explains_lack(&self, inode: InodeNumber, names: u16) -> bool {
        let take = |left: u64| left.checked_sub(u64::from(names));
        self.relinked.contains(u64::from(inode.index()))
            || self.names_lost.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    pub(super) fn file_type(&self, inode: InodeNumber) -> Option<FileType> {
        FileType::from_entry_code(self.types.read(u64::from(inode.index())))
    }

    /// Notes an inode in use: its type, and the links that it states.
    pub(super) fn set_file_type(&self, inode: InodeNumber, file_type: Option<FileType>, links: u16) {
        let index = u64::from(inode.index());
        self.types.store(index, file_type.map_or(0, FileType::entry_code));
        self.stated.store(index, links.wrapping_sub(self.usual_links(index)));
    }

    /// The links that an inode in use states.
    pub(super) fn stated(&self, index: u64) -> u16 {
        self.stated.read(index).wrapping_add(self.usual_links(index))
    }

    /// The links of a file with one name, or of a directory without directories in it: the usual number takes no
    /// memory.
    fn usual_links(&self, index: u64) -> u16 {
        if self.types.read(index) == FileType::Directory.entry_code() { 2 } else { 1 }
    }

    /// The row of a directory, once the pass over inodes is done.
    pub(super) fn directory(&self, inode: InodeNumber) -> Option<usize> {
        self.directories.binary_search_by_key(&inode, |row| row.inode).ok()
    }
}
