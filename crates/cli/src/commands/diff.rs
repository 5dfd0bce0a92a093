//! `plat diff`: what differs between two images, by path and by blocks, and as a layer of an OCI image.

use std::ffi::OsString;
use std::io::{self, BufWriter};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use clap::Args;
use platfs::device::Device;
use platfs_host::Privacy;
use platfs_image::export::{Aspect, Losses, NullSink, PathChange};
use platfs_image::{ExportError, Exporter, Packing};
use serde_json::{Map, Value};

use super::cage;
use super::export::failure;
use super::json;
use super::replaced::{Becomes, may_replace};
use crate::console::{Console, Failure};
use crate::door::meant::spare;
use crate::door::output::Output;
use crate::locks::locked;
use crate::reading::{OpenImage, open_device};
use crate::sandbox::Plan;
use crate::size::human;
use crate::text::{Shown, put_bytes};

/// Arguments of `plat diff`.
#[derive(Args, Debug)]
pub struct Diff {
    /// The older image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`.
    older: OsString,
    /// The newer image.
    newer: OsString,
    /// Write what the newer image has as a layer of an OCI image, with whiteouts for what is gone: a name that ends in
    /// .tar, .tar.gz, .tgz, .tar.zst or .tzst.
    #[arg(short, long, value_name = "LAYER")]
    output: Option<PathBuf>,
    /// Replace a layer that exists.
    #[arg(long, short)]
    force: bool,
    /// How much differs in pieces of 4, 64 and 512 KiB, instead of paths.
    #[arg(long, conflicts_with = "output")]
    blocks: bool,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

/// Sizes of the pieces that are counted.
const PIECES: [usize; 3] = [4 << 10, 64 << 10, 512 << 10];

/// An error of a comparison as a failure: about the image that can't be read.
fn failed(older: &OpenImage, newer: &OpenImage, out: Option<&Path>, error: ExportError) -> Failure {
    match error {
        ExportError::Older { path, error } => older.failure(&path, &error),
        error => failure(newer, out, error),
    }
}

impl Diff {
    pub(super) fn cage(&self) -> Option<Plan> {
        cage::reading(&[&self.older, &self.newer], &[], self.output.as_deref())
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        if self.blocks {
            return self.by_blocks(console);
        }
        let packing = self.output.as_deref().map(packing_of).transpose()?;
        let older = OpenImage::open(&self.older, console)?;
        let newer = OpenImage::open(&self.newer, console)?;
        let changes = Mutex::new(Vec::new());
        let tell = |path: &[u8], change: &PathChange| {
            locked(&changes).push((path.to_vec(), change.clone()));
        };
        let exporter = Exporter::new(&newer.volume).since(&older.volume, &tell);
        match (&self.output, packing) {
            (Some(out), Some(packing)) => {
                let losses = self.write(out, |file| {
                    exporter
                        .to_archive(file, packing)
                        .map_err(|error| failed(&older, &newer, Some(out), error))
                })?;
                losses.lines().for_each(|line| console.warn(line));
            }
            _ => exporter.to_sink(&mut NullSink).map_err(|error| failed(&older, &newer, None, error))?,
        }
        drop(exporter);
        let changes = changes.into_inner().unwrap_or_else(PoisonError::into_inner);
        if self.json { print_json(console, &changes) } else { print(console, &changes) }
    }

    /// Writes beside the layer, and gives it the name when it is whole.
    fn write(
        &self,
        out: &Path,
        write: impl FnOnce(BufWriter<std::fs::File>) -> Result<Losses, Failure>,
    ) -> Result<Losses, Failure> {
        let failed = |error: io::Error| Failure::about(out.display(), error);
        spare(&[&self.older, &self.newer], out).map_err(failed)?;
        may_replace(out, Becomes::Archive, self.force)?;
        let output = Output::through(out, 0, Privacy::Private).map_err(failed)?;
        let losses = write(BufWriter::with_capacity(1 << 20, output.file().map_err(failed)?))?;
        output.finish().map_err(failed)?;
        Ok(losses)
    }

    fn by_blocks(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let (older, newer) = (open_device(&self.older)?, open_device(&self.newer)?);
        let names = [&self.older, &self.newer];
        let differing = differing([&*older, &*newer]).map_err(|(which, error)| {
            Failure::about(Shown(names.get(which).map_or(&[], |name| name.as_bytes())), error)
        })?;
        if self.json {
            let mut object = Map::new();
            object.insert("bytes_before".to_owned(), older.size().into());
            object.insert("bytes_after".to_owned(), newer.size().into());
            let pieces = PIECES.iter().zip(differing).map(|(size, bytes)| {
                let mut piece = Map::new();
                piece.insert("piece".to_owned(), (*size).into());
                piece.insert("differing_bytes".to_owned(), bytes.into());
                Value::Object(piece)
            });
            object.insert("pieces".to_owned(), pieces.collect());
            return Ok(json::print(console.out, object)?);
        }
        for (size, bytes) in PIECES.iter().zip(differing) {
            writeln!(console.out, "in pieces of {}: {} differ", human(*size as u64), human(bytes))?;
        }
        Ok(())
    }
}

/// Bytes in pieces of each size that differ from the same place of the older image; what the older one has not counts
/// where it is not zero.
fn differing([older, newer]: [&dyn Device; 2]) -> Result<[u64; 3], (usize, io::Error)> {
    let mut found = [0; 3];
    let (mut was, mut now) = (vec![0; PIECES[2]], vec![0; PIECES[2]]);
    let mut at = 0;
    while at < newer.size() {
        for (which, (device, buffer)) in [(older, &mut was), (newer, &mut now)].into_iter().enumerate() {
            buffer.fill(0);
            let len = usize::try_from(device.size().saturating_sub(at)).unwrap_or(usize::MAX);
            let len = len.min(buffer.len());
            if len > 0 {
                let read = device.read_at(at, buffer.get_mut(..len).unwrap_or_default());
                read.map_err(|error| (which, error))?;
            }
        }
        let len = usize::try_from(newer.size() - at).unwrap_or(usize::MAX).min(now.len());
        for (size, bytes) in PIECES.iter().zip(&mut found) {
            for start in (0..len).step_by(*size) {
                let end = len.min(start + size);
                *bytes += if was.get(start..end) == now.get(start..end) { 0 } else { (end - start) as u64 };
            }
        }
        at += len as u64;
    }
    Ok(found)
}

fn packing_of(out: &Path) -> Result<Packing, Failure> {
    let name = out.as_os_str().as_bytes();
    Packing::of_name(name).ok_or_else(|| {
        let what = "a layer's name ends in .tar, .tar.gz, .tgz, .tar.zst or .tzst";
        Failure::Usage(format!("{}: {what}", Shown(name)))
    })
}

fn aspects(change: &PathChange) -> Vec<&'static str> {
    match change {
        PathChange::Changed(aspects) => aspects.iter().copied().map(Aspect::name).collect(),
        PathChange::Added | PathChange::Removed => Vec::new(),
    }
}

fn print(console: &mut Console<'_>, changes: &[(Vec<u8>, PathChange)]) -> Result<(), Failure> {
    for (path, change) in changes {
        let mark = match change {
            PathChange::Added => '+',
            PathChange::Removed => '-',
            PathChange::Changed(_) => '~',
        };
        let path = [b"/", path.as_slice()].concat();
        let what = aspects(change);
        let what = if what.is_empty() { String::new() } else { format!(": {}", what.join(", ")) };
        writeln!(console.out, "{mark} {}{what}", Shown(&path))?;
    }
    Ok(())
}

fn print_json(console: &mut Console<'_>, changes: &[(Vec<u8>, PathChange)]) -> Result<(), Failure> {
    let mut array = json::Array::default();
    for (path, change) in changes {
        let mut object = Map::new();
        put_bytes(&mut object, "path", &[b"/", path.as_slice()].concat());
        let name = match change {
            PathChange::Added => "added",
            PathChange::Removed => "removed",
            PathChange::Changed(_) => "changed",
        };
        object.insert("change".to_owned(), name.into());
        object.insert("what".to_owned(), aspects(change).into());
        array.push(console.out, object)?;
    }
    Ok(array.end(console.out)?)
}
