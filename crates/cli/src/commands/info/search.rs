//! `plat info --search`: volumes anywhere on a disk, with the names by which commands take them.

use std::ffi::OsStr;

use platfs::device::{Device, FoundVolume, search};
use platfs_forensics::words;
use serde_json::{Value, json};

use crate::console::{Console, Failure};
use crate::image;
use crate::progress::{self, Step};
use crate::size::human;
use crate::text::Shown;

/// Searches a disk, and prints what is found.
pub(super) fn run(
    console: &mut Console<'_>,
    name: &OsStr,
    disk: &dyn Device,
    as_json: bool,
) -> Result<(), Failure> {
    let shown = image::shown(name).to_string();
    let alive = |bytes| {
        progress::show(Step { what: "searching", files: 0, bytes, part: Some((bytes, disk.size())) });
        Ok(())
    };
    let found = search(disk, alive).map_err(|error| Failure::about(&shown, error))?;
    if as_json {
        let all: Vec<Value> = found.iter().map(fact).collect();
        writeln!(console.out, "{}", Value::Array(all))?;
    } else {
        found.iter().try_for_each(|one| writeln!(console.out, "{}", line(&shown, one)))?;
    }
    match found.is_empty() {
        true => Err(Failure::about(
            shown,
            "no superblock of ext2, ext3 or ext4 is on it, at no multiple of 512 bytes",
        )),
        false => Ok(()),
    }
}

fn fact(one: &FoundVolume) -> Value {
    json!({
        "offset": one.start, "bytes": one.size, "group": one.group, "inside": one.inside,
        "label": String::from_utf8_lossy(one.superblock.label()), "uuid": words::uuid(&one.superblock.s_uuid),
    })
}

fn line(shown: &str, one: &FoundVolume) -> String {
    let label = Shown(one.superblock.label());
    let mut text =
        format!("{shown}@{}: {}, UUID {}", one.start, human(one.size), words::uuid(&one.superblock.s_uuid));
    if !one.superblock.label().is_empty() {
        text += &format!(", label {label}");
    }
    if one.group > 0 {
        text += &format!(
            "; only the copy of the superblock in group {} is there: `plat check` repairs with it",
            one.group
        );
    }
    if let Some(start) = one.inside {
        text += &format!("; inside the volume at {start}");
    }
    text
}
