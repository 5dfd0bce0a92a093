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

use ondisk::extent::Extent;
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::units::{Block, InodeNumber};

use super::attrs::file_type;
use super::changing::{change, perform};
use super::node::Node;
use super::resize::Reshape;
use super::rules::{self, Deed};
use crate::cache::Blocks;
use crate::error::{Error, Result};
use crate::map::{self, MapForm};
use crate::ranges::FileBlocks;
use crate::space::{Room, RoomRequest};
use crate::tx::Tx;
use crate::volume::{Seen, Volume};
use layout::{Carry, Laid, Layout, pieces};

/// Copies made beside others before they have to wait.
const TRIES: u32 = 3;

/// Bytes copied at once.
const BUFFER: usize = 1 << 20;

/// Where the blocks of a file are to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relocation {
    /// Pieces that it may have then. It moves only if they are fewer than now, or as many and `forward`.
    pub most_pieces: u64,
    /// It goes into the first hole of the volume that holds all of it, and only towards the beginning. Without this
    /// the volume's policy chooses.
    pub forward: bool,
    /// The directory near whose other files it should lie.
    pub directory: Option<InodeNumber>,
}

impl Default for Relocation {
    fn default() -> Self {
        Relocation { most_pieces: 1, forward: false, directory: None }
    }
}

/// What became of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Relocated {
    /// Pieces that it had: a new one begins where the disk does not go on as the file does.
    pub pieces_before: u64,
    /// Pieces that it has.
    pub pieces: u64,
    /// Blocks of the file that lie elsewhere now.
    pub blocks: u64,
}

impl Node<'_> {
    /// Moves the blocks of a regular file, if there is a better place for them. Its contents and its times stay, and
    /// others may use it meanwhile.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] of an immutable file, whose blocks boot loaders may know; [`Error::Unsupported`] of a
    /// file that belongs to the volume itself; no space for the map; broken structures; the device's failure. The file
    /// is as before then.
    pub fn relocate(&self, wish: &Relocation) -> Result<Relocated> {
        if !self.volume.space.is_writable() || self.volume.session.is_loading() {
            return Err(Error::ReadOnly);
        }
        let _pin = self.volume.pin(self.number)?;
        let mover = Mover { volume: self.volume, number: self.number, wish: *wish };
        for _ in 0..TRIES {
            let sight = mover.alone(|| mover.look())?;
            let Some(moving) = mover.prepare(&sight)? else { return Ok(sight.unmoved()) };
            mover.carry(&moving.laid.carries)?;
            let done =
                mover.alone(|| if mover.is_still(&sight) { mover.switch(&moving).map(Some) } else { Ok(None) })?;
            if let Some(blocks) = done {
                return Ok(sight.moved(&moving, blocks));
            }
        }
        mover.alone(|| {
            let sight = mover.look()?;
            let Some(moving) = mover.prepare(&sight)? else { return Ok(sight.unmoved()) };
            mover.carry(&moving.laid.carries)?;
            mover.switch(&moving).map(|blocks| sight.moved(&moving, blocks))
        })
    }

    /// Gives the map of a regular file another form. Its data stay where they are, and its times are kept. Where block
    /// pointers can't say that allocated blocks read as zeros, zeros are written.
    ///
    /// # Errors
    /// As [`Node::relocate`]; [`Error::Unsupported`] and [`Error::FileTooLarge`] for a form that this file or volume
    /// can't have.
    pub fn convert_map(&self, form: MapForm) -> Result<Relocated> {
        if !self.volume.space.is_writable() || self.volume.session.is_loading() {
            return Err(Error::ReadOnly);
        }
        let _pin = self.volume.pin(self.number)?;
        let mover = Mover { volume: self.volume, number: self.number, wish: Relocation::default() };
        mover.alone(|| {
            let sight = mover.look()?;
            map::may_have(&self.volume.format, &sight.node, form)?;
            let was = self.volume.view().map(&sight.node).form();
            if !sight.node.has_map() || was == form {
                return Ok(sight.unmoved());
            }
            mover.convert(&sight, form)?;
            let pieces = pieces(&mover.look()?.extents);
            Ok(Relocated { pieces_before: sight.pieces(), pieces, blocks: 0 })
        })
    }
}

/// A file as it was seen with nobody writing to it and nothing of it delayed.
struct Sight {
    node: Inode,
    extents: Vec<Extent>,
    changed: Option<u64>,
    moved: u64,
}

impl Sight {
    fn pieces(&self) -> u64 {
        pieces(&self.extents)
    }

    fn unmoved(&self) -> Relocated {
        Relocated { pieces_before: self.pieces(), pieces: self.pieces(), blocks: 0 }
    }

    fn moved(&self, moving: &Moving, blocks: u64) -> Relocated {
        Relocated { pieces_before: self.pieces(), pieces: moving.room.runs().len() as u64, blocks }
    }
}

/// Where a file goes.
struct Moving {
    room: Room,
    laid: Laid,
    form: MapForm,
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
        Reshape::of(self.volume, self.number).alone(verb)
    }

    /// Looks at the file, which is kept from writers.
    fn look(&self) -> Result<Sight> {
        let versions = self.volume.cache.versions();
        let (changed, moved) = (versions.changed(self.number), versions.moved(self.number));
        let mut seen = Seen::look(self.volume, self.number)?;
        self.may_move(seen.node())?;
        let extents = seen.steady(|view, node| {
            if node.has_map() { view.map(node).all() } else { Ok(Vec::new()) }
        })?;
        Ok(Sight { node: seen.node().clone(), extents, changed, moved })
    }

    fn may_move(&self, node: &Inode) -> Result<()> {
        match file_type(node)? {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Invalid("only regular files can be moved".into())),
        }
        let format = &self.volume.format;
        let is_own = self.number.get() < format.geometry.first_inode
            || format.zone.files().contains(&self.number)
            || node.flags().contains(InodeFlags::EA_INODE);
        if is_own {
            return Err(Error::Unsupported("the file belongs to the volume itself".into()));
        }
        rules::may(node, Deed::Remap)
    }

    /// Whether nothing of the file has changed since it was seen.
    fn is_still(&self, sight: &Sight) -> bool {
        let versions = self.volume.cache.versions();
        let same = sight.changed.is_some_and(|version| versions.is_still(self.number, version));
        same && versions.moved(self.number) == sight.moved
    }

    /// Takes room for a file that is better off elsewhere.
    fn prepare(&self, sight: &Sight) -> Result<Option<Moving>> {
        let now = sight.pieces();
        let most_runs = if self.wish.forward { now } else { now.saturating_sub(1) };
        let most_runs = most_runs.min(self.wish.most_pieces);
        if sight.extents.is_empty() || most_runs == 0 {
            return Ok(None);
        }
        let geometry = &self.volume.format.geometry;
        let form = self.volume.view().map(&sight.node).form();
        let layout = Layout::of(&sight.extents, form, geometry)?;
        let Ok(clusters) = u32::try_from(layout.clusters) else { return Ok(None) };
        let space = &self.volume.space;
        let request = RoomRequest {
            owner: self.number,
            directory: self.wish.directory,
            goal: if self.wish.forward { Block(0) } else { space.contents_home(self.number) },
            clusters,
            most_runs,
            first_fit: self.wish.forward,
        };
        let room = perform(self.volume, &mut |tx| tx.space_mut()?.room(&request))?;
        let Some(room) = room.filter(|room| self.is_better(sight, room)) else { return Ok(None) };
        let laid = layout.put(room.runs(), form, geometry)?;
        Ok(Some(Moving { room, laid, form }))
    }

    fn is_better(&self, sight: &Sight, room: &Room) -> bool {
        let geometry = &self.volume.format.geometry;
        let end = room.runs().iter().map(|run| geometry.cluster_start(run.start)).max();
        let start = sight.extents.iter().map(|extent| extent.start).min();
        !self.wish.forward || end < start
    }

    /// Brings bytes to blocks to which nothing leads yet.
    fn carry(&self, carries: &[Carry]) -> Result<()> {
        let mut buffer = vec![0; BUFFER];
        for carry in carries {
            let geometry = &self.volume.format.geometry;
            let len = u64::from(carry.count) << geometry.block_size.log2();
            let to = geometry.byte_offset(carry.to);
            let mut done = 0;
            while done < len {
                let count = usize::try_from(len - done).unwrap_or(usize::MAX).min(buffer.len());
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
            }
        }
        Ok(())
    }

    fn failure(&self, what: &str, source: std::io::Error) -> Error {
        Error::io(format!("{what} inode {}", self.number), source)
    }

    /// Has the map lead to the new blocks, and frees the old ones. Returns how many blocks moved.
    fn switch(&self, moving: &Moving) -> Result<u64> {
        change(self.volume, |tx| {
            let mut node = tx.inode(self.number)?;
            let charged = tx.space_mut()?.give(&moving.room);
            tx.map(&mut node).replace(&moving.laid.placed, moving.form, charged)?;
            tx.note_map(&node);
            tx.store(&mut node)
        })?;
        // What was set aside behind its old end is of no use.
        self.volume.space.truncated(self.number);
        Ok(moving.laid.carries.iter().map(|carry| u64::from(carry.count)).sum())
    }

    fn convert(&self, sight: &Sight, form: MapForm) -> Result<()> {
        let unwritten: Vec<_> = sight.extents.iter().filter(|extent| extent.unwritten).collect();
        let zeroing = form == MapForm::Pointers && !unwritten.is_empty();
        if zeroing {
            let zeros = unwritten.iter().map(|extent| Carry { from: None, to: extent.start, count: extent.count });
            self.carry(&zeros.collect::<Vec<_>>())?;
        }
        change(self.volume, |tx: &mut Tx<'v>| {
            let mut node = tx.inode(self.number)?;
            if zeroing {
                tx.map(&mut node).set_unwritten(FileBlocks::ALL, false)?;
            }
            tx.map(&mut node).switch(form == MapForm::Extents)?;
            tx.note_map(&node);
            tx.store(&mut node)
        })
    }
}
