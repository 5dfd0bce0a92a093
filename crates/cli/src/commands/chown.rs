//! `plat chown`: owners of files in an image, as numbers.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;

use platfs::rules;

use super::cage;
use crate::console::{Console, Failure};
use crate::reading::OpenImage;
use crate::sandbox;
use crate::writing::{self, Target};

/// Arguments of `plat chown`.
#[derive(Args, Debug)]
pub struct Chown {
    #[command(flatten)]
    image: Target,
    /// `UID`, `UID:GID` or `:GID`, as numbers: names mean nothing to an image.
    #[arg(value_name = "UID:GID", value_parser = parse)]
    owner: Owner,
    /// Files in the image. A symbolic link is followed.
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Everything in directories, too; symbolic links there change themselves.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Symbolic links change themselves.
    #[arg(long)]
    no_dereference: bool,
}

/// The new owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Owner {
    uid: Option<u32>,
    gid: Option<u32>,
}

fn parse(text: &str) -> Result<Owner, String> {
    let (uid, gid) = text.split_once(':').unwrap_or((text, ""));
    let number = |part: &str| match part {
        "" => Ok(None),
        part => match part.parse() {
            Ok(rules::NOBODY) => Err(format!("{part} stands for no user and no group")),
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(format!("{part} is not the number of a user or group")),
        },
    };
    match (number(uid)?, number(gid)?) {
        (None, None) => Err("neither a user nor a group".into()),
        (uid, gid) => Ok(Owner { uid, gid }),
    }
}

impl Chown {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        cage::changing(self.image.name())
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        writing::change_each(&self.image, &self.paths, console, |image, path| {
            let inode = image.find(path, !self.no_dereference)?;
            let change = |path: &[u8], inode| self.one(image, path, inode);
            if self.recursive {
                return writing::tree(image, path.as_bytes(), inode, change);
            }
            change(path.as_bytes(), inode)
        })
    }

    fn one(&self, image: &OpenImage, path: &[u8], inode: ondisk::units::InodeNumber) -> Result<(), Failure> {
        let changed = image.volume.inode(inode).set_owner(self.owner.uid, self.owner.gid);
        changed.map_err(|error| image.failure(path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_numbers() {
        let owner = |uid, gid| Ok(Owner { uid, gid });
        assert_eq!(parse("7"), owner(Some(7), None));
        assert_eq!(parse("7:8"), owner(Some(7), Some(8)));
        assert_eq!(parse(":8"), owner(None, Some(8)));
        assert!(parse("").is_err() && parse(":").is_err() && parse("root").is_err() && parse("1:x").is_err());
        assert!(parse("4294967295").is_err() && parse(":4294967295").is_err() && parse("4294967294").is_ok());
    }
}
