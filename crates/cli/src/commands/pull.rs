//! `plat pull`: a volume of a store into a file.

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use platfs::device::Device;
use platfs_host::Privacy;
use platfs_store::Pieces;

use super::{cage, live};
use crate::bulk::Done;
use crate::console::{Console, Failure};
use crate::door::output::Output;
use crate::image;
use crate::locks::locked;
use crate::progress::{self, Step};
use crate::sandbox;
use crate::size::human;
use crate::stores;
use crate::text::Shown;

/// Bytes that are asked for at once: those of a chunk.
const STEP: u64 = 512 << 10;
/// Requests side by side.
const WORKERS: usize = 8;

/// Arguments of `plat pull`.
#[derive(Args, Debug)]
pub struct Pull {
    /// The volume: `file:///path#NAME`, `s3://bucket/prefix#NAME@SNAPSHOT`, `gs://...`, `az://...`.
    volume: OsString,
    /// The image that is made.
    out: PathBuf,
    /// Replaces a file that exists.
    #[arg(short, long)]
    force: bool,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

impl Pull {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        cage::reading(&[&self.volume], &[], Some(&self.out))
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        if !self.force && self.out.symlink_metadata().is_ok() {
            return Err(Failure::about(self.out.display(), "exists; `--force` replaces it"));
        }
        let failed = |error: std::io::Error| Failure::about(self.out.display(), error);
        let from = stores::open_read(&self.volume)
            .map_err(|error| Failure::about(image::shown(&self.volume), error))?;
        let output = Output::through(&self.out, from.size(), Privacy::Private).map_err(failed)?;
        let to: Arc<dyn Device> = Arc::new(output.device().map_err(failed)?);
        let bytes = copied(&from, &to).map_err(|(subject, error)| match subject {
            Side::Store => Failure::about(image::shown(&self.volume), error),
            Side::File => failed(error),
        })?;
        output.finish().map_err(failed)?;
        if !self.json {
            let out = Shown(self.out.as_os_str().as_encoded_bytes());
            let (size, bytes) = (human(from.size()), human(bytes));
            return Ok(writeln!(console.out, "{out}: {size}, {bytes} of it not zeros")?);
        }
        live::say(console, true, &Done { bytes, ..Done::default() })
    }
}

/// Whose failure it is.
enum Side {
    Store,
    File,
}

/// Copies everything that is not zeros; bytes of that.
fn copied(from: &Arc<dyn Device>, to: &Arc<dyn Device>) -> Result<u64, (Side, std::io::Error)> {
    let (pieces, copied, stop) = (Pieces::new(&**from, STEP), AtomicU64::new(0), AtomicBool::new(false));
    let failure = Mutex::new(None);
    let fail = |side, error| {
        stop.store(true, Ordering::Relaxed);
        locked(&failure).get_or_insert((side, error));
    };
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let Some(Range { start, end }) = pieces.take() else { return };
            let mut bytes = vec![0; usize::try_from(end - start).unwrap_or(0)];
            if let Err(error) = from.read_at(start, &mut bytes) {
                return fail(Side::Store, error);
            }
            // The file reads as zeros where nothing is written.
            if bytes.iter().any(|byte| *byte != 0) {
                if let Err(error) = to.write_at(start, &bytes) {
                    return fail(Side::File, error);
                }
                copied.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            let part = Some((end, from.size()));
            progress::show(Step { bytes: copied.load(Ordering::Relaxed), part, ..Step::default() });
        }
    };
    std::thread::scope(|scope| (0..WORKERS).for_each(|_| drop(scope.spawn(work))));
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(failure) => Err(failure),
        None => Ok(copied.into_inner()),
    }
}
