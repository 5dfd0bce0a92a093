//! A volume that is mounted becomes larger or smaller, as its server does it.

use std::sync::Mutex;

use platfs::Volume;
use platfs::device::Device;
use platfs_reshape::resize::{
    ShrinkWork, Watch, grow_in_use, moves_in_use, shrink_in_use, size_in_use, smallest_in_use,
};

use super::protocol::{Request, flag};
use super::served::Served;
use crate::bulk::defrag::report;
use crate::bulk::{Done, Watcher};
use crate::refusal::Refusal;
use crate::sizes::Sizes;
use platfs_forensics::words::human;
use rustix::io::Errno;

/// Held while a volume gets another size, the end of its image included.
static RESIZING: Mutex<()> = Mutex::new(());

/// The program that asked: it hears how far the work is, and its end calls the work off.
struct Asking<'a>(&'a dyn Watcher);

impl Watch for Asking<'_> {
    fn goes_on(&self, copied: u64) -> bool {
        self.0.go_on(&Done { bytes: copied, ..Done::default() }).is_ok()
    }
}

/// Makes the image longer where that is asked for and possible, and then the volume, or the volume smaller and then the
/// image; the lines of a report.
pub(super) fn resize(
    served: &dyn Served,
    request: &Request,
    watcher: &dyn Watcher,
) -> Result<Vec<String>, Refusal> {
    let keeping =
        served.keeping().ok_or_else(|| Refusal::new(Errno::ROFS, "the mount is for reading only"))?;
    let alone = RESIZING.try_lock();
    let _alone =
        alone.map_err(|_| Refusal::new(Errno::BUSY, "the volume is being given another size already"))?;
    let volume = served.volume();
    let before = volume.format().geometry;
    let here = keeping.lengthen(None)?;
    let asked = match request.flags & flag::LEAST {
        0 => request.numbers.first().copied().filter(|bytes| *bytes > 0),
        _ => Some(least(volume)?),
    };
    let wanted = asked.unwrap_or(here);
    let after = size_in_use(volume, wanted).map_err(refused)?;
    let mut sizes = Sizes::of(&before, &after);
    if request.flags & flag::DRY_RUN != 0 {
        let left = moves_in_use(volume, wanted).map_err(refused)?;
        (sizes.blocks_moved, sizes.inodes_moved) = (left.blocks, left.inodes);
        return Ok(report::lines(&sizes.object(false)));
    }
    if after.blocks < before.blocks {
        let left = shrunk(volume, wanted, watcher)?;
        (sizes.blocks_moved, sizes.inodes_moved) = (left.blocks, left.inodes);
    } else {
        let zeros_from = room(&*keeping, here, sizes.bytes_after)?;
        grow_in_use(volume, wanted, zeros_from).map_err(refused)?;
    }
    if asked.is_some() && sizes.bytes_after <= sizes.bytes_before {
        keeping.shorten(sizes.bytes_after).map_err(|error| Refusal::from(error).at("cutting the image"))?;
    }
    Ok(report::lines(&sizes.object(before != after)))
}

/// The reason why a volume gets no other size.
pub(super) fn refused(error: platfs_reshape::Error) -> Refusal {
    use platfs_reshape::Error;
    let words = error.to_string();
    match error {
        Error::Volume(error) => platfs::Error::from(error).into(),
        Error::NoRun(_) | Error::NoRoom(_) => Refusal::new(Errno::NOSPC, words),
        Error::Refused(_) | Error::Usage(_) => Refusal::new(Errno::INVAL, words),
        _ => Refusal::new(Errno::IO, words),
    }
}

/// The bytes of the smallest size.
fn least(volume: &Volume) -> Result<u64, Refusal> {
    let least = smallest_in_use(volume).map_err(refused)?;
    Ok(least.blocks << least.block_size.log2())
}

fn shrunk(volume: &Volume, wanted: u64, watcher: &dyn Watcher) -> Result<ShrinkWork, Refusal> {
    let done = shrink_in_use(volume, wanted, &Asking(watcher));
    done.map(|(_, left)| left).map_err(refused)
}

/// Makes the device this long in bytes. What is added reads as zeros.
fn room(device: &dyn Device, here: u64, bytes: u64) -> Result<u64, Refusal> {
    if bytes <= here {
        return Ok(u64::MAX);
    }
    let grown = device.lengthen(Some(bytes));
    let grown = grown.map_err(|error| Refusal::from(error).at("making the image longer"))?;
    if grown < bytes {
        let (needed, there) = (human(bytes), human(grown));
        let why =
            format!("{needed} are needed, but the image has {there}, and is a part of a disk or a device");
        return Err(Refusal::new(Errno::NOSPC, why));
    }
    Ok(here)
}
