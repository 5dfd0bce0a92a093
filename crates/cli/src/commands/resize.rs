//! `plat resize`: another size for a volume, of an image or of a mount.

mod leaving;
mod partition;

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use clap::Args;
use ondisk::geometry::Geometry;
use ondisk::units::Block;
use platfs::device::Device;
use platfs_image::Free;
use platfs_reshape::resize::Plan;
use serde_json::{Map, Value, json};

use super::cage;
use super::{json, live};
use crate::console::{Console, Failure};
use crate::control::protocol::{Verb, flag};
use crate::image;
use crate::reading::{no_superblock, open_device, warn_of_writer};
use crate::reshaping::{self, Sized, Sizes};
use crate::sandbox;
use crate::size::{human, parse_free, parse_size};

/// Arguments of `plat resize`.
#[derive(Args, Debug)]
#[command(
    after_help = "What has to move is copied to free blocks first; the switch from the old volume to the new one is \
                  checked in memory, and taken back by the same command if it is cut off: docs/resize.md."
)]
pub struct Resize {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`; or a directory of a mount by `plat
    /// mount`, whose volume becomes larger or smaller while it is in use.
    image: OsString,
    /// The new size: a number of bytes, or with K, M, G or T; `+SIZE` and `-SIZE` change it by so much; or `auto+100M` or
    /// `auto+20%` of an image: what is in it, and so much that `df` shows as available. All that the file, partition or device
    /// has, if not given.
    #[arg(value_name = "SIZE", value_parser = parse_wanted, allow_hyphen_values = true)]
    size: Option<Wanted>,
    /// Make the volume as small as it can be.
    #[arg(long, short = 'M', conflicts_with = "size")]
    min: bool,
    /// Print how small the volume can be, and change nothing.
    #[arg(short = 'P', long = "print-min", conflicts_with = "size")]
    print_min: bool,
    /// First give the partition that IMAGE names the room behind it, up to the next one or to the end of the disk.
    #[arg(long, conflicts_with_all = ["min", "print_min"])]
    grow_partition: bool,
    /// Then let the partition that IMAGE names end behind its volume, and, if it is the last one, the file of the disk behind
    /// it.
    #[arg(long, conflicts_with_all = ["grow_partition", "print_min"])]
    shrink_partition: bool,
    /// Show what would be done, and change nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

/// A size that is asked for.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Exactly(u64),
    /// So much more than it has.
    More(u64),
    Less(u64),
    Free(Free),
}

fn parse_wanted(text: &str) -> Result<Wanted, String> {
    if text.starts_with("--") {
        return Err("is no size, and no option of this command".into());
    }
    if let Some(free) = parse_free(text) {
        return free.map(Wanted::Free);
    }
    match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(more), _) => parse_size(more).map(Wanted::More),
        (_, Some(less)) => parse_size(less).map(Wanted::Less),
        _ => parse_size(text).map(Wanted::Exactly),
    }
}

impl Wanted {
    /// The size in bytes that is wanted of a volume that has `has` bytes now.
    fn of(self, has: u64) -> Result<u64, Failure> {
        let wanted = match self {
            Wanted::Exactly(bytes) => Some(bytes),
            // Known when it is looked at what is in it.
            Wanted::Free(_) => Some(has),
            Wanted::More(bytes) => has.checked_add(bytes),
            Wanted::Less(bytes) => has.checked_sub(bytes),
        };
        wanted.ok_or_else(|| {
            Failure::Usage(format!("the volume has {has} bytes ({}): it can't become that", human(has)))
        })
    }
}

/// Bytes that the volume on a device has now.
fn size_of(name: &str, device: &dyn Device) -> Result<u64, Failure> {
    let raw = platfs::read_superblock(device)
        .map_err(|error| Failure::about(name, no_superblock(device, name, &error)))?;
    let geometry = Geometry::from_superblock(&raw).map_err(|error| reshaping::failed(name, &error.into()))?;
    Ok(geometry.byte_offset(Block(geometry.blocks)))
}

impl Resize {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        cage::reshaping(&self.image, None)
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let name = image::shown(&self.image).to_string();
        if live::is_directory(&self.image) {
            return self.live(console, &name);
        }
        if self.print_min {
            return self.print_least(console, &name);
        }
        if self.dry_run {
            let facts = self.planned(console, &name)?;
            let ends = self.ends(&facts, partition::planned)?;
            return self.tell(console, &name, &(facts, ends), false);
        }
        if self.shrink_partition {
            // Known before the volume changes.
            partition::refuse_others(&self.image, partition::Change::Shrink(0))?;
        }
        self.grow_partition(&name, console)?;
        let facts = self.change(console, &name)?;
        let ends = self.ends(&facts, partition::change)?;
        self.tell(console, &name, &(facts, ends), true)
    }

    /// Plans the change without making it.
    fn planned(&self, console: &mut Console<'_>, name: &str) -> Result<Sizes, Failure> {
        warn_of_writer(&self.image, console);
        let device = open_device(&self.image)?;
        let room = match self.grow_partition {
            true => partition::planned(&self.image, partition::Change::Grow)?.bytes,
            false => device.size(),
        };
        Ok(facts(&self.plan(name, &device, room)?))
    }

    /// Gives the volume its size, and its file if all of it is the image. All locks are free again then.
    fn change(&self, console: &mut Console<'_>, name: &str) -> Result<Sizes, Failure> {
        let sized = Sized::open(&self.image, console)?;
        let mut plan = self.plan(name, sized.device(), sized.room())?;
        let facts = facts(&plan);
        if !plan.is_empty() {
            judge(name, &mut plan)?;
        }
        let ready = sized.with_room(plan.size_bytes())?;
        if !plan.is_empty() {
            let drafted = plan.draft(Arc::clone(ready.held.device()), ready.had, &reshaping::limits());
            let change = match drafted {
                Ok(change) => change,
                Err(error) => {
                    ready.cut(ready.had)?;
                    return Err(reshaping::failed(name, &error));
                }
            };
            ready.held.write(&change, None)?;
        }
        if self.min || self.size.is_some() && facts.bytes_after <= facts.bytes_before {
            ready.cut(facts.bytes_after)?;
        }
        Ok(facts)
    }

    /// Where the partition ends then, if that was asked for.
    fn ends(
        &self,
        facts: &Sizes,
        change: impl Fn(&OsStr, partition::Change) -> Result<partition::Ends, Failure>,
    ) -> Result<Option<partition::Ends>, Failure> {
        let wanted = partition::Change::Shrink(facts.bytes_after);
        self.shrink_partition.then(|| change(&self.image, wanted)).transpose()
    }

    /// Has the server of a mount do it.
    fn live(&self, console: &mut Console<'_>, name: &str) -> Result<(), Failure> {
        if self.grow_partition || self.shrink_partition {
            return Err(Failure::Usage("partitions change while they are not mounted".into()));
        }
        let only_planned = self.dry_run || self.print_min;
        let mut flags = if only_planned { flag::DRY_RUN } else { 0 };
        flags |= if self.min || self.print_min { flag::LEAST } else { 0 };
        let size = self.size.map(|wanted| match wanted {
            Wanted::Exactly(bytes) => Ok(bytes),
            Wanted::Free(_) => {
                Err(Failure::Usage("what is to stay free is said of images, not of mounts".into()))
            }
            wanted => {
                // The server knows what its volume has now; the table of mounts has what somebody wrote there.
                let asked = live::Asked { verb: Verb::Resize, flags: flag::DRY_RUN, numbers: [0] };
                let now = Sizes::from_object(&live::ask_for_report(asked, &self.image)?);
                wanted.of(now.bytes_before)
            }
        });
        let numbers = [size.transpose()?.unwrap_or(0)];
        let asked = live::Asked { verb: Verb::Resize, flags, numbers };
        let report = live::ask_for_report(asked, &self.image)?;
        if self.print_min {
            let sizes = Sizes::from_object(&report);
            return self.tell_least(console, name, (sizes.blocks_after, sizes.block_size));
        }
        self.tell(console, name, &(Sizes::from_object(&report), None), !only_planned)
    }

    /// Lets the partition grow, if that was asked for and its volume can grow with it.
    fn grow_partition(&self, name: &str, console: &mut Console<'_>) -> Result<(), Failure> {
        if !self.grow_partition {
            return Ok(());
        }
        let room = partition::planned(&self.image, partition::Change::Grow)?.bytes;
        {
            let sized = Sized::open(&self.image, console)?;
            let mut plan = self.plan(name, sized.device(), room)?;
            if !plan.is_empty() {
                judge(name, &mut plan)?;
            }
        }
        // The locks are the table's now.
        partition::change(&self.image, partition::Change::Grow).map(drop)
    }

    fn plan(&self, name: &str, device: &Arc<dyn Device>, room: u64) -> Result<Plan, Failure> {
        use platfs_reshape::Error::{NoRoom, Refused};

        let has = size_of(name, &**device)?;
        let wanted = self.size.map(|wanted| wanted.of(has)).transpose()?;
        let planned = match (self.size, wanted) {
            _ if self.min => Plan::smallest(Arc::clone(device)),
            (Some(Wanted::Free(free)), _) => leaving::plan(device, free),
            (_, wanted) => Plan::new(Arc::clone(device), wanted.unwrap_or(room)),
        };
        let shrinks = wanted.is_some_and(|bytes| bytes < has);
        planned.map_err(|error| match reshaping::failed(name, &error) {
            // A volume that would be too small for its contents.
            Failure::Failed(trouble) if shrinks && matches!(error, Refused(_) | NoRoom(_)) => {
                Failure::Failed(trouble.and(format_args!("`plat resize -P {name}` says how small it can be")))
            }
            failure => failure,
        })
    }

    fn print_least(&self, console: &mut Console<'_>, name: &str) -> Result<(), Failure> {
        warn_of_writer(&self.image, console);
        let plan = Plan::smallest(open_device(&self.image)?);
        let plan = plan.map_err(|error| reshaping::failed(name, &error))?;
        let after = plan.after();
        self.tell_least(console, name, (after.blocks, u64::from(after.block_size.bytes())))
    }

    fn tell_least(
        &self,
        console: &mut Console<'_>,
        name: &str,
        (blocks, size): (u64, u64),
    ) -> Result<(), Failure> {
        let bytes = blocks * size;
        if self.json {
            let object = [("image", json!(name)), ("blocks", json!(blocks)), ("bytes", json!(bytes))];
            return print(console, object);
        }
        writeln!(
            console.out,
            "{name}: at least {blocks} blocks of {size} bytes: {bytes} bytes ({})",
            human(bytes)
        )?;
        Ok(())
    }

    fn tell(
        &self,
        console: &mut Console<'_>,
        name: &str,
        (facts, ends): &(Sizes, Option<partition::Ends>),
        done: bool,
    ) -> Result<(), Failure> {
        let same = facts.blocks_before == facts.blocks_after;
        if self.json {
            let mut object = Map::from_iter([("image".to_owned(), json!(name))]);
            object.extend(facts.object(done && !same));
            if let Some(ends) = ends {
                object.insert("partition_bytes".to_owned(), json!(ends.bytes));
                object.insert("disk_bytes".to_owned(), json!(ends.disk));
            }
            return Ok(json::print(console.out, object)?);
        }
        if done && console.is_quiet() {
            return Ok(());
        }
        let (after, bytes) = (facts.blocks_after, human(facts.bytes_after));
        if same {
            writeln!(
                console.out,
                "{name}: has {after} blocks of {} bytes already: {bytes}",
                facts.block_size
            )?;
            return self.tell_ends(console, ends.as_ref(), done);
        }
        let would = if done { "has now" } else { "would have" };
        writeln!(
            console.out,
            "{name}: {would} {after} blocks of {} bytes: {bytes} (before: {})",
            facts.block_size,
            human(facts.bytes_before)
        )?;
        if facts.blocks_moved > 0 || facts.inodes_moved > 0 {
            let moved = if done { "moved" } else { "would move" };
            writeln!(console.out, "{} blocks and {} inodes {moved}", facts.blocks_moved, facts.inodes_moved)?;
        }
        self.tell_ends(console, ends.as_ref(), done)
    }

    fn tell_ends(
        &self,
        console: &mut Console<'_>,
        ends: Option<&partition::Ends>,
        done: bool,
    ) -> Result<(), Failure> {
        let Some(ends) = ends else { return Ok(()) };
        let has = if done { "has now" } else { "would have" };
        Ok(writeln!(console.out, "the partition {has} {}, the disk {}", human(ends.bytes), human(ends.disk))?)
    }
}

/// Refuses a volume that is not sound, before anything is changed.
fn judge(name: &str, plan: &mut Plan) -> Result<(), Failure> {
    plan.judge(&reshaping::limits()).map_err(|error| reshaping::failed(name, &error))
}

/// Sizes that a plan leads to.
fn facts(plan: &Plan) -> Sizes {
    let inodes_moved = plan.inodes_moved() as u64;
    Sizes { blocks_moved: plan.blocks_moved(), inodes_moved, ..Sizes::of(plan.before(), plan.after()) }
}

fn print<const N: usize>(
    console: &mut Console<'_>,
    facts: [(&'static str, Value); N],
) -> Result<(), Failure> {
    let object: Map<String, Value> = facts.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    Ok(json::print(console.out, object)?)
}
