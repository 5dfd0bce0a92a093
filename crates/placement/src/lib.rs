//! Choice of blocks and inodes: the free space of an ext2/3/4 volume and the policies that hand it
//! out.
//!
//! This crate knows integers, neither bytes of a format nor devices, has no clock and no
//! randomness. Its caller describes the groups ([`Engine::describe_group`]), loads bitmaps when
//! asked ([`Refusal::NeedBitmap`]), and makes grants durable in an order of its own.
//!
//! Reading order: [`request`] (requests and answers), [`engine`] (ask, verify, take), [`policy`] (the
//! registry, one file per policy), `index` (where free runs lie).
//!
//! ```
//! use ondisk::units::{Cluster, Group};
//! use placement::{BlockPolicyKind, Engine, GroupContent, Layout, Request};
//!
//! let layout = Layout {
//!     clusters: 65_536,
//!     clusters_per_group: 32_768,
//!     groups: 2,
//!     inodes_per_group: 8_192,
//!     groups_per_flex: 16,
//!     block_bytes: 4_096,
//!     blocks_per_cluster: 1,
//! };
//! let engine = Engine::new(layout, BlockPolicyKind::Lease)?;
//! for group in 0..2 {
//!     engine.describe_group(Group(group), 32_768, GroupContent::Uninitialised { used: &[] })?;
//! }
//! // 40,000 clusters are one run over both groups.
//! let grant = engine.allocate(&Request::data(Cluster(100), 40_000))?;
//! assert_eq!(grant.run().count, 40_000);
//! let run = grant.into_run();
//! assert_eq!(engine.free_clusters(), 25_536);
//! engine.free(run)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod bound;
mod closing;
pub mod engine;
pub mod events;
mod index;
pub mod inode;
pub mod layout;
#[cfg(all(test, shuttle))]
mod models;
mod orphaned_grants;
pub mod parameters;
pub mod policy;
pub mod promise;
pub mod request;
pub mod residency;
mod shrink_reservation;
pub mod stats;
mod sync;
#[cfg(all(test, not(shuttle)))]
mod tests;
mod timing;
pub mod trace;
mod view;

pub use engine::{Engine, Grant};
pub use events::{Event, EventSink};
pub use index::groups::{GroupContent, Memory};
pub use inode::{DirectoryPolicyKind, InodeContent, InodeEngine, InodeGrant, InodeRefusal, InodeRequest};
pub use layout::Layout;
pub use parameters::Placing;
pub use policy::BlockPolicyKind;
pub use promise::Promise;
pub use request::{Contradiction, Denial, FileState, Kind, Mapped, Refusal, Request};
pub use stats::{Counter, Criterion, CriterionStats, Stats};
pub use timing::{Clock, LockKind, LockTimes};
pub use view::View;
