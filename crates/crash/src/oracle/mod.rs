//! Judging what recovery makes of a state.

pub mod journal;
pub mod phased;
