//! Volumes of object stores in the place of images: `file:///srv/store#NAME`, `s3://bucket/prefix#NAME@SNAPSHOT`.
//!
//! Owns: which store and which cache an address means, by the command line and the environment. Excludes the store itself,
//! which is `platfs-store`'s.
//!
//! | variable | what |
//! | --- | --- |
//! | `PLAT_CACHE` | the directory of the cache; empty for none. Stores on this host have none unless it is set |
//! | `PLAT_CACHE_SIZE` | its most bytes, 8G if nothing is said |
//! | `PLAT_STORE_FLUSH` | `local`: a flush ends in a log on this host; `store`, or nothing: in the store |
//! | `PLAT_STORE_LOG` | the directory of the local logs, `platfs` in that of the user's state if nothing is said |
//! | `PLAT_STORE_LOG_SIZE` | most bytes of one, 1G if nothing is said |
//! | `PLAT_STORE_PATIENCE` | how long a store that does not answer is waited for: `300`, `90s`, `5m`, `1h`; `0`: not at all |
//! | `PLAT_STORE_TAKEOVER` | `1`: a volume that somebody has open for writing is taken over |

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use platfs::device::Device;
use platfs_forensics::{RawImage, used};
use platfs_host::{errno_of, path};
pub use platfs_store::Error;
use platfs_store::objects::Patience;
use platfs_store::{Address, Cache, LocalLog, Result, Store, Stored, Volume};

use crate::hearer::Hearer;
use crate::kept::Kept;
use crate::locks::locked;
use crate::process;

/// Bytes of the cache where nothing is said.
const CACHE_SIZE: u64 = 8 << 30;
/// Bytes of a local log where nothing is said.
const LOG_SIZE: u64 = 1 << 30;
/// Bytes that are fetched first when a volume is opened: the superblock, and what stands behind it.
const FRONT: u64 = 4 << 20;
/// Most bytes of tables that are fetched then, and of directories.
const EARLY: u64 = 16 << 20;
const DIRECTORIES: u64 = 8 << 20;

/// The number that Linux has for an error.
#[must_use]
pub fn errno(error: &Error) -> i32 {
    errno_of(&error.clone().into())
}

/// Returns true if a name is that of a store, or of a volume in one.
#[must_use]
pub fn is_meant(name: &OsStr) -> bool {
    platfs_store::is_address(name.as_bytes())
}

/// As much of a name as messages may have: of an address with credentials its scheme.
#[must_use]
pub fn public(name: &OsStr) -> &[u8] {
    let is_secret = is_meant(name)
        && name.to_str().is_none_or(|text| matches!(platfs_store::masked(text), Cow::Owned(_)));
    let end = name.as_bytes().iter().position(|byte| *byte == b'/').filter(|_| is_secret);
    name.as_bytes().get(..end.map_or(name.len(), |end| end + 2)).unwrap_or_default()
}

/// An address as the user gave it.
///
/// # Errors
/// It is none.
pub fn address(name: &OsStr) -> Result<Address> {
    let text = name.to_str().ok_or_else(|| Error::Invalid("an address of a store is UTF-8".into()))?;
    Address::parse(text)
}

/// Wishes of a program about a volume of a store, over what the environment says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreOptions {
    /// The directory of the cache, and its most bytes.
    pub cache: Option<(PathBuf, u64)>,
    /// A volume that somebody has open for writing is taken over.
    pub take_over: bool,
    /// Name under which others find the volume in use; `plat on HOST` if there is none.
    pub holder: Option<String>,
}

/// The store of an address.
///
/// # Errors
/// This build does not know such stores; a setting that can't be understood.
pub fn store(address: &Address) -> Result<Arc<Store>> {
    store_by(address, &StoreOptions::default())
}

fn store_by(address: &Address, options: &StoreOptions) -> Result<Arc<Store>> {
    if !address.is_local() {
        process::hide();
    }
    let objects = address.objects();
    let cache = match &options.cache {
        Some((directory, most)) => Some(Cache::new(directory.clone(), *most)),
        None => cache(address)?,
    };
    let patience = Patience { limit: patience()?, tell: Some(tell), ..Patience::default() };
    let store = Arc::new(Store::new(objects?, patience, cache).at(address.identity()));
    let mut known = locked(&STORES);
    known.retain(|other| other.strong_count() > 0);
    known.push(Arc::downgrade(&store));
    Ok(store)
}

/// The stores that this process has.
static STORES: Mutex<Vec<Weak<Store>>> = Mutex::new(Vec::new());

/// Waits no longer for any store of this process that does not answer, also not for those of other mounts in it.
pub fn give_up() {
    let known = locked(&STORES);
    known.iter().filter_map(Weak::upgrade).for_each(|store| store.give_up());
}

/// Files and directories that are reached for a volume of a store, and whether it is over the network.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reach {
    /// Files that are read, and directories with all below them.
    pub reads: Vec<PathBuf>,
    /// Directories in which files are made.
    pub writes: Vec<PathBuf>,
    /// Servers are asked.
    pub network: bool,
}

/// Everything that a volume of a store is reached through. Directories of this program that it needs are made.
#[must_use]
pub fn reached(name: &OsStr) -> Reach {
    let Ok(address) = address(name) else { return Reach::default() };
    let own = directory_of(&address);
    let cache = cache_directory(&address);
    let log = log_directory().filter(|log| path::is_there(log) || is_flushed_locally().unwrap_or(false));
    for directory in cache.iter().chain(&log) {
        // Where it can't be made, what needs it says so.
        let _ = platfs_host::Directory::open_or_make(directory);
    }
    let network = !address.is_local();
    let mut reads = if network { of_network() } else { Vec::new() };
    reads.extend(address.named_files());
    Reach { reads, writes: own.into_iter().chain(cache).chain(log).collect(), network }
}

/// The directory of a store on this host.
fn directory_of(address: &Address) -> Option<PathBuf> {
    address.identity().trim_start().strip_prefix("file://").map(PathBuf::from)
}

/// Makes the directory of a new store. This comes before the cage, in which no directory can be made beside others. If it
/// fails, opening the store says why.
pub fn begin(name: &OsStr) {
    if let Some(directory) = address(name).ok().as_ref().and_then(directory_of) {
        let _ = platfs_host::Directory::open_or_make(&directory);
    }
}

/// Files that tell names of hosts, certificates and credentials.
fn of_network() -> Vec<PathBuf> {
    const SYSTEM: [&str; 9] = [
        "/etc",
        "/run/systemd/resolve",
        "/run/resolvconf",
        "/usr/share/ca-certificates",
        "/usr/local/share/ca-certificates",
        "/usr/lib",
        "/usr/lib64",
        "/lib",
        "/lib64",
    ];
    const NAMED: [&str; 9] = [
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "AWS_CA_BUNDLE",
        "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "AZURE_FEDERATED_TOKEN_FILE",
    ];
    let named = NAMED.iter().filter_map(std::env::var_os).map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let own = home.iter().flat_map(|home| [".aws", ".azure", ".config/gcloud"].map(|name| home.join(name)));
    // Where the names of hosts are asked: often a link to what another program keeps.
    let resolver = path::whole("/etc/resolv.conf").ok();
    SYSTEM.iter().map(PathBuf::from).chain(named).chain(own).chain(resolver).collect()
}

/// How long a store that does not answer is waited for.
fn patience() -> Result<Duration> {
    if let Some(wish) = PATIENCE.get() {
        return Ok(*wish);
    }
    match std::env::var("PLAT_STORE_PATIENCE") {
        Ok(text) if !text.is_empty() => {
            let wrong =
                || Error::Invalid(format!("PLAT_STORE_PATIENCE={text}: no time, such as `90s` or `5m`"));
            time(&text).ok_or_else(wrong)
        }
        _ => Ok(Patience::default().limit),
    }
}

/// A time as it is written: seconds, or with `s`, `m`, `h` behind them; at most a year.
#[must_use]
pub fn time(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) => (number, text.get(number.len()..)),
        None => (text, Some("s")),
    };
    let unit = [("s", 1), ("m", 60), ("h", 3600)].into_iter().find(|(word, _)| Some(*word) == unit)?.1;
    let seconds = number.parse::<u64>().ok()?.checked_mul(unit)?;
    (seconds <= 366 * 86_400).then(|| Duration::from_secs(seconds))
}

/// Has stores be waited for so long, whatever the environment says.
pub fn wait_at_most(limit: Duration) {
    let _ = PATIENCE.set(limit);
}

static PATIENCE: OnceLock<Duration> = OnceLock::new();

static HEARER: Hearer = Hearer::none();

/// Has somebody hear of outages, on any thread, in the place of an earlier one.
pub fn tell_to(hear: impl Fn(&str) + Send + Sync + 'static) {
    HEARER.set(hear);
}

fn tell(text: &str) {
    HEARER.tell(text);
}

fn cache(address: &Address) -> Result<Option<Cache>> {
    let size = size("PLAT_CACHE_SIZE", CACHE_SIZE)?;
    Ok(cache_directory(address).map(|directory| Cache::new(directory, size)))
}

fn cache_directory(address: &Address) -> Option<PathBuf> {
    match std::env::var_os("PLAT_CACHE") {
        Some(set) if set.is_empty() => None,
        Some(set) => Some(PathBuf::from(set)),
        None if address.is_local() => None,
        None => own_directory("XDG_CACHE_HOME", ".cache"),
    }
}

/// The directory of this program in one of the user's: that of a variable, or else below the home.
fn own_directory(variable: &str, otherwise: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).filter(|directory| !directory.is_empty()).map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(otherwise));
    named.or_else(home).map(|directory| directory.join("platfs"))
}

/// The size that a variable names.
fn size(variable: &str, otherwise: u64) -> Result<u64> {
    match std::env::var(variable) {
        Ok(text) => platfs_image::size::parse_size(&text)
            .map_err(|_| Error::Invalid(format!("{variable}={text}: no size"))),
        Err(_) => Ok(otherwise),
    }
}

/// Has flushes end in a log on this host, or in the store, whatever the environment says.
pub fn flush_locally(is_local: bool) {
    let _ = WISH.set(is_local);
}

static WISH: OnceLock<bool> = OnceLock::new();

/// Returns true if flushes end in a log on this host.
fn is_flushed_locally() -> Result<bool> {
    if let Some(wish) = WISH.get() {
        return Ok(*wish);
    }
    match std::env::var("PLAT_STORE_FLUSH").as_deref() {
        Ok("local") => Ok(true),
        Ok("store" | "") | Err(std::env::VarError::NotPresent) => Ok(false),
        _ => Err(Error::Invalid("PLAT_STORE_FLUSH is `store` or `local`".into())),
    }
}

/// The log of a volume on this host, if there is a place for it.
fn local_log(address: &Address) -> Result<Option<LocalLog>> {
    let name = platfs_store::id_of(&format!("{}#{}", address.identity(), address.volume()?));
    let name = platfs_store::format::hex(&name);
    let most = size("PLAT_STORE_LOG_SIZE", LOG_SIZE)?;
    Ok(log_directory().map(|directory| LocalLog::new(directory.join(name), most)))
}

/// The directory of all local logs.
fn log_directory() -> Option<PathBuf> {
    let directory = match std::env::var_os("PLAT_STORE_LOG") {
        Some(set) if !set.is_empty() => Some(PathBuf::from(set)),
        _ => own_directory("XDG_STATE_HOME", ".local/state"),
    };
    // It is used after a mount has left its working directory.
    directory.and_then(|directory| std::path::absolute(directory).ok())
}

/// Opens a volume for reading, as it is now.
///
/// # Errors
/// As [`Stored::open`]; see [`store`].
pub fn open_stored(name: &OsStr) -> Result<Arc<Stored>> {
    stored(name, &StoreOptions::default())
}

fn stored(name: &OsStr, options: &StoreOptions) -> Result<Arc<Stored>> {
    let address = address(name)?;
    Ok(Arc::new(Stored::open(&store_by(&address, options)?, address.volume()?)?))
}

/// Opens a volume for reading, with what is read first of a file system.
///
/// # Errors
/// As [`open_stored`].
pub fn open_read(name: &OsStr) -> Result<Arc<dyn Device>> {
    open_read_by(name, &StoreOptions::default())
}

/// Opens a volume as [`open_read`] does, with wishes of a program.
///
/// # Errors
/// As [`open_stored`].
pub fn open_read_by(name: &OsStr, options: &StoreOptions) -> Result<Arc<dyn Device>> {
    let stored = stored(name, options)?;
    let device = Arc::clone(&stored) as Arc<dyn Device>;
    early(device, |ranges| stored.will_read(ranges));
    Ok(stored)
}

/// Has the structures fetched at once by which all else of a file system is found: one after the other each would be a
/// journey to the store.
pub fn early(device: Arc<dyn Device>, fetch: impl Fn(&[Range<u64>])) {
    fetch(std::slice::from_ref(&(0..FRONT)));
    // A volume that can't be read says so where it is opened.
    if let Ok(ground) = RawImage::open(device) {
        fetch(&used::tables(&ground, EARLY).unwrap_or_default());
        fetch(&used::directories(&ground, DIRECTORIES).unwrap_or_default());
    }
}

/// Opens a volume for writing; others are kept off while the device lives.
///
/// # Errors
/// As [`Volume::open`]; see [`store`].
pub fn open_write(name: &OsStr) -> Result<Arc<dyn Device>> {
    let volume = written(&address(name)?, &StoreOptions::default()).map(Arc::new)?;
    OPEN.with_borrow_mut(|open| open.push(Arc::clone(&volume)));
    early(Arc::clone(&volume) as Arc<dyn Device>, |ranges| volume.will_read(ranges));
    Ok(volume)
}

/// Opens a volume for writing, with wishes of a program; it is closed when the device is dropped.
///
/// # Errors
/// As [`open_write`].
pub fn open_write_by(name: &OsStr, options: &StoreOptions) -> Result<Arc<dyn Device>> {
    let volume = Arc::new(written(&address(name)?, options)?);
    early(Arc::clone(&volume) as Arc<dyn Device>, |ranges| volume.will_read(ranges));
    Ok(closing(volume))
}

/// Makes a volume of zeros, and opens it as [`open_write_by`] does.
///
/// # Errors
/// There is one of that name; the store's.
pub fn create_by(name: &OsStr, bytes: u64, options: &StoreOptions) -> Result<Arc<dyn Device>> {
    let address = address(name)?;
    let store = store_by(&address, options)?;
    let holder = options.holder.clone().unwrap_or_else(holder);
    Ok(closing(Arc::new(Volume::create(&store, address.volume()?, bytes, &holder)?)))
}

fn closing(volume: Arc<Volume>) -> Arc<dyn Device> {
    Arc::new(Kept::new(Arc::clone(&volume) as Arc<dyn Device>, Written(Some(volume))))
}

fn written(address: &Address, options: &StoreOptions) -> Result<Volume> {
    let by_environment = std::env::var_os("PLAT_STORE_TAKEOVER").is_some_and(|set| set == "1");
    let take_over = options.take_over || by_environment;
    let holder = options.holder.clone().unwrap_or_else(holder);
    let (store, name) = (store_by(address, options)?, address.volume()?);
    let log = local_log(address)?;
    let open_local = |log: &LocalLog| {
        let volume = Volume::open_local(&store, name, (&holder, take_over), log)?;
        NOTES.with_borrow_mut(|notes| notes.extend_from_slice(volume.notes()));
        Ok(volume)
    };
    if is_flushed_locally()? {
        let log = log.ok_or_else(|| Error::Invalid("PLAT_STORE_LOG names no directory for a log".into()))?;
        return open_local(&log);
    }
    if let Some(log) = log.filter(LocalLog::is_used) {
        // What an earlier opening left there goes first.
        open_local(&log)?.close()?;
    }
    Volume::open(&store, name, &holder, take_over)
}

/// Takes the notes on volumes that were opened.
#[must_use]
pub fn notes() -> Vec<String> {
    NOTES.with_borrow_mut(std::mem::take)
}

thread_local! {
    /// Notes for the user.
    static NOTES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    /// Volumes that this thread has opened for writing.
    static OPEN: RefCell<Vec<Arc<Volume>>> = const { RefCell::new(Vec::new()) };
}

/// A volume of a store that is open for writing; closed when this is dropped, at the latest.
#[derive(Default)]
pub struct Written(Option<Arc<Volume>>);

impl Written {
    /// Closes it: others know then that it is free.
    ///
    /// # Errors
    /// The store's.
    pub fn close(mut self) -> Result<()> {
        self.0.take().map_or(Ok(()), |volume| volume.close())
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        // What was flushed is stable without it. Others find the volume in use until its holder has ended.
        let _ = self.0.take().map(|volume| volume.close());
    }
}

/// Takes the volume that this thread opened last, so that [`close_all`] leaves it alone.
#[must_use]
pub fn take_last() -> Written {
    Written(OPEN.with_borrow_mut(Vec::pop))
}

/// Closes the volumes that this thread has opened for writing and nobody took ([`take_last`]). Everything that was flushed is
/// stable without it; others know from it that the volumes are free.
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

/// Returns true if nobody has a volume open for writing.
///
/// # Errors
/// There is no such volume; the store's.
pub fn is_free(name: &OsStr) -> Result<bool> {
    let address = address(name)?;
    let (manifest, _) = store(&address)?.named(address.volume()?)?;
    Ok(!manifest.flags.open)
}
