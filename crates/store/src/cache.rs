//! A bounded directory of what came from stores, shared by the processes of a user.
//!
//! Owns: names of entries, and which go when there are too many bytes. Excludes whether an entry is right: the code that reads
//! one verifies it by its hash, so that a damaged or hostile entry is as good as none. A full disk or a directory that
//! can't be written makes it useless, and nothing fails.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use platfs_host::{Directory, Kind};
use rustix::fs::{FlockOperation, flock};

/// An entry that was read is marked as used if it was not in this time.
const MARK_AFTER: Duration = Duration::from_secs(60);
/// Longest wait for an entry that another process fetches; then it is fetched twice.
const WAIT: Duration = Duration::from_secs(10);
/// Where the files are that processes lock while they fetch.
const LOCKS: &str = "locks";
/// Parts of the bound that stay when entries are removed, in eighths.
const KEPT_EIGHTHS: u64 = 7;
/// Bytes of the disk that are left to others: so many, or one part of so many.
const SPARE: u64 = 1 << 30;
const SPARE_PART: u64 = 20;

/// A cache in a directory.
#[derive(Debug)]
pub struct Cache {
    directory: PathBuf,
    most: u64,
    /// Bytes there may be: those counted last and those added since. `u64::MAX`: not counted yet.
    bytes: AtomicU64,
    sweeping: Mutex<()>,
    disk: Disk,
}

/// Bytes of the disk of a directory, and those that are free; nothing if that is not known.
type Disk = fn(&Path) -> Option<(u64, u64)>;

fn disk(directory: &Path) -> Option<(u64, u64)> {
    let facts = rustix::fs::fstatvfs(platfs_host::Directory::open(directory).ok()?).ok()?;
    Some((facts.f_blocks.saturating_mul(facts.f_frsize), facts.f_bavail.saturating_mul(facts.f_frsize)))
}

impl Cache {
    /// The cache in a directory, of at most that many bytes.
    #[must_use]
    pub fn new(directory: PathBuf, most: u64) -> Self {
        Cache { directory, most, bytes: AtomicU64::new(u64::MAX), sweeping: Mutex::default(), disk }
    }

    /// The directory of an entry, and its name there.
    fn directory_of<'n>(&self, name: &'n str) -> io::Result<(Directory, &'n str)> {
        Ok((Directory::open(&self.directory)?.enter(above(name))?, name))
    }

    /// An entry of at most `most` bytes, unverified.
    #[must_use]
    pub fn get(&self, name: &str, most: u64) -> Option<Vec<u8>> {
        let (file, facts) = self.directory_of(name).and_then(|(above, name)| above.open_file(name)).ok()?;
        if facts.size > most {
            return None;
        }
        let now = SystemTime::now();
        let is_fresh = |used: SystemTime| now.duration_since(used).is_ok_and(|age| age < MARK_AFTER);
        let used = file.metadata().and_then(|facts| facts.modified());
        if !used.is_ok_and(is_fresh) {
            // Another user's entry can't be marked; it goes earlier then.
            let _ = file.set_modified(now);
        }
        let mut bytes = Vec::new();
        file.take(most.saturating_add(1)).read_to_end(&mut bytes).ok()?;
        (bytes.len() as u64 <= most).then_some(bytes)
    }

    /// True if there is an entry.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        let look = self.directory_of(name).and_then(|(above, name)| above.look(name));
        look.is_ok_and(|facts| facts.kind == Kind::File)
    }

    /// Keeps other processes from fetching an entry while the file is open: who waited for it looks for the entry again.
    /// Nothing where that can't be done, or takes too long.
    #[must_use]
    pub fn alone(&self, name: &str) -> Option<File> {
        let locks = Directory::open_or_make(&self.directory).and_then(|all| all.descend_or_make(LOCKS));
        let at = name.len().saturating_sub(3);
        let file = locks.and_then(|locks| locks.open_or_create(name.get(at..).unwrap_or("000"))).ok()?;
        let (begun, mut pause) = (Instant::now(), Duration::from_millis(1));
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if begun.elapsed() > WAIT {
                return None;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(16));
        }
        Some(file)
    }

    /// Keeps an entry, and makes room for it.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let len = bytes.len() as u64;
        if len > self.most / 4 {
            return;
        }
        let known = self.bytes.load(Ordering::Relaxed);
        if known == u64::MAX || known.saturating_add(len) > self.most_now(known) {
            // Where others fill the disk, a cache that is nearly empty can't help.
            if known != u64::MAX && known < len.saturating_mul(KEPT_EIGHTHS) {
                return;
            }
            self.sweep(len);
            let known = self.bytes.load(Ordering::Relaxed);
            if known.saturating_add(len) > self.most_now(known) {
                return;
            }
        }
        if self.write(name, bytes).is_ok() {
            self.bytes.fetch_add(len, Ordering::Relaxed);
        }
    }

    /// The most bytes there may be now: the bound, or less where the disk has little room left for others.
    fn most_now(&self, held: u64) -> u64 {
        let Some((size, free)) = (self.disk)(&self.directory) else { return self.most };
        let spare = SPARE.min(size / SPARE_PART);
        // What is held would be free without the cache.
        self.most.min(free.saturating_add(held).saturating_sub(spare))
    }

    /// Takes an entry out that turned out to be wrong.
    pub fn remove(&self, name: &str) {
        let _ = self.directory_of(name).and_then(|(above, name)| above.remove_file(name));
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let above = Directory::open_or_make(&self.directory)?.descend_or_make(above(name))?;
        let made = format!("making-{:016x}", crate::random::number());
        let written = above.create(&made, 0o600);
        let written = written
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| above.rename(&made, &above, name));
        written.inspect_err(|_| drop(above.remove_file(&made)))
    }

    /// All entries, as far as they can be looked at.
    fn entries(&self) -> io::Result<Vec<Used>> {
        let all = Directory::open(&self.directory)?;
        let mut entries = Vec::new();
        for above in all.entries()?.flatten().filter(|above| above != LOCKS) {
            let Ok(directory) = all.enter(&above) else { continue };
            for name in directory.entries()?.flatten() {
                let Ok(facts) = directory.look(&name) else { continue };
                entries.push((facts.modified, facts.size, (above.clone(), name)));
            }
        }
        Ok(entries)
    }

    /// Counts the entries, and removes those used longest ago until `more` bytes fit.
    fn sweep(&self, more: u64) {
        let _one = self.sweeping.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entries = self.entries().unwrap_or_default();
        let mut bytes: u64 = entries.iter().map(|entry| entry.1).sum();
        let most = self.most_now(bytes);
        if bytes.saturating_add(more) > most {
            let all = Directory::open(&self.directory);
            entries.sort_unstable();
            for (_, len, (above, name)) in entries {
                if bytes.saturating_add(more) <= most / 8 * KEPT_EIGHTHS {
                    break;
                }
                let removed =
                    all.as_ref().map(|all| all.enter(&above).and_then(|above| above.remove_file(&name)));
                drop(removed);
                bytes = bytes.saturating_sub(len);
            }
        }
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}

/// The name of an entry's directory, of two hundred and fifty-six: none gets too long.
fn above(name: &str) -> &str {
    name.get(name.len().saturating_sub(2)..).unwrap_or("00")
}

/// An entry: when it was used last, its bytes, its directory and its name there.
type Used = ((i64, u32), u64, (OsString, OsString));

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    impl Cache {
        fn path(&self, name: &str) -> PathBuf {
            self.directory.join(above(name)).join(name)
        }
    }

    #[test]
    fn entries_stay_within_the_bound_and_those_used_last_stay() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::new(directory.path().to_owned(), 64_000);
        let old = SystemTime::now() - Duration::from_secs(1000);
        for number in 0..50 {
            let name = format!("entry-{number:02x}");
            cache.put(&name, &[number; 4000]);
            if let Ok(file) = File::options().write(true).open(cache.path(&name)) {
                file.set_modified(old + Duration::from_secs(number.into())).unwrap();
            }
            assert!(cache.get("entry-00", 4000).is_some() || number == 0, "used all the time, {number}");
        }
        let there = (0..50).filter(|number| cache.path(&format!("entry-{number:02x}")).exists()).count();
        assert!((8..=16).contains(&there), "{there}");
        assert!(cache.get("entry-00", 3999).is_none() && cache.get("none", 10).is_none());
        cache.put("large", &[0; 20_000]);
        assert!(cache.get("large", 20_000).is_none());
        cache.remove("entry-00");
        assert!(cache.get("entry-00", 4000).is_none());
    }

    #[test]
    fn a_disk_that_others_fill_keeps_its_last_room() {
        // 200,000 bytes, of which others have 100,000.
        fn small(directory: &Path) -> Option<(u64, u64)> {
            let below = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
            let files = below(directory.to_owned()).flat_map(|entry| below(entry.path()));
            let held: u64 = files.filter_map(|entry| entry.metadata().ok()).map(|facts| facts.len()).sum();
            Some((200_000, 100_000_u64.saturating_sub(held)))
        }
        let directory = tempfile::tempdir().unwrap();
        let mut cache = Cache::new(directory.path().to_owned(), 1 << 30);
        cache.disk = small;
        for number in 0..100 {
            cache.put(&format!("entry-{number:02}"), &[1; 4000]);
            assert!(small(directory.path()).unwrap().1 >= 10_000, "entry {number}");
        }
        assert!(cache.get("entry-99", 4000).is_some(), "what was used last is kept");
        // Nothing is left of the disk: entries go, and nothing is written in vain.
        cache.disk = |_| Some((200_000, 0));
        cache.put("more", &[1; 4000]);
        assert!(cache.get("more", 4000).is_none());
    }

    #[test]
    fn what_is_no_file_is_no_entry() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::new(directory.path().to_owned(), 1 << 20);
        for name in ["entry-00", "entry-01"] {
            cache.put(name, b"x");
            fs::remove_file(cache.path(name)).unwrap();
        }
        let pipe =
            |path: &Path| assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
        pipe(&cache.path("entry-00"));
        std::os::unix::fs::symlink("/dev/zero", cache.path("entry-01")).unwrap();
        drop(cache.alone("entry-000"));
        pipe(&directory.path().join(LOCKS).join("001"));
        for name in ["entry-00", "entry-01"] {
            assert!(cache.get(name, 10).is_none() && !cache.has(name));
        }
        assert!(cache.alone("entry-001").is_none());
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_no_failure() {
        let cache = Cache::new("/proc/nowhere".into(), 1 << 20);
        cache.put("entry", b"x");
        assert!(cache.get("entry", 10).is_none());
    }
}
