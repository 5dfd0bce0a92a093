//! The exact run index: where free runs of which length lie.
//!
//! [`region`] indexes one region of 32,768 clusters as [`census`] counts it, [`state`] packs what is known of one,
//! [`store`] keeps them under their locks, [`planes`] says which regions hold runs of which
//! [`class`], [`map`] joins them into a volume and searches it, [`groups`] brings groups in and out.
//! Nothing outside [`map`] and [`groups`] changes a bit.

pub(crate) mod census;
pub(crate) mod class;
pub(crate) mod groups;
pub(crate) mod map;
pub(crate) mod planes;
pub(crate) mod region;
pub(crate) mod sparse;
pub(crate) mod state;
pub(crate) mod store;
pub(crate) mod tally;

/// Work of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    /// Free runs.
    pub(crate) runs: u64,
    /// Bytes of bitmap in which they were looked for.
    pub(crate) bytes: u64,
}

impl Scan {
    /// Bytes of a chunk's part of the bitmap: one cache line.
    pub(crate) const CHUNK: u64 = 64;
}
