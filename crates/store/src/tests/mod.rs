//! Tests of the public interface, one module for each subject. They stand in the program of the unit tests: each program
//! more is linked and stored once more.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod local;
mod volumes;
