//! Takes out of a store what no volume refers to.
//!
//! An object goes in two steps. First it is condemned: written down with the time when nobody referred to it. Later, at
//! least a grace time after that, it is removed if still nobody does. So a reader that opened a volume before it was
//! replaced has that long to end, and so has a writer that is about to write a manifest. A push relies on what is there
//! already, and may be older than any grace: none is under way while something is removed (see `marks`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};
use crate::marks::{self, CONDEMNED, LEASES, RUNNING, seconds};
use crate::objects::Version;
use crate::store::Store;
use crate::survey::{Marked, PREFIXES, is_used, mark, volumes};

/// What a clean-up did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cleaned {
    /// Objects that were removed.
    pub removed: u64,
    /// Their bytes.
    pub removed_bytes: u64,
    /// Objects that are condemned, and wait for their time.
    pub waiting: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
}

/// Removes what nobody has referred to for `grace`, and condemns what nobody refers to now. With `dry` nothing is
/// removed or written.
///
/// # Errors
/// Another clean-up or a push is under way; damage, since what a volume refers to is not known then; the store's.
pub fn clean(store: &Arc<Store>, grace: Duration, dry: bool) -> Result<Cleaned> {
    if dry {
        let now = marks::now(store)?;
        return swept(store, (now, grace), None);
    }
    marks::ready(store)?;
    let now = marks::now(store)?;
    let mark = Running::begin(store, now)?;
    let busy = std::cell::Cell::new(None);
    store.objects().list(LEASES, &mut |lease| {
        if !marks::is_void(store, &lease, now)? {
            busy.set(Some(()));
            return Ok(());
        }
        store.objects().remove(&lease.key)
    })?;
    if busy.get().is_some() {
        return Err(Error::Refused("a push is under way: clean up when it has ended".into()));
    }
    let done = swept(store, (now, grace), Some(&mark))?;
    mark.end()?;
    Ok(done)
}

fn swept(
    store: &Arc<Store>,
    (now, grace): (SystemTime, Duration),
    mark_of: Option<&Running>,
) -> Result<Cleaned> {
    let mut marked = Marked::default();
    // Read before anything is marked: who condemned last is known.
    let (old, version) = marks::condemned(store)?;
    for manifest in volumes(store, false)? {
        mark(store, &manifest, &mut marked)?;
    }
    let mut cleaned = Cleaned::default();
    let mut waiting: BTreeMap<String, u64> = BTreeMap::new();
    let mut due = Vec::new();
    for prefix in PREFIXES {
        store.objects().list(prefix, &mut |listed| {
            if is_used(&marked, &listed) {
                return Ok(());
            }
            // One that was written again since then has a new time.
            let since = old.get(&listed.key).filter(|since| seconds(listed.modified) < **since);
            let since = since.copied().unwrap_or(seconds(now));
            if old.contains_key(&listed.key) && seconds(now).saturating_sub(since) >= grace.as_secs() {
                cleaned.removed += 1;
                cleaned.removed_bytes += listed.size;
                due.push(listed.key);
            } else {
                cleaned.waiting += 1;
                cleaned.waiting_bytes += listed.size;
                waiting.insert(listed.key, since);
            }
            Ok(())
        })?;
    }
    let Some(running) = mark_of else { return Ok(cleaned) };
    for key in due {
        running.is_good()?;
        store.objects().remove(&key)?;
    }
    write_down(store, &waiting, version)?;
    Ok(cleaned)
}

fn write_down(store: &Store, waiting: &BTreeMap<String, u64>, version: Option<Version>) -> Result<()> {
    let lines: Vec<String> = waiting.iter().map(|(key, since)| format!("{since} {key}\n")).collect();
    let bytes = lines.concat().into_bytes();
    match version {
        Some(version) => store.objects().replace(CONDEMNED, &bytes, &version)?,
        None => store.objects().create(CONDEMNED, &bytes)?,
    };
    Ok(())
}

/// The mark of a clean-up under way.
struct Running {
    store: Arc<Store>,
    begun: std::time::Instant,
    ended: bool,
}

impl Running {
    fn begin(store: &Arc<Store>, now: SystemTime) -> Result<Self> {
        let bytes = marks::own();
        match store.objects().create(RUNNING, &bytes) {
            Ok(_) => {}
            Err(Error::Exists(_)) => {
                // Whose mark is replaced is the one that was judged.
                let version = match store.objects().get(RUNNING, 4096) {
                    Err(Error::Missing(_)) => {
                        return Err(Error::Refused("another clean-up has just ended".into()));
                    }
                    mark => mark?.version,
                };
                if let Some(old) = store.objects().head(RUNNING)?
                    && !marks::is_void(store, &old, now)?
                {
                    let why =
                        "another clean-up is under way, or was lost on another host less than a day ago";
                    return Err(Error::Refused(why.into()));
                }
                store.objects().replace(RUNNING, &bytes, &version)?;
            }
            Err(error) => return Err(error),
        }
        Ok(Running { store: Arc::clone(store), begun: std::time::Instant::now(), ended: false })
    }

    /// Whether pushes still heed it.
    fn is_good(&self) -> Result<()> {
        if self.begun.elapsed() < marks::VOID_AFTER / 2 {
            return Ok(());
        }
        Err(Error::Refused("it took too long; the next goes on".into()))
    }

    fn end(mut self) -> Result<()> {
        self.ended = true;
        self.store.objects().remove(RUNNING)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            // It is void after a day in any case.
            let _ = self.store.objects().remove(RUNNING);
        }
    }
}
