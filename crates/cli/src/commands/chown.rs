//! `plat chown`: owners of files in an image.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use ondisk::units::InodeNumber;

use super::cage;
use crate::console::{Console, Failure};
use crate::owner::{Numbers, Owner, parse_owner};
use crate::reading::OpenImage;
use crate::sandbox;
use crate::writing::{self, Target};

/// Arguments of `plat chown`.
#[derive(Args, Debug)]
pub struct Chown {
    #[command(flatten)]
    image: Target,
    /// `USER`, `USER:GROUP` or `:GROUP`: numbers, or names from the image's own /etc/passwd and /etc/group.
    #[arg(value_name = "USER:GROUP", value_parser = parse_owner)]
    owner: Owner,
    /// Files in the image. A symbolic link is followed.
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Everything in directories, too; symbolic links there change themselves.
    #[arg(short = 'R', long, short_alias = 'r')]
    recursive: bool,
    /// Symbolic links change themselves.
    #[arg(long)]
    no_dereference: bool,
}

impl Chown {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        cage::changing(self.image.name())
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        writing::change(&self.image, console, |image, console| {
            let owner = self.owner.of(image)?;
            for path in &image.matching(&self.paths)? {
                if let Err(failure) = self.one(image, owner, path) {
                    console.complain(failure)?;
                }
            }
            Ok(())
        })
    }

    fn one(&self, image: &OpenImage, owner: Numbers, path: &OsStr) -> Result<(), Failure> {
        let inode = image.find(path, !self.no_dereference)?;
        let change = |path: &[u8], inode| set(image, owner, path, inode);
        if self.recursive {
            return writing::tree(image, path.as_bytes(), inode, change);
        }
        change(path.as_bytes(), inode)
    }
}

fn set(image: &OpenImage, (uid, gid): Numbers, path: &[u8], inode: InodeNumber) -> Result<(), Failure> {
    image.volume.inode(inode).set_owner(uid, gid).map_err(|error| image.failure(path, &error))
}
