//! Leases: pushes and clean-ups keep off each other, since one relies on objects that the other removes.
//!
//! | key | what |
//! | --- | --- |
//! | `lease/...` | somebody relies on objects that nothing refers to yet: nothing is removed |
//! | `gc/running` | a clean-up is under way, or how the last one ended: no lease begins beside one |
//! | `gc/condemned` | what nobody refers to, and since when |
//!
//! A push writes its lease and then looks for a clean-up; a clean-up writes its mark and then looks for leases. So at
//! least one of the two sees the other. Marks of programs that were lost are void after a time by the store's clock. Who
//! finds one void says so in the store. A lease names the volume that its program will write: before it is removed that
//! volume's manifest is renewed, or a trace made where none is, and the program can't write it any more. The mark of a
//! clean-up is replaced; that looks for it before each step.
//!
//! Excludes writers of volumes: they need no lease, since what they write has names of its own (see `renewal`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::address::checked_volume;
use crate::error::{Error, Result};
use crate::format::manifest::{Flags, Manifest};
use crate::format::{hex, unhex};
use crate::holder;
use crate::keys::{id_of, key_of_manifest};
use crate::marks::{first_epoch, now};
use crate::objects::{Listed, REPLACED_MAX, Version};
use crate::renewal::renew;
use crate::store::Store;

/// The mark of a clean-up.
const RUNNING: &str = "gc/running";
/// The list of what nobody refers to.
const CONDEMNED: &str = "gc/condemned";
/// Where leases are.
pub(crate) const LEASES: &str = "lease/";
/// A mark is void after this: its program is gone.
pub(crate) const VOID_AFTER: Duration = Duration::from_secs(24 * 3600);
/// Most bytes of a mark.
const MARK_MAX: u64 = 4096;
/// First words of the mark of a clean-up that has ended, and of one whose last requests may still be under way.
const ENDED: &str = "ended";
const ENDED_LATE: &str = "ended late";
/// Word in a lease before the volume that it is for.
const FOR: &str = " for ";
/// Most times that others come between.
const TRIES: usize = 64;
/// Removals, and time, after which a clean-up looks for its mark.
const LOOK_AFTER: u64 = 64;
const LOOK_TIME: Duration = Duration::from_secs(60);

/// Keeps clean-ups from removing anything, as long as it is there.
pub(crate) struct Lease {
    store: Arc<Store>,
    key: String,
    condemned: BTreeMap<String, u64>,
    ended: bool,
}

impl Lease {
    /// Takes one for the volume of that name; waits for the last requests of a clean-up that has ended. What stands at that
    /// name is known before, so that nobody who finds the lease void can be passed by.
    pub(crate) fn take(store: &Arc<Store>, name: &str) -> Result<Self> {
        loop {
            match Self::tried(store, name) {
                Err(Error::Busy { after, .. }) if store.at_once(2) > 1 => std::thread::sleep(after),
                done => return done,
            }
        }
    }

    fn tried(store: &Arc<Store>, name: &str) -> Result<Self> {
        let key = format!("{LEASES}{}", hex(&crate::random::bytes::<16>()));
        let mark = format!("{}{FOR}{name} ({})", hex(&crate::random::bytes::<16>()), holder::mark());
        store.objects().create(&key, mark.as_bytes())?;
        let mut lease = Lease { store: Arc::clone(store), key, condemned: BTreeMap::new(), ended: false };
        if let Some((text, version)) = running(store)?
            && !is_over(&text)
        {
            let refused = || Error::Refused("`store gc` is under way: try again when it has ended".into());
            let mark = store.objects().head(RUNNING)?.ok_or_else(refused)?;
            let now = now(store)?;
            let is_void = is_void(store, &mark, &text, now);
            match text.starts_with(ENDED) {
                true if is_void => {}
                true => {
                    let age = now.duration_since(mark.modified).unwrap_or_default();
                    let after = store.objects().lingers().saturating_sub(age).max(Duration::from_secs(1));
                    let why = "requests of the last `store gc` may still be under way".into();
                    return Err(Error::Busy { why, after });
                }
                false if is_void => drop(store.objects().replace(RUNNING, &ended(ENDED), &version)?),
                false => return Err(refused()),
            }
        }
        lease.condemned = condemned(store)?.0;
        Ok(lease)
    }

    /// True if a clean-up may remove an object though it is there now.
    pub(crate) fn is_condemned(&self, key: &str) -> bool {
        self.condemned.contains_key(key)
    }

    /// Writes a manifest that relies on it: only where that version is, or none.
    pub(crate) fn write(&self, new: &Manifest, old: Option<&Version>) -> Result<Version> {
        let key = key_of_manifest(&new.id);
        let done = match old {
            Some(version) => self.store.objects().replace(&key, &new.encode(), version),
            None => self.store.objects().create(&key, &new.encode()),
        };
        match done {
            Err(Error::Exists(_) | Error::Conflict(_)) if self.store.objects().head(&self.key)?.is_none() => {
                Err(Error::Refused(
                    "it took too long: what is there already may be removed; begin again, which goes on"
                        .into(),
                ))
            }
            done => done,
        }
    }

    /// Ends it.
    pub(crate) fn end(mut self) -> Result<()> {
        self.ended = true;
        self.store.objects().remove(&self.key)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.ended {
            // It is void after a day in any case.
            let _ = self.store.objects().remove(&self.key);
        }
    }
}

/// Removes leases that are void; whether there are others. Keys that are none are left alone.
pub(crate) fn is_leased(store: &Store, now: SystemTime) -> Result<bool> {
    let is_lease = |key: &str| key.strip_prefix(LEASES).and_then(unhex::<16>).is_some();
    let mut leases = Vec::new();
    store.objects().list(LEASES, &mut |lease| {
        leases.extend(is_lease(&lease.key).then_some(lease));
        Ok(())
    })?;
    let mut is_leased = false;
    for lease in leases {
        match store.objects().get(&lease.key, MARK_MAX) {
            Ok(mark) => {
                let text = String::from_utf8_lossy(&mark.bytes);
                if is_void(store, &lease, &text, now) {
                    fence(store, &text)?;
                    store.objects().remove(&lease.key)?;
                } else {
                    is_leased = true;
                }
            }
            Err(Error::Missing(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(is_leased)
}

/// Has the program of a lease not write the volume that this names, whatever it knows of it.
fn fence(store: &Store, text: &str) -> Result<()> {
    let name = text.split_once(FOR).and_then(|(_, rest)| rest.split_once(" (")).map(|(name, _)| name);
    // An earlier version's names none.
    let Some(name) = name else { return Ok(()) };
    checked_volume(name)?;
    for _ in 0..TRIES {
        let done = match store.manifest_or_trace(&id_of(name)) {
            Ok((manifest, version)) => renew(store, &manifest, &version).map(drop),
            Err(Error::Missing(key)) => store.objects().create(&key, &trace(name).encode()).map(drop),
            Err(error) => return Err(error),
        };
        match done {
            Err(Error::Conflict(_) | Error::Exists(_)) => {}
            done => return done,
        }
    }
    Err(Error::Conflict(name.to_owned()))
}

/// Returns the manifest that a removed volume leaves.
fn trace(name: &str) -> Manifest {
    Manifest {
        id: id_of(name),
        parent: [0; 16],
        name: name.to_owned(),
        holder: String::new(),
        flags: Flags { removed: true, ..Flags::default() },
        size: 0,
        created: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        epoch: first_epoch(),
        nonce: crate::random::number(),
        map: [0; 32],
        segments: Vec::new(),
    }
}

/// The mark of a clean-up under way.
pub(crate) struct Running {
    store: Arc<Store>,
    version: Version,
    begun: (Instant, SystemTime),
    /// Steps that relied on it, and when it was last looked at.
    steps: AtomicU64,
    looked: Mutex<SystemTime>,
    /// Requests of the one before may still be under way.
    is_late: bool,
    ended: bool,
}

impl Running {
    pub(crate) fn begin(store: &Arc<Store>, now: SystemTime) -> Result<Self> {
        let mut is_late = false;
        let version = match running(store)? {
            None => store.objects().create(RUNNING, &own()),
            Some((text, version)) => {
                let mark = store.objects().head(RUNNING)?;
                let is_void = mark.is_some_and(|mark| is_void(store, &mark, &text, now));
                if !text.starts_with(ENDED) && !is_void {
                    let why =
                        "another clean-up is under way, or was lost on another host less than a day ago";
                    return Err(Error::Refused(why.into()));
                }
                is_late = !is_over(&text) && !is_void;
                store.objects().replace(RUNNING, &own(), &version)
            }
        };
        let version = version.map_err(|error| match error {
            Error::Exists(_) | Error::Conflict(_) => Error::Refused("another clean-up has just begun".into()),
            error => error,
        })?;
        let wall = SystemTime::now();
        Ok(Running {
            store: Arc::clone(store),
            version,
            begun: (Instant::now(), wall),
            steps: AtomicU64::new(0),
            looked: Mutex::new(wall),
            is_late,
            ended: false,
        })
    }

    /// Checks that pushes still heed it, before each step that relies on that.
    pub(crate) fn is_good(&self) -> Result<()> {
        let took_long = || Error::Refused("it took too long; the next goes on".into());
        let wall = SystemTime::now();
        let since = |then: SystemTime| wall.duration_since(then).unwrap_or_else(|error| error.duration());
        // A host that sleeps stops the one clock, and whoever sets the other.
        if self.begun.0.elapsed().max(since(self.begun.1)) >= VOID_AFTER / 2 {
            return Err(took_long());
        }
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = self.steps.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_AFTER);
        if is_due || since(*looked) > LOOK_TIME {
            if running(&self.store)?.is_none_or(|(_, version)| version != self.version) {
                return Err(took_long());
            }
            *looked = wall;
        }
        Ok(())
    }

    /// Ends it.
    pub(crate) fn end(mut self) -> Result<()> {
        self.ended = true;
        self.store.objects().replace(RUNNING, &ended(self.word()), &self.version).map(drop)
    }

    /// Returns the word for its end. A removal may be carried out once more after it was answered: a program between may
    /// have asked twice.
    fn word(&self) -> &'static str {
        match self.is_late || self.steps.load(Ordering::Relaxed) > 0 {
            true => ENDED_LATE,
            false => ENDED,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            // It is void after a day in any case.
            let _ = self.store.objects().replace(RUNNING, &ended(self.word()), &self.version);
        }
    }
}

/// The mark of a clean-up.
fn running(store: &Store) -> Result<Option<(String, Version)>> {
    match store.objects().get(RUNNING, MARK_MAX) {
        Ok(mark) => Ok(Some((String::from_utf8_lossy(&mark.bytes).into_owned(), mark.version))),
        Err(Error::Missing(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the text for a mark of this process: no two are the same.
fn own() -> Vec<u8> {
    format!("{} ({})", hex(&crate::random::bytes::<16>()), holder::mark()).into_bytes()
}

/// Returns the text for the mark of a clean-up that has ended.
fn ended(word: &str) -> Vec<u8> {
    format!("{word} {}", hex(&crate::random::bytes::<16>())).into_bytes()
}

/// True if a clean-up has ended, and all that it asked for.
fn is_over(text: &str) -> bool {
    text.starts_with(ENDED) && !text.starts_with(ENDED_LATE)
}

/// True if a mark is void: it is old, it ended, or its process was one of this host and has ended.
fn is_void(store: &Store, mark: &Listed, text: &str, now: SystemTime) -> bool {
    let age = now.duration_since(mark.modified).unwrap_or_default();
    // What its process asked for last may still be under way.
    let may_linger = age < store.objects().lingers();
    age > VOID_AFTER || (!may_linger && (text.starts_with(ENDED) || holder::is_gone(text)))
}

/// Reads the condemned objects, each with the second since when, and the version of the list.
pub(crate) fn condemned(store: &Store) -> Result<(BTreeMap<String, u64>, Option<Version>)> {
    let object = match store.objects().get(CONDEMNED, REPLACED_MAX) {
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

/// Bytes that a key takes in the list, or more.
pub(crate) fn bytes_condemned(key: &str) -> u64 {
    // With all digits that a number of seconds may have.
    key.len() as u64 + 22
}

/// Writes down what is condemned.
pub(crate) fn condemn(
    store: &Store,
    waiting: &BTreeMap<String, u64>,
    version: Option<Version>,
) -> Result<()> {
    let lines: Vec<String> = waiting.iter().map(|(key, since)| format!("{since} {key}\n")).collect();
    let bytes = lines.concat().into_bytes();
    match version {
        Some(version) => store.objects().replace(CONDEMNED, &bytes, &version)?,
        None => store.objects().create(CONDEMNED, &bytes)?,
    };
    Ok(())
}

/// Seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
