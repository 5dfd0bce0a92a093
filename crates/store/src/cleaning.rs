//! Takes out of a store what no volume refers to.
//!
//! An object goes in two steps. First it is condemned: written down with the time when nobody referred to it. Later, at
//! least a grace time after that, it is removed if still nobody does. So a reader that opened a volume before it was
//! replaced has that long to end. Nobody else relies on the time:
//!
//! - A push relies on what is there already. None is under way while something is removed (see `leases`).
//! - A writer of a volume names only objects that it wrote itself, with names that nobody gives twice, and what its manifest
//!   names already. A clean-up renews the manifests of open volumes before it marks anything. What a writer had written
//!   until then it can't name any more (see `renewal`), and what it writes later is not condemned: it may come into use,
//!   and readers have their time from when it is out of use again.
//! - A fork is a claim first, which refers to what it will name and is no volume. It is made one if the volume that it is
//!   made of has still not changed when the claim is there. So what it names was referred to until there was another that
//!   did: a clean-up that has not seen it condemns at most, and the next sees it (see `census`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::census::Census;
use crate::error::{Error, Result};
use crate::keys::KeyKind;
use crate::leases::{Running, bytes_condemned, condemn, condemned, is_leased, seconds};
use crate::marks;
use crate::objects::{Listed, REPLACED_MAX};
use crate::store::Store;
use crate::survey::{PREFIXES, REQUESTS, is_used};
use crate::together::together;

/// Keys of other programs that are named.
const STRANGE: usize = 16;

/// Result of a clean-up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cleaned {
    /// Objects that were removed.
    pub removed: u64,
    /// Their bytes.
    pub removed_bytes: u64,
    /// Objects that are condemned, and wait for their time.
    pub waiting: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// Objects that are none of this format: they stay.
    pub strange: u64,
    /// Keys of the first of them.
    pub strange_keys: Vec<String>,
}

impl Cleaned {
    fn wait(&mut self, listed: &Listed) {
        self.waiting += 1;
        self.waiting_bytes += listed.size;
    }
}

/// Removes what nobody has referred to for `grace`, and condemns what nobody refers to now. With `dry` nothing is
/// removed or written.
///
/// # Errors
/// Another clean-up or a push is under way; damage, since what a volume refers to is not known then; the store's.
pub fn clean(store: &Arc<Store>, grace: Duration, dry: bool) -> Result<Cleaned> {
    if !marks::is_made(store)? {
        return Err(Error::Refused(
            "it has no mark `store`: nothing was pushed there, or it is another place".into(),
        ));
    }
    if dry {
        // Nothing is written, not even to ask for the store's time.
        let census = Census::take(store, None)?;
        let now = SystemTime::now();
        return Ok(Sweep::sort(
            store,
            &census,
            &condemned(store)?.0,
            Times { begun: now, marked: now, grace },
        )?
        .cleaned);
    }
    let now = marks::now(store)?;
    let running = Running::begin(store, now)?;
    if is_leased(store, now)? {
        return Err(Error::Refused("a push is under way: clean up when it has ended".into()));
    }
    // Read before anything is marked: who condemned last is known.
    let (old, version) = condemned(store)?;
    let census = Census::take(store, Some(now))?;
    // What nobody refers to now may have been in use until a moment ago.
    let times = Times { begun: now, marked: marks::now(store)?, grace };
    let sweep = Sweep::sort(store, &census, &old, times)?;
    census.write_down(store)?;
    let remove = |key: &String, (): &mut ()| {
        running.is_good()?;
        store.objects().remove(key)
    };
    together(&sweep.due, store.at_once(REQUESTS), remove)?;
    condemn(store, &sweep.waiting, version)?;
    running.end()?;
    Ok(sweep.cleaned)
}

/// Objects that are there and not in use.
#[derive(Default)]
struct Sweep {
    cleaned: Cleaned,
    /// Keys, each with the second since when it is condemned.
    waiting: BTreeMap<String, u64>,
    due: Vec<String>,
    /// Bytes of the list that are left for keys that were not in it.
    room: u64,
}

/// Times that decide what becomes of an object that nobody refers to.
#[derive(Clone, Copy)]
struct Times {
    /// The clean-up began.
    begun: SystemTime,
    /// All that is referred to was marked.
    marked: SystemTime,
    /// Time that an object is condemned before it is removed.
    grace: Duration,
}

impl Sweep {
    /// Sorts what is listed: by the times when the clean-up began, and when all was marked.
    fn sort(store: &Store, census: &Census, old: &BTreeMap<String, u64>, times: Times) -> Result<Self> {
        let taken: u64 = old.keys().map(|key| bytes_condemned(key)).sum();
        let mut sweep = Sweep { room: REPLACED_MAX.saturating_sub(taken), ..Sweep::default() };
        for prefix in PREFIXES {
            store.objects().list(prefix, &mut |listed| {
                if KeyKind::parse(&listed.key).is_none() {
                    sweep.strange(listed);
                } else if !is_used(&census.marked, &listed) {
                    // One that was written again since then has a new time.
                    let is_old = |since: u64| seconds(listed.modified) < since;
                    let since = old.get(&listed.key);
                    let since =
                        since.map(|since| if is_old(*since) { *since } else { seconds(times.marked) });
                    if listed.modified >= times.begun {
                        sweep.cleaned.wait(&listed);
                    } else {
                        sweep.unused(listed, since, times);
                    }
                }
                Ok(())
            })?;
        }
        Ok(sweep)
    }

    fn strange(&mut self, listed: Listed) {
        self.cleaned.strange += 1;
        if self.cleaned.strange_keys.len() < STRANGE {
            self.cleaned.strange_keys.push(listed.key);
        }
    }

    fn unused(&mut self, listed: Listed, since: Option<u64>, times: Times) {
        let is_due = |since: u64| seconds(times.begun).saturating_sub(since) >= times.grace.as_secs();
        if since.is_some_and(is_due) {
            self.cleaned.removed += 1;
            self.cleaned.removed_bytes += listed.size;
            self.due.push(listed.key);
        } else {
            self.cleaned.wait(&listed);
            let bytes = if since.is_none() { bytes_condemned(&listed.key) } else { 0 };
            // What the list has no room for is condemned by a later clean-up.
            if let Some(room) = self.room.checked_sub(bytes) {
                self.room = room;
                self.waiting.insert(listed.key, since.unwrap_or(seconds(times.marked)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{Memory, Objects, Patience};

    #[test]
    fn no_more_is_condemned_than_the_list_has_room_for() {
        let listed = |key: &str| Listed { key: key.to_owned(), size: 10, modified: SystemTime::UNIX_EPOCH };
        let mut sweep = Sweep { room: 60, ..Sweep::default() };
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let times = Times { begun: at(100), marked: at(200), grace: Duration::from_secs(60) };
        for (key, since) in [("chunk/a", None), ("chunk/b", None), ("chunk/c", None), ("chunk/d", Some(50))] {
            sweep.unused(listed(key), since, times);
        }
        let waiting: Vec<_> = sweep.waiting.iter().map(|(key, since)| (&key[6..], *since)).collect();
        assert_eq!(waiting, [("a", 200), ("b", 200), ("d", 50)]);
        assert_eq!((sweep.cleaned.waiting, sweep.cleaned.waiting_bytes, sweep.room), (4, 40, 2));
        // The longest list there can be is read again.
        let store = Store::new(Arc::new(Memory::new()) as Arc<dyn Objects>, Patience::default(), None);
        let (key, since) = ("k".repeat(100), u64::MAX);
        condemn(&store, &BTreeMap::from([(key.clone(), since)]), None).unwrap();
        let bytes = store.objects().get("gc/condemned", 1000).unwrap().bytes;
        assert_eq!(
            (bytes.len() as u64, &condemned(&store).unwrap().0[&key]),
            (bytes_condemned(&key), &since)
        );
    }
}
