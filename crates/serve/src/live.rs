//! Live verbs: calls that a program has the server of a mount do, by its directory.
//!
//! Owns: one call for each verb. Excludes the protocol ([`crate::control`]) and the work ([`crate::bulk`]). Calls work on any
//! mount by this library or by `plat mount`, of this process or of another one, with the rights of the calling process.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ondisk::units::InodeNumber;
use platfs_image::text::Shown;
use rustix::io::Errno;
use serde_json::{Map, Value};

use crate::bulk::Done;
use crate::bulk::defrag::report;
use crate::control::client::{self, Found, Outcome};
use crate::control::protocol::{Request, Verb, flag};
use crate::mount::error::{MountError, Why};
use crate::mount::quotas::{self, Deed, Report};
use crate::mount::{statistics, trimming};
use crate::refusal::Refusal;
use crate::sizes::Sizes;

/// A mount, to be worked on while it is used.
#[derive(Clone)]
pub struct Live {
    directory: PathBuf,
    tell: Arc<dyn Fn(&Done) + Send + Sync>,
}

type Result<T> = std::result::Result<T, MountError>;

/// An error about a path.
fn about<E: Into<Why>>(path: &Path) -> impl Fn(E) -> MountError + '_ {
    move |why| MountError { subject: Shown(path.as_os_str().as_encoded_bytes()).to_string(), why: why.into() }
}

/// The path below the directory of a mount. Slashes in front are left out: `/a` is `a` in the mount, and `/` the directory
/// itself.
#[must_use]
pub fn below(directory: &Path, path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let start = bytes.iter().position(|byte| *byte != b'/').unwrap_or(bytes.len());
    match bytes.get(start..) {
        Some(rest) if !rest.is_empty() => directory.join(OsStr::from_bytes(rest)),
        _ => directory.to_owned(),
    }
}

impl Live {
    /// The mount on a directory. A directory in the mount does for all verbs but [`Live::sync`]; paths are below it.
    #[must_use]
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Live { directory: directory.into(), tell: Arc::new(|_| {}) }
    }

    /// Sets who is told how far the work is.
    #[must_use]
    pub fn progress(self, tell: impl Fn(&Done) + Send + Sync + 'static) -> Self {
        Live { tell: Arc::new(tell), ..self }
    }

    /// The counts of the mount, as `plat stats` shows them.
    ///
    /// # Errors
    /// It is no mount of plat.
    pub fn statistics(&self) -> Result<Map<String, Value>> {
        statistics::of(&self.directory).map_err(about(&self.directory))
    }

    /// Makes everything stable that programs wrote. The directory must be that of the mount, not one in it.
    ///
    /// # Errors
    /// The kernel's, or the device's; it is not the root of a volume.
    pub fn sync(&self) -> Result<()> {
        let root = self.root()?;
        let failed = |error: Errno| about(&self.directory)(io::Error::from(error));
        if rustix::fs::fstat(root.directory()).map_err(failed)?.st_ino != u64::from(InodeNumber::ROOT.get()) {
            return Err(about(&self.directory)("the root of the volume is not mounted here"));
        }
        // The kernel's pages go to the server first. The kernel does not tell it why: a sync of the root is what makes
        // everything stable.
        rustix::fs::syncfs(root.directory()).map_err(failed)?;
        rustix::fs::fsync(root.directory()).map_err(failed)
    }

    /// Copies a file, or a directory with all in it, to a new name in the same mount, with owners, times and attributes. Both
    /// paths lie below the mount's directory.
    ///
    /// # Errors
    /// The server's words; what was done until then stays.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Done> {
        let (from, to) = (self.below(from.as_ref()), self.below(to.as_ref()));
        let from = Found::tree(&from).map_err(about(&from))?;
        let to = Found::name(&to).map_err(about(&to))?;
        self.hand_over()?;
        Ok(self.ask((Verb::Copy, flag::RECURSIVE | flag::PRESERVE), &[], &[from, to], None)?.0)
    }

    /// Removes a file, or a directory with all in it.
    ///
    /// # Errors
    /// As [`Live::copy`].
    pub fn remove(&self, path: impl AsRef<Path>) -> Result<Done> {
        let path = self.below(path.as_ref());
        let place = Found::name(&path).map_err(about(&path))?;
        Ok(self.ask((Verb::Remove, flag::RECURSIVE), &[], &[place], None)?.0)
    }

    /// Writes the volume as it is at one moment into a new, empty file.
    ///
    /// # Errors
    /// As [`Live::copy`]; the volume of the mount was open already when it was mounted.
    pub fn snapshot(&self, file: &File) -> Result<Done> {
        self.hand_over()?;
        Ok(self.ask((Verb::Snapshot, 0), &[], &[self.root()?], Some(file))?.0)
    }

    /// Makes the volume larger or smaller; 0 means all that the image has room for.
    ///
    /// # Errors
    /// As [`Live::copy`].
    pub fn resize(&self, bytes: u64) -> Result<Sizes> {
        match self.hand_over() {
            // On a full volume what has no room stays where it is: another size may be the remedy.
            Err(error) if error.errno() != Errno::NOSPC.raw_os_error() => return Err(error),
            _ => {}
        }
        Ok(Sizes::from_object(&self.report((Verb::Resize, 0), &[bytes], Path::new(""))?))
    }

    /// The least size that the volume can have, and what it would take. Nothing is changed.
    ///
    /// # Errors
    /// As [`Live::copy`].
    pub fn least_size(&self) -> Result<Sizes> {
        let asked = (Verb::Resize, flag::DRY_RUN | flag::LEAST);
        Ok(Sizes::from_object(&self.report(asked, &[0], Path::new(""))?))
    }

    /// Brings the pieces of files together, below a path in the mount; the report is that of `plat defrag --json`.
    ///
    /// # Errors
    /// As [`Live::copy`].
    pub fn defragment(&self, path: impl AsRef<Path>) -> Result<Map<String, Value>> {
        self.hand_over()?;
        self.report((Verb::Defrag, 0), &[0, 0], path.as_ref())
    }

    /// Reports free space to the device, in runs of at least so many bytes; the bytes that were reported.
    ///
    /// # Errors
    /// The kernel's words.
    pub fn trim(&self, least: u64) -> Result<u64> {
        trimming::trim(&self.directory, 0..u64::MAX, least).map_err(about(&self.directory))
    }

    /// Shows or changes quota.
    ///
    /// # Errors
    /// The server's words.
    pub fn quota(&self, deed: Deed) -> Result<Report> {
        quotas::ask(self.root()?.directory(), deed).map_err(about(&self.directory))
    }

    fn root(&self) -> Result<Found> {
        Found::itself(&self.directory).map_err(about(&self.directory))
    }

    /// Has the kernel hand over what programs wrote, so that the server sees it.
    fn hand_over(&self) -> Result<()> {
        let done = rustix::fs::syncfs(self.root()?.directory());
        done.map_err(|error| about(&self.directory)(io::Error::from(error)))
    }

    fn below(&self, path: &Path) -> PathBuf {
        below(&self.directory, path)
    }

    fn report(&self, asked: (Verb, u32), numbers: &[u64], path: &Path) -> Result<Map<String, Value>> {
        let path = self.below(path);
        let is_directory =
            platfs_host::path::facts(&path).is_ok_and(|facts| facts.kind == platfs_host::Kind::Directory);
        let found = if is_directory { Found::itself(&path) } else { Found::name(&path) };
        let found = found.map_err(about(&path))?;
        let (_, lines) = self.ask(asked, numbers, &[found], None)?;
        let misread = || about(&path)(Refusal::new(Errno::PROTO, "the server's report can't be understood"));
        report::from_lines(&lines).ok_or_else(misread)
    }

    fn ask(
        &self,
        asked: (Verb, u32),
        numbers: &[u64],
        places: &[Found],
        file: Option<&File>,
    ) -> Result<(Done, Vec<String>)> {
        let (verb, flags) = asked;
        let request = Request { verb, flags, places: Vec::new(), numbers: numbers.to_vec() };
        let asked =
            client::ask(request, places, file.map(|file| file as &dyn AsFd), &mut |done| (self.tell)(done));
        let subject = places.first().map_or(self.directory.as_os_str().as_bytes(), Found::shown);
        let failed = |why: Why| MountError { subject: Shown(subject).to_string(), why };
        let Outcome { done, said } = asked.map_err(|error| failed(error.into()))?;
        Ok((done, said.map_err(|refusal| failed(refusal.into()))?))
    }
}
