//! The verbs of a volume, as methods of [`Volume`](crate::Volume).
//!
//! Each verb that changes something is one update: it happens as a whole or, on any error, not at
//! all (invariant I8).

mod attrs;
mod bulk;
mod change;
mod changing;
mod data;
mod expect;
mod extents;
mod fault;
mod fields;
mod flush;
mod handles;
mod load;
mod migrate;
mod names;
mod node;
mod orphans;
mod pack;
mod permissions;
mod read;
mod reclaim;
mod remove;
mod rename;
mod renumber;
mod reserve;
mod resize;
pub mod rights;
pub mod rules;
mod sparing;
mod sync;
mod walk;
mod write;

pub use attrs::{Attributes, Metadata, Times};
pub use bulk::{Bulk, Removed, Whole};
pub use change::AttributeChange;
pub(crate) use changing::change;
pub use data::{Reader, Writer};
pub use extents::FileMap;
pub use handles::{Pin, Uses};
pub use load::Loader;
pub use migrate::{Relocated, Relocation, RelocationGoal};
pub(crate) use migrate::{end_of, leave, reaches};
pub use names::{Kind, NewInode};
pub(crate) use names::{LINKS_FOLLOWED_MAX, resolve_from};
pub use node::Node;
pub use permissions::{AccessTimes, CreateRequest, Inherited};
pub use reclaim::{Leftovers, Reclaimed};
pub use rename::Replace;
pub(crate) use renumber::{NamePlace, Renumbered, renew_values, renumber};
pub use resize::{Allocate, Seek};
pub use walk::Walk;
pub use write::WriteOptions;
