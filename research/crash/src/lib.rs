//! Crashes, state by state: what the device may hold after one at any moment of recorded runs, and whether recovery
//! makes of it what was promised.
//!
//! A [`Workload`] is made on a volume in memory while a recorder notes writes, flushes and what was promised. Crash
//! states are each prefix of the writes, writes torn between sectors, and parts of those since the last flush. Each is
//! recovered and compared with the models of the calls; some are given to e2fsck, to our check, or recovered again
//! after a recovery that was cut off. A run is a function of its seed, and a state has a number in it.
//!
//! [`explore`] goes through many, [`replay`] through one again, [`faults()`] shows that what is wrong is found.

#![allow(clippy::unwrap_used, reason = "the harness ends at what it does not expect")]

mod ace;
mod calls;
mod campaign;
mod deep;
mod e2fsck;
mod faults;
mod judge;
mod model;
mod oracle;
mod order;
mod random;
mod reclaim;
mod record;
mod run;
mod runs;
mod states;
mod whole;
mod workload;

#[cfg(test)]
mod tests;

pub use campaign::{Limits, Violation, WorkloadCounts, explore, replay};
pub use e2fsck::is_installed as has_e2fsck;
pub use faults::{Fault, faults};
pub use judge::Depth;
pub use order::Order;
pub use workload::{Calls, RandomProfile, Shape, Workload, workload, workloads};
