//! `plat-lab` as a program: its output, what a killed run leaves, its report in a browser, and its tutorial.
//!
//! `cargo test -p plat-lab --test all report::` runs those of one module. Tests of its parts stand beside the code.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod output;
mod peers;
mod report;
mod tutorial;
