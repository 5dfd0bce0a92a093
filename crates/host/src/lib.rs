//! Files of the host, beside others who may rename and link there at any time.
//!
//! Owns every access to a tree of the host that is not the user's own word: what lies *below* a directory that was
//! named. The rule is one sentence: **a name is one component, used once, below an open directory, and never through a
//! symbolic link.** What was opened is looked at by its descriptor, not by its name. So whoever owns a directory decides
//! what lies in it, and nothing about other directories.
//!
//! A path that the user gave ([`Directory::open`], [`Output::new`]) leads through links as for any command, but for the
//! rule that Linux has for shared directories: a link of another user in a sticky directory is refused
//! ([`Output::new`]), whether the system has `fs.protected_symlinks` on or off.
//!
//! Files of the system ([`system`]) and looks at what a path means ([`mod@path`]) are here as well. Other crates of the
//! product call the system by a path only where `clippy.toml` has an exception with its reason, to mount, to name the rules
//! of a cage, and to make a file without a name (`tempfile`).
//!
//! Excludes what is in files, who may use an image at the same time, and devices.

#![forbid(unsafe_code)]

mod attributes;
mod contents;
mod descent;
mod directory;
mod errno;
mod facts;
mod output;
pub mod path;
mod random;
mod reach;
pub mod system;
mod tree;
mod unfinished;
mod walk;

pub use attributes::{CopiedAttributes, Handle, MissingAttributes, Times, XattrReader, Xattrs, XattrsOf};
pub use contents::{Runs, copy, runs};
pub use descent::Descent;
pub use directory::{Directory, Entries};
pub use errno::errno_of;
pub use facts::{Facts, Id, Kind};
pub use output::{NewDirectory, Output, OutputLocation, Privacy, followed, private_log};
pub use reach::{Opened, inside, named, open_named, read_named, read_secret, split, target_of};
pub use unfinished::{abandon, left_behind};
pub use walk::{Entry, Visitor, walk};
