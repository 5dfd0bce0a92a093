//! `plat mkdir`: new directories in an image.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use ondisk::inode::FileType;
use platfs::{Error, Kind, NewInode, Wanted};

use crate::console::{Console, Failure};
use crate::owner::parse_owner;
use crate::reading::OpenImage;
use crate::writing::{self, Place, Target};

/// Arguments of `plat mkdir`.
#[derive(Args, Debug)]
pub struct Mkdir {
    #[command(flatten)]
    image: Target,
    /// Directories to make.
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// The directories above them too, where they are missing; one that exists is no failure.
    #[arg(short, long)]
    parents: bool,
    /// Permissions, in octal digits.
    #[arg(short, long, value_name = "MODE", default_value = "755", value_parser = super::chmod::octal)]
    mode: u16,
    /// The owner.
    #[arg(long, value_name = "UID:GID", default_value = "0:0", value_parser = parse_owner)]
    owner: (u32, u32),
}

impl Mkdir {
    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        writing::change_each(&self.image, &self.paths, console, |image, path| self.one(image, path))
    }

    fn one(&self, image: &OpenImage, path: &OsStr) -> Result<(), Failure> {
        if self.parents {
            let bytes = path.as_bytes();
            for (at, _) in bytes.iter().enumerate().filter(|(at, byte)| **byte == b'/' && *at > 0) {
                self.make(image, OsStr::from_bytes(bytes.get(..at).unwrap_or_default()))?;
            }
        }
        self.make(image, path)
    }

    fn make(&self, image: &OpenImage, path: &OsStr) -> Result<(), Failure> {
        if self.parents && writing::is_directory(image, path) {
            return Ok(());
        }
        let Place { directory, name } = writing::place(image, path)?;
        let wanted = Wanted {
            file_type: FileType::Directory,
            permissions: self.mode,
            umask: 0,
            uid: self.owner.0,
            gid: self.owner.1,
        };
        let made = image.volume.inherit(directory, &wanted).and_then(|new| {
            let (attributes, xattrs) = (new.attributes, &new.xattrs[..]);
            image.volume.create(directory, name, &NewInode { kind: Kind::Directory, attributes, xattrs })
        });
        made.map(|_| ()).map_err(|error: Error| image.failure(path.as_bytes(), &error))
    }
}
