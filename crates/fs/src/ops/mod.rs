//! The verbs of a volume, as methods of [`Volume`](crate::Volume).
//!
//! Each verb that changes something is one update: it happens as a whole or, on any error, not at
//! all (invariant I8).

mod attrs;
mod data;
mod extents;
mod names;
mod walk;

pub use attrs::{Attributes, Metadata, Times};
pub use data::{File, Writer};
pub use extents::FileMap;
pub use names::{Kind, NewInode};
pub use walk::Walk;
