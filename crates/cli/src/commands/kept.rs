//! Links between files, owners and attributes of copies that the kernel makes.
//!
//! Owns: which copy was the first of a file with several names, and what could not be kept. Excludes how a copy is made, and
//! how it gets its attributes ([`platfs_host::Handle::dress`]).

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use platfs_host::{Directory, Id, MissingAttributes};

use crate::console::Console;
use crate::text::Shown;

/// The copies of files with several names, as paths from where the copies begin.
pub(super) struct Links {
    base: Directory,
    here: PathBuf,
    firsts: HashMap<Id, PathBuf>,
}

impl Links {
    pub(super) fn new(base: &Directory) -> io::Result<Self> {
        Ok(Links { base: base.try_clone()?, here: PathBuf::new(), firsts: HashMap::new() })
    }

    pub(super) fn enter(&mut self, name: &OsStr) {
        self.here.push(name);
    }

    pub(super) fn leave(&mut self) {
        self.here.pop();
    }

    /// A copy that was made here.
    pub(super) fn note(&mut self, id: Id, name: &OsStr) {
        self.firsts.insert(id, self.here.join(name));
    }

    /// The directory and the name of a copy that was made before.
    pub(super) fn first(&self, id: Id) -> Option<io::Result<(Directory, OsString)>> {
        let first = self.firsts.get(&id)?;
        let (above, name) = (first.parent()?, first.file_name()?);
        Some(self.base.descend(above).map(|above| (above, name.to_owned())))
    }
}

/// Owners and attributes that copies could not get.
#[derive(Default)]
pub(super) struct Lost {
    owners: u64,
    xattrs: u64,
}

impl Lost {
    pub(super) fn add(&mut self, lacks: MissingAttributes) {
        self.owners += u64::from(lacks.owner);
        self.xattrs += lacks.xattrs;
    }

    /// Says it, if there is anything.
    pub(super) fn say(&self, console: &mut Console<'_>, source: &Path) {
        let source = Shown(source.as_os_str().as_bytes());
        let Lost { owners, xattrs } = self;
        if *owners > 0 {
            console.warn(format!("{source}: {owners} copies keep the owner who made them, others need root"));
        }
        if *xattrs > 0 {
            console.warn(format!(
                "{source}: {xattrs} extended attributes are left out: the file system or the caller's rights refuse them"
            ));
        }
    }
}
