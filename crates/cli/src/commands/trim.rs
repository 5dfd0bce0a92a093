//! `plat trim`: gives free space back: holes in the file of an image, discards for a block device, and the same of a
//! mount through its server.

use std::ffi::OsStr;
use std::path::Path;

use clap::Args;
use ondisk::geometry::Geometry;
use ondisk::units::{Block, Group};
use serde_json::{Map, Value};

use super::cage;
use super::json;
use crate::console::{Console, Failure};
use crate::free_runs;
use crate::mount::trimming;
use crate::reading::OpenImage;
use crate::sandbox;
use crate::size::{human, parse_size};
use crate::text::Shown;
use crate::writing::{self, Target};

/// Arguments of `plat trim`.
#[derive(Args, Debug)]
pub struct Trim {
    #[command(flatten)]
    image: Target,
    /// The first byte of the volume that is looked at.
    #[arg(short, long, value_name = "BYTES", default_value = "0", value_parser = parse_size)]
    offset: u64,
    /// How many bytes are looked at [default: all].
    #[arg(short, long, value_name = "BYTES", value_parser = parse_size)]
    length: Option<u64>,
    /// Shorter free runs are left alone.
    #[arg(short, long, value_name = "BYTES", default_value = "0", value_parser = parse_size)]
    min_extent: u64,
    /// Says how much is free in such runs, and changes nothing. Of an image only.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

impl Trim {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        cage::changing(self.image.name())
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let name = self.image.name();
        let end = self.offset.saturating_add(self.length.unwrap_or(u64::MAX));
        if platfs_host::path::is_directory(name) {
            return self.of_mount(name, end, console);
        }
        if self.dry_run {
            let image = OpenImage::open(name, console)?;
            let free = self.free(&image, end).map_err(|error| image.whole(&error))?;
            return self.say(console, &image.name, free);
        }
        let mut trimmed = 0;
        let mut shown = String::new();
        writing::change(&self.image, console, |image, _| {
            let done = image.volume.trim(self.offset..end, self.min_extent);
            trimmed = done.map_err(|error| image.whole(&error))?;
            shown.clone_from(&image.name);
            Ok(())
        })?;
        self.say(console, &shown, trimmed)
    }

    fn of_mount(&self, name: &OsStr, end: u64, console: &mut Console<'_>) -> Result<(), Failure> {
        use std::os::unix::ffi::OsStrExt;
        let shown = Shown(name.as_bytes()).to_string();
        if self.dry_run {
            return Err(Failure::Usage(format!("{shown}: only an image can be asked what would be done")));
        }
        let done = trimming::trim(Path::new(name), self.offset..end, self.min_extent);
        self.say(console, &shown, done.map_err(|error| Failure::about(&shown, error))?)
    }

    fn say(&self, console: &mut Console<'_>, name: &str, bytes: u64) -> Result<(), Failure> {
        if self.json {
            let mut object = Map::new();
            object.insert("bytes".to_owned(), bytes.into());
            object.insert("written".to_owned(), Value::Bool(!self.dry_run));
            return Ok(json::print(console.out, object)?);
        }
        let what = if self.dry_run { "free in such runs" } else { "trimmed" };
        Ok(writeln!(console.out, "{name}: {} ({bytes} bytes) {what}", human(bytes))?)
    }

    /// Bytes that are free in runs that would be discarded.
    fn free(&self, image: &OpenImage, end: u64) -> platfs::Result<u64> {
        let geometry = image.volume.format().geometry;
        let size = geometry.block_size.log2();
        let range = (self.offset.div_ceil(1 << size), end >> size);
        let min = self.min_extent.div_ceil(1 << (size + geometry.cluster_log2)).max(1);
        let mut blocks = 0;
        free_runs::figures(&image.volume, |group, bitmap| {
            blocks += free_blocks(&geometry, group, bitmap, range, min);
        })?;
        Ok(blocks << size)
    }
}

/// Blocks of free runs of at least `min` clusters of a group, of which only those in a range of blocks count.
fn free_blocks(geometry: &Geometry, group: Group, bitmap: &[u8], range: (u64, u64), min: u64) -> u64 {
    let first = geometry.cluster_of(geometry.group_start(group)).0;
    let inside = |bit: u32| {
        let start = geometry.cluster_start(ondisk::units::Cluster(first + u64::from(bit)));
        let len = u64::from(geometry.blocks_per_cluster()).min(geometry.blocks.saturating_sub(start.0));
        let is_free = bitmap.get(bit as usize / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 0);
        (is_free && start >= Block(range.0) && start.0 + len <= range.1).then_some(len)
    };
    let (mut all, mut run, mut clusters) = (0, 0, 0);
    for bit in 0..=geometry.group_clusters(group) {
        match inside(bit).filter(|_| bit < geometry.group_clusters(group)) {
            Some(len) => (run, clusters) = (run + len, clusters + 1),
            None => {
                all += if clusters >= min { run } else { 0 };
                (run, clusters) = (0, 0);
            }
        }
    }
    all
}
