//! Volumes of object stores in the place of images: `file:///srv/store#NAME`, `s3://bucket/prefix#NAME@SNAPSHOT`.
//!
//! Owns: which store and which cache an address means, by the command line and the environment. Excludes the store itself,
//! which is `platfs-store`'s.
//!
//! | variable | what |
//! | --- | --- |
//! | `PLAT_CACHE` | the directory of the cache; empty for none. Stores on this host have none unless it is set |
//! | `PLAT_CACHE_SIZE` | its most bytes, 8G if nothing is said |
//! | `PLAT_STORE_TAKEOVER` | `1`: a volume that somebody has open for writing is taken over |

use std::cell::RefCell;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use platfs::device::Device;
use platfs_forensics::{Ground, used};
use platfs_store::objects::Patience;
use platfs_store::{Address, Cache, Error, Result, Store, Stored, Volume};

use crate::signals::StopSignals;

/// Bytes of the cache where nothing is said.
const CACHE_SIZE: u64 = 8 << 30;
/// Bytes that are fetched first when a volume is opened: the superblock, and what stands behind it.
const FRONT: u64 = 4 << 20;
/// Most bytes of tables that are fetched then, and of directories.
const EARLY: u64 = 16 << 20;
const DIRECTORIES: u64 = 8 << 20;

/// Whether a name is that of a store, or of a volume in one.
#[must_use]
pub fn is_meant(name: &OsStr) -> bool {
    platfs_store::is_address(name.as_bytes())
}

/// An address as the user gave it.
///
/// # Errors
/// It is none.
pub fn address(name: &OsStr) -> Result<Address> {
    let text = name.to_str().ok_or_else(|| Error::Invalid("an address of a store is UTF-8".into()))?;
    Address::parse(text)
}

/// The store of an address.
///
/// # Errors
/// This build does not know such stores; a setting that can't be understood.
pub fn store(address: &Address) -> Result<Arc<Store>> {
    // Threads that speak with a store leave signals to those who wait for them.
    let held = StopSignals::hold().ok();
    let objects = address.objects();
    held.into_iter().for_each(StopSignals::release);
    Ok(Arc::new(Store::new(objects?, Patience::default(), cache(address)?)))
}

fn cache(address: &Address) -> Result<Option<Cache>> {
    let directory = match std::env::var_os("PLAT_CACHE") {
        Some(set) if set.is_empty() => None,
        Some(set) => Some(PathBuf::from(set)),
        None if address.is_local() => None,
        None => std::env::var_os("XDG_CACHE_HOME")
            .filter(|home| !home.is_empty())
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
            .map(|home| home.join("platfs")),
    };
    let size = match std::env::var("PLAT_CACHE_SIZE") {
        Ok(text) => crate::size::parse_size(&text)
            .map_err(|_| Error::Invalid(format!("PLAT_CACHE_SIZE={text}: no size")))?,
        Err(_) => CACHE_SIZE,
    };
    Ok(directory.map(|directory| Cache::new(directory, size)))
}

/// Opens a volume for reading, as it is now.
///
/// # Errors
/// As [`Stored::open`]; see [`store`].
pub fn open_read(name: &OsStr) -> Result<Arc<dyn Device>> {
    let address = address(name)?;
    let stored = Arc::new(Stored::open(&store(&address)?, address.volume()?)?);
    let device = Arc::clone(&stored) as Arc<dyn Device>;
    early(device, |ranges| stored.will_read(ranges));
    Ok(stored)
}

/// Has the structures fetched at once by which all else of a file system is found: one after the other each would be a
/// journey to the store.
pub fn early(device: Arc<dyn Device>, fetch: impl Fn(&[Range<u64>])) {
    // Threads that fetch leave signals to those who wait for them.
    let held = StopSignals::hold().ok();
    fetch(std::slice::from_ref(&(0..FRONT)));
    // A volume that can't be read says so where it is opened.
    if let Ok(ground) = Ground::open(device) {
        fetch(&used::tables(&ground, EARLY).unwrap_or_default());
        fetch(&used::directories(&ground, DIRECTORIES).unwrap_or_default());
    }
    held.into_iter().for_each(StopSignals::release);
}

/// Opens a volume for writing; others are kept off while the device lives.
///
/// # Errors
/// As [`Volume::open`]; see [`store`].
pub fn open_write(name: &OsStr) -> Result<Arc<dyn Device>> {
    let address = address(name)?;
    let take_over = std::env::var_os("PLAT_STORE_TAKEOVER").is_some_and(|set| set == "1");
    let volume = Arc::new(Volume::open(&store(&address)?, address.volume()?, &holder(), take_over)?);
    OPEN.with_borrow_mut(|open| open.push(Arc::clone(&volume)));
    let device = Arc::clone(&volume) as Arc<dyn Device>;
    early(device, |ranges| volume.will_read(ranges));
    Ok(volume)
}

thread_local! {
    /// Volumes that this command has opened for writing, until it ends.
    static OPEN: RefCell<Vec<Arc<Volume>>> = const { RefCell::new(Vec::new()) };
}

/// Closes the volumes that the command of this thread has opened for writing. Everything that was flushed is stable
/// without it; others know from it that the volumes are free.
///
/// # Errors
/// The first that failed.
pub fn close_all() -> Result<()> {
    let open = OPEN.with_borrow_mut(std::mem::take);
    let closed: Vec<Result<()>> = open.iter().map(|volume| volume.close()).collect();
    closed.into_iter().collect()
}

/// This program, for others to whom it is in the way.
#[must_use]
pub fn holder() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("plat on {host}")
}

/// Whether nobody has a volume open for writing.
///
/// # Errors
/// There is no such volume; the store's.
pub fn is_free(name: &OsStr) -> Result<bool> {
    let address = address(name)?;
    let (manifest, _) = store(&address)?.named(address.volume()?)?;
    Ok(!manifest.flags.open)
}
