//! A log on this host of what was written to a volume and is not in its store yet: `flush=local`.
//!
//! | module | owns |
//! | --- | --- |
//! | `parts` | the files of the log: records behind each other, which files may go |
//!
//! Owns: the directory of a log, its mark, which process has it, and what is done with records that no volume wants any
//! more. Excludes when records are written and sent: that is `volume`'s.
//!
//! The directory holds `mark`, locked by the process that has the log, with two numbers in hexadecimal: the mark of the
//! log, which stands in the manifest as long as nobody else has the volume, and the last record that the store had when
//! that was written down last (a hint). Closing the volume removes it. Beside it are the parts, named by their first
//! record. A record is an object of a log (`format::log`) with the number of the record as its own, the log's mark as its
//! random number, and the last record that was stable when it was written.

mod parts;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use platfs_host::{Directory, Handle, Id, OutputLocation};
use rustix::fs::{FlockOperation, flock};

use crate::error::{Error, Result};
use crate::format::VolumeId;
use crate::format::manifest::SIZE_MAX;
pub(crate) use parts::{Parts, Record};

/// Where the local log of a volume lies, and how large it may get.
#[derive(Clone, Debug)]
pub struct LocalLog {
    directory: PathBuf,
    most: u64,
}

/// Least bytes of a log: a few records of the largest kind.
const LEAST: u64 = 64 << 20;

impl LocalLog {
    /// The log in a directory of its own, of at most that many bytes (and at least 64 MiB).
    #[must_use]
    pub fn new(directory: PathBuf, most: u64) -> Self {
        LocalLog { directory, most: most.max(LEAST) }
    }

    /// As [`LocalLog::new`], as small as a test wants it.
    #[doc(hidden)]
    #[must_use]
    pub fn of_size(directory: PathBuf, most: u64) -> Self {
        LocalLog { directory, most }
    }

    /// True if a volume was opened with it and not closed: what lies in it may have to go to the store.
    #[must_use]
    pub fn is_used(&self) -> bool {
        let mark = Directory::open(&self.directory).and_then(|directory| directory.look(MARK));
        mark.is_ok_and(|mark| mark.size > 0)
    }
}

/// Name of the mark.
const MARK: &str = "mark";

/// A local log that this process has.
pub(crate) struct Log {
    place: LocalLog,
    /// Its directory, whatever has its name by now.
    own: Directory,
    mark: File,
    /// Tells it from all other logs.
    pub(crate) token: u64,
    /// The last record that the store had, as far as is known.
    hint: u64,
}

impl Log {
    /// Takes a log for this process; makes one where none is.
    pub(crate) fn take(place: &LocalLog) -> Result<Self> {
        let (own, mark) = locked(&place.directory)?;
        let mut bytes = [0; 33];
        let read = mark.read_exact_at(&mut bytes, 0);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let numbers = read.ok().and(text.split_once(' ')).and_then(|(token, hint)| {
            Some((u64::from_str_radix(token, 16).ok()?, u64::from_str_radix(hint, 16).ok()?))
        });
        let (token, hint) = numbers.unwrap_or_default();
        Ok(Log { place: place.clone(), own, mark, token, hint })
    }

    /// The directory that it is.
    pub(crate) fn directory(&self) -> &Path {
        &self.place.directory
    }

    /// Begins another log in its place. What the store may not have of the old one is kept under another name, which is
    /// said.
    pub(crate) fn renew(&mut self, volume: &VolumeId) -> Result<Option<String>> {
        let said = match self.left(volume) {
            0 => None,
            bytes => Some(self.set_aside(bytes)?),
        };
        parts::remove_all(&self.own).map_err(|error| self.failed("emptying", &error))?;
        self.token = crate::random::number().max(1);
        self.hint = 0;
        let write = || {
            self.mark.write_all_at(self.words().as_bytes(), 0)?;
            self.mark.sync_all()?;
            self.own.sync()
        };
        write().map_err(|error| self.failed("beginning", &error))?;
        Ok(said)
    }

    fn words(&self) -> String {
        format!("{:016x} {:016x}\n", self.token, self.hint)
    }

    /// Bytes that were written and that the store may not have.
    fn left(&self, volume: &VolumeId) -> u64 {
        match Parts::open(&self.place, &self.own, volume, self.token, SIZE_MAX) {
            Ok((_, records)) => {
                let waits = records.iter().filter(|record| record.number > self.hint);
                waits.map(|record| u64::from(record.data_len).max(1)).sum()
            }
            // What can't be read is nothing to throw away.
            Err(_) => parts::bytes(&self.own),
        }
    }

    /// Gives the directory another name, and makes a new one.
    fn set_aside(&mut self, bytes: u64) -> Result<String> {
        let rename = || {
            let OutputLocation { directory, name, path } = OutputLocation::of(&self.place.directory)?;
            let aside = format!("{}.lost-{:016x}", name.to_string_lossy(), self.token);
            directory.rename(&name, &directory, &aside).map(|()| path.with_file_name(aside))
        };
        let aside = rename().map_err(|error| self.failed("renaming", &error))?;
        (self.own, self.mark) = locked(&self.place.directory)?;
        Ok(format!(
            "{bytes} bytes that were written on this host are not in the volume: another program had it before they \
             reached the store; they are kept in {}",
            aside.display()
        ))
    }

    /// The volume was closed: nothing is left here. A directory that another process put something into stays.
    pub(crate) fn close(&self) {
        let is_here = self.mark.set_len(0).is_ok() && is_at(&self.mark, &self.own);
        if is_here && self.own.remove_file(MARK).is_ok() {
            let _ = OutputLocation::of(&self.place.directory)
                .and_then(|at| at.directory.remove_directory(&at.name));
        }
    }

    /// Writes down how far the store is: a hint, which need not be stable.
    pub(crate) fn note(&self, sent: u64) {
        let _ = self.mark.write_all_at(format!("{sent:016x}\n").as_bytes(), 17);
    }

    /// The files, and the records in them that are whole.
    pub(crate) fn parts(&self, volume: (&VolumeId, u64)) -> Result<(Parts, Vec<Record>)> {
        Parts::open(&self.place, &self.own, volume.0, self.token, volume.1)
    }

    fn failed(&self, what: &str, error: &io::Error) -> Error {
        Error::host(format!("{what} the local log {}", self.place.directory.display()), error)
    }
}

/// Most times that a log is looked for again whose holder ended at that moment.
const TRIES: usize = 100;

/// The log in a directory, opened, and its mark, locked. Who closes a log removes its mark: what was locked may be gone by
/// then.
fn locked(path: &Path) -> Result<(Directory, File)> {
    for _ in 0..TRIES {
        if let Some((own, mark)) = locked_once(path)?
            && Directory::open(path).is_ok_and(|now| is_at(&mark, &now))
        {
            return Ok((own, mark));
        }
    }
    let error = io::Error::new(io::ErrorKind::ResourceBusy, "others take and close it all the time");
    Err(Error::host(format!("opening the local log {}", path.display()), &error))
}

/// As [`locked`]; nothing if the directory was removed meanwhile.
fn locked_once(path: &Path) -> Result<Option<(Directory, File)>> {
    let failed = |error| Error::host(format!("opening the local log {}", path.display()), &error);
    let open = || -> io::Result<(Directory, File)> {
        let own = Directory::open_or_make(path)?;
        private(&own)?;
        let mark = own.open_or_create(MARK)?;
        Ok((own, mark))
    };
    let (own, mark) = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    match flock(&mark, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some((own, mark))),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let what = format!("a process of this host, which has the local log {}", path.display());
            Err(Error::Open(what))
        }
        Err(error) => Err(failed(error.into())),
    }
}

/// Refuses a directory in which other users could lay records that were never written: what lies in a log goes to the store.
fn private(directory: &Directory) -> io::Result<()> {
    const OTHERS_WRITE: u32 = 0o022;
    let facts = directory.facts()?;
    if facts.is_own() && facts.mode & OTHERS_WRITE == 0 {
        return Ok(());
    }
    let what = format!(
        "is of user {} with mode {:04o}: other users could put records there; `chmod 700`, or another directory",
        facts.uid, facts.mode
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

/// True if the mark of a directory is this one.
fn is_at(mark: &File, directory: &Directory) -> bool {
    let own = Handle::of(mark).and_then(|mark| mark.facts()).map(|facts| facts.id);
    let there: io::Result<Id> = directory.look(MARK).map(|facts| facts.id);
    matches!((own, there), (Ok(own), Ok(there)) if own == there)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_log_that_is_closed_leaves_nothing_behind() {
        let scratch = tempfile::tempdir().unwrap();
        let place = LocalLog::new(scratch.path().join("logs/one"), 0);
        let mut log = Log::take(&place).unwrap();
        log.renew(&[1; 16]).unwrap();
        assert!(place.is_used());
        log.close();
        drop(log);
        assert!(!place.is_used() && !place.directory.exists());
        let file = LocalLog::new(scratch.path().join("file"), 0);
        fs::write(&file.directory, "").unwrap();
        let said = Log::take(&file).map(drop).unwrap_err().to_string();
        assert!(said.contains("File exists") || said.contains("Not a directory"), "{said}");
        // What somebody else put there stays.
        let log = Log::take(&place).unwrap();
        fs::write(place.directory.join("note"), "kept").unwrap();
        log.close();
        assert_eq!(fs::read_dir(&place.directory).unwrap().count(), 1);
    }

    #[test]
    fn a_log_that_others_can_write_is_not_taken() {
        let scratch = tempfile::tempdir().unwrap();
        let place = LocalLog::new(scratch.path().join("one"), 0);
        fs::create_dir(&place.directory).unwrap();
        fs::set_permissions(&place.directory, fs::Permissions::from_mode(0o777)).unwrap();
        let said = Log::take(&place).map(drop).unwrap_err().to_string();
        assert!(said.contains("other users could put records there"), "{said}");
        fs::set_permissions(&place.directory, fs::Permissions::from_mode(0o755)).unwrap();
        // A link in the place of the mark is no mark.
        std::os::unix::fs::symlink(scratch.path().join("elsewhere"), place.directory.join(MARK)).unwrap();
        assert!(Log::take(&place).is_err());
        assert!(!scratch.path().join("elsewhere").exists());
        fs::remove_file(place.directory.join(MARK)).unwrap();
        Log::take(&place).unwrap();
    }

    #[test]
    fn of_those_who_take_a_log_while_it_is_closed_one_has_it() {
        let scratch = tempfile::tempdir().unwrap();
        let place = LocalLog::new(scratch.path().join("one"), 0);
        let (inside, taken) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        match Log::take(&place) {
                            Ok(log) => {
                                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two have it");
                                taken.fetch_add(1, Ordering::SeqCst);
                                inside.fetch_sub(1, Ordering::SeqCst);
                                log.close();
                            }
                            Err(error) => assert!(matches!(error, Error::Open(_)), "{error}"),
                        }
                    }
                });
            }
        });
        assert!(taken.into_inner() > 0);
        assert!(!place.directory.exists());
    }
}
