//! `plat umount`: takes a mount away, and returns when its volume is stored; or says what is not.
//!
//! Owns: waiting for the process behind the mount, and passing on how it ended. Success means that everything that was
//! written is where it belongs. Excludes the closing, which is that process's.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::io::Errno;
use serde_json::{Map, Value};

use super::json;
use crate::console::{Console, Failure};
use crate::control::client::Awaited;
use crate::text::{self, Shown};
use crate::{door, stores};

/// How long a process that can't be asked may take to end before its image is reported as still in use.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the server may take to leave a mount that is gone here, before it is taken to be seen elsewhere.
const LEAVING: Duration = Duration::from_secs(10);
/// After so long it is said what is waited for.
const SAID_AFTER: Duration = Duration::from_secs(3);

/// Returns true if a failure to ask a server means that there is none any more.
fn is_gone(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(number, Some(Errno::NOTCONN | Errno::CONNABORTED | Errno::CONNREFUSED | Errno::CONNRESET))
}

/// Arguments of `plat umount`.
#[derive(Args, Debug)]
pub struct Umount {
    /// The directory that is mounted on. Without it what is mounted is listed, and the command fails.
    directory: Option<PathBuf>,
    /// Takes it out of sight even if it is in use; it ends when its last file is closed.
    #[arg(short, long, requires = "directory")]
    lazy: bool,
    /// Waits for no store that does not answer: what is not stored by then is reported.
    #[arg(short, long, requires = "directory")]
    force: bool,
}

impl Umount {
    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        match &self.directory {
            Some(directory) => Leaving { umount: self, directory }.run(console),
            None => {
                list(console)?;
                // A script whose word is empty must not take this for an unmount.
                Err(Failure::Usage("the directory of a mount is missing".into()))
            }
        }
    }
}

/// Lists what is mounted by us.
pub(super) fn list(console: &mut Console<'_>) -> Result<(), Failure> {
    let mounts = door::of_ours();
    if console.is_json() {
        let mut array = json::Array::default();
        for mount in &mounts {
            array.push(console.out, object(&mount.source, &mount.directory, mount.read_only))?;
        }
        return Ok(array.end(console.out)?);
    }
    if mounts.is_empty() {
        console.note("nothing is mounted by plat; `plat mount IMAGE DIR` mounts an image");
    }
    for mount in mounts {
        let (source, directory) = (mount.source.as_os_str(), mount.directory.as_os_str());
        let how = if mount.read_only { "ro" } else { "rw" };
        writeln!(console.out, "{} on {} ({how})", Shown(source.as_bytes()), Shown(directory.as_bytes()))?;
    }
    Ok(())
}

/// A mount in JSON.
pub(super) fn object(source: &Path, directory: &Path, read_only: bool) -> Map<String, Value> {
    let mut object = Map::from_iter([("read_only".to_owned(), read_only.into())]);
    text::put_bytes(&mut object, "image", source.as_os_str().as_bytes());
    text::put_bytes(&mut object, "directory", directory.as_os_str().as_bytes());
    object
}

/// A mount on its way out.
struct Leaving<'a> {
    umount: &'a Umount,
    directory: &'a Path,
}

impl Leaving<'_> {
    fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        // A mount whose process is gone can't be looked at, only be taken away.
        let directory = fuse::mount_point(self.directory)
            .or_else(|_| std::path::absolute(self.directory))
            .map_err(|error| self.failed(error.to_string()))?;
        let mount = door::mounted_on(&directory)
            .ok_or_else(|| self.failed("nothing is mounted here; `plat mount` lists what is".into()))?;
        if mount.kind != "fuse.plat" {
            return Err(self.failed(format!("a mount of type {}, not of plat", mount.kind)));
        }
        let awaited = Awaited::of(&directory, self.umount.force);
        fuse::unmount(&directory, self.umount.lazy).map_err(|error| self.hinted(&error))?;
        if self.umount.lazy {
            return Ok(());
        }
        match awaited {
            Ok(awaited) => self.ended(console, &awaited),
            Err(error) if is_gone(&error) => match mount.read_only {
                true => Ok(()),
                false => Err(self.failed(
                    "is unmounted, but the process that served it had ended before: what was not synced is lost"
                        .into(),
                )),
            },
            Err(_) => self.freed(&mount.source),
        }
    }

    fn failed(&self, what: String) -> Failure {
        Failure::about(Shown(self.directory.as_os_str().as_bytes()), what)
    }

    /// Why a mount could not be taken away.
    fn hinted(&self, error: &io::Error) -> Failure {
        let hint = match error.kind() {
            io::ErrorKind::ResourceBusy => format!(
                "; files of it are open, or it is some process's working directory (`fuser -m` shows \
                 which); `plat umount -l {}` takes it out of sight now",
                Shown(self.directory.as_os_str().as_bytes())
            ),
            _ => String::new(),
        };
        self.failed(format!("{error}{hint}"))
    }

    /// Waits for the server to close the volume.
    fn ended(&self, console: &mut Console<'_>, awaited: &Awaited) -> Result<(), Failure> {
        let gone = |error: io::Error| self.failed(format!("is unmounted, but {error}"));
        if !awaited.begun(LEAVING).map_err(gone)? {
            console.warn(format!("{}: still in use by another mount", self.directory.display()));
            return Ok(());
        }
        let ended = match awaited.ended(Some(SAID_AFTER)).map_err(gone)? {
            Some(ended) => ended,
            None => {
                let shown = self.directory.display();
                console.warn(format!("{shown}: is unmounted; what was written is being stored"));
                awaited.ended(None).map_err(gone)?.unwrap_or(Ok(()))
            }
        };
        // Its locks are free when it has ended.
        let _ = awaited.is_gone(LEAVING);
        ended.map_err(|why| self.failed(format!("is unmounted, but not all is stored: {why}")))
    }

    /// Waits for the image of a server that can't be asked.
    fn freed(&self, source: &Path) -> Result<(), Failure> {
        let unknown = |why: &str| {
            self.failed(format!("is unmounted; nobody can say from here whether everything is stored: {why}"))
        };
        if stores::is_meant(source.as_os_str()) {
            return Err(unknown("the server of the mount can't be asked"));
        }
        let begun = Instant::now();
        // An image that can't be looked at from here can't be waited for either.
        while door::is_free(source).is_ok_and(|free| !free) {
            if begun.elapsed() > PATIENCE {
                return Err(unknown("the image is still in use"));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}
