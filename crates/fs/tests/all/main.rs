//! The tests of the library by its public interface, one module for each subject, in one program: each program more is
//! linked and stored once more.
//!
//! `cargo test -p platfs --test all model::` runs those of one module. Tests share a process and run side by side.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

mod bitmaps;
mod bulk;
mod check;
mod concurrency;
mod damaged;
mod delayed;
mod directories;
mod encrypted;
mod examples;
mod file_size;
mod front;
mod golden;
mod interleaved;
mod journal;
mod migrate;
mod model;
mod opening;
mod quota;
mod reclaim;
mod recovery;
mod rules;
mod softdep;
mod tree;
mod upkeep;
mod verbs;
mod write_failure;
mod xattrs;
