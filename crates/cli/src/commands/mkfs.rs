//! `plat mkfs IMAGE [SIZE]`: a new, empty volume, with mke2fs's options.

mod target;

use std::ffi::{OsStr, OsString};

use clap::Args;
use platfs::mkfs::{JournalDevice, Plan, Storage};
use platfs::ondisk::superblock::RawSuperblock;

use super::{cage, json};
use crate::console::{Console, Failure};
use crate::format::{self, Format, FormatArgs};
use crate::image::shown;
use crate::sandbox;
use crate::text::uuid;
use target::Target;

/// Arguments of `plat mkfs`.
#[derive(Args, Debug)]
#[command(after_help = format::ENVIRONMENT)]
pub struct Mkfs {
    /// The image: a file (made if it is missing), a block device, `disk.img@part1` or `disk.img@OFFSET`.
    image: OsString,
    /// Size, with K, M, G or T; a plain number is in KiB, or in blocks with -b. May be left out where the
    /// target has a size.
    size: Option<String>,
    #[command(flatten)]
    format: FormatArgs,
    /// Write over what is there.
    #[arg(short, long, visible_short_alias = 'F')]
    force: bool,
    /// Show what would be made, and make nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print more.
    #[arg(short, long)]
    verbose: bool,
    /// Print the facts as JSON.
    #[arg(long)]
    json: bool,
    /// Ask for direct I/O (mke2fs); writes here are few and large, so that it makes no difference.
    #[arg(short = 'D', hide = true)]
    direct: bool,
    #[arg(short = 'd', hide = true)]
    source: Option<OsString>,
}

/// A volume or a journal device, planned.
enum Planned {
    Volume(Box<Plan>),
    Journal(Box<JournalDevice>),
}

impl Planned {
    fn new(format: &Format, bytes: u64) -> Result<Self, platfs::Error> {
        if JournalDevice::is_meant_by(&format.options)? {
            return Ok(Planned::Journal(Box::new(JournalDevice::new(&format.options, bytes)?)));
        }
        Ok(Planned::Volume(Box::new(Plan::new(&format.options, bytes)?)))
    }

    fn write(&self, device: &dyn platfs::device::Device) -> Result<(), platfs::Error> {
        match self {
            Planned::Volume(plan) => plan.write(device),
            Planned::Journal(journal) => journal.write(device),
        }
    }
}

impl Mkfs {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        Some(cage::making(&self.image))
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        if let Some(source) = &self.source {
            let (source, image) = (shown(source), shown(&self.image));
            return Err(Failure::Usage(format!("-d copies files: use `plat build {source} {image}`")));
        }
        self.format.check()?;
        let mut format = self.format.parse()?;
        format.identify()?;
        let size = self.size.as_deref().map(|text| self.format.size(text)).transpose()?;
        let target = Target::find(&self.image, size, format.offset, self.force)?;
        format.options.storage = if format.prezeroed { Storage::Zeroed } else { target.storage() };
        format.options.mmp_names = (node_name(), file_name(&self.image));
        let failed = |error: platfs::Error| match error {
            platfs::Error::BadOption { .. } => Failure::Usage(error.to_string()),
            error => Failure::about(shown(&self.image), explained(&error)),
        };
        let planned = Planned::new(&format, target.size()).map_err(failed)?;
        if let Planned::Volume(plan) = &planned {
            for note in plan.notes() {
                console.warn(format!("{}: {note}", shown(&self.image)));
            }
        }
        if !self.dry_run {
            target.write(|device| planned.write(device).map_err(failed))?;
        }
        self.report(&planned, console)
    }

    fn report(&self, planned: &Planned, console: &mut Console<'_>) -> Result<(), Failure> {
        match planned {
            _ if console.is_quiet() && !self.dry_run && !self.json => {}
            Planned::Volume(plan) if self.json => json::print(console.out, as_json(plan, self.dry_run))?,
            Planned::Volume(plan) => console.out.write_all(self.as_text(plan).as_bytes())?,
            Planned::Journal(journal) if self.json => {
                let (written, bytes) = (!self.dry_run, journal.size_bytes());
                let facts =
                    serde_json::json!({ "written": written, "size_bytes": bytes, "journal_device": true });
                json::print(console.out, facts)?;
            }
            Planned::Journal(journal) => {
                writeln!(
                    console.out,
                    "{}: journal device of {} bytes",
                    shown(&self.image),
                    journal.size_bytes()
                )?;
            }
        }
        Ok(())
    }

    fn as_text(&self, plan: &Plan) -> String {
        let (raw, geometry) = (plan.superblock(), plan.geometry());
        let mut text = format!(
            "{}: {}{} blocks of {} bytes and {} inodes in {} groups\nUUID: {}\n",
            shown(&self.image),
            if self.dry_run { "would have " } else { "" },
            geometry.blocks,
            geometry.block_size.bytes(),
            geometry.inodes(),
            geometry.groups,
            uuid(&raw.s_uuid),
        );
        let backups: Vec<String> = plan.backups().iter().map(u64::to_string).collect();
        if !backups.is_empty() {
            text += &format!("superblock backups at blocks: {}\n", backups.join(", "));
        }
        if plan.journal_blocks() > 0 {
            text += &format!("journal: {} blocks\n", plan.journal_blocks());
        }
        if self.verbose || self.dry_run {
            text += &details(plan, raw);
        }
        text
    }
}

fn details(plan: &Plan, raw: &RawSuperblock) -> String {
    let geometry = plan.geometry();
    format!(
        "features: {}\nblocks per group: {}\ninodes per group: {}\ninode size: {}\nreserved descriptor blocks: {}\n\
         blocks reserved for the super-user: {}\nfree blocks: {}\nfree inodes: {}\n",
        raw.features().names().join(" "),
        geometry.blocks_per_group,
        geometry.inodes_per_group,
        geometry.inode_size,
        geometry.reserved_descriptor_blocks,
        raw.reserved_blocks_count(),
        plan.free_blocks(),
        plan.free_inodes(),
    )
}

fn as_json(plan: &Plan, dry_run: bool) -> serde_json::Value {
    let (raw, geometry) = (plan.superblock(), plan.geometry());
    serde_json::json!({
        "written": !dry_run,
        "size_bytes": plan.size_bytes(),
        "block_size": geometry.block_size.bytes(),
        "cluster_size": u64::from(geometry.block_size.bytes()) << geometry.cluster_log2,
        "blocks": geometry.blocks,
        "free_blocks": plan.free_blocks(),
        "reserved_blocks": raw.reserved_blocks_count(),
        "inodes": geometry.inodes(),
        "free_inodes": plan.free_inodes(),
        "inode_size": geometry.inode_size,
        "groups": geometry.groups,
        "blocks_per_group": geometry.blocks_per_group,
        "inodes_per_group": geometry.inodes_per_group,
        "journal_blocks": plan.journal_blocks(),
        "superblock_backups": plan.backups(),
        "features": raw.features().names(),
        "uuid": uuid(&raw.s_uuid),
        "notes": plan.notes(),
    })
}

/// The library's words without its own preamble.
fn explained(error: &platfs::Error) -> String {
    match error {
        platfs::Error::Invalid(what) => what.clone(),
        other => other.to_string(),
    }
}

fn node_name() -> Vec<u8> {
    rustix::system::uname().nodename().to_bytes().to_vec()
}

fn file_name(image: &OsStr) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    std::path::Path::new(image).file_name().unwrap_or_default().as_bytes().to_vec()
}
