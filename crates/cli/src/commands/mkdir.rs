//! `plat mkdir`: new directories in an image or a mount.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::{fs, io};

use clap::Args;
use ondisk::inode::FileType;
use platfs::{CreateRequest, Error, Kind, NewInode};

use super::cage;
use super::live;
use crate::bulk::Done;
use crate::console::{Console, Failure};
use crate::owner::{Owner, parse_owner};
use crate::reading::OpenImage;
use crate::sandbox;
use crate::writing::{self, Place, Target};

/// Arguments of `plat mkdir`.
#[derive(Args, Debug)]
pub struct Mkdir {
    #[command(flatten)]
    image: Target,
    /// Directories to make.
    paths: Vec<OsString>,
    /// The directories above them too, where they are missing; one that exists is no failure.
    #[arg(short, long)]
    parents: bool,
    /// Permissions, in octal digits.
    #[arg(short, long, value_name = "MODE", default_value = "755", value_parser = super::chmod::octal)]
    mode: u16,
    /// The owner, by numbers or names of the image; of an image root, where it is not given.
    #[arg(long, value_name = "USER:GROUP", value_parser = parse_owner)]
    owner: Option<Owner>,
}

impl Mkdir {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        let first = self.image.name();
        if live::is_meant(first, &self.paths) { None } else { cage::changing(first) }
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let first = self.image.name();
        if live::is_meant(first, &self.paths) {
            let done = self.live(console, first)?;
            return live::say(console, console.is_json(), &done);
        }
        if self.paths.is_empty() {
            return Err(live::no_path(first));
        }
        let mut done = Done::default();
        writing::change(&self.image, console, |image, console| {
            for path in &self.paths {
                if let Err(failure) = self.one(image, path, &mut done) {
                    console.complain(failure)?;
                }
            }
            Ok(())
        })?;
        live::say(console, console.is_json(), &done)
    }

    /// In a mount the kernel makes directories as fast as its server, and knows of them.
    fn live(&self, console: &mut Console<'_>, first: &OsStr) -> Result<Done, Failure> {
        let mut done = Done::default();
        let owner = self.owner.as_ref().map(Owner::numbers).transpose()?;
        for path in std::iter::once(first).chain(self.paths.iter().map(OsString::as_os_str)) {
            match self.make_live(Path::new(path), owner, &mut done) {
                Ok(()) => {}
                Err(error) => console.complain(live::host(path, error))?,
            }
        }
        live::settle(first)?;
        Ok(done)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "in a mount, where the server judges each call of the kernel"
    )]
    fn make_live(&self, path: &Path, owner: Option<(u32, u32)>, done: &mut Done) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        let missing = path
            .ancestors()
            .take_while(|above| !above.as_os_str().is_empty() && !platfs_host::path::is_there(above))
            .count();
        builder.recursive(self.parents).mode(u32::from(self.mode)).create(path)?;
        done.directories += missing as u64;
        owner.map_or(Ok(()), |(uid, gid)| std::os::unix::fs::chown(path, Some(uid), Some(gid)))
    }

    fn one(&self, image: &OpenImage, path: &OsStr, done: &mut Done) -> Result<(), Failure> {
        if self.parents {
            let bytes = path.as_bytes();
            for (at, _) in bytes.iter().enumerate().filter(|(at, byte)| **byte == b'/' && *at > 0) {
                self.make(image, OsStr::from_bytes(bytes.get(..at).unwrap_or_default()), done)?;
            }
        }
        self.make(image, path, done)
    }

    fn make(&self, image: &OpenImage, path: &OsStr, done: &mut Done) -> Result<(), Failure> {
        if self.parents && writing::is_directory(image, path) {
            return Ok(());
        }
        let Place { directory, name } = writing::place(image, path)?;
        let (uid, gid) = self.owner.as_ref().map(|owner| owner.of(image)).transpose()?.unwrap_or_default();
        let wanted = CreateRequest {
            file_type: FileType::Directory,
            permissions: self.mode,
            umask: 0,
            uid: uid.unwrap_or_default(),
            gid: gid.unwrap_or_default(),
        };
        let made = image.volume.inherit(directory, &wanted).and_then(|new| {
            let (attributes, xattrs) = (new.attributes, &new.xattrs[..]);
            image.volume.create(directory, name, &NewInode { kind: Kind::Directory, attributes, xattrs })
        });
        made.map_err(|error: Error| image.failure(path.as_bytes(), &error))?;
        done.directories += 1;
        Ok(())
    }
}
