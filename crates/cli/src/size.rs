//! Sizes as users write them, and as they are shown.

pub use platfs_forensics::words::human;
pub use platfs_image::size::{Written, parse_size, unit_shift};
