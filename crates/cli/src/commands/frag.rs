//! `plat frag`: in how many pieces files lie, file by file and for all together.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use ondisk::inode::FileType;
use platfs::Pieces;
use serde_json::{Map, Value};

use super::cage;
use super::json;
use super::pieces::{Files, Listener};
use crate::console::{Console, Failure};
use crate::reading::{OpenImage, absolute, paths_or_root};
use crate::sandbox::Plan;
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
    /// How many of the most fragmented files are named.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    worst: u16,
    /// One JSON object.
    #[arg(long, conflicts_with = "verbose")]
    json: bool,
}

impl Frag {
    pub(super) fn cage(&self) -> Option<Plan> {
        cage::reading(&[&self.image], &[], None)
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let image = OpenImage::open(&self.image, console)?;
        let mut totals =
            Totals { named: usize::from(self.worst), verbose: self.verbose, ..Totals::default() };
        let mut files = Files::of(&image, false);
        for path in paths_or_root(&self.paths) {
            match image.find(&path, true) {
                Ok(inode) => files.below(console, &absolute(path.as_bytes()), inode, &mut totals)?,
                Err(failure) => console.complain(failure)?,
            }
        }
        totals.print(console, self.json)
    }
}

/// Sums over all files.
#[derive(Default)]
pub(super) struct Totals {
    /// How many of the most fragmented are named.
    named: usize,
    /// Each is listed.
    verbose: bool,
    pub(super) files: u64,
    pub(super) mapped: u64,
    pub(super) fragmented: u64,
    pub(super) extents: u64,
    blocks: u64,
    /// The most fragmented, least first.
    worst: BinaryHeap<Reverse<(u64, Reverse<Vec<u8>>)>>,
}

impl Listener for Totals {
    fn file(
        &mut self,
        console: &mut Console<'_>,
        path: &[u8],
        _kind: FileType,
        count: &Pieces,
    ) -> Result<(), Failure> {
        self.files += 1;
        self.mapped += u64::from(count.pieces() > 0);
        self.fragmented += u64::from(count.pieces() > 1);
        self.extents += count.pieces();
        // A sound image can't overflow this; one that shares blocks could.
        self.blocks = self.blocks.saturating_add(count.blocks());
        if count.pieces() > 1 && self.named > 0 {
            self.worst.push(Reverse((count.pieces(), Reverse(path.to_vec()))));
            if self.worst.len() > self.named {
                self.worst.pop();
            }
        }
        if self.verbose {
            let plural = if count.pieces() == 1 { "" } else { "s" };
            writeln!(console.out, "{}: {} extent{plural} found", Shown(path), count.pieces())?;
        }
        Ok(())
    }
}

impl Totals {
    /// Extents per file that has any.
    #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
    pub(super) fn mean(&self) -> f64 {
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
