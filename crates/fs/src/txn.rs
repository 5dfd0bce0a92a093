//! Updates: the changes of one verb to metadata, all or nothing.
//!
//! An [`Update`] stages copies of the blocks it changes and holds the space it takes as owned
//! grants. [`Update::commit`] publishes everything at once; dropping an update that was not
//! committed leaves blocks and free space as they were (invariant I8). So a verb can fail at any
//! point, for lack of space or over a corrupt block, without undoing anything by hand.
//!
//! Published blocks reach the device with the next sync, as the volume's order wants it (`order`).

use std::cell::Cell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

use ondisk::seal::InodeSeed;
use ondisk::units::{Block, BlockRun, Group, InodeNumber};
use placement::Promise;

use crate::bytes;
use crate::cache::{Blocks, Cache, Reading, Role};
use crate::context::Context;
use crate::device::Device;
use crate::error::{Error, Flow, Result};
use crate::numbers::Numbers;
use crate::order::{Order, SoftdepRecord};
use crate::write_batch::WriteBatch;
use ondisk::invariant;

struct Staged {
    role: Role,
    bytes: Arc<[u8]>,
    /// Contents before this update; `None` of a new block.
    before: Option<Arc<[u8]>>,
}

/// Something taken or given up that goes back by itself unless it is kept: free space, an inode
/// number.
pub trait Claim {
    /// Makes it permanent.
    fn commit(self: Box<Self>);
}

/// Action to run when an update is committed, and not at all if it is dropped.
struct OnCommit<F>(F);

impl<F: FnOnce()> Claim for OnCommit<F> {
    fn commit(self: Box<Self>) {
        (self.0)();
    }
}

/// The changes of one verb, not yet visible to others.
pub struct Update<'v> {
    reading: Reading<'v>,
    order: &'v Order,
    staged: BTreeMap<u64, Staged>,
    /// Bytes of new files that are written before the update ends.
    gathered: Option<WriteBatch>,
    claims: Vec<Box<dyn Claim + Send + 'v>>,
    forgotten: Vec<BlockRun>,
    account: Option<Account>,
    context: Context,
    changed: Vec<InodeNumber>,
    /// Those of the changed inodes, or of those whose maps change, of which more changes than times.
    awaited: Vec<InodeNumber>,
    moved: Vec<InodeNumber>,
    groups: BTreeSet<Group>,
    postponing: bool,
    /// Blocks in use that hold nothing, for the map where nothing is free.
    lent: Option<BlockRun>,
    notes: SoftdepRecord,
    /// The inode that gets another number on disk.
    exchanged: Option<(&'v Numbers, InodeNumber, InodeNumber)>,
    /// It needs that what was changed so far is committed first.
    needs_commit: Cell<bool>,
}

/// Space promised beforehand, from which an update may take. What a dropped update took from it is
/// promised as before.
pub type Account = Arc<Mutex<Promise>>;

impl<'v> Update<'v> {
    /// An update without changes. One that may not wait for the device ends with [`Flow::Missing`] where it would.
    pub(crate) fn new(cache: &'v Cache, order: &'v Order, context: Context) -> Self {
        Update {
            reading: Reading::new(cache, context.may_wait),
            order,
            context,
            staged: BTreeMap::new(),
            gathered: None,
            claims: Vec::new(),
            forgotten: Vec::new(),
            account: None,
            changed: Vec::new(),
            awaited: Vec::new(),
            moved: Vec::new(),
            groups: BTreeSet::new(),
            postponing: false,
            lent: None,
            notes: SoftdepRecord::default(),
            exchanged: None,
            needs_commit: Cell::new(false),
        }
    }

    fn cache(&self) -> &'v Cache {
        self.reading.cache()
    }

    /// On whose terms it is made.
    pub(crate) fn context(&self) -> Context {
        self.context
    }

    /// The order in which changes reach the device.
    pub(crate) fn order(&self) -> &'v Order {
        self.order
    }

    /// If one of these is not in memory, those behind it are read with it.
    pub(crate) fn want(&self, run: BlockRun) {
        self.reading.want(run);
    }

    /// How an attempt ended in which this update was made. What interrupted it counts whatever became of it on the way
    /// up: an error may have been passed over.
    pub(crate) fn ended<T>(&self, done: Result<T>) -> Result<T, Flow> {
        match self.reading.missing() {
            Some(run) => Err(Flow::Missing(run)),
            None if self.needs_commit.get() => Err(Flow::Full),
            None => Ok(done?),
        }
    }

    /// Ends the attempt: what was changed so far has to be committed before this change is made.
    ///
    /// # Errors
    /// Always; it says nothing by itself ([`Update::ended`]).
    pub(crate) fn wait_for_commit<T>(&self) -> Result<T> {
        self.needs_commit.set(true);
        Err(Error::io("waiting for a commit", io::ErrorKind::WouldBlock.into()))
    }

    /// Postpones the deletion of inodes that lose their last name with this update: as a whole it was too much for one
    /// transaction.
    pub(crate) fn postpone_removal(&mut self) {
        self.postponing = true;
    }

    /// True if inodes that lose their last name are deleted later.
    pub(crate) fn postpones_removal(&self) -> bool {
        self.postponing
    }

    /// The bytes of a block, to change; verified for its role when it is read.
    ///
    /// # Errors
    /// As [`Blocks::read`].
    pub fn edit(&mut self, block: Block, role: Role) -> Result<&mut [u8]> {
        if !self.holds(block) {
            let before = self.reading.read(block, role)?;
            let staged = Staged { role, bytes: self.cache().copy(&before), before: Some(before) };
            self.staged.insert(block.0, staged);
        }
        let staged = invariant!(self.staged.get_mut(&block.0), "a block that is changed is staged");
        staged.role = role;
        Ok(Arc::make_mut(&mut staged.bytes))
    }

    /// Has a block get the checksum of another inode's structures. It is verified under its own before.
    ///
    /// # Errors
    /// As [`Blocks::read`].
    pub(crate) fn reseal(&mut self, block: Block, role: Role, seed: InodeSeed) -> Result<()> {
        self.edit(block, role)?;
        self.edit(block, role.with_seed(seed)).map(drop)
    }

    /// A block whose old contents do not matter, as zeros, to fill.
    pub fn create(&mut self, block: Block, role: Role) -> &mut [u8] {
        let bytes: Arc<[u8]> = vec![0; self.cache().block_len()].into();
        // The device still has what it had: soft updates order the change by that.
        let before = self.staged.get(&block.0).and_then(|staged| staged.before.clone());
        let new = Staged { role, bytes, before };
        let staged = match self.staged.entry(block.0) {
            Entry::Vacant(place) => place.insert(new),
            Entry::Occupied(place) => {
                let staged = place.into_mut();
                *staged = new;
                staged
            }
        };
        Arc::make_mut(&mut staged.bytes)
    }

    /// A block whose contents are replaced, as zeros, to fill.
    ///
    /// # Errors
    /// As [`Blocks::read`].
    pub fn rewrite(&mut self, block: Block, role: Role) -> Result<&mut [u8]> {
        // It may have been something else.
        self.edit(block, Role::Plain)?.fill(0);
        self.edit(block, role)
    }

    /// True if the update changes a block.
    #[must_use]
    pub fn holds(&self, block: Block) -> bool {
        self.staged.contains_key(&block.0)
    }

    /// Blocks that the update changes and that belong to files by their role.
    pub(crate) fn blocks_of_files(&self) -> impl Iterator<Item = Block> {
        let is_of_file = |role: Role| match role {
            Role::Data
            | Role::DirectoryLeaf(_)
            | Role::IndexNode(..)
            | Role::ExtentNode(_)
            | Role::Attributes => true,
            Role::Plain | Role::Bitmap | Role::Descriptors(_) | Role::Inodes(_) => false,
        };
        self.staged.iter().filter(move |(_, staged)| is_of_file(staged.role)).map(|(block, _)| Block(*block))
    }

    /// True if the update leaves a block as one of a role.
    pub(crate) fn holds_as(&self, block: Block, role: Role) -> bool {
        self.staged.get(&block.0).is_some_and(|staged| staged.role == role)
    }

    /// Has the space that this update takes come out of a promise, as far as that goes.
    pub fn draw_on(&mut self, account: &Account) {
        self.account = Some(Arc::clone(account));
    }

    /// The promise from which space is taken.
    #[must_use]
    pub fn account(&self) -> Option<&Account> {
        self.account.as_ref()
    }

    /// Clusters that must stay free, whatever it wants.
    pub(crate) fn spared(&self) -> u64 {
        self.context.spared
    }

    /// Blocks that are in use, hold nothing, and are led to by nothing from this update on: blocks of metadata
    /// for which no space is free come out of them.
    pub(crate) fn lend_blocks(&mut self, run: BlockRun) {
        self.lent = Some(run);
    }

    /// One of the blocks that were lent, the last first.
    pub(crate) fn borrow_block(&mut self) -> Option<Block> {
        let run = self.lent.as_mut()?;
        run.count = run.count.checked_sub(1)?;
        Some(Block(run.start.0 + u64::from(run.count)))
    }

    /// Ends the loan and returns the blocks that were not borrowed.
    pub(crate) fn end_loan(&mut self) -> BlockRun {
        self.lent.take().unwrap_or(BlockRun { start: Block(0), count: 0 })
    }

    /// Binds something taken to this update.
    pub fn claim(&mut self, claim: impl Claim + Send + 'v) {
        self.claims.push(Box::new(claim));
    }

    /// Has something done when the update is committed: for what is kept in memory beside the blocks (I40).
    pub fn on_commit(&mut self, action: impl FnOnce() + Send + 'v) {
        self.claim(OnCommit(action));
    }

    /// Notes that an inode's record changes, or blocks that it leads to (I20).
    pub fn note_changed(&mut self, number: InodeNumber) {
        if !self.changed.contains(&number) {
            self.changed.push(number);
        }
    }

    /// Notes that more than the times of an inode changes: a sync of its bytes has to bring this along.
    pub(crate) fn note_awaited(&mut self, number: InodeNumber) {
        if !self.awaited.contains(&number) {
            self.awaited.push(number);
        }
    }

    /// Notes that data blocks leave a file (I20).
    pub fn note_moved(&mut self, number: InodeNumber) {
        if !self.moved.contains(&number) {
            self.moved.push(number);
        }
    }

    /// Notes that something of a group is taken or freed, which changes its bitmaps in time.
    pub fn note_group(&mut self, group: Group) {
        self.groups.insert(group);
    }

    /// True if the bytes of files are part of updates.
    pub(crate) fn journals_data(&self) -> bool {
        self.order.journals_data()
    }

    /// From now on bytes of files wait until [`Update::write_gathered`]. Nothing reads them before.
    pub(crate) fn batch_writes(&mut self) {
        self.gathered = (!self.journals_data()).then(|| self.cache().emptied().take());
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// The device's failure.
    pub(crate) fn write_gathered(&mut self) -> Result<()> {
        let Some(mut gathered) = self.gathered.take() else { return Ok(()) };
        let written = gathered.write(self.device());
        self.cache().emptied().put_back(gathered);
        written.map_err(|source| Error::io("writing new files", source))
    }

    /// Bytes of a file for its blocks, which lie in a row on the device: part of the update where the journal
    /// has the bytes of files, else written at once.
    ///
    /// # Errors
    /// The device's failure.
    pub(crate) fn put_data(&mut self, number: InodeNumber, offset: u64, data: &[u8]) -> Result<()> {
        if let Some(gathered) = &mut self.gathered {
            gathered.add(offset, data);
            return Ok(());
        }
        if !self.journals_data() {
            let written = self.cache().device().write_at(offset, data);
            return written.map_err(|source| Error::io(format!("writing inode {number}"), source));
        }
        let len = self.cache().block_len();
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let block = Block(at / len as u64);
            let inside = bytes::length(at % len as u64)?;
            let (piece, later) = rest.split_at(rest.len().min(len - inside));
            let to = if piece.len() == len {
                self.create(block, Role::Data)
            } else {
                self.edit(block, Role::Data)?
            };
            bytes::put(to, inside, piece)?;
            (at, rest) = (at + piece.len() as u64, later);
        }
        Ok(())
    }

    /// The device, for bytes that no journal has.
    pub(crate) fn device(&self) -> &'v dyn Device {
        &**self.cache().device()
    }

    /// True if nothing on the device leads to a block yet, so that it may be changed in place. Where order
    /// does not count every block may.
    pub(crate) fn is_own(&self, block: Block) -> bool {
        let created = self.staged.get(&block.0).is_some_and(|staged| staged.before.is_none());
        self.order.changes_in_place() || created || self.cache().is_new(block)
    }

    /// On-device contents of a block before this epoch's changes; `None` of a new one.
    ///
    /// # Errors
    /// As [`Blocks::read`].
    pub(crate) fn before(&self, block: Block, role: Role) -> Result<Option<Arc<[u8]>>> {
        if self.is_own(block) {
            return Ok(None);
        }
        match self.cache().before(block).or_else(|| self.staged.get(&block.0)?.before.clone()) {
            Some(before) => Ok(Some(before)),
            None => self.reading.read(block, role).map(Some),
        }
    }

    /// Has an inode stand behind another number on disk from this update on.
    pub(crate) fn exchange(&mut self, numbers: &'v Numbers, number: InodeNumber, to: InodeNumber) {
        self.exchanged = Some((numbers, number, to));
    }

    /// Notes something of the order that changes need, where that counts.
    pub(crate) fn note(&mut self, what: impl FnOnce(&mut SoftdepRecord)) {
        if self.order.takes_notes() {
            what(&mut self.notes);
        }
    }

    /// Refuses, until a commit, to change a directory block in which the place of a name that left must stay free.
    ///
    /// # Errors
    /// As [`Update::wait_for_commit`].
    pub(crate) fn refuse_kept(&self, block: Block) -> Result<()> {
        if self.order.has_kept(block.0) { self.wait_for_commit() } else { Ok(()) }
    }

    /// True if a name that left a directory block has to stay there for a while.
    pub(crate) fn has_kept(&self, block: Block) -> bool {
        !self.notes.kept(block.0).is_empty() || self.order.has_kept(block.0)
    }

    /// True if an inode may have no name on the device but those that it had before and those that come with the next
    /// commit; or is a directory out of which such an inode was moved.
    pub(crate) fn awaits_names(&self, number: InodeNumber) -> bool {
        let noted = self.notes.names_of(number) > 0 || self.notes.is_left(number);
        noted || self.order.awaits_names(number)
    }

    /// Notes that blocks stop being metadata: staged and cached copies are dropped on commit.
    pub fn forget(&mut self, run: BlockRun) {
        self.forgotten.push(run);
        for block in run.start.0..run.start.0 + u64::from(run.count) {
            let is_own = self.is_own(Block(block));
            if let Some(staged) = self.staged.remove(&block)
                && !is_own
            {
                self.notes.drop_block(block, staged.role, staged.bytes);
            }
        }
    }

    /// Takes the update into what is committed next.
    ///
    /// # Errors
    /// As [`Order::admit`].
    pub(crate) fn admit(&self) -> Result<(), Flow> {
        self.order.admit(self.staged.len(), &self.groups)
    }

    /// Makes all changes visible and all claims permanent.
    pub fn commit(self) {
        debug_assert!(self.gathered.is_none(), "bytes of new files are written before what leads to them");
        let whole = self.cache().block_len();
        debug_assert!(
            self.staged.values().all(|staged| staged.bytes.len() == whole),
            "a block is changed as a whole"
        );
        let Update {
            reading,
            order,
            staged,
            claims,
            forgotten,
            changed,
            awaited,
            moved,
            notes,
            exchanged,
            ..
        } = self;
        let cache = reading.cache();
        // Readers look again until all of this is done (I20).
        cache.versions().during(&changed, &moved, || {
            // Before publishing, so that it drops old contents only.
            forgotten.into_iter().for_each(|run| order.forget(cache, run));
            let staged = staged.into_iter();
            let publish = || {
                cache.publish(
                    staged.map(|(block, staged)| (Block(block), staged.role, staged.bytes, staged.before)),
                );
            };
            match exchanged {
                Some((numbers, number, to)) => numbers.exchange(number, to, publish),
                None => publish(),
            }
            order.take_in(notes, &awaited);
            for claim in claims {
                claim.commit();
            }
        });
    }
}

impl Blocks for Update<'_> {
    fn read(&self, block: Block, role: Role) -> Result<Arc<[u8]>> {
        match self.staged.get(&block.0) {
            Some(staged) => Ok(Arc::clone(&staged.bytes)),
            None => self.reading.read(block, role),
        }
    }

    fn read_data(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.reading.read_data(offset, buffer)
    }
}
