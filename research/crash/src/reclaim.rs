//! Runs on a volume that a crash of another run left: calls go on while what it left is reclaimed.

use std::collections::BTreeMap;
use std::sync::Arc;

use platfs::device::MemoryDevice;
use platfs::ondisk::inode::FileType;
use platfs::{InodeNumber, Volume};
use testkit::random::Random;

use crate::model::{Contents, Model, Node, PIECE, Piece, ROOT};
use crate::oracle::{self, NamedInode, Tree};
use crate::random::Chooser;
use crate::record::record_on;
use crate::run::{Run, copy};
use crate::states::States;
use crate::workload::{Calls, RandomProfile, Workload};

/// Calls of the run that crashes first.
pub(crate) const COUNT_BEFORE: u64 = 120;
/// Every n-th state of it is looked at.
const STEP: u64 = 13;
const TASTE: RandomProfile =
    RandomProfile { crowded: false, room: None, moving: false, changing: false, sharing: false };

/// Calls of the run that crashes first.
pub(crate) fn calls_before(deep: bool) -> Calls {
    if deep { Calls::DeepChooser } else { Calls::Random(TASTE) }
}

/// Records a run of this many calls on what a crash of another run left. `None` where no crash of it left anything.
pub(crate) fn record(workload: &Workload, crashed: &Run, calls: u64) -> Option<Run> {
    let (base, seed) = (left_by(crashed)?, crashed.seed);
    let (at_first, in_the_end) = trees(workload, &base);
    let mut models = Models::default();
    let (first, model) = (models.model(&at_first), models.model(&in_the_end));
    record_on(workload, base, seed, |caller, _| {
        caller.resume(model, models.inodes, models.version);
        // A directory that was on its way has both names, until all is reclaimed.
        caller.history = vec![Model { whole: caller.model.whole.clone(), ..first }];
        let mut chooser = Chooser { caller, random: Random(seed), profile: TASTE };
        for _ in 0..calls {
            if chooser.random.one_in(3) {
                chooser.caller.reclaim_some();
            } else {
                chooser.step_quietly();
            }
        }
        chooser.caller.reclaim();
        chooser.run(calls / 4);
        Some(())
    })
}

/// Device of a state that leaves something to be reclaimed: one behind the first half of them.
fn left_by(run: &Run) -> Option<MemoryDevice> {
    let (mut left, mut count) = (None, 0);
    let first = STEP * (1 + run.seed % 40);
    States::of(run).all(|state| {
        count += 1;
        if count >= first && count % STEP == 0 {
            let volume = Volume::open(state.device.clone(), &run.workload.options()).unwrap();
            volume.leftovers().reclaim().unwrap();
            let reclaimed = volume.leftovers().reclaimed();
            left = (reclaimed.inodes + reclaimed.blocks > 0).then(|| copy(&*state.again()));
        }
        left.is_none()
    });
    left
}

/// Reads the tree of a volume before and after all is reclaimed.
fn trees(workload: &Workload, base: &MemoryDevice) -> (Tree, Tree) {
    let volume = Volume::open(Arc::new(copy(base)), &workload.options()).unwrap();
    let at_first = oracle::tree(&volume).unwrap();
    volume.leftovers().reclaim().unwrap();
    (at_first, oracle::tree(&volume).unwrap())
}

/// Makes models of trees.
#[derive(Default)]
struct Models {
    ids: BTreeMap<InodeNumber, u32>,
    inodes: BTreeMap<u32, InodeNumber>,
    /// The last version of a piece.
    version: u32,
}

impl Models {
    /// The number that the pieces of a file bear, or one of its own.
    fn id(&mut self, found: &NamedInode, wrote: Option<u32>) -> u32 {
        let id = wrote.unwrap_or(1 << 16 | found.inode.get());
        let id = *self.ids.entry(found.inode).or_insert(id);
        self.inodes.insert(id, found.inode);
        id
    }

    fn file(&mut self, found: &NamedInode) -> (u32, Contents) {
        let word =
            |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at * 4..at * 4 + 4].try_into().unwrap());
        let pieces: Vec<_> = found.bytes.chunks(PIECE).collect();
        let wrote = pieces.iter().map(|bytes| word(bytes, 1)).find(|id| *id != 0);
        let piece = |bytes: &&[u8]| Piece { version: word(bytes, 2), index: word(bytes, 3) };
        let pieces: Vec<_> = pieces.iter().map(piece).collect();
        self.version = pieces.iter().map(|piece| piece.version).fold(self.version, u32::max);
        let (attribute, has_list) = (found.attribute.clone(), found.has_list);
        (self.id(found, wrote), Contents { pieces, shifts: 0, attribute, has_list })
    }

    fn model(&mut self, tree: &Tree) -> Model {
        self.inodes.insert(ROOT, InodeNumber::ROOT);
        let mut model = Model::default();
        for (path, found) in tree {
            let node = match found.file_type {
                FileType::Directory => Node::Directory(self.id(found, None)),
                FileType::Symlink => Node::Link(found.bytes.clone()),
                _ => {
                    let (id, contents) = self.file(found);
                    model.files.insert(id, contents);
                    Node::File(id)
                }
            };
            model.names.insert(path.clone(), node);
        }
        model
    }
}
