//! Marks in a store that are about the store itself: that it can be written safely, and who relies on what may be removed.
//!
//! | key | what |
//! | --- | --- |
//! | `store` | the store was tried out, and has this format |
//! | `lease/...` | a push is under way: nothing is removed |
//! | `gc/running` | a clean-up is under way: no push begins |
//! | `gc/condemned` | what nobody refers to, and since when |
//!
//! A push writes its lease and then looks for a clean-up; a clean-up writes its mark and then looks for leases. So at
//! least one of the two sees the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use crate::format::hex;
use crate::holder;
use crate::objects::Listed;
use crate::store::Store;

/// The mark of a store of this format.
const STORE: &str = "store";
const STORE_BYTES: &[u8] = b"platfs store, format 1\n";
/// The mark of a clean-up.
pub(crate) const RUNNING: &str = "gc/running";
/// The list of what nobody refers to.
pub(crate) const CONDEMNED: &str = "gc/condemned";
/// Where leases are.
pub(crate) const LEASES: &str = "lease/";
/// A mark is void after this: its program is gone.
pub const VOID_AFTER: Duration = Duration::from_secs(24 * 3600);
/// Most bytes of the list.
pub(crate) const CONDEMNED_MAX: u64 = 256 << 20;
/// Most bytes of a mark.
const MARK_MAX: u64 = 4096;
/// Races of the trial, and programs in each.
const RACES: usize = 8;
const RACERS: usize = 4;

/// Tries a store out when it is first used for writing: of several that create or replace an object at the same time one
/// must win.
///
/// # Errors
/// A store where two can win; another format; the store's.
pub fn ready(store: &Arc<Store>) -> Result<()> {
    if is_made(store)? {
        return Ok(());
    }
    (0..RACES).try_for_each(|_| race(store))?;
    store.objects().put(STORE, STORE_BYTES)
}

/// Whether anything was ever written there by this format's programs.
///
/// # Errors
/// Another format; the store's.
pub fn is_made(store: &Store) -> Result<bool> {
    match store.objects().get(STORE, 1024) {
        Ok(mark) if mark.bytes == STORE_BYTES => Ok(true),
        Ok(_) => Err(Error::damaged(STORE, "is of a format that this version does not know")),
        Err(Error::Missing(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// One race for a new object, and one for its replacement.
fn race(store: &Arc<Store>) -> Result<()> {
    let key = format!("probe/{:016x}", crate::random::number());
    let created = raced(|bytes| store.objects().create(&key, bytes).map(drop))?;
    let result = judged(created, "create").and_then(|()| {
        let version = store.objects().get(&key, 1024)?.version;
        judged(raced(|bytes| store.objects().replace(&key, bytes, &version).map(drop))?, "replace")
    });
    store.objects().remove(&key)?;
    result
}

/// How many of those who write at the same time believe that they did.
fn raced(write: impl Fn(&[u8]) -> Result<()> + Sync) -> Result<usize> {
    let start = std::sync::Barrier::new(RACERS);
    let one = || {
        let bytes: [u8; 16] = crate::random::bytes();
        start.wait();
        write(&bytes)
    };
    let outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..RACERS).map(|_| scope.spawn(one)).collect();
        let lost = || Error::Unavailable("a thread of the trial ended".into());
        racers.into_iter().map(|racer| racer.join().unwrap_or_else(|_| Err(lost()))).collect()
    });
    let mut winners = 0;
    for outcome in outcomes {
        match outcome {
            Ok(()) => winners += 1,
            Err(Error::Exists(_) | Error::Conflict(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(winners)
}

fn judged(winners: usize, what: &str) -> Result<()> {
    match winners {
        1 => Ok(()),
        _ => Err(Error::Refused(format!(
            "it can't be written safely: {winners} of {RACERS} that {what} one object at the same time believe that they \
             did; volumes need a store with conditional writes"
        ))),
    }
}

/// The first epoch of a new volume: none of an earlier volume of that name comes near it.
pub(crate) fn first_epoch() -> u64 {
    crate::random::number() >> 2
}

/// Keeps clean-ups from removing anything, as long as it is there.
pub(crate) struct Lease {
    store: Arc<Store>,
    key: String,
    begun: Instant,
    condemned: BTreeMap<String, u64>,
}

impl Lease {
    /// Takes one.
    pub(crate) fn take(store: &Arc<Store>) -> Result<Self> {
        let key = format!("{LEASES}{}", hex(&crate::random::bytes::<16>()));
        store.objects().create(&key, &own())?;
        let mut lease =
            Lease { store: Arc::clone(store), key, begun: Instant::now(), condemned: BTreeMap::new() };
        if let Some(mark) = store.objects().head(RUNNING)?
            && !is_void(store, &mark, now(store)?)?
        {
            return Err(Error::Refused("`store gc` is under way: try again when it has ended".into()));
        }
        lease.condemned = condemned(store)?.0;
        Ok(lease)
    }

    /// Whether a clean-up may remove an object though it is there now.
    pub(crate) fn is_condemned(&self, key: &str) -> bool {
        self.condemned.contains_key(key)
    }

    /// Whether clean-ups still heed it.
    pub(crate) fn is_good(&self) -> Result<()> {
        if self.begun.elapsed() < VOID_AFTER / 2 {
            return Ok(());
        }
        Err(Error::Refused(
            "it took too long: what is there already may be removed; push again, which goes on".into(),
        ))
    }

    /// Ends it.
    pub(crate) fn end(self) -> Result<()> {
        self.store.objects().remove(&self.key)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Whatever happens here, it is void after a day.
        let _ = self.store.objects().remove(&self.key);
    }
}

/// What stands in a mark of this process: no two are the same.
pub(crate) fn own() -> Vec<u8> {
    format!("{} ({})", hex(&crate::random::bytes::<16>()), holder::mark()).into_bytes()
}

/// Whether a mark is void: it is old, or its process was one of this host and has ended.
pub(crate) fn is_void(store: &Store, mark: &Listed, now: SystemTime) -> Result<bool> {
    let age = now.duration_since(mark.modified).unwrap_or_default();
    if age > VOID_AFTER {
        return Ok(true);
    }
    // What the process asked for last may still be under way.
    if age < store.objects().lingers() {
        return Ok(false);
    }
    match store.objects().get(&mark.key, MARK_MAX) {
        Ok(object) => Ok(holder::is_gone(&String::from_utf8_lossy(&object.bytes))),
        Err(Error::Missing(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

/// The time by the store's own clock: those of hosts differ.
pub(crate) fn now(store: &Store) -> Result<SystemTime> {
    let key = format!("probe/{:016x}", crate::random::number());
    store.objects().put(&key, b"now")?;
    let found = store.objects().head(&key)?;
    store.objects().remove(&key)?;
    Ok(found.map_or_else(SystemTime::now, |found| found.modified))
}

/// What is condemned, each with the second since when, and the version of the list.
pub(crate) fn condemned(store: &Store) -> Result<(BTreeMap<String, u64>, Option<crate::objects::Version>)> {
    let object = match store.objects().get(CONDEMNED, CONDEMNED_MAX) {
        Err(Error::Missing(_)) => return Ok((BTreeMap::new(), None)),
        object => object?,
    };
    let text = String::from_utf8_lossy(&object.bytes);
    let entry = |line: &str| {
        let (since, key) = line.split_once(' ')?;
        Some((key.to_owned(), since.parse().ok()?))
    };
    let found: Option<BTreeMap<_, _>> = text.lines().map(entry).collect();
    let damaged = || Error::damaged(CONDEMNED, "a line is no time and key");
    Ok((found.ok_or_else(damaged)?, Some(object.version)))
}

/// Seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
