//! The tests of the command, one module for each subject, in one program: each program more is linked and stored once more.
//!
//! `cargo test -p platfs-cli --test all mount::` runs those of one module. Tests share a process and run side by side: what
//! changes the environment, the working directory, the mask or a limit starts this program again (`testkit::again`).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

mod bad_input;
mod build_matrix;
mod build_sources;
mod changing;
mod checking;
mod churn;
mod databases;
mod defrag;
mod disks;
mod encrypted;
mod export;
mod fleets;
mod forensics;
mod fsx;
mod full;
mod golden;
mod guides;
mod hostile;
mod interrupted;
mod killed;
mod layout;
mod listing;
mod live;
mod manual;
mod map;
mod metadata_image;
mod mkfs;
mod mount;
mod mount_trace;
mod mount_write;
mod mounted_files;
mod nearly_full;
mod oci_interop;
mod own_permissions;
mod pipelines;
mod placement;
mod plat;
mod posix;
mod quota;
mod reading;
mod reproducible;
mod requests;
mod resize;
mod roundtrip;
mod sequences;
mod snapshot;
mod store;
mod support;
mod tar_interop;
mod terminal;
mod trees;
mod trim;
mod tunables;
mod tune;
mod undelete;
mod unnamed;
mod written;
