//! Files of the host into a mount, each whole or not at all: what `plat put` does there.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use platfs_image::source::SourceOptions;

use super::live;
use crate::console::{Console, Failure};
use crate::control::protocol::{Verb, flag};
use crate::progress;

/// Directories below each other; the host's trees are not deeper, its links could be.
const DEPTH_MAX: usize = 1000;

/// How to put.
pub(super) struct How {
    pub(super) recursive: bool,
    pub(super) force: bool,
    pub(super) owner: Option<(u32, u32)>,
}

/// Copies files to the last of the paths, which lies below a directory of a mount.
pub(super) fn put(
    console: &mut Console<'_>,
    directory: &OsStr,
    paths: &[OsString],
    how: &How,
) -> Result<(), Failure> {
    let Some((target, sources)) = paths.split_last() else { return Err(live::no_path(directory)) };
    let target = live::below(directory, target);
    if sources.len() > 1 && !target.is_dir() {
        return Err(live::host(target.as_os_str(), "several files need an existing directory to go to"));
    }
    for source in sources {
        let to = live::target(source, target.as_os_str());
        let done = to.and_then(|to| how.one(console, Path::new(source), Path::new(&to), 0));
        if let Err(failure) = done {
            console.complain(failure)?;
        }
    }
    live::settle(directory)
}

impl How {
    fn one(&self, console: &mut Console<'_>, source: &Path, to: &Path, depth: usize) -> Result<(), Failure> {
        let failed = |error: io::Error| live::host(source.as_os_str(), error);
        if depth == 0 && source == Path::new("-") {
            let spool = SourceOptions::new().spooled(progress::stdin(), "standard input");
            let spool = spool.map_err(|error| Failure::Failed(error.to_string()))?;
            let file = spool.file().ok_or_else(|| Failure::Failed("standard input: no file".into()))?;
            return self.file(console, file, to);
        }
        let facts = fs::symlink_metadata(source).map_err(failed)?;
        let kind = facts.file_type();
        match () {
            () if kind.is_file() => self.file(console, &File::open(source).map_err(failed)?, to),
            () if kind.is_dir() => self.directory(console, source, to, (&facts, depth)),
            () if kind.is_symlink() => {
                let link = fs::read_link(source).map_err(failed)?;
                self.replacing(to, || std::os::unix::fs::symlink(&link, to))?;
                self.own(to)
            }
            () => Err(live::host(source.as_os_str(), "is neither a file, a directory nor a symbolic link")),
        }
    }

    /// A file, by the server, which does it at once.
    fn file(&self, console: &mut Console<'_>, file: &File, to: &Path) -> Result<(), Failure> {
        let flags = if self.force { flag::FORCE } else { 0 };
        live::ask_with(console, (Verb::Put, flags), live::name(to.as_os_str())?, file)?;
        self.own(to)
    }

    fn own(&self, to: &Path) -> Result<(), Failure> {
        let Some((uid, gid)) = self.owner else { return Ok(()) };
        let owned = std::os::unix::fs::lchown(to, Some(uid), Some(gid));
        owned.map_err(|error| live::host(to.as_os_str(), error))
    }

    /// Makes something, in place of what is no directory where that is asked for.
    fn replacing(&self, to: &Path, make: impl Fn() -> io::Result<()>) -> Result<(), Failure> {
        let made = match make() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && self.force => {
                fs::remove_file(to).and_then(|()| make())
            }
            made => made,
        };
        made.map_err(|error| live::host(to.as_os_str(), error))
    }

    fn directory(
        &self,
        console: &mut Console<'_>,
        source: &Path,
        to: &Path,
        (facts, depth): (&Metadata, usize),
    ) -> Result<(), Failure> {
        let failed = |error: io::Error| live::host(source.as_os_str(), error);
        if !self.recursive || depth >= DEPTH_MAX {
            let what = if self.recursive { "lies too deep" } else { "is a directory; --recursive copies it" };
            return Err(live::host(source.as_os_str(), what));
        }
        let there = |error: io::Error| live::host(to.as_os_str(), error);
        fs::create_dir(to).map_err(there)?;
        let mut names: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(source).map_err(failed)? {
            names.push(entry.map_err(failed)?.file_name().into());
        }
        names.sort();
        for name in names {
            self.one(console, &source.join(&name), &to.join(&name), depth + 1)?;
        }
        self.own(to)?;
        fs::set_permissions(to, fs::Permissions::from_mode(facts.mode() & 0o7777)).map_err(there)?;
        let times = fs::FileTimes::new();
        let times = match (facts.accessed(), facts.modified()) {
            (Ok(accessed), Ok(modified)) => times.set_accessed(accessed).set_modified(modified),
            _ => times,
        };
        File::open(to).and_then(|made| made.set_times(times)).map_err(there)
    }
}
