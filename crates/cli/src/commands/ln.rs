//! `plat ln`: another name for a file of an image, or a symbolic link.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use platfs::{Attributes, Kind, NewInode, Times};

use super::cage;
use crate::console::{Console, Failure};
use crate::sandbox;
use crate::writing::{self, Place, Source, Target};

/// Arguments of `plat ln`.
#[derive(Args, Debug)]
pub struct Ln {
    #[command(flatten)]
    image: Target,
    /// The file that gets another name; with `--symbolic` the text of the link.
    target: OsString,
    /// The new name, or a directory to have it.
    name: OsString,
    /// Makes a symbolic link.
    #[arg(short, long)]
    symbolic: bool,
}

impl Ln {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        cage::changing(self.image.name())
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        writing::change(&self.image, console, |image, _| {
            let path =
                writing::target(image, &Source { path: &self.target, is_directory: false }, &self.name)?;
            let Place { directory, name } = writing::place(image, &path)?;
            let made = if self.symbolic {
                let times = Times::all(image.volume.now());
                let attributes = Attributes { permissions: 0o777, uid: 0, gid: 0, times };
                let kind = Kind::Symlink(self.target.as_bytes());
                image.volume.create(directory, name, &NewInode { kind, attributes, xattrs: &[] }).map(|_| ())
            } else {
                let inode = image.find(&self.target, false)?;
                image.volume.link(inode, directory, name)
            };
            made.map_err(|error| image.failure(path.as_bytes(), &error))
        })
    }
}
