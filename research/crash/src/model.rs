//! Model of the tree that should exist after a call.

use std::collections::BTreeMap;

use platfs::Volume;
use platfs::ondisk::quota::QuotaKind;
use platfs::quota::Record;

/// Bytes of which a write is made; each piece says whose it is.
pub(crate) const PIECE: usize = 512;

/// The only attribute of files beside their access control lists.
pub(crate) const ATTRIBUTE: &[u8] = b"user.value";

/// The access control list of a file.
pub(crate) const LIST: &[u8] = b"system.posix_acl_access";

/// The root directory; other directories and files have numbers from 1 on, none twice.
pub(crate) const ROOT: u32 = 0;

/// Node that a name leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Node {
    Directory(u32),
    File(u32),
    Link(Vec<u8>),
}

/// Contents of a piece of a file: the version that wrote it, 0 if none did, and which of its pieces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Piece {
    pub(crate) version: u32,
    pub(crate) index: u32,
}

/// The contents of a file, and its attribute.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Contents {
    pub(crate) pieces: Vec<Piece>,
    /// How often pieces moved: what is written over a place later may be another one's before.
    pub(crate) shifts: u32,
    /// The value of its attribute.
    pub(crate) attribute: Option<Vec<u8>>,
    /// It has an access control list that says more than its mode.
    pub(crate) has_list: bool,
}

impl Contents {
    pub(crate) fn piece(&self, index: usize) -> Piece {
        self.pieces.get(index).copied().unwrap_or_default()
    }
}

/// State of a volume that is compared beside its tree.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct VolumeState {
    /// The label of its superblock.
    pub(crate) label: Vec<u8>,
    /// Blocks.
    pub(crate) blocks: u64,
    /// Limits of space of the owner 77, if users are counted.
    pub(crate) limit: Option<u64>,
    /// Which kinds of ids are counted.
    pub(crate) counted: [bool; 2],
}

/// Kinds that are switched on and off.
pub(crate) const KINDS: [QuotaKind; 2] = [QuotaKind::User, QuotaKind::Group];

/// The owner that has limits.
pub(crate) const OWNER: u32 = 77;

impl VolumeState {
    /// That of a volume.
    pub(crate) fn of(volume: &Volume) -> Result<Self, String> {
        let quota = volume.quota();
        let counted = KINDS.map(|kind| quota.kinds().contains(&kind));
        let record = |_| quota.record(QuotaKind::User, OWNER).map_err(|error| error.to_string());
        let record: Option<Record> = counted.first().filter(|on| **on).map(record).transpose()?;
        Ok(VolumeState {
            label: volume.superblock().label().to_vec(),
            blocks: volume.superblock().blocks_count(),
            limit: record.map(|record| record.limits.hard_bytes),
            counted,
        })
    }
}

/// All there is after a call.
#[derive(Clone, Default)]
pub(crate) struct Model {
    pub(crate) names: BTreeMap<Vec<u8>, Node>,
    pub(crate) files: BTreeMap<u32, Contents>,
    pub(crate) whole: VolumeState,
}

impl Model {
    pub(crate) fn file(&self, path: &[u8]) -> Option<u32> {
        match self.names.get(path) {
            Some(Node::File(id)) => Some(*id),
            _ => None,
        }
    }

    pub(crate) fn directory(&self, path: &[u8]) -> Option<u32> {
        match self.names.get(path) {
            Some(Node::Directory(id)) => Some(*id),
            None if path.is_empty() => Some(ROOT),
            _ => None,
        }
    }

    /// Every directory with its path, the root first.
    pub(crate) fn directories(&self) -> impl Iterator<Item = (&[u8], u32)> {
        let below = self.names.iter().filter_map(|(path, node)| match node {
            Node::Directory(id) => Some((&path[..], *id)),
            _ => None,
        });
        std::iter::once((&b""[..], ROOT)).chain(below)
    }

    /// Every name of a file.
    pub(crate) fn file_names(&self) -> impl Iterator<Item = (&[u8], u32)> {
        self.names.iter().filter_map(|(path, node)| match node {
            Node::File(id) => Some((&path[..], *id)),
            _ => None,
        })
    }

    /// Paths below a directory.
    pub(crate) fn inside(&self, directory: &[u8]) -> impl Iterator<Item = &[u8]> {
        let begin = [directory, b"/"].concat();
        self.names.keys().filter(move |path| path.starts_with(&begin)).map(|path| &path[..])
    }

    pub(crate) fn pieces(&self, id: u32) -> usize {
        self.files.get(&id).map_or(0, |contents| contents.pieces.len())
    }

    pub(crate) fn is_empty(&self, directory: &[u8]) -> bool {
        self.inside(directory).next().is_none()
    }

    /// Renames, and takes along what is below.
    pub(crate) fn rename(&mut self, from: &[u8], to: &[u8]) {
        let below = [from, b"/"].concat();
        let (moved, rest) = std::mem::take(&mut self.names)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(path, _)| path == from || path.starts_with(&below));
        self.names = rest;
        self.names.extend(moved.into_iter().map(|(path, node)| ([to, &path[from.len()..]].concat(), node)));
    }
}

/// The bytes of a piece.
pub(crate) fn bytes_of(id: u32, piece: Piece) -> Vec<u8> {
    if piece.version == 0 {
        return vec![0; PIECE];
    }
    // "PLAT", or now and then what begins blocks of a journal.
    let mark = if piece.version % 4 == 3 { 0x9839_3BC0 } else { 0x5441_4C50 };
    [mark, id, piece.version, piece.index]
        .iter()
        .flat_map(|word: &u32| word.to_le_bytes())
        .collect::<Vec<_>>()
        .repeat(PIECE / 16)
}
