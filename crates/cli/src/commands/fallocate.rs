//! `plat fallocate`: the space of a range of a file, in an image or in a mount.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use platfs::Allocate;
use platfs_host::path;
use rustix::fs::{FallocateFlags as Flags, OFlags};

use super::cage;
use crate::console::{Console, Failure};
use crate::larger;
use crate::mount::moving;
use crate::sandbox;
use crate::size::parse_size;
use crate::text::Shown;
use crate::writing::{self, Target};

/// Arguments of `plat fallocate`.
#[derive(Args, Debug)]
pub struct Fallocate {
    #[command(flatten)]
    image: Target,
    /// The file in the image. Without it the first name is that of a file, of a mount or elsewhere.
    path: Option<OsString>,
    /// Where the range begins.
    #[arg(short, long, value_name = "BYTES", default_value = "0", value_parser = parse_size)]
    offset: u64,
    /// How long it is.
    #[arg(short, long, value_name = "BYTES", value_parser = parse_size)]
    length: u64,
    /// Takes the range out: what is behind it moves forward.
    #[arg(short, long, group = "mode", conflicts_with = "keep_size")]
    collapse_range: bool,
    /// Puts a hole in: what is behind the offset moves back.
    #[arg(short, long, group = "mode", conflicts_with = "keep_size")]
    insert_range: bool,
    /// Makes a hole of the range. The file keeps its size.
    #[arg(short, long, group = "mode")]
    punch_hole: bool,
    /// Makes the range zeros that have space.
    #[arg(short, long, group = "mode")]
    zero_range: bool,
    /// The file does not grow.
    #[arg(long, short_alias = 'n')]
    keep_size: bool,
}

impl Fallocate {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        // Without a path it is a file of the host.
        self.path.as_ref().and_then(|_| cage::changing(self.image.name()))
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        match &self.path {
            None => self.of_file(self.image.name()),
            Some(path) => writing::change(&self.image, console, |image, _| {
                let inode = image.find(path, true)?;
                let done = image.volume.allocate(inode, self.mode(), self.offset, self.length);
                let failed = |error| image.failure(path.as_bytes(), &error);
                done.map_err(|error| larger::remedied(failed(error), self.image.name(), || self.length))
            }),
        }
    }

    fn mode(&self) -> Allocate {
        match (self.collapse_range, self.insert_range, self.punch_hole, self.zero_range) {
            (true, ..) => Allocate::CollapseRange,
            (_, true, ..) => Allocate::InsertRange,
            (_, _, true, _) => Allocate::PunchHole,
            (_, _, _, true) if self.keep_size => Allocate::ZeroRangeKeepSize,
            (_, _, _, true) => Allocate::ZeroRange,
            _ if self.keep_size => Allocate::KeepSize,
            _ => Allocate::Extend,
        }
    }

    fn of_file(&self, name: &OsStr) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::about(Shown(name.as_bytes()), error);
        let file = path::open(name, OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY).map_err(failed)?;
        let plain = |flags| Ok(rustix::fs::fallocate(&file, flags, self.offset, self.length)?);
        let done = match self.mode() {
            Allocate::CollapseRange => moving::shift(&file, false, self.offset, self.length),
            Allocate::InsertRange => moving::shift(&file, true, self.offset, self.length),
            Allocate::PunchHole => plain(Flags::PUNCH_HOLE | Flags::KEEP_SIZE),
            Allocate::ZeroRange => plain(Flags::ZERO_RANGE),
            Allocate::ZeroRangeKeepSize => plain(Flags::ZERO_RANGE | Flags::KEEP_SIZE),
            Allocate::KeepSize => plain(Flags::KEEP_SIZE),
            Allocate::Extend => plain(Flags::empty()),
        };
        done.map_err(failed)
    }
}
