//! The check of volumes: silent on sound ones, and exactly right on planted faults.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "numbers of a test are small"
)]

mod agreement;
mod declined;
mod directories;
mod guarded;
mod inodes;
mod inventory;
mod kept;
mod limits;
mod lying;
mod opening;
mod owners;
mod paths;
mod plant;
mod seed;
mod sound;
mod space;
mod values;
