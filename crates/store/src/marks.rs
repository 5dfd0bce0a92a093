//! Marks in a store that are about the store itself: that it can be written safely, and what time it has.
//!
//! Excludes marks of those who rely on what may be removed: see `leases`.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use crate::error::{Error, Result};
use crate::format::hex;
use crate::store::Store;

/// The mark of a store of this format.
const STORE: &str = "store";
const STORE_BYTES: &[u8] = b"platfs store, format 1\n";
/// Where the marks are of trials, each named by the place where it was made: a copy elsewhere is tried out again.
const TRIED: &str = "tried/";
/// Races of the trial, and programs in each.
const RACES: usize = 8;
const RACERS: usize = 4;

/// Tries a store out when it is first used for writing where it is: of several that create or replace an object at the same time one
/// must win.
///
/// # Errors
/// A store where two can win; another format; the store's.
pub fn ready(store: &Arc<Store>) -> Result<()> {
    let tried = format!(
        "{TRIED}{}",
        hex(blake3::hash(store.identity().as_bytes()).as_bytes().get(..16).unwrap_or_default())
    );
    if is_marked(store, &tried)? {
        return Ok(());
    }
    let is_made = is_made(store)?;
    (0..RACES).try_for_each(|_| race(store))?;
    store.objects().put(&tried, STORE_BYTES)?;
    if is_made { Ok(()) } else { store.objects().put(STORE, STORE_BYTES) }
}

/// Returns true if anything was ever written there by this format's programs.
///
/// # Errors
/// Another format; the store's.
pub fn is_made(store: &Store) -> Result<bool> {
    is_marked(store, STORE)
}

fn is_marked(store: &Store, key: &str) -> Result<bool> {
    match store.objects().get(key, 1024) {
        Ok(mark) if mark.bytes == STORE_BYTES => Ok(true),
        Ok(_) => Err(Error::damaged(key, "is of a format that this version does not know")),
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

/// Number of simultaneous writers that believe they have written.
fn raced(write: impl Fn(&[u8]) -> Result<()> + Sync) -> Result<usize> {
    let lost = || Error::Unavailable("a thread of the trial ended".into());
    // Closed until all threads are there. If one can't be made it stays closed, and the others write nothing.
    let gate = RwLock::new(false);
    let one = || {
        let bytes: [u8; 16] = crate::random::bytes();
        let is_open = *gate.read().unwrap_or_else(PoisonError::into_inner);
        if is_open { write(&bytes) } else { Err(lost()) }
    };
    let outcomes = std::thread::scope(|scope| {
        let mut is_open = gate.write().unwrap_or_else(PoisonError::into_inner);
        let begin = |_| std::thread::Builder::new().spawn_scoped(scope, one);
        let racers = (0..RACERS).map(begin).collect::<io::Result<Vec<_>>>();
        *is_open = racers.is_ok();
        drop(is_open);
        let racers = racers.map_err(|why| Error::host("starting a thread", &why))?;
        let ended = racers.into_iter().map(|racer| racer.join().unwrap_or_else(|_| Err(lost())));
        Ok::<_, Error>(ended.collect::<Vec<Result<()>>>())
    })?;
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

/// The time by the store's own clock: those of hosts differ.
pub(crate) fn now(store: &Store) -> Result<SystemTime> {
    let key = format!("probe/{:016x}", crate::random::number());
    store.objects().put(&key, b"now")?;
    let found = store.objects().head(&key)?;
    store.objects().remove(&key)?;
    Ok(found.map_or_else(SystemTime::now, |found| found.modified))
}

#[cfg(test)]
mod tests {
    use testkit::again;

    use super::*;
    use crate::together::together;

    const LIMITED: &str = "PLATFS_HAS_ROOM_FOR_TWO_THREADS";

    /// Works without room for the threads that it wants, if the test below says so.
    #[test]
    fn worker() {
        if std::env::var_os(LIMITED).is_none() {
            return;
        }
        // A thread has two MiB for its calls.
        again::leave_memory(5 << 20);
        assert!(matches!(raced(|_| Ok(())), Err(Error::Host { .. })));
        let sum = |one: &u64, sum: &mut u64| {
            *sum += one;
            Ok(())
        };
        let sums = together(&(0..1000).collect::<Vec<u64>>(), 16, sum).unwrap();
        assert!(sums.len() < 16 && sums.iter().sum::<u64>() == 499_500);
        std::process::exit(77);
    }

    /// Threads that were there once waited for ever for those that could not be made.
    #[test]
    fn who_gets_fewer_threads_than_it_wants_comes_to_its_end() {
        let status = again::ended(&mut again::test("marks::tests::worker", LIMITED, "1"));
        assert_eq!(status.code(), Some(77));
    }
}
