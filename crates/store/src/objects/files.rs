//! A directory of this host as a store.
//!
//! Owns: that an object appears whole and is stable, and that of two programs that create or replace one at the same
//! time one wins. A new object is a hard link to a file that was synced; a replacement is made under a lock of the
//! directory. `object_store` has a local store, too; it has no conditional replacement.
//!
//! An object is a regular file below the directory that the user named, through no link: what else lies there is no
//! object, and is neither waited for nor followed. Objects hold what volumes hold, so that only their owner may read what
//! is made here; where the directory has the set-group-id bit, its group, too.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use platfs_device::units::bounded;
use platfs_host::{Directory, Facts, Kind};
use rustix::fs::{FlockOperation, flock};

use super::{Listed, Object, Objects, REPLACED_MAX, Version, checked};
use crate::error::{Error, Result};

/// Where files are made before they get their names, and the name of the lock.
const MAKING: &str = ".making";
/// Longest wait for the lock; it is held for one small write.
const LOCK_WAIT: Duration = Duration::from_secs(30);

/// Most objects of one directory, whose names are sorted in memory: chunks of 16 TiB.
const ENTRIES_MAX: usize = 1 << 25;

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

    /// The directory of an object, and its name there.
    fn directory_of<'k>(&self, key: &'k str) -> Result<(io::Result<Directory>, &'k OsStr)> {
        let (above, name) = split(checked(key)?);
        Ok((Directory::open(&self.root).and_then(|root| root.descend(above)), name))
    }

    /// An object, opened.
    fn open(&self, key: &str) -> Result<(File, Facts)> {
        let (above, name) = self.directory_of(key)?;
        above.and_then(|above| above.open_file(name)).map_err(|why| object_error(key, &why))
    }

    /// Names of a directory that can be parts of keys, sorted, and whether each is a directory. None if there is none.
    fn entries(&self, prefix: &str) -> Result<Vec<(String, bool)>> {
        let prefix = if prefix.is_empty() { prefix } else { checked(prefix)? };
        match Directory::open(&self.root).and_then(|root| root.descend(prefix)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            opened => {
                opened.and_then(|directory| entries(&directory)).map_err(|why| object_error(prefix, &why))
            }
        }
    }

    /// A synced file with these bytes that has no key yet, by its name where files are made.
    fn make(&self, making: &Directory, bytes: &[u8]) -> io::Result<String> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}-{:016x}", std::process::id(), crate::random::number());
        let mut file = making.create_private(&name)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_data());
        written.inspect_err(|_| drop(making.remove_file(&name)))?;
        Ok(name)
    }

    /// Has nobody else replace objects while the file that is given back is open.
    fn lock(&self) -> Result<File> {
        let failed = |why: io::Error| Error::host("locking the store", &why);
        let making = Directory::open_or_make(&self.root).and_then(|root| root.descend_or_make(MAKING));
        let file = making.and_then(|making| making.open_or_create("lock")).map_err(failed)?;
        let begun = Instant::now();
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if begun.elapsed() > LOCK_WAIT {
                return Err(Error::Unavailable("another program holds the lock of the directory".into()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(file)
    }

    /// Gives a new file its key: one that is free, or with `over` that of another object.
    fn bring(&self, key: &str, bytes: &[u8], over: bool) -> Result<()> {
        let (above, name) = split(checked(key)?);
        let bring = || {
            let root = Directory::open_or_make(&self.root)?;
            let (above, making) = (root.descend_or_make(above)?, root.descend_or_make(MAKING)?);
            let made = self.make(&making, bytes)?;
            let placed = match over {
                true => making.rename(&made, &above, name),
                false => making.link(&made, &above, name),
            };
            // After a rename there is nothing to remove.
            let _ = making.remove_file(&made);
            placed.and_then(|()| above.sync())
        };
        bring().map_err(|why| object_error(key, &why))
    }
}

/// A key as the path of its directory and its name there.
fn split(key: &str) -> (&Path, &OsStr) {
    let (above, name) = key.rsplit_once('/').unwrap_or(("", key));
    (Path::new(above), OsStr::new(name))
}

/// The failure of a file as that of an object.
fn object_error(key: &str, error: &io::Error) -> Error {
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
        let failed = |why: io::Error| object_error(key, &why);
        let (file, _) = self.open(key)?;
        let mut bytes = Vec::new();
        file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > most {
            return Err(Error::damaged(key, format!("has more than {most} bytes")));
        }
        let version = version(&bytes);
        Ok(Object { bytes, version })
    }

    fn range(&self, key: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
        let failed = |why: io::Error| object_error(key, &why);
        let (file, facts) = self.open(key)?;
        let len = len.min(facts.size.saturating_sub(offset));
        let mut bytes = vec![0; bounded::<usize>(len)];
        file.read_exact_at(&mut bytes, offset).map_err(failed)?;
        Ok(bytes)
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        self.bring(key, bytes, true)
    }

    fn create(&self, key: &str, bytes: &[u8]) -> Result<Version> {
        self.bring(key, bytes, false)?;
        Ok(version(bytes))
    }

    fn replace(&self, key: &str, bytes: &[u8], expected: &Version) -> Result<Version> {
        let _lock = self.lock()?;
        match self.get(key, REPLACED_MAX) {
            Ok(now) if now.version == *expected => self.put(key, bytes)?,
            Ok(_) | Err(Error::Missing(_)) => return Err(Error::Conflict(key.to_owned())),
            Err(error) => return Err(error),
        }
        Ok(version(bytes))
    }

    fn head(&self, key: &str) -> Result<Option<Listed>> {
        let (above, name) = self.directory_of(key)?;
        match above.and_then(|above| above.look(name)) {
            Ok(facts) if facts.kind == Kind::File => {
                let (seconds, nanos) = facts.modified;
                let since = Duration::new(u64::try_from(seconds).unwrap_or(0), nanos);
                let modified = SystemTime::UNIX_EPOCH + since;
                Ok(Some(Listed { key: key.to_owned(), size: facts.size, modified }))
            }
            Ok(facts) => Err(Error::damaged(key, format!("is {}, not a regular file", facts.kind.noun()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(object_error(key, &error)),
        }
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        for (name, is_directory) in self.entries(prefix)? {
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
        Ok(self.entries(prefix)?.into_iter().map(|(name, _)| name).collect())
    }

    fn remove(&self, key: &str) -> Result<()> {
        let (above, name) = self.directory_of(key)?;
        match above.and_then(|above| above.remove_file(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(object_error(key, &error)),
            _ => Ok(()),
        }
    }

    fn lingers(&self) -> Duration {
        Duration::ZERO
    }
}

fn entries(directory: &Directory) -> io::Result<Vec<(String, bool)>> {
    let mut found = Vec::new();
    for name in directory.entries()? {
        let Ok(name) = name?.into_string() else { continue };
        if checked(&name).is_err() {
            continue;
        }
        if found.len() >= ENTRIES_MAX {
            return Err(io::Error::other(format!("the directory has more than {ENTRIES_MAX} objects")));
        }
        match directory.look(&name).map(|facts| facts.kind) {
            Ok(Kind::Directory) => found.push((name, true)),
            Ok(Kind::File) => found.push((name, false)),
            // One that was removed meanwhile.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    // As stores sort keys.
    found.sort_by_cached_key(
        |(name, is_directory)| if *is_directory { format!("{name}/") } else { name.clone() },
    );
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn objects_are_their_owners_or_those_of_the_group_that_the_directory_names() {
        let top = tempfile::tempdir().unwrap();
        let (own, shared) = (top.path().join("a/own"), top.path().join("shared"));
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o2775)).unwrap();
        for root in [&own, &shared] {
            let files = Files::new(root.clone());
            let first = files.create("chunk/00/first", b"bytes").unwrap();
            files.put("chunk/00/second", b"bytes").unwrap();
            files.replace("chunk/00/first", b"other", &first).unwrap();
            assert!(matches!(files.create("chunk/00/first", b"x"), Err(Error::Exists(_))));
            assert_eq!(files.get("chunk/00/first", 10).unwrap().bytes, b"other");
            assert_eq!(files.names("chunk/00/").unwrap(), ["first", "second"]);
        }
        assert_eq!(
            [mode(&own), mode(&own.join("chunk/00")), mode(&own.join("chunk/00/first"))],
            [0o700, 0o700, 0o600]
        );
        let below = [mode(&shared.join("chunk/00")), mode(&shared.join("chunk/00/first"))];
        assert_eq!((below, mode(&shared.join(".making/lock"))), ([0o2770, 0o660], 0o660));
    }

    #[test]
    fn what_replaces_an_object_is_not_read_without_bound() {
        let top = tempfile::tempdir().unwrap();
        let files = Files::new(top.path().to_owned());
        // A list of a clean-up is replaced, as long as that may be.
        let list = vec![b'x'; (64 << 20) + 1];
        let version = files.create("list", &list).unwrap();
        files.replace("list", b"shorter", &version).unwrap();
        let version = files.create("manifest", b"bytes").unwrap();
        // More than the memory of any machine.
        let huge = fs::File::options().write(true).open(top.path().join("manifest")).unwrap();
        huge.set_len(1 << 43).unwrap();
        let refused = files.replace("manifest", b"new", &version).unwrap_err().to_string();
        assert!(refused.contains("has more than"), "{refused}");
    }

    #[test]
    fn what_is_no_file_is_no_object_and_not_waited_for() {
        let top = tempfile::tempdir().unwrap();
        let root = top.path().join("store");
        let files = Files::new(root.clone());
        files.put("chunk/good", b"bytes").unwrap();
        let directory = Directory::open(root.join("chunk")).unwrap();
        directory.make_node("pipe", Kind::Fifo, (0, 0)).unwrap();
        fs::write(top.path().join("outside"), "outside").unwrap();
        symlink(top.path().join("outside"), root.join("chunk/link")).unwrap();
        symlink(top.path(), root.join("elsewhere")).unwrap();
        for key in ["chunk/pipe", "chunk/link"] {
            let refused = [
                files.get(key, 10).unwrap_err().to_string(),
                files.range(key, 0, 4).unwrap_err().to_string(),
            ];
            assert!(refused.iter().all(|why| why.contains("not a regular file")), "{refused:?}");
            assert!(files.head(key).unwrap_err().to_string().contains("not a regular file"));
        }
        assert!(files.get("elsewhere/outside", 10).is_err());
        assert!(files.put("elsewhere/new", b"x").is_err());
        assert!(!top.path().join("new").exists());
        assert_eq!(files.names("chunk/").unwrap(), ["good"]);
    }
}
