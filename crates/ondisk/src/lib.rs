//! The bytes of ext2, ext3 and ext4 volumes as typed values.
#![forbid(unsafe_code)]
pub mod units;
