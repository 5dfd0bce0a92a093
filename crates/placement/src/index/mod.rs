//! The exact run index: where free runs of which length lie.
//!
//! [`region`] indexes one region of 32,768 clusters, [`planes`] says which regions hold runs of
//! which [`class`], [`map`] joins them into a volume. Nothing outside [`map`] changes a bit.

pub(crate) mod body;
pub(crate) mod class;
pub(crate) mod map;
pub(crate) mod planes;
pub(crate) mod region;
