//! `plat umount`: takes a mount away, and returns when its image is free.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::console::{Console, Failure};
use crate::mount::statistics;
use crate::text::Shown;
use crate::{door, stores};

/// How long the process behind the mount may take to end before its image is reported as still in use.
const PATIENCE: Duration = Duration::from_secs(60);

/// Arguments of `plat umount`.
#[derive(Args, Debug)]
pub struct Umount {
    /// The directory that is mounted on.
    directory: PathBuf,
    /// Takes it out of sight even if it is in use; it ends when its last file is closed.
    #[arg(short, long)]
    lazy: bool,
}

impl Umount {
    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let failed = |what: String| Failure::about(Shown(self.directory.as_os_str().as_bytes()), what);
        // A mount whose process is gone can't be looked at, only be taken away.
        let directory = fuse::mount_point(&self.directory)
            .or_else(|_| std::path::absolute(&self.directory))
            .map_err(|error| failed(error.to_string()))?;
        let source = match door::mounted_on(&directory) {
            Some((kind, source)) if kind == "fuse.plat" => source,
            Some((kind, _)) => return Err(failed(format!("a mount of type {kind}, not of plat"))),
            None => return Err(failed("nothing is mounted here".into())),
        };
        // A mount that only reads a store's volume holds nothing in the store, so there is nothing to wait for.
        let holds = !stores::is_meant(source.as_os_str()) || statistics::is_writable(&directory);
        fuse::unmount(&directory, self.lazy).map_err(|error| {
            let hint = if error.kind() == std::io::ErrorKind::ResourceBusy {
                format!(
                    "; files of it are open, or it is some process's working directory (`fuser -m` shows \
                     which); `plat umount -l {}` takes it out of sight now",
                    Shown(self.directory.as_os_str().as_bytes())
                )
            } else {
                String::new()
            };
            failed(format!("{error}{hint}"))
        })?;
        if self.lazy || !holds {
            return Ok(());
        }
        let begun = Instant::now();
        // An image that can't be looked at from here can't be waited for either.
        while door::is_free(&source).is_ok_and(|free| !free) {
            if begun.elapsed() > PATIENCE {
                console.warn(format!("{}: still in use by another mount", source.display()));
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}
