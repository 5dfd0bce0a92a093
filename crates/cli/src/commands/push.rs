//! `plat push`: an image into a store.

use std::ffi::OsString;

use clap::Args;
use platfs::device::Device;
use platfs_forensics::{RawImage, used};
use platfs_store::{Push as Pushing, Pushed, push};
use serde_json::{Map, Value};
use std::sync::Arc;

use super::{cage, json};
use crate::console::{Console, Failure};
use crate::door;
use crate::image;
use crate::progress::{self, Step};
use crate::reading::open_device;
use crate::sandbox;
use crate::size::human;
use crate::stores;

/// Arguments of `plat push`.
#[derive(Args, Debug)]
pub struct Push {
    /// The image: a file, a block device, `disk.img@part1`, or a volume of a store.
    image: OsString,
    /// Where it goes: `file:///path#NAME`, `s3://bucket/prefix#NAME`, `gs://...`, `az://...`.
    to: OsString,
    /// Replaces a volume of that name.
    #[arg(short, long)]
    force: bool,
    /// Reads what is in the store already, and sends again what is damaged or gone. Replaces a volume of that name.
    #[arg(long)]
    repair: bool,
    /// Takes blocks along that are free.
    #[arg(long)]
    all: bool,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

impl Push {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        let plan = cage::reading(&[&self.image], &[], None)?;
        // The store's directory is made before the cage closes. A push that has nothing to send begins no store.
        if stores::is_meant(&self.image) || platfs_host::path::is_there(&self.image) {
            stores::begin(&self.to);
        }
        Some(cage::with_image(plan, &self.to, true))
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let name = image::shown(&self.image).to_string();
        let failed = |error| Failure::about(image::shown(&self.to), error);
        let _shared = door::share(&self.image).map_err(|error| Failure::about(&name, error))?;
        let device = open_device(&self.image)?;
        let address = stores::address(&self.to).map_err(failed)?;
        let volume = address.volume().map_err(failed)?;
        let store = stores::store(&address).map_err(failed)?;
        let only = if self.all { None } else { in_use(&device) };
        let watch = |now: &Pushed| {
            progress::show(Step { bytes: now.size, ..Step::default() });
            Ok(())
        };
        let how = Pushing { force: self.force, repair: self.repair, only, watch: Some(&watch) };
        let done = push(&store, &*device, volume, &how).map_err(|error| {
            let subject = image::shown(&self.to);
            match error {
                platfs_store::Error::Exists(_) => {
                    Failure::exists(subject, format_args!("{error}; `--force` replaces it"))
                }
                error => Failure::about(subject, error),
            }
        })?;
        self.say(console, &done)
    }

    fn say(&self, console: &mut Console<'_>, done: &Pushed) -> Result<(), Failure> {
        if !self.json {
            let to = image::shown(&self.to);
            let (size, new, sent) = (human(done.size), human(done.new_bytes), human(done.sent_bytes));
            let (all, chunks) = (done.chunks, done.new_chunks);
            return Ok(writeln!(
                console.summary(),
                "{to}: {size}, {all} chunks; {chunks} of them new with {new}, {sent} sent"
            )?);
        }
        let mut object = Map::new();
        for (name, count) in [
            ("size", done.size),
            ("chunks", done.chunks),
            ("new_chunks", done.new_chunks),
            ("new_bytes", done.new_bytes),
            ("sent_bytes", done.sent_bytes),
        ] {
            object.insert(name.to_owned(), Value::from(count));
        }
        Ok(json::print(console.out, object)?)
    }
}

/// The bytes that are in use, if this is a volume whose bitmaps can be read.
fn in_use(device: &Arc<dyn Device>) -> Option<Vec<std::ops::Range<u64>>> {
    // What waits in the journal says what is in use.
    let (after, _) = platfs::journal::replayed(Arc::clone(device)).ok()?;
    used::ranges(&RawImage::open(after).ok()?).ok()
}
