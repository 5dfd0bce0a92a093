//! What a crash can leave of recorded runs, state by state, and whether it holds what was promised.

#![allow(clippy::unwrap_used, reason = "the harness fails by panicking")]
#![allow(missing_docs, reason = "of its own tests only")]

pub mod ace;
pub mod calls;
pub mod deep;
pub mod faults;
pub mod kinds;
pub mod model;
pub mod oracle;
pub mod random;
pub mod record;
pub mod softdep;
pub mod states;
pub mod survive;
pub mod workload;
