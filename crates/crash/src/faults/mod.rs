//! Faults put into what was recorded of a right writer: each must be found.

pub mod journal;
pub mod phased;
