//! The tar format, read and written: headers, PAX and GNU extensions, sparse maps, ACL encodings.
//!
//! An archive is a row of 512-byte blocks. An entry is a *header* block, then its data padded to a
//! whole block. What a header's fixed fields cannot say is said by entries before it: PAX records
//! (types `x` and `g`), GNU long names (`L`, `K`). Two zero blocks end the archive.
//!
//! ```text
//! [x header][records...][header "file"][data.......][header]...[zero][zero]
//! ```
//!
//! | module | owns |
//! | --- | --- |
//! | [`entry`] | what one entry says, free of its encoding |
//! | [`number`] | octal and base-256 fields |
//! | [`header`] | the 512-byte block: field places, dialects, checksum |
//! | [`pax`] | records and their times |
//! | [`sparse`] | the four ways a sparse file is described |
//! | [`acl`] | ACL text, and the encoding Linux keeps in attributes |
//! | `names` | numbers of owners by the archive's own tables |
//! | [`error`] | what can be wrong, and where |
//! | [`reader`] | entries from an archive of known length |
//! | [`writer`] | entries to a stream |
//!
//! This module excludes compression, where archives come from, and what a later entry does to an
//! earlier one: all of that is `source`'s. Nothing in an archive is trusted: sizes are bounded by
//! [`limits`] before memory is taken, positions are checked, every failure names its byte.
//!
//! Sources: POSIX.1-2017 `pax`; the manuals of GNU tar ("Tar Internals") and `tar(5)` of libarchive.

pub mod acl;
pub mod entry;
pub mod error;
mod fields;
pub mod header;
pub(crate) mod names;
pub mod number;
pub mod pax;
pub mod reader;
pub mod sparse;
pub mod writer;

pub use entry::{Device, Entry, EntryKind, Run, Times, Timestamp, Xattr};
pub use error::{Problem, TarError, TarWarning};
pub use names::{Names, TABLE_MOST};
pub use reader::{Input, Reader};
pub use writer::{WriteError, Writer};

/// Bounds on what an archive may make its reader remember.
pub mod limits {
    /// The size of one PAX extended header: room for sixty attributes of the largest size.
    pub const PAX_BYTES: u64 = 4 << 20;
    /// Largest sum of global PAX headers, of which each entry takes a copy. Those of git have 52 bytes.
    pub const GLOBAL_BYTES: usize = 64 << 10;
    /// The length of a path, in any of its encodings. Linux resolves at most 4,096 bytes at once, but
    /// trees may be deeper.
    pub const PATH_BYTES: usize = 65_535;
    /// The length of a symbolic link's target: `PATH_MAX` without its NUL.
    pub const TARGET_BYTES: usize = 4_095;
    /// The length of one name, `NAME_MAX`.
    pub const NAME_BYTES: usize = 255;
    /// The length of an attribute's name, `XATTR_NAME_MAX`.
    pub const XATTR_NAME_BYTES: usize = 255;
    /// The length of an attribute's value, `XATTR_SIZE_MAX`.
    pub const XATTR_VALUE_BYTES: usize = 65_536;
    /// The names of a file's attributes, each with its NUL: `XATTR_LIST_MAX`.
    pub const XATTR_LIST_BYTES: usize = 65_536;
    /// Data runs of one sparse file.
    pub const SPARSE_RUNS: usize = 1 << 20;
}
