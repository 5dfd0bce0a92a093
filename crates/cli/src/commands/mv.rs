//! `plat mv`: other names for files of an image or a mount.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;
use platfs::Replace;
use rustix::fs::{CWD, RenameFlags};

use super::cage;
use super::live;
use crate::console::{Console, Failure};
use crate::reading::OpenImage;
use crate::sandbox;
use crate::writing::{self, Place, Target};

/// Arguments of `plat mv`.
#[derive(Args, Debug)]
pub struct Mv {
    #[command(flatten)]
    image: Target,
    /// Files, and behind them where they go: a directory, or the new name of a single one.
    #[arg(required = true, value_name = "PATH... TARGET")]
    paths: Vec<OsString>,
    /// An existing file is not replaced: that is a failure.
    #[arg(short, long)]
    no_clobber: bool,
    /// Both files exist and exchange their names.
    #[arg(long, conflicts_with = "no_clobber")]
    exchange: bool,
}

impl Mv {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        let first = self.image.name();
        if live::is_meant(first, &self.paths) { None } else { cage::changing(first) }
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let first = self.image.name();
        if live::is_meant(first, &self.paths) {
            return self.live(console, first);
        }
        if self.paths.len() < 2 {
            return Err(live::no_path(first));
        }
        writing::change_towards(&self.image, &self.paths, console, |image, source, target| {
            self.one(image, source, target)
        })
    }

    /// In a mount the kernel renames as fast as its server, and knows of it.
    fn live(&self, console: &mut Console<'_>, first: &OsStr) -> Result<(), Failure> {
        let Some((target, rest)) = self.paths.split_last() else { return Err(live::no_path(first)) };
        if !rest.is_empty() && !Path::new(target).is_dir() {
            return Err(live::host(target, "several files need an existing directory to go to"));
        }
        let flags = match (self.no_clobber, self.exchange) {
            (true, _) => RenameFlags::NOREPLACE,
            (_, true) => RenameFlags::EXCHANGE,
            _ => RenameFlags::empty(),
        };
        for source in std::iter::once(first).chain(rest.iter().map(OsString::as_os_str)) {
            let to = if self.exchange { target.clone() } else { live::target(source, target)? };
            if let Err(error) = rustix::fs::renameat_with(CWD, source, CWD, &to, flags) {
                console.complain(live::host(source, std::io::Error::from(error)))?;
            }
        }
        live::settle(target)
    }

    fn one(&self, image: &OpenImage, source: &OsString, target: &OsString) -> Result<(), Failure> {
        let replace = match (self.no_clobber, self.exchange) {
            (true, _) => Replace::No,
            (_, true) => Replace::Exchange,
            _ => Replace::Yes,
        };
        let to = if self.exchange { target.clone() } else { writing::target(image, source, target) };
        let from = writing::place(image, source)?;
        let Place { directory, name } = writing::place(image, &to)?;
        let renamed = image.volume.rename(from.directory, from.name, directory, name, replace);
        renamed.map_err(|error| image.failure(source.as_bytes(), &error))
    }
}
