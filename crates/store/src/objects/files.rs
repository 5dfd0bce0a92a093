//! A directory of this host as a store.
//!
//! Owns: that an object appears whole and is stable, and that of two programs that create or replace one at the same
//! time one wins. A new object is a hard link to a file that was synced; a replacement is made under a lock of the
//! directory. `object_store` has a local store, too; it has no conditional replacement.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::{Listed, Object, Objects, Version, checked};
use crate::error::{Error, Result};

/// Where files are made before they get their names, and the name of the lock.
const MAKING: &str = ".making";
/// How long the lock is waited for; it is held for one small write.
const LOCK_WAIT: Duration = Duration::from_secs(30);

/// A store in a directory.
#[derive(Debug)]
pub struct Files {
    root: PathBuf,
    made: AtomicU64,
}

impl Files {
    /// The store in a directory, which is made when the first object is written.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Files { root, made: AtomicU64::new(0) }
    }

    fn path(&self, key: &str) -> Result<PathBuf> {
        Ok(self.root.join(checked(key)?))
    }

    /// A synced file with these bytes that has no key yet.
    fn make(&self, bytes: &[u8]) -> io::Result<PathBuf> {
        let directory = self.root.join(MAKING);
        made_directory(&directory)?;
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}-{:016x}", std::process::id(), crate::random::number());
        let path = directory.join(name);
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_data());
        written.inspect_err(|_| drop(fs::remove_file(&path)))?;
        Ok(path)
    }

    /// Has nobody else replace objects while the file that is given back is open.
    fn lock(&self) -> Result<File> {
        let failed = |why: io::Error| Error::host("locking the store", &why);
        let path = self.root.join(MAKING).join("lock");
        made_directory(&self.root.join(MAKING)).map_err(failed)?;
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(failed)?;
        let begun = Instant::now();
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if begun.elapsed() > LOCK_WAIT {
                return Err(Error::Unavailable("another program holds the lock of the directory".into()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(file)
    }

    /// Gives a new file its key by `how`.
    fn place(&self, key: &str, bytes: &[u8], how: fn(&Path, &Path) -> io::Result<()>) -> Result<()> {
        let target = self.path(key)?;
        let failed = |why: io::Error| said(key, &why);
        let parent = target.parent().unwrap_or(&self.root);
        made_directory(parent).map_err(failed)?;
        let made = self.make(bytes).map_err(failed)?;
        let placed = how(&made, &target);
        // After a rename there is nothing to remove.
        let _ = fs::remove_file(&made);
        placed.and_then(|()| synced(parent)).map_err(failed)
    }
}

/// Makes a directory and those above, each stable in the one above it.
fn made_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        made_directory(parent)?;
    }
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => path.parent().map_or(Ok(()), synced),
    }
}

fn synced(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// The failure of a file as that of an object.
fn said(key: &str, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Error::Missing(key.to_owned()),
        io::ErrorKind::AlreadyExists => Error::Exists(key.to_owned()),
        io::ErrorKind::PermissionDenied => Error::Refused(format!("{key}: {error}")),
        _ => Error::host(key, error),
    }
}

fn version(bytes: &[u8]) -> Version {
    Version { tag: Some(blake3::hash(bytes).to_hex().to_string()), number: None }
}

impl Objects for Files {
    fn get(&self, key: &str, most: u64) -> Result<Object> {
        let failed = |why: io::Error| said(key, &why);
        let file = File::open(self.path(key)?).map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > most {
            return Err(Error::damaged(key, format!("has more than {most} bytes")));
        }
        let version = version(&bytes);
        Ok(Object { bytes, version })
    }

    fn range(&self, key: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
        let failed = |why: io::Error| said(key, &why);
        let file = File::open(self.path(key)?).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let len = len.min(size.saturating_sub(offset));
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        file.read_exact_at(&mut bytes, offset).map_err(failed)?;
        Ok(bytes)
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        self.place(key, bytes, |made, target| fs::rename(made, target))
    }

    fn create(&self, key: &str, bytes: &[u8]) -> Result<Version> {
        self.place(key, bytes, |made, target| fs::hard_link(made, target))?;
        Ok(version(bytes))
    }

    fn replace(&self, key: &str, bytes: &[u8], expected: &Version) -> Result<Version> {
        let _lock = self.lock()?;
        match self.get(key, u64::MAX - 1) {
            Ok(now) if now.version == *expected => self.put(key, bytes)?,
            Ok(_) | Err(Error::Missing(_)) => return Err(Error::Conflict(key.to_owned())),
            Err(error) => return Err(error),
        }
        Ok(version(bytes))
    }

    fn head(&self, key: &str) -> Result<Option<Listed>> {
        match fs::metadata(self.path(key)?) {
            Ok(facts) => {
                let modified = facts.modified().map_err(|why| said(key, &why))?;
                Ok(Some(Listed { key: key.to_owned(), size: facts.len(), modified }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(said(key, &error)),
        }
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        for (name, is_directory) in entries(&self.path(prefix)?, prefix)? {
            let key = format!("{prefix}{name}");
            if is_directory {
                self.list(&format!("{key}/"), each)?;
            } else if let Some(listed) = self.head(&key)? {
                each(listed)?;
            }
        }
        Ok(())
    }

    fn names(&self, prefix: &str) -> Result<Vec<String>> {
        Ok(entries(&self.path(prefix)?, prefix)?.into_iter().map(|(name, _)| name).collect())
    }

    fn remove(&self, key: &str) -> Result<()> {
        match fs::remove_file(self.path(key)?) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(said(key, &error)),
            _ => Ok(()),
        }
    }

    fn lingers(&self) -> Duration {
        Duration::ZERO
    }
}

/// Names in a directory that can be parts of keys, sorted, and whether each is a directory. None if there is none.
fn entries(path: &Path, prefix: &str) -> Result<Vec<(String, bool)>> {
    let failed = |why: io::Error| said(prefix, &why);
    let read = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(failed)?,
    };
    let mut found = Vec::new();
    for entry in read {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        if let Ok(name) = entry.file_name().into_string()
            && checked(&name).is_ok()
            && (kind.is_dir() || kind.is_file())
        {
            found.push((name, kind.is_dir()));
        }
    }
    found.sort_unstable();
    Ok(found)
}
