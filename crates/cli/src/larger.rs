//! Remedy of a full volume: the command that makes it larger, by as much as the work needs.
//!
//! Owns: this command line, and how many bytes the work needs. Excludes what is full, which the error says, and growing
//! itself.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use platfs_host::{Entry, Kind, Opened, Visitor, named, path, walk};

use crate::console::{Failure, Lack};
use crate::image::{self, Part};
use crate::stores;
use crate::text::Shown;

const MIB: u64 = 1 << 20;
/// Bytes of a group with blocks of 4 KiB: only another group brings more inodes.
const GROUP: u64 = 128 * MIB;

/// Adds the remedy to a failure of a full volume. `image` names it, or a directory of its mount; `needs` are bytes that the
/// work brings.
#[must_use]
pub fn remedied(failure: Failure, image: &OsStr, needs: impl FnOnce() -> u64) -> Failure {
    match failure {
        Failure::Failed(trouble) => Failure::Failed(match trouble.lacks() {
            Some(lack) => trouble.remedied(command(image, more(lack, needs()))),
            None => trouble,
        }),
        other => other,
    }
}

/// Growth in MiB, with room for the tables of the new groups.
fn more(lack: Lack, needs: u64) -> u64 {
    let tables = needs / 4 + 2 * MIB;
    // An inode for each 16 KiB is what mke2fs makes; a file counts as no less than 4 KiB here.
    let least = if lack == Lack::Inodes { needs.saturating_mul(3).saturating_add(GROUP) } else { 0 };
    needs.saturating_add(tables).saturating_add(least).div_ceil(MIB)
}

fn command(name: &OsStr, more: u64) -> String {
    let shown = Shown(name.as_bytes());
    if stores::is_meant(name) {
        return format!("`plat pull`, `plat resize FILE +{more}M` and `plat push` make {shown} larger");
    }
    let spec = image::parse(name);
    let is_device = path::facts(&spec.path).is_ok_and(|facts| facts.kind == Kind::BlockDevice);
    let file = Shown(spec.path.as_os_str().as_bytes());
    match (spec.part, is_device) {
        (Part::Whole | Part::From(_), true) => {
            format!("`plat resize {shown}` takes what the device has behind the volume")
        }
        (Part::Whole, false) => format!("`plat resize {shown} +{more}M` makes the volume larger"),
        (Part::From(_), false) => {
            format!("`truncate -s +{more}M {file} && plat resize {shown}` makes the volume larger")
        }
        (_, true) => {
            format!("growpart or parted makes the partition larger, `plat resize {shown}` then the volume")
        }
        (_, false) => {
            format!("`plat resize --grow-partition {shown}` takes what is free behind the partition")
        }
    }
}

/// The directory above a path in a mount, which stands for the mount.
#[must_use]
pub fn mount_of(path: &OsStr) -> &OsStr {
    if path::is_directory(path) {
        return path;
    }
    let above = Path::new(path).parent().filter(|above| !above.as_os_str().is_empty());
    above.unwrap_or(Path::new(".")).as_os_str()
}

/// The bytes of a file of the host, or of all files of a tree, as far as it can be read.
#[must_use]
pub fn bytes_of(source: &OsStr) -> u64 {
    let mut sum = Sum(0);
    if let Ok(found) = named(Path::new(source)) {
        // What can't be read was not copied either.
        let _ = walk(Path::new(source), found, &mut sum);
    }
    sum.0
}

struct Sum(u64);

impl Visitor for Sum {
    type Failure = std::convert::Infallible;

    fn failed(&mut self, _: &Path, _: std::io::Error) -> Result<(), Self::Failure> {
        Ok(())
    }

    fn visit(&mut self, entry: &Entry<'_>, _: &Opened) -> Result<(), Self::Failure> {
        let facts = &entry.facts;
        let data =
            if facts.kind == Kind::File { facts.size.min(facts.blocks.saturating_mul(512)) } else { 0 };
        // Each file has an inode, and a part of a block is a whole one.
        self.0 = self.0.saturating_add(data.saturating_add(4096));
        Ok(())
    }

    fn leave(&mut self, _: &Entry<'_>) -> Result<(), Self::Failure> {
        Ok(())
    }
}
