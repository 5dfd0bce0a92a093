//! Tests of the public interface through real mounts, one module for each subject. They stand in the program of the unit
//! tests: each program more is linked and stored once more.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "examples use the rest")]
mod memory;
mod scheduling;
mod transports;

use std::sync::RwLock;

/// Mounts of this process. A test that looks at the threads of its mount by their names has it for writing.
static MOUNTS: RwLock<()> = RwLock::new(());
