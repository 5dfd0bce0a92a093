//! `plat pull`: a volume of a store into a file.
//!
//! Owns: how much it may become. A store can say that all of a large volume is one chunk, of a few bytes as it is there: what
//! is written is bounded by what was read for it, as with archives, unless the user says how much it may be.

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use platfs::device::Device;
use platfs_host::Privacy;
use platfs_store::{Pieces, Stored};

use super::replaced::{Becomes, may_replace};
use super::{cage, live};
use crate::bulk::Done;
use crate::console::{Console, Failure};
use crate::door::output::Output;
use crate::image;
use crate::locks::locked;
use crate::progress::{self, Step};
use crate::sandbox;
use crate::size::{human, parse_size};
use crate::stores;
use crate::text::Shown;

/// Bytes that are asked for at once: those of a chunk.
const STEP: u64 = 512 << 10;
/// Requests side by side.
const WORKERS: usize = 8;
/// Bytes that are written whatever they were in the store, and times the bytes of the store's objects: no real volume comes
/// near.
const FREE: u64 = 1 << 30;
const RATIO: u64 = 250;

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
    /// The most bytes that the volume may have, in the place of a bound for what it becomes: 1 GiB, or 250 times the bytes
    /// of its objects in the store.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_size: Option<u64>,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

impl Pull {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        cage::reading(&[&self.volume], &[], Some(&self.out))
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        may_replace(&self.out, Becomes::Image, self.force)?;
        let failed = |error: std::io::Error| Failure::about(self.out.display(), error);
        let volume = || image::shown(&self.volume);
        let from = stores::open_stored(&self.volume).map_err(|error| Failure::about(volume(), error))?;
        if let Some(most) = self.max_size.filter(|most| from.size() > *most) {
            let (size, most) = (human(from.size()), human(most));
            return Err(Failure::about(volume(), format!("has {size}, more than --max-size={most}")));
        }
        let output = Output::through(&self.out, from.size(), Privacy::Private).map_err(failed)?;
        let to: Arc<dyn Device> = Arc::new(output.device().map_err(failed)?);
        let free = if self.max_size.is_some() { u64::MAX } else { FREE };
        let bytes = copied(&from, &to, free).map_err(|(subject, error)| match subject {
            Side::Store => Failure::about(volume(), error),
            Side::File => failed(error),
        })?;
        output.finish().map_err(failed)?;
        if !self.json {
            let out = Shown(self.out.as_os_str().as_encoded_bytes());
            let (size, bytes) = (human(from.size()), human(bytes));
            return Ok(writeln!(console.summary(), "{out}: {size}, {bytes} of it not zeros")?);
        }
        live::say(console, true, &Done { bytes, ..Done::default() })
    }
}

/// Whose failure it is.
enum Side {
    Store,
    File,
}

/// Refuses more than the store's objects can be, or `free` bytes.
fn within(written: u64, from: &Stored, free: u64) -> std::io::Result<()> {
    let most = free.max(from.taken().saturating_mul(RATIO));
    if written <= most {
        return Ok(());
    }
    let why = format!(
        "becomes more than {} of {} in the store, {RATIO} times as much; if it is so large, `--max-size` takes it",
        human(most),
        human(from.taken())
    );
    Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, why))
}

/// Copies everything that is not zeros; bytes of that.
fn copied(from: &Stored, to: &Arc<dyn Device>, free: u64) -> Result<u64, (Side, std::io::Error)> {
    let (pieces, copied, stop) = (Pieces::new(from, STEP), AtomicU64::new(0), AtomicBool::new(false));
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
                let written = copied.load(Ordering::Relaxed) + bytes.len() as u64;
                if let Err(error) = within(written, from, free) {
                    return fail(Side::Store, error);
                }
                if let Err(error) = to.write_at(start, &bytes) {
                    return fail(Side::File, error);
                }
                copied.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            let part = Some((end, from.size()));
            progress::show(Step { bytes: copied.load(Ordering::Relaxed), part, ..Step::default() });
        }
    };
    std::thread::scope(|scope| {
        // Without a thread the others do its work.
        (1..WORKERS).for_each(|_| drop(std::thread::Builder::new().spawn_scoped(scope, work)));
        work();
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(failure) => Err(failure),
        None => Ok(copied.into_inner()),
    }
}

#[cfg(test)]
mod tests {
    use platfs::device::MemoryDevice;
    use platfs_store::objects::{Memory, Patience};
    use platfs_store::{Push, Store, push};

    use super::*;

    #[test]
    fn what_a_store_says_that_a_chunk_becomes_is_bounded() {
        let store = Arc::new(Store::new(Arc::new(Memory::new()), Patience::default(), None));
        let device = MemoryDevice::new(64 << 20);
        device.write_at(0, &vec![7; 64 << 20]).unwrap();
        push(&store, &device, "one", &Push::default()).unwrap();
        let pulled = |free| {
            let to: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
            copied(&Stored::open(&store, "one").unwrap(), &to, free)
        };
        let said = match pulled(1 << 20) {
            Err((Side::Store, said)) => said.to_string(),
            _ => panic!("it was taken"),
        };
        assert!(said.contains("1.0 MiB") && said.contains("--max-size"), "{said}");
        assert!(pulled(64 << 20).is_ok_and(|bytes| bytes == 64 << 20));
    }
}
