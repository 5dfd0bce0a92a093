//! `plat ls`: names in directories, with what their inodes say.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::{DirEntry, Walk};

use super::cage;
use super::facts;
use super::json::Array;
use crate::console::{Console, Failure};
use crate::keys::KeyArgs;
use crate::reading::{OpenImage, absolute, joined, paths_or_root};
use crate::sandbox::Plan;
use crate::text::{Shown, put_bytes};

/// Arguments of `plat ls`.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
#[expect(clippy::struct_excessive_bools, reason = "each is a letter of ls(1)")]
pub struct Ls {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`.
    image: OsString,
    #[command(flatten)]
    keys: KeyArgs,
    /// Directories or files in the image [default: /].
    paths: Vec<OsString>,
    /// Mode, links, owner, group, size, time (UTC), and the targets of symbolic links.
    #[arg(short, long, short_alias = 'n')]
    long: bool,
    /// With -l: sizes with a unit, as `12 KiB`.
    #[arg(short, long)]
    human_readable: bool,
    /// The largest first, within each directory.
    #[arg(short = 'S', conflicts_with = "unsorted")]
    by_size: bool,
    /// The newest first.
    #[arg(short = 't', conflicts_with_all = ["unsorted", "by_size"])]
    by_time: bool,
    /// One name on a line, which is so without it, too.
    #[arg(short = '1', hide = true)]
    single: bool,
    /// Names that begin with a dot, too.
    #[arg(short, long)]
    all: bool,
    /// All that is below.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Directories themselves, not what is in them.
    #[arg(short, long)]
    directory: bool,
    /// Inode numbers.
    #[arg(short, long)]
    inode: bool,
    /// In the order in which names are stored, not sorted.
    #[arg(short = 'U', long, conflicts_with = "recursive")]
    unsorted: bool,
    /// Names byte for byte, nothing escaped.
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// A NUL behind each name instead of a new line; implies --raw.
    #[arg(short = '0', long = "null", conflicts_with = "json")]
    null: bool,
    /// A JSON array with one object per name; all facts, full paths.
    #[arg(long)]
    json: bool,
    /// Print help.
    #[arg(long, action = clap::ArgAction::HelpLong)]
    help: Option<bool>,
}

impl Ls {
    /// Brings entries into the order that was asked for. Inodes that can't be read come last.
    fn sort(&self, image: &OpenImage, entries: &mut [&DirEntry]) {
        if !self.by_size && !self.by_time {
            return;
        }
        entries.sort_by_cached_key(|entry| {
            let facts = image.volume.metadata(entry.inode).ok();
            std::cmp::Reverse(facts.map(|facts| match self.by_size {
                true => (i128::from(facts.size), 0),
                false => (i128::from(facts.times.modify.seconds), facts.times.modify.nanoseconds),
            }))
        });
    }

    fn is_hidden(&self, entry: &DirEntry) -> bool {
        !self.all && entry.name.starts_with(b".")
    }

    pub(super) fn cage(&self) -> Option<Plan> {
        cage::reading(&[&self.image], &self.keys.files(), None)
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let image = OpenImage::open_with(&self.image, &self.keys, console)?;
        let paths = image.matching(&paths_or_root(&self.paths))?;
        let titled = paths.len() > 1 || self.recursive;
        let array = Array::default();
        let mut listing = Listing { ls: self, image: &image, titled, array, silent: true };
        for path in &paths {
            // As everywhere: a link is shown by -l and -d, and else followed.
            let follow = !self.long && !self.directory;
            match image.find(path, follow) {
                Ok(inode) => listing.argument(console, path.as_bytes(), inode, paths.len() > 1)?,
                Err(failure) => console.complain(failure)?,
            }
        }
        if self.json {
            listing.array.end(console.out)?;
        }
        Ok(())
    }
}

struct Listing<'a> {
    ls: &'a Ls,
    image: &'a OpenImage,
    /// Each directory is named before what is in it.
    titled: bool,
    array: Array,
    /// Nothing was printed yet.
    silent: bool,
}

impl Listing<'_> {
    fn argument(
        &mut self,
        console: &mut Console<'_>,
        path: &[u8],
        inode: InodeNumber,
        several: bool,
    ) -> Result<(), Failure> {
        let facts = match self.image.volume.metadata(inode) {
            Ok(facts) => facts,
            Err(error) => return console.complain(self.image.failure(path, &error)),
        };
        if facts.file_type != FileType::Directory || self.ls.directory {
            return self.name(console, path, &absolute(path), inode);
        }
        if self.ls.unsorted {
            return self.unsorted(console, path, inode, several);
        }
        let mut walk = Walk::new(&self.image.volume);
        self.enter(console, &mut walk, &absolute(path), inode)?;
        while self.ls.recursive && walk.depth() > 0 {
            let Some(entry) = walk.next_entry() else {
                walk.leave();
                continue;
            };
            let entry = entry.clone();
            if self.ls.is_hidden(&entry) {
                continue;
            }
            match walk.is_directory(&entry) {
                Ok(true) => self.enter(console, &mut walk, &entry.name, entry.inode)?,
                Ok(false) => {}
                Err(error) => {
                    console.complain(self.image.failure(&joined(walk.path(), &entry.name), &error))?;
                }
            }
        }
        Ok(())
    }

    /// Goes into a directory and prints what is in it.
    fn enter(
        &mut self,
        console: &mut Console<'_>,
        walk: &mut Walk<'_>,
        name: &[u8],
        directory: InodeNumber,
    ) -> Result<(), Failure> {
        let complaint = match walk.enter(name, directory) {
            Ok(complaint) => complaint,
            Err(error) => {
                return console.complain(self.image.failure(&joined(walk.path(), name), &error));
            }
        };
        if self.titled {
            self.title(console, walk.path())?;
        }
        let ls = self.ls;
        let mut entries: Vec<&DirEntry> =
            walk.entries().iter().filter(|entry| !ls.is_hidden(entry)).collect();
        ls.sort(self.image, &mut entries);
        for entry in entries {
            self.entry(console, walk.path(), entry)?;
        }
        match complaint {
            Some(error) => console.complain(self.image.failure(walk.path(), &error)),
            None => Ok(()),
        }
    }

    fn unsorted(
        &mut self,
        console: &mut Console<'_>,
        path: &[u8],
        directory: InodeNumber,
        title: bool,
    ) -> Result<(), Failure> {
        if title {
            self.title(console, path)?;
        }
        let path = absolute(path);
        let failed = |error: &platfs::Error| self.image.failure(&path, error);
        let entries = match self.image.volume.read_dir(directory) {
            Ok(entries) => entries,
            Err(error) => return console.complain(failed(&error)),
        };
        for entry in entries {
            match entry {
                Ok(entry) if self.ls.is_hidden(&entry) => {}
                Ok(entry) => self.entry(console, &path, &entry)?,
                Err(error) => return console.complain(failed(&error)),
            }
        }
        Ok(())
    }

    fn title(&mut self, console: &mut Console<'_>, path: &[u8]) -> Result<(), Failure> {
        if self.ls.json {
            return Ok(());
        }
        if !self.silent {
            self.line_end(console.out)?;
        }
        self.silent = false;
        self.write_name(console.out, path)?;
        console.out.write_all(b":")?;
        self.line_end(console.out)
    }

    fn entry(&mut self, console: &mut Console<'_>, path: &[u8], entry: &DirEntry) -> Result<(), Failure> {
        if self.ls.json || self.ls.long {
            let full = joined(path, &entry.name);
            return self.name(console, &entry.name, &full, entry.inode);
        }
        self.silent = false;
        if self.ls.inode {
            write!(console.out, "{:>8} ", entry.inode)?;
        }
        self.write_name(console.out, &entry.name)?;
        self.line_end(console.out)
    }

    /// Prints one name with the facts of its inode; a broken inode is reported, and its name is
    /// printed all the same.
    fn name(
        &mut self,
        console: &mut Console<'_>,
        name: &[u8],
        path: &[u8],
        inode: InodeNumber,
    ) -> Result<(), Failure> {
        let volume = &self.image.volume;
        self.silent = false;
        let facts = volume.metadata(inode).and_then(|facts| {
            let target = facts::target(volume, facts.file_type, inode)?;
            Ok((facts, target))
        });
        if let Err(error) = &facts {
            console.complain(self.image.failure(path, error))?;
        }
        if self.ls.json {
            let mut object = serde_json::Map::new();
            put_bytes(&mut object, "path", path);
            if let Ok((facts, target)) = &facts {
                object.append(&mut facts::brief(facts));
                if let Some(target) = target {
                    put_bytes(&mut object, "target", target);
                }
            }
            return Ok(self.array.push(console.out, object)?);
        }
        if self.ls.inode {
            write!(console.out, "{inode:>8} ")?;
        }
        if self.ls.long {
            match &facts {
                Ok((facts, _)) => write!(console.out, "{} ", facts::long(facts, self.ls.human_readable))?,
                Err(_) => console.out.write_all(b"?????????? ")?,
            }
        }
        self.write_name(console.out, name)?;
        if let (true, Ok((_, Some(target)))) = (self.ls.long, &facts) {
            console.out.write_all(b" -> ")?;
            self.write_name(console.out, target)?;
        }
        self.line_end(console.out)
    }

    fn write_name(&self, out: &mut dyn Write, name: &[u8]) -> Result<(), Failure> {
        if self.ls.raw || self.ls.null {
            return Ok(out.write_all(name)?);
        }
        Ok(write!(out, "{}", Shown(name))?)
    }

    fn line_end(&self, out: &mut dyn Write) -> Result<(), Failure> {
        Ok(out.write_all(if self.ls.null { b"\0" } else { b"\n" })?)
    }
}
