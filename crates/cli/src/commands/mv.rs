//! `plat mv`: other names for files of an image or a mount.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use platfs::{Error, Replace};
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use super::cage;
use super::live;
use crate::commands::replaced::EXISTS;
use crate::console::{Console, Failure};
use crate::reading::OpenImage;
use crate::sandbox;
use crate::text::Shown;
use crate::writing::{self, Place, Source, Sources, Target};

/// Arguments of `plat mv`.
#[derive(Args, Debug)]
pub struct Mv {
    #[command(flatten)]
    image: Target,
    /// Files, and behind them where they go: a directory, or the new name of a single one.
    #[arg(required = true, value_name = "PATH... TARGET")]
    paths: Vec<OsString>,
    /// Existing files are replaced.
    #[arg(short, long)]
    force: bool,
    /// An existing file is not replaced, which is so without it, too.
    #[arg(short, long, hide = true, conflicts_with = "force")]
    no_clobber: bool,
    /// Both files exist and exchange their names.
    #[arg(long, conflicts_with_all = ["force", "no_clobber"])]
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
        writing::change_towards(
            &self.image,
            (&self.paths, Sources::OfImage),
            console,
            |image, source, target| self.one(image, source, target),
        )
    }

    /// In a mount the kernel renames as fast as its server, and knows of it.
    #[expect(
        clippy::disallowed_methods,
        reason = "in a mount, where the server judges each call of the kernel"
    )]
    fn live(&self, console: &mut Console<'_>, first: &OsStr) -> Result<(), Failure> {
        let Some((target, rest)) = self.paths.split_last() else { return Err(live::no_path(first)) };
        if !rest.is_empty() && !platfs_host::path::is_directory(target) {
            return Err(live::host(target, "several files need an existing directory to go to"));
        }
        let flags = match (self.force, self.exchange) {
            (_, true) => RenameFlags::EXCHANGE,
            (true, _) => RenameFlags::empty(),
            _ => RenameFlags::NOREPLACE,
        };
        for source in std::iter::once(first).chain(rest.iter().map(OsString::as_os_str)) {
            let to = if self.exchange { target.clone() } else { live::target(source, target)? };
            match rustix::fs::renameat_with(CWD, source, CWD, &to, flags) {
                Ok(()) => {}
                Err(Errno::EXIST) if !self.force => {
                    console.complain(Failure::exists(Shown(to.as_bytes()), EXISTS))?
                }
                Err(error) => console.complain(live::host(source, std::io::Error::from(error)))?,
            }
        }
        live::settle(target)
    }

    fn one(&self, image: &OpenImage, source: &OsString, target: &OsString) -> Result<(), Failure> {
        let replace = match (self.force, self.exchange) {
            (_, true) => Replace::Exchange,
            (true, _) => Replace::Yes,
            _ => Replace::No,
        };
        let to = match self.exchange {
            true => target.clone(),
            false => writing::target(image, &Source::inside(image, source), target)?,
        };
        let from = writing::place(image, source)?;
        let Place { directory, name } = writing::place(image, &to)?;
        let renamed = image.volume.rename(from.directory, from.name, directory, name, replace);
        renamed.map_err(|error| match error {
            Error::Exists if !self.force => {
                Failure::of(format!("{}: {}", image.name, Shown(to.as_bytes())), &error, EXISTS)
            }
            error => image.failure(source.as_bytes(), &error),
        })
    }
}
