//! Files that move: their blocks go to better places, or their maps get another form, while others use them.
//!
//! The bytes are copied to their new blocks first, while nothing leads there and others may read and write the file.
//! Then one update has the map lead to the new blocks and frees the old ones, by the rules of a truncate (I18, I24,
//! I28): so a crash leaves the file in its old blocks or in its new ones, in every order of writing. If the file was
//! changed meanwhile, all is done again; in the last try others wait.
//!
//! Owns: when a copy counts, and the two verbs. Excludes: the arithmetic of places (`layout`), the choice of places
//! (`space`), and which files are worth it (the caller).

mod layout;
mod leave;

use ondisk::extent::Extent;
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::units::{Block, FileBlock, InodeNumber, low_u32, saturated};

use super::attrs::file_type;
use super::changing::{change, perform};
use super::node::Node;
use super::resize::Reshape;
use super::rules::{self, Operation};
use crate::cache::Blocks;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::map::{self, MapForm};
use crate::ranges::FileBlocks;
use crate::space::{Room, RoomRequest};
use crate::tx::{Tx, View};
use crate::volume::{VersionedInode, Volume};
use layout::{CopyRange, Layout, NewLayout, pieces};
pub(crate) use leave::{end_of, leave, reaches};

/// Copies made beside others before they have to wait.
const TRIES: u32 = 3;

/// Places that are looked at until one counts.
const PLACES: u32 = 32;

/// Bytes copied at once.
const BUFFER: usize = 1 << 20;

/// Bytes of a file that is copied while its writers wait, at most: one that is larger and changes all the time stays.
const HELD_MAX: u64 = 16 << 20;

/// Where the blocks of a file are to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relocation {
    /// Pieces that it may have then.
    pub most_pieces: u64,
    /// Places that count.
    pub goal: RelocationGoal,
    /// The directory near whose other files it should lie.
    pub directory: Option<InodeNumber>,
}

/// Places that are better than the present one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelocationGoal {
    /// One that leaves it in fewer pieces than now. The volume's policy chooses it.
    Wholeness,
    /// One before the present, in no more pieces than now: the first hole of the volume that holds it.
    Front,
    /// One among these device blocks, the first that holds it. It may have fewer pieces then, or as many.
    Into {
        /// The first of them.
        start: u64,
        /// One past the last.
        end: u64,
    },
    /// One without any of these device blocks. Of a file in pieces only what lies among them moves, in at most as
    /// many pieces as are asked for.
    Outside {
        /// The first of them.
        start: u64,
        /// One past the last.
        end: u64,
    },
}

impl Default for Relocation {
    fn default() -> Self {
        Relocation { most_pieces: 1, goal: RelocationGoal::Wholeness, directory: None }
    }
}

/// Outcome of moving a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Relocated {
    /// Pieces that it had: a new one begins where the disk does not go on as the file does.
    pub pieces_before: u64,
    /// Pieces that it has.
    pub pieces: u64,
    /// Blocks of the file that lie elsewhere now.
    pub blocks: u64,
    /// It stays where it is because it was changed again and again while it was copied.
    pub busy: bool,
}

impl Node<'_> {
    /// Moves the blocks of a regular file, if there is a better place for them. Its contents and its times stay, and
    /// others may use it meanwhile. `pace` gets the bytes of each part that is copied, and may wait.
    ///
    /// # Errors
    /// [`Error::NotFound`] of a file that was removed; [`Error::NotPermitted`] of an immutable one, whose blocks boot
    /// loaders may know; [`Error::Unsupported`] of a file that belongs to the volume itself; no space for the map;
    /// broken structures; the device's failure. The file is as before then.
    pub fn relocate(&self, wish: &Relocation, pace: &dyn Fn(u64)) -> Result<Relocated> {
        self.must_be_writable()?;
        let _pin = self.volume.pin(self.number)?;
        let mover = Mover { volume: self.volume, number: self.number, wish: *wish };
        let _shape = self.volume.keep_shape();
        for _ in 0..TRIES {
            let snapshot = mover.alone(|| mover.look())?;
            let Some(moving) = mover.prepare(&snapshot)? else { return Ok(snapshot.unmoved()) };
            mover.carry(&moving.laid.carries, pace)?;
            let switched = mover.alone(|| mover.switch_if_still(&snapshot, &moving))?;
            if let Some(done) = switched {
                return Ok(done);
            }
        }
        mover.alone(|| {
            let snapshot = mover.look()?;
            if snapshot.bytes(&self.volume.format) > HELD_MAX {
                return Ok(Relocated { busy: true, ..snapshot.unmoved() });
            }
            let Some(moving) = mover.prepare(&snapshot)? else { return Ok(snapshot.unmoved()) };
            mover.carry(&moving.laid.carries, &|_| {})?;
            mover.switch(&snapshot, &moving)
        })
    }

    fn must_be_writable(&self) -> Result<()> {
        let may = self.volume.space.is_writable() && !self.volume.session.is_loading();
        if may { Ok(()) } else { Err(Error::ReadOnly) }
    }

    /// Gives the map of an inode another form. Its data stay where they are, and its times are kept. Where block
    /// pointers can't say that allocated blocks read as zeros, zeros are written; what is allocated behind the end of the
    /// file is freed. Says whether anything changed.
    ///
    /// # Errors
    /// As [`Node::relocate`]; [`Error::Unsupported`] and [`Error::FileTooLarge`] for a form that this inode or volume
    /// can't have.
    pub fn convert_map(&self, form: MapForm) -> Result<bool> {
        self.must_be_writable()?;
        let _pin = self.volume.pin(self.number)?;
        let mover = Mover { volume: self.volume, number: self.number, wish: Relocation::default() };
        mover.alone(|| mover.convert(form))
    }

    /// The pieces in which its contents lie, as filefrag(8) counts them, and its blocks. What is delayed does not count.
    ///
    /// # Errors
    /// A broken inode or map; the device's failure.
    pub fn pieces(&self) -> Result<(u64, u64)> {
        let (extents, form) = VersionedInode::read(self.volume, self.number)?
            .seqlock_read(|view, node| Ok((mapped(view, node)?, view.map(node).form())))?;
        let pieces = pieces(&extents, form, self.volume.format.geometry.block_size);
        Ok((pieces, extents.iter().map(|extent| u64::from(extent.count)).sum()))
    }
}

fn mapped(view: View<'_>, node: &Inode) -> Result<Vec<Extent>> {
    if node.has_map() { view.map(node).all() } else { Ok(Vec::new()) }
}

/// A file as it was seen with nobody writing to it and nothing of it delayed.
struct FileSnapshot {
    node: Inode,
    extents: Vec<Extent>,
    pieces: u64,
    changed: Option<u64>,
    moved: u64,
}

impl FileSnapshot {
    fn bytes(&self, format: &Format) -> u64 {
        let blocks: u64 = self.extents.iter().map(|extent| u64::from(extent.count)).sum();
        blocks << format.geometry.block_size.log2()
    }

    fn unmoved(&self) -> Relocated {
        Relocated { pieces_before: self.pieces, pieces: self.pieces, blocks: 0, busy: false }
    }
}

/// Where a file goes.
struct Moving {
    room: Room,
    laid: NewLayout,
    form: MapForm,
    /// Extents that it leaves.
    left: Vec<Extent>,
}

/// A file that moves.
#[derive(Clone, Copy)]
struct Mover<'v> {
    volume: &'v Volume,
    number: InodeNumber,
    wish: Relocation,
}

impl<'v> Mover<'v> {
    /// Keeps writers out, with nothing of the file delayed.
    fn alone<T>(&self, verb: impl FnOnce() -> Result<T>) -> Result<T> {
        Reshape::new(self.volume, self.number).alone(verb)
    }

    /// Looks at the file, which is kept from writers.
    fn look(&self) -> Result<FileSnapshot> {
        let versions = self.volume.cache.versions();
        let (changed, moved) = (versions.changed(self.number), versions.moved(self.number));
        let mut seen = VersionedInode::read(self.volume, self.number)?;
        self.may_move(seen.node())?;
        let extents = seen.seqlock_read(mapped)?;
        let node = seen.node().clone();
        let pieces =
            pieces(&extents, self.volume.view().map(&node).form(), self.volume.format.geometry.block_size);
        Ok(FileSnapshot { node, extents, pieces, changed, moved })
    }

    fn may_move(&self, node: &Inode) -> Result<()> {
        // It was removed since the caller saw its name.
        if node.mode() == 0 && node.links() == 0 {
            return Err(Error::NotFound);
        }
        match file_type(node)? {
            FileType::Regular => self.may_change(node),
            FileType::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("only regular files can be moved".into())),
        }
    }

    fn may_change(&self, node: &Inode) -> Result<()> {
        let format = &self.volume.format;
        let is_low = self.number.get() < format.geometry.first_inode && self.number != InodeNumber::ROOT;
        let is_own = is_low
            || format.zone.files().any(|file| file == self.number)
            || node.flags().contains(InodeFlags::EA_INODE);
        if is_own {
            return Err(Error::Unsupported("the file belongs to the volume itself".into()));
        }
        rules::may(node, Operation::Remap)
    }

    /// True if nothing of the file has changed since it was seen.
    fn is_still(&self, snapshot: &FileSnapshot) -> bool {
        let versions = self.volume.cache.versions();
        let same = snapshot.changed.is_some_and(|version| versions.is_still(self.number, version));
        same && versions.moved(self.number) == snapshot.moved
    }

    /// Splits the extents of a file into those to move and those that stay.
    fn parts(&self, snapshot: &FileSnapshot, form: MapForm) -> (Vec<Extent>, Vec<Extent>) {
        match self.wish.goal {
            // Pointers lie among what they lead to.
            RelocationGoal::Outside { start, end } if form == MapForm::Extents && snapshot.pieces > 1 => {
                let (start, end) = self.whole_clusters(start, end);
                let (mut moving, mut staying) = (Vec::new(), Vec::new());
                for extent in &snapshot.extents {
                    let (before, rest) = cut(extent, start);
                    let (inside, behind) = rest.map_or((None, None), |rest| cut(&rest, end));
                    moving.extend(inside);
                    staying.extend(before.into_iter().chain(behind));
                }
                (moving, staying)
            }
            _ => (snapshot.extents.clone(), Vec::new()),
        }
    }

    /// Device blocks with all of the clusters that they belong to.
    fn whole_clusters(&self, start: u64, end: u64) -> (u64, u64) {
        let geometry = &self.volume.format.geometry;
        let (first, ratio) = (u64::from(geometry.first_data_block), u64::from(geometry.blocks_per_cluster()));
        let inside = |block: u64| block.saturating_sub(first);
        (first + inside(start) / ratio * ratio, first + inside(end).div_ceil(ratio) * ratio)
    }

    /// Takes room for a file that is better off elsewhere.
    fn prepare(&self, snapshot: &FileSnapshot) -> Result<Option<Moving>> {
        let form = self.volume.view().map(&snapshot.node).form();
        let (left, staying) = self.parts(snapshot, form);
        let most_runs = match self.wish.goal {
            RelocationGoal::Wholeness => (snapshot.pieces.saturating_sub(1)).min(self.wish.most_pieces),
            RelocationGoal::Outside { .. } if !staying.is_empty() => self.wish.most_pieces,
            _ => snapshot.pieces.min(self.wish.most_pieces),
        };
        if left.is_empty() || most_runs == 0 {
            return Ok(None);
        }
        let geometry = &self.volume.format.geometry;
        let layout = Layout::new(&left, form, geometry)?;
        let Ok(clusters) = u32::try_from(layout.clusters) else { return Ok(None) };
        let space = &self.volume.space;
        let request = RoomRequest {
            owner: self.number,
            directory: self.wish.directory,
            goal: space.contents_home(self.number),
            clusters,
            most_runs,
            first_fit: false,
        };
        let from_front = RoomRequest { goal: Block(0), first_fit: true, ..request };
        let room = match self.wish.goal {
            RelocationGoal::Wholeness => self.room(snapshot, &request)?,
            RelocationGoal::Front => self.room(snapshot, &from_front)?,
            RelocationGoal::Into { start, .. } => {
                self.room(snapshot, &RoomRequest { goal: Block(start), ..from_front })?
            }
            RelocationGoal::Outside { .. } => match self.room(snapshot, &request)? {
                None => self.room(snapshot, &from_front)?,
                room => room,
            },
        };
        let Some(room) = room else { return Ok(None) };
        let mut laid = layout.put(room.runs(), form, geometry)?;
        laid.add(staying);
        Ok(Some(Moving { room, laid, form, left }))
    }

    /// Takes room that counts: while what does not count is held, other places are found.
    fn room(&self, snapshot: &FileSnapshot, request: &RoomRequest) -> Result<Option<Room>> {
        let mut held = Vec::new();
        let tries = if matches!(self.wish.goal, RelocationGoal::Outside { .. }) { PLACES } else { 1 };
        for _ in 0..tries {
            let room = perform(self.volume, &mut |tx| tx.space_mut()?.room(request))?;
            match room {
                Some(room) if !self.is_better(snapshot, &room) => held.push(room),
                room => return Ok(room),
            }
        }
        Ok(None)
    }

    fn is_better(&self, snapshot: &FileSnapshot, room: &Room) -> bool {
        let geometry = &self.volume.format.geometry;
        let blocks = room.runs().iter().map(|run| {
            let start = geometry.cluster_start(run.start).0;
            (start, start + (u64::from(run.count) << geometry.cluster_log2))
        });
        match self.wish.goal {
            RelocationGoal::Wholeness => true,
            RelocationGoal::Front => {
                let first = snapshot.extents.iter().map(|extent| extent.start.0).min();
                blocks.map(|(start, _)| start).max() < first
            }
            RelocationGoal::Into { start, end } => {
                blocks.into_iter().all(|run| run.0 >= start && run.1 <= end)
            }
            RelocationGoal::Outside { start, end } => {
                blocks.into_iter().all(|run| run.1 <= start || run.0 >= end)
            }
        }
    }

    /// Brings bytes to blocks to which nothing leads yet.
    fn carry(&self, carries: &[CopyRange], pace: &dyn Fn(u64)) -> Result<()> {
        let mut buffer = vec![0; BUFFER];
        for carry in carries {
            let geometry = &self.volume.format.geometry;
            let len = u64::from(carry.count) << geometry.block_size.log2();
            let to = geometry.byte_offset(carry.to);
            let mut done = 0;
            while done < len {
                let count = saturated::<usize>(len - done).min(buffer.len());
                let Some(piece) = buffer.get_mut(..count) else { break };
                match carry.from {
                    None => piece.fill(0),
                    Some(from) => {
                        let from = geometry.byte_offset(from) + done;
                        let read = self.volume.cache.read_data(from, piece);
                        read.map_err(|source| self.failure("reading", source))?;
                    }
                }
                let written = self.volume.cache.device().write_at(to + done, piece);
                written.map_err(|source| self.failure("moving", source))?;
                done += count as u64;
                pace(count as u64);
            }
        }
        Ok(())
    }

    fn failure(&self, what: &str, source: std::io::Error) -> Error {
        Error::io(format!("{what} inode {}", self.number), source)
    }

    /// Switches the map if the copy counts: nothing has changed since the file was seen.
    fn switch_if_still(&self, snapshot: &FileSnapshot, moving: &Moving) -> Result<Option<Relocated>> {
        if self.is_still(snapshot) { self.switch(snapshot, moving).map(Some) } else { Ok(None) }
    }

    /// Has the map lead to the new blocks, and frees the old ones.
    fn switch(&self, snapshot: &FileSnapshot, moving: &Moving) -> Result<Relocated> {
        change(self.volume, |tx| {
            let mut node = tx.inode(self.number)?;
            let charged = tx.space_mut()?.give_room(&moving.room);
            tx.map(&mut node).replace(&moving.laid.placed, moving.form, charged, &moving.left)?;
            tx.note_map(&node);
            tx.store(&mut node)
        })?;
        // What was set aside behind its old end is of no use.
        self.volume.space.truncated(self.number);
        let blocks = moving.laid.carries.iter().map(|carry| u64::from(carry.count)).sum();
        let pieces = pieces(&moving.laid.runs(), moving.form, self.volume.format.geometry.block_size);
        Ok(Relocated { pieces, blocks, ..snapshot.unmoved() })
    }

    fn convert(&self, form: MapForm) -> Result<bool> {
        let mut seen = VersionedInode::read(self.volume, self.number)?;
        self.may_change(seen.node())?;
        let extents = seen.seqlock_read(mapped)?;
        let node = seen.node();
        if !node.has_map() || self.volume.view().map(node).form() == form {
            return Ok(false);
        }
        map::may_have(&self.volume.format, node, form)?;
        let unwritten = match form {
            MapForm::Extents => Vec::new(),
            MapForm::Pointers => extents.iter().filter(|extent| extent.unwritten).copied().collect(),
        };
        // What is allocated behind the end of the file is given up: written, it would have no size.
        let end = self.volume.format.blocks_for(node.size());
        let (inside, behind): (Vec<Extent>, Vec<Extent>) = split_at(&unwritten, end);
        if self.volume.order.journals_data() && !inside.is_empty() {
            // That they read as zeros may not be stable: a crash must not find zeros and bytes of before.
            self.volume.syncing().commit()?;
        }
        let zeros =
            inside.iter().map(|extent| CopyRange { from: None, to: extent.start, count: extent.count });
        self.carry(&zeros.collect::<Vec<_>>(), &|_| {})?;
        change(self.volume, |tx: &mut Tx<'v>| {
            let mut node = tx.inode(self.number)?;
            for extent in &behind {
                tx.map(&mut node).unmap(blocks_of(extent))?;
            }
            for extent in &inside {
                tx.map(&mut node).set_unwritten(blocks_of(extent), false)?;
            }
            tx.map(&mut node).switch(form == MapForm::Extents)?;
            tx.note_map(&node);
            tx.store(&mut node)
        })?;
        Ok(true)
    }
}

fn blocks_of(extent: &Extent) -> FileBlocks {
    FileBlocks::from_count(extent.logical, u64::from(extent.count))
}

/// Extents before a file block, and those from it on.
fn split_at(extents: &[Extent], end: u64) -> (Vec<Extent>, Vec<Extent>) {
    let cut = |extent: &Extent| cut(extent, extent.start.0 + end.saturating_sub(u64::from(extent.logical.0)));
    let (before, behind): (Vec<_>, Vec<_>) = extents.iter().map(cut).unzip();
    (before.into_iter().flatten().collect(), behind.into_iter().flatten().collect())
}

/// The part of an extent before a device block, and the part from it on.
fn cut(extent: &Extent, at: u64) -> (Option<Extent>, Option<Extent>) {
    let first = low_u32(at.saturating_sub(extent.start.0).min(u64::from(extent.count)));
    let before = Extent { count: first, ..*extent };
    let logical = FileBlock(extent.logical.0 + first);
    let start = Block(extent.start.0 + u64::from(first));
    let behind = Extent { logical, start, count: extent.count - first, ..*extent };
    (Some(before).filter(|part| part.count > 0), Some(behind).filter(|part| part.count > 0))
}
