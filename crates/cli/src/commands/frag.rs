//! `plat frag`: in how many pieces files lie, file by file and for all together.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::Walk;
use serde_json::{Map, Value};

use super::json;
use super::runs::{PieceCount, Runs};
use crate::console::{Console, Failure};
use crate::reading::{OpenImage, absolute, joined, paths_or_root};
use crate::text::{Shown, put_bytes};

/// Arguments of `plat frag`.
#[derive(Args, Debug)]
pub struct Frag {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`.
    image: OsString,
    /// Files, and directories with all below them [default: /].
    paths: Vec<OsString>,
    /// Every file with its extents.
    #[arg(short, long)]
    verbose: bool,
    /// So many of the most fragmented files are named.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    worst: u16,
    /// One JSON object.
    #[arg(long, conflicts_with = "verbose")]
    json: bool,
}

impl Frag {
    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let image = OpenImage::open(&self.image, console)?;
        let mut census =
            Census { frag: self, image: &image, totals: Totals::default(), seen: HashSet::new() };
        for path in paths_or_root(&self.paths) {
            match image.find(&path, true) {
                Ok(inode) => census.argument(console, &absolute(path.as_bytes()), inode)?,
                Err(failure) => console.complain(failure)?,
            }
        }
        census.totals.print(console, self.json)
    }
}

/// What all files together come to.
#[derive(Default)]
struct Totals {
    files: u64,
    mapped: u64,
    fragmented: u64,
    extents: u64,
    blocks: u64,
    /// The most fragmented, least first.
    worst: BinaryHeap<Reverse<(u64, Reverse<Vec<u8>>)>>,
}

struct Census<'a> {
    frag: &'a Frag,
    image: &'a OpenImage,
    totals: Totals,
    /// Files of several names that were counted.
    seen: HashSet<InodeNumber>,
}

impl Census<'_> {
    fn argument(
        &mut self,
        console: &mut Console<'_>,
        path: &[u8],
        inode: InodeNumber,
    ) -> Result<(), Failure> {
        let mut walk = Walk::new(&self.image.volume);
        match walk.enter(path, inode) {
            Err(platfs::Error::NotDirectory) => return self.file(console, path, inode),
            entered => self.told(console, path, entered)?,
        }
        while walk.depth() > 0 {
            let Some(entry) = walk.next_entry() else {
                walk.leave();
                continue;
            };
            let entry = entry.clone();
            let path = joined(walk.path(), &entry.name);
            match self.image.volume.entry_type(&entry) {
                Ok(FileType::Directory) => {
                    let entered = walk.enter(&entry.name, entry.inode);
                    self.told(console, &path, entered)?;
                }
                Ok(FileType::Regular) => self.file(console, &path, entry.inode)?,
                Ok(_) => {}
                Err(error) => console.complain(self.image.failure(&path, &error))?,
            }
        }
        Ok(())
    }

    fn told(
        &self,
        console: &mut Console<'_>,
        path: &[u8],
        entered: platfs::Result<Option<platfs::Error>>,
    ) -> Result<(), Failure> {
        match entered {
            Ok(Some(error)) | Err(error) => console.complain(self.image.failure(path, &error)),
            Ok(None) => Ok(()),
        }
    }

    fn file(&mut self, console: &mut Console<'_>, path: &[u8], inode: InodeNumber) -> Result<(), Failure> {
        match self.count(inode) {
            Ok(Some(count)) => self.add(console, path, &count),
            Ok(None) => Ok(()),
            Err(error) => console.complain(self.image.failure(path, &error)),
        }
    }

    /// The pieces of a regular file that was not counted before.
    fn count(&mut self, inode: InodeNumber) -> platfs::Result<Option<PieceCount>> {
        let facts = self.image.volume.metadata(inode)?;
        let is_new = facts.links <= 1 || self.seen.insert(inode);
        if facts.file_type != FileType::Regular || !is_new {
            return Ok(None);
        }
        let mut count = PieceCount::default();
        for run in Runs::of(&self.image.volume, inode)? {
            count.add(run?);
        }
        Ok(Some(count))
    }

    fn add(&mut self, console: &mut Console<'_>, path: &[u8], count: &PieceCount) -> Result<(), Failure> {
        let totals = &mut self.totals;
        totals.files += 1;
        totals.mapped += u64::from(count.pieces > 0);
        totals.fragmented += u64::from(count.pieces > 1);
        totals.extents += count.pieces;
        // A sound image can't overflow this; one that shares blocks could.
        totals.blocks = totals.blocks.saturating_add(count.blocks);
        if count.pieces > 1 && self.frag.worst > 0 {
            totals.worst.push(Reverse((count.pieces, Reverse(path.to_vec()))));
            if totals.worst.len() > usize::from(self.frag.worst) {
                totals.worst.pop();
            }
        }
        if self.frag.verbose {
            let plural = if count.pieces == 1 { "" } else { "s" };
            writeln!(console.out, "{}: {} extent{plural} found", Shown(path), count.pieces)?;
        }
        Ok(())
    }
}

impl Totals {
    /// Extents per file that has any.
    #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
    fn mean(&self) -> f64 {
        if self.mapped == 0 { 0.0 } else { self.extents as f64 / self.mapped as f64 }
    }

    fn print(mut self, console: &mut Console<'_>, as_json: bool) -> Result<(), Failure> {
        let mut worst: Vec<(u64, Vec<u8>)> = Vec::new();
        while let Some(Reverse((pieces, Reverse(path)))) = self.worst.pop() {
            worst.push((pieces, path));
        }
        worst.reverse();
        if as_json {
            return self.print_json(console, &worst);
        }
        let out = &mut *console.out;
        writeln!(out, "files:            {} ({} with blocks)", self.files, self.mapped)?;
        writeln!(out, "extents:          {}", self.extents)?;
        writeln!(out, "blocks:           {}", self.blocks)?;
        writeln!(out, "fragmented files: {}", self.fragmented)?;
        writeln!(out, "extents per file: {:.3}", self.mean())?;
        for (pieces, path) in worst {
            writeln!(out, "{pieces:>8} extents: {}", Shown(&path))?;
        }
        Ok(())
    }

    fn print_json(&self, console: &mut Console<'_>, worst: &[(u64, Vec<u8>)]) -> Result<(), Failure> {
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
        put("files", self.files.into());
        put("files_with_blocks", self.mapped.into());
        put("extents", self.extents.into());
        put("blocks", self.blocks.into());
        put("fragmented_files", self.fragmented.into());
        put("extents_per_file", self.mean().into());
        let named = worst.iter().map(|(pieces, path)| {
            let mut file = Map::new();
            put_bytes(&mut file, "path", path);
            file.insert("extents".to_owned(), (*pieces).into());
            Value::Object(file)
        });
        put("worst", named.collect::<Vec<_>>().into());
        Ok(json::print(console.out, object)?)
    }
}
