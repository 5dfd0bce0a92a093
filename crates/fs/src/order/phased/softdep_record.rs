//! Records of soft updates: the order that changes need.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use ondisk::inode::FileType;
use ondisk::units::InodeNumber;

use super::survey::{LinkDelta, Survey};
use crate::locks::lock;
use crate::role::Role;

/// A name that has left a directory block and must not vanish from it before the new names of its inode are on
/// the device.
#[derive(Clone, Debug)]
pub(crate) struct RetainedName {
    pub(crate) name: Vec<u8>,
    pub(crate) inode: InodeNumber,
    pub(crate) file_type: Option<FileType>,
}

/// The first block of a directory that is removed, as it was last.
pub(crate) struct RemovedDir {
    pub(crate) directory: InodeNumber,
    pub(crate) block: u64,
    pub(crate) role: Role,
    pub(crate) bytes: Arc<[u8]>,
    /// It is in use for a while, without a name: its parent may go before it.
    pub(crate) lives: bool,
}

/// Ordering needs of an update, or of a whole epoch. Bounded by the number of their changes.
#[derive(Default)]
pub(crate) struct SoftdepRecord {
    /// Names that inodes got, `..` included.
    named: HashMap<InodeNumber, u32>,
    /// Directory blocks in which a name appeared or leads elsewhere.
    added: HashSet<u64>,
    /// Blocks of directories that are new.
    hidden: HashSet<u64>,
    kept: HashMap<u64, Vec<RetainedName>>,
    /// Directories out of which names were moved.
    left: HashSet<InodeNumber>,
    removed: Vec<RemovedDir>,
    /// Blocks as they were when they stopped being metadata, if the device leads to them.
    dropped: HashMap<u64, (Role, Arc<[u8]>)>,
    /// Changes to report to a survey.
    deltas: Vec<LinkDelta>,
}

impl SoftdepRecord {
    /// An inode got a name.
    pub(crate) fn name(&mut self, number: InodeNumber) {
        *self.named.entry(number).or_default() += 1;
    }

    /// Names that an inode got.
    pub(crate) fn names_of(&self, number: InodeNumber) -> u32 {
        self.named.get(&number).copied().unwrap_or(0)
    }

    /// Adds a change of a name or a record that a survey counts.
    pub(crate) fn add_delta(&mut self, delta: LinkDelta) {
        self.deltas.push(delta);
    }

    /// A name appeared in a directory block, or leads elsewhere.
    pub(crate) fn add(&mut self, block: u64) {
        self.added.insert(block);
    }

    pub(crate) fn is_added(&self, block: u64) -> bool {
        self.added.contains(&block)
    }

    /// A block of a new directory was made: its names are not shown before what they lead to is on the device.
    pub(crate) fn hide_until_link(&mut self, block: u64) {
        self.hidden.insert(block);
    }

    pub(crate) fn is_hidden_until_link(&self, block: u64) -> bool {
        self.hidden.contains(&block)
    }

    /// A name left a block of a directory, and is to be seen there for a while.
    pub(crate) fn retain(&mut self, block: u64, directory: InodeNumber, kept: RetainedName) {
        self.kept.entry(block).or_default().push(kept);
        self.left.insert(directory);
    }

    /// Names that have left a block and are to be seen in it for a while.
    pub(crate) fn kept(&self, block: u64) -> &[RetainedName] {
        self.kept.get(&block).map(Vec::as_slice).unwrap_or_default()
    }

    /// True if names were moved out of a directory.
    pub(crate) fn is_left(&self, directory: InodeNumber) -> bool {
        self.left.contains(&directory)
    }

    /// A directory is removed.
    pub(crate) fn remove_directory(&mut self, removed: RemovedDir) {
        self.removed.push(removed);
    }

    pub(super) fn removed_directories(&self) -> &[RemovedDir] {
        &self.removed
    }

    /// A block that the device leads to stopped being metadata.
    pub(crate) fn drop_block(&mut self, block: u64, role: Role, bytes: Arc<[u8]>) {
        if matches!(role, Role::DirectoryLeaf(_)) {
            self.dropped.insert(block, (role, bytes));
        }
    }

    /// Directory blocks that stopped being metadata, with names that vanish. Names in them must have vanished
    /// before the inodes go that they lead to: a directory that goes with them has them until then.
    pub(super) fn dropped(&self) -> impl Iterator<Item = (u64, Role, &Arc<[u8]>)> {
        self.dropped.iter().map(|(block, (role, bytes))| (*block, *role, bytes))
    }

    fn join(&mut self, later: SoftdepRecord) {
        for (number, names) in later.named {
            *self.named.entry(number).or_default() += names;
        }
        self.added.extend(later.added);
        self.hidden.extend(later.hidden);
        for (block, kept) in later.kept {
            self.kept.entry(block).or_default().extend(kept);
        }
        self.left.extend(later.left);
        self.removed.extend(later.removed);
        self.dropped.extend(later.dropped);
    }
}

/// The epoch that updates belong to now.
#[derive(Default)]
pub(crate) struct Epoch {
    notes: Mutex<SoftdepRecord>,
    /// While what a crash left is being reclaimed.
    survey: Mutex<Option<Survey>>,
}

impl Epoch {
    fn notes(&self) -> MutexGuard<'_, SoftdepRecord> {
        lock(&self.notes)
    }

    /// Takes in what an update noted.
    pub(crate) fn take_in(&self, mut notes: SoftdepRecord) {
        let deltas = std::mem::take(&mut notes.deltas);
        if let Some(survey) = &mut *self.survey() {
            deltas.into_iter().for_each(|delta| survey.take_in(delta));
        }
        self.notes().join(notes);
    }

    /// Survey of a volume that is being reclaimed.
    pub(crate) fn survey(&self) -> MutexGuard<'_, Option<Survey>> {
        lock(&self.survey)
    }

    pub(crate) fn note_dropped(&self, block: u64, role: Role, bytes: Arc<[u8]>) {
        self.notes().drop_block(block, role, bytes);
    }

    /// Ends the epoch and returns its record; the next one begins empty.
    pub(crate) fn end(&self) -> SoftdepRecord {
        std::mem::take(&mut *self.notes())
    }

    pub(crate) fn names_of(&self, number: InodeNumber) -> u32 {
        self.notes().names_of(number)
    }

    pub(crate) fn is_left(&self, directory: InodeNumber) -> bool {
        self.notes().is_left(directory)
    }

    pub(crate) fn has_kept(&self, block: u64) -> bool {
        !self.notes().kept(block).is_empty()
    }
}
