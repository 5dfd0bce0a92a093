//! Where single files lie: the extents of each, from an image or from a mount.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;

use ondisk::inode::InodeFlags;
use platfs_host::{Kind, path};
use rustix::fs::OFlags;
use serde_json::{Map as Object, Value};

use super::super::json::Array;
use super::super::runs::{self, Run, Runs};
use crate::console::{Console, Failure};
use crate::mount::places;
use crate::reading::OpenImage;
use crate::text::{Shown, put_bytes};

/// Where a file lies.
struct Extents {
    size: u64,
    block_size: u32,
    /// The contents are in the inode.
    inside: bool,
    runs: Vec<Run>,
}

/// Returns true if a name is that of a file in a mount, and no image itself.
pub(super) fn is_in_mount(name: &OsStr) -> bool {
    let Ok(file) = open(name) else { return false };
    places::knows(&file)
        && crate::reading::open_device(name).is_ok_and(|device| platfs::read_superblock(&*device).is_err())
}

/// Shows the extents of files: those of a mount if the first name is one of it, else of the image that it names.
pub(super) fn show(
    first: &OsStr,
    paths: &[OsString],
    as_json: bool,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let mut out = Printer { array: as_json.then(Array::default) };
    if open(first).is_ok_and(|file| places::knows(&file)) {
        for path in std::iter::once(first).chain(paths.iter().map(OsString::as_os_str)) {
            out.one(console, path, of_mount(path))?;
        }
        return out.end(console);
    }
    if paths.is_empty() {
        let what = "name a file of a mount by `plat mount`, or an image and paths in it";
        return Err(Failure::Usage(format!("{}: {what}", Shown(first.as_bytes()))));
    }
    let image = OpenImage::open(first, console)?;
    for path in paths {
        out.one(console, path, of_image(&image, path))?;
    }
    out.end(console)
}

/// Opens a file or directory to ask about it. Nothing else has extents, and opening it could wait or act.
fn open(path: &OsStr) -> Result<File, String> {
    let found = path::facts(path).map_err(|error| error.to_string())?;
    if !matches!(found.kind, Kind::File | Kind::Directory) {
        return Err("neither a file nor a directory".to_owned());
    }
    let opened = path::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY);
    opened.map_err(|error| error.to_string())
}

fn of_mount(path: &OsStr) -> Result<Extents, Failure> {
    let failed = |what: String| Failure::about(Shown(path.as_bytes()), what);
    let file = open(path).map_err(failed)?;
    // What was written gets its place by that.
    file.sync_all().map_err(|error| failed(error.to_string()))?;
    let part = places::of(&file).map_err(failed)?;
    let runs = runs::joined(part.places.into_iter().map(Run::from));
    Ok(Extents { size: part.size, block_size: part.block_size, inside: part.inside, runs })
}

fn of_image(image: &OpenImage, path: &OsStr) -> Result<Extents, Failure> {
    let inode = image.find(path, true)?;
    let volume = &image.volume;
    let found = volume.metadata(inode).and_then(|facts| {
        let runs = Runs::of(volume, inode)?.collect::<platfs::Result<_>>()?;
        let inside = facts.flags.contains(InodeFlags::INLINE_DATA);
        let block_size = volume.format().geometry.block_size.bytes();
        Ok(Extents { size: facts.size, block_size, inside, runs })
    });
    found.map_err(|error| image.failure(path.as_bytes(), &error))
}

/// Printer of one file after the other. Files that can't be had are complained about, and the others go on.
struct Printer {
    array: Option<Array>,
}

impl Printer {
    fn one(
        &mut self,
        console: &mut Console<'_>,
        path: &OsStr,
        found: Result<Extents, Failure>,
    ) -> Result<(), Failure> {
        let extents = match found {
            Ok(extents) => extents,
            Err(failure) => return console.complain(failure),
        };
        match &mut self.array {
            Some(array) => Ok(array.push(console.out, object(path, &extents))?),
            None => text(console, path, &extents),
        }
    }

    fn end(self, console: &mut Console<'_>) -> Result<(), Failure> {
        Ok(self.array.map_or(Ok(()), |array| array.end(console.out))?)
    }
}

fn text(console: &mut Console<'_>, path: &OsStr, extents: &Extents) -> Result<(), Failure> {
    let Extents { size, block_size, inside, runs } = extents;
    let count = runs.len();
    let plural = if count == 1 { "" } else { "s" };
    let place = if *inside { ", in its inode" } else { "" };
    let path = Shown(path.as_bytes());
    writeln!(
        console.out,
        "{path}: {size} bytes{place}, {count} extent{plural} of blocks of {block_size} bytes"
    )?;
    if count > 0 {
        writeln!(console.out, "{}", runs::HEADING)?;
    }
    for run in runs {
        writeln!(console.out, "{}", runs::line(run))?;
    }
    Ok(())
}

fn object(path: &OsStr, extents: &Extents) -> Object<String, Value> {
    let mut object = Object::new();
    put_bytes(&mut object, "path", path.as_bytes());
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("size", extents.size.into());
    put("block_size", extents.block_size.into());
    put("inline", extents.inside.into());
    put("runs", extents.runs.iter().map(runs::object).collect::<Vec<_>>().into());
    object
}
