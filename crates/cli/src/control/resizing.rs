//! A volume that is mounted becomes larger, as its server does it.

use platfs::device::Device;
use platfs_reshape::resize::{grow_in_use, size_in_use};

use super::protocol::{Request, flag};
use super::served::Served;
use crate::bulk::defrag::report;
use crate::reshaping::Sizes;
use crate::size::human;

/// Makes the image longer where that is asked for and possible, and then the volume; the lines of a report.
pub(super) fn resize(served: &dyn Served, request: &Request) -> Result<Vec<String>, String> {
    let keeping = served.keeping().ok_or("the mount is for reading only")?;
    let volume = served.volume();
    let before = volume.format().geometry;
    let text = |error: std::io::Error| error.to_string();
    let here = keeping.lengthen(None).map_err(text)?;
    let wanted = request.numbers.first().copied().filter(|bytes| *bytes > 0).unwrap_or(here);
    let after = size_in_use(volume, wanted).map_err(|error| error.to_string())?;
    let sizes = Sizes::of(&before, &after);
    if request.flags & flag::DRY_RUN != 0 {
        return Ok(report::lines(&sizes.object(false)));
    }
    let zeros_from = room(&*keeping, here, sizes.bytes_after)?;
    grow_in_use(volume, wanted, zeros_from).map_err(|error| error.to_string())?;
    Ok(report::lines(&sizes.object(before != after)))
}

/// Makes the device this long in bytes. What is added reads as zeros.
fn room(device: &dyn Device, here: u64, bytes: u64) -> Result<u64, String> {
    if bytes <= here {
        return Ok(u64::MAX);
    }
    let grown = device.lengthen(Some(bytes)).map_err(|error| format!("making the image longer: {error}"))?;
    if grown < bytes {
        return Err(format!(
            "{} are needed, but the image has {}, and is a part of a disk or a device",
            human(bytes),
            human(grown)
        ));
    }
    Ok(here)
}
