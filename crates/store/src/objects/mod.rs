//! Where objects are kept: the five things that are asked of a store, and the stores that can do them.
//!
//! | module | owns |
//! | --- | --- |
//! | `files` | a directory of this host |
//! | `memory` | a store in memory, with faults for tests |
//! | `patient` | retries with limits, what an ambiguous answer means, counts of requests |
//! | `remote` | S3, Google Cloud Storage and Azure, behind features; the only place with an asynchronous runtime |
//!
//! Excludes what objects hold. Keys are ours, not users': lower-case letters, digits, `-`, `.` and slashes.

mod files;
mod memory;
mod patient;
#[cfg(feature = "remote")]
mod remote;

use std::time::{Duration, SystemTime};

pub use files::Files;
pub use memory::{Fault, Memory};
pub use patient::{Counts, Patience, Patient};
#[cfg(feature = "remote")]
pub use remote::Remote;

use crate::error::{Error, Result};

/// Most bytes of an object that is ever replaced, of which lists of clean-ups are the longest. What another program put in
/// its place is not read for longer than that.
pub(crate) const REPLACED_MAX: u64 = 256 << 20;

/// Most objects that one list may name, and most names that one level of keys may have. A list that does not end would else
/// keep this program at work for ever, or take all its memory.
pub(crate) const LISTED_MAX: u64 = 1 << 28;
pub(crate) const NAMES_MAX: usize = 1 << 20;

/// Refuses a list that is longer than any store's.
fn endless(prefix: &str, most: impl std::fmt::Display) -> Error {
    Error::Invalid(format!("{prefix}: the store lists more than {most} objects there, and no more are taken"))
}

/// Version of an object, among the contents that its key had. Only the store that gave it understands it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Version {
    /// ETag of S3, or a hash of the contents.
    pub tag: Option<String>,
    /// A generation or version number.
    pub number: Option<String>,
}

/// An object as it was read.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its contents.
    pub bytes: Vec<u8>,
    /// Names these contents in a conditional replacement.
    pub version: Version,
}

/// An object as it is listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its key.
    pub key: String,
    /// Bytes.
    pub size: u64,
    /// When it was last written, by the store's clock.
    pub modified: SystemTime,
}

/// A store of objects, strongly consistent: what was written is seen by everybody from then on.
///
/// Contents appear whole or not at all, and are stable when a call that writes returns.
pub trait Objects: Send + Sync {
    /// An object of at most `most` bytes.
    ///
    /// # Errors
    /// [`Error::Missing`]; [`Error::Damaged`] if it is larger; the store's.
    fn get(&self, key: &str, most: u64) -> Result<Object>;

    /// A range of an object; shorter only at its end.
    ///
    /// # Errors
    /// [`Error::Missing`]; the store's.
    fn range(&self, key: &str, offset: u64, len: u64) -> Result<Vec<u8>>;

    /// Writes an object whatever was there: only for objects whose key says what they hold.
    ///
    /// # Errors
    /// The store's.
    fn put(&self, key: &str, bytes: &[u8]) -> Result<()>;

    /// Writes an object only where none is.
    ///
    /// # Errors
    /// [`Error::Exists`]; the store's.
    fn create(&self, key: &str, bytes: &[u8]) -> Result<Version>;

    /// Writes an object only where that version of it is.
    ///
    /// # Errors
    /// [`Error::Conflict`]; the store's.
    fn replace(&self, key: &str, bytes: &[u8], version: &Version) -> Result<Version>;

    /// Returns an object's entry in the list; `None` if there is no object.
    ///
    /// # Errors
    /// The store's.
    fn head(&self, key: &str) -> Result<Option<Listed>>;

    /// Every object whose key begins with a prefix that ends with a slash.
    ///
    /// # Errors
    /// The store's; what `each` says.
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()>;

    /// The next parts of the keys that begin with a prefix, as a directory would list its directories.
    ///
    /// # Errors
    /// The store's.
    fn names(&self, prefix: &str) -> Result<Vec<String>>;

    /// Removes an object; none is no error.
    ///
    /// # Errors
    /// The store's.
    fn remove(&self, key: &str) -> Result<()>;

    /// Time for which a request may still take effect after the program that made it has ended.
    fn lingers(&self) -> Duration {
        Duration::from_secs(120)
    }
}

/// Refuses what is no key of ours: it would leave the directory, or be another object elsewhere.
fn checked(key: &str) -> Result<&str> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let parts = key.strip_suffix('/').unwrap_or(key).split('/');
    let good = |part: &str| !part.is_empty() && !part.starts_with('.') && part.bytes().all(allowed);
    if key.len() <= 512 && parts.clone().all(good) {
        return Ok(key);
    }
    Err(Error::Invalid(format!("`{}` is no key of an object", key.escape_debug())))
}
