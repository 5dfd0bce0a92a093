//! The place of [`stores`](crate) in a build without the feature `store`: addresses of stores are known, and refused.
//!
//! Owns: the refusal. Excludes everything else; `stores.rs` is what other builds have here.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use platfs::device::Device;
use rustix::io::Errno;

/// Nothing is reached.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reach {
    /// No files that are read.
    pub reads: Vec<PathBuf>,
    /// No directories in which files are made.
    pub writes: Vec<PathBuf>,
    /// No servers are asked.
    pub network: bool,
}

/// Schemes that mean a store.
const SCHEMES: [&[u8]; 4] = [b"file://", b"s3://", b"gs://", b"az://"];

/// Wishes of a program about a volume of a store, which nothing follows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreOptions {
    /// The directory of the cache, and its most bytes.
    pub cache: Option<(PathBuf, u64)>,
    /// A volume that somebody has open for writing is taken over.
    pub take_over: bool,
    /// The program, for others to whom it is in the way.
    pub holder: Option<String>,
}

/// This build has no stores.
#[derive(Debug, thiserror::Error)]
#[error("is in an object store, and this build of plat was made without them")]
pub struct Error;

/// The number that Linux has for the refusal.
#[must_use]
pub fn errno(_: &Error) -> i32 {
    Errno::OPNOTSUPP.raw_os_error()
}

/// Returns true if a name is that of a store, or of a volume in one.
#[must_use]
pub fn is_meant(name: &OsStr) -> bool {
    SCHEMES.iter().any(|scheme| name.as_bytes().starts_with(scheme))
}

/// As much of a name as messages may have: of an address that may have credentials its scheme.
#[must_use]
pub fn public(name: &OsStr) -> &[u8] {
    let bytes = name.as_bytes();
    let is_secret = is_meant(name) && bytes.iter().any(|byte| matches!(byte, b'@' | b'?'));
    let end = bytes.iter().position(|byte| *byte == b'/').filter(|_| is_secret);
    bytes.get(..end.map_or(bytes.len(), |end| end + 2)).unwrap_or_default()
}

/// Everything that a volume of a store is reached through: nothing.
#[must_use]
pub fn reached(_: &OsStr) -> Reach {
    Reach::default()
}

/// Refuses.
///
/// # Errors
/// Always.
pub fn open_read(_: &OsStr) -> Result<Arc<dyn Device>, Error> {
    Err(Error)
}

/// Refuses.
///
/// # Errors
/// Always.
pub fn open_write(_: &OsStr) -> Result<Arc<dyn Device>, Error> {
    Err(Error)
}

/// Refuses.
///
/// # Errors
/// Always.
pub fn open_read_by(_: &OsStr, _: &StoreOptions) -> Result<Arc<dyn Device>, Error> {
    Err(Error)
}

/// Refuses.
///
/// # Errors
/// Always.
pub fn open_write_by(_: &OsStr, _: &StoreOptions) -> Result<Arc<dyn Device>, Error> {
    Err(Error)
}

/// Refuses.
///
/// # Errors
/// Always.
pub fn create_by(_: &OsStr, _: u64, _: &StoreOptions) -> Result<Arc<dyn Device>, Error> {
    Err(Error)
}

/// Without volumes there are no flushes.
pub fn flush_locally(_: bool) {}

/// There are none to wait for.
pub fn wait_at_most(_: std::time::Duration) {}

/// There are none to wait for.
pub fn give_up() {}

/// There is nothing to hear.
pub fn tell_to(_: impl Fn(&str) + Send + Sync + 'static) {}

/// No time is waited.
#[must_use]
pub fn time(_: &str) -> Option<std::time::Duration> {
    None
}

/// There is nothing to say.
#[must_use]
pub fn notes() -> Vec<String> {
    Vec::new()
}

/// Nothing is open.
#[derive(Default)]
pub struct Written(());

impl Written {
    /// Nothing is to be closed.
    ///
    /// # Errors
    /// None.
    pub fn close(self) -> Result<(), Error> {
        Ok(())
    }
}

/// Nothing is open.
#[must_use]
pub fn take_last() -> Written {
    Written(())
}

/// Nothing is open.
///
/// # Errors
/// None.
pub fn close_all() -> Result<(), Error> {
    Ok(())
}

/// Refuses.
///
/// # Errors
/// Always.
pub fn is_free(_: &OsStr) -> Result<bool, Error> {
    Err(Error)
}
