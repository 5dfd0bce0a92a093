//! What there should be after a call.

use std::collections::BTreeMap;

/// Bytes of which a write is made; each piece says whose it is.
pub const PIECE: usize = 512;

/// What a name leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    Directory,
    File(u32),
    Link(Vec<u8>),
}

/// What a piece of a file holds: the version that wrote it, 0 if none did, and which of its pieces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Piece {
    pub version: u32,
    pub index: u32,
}

/// The contents of a file, and its attribute.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    pub pieces: Vec<Piece>,
    /// How often pieces moved: what is written over a place later may be another one's before.
    pub shifts: u32,
    /// The value of its only attribute.
    pub attribute: Option<Vec<u8>>,
}

impl Contents {
    pub fn piece(&self, index: usize) -> Piece {
        self.pieces.get(index).copied().unwrap_or_default()
    }
}

/// All there is after a call.
#[derive(Clone, Default)]
pub struct Model {
    pub names: BTreeMap<Vec<u8>, Node>,
    pub files: BTreeMap<u32, Contents>,
}

impl Model {
    pub fn file(&self, path: &[u8]) -> Option<u32> {
        match self.names.get(path) {
            Some(Node::File(id)) => Some(*id),
            _ => None,
        }
    }

    pub fn pieces(&self, id: u32) -> usize {
        self.files.get(&id).map_or(0, |contents| contents.pieces.len())
    }

    pub fn is_empty(&self, directory: &[u8]) -> bool {
        let inside = [directory, b"/"].concat();
        !self.names.keys().any(|other| other.starts_with(&inside))
    }
}

/// The bytes of a piece.
pub fn bytes_of(id: u32, piece: Piece) -> Vec<u8> {
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
