//! `plat convert`: maps of files between the forms of ext2, ext3 and ext4, of an image or of a mount.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use ondisk::features::Incompat;
use ondisk::units::InodeNumber;
use platfs::{InodeFlags, MapForm, Volume};
use platfs_reshape::draft::Draft;
use serde_json::{Map, Value};

use super::cage;
use super::json;
use super::live::{self, Alone};
use crate::bulk::convert::{self, Options};
use crate::bulk::{Actor, Job, Terms};
use crate::console::{Console, Failure};
use crate::control::protocol::{Verb, flag};
use crate::reading::{OpenImage, absolute};
use crate::reshaping::{self, Held};
use crate::sandbox;
use crate::text::Shown;
use crate::writing::{self, Target};

/// Arguments of `plat convert`.
#[derive(Args, Debug)]
pub struct Convert {
    #[command(flatten)]
    image: Target,
    /// Files, and directories with all below them.
    #[arg(required_unless_present = "all")]
    paths: Vec<OsString>,
    /// ext4 maps files by extents; ext2 and ext3 by block pointers.
    #[arg(long, value_name = "FORMAT")]
    to: Format,
    /// All files of the volume. Towards ext2 and ext3 the volume then loses the feature `extents`, if its own files can
    /// do without.
    #[arg(long, conflicts_with = "paths")]
    all: bool,
    /// Says what would be done, and changes nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// What was found and done, as JSON.
    #[arg(long)]
    json: bool,
}

/// The formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    Ext2,
    Ext3,
    Ext4,
}

impl Format {
    fn form(self) -> MapForm {
        if self == Format::Ext4 { MapForm::Extents } else { MapForm::Pointers }
    }
}

impl Convert {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        cage::reshaping(self.image.name(), None)
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let first = self.image.name();
        if live::is_directory(first) {
            return self.live(console, first);
        }
        let mut found = Vec::new();
        if self.dry_run {
            let image = OpenImage::open(first, console)?;
            found = self.alone(&image)?;
        } else {
            let towards_extents = self.to == Format::Ext4;
            if towards_extents && !has_extents(first)? {
                // It must be in order before its features change.
                writing::change_in_order(&self.image, console, |_, _| Ok(()))?;
                set_extents(first, true, console)?;
            }
            let mut is_without = false;
            writing::change_in_order(&self.image, console, |image, console| {
                found = self.alone(image)?;
                let is_whole = found.iter().all(|report| report.get("left") == Some(&Value::from(0)));
                let may_go = self.all && !towards_extents && is_whole;
                is_without = may_go && self.own_files_can(&image.volume, console);
                Ok(())
            })?;
            if is_without && has_extents(first)? {
                set_extents(first, false, console)?;
            }
        }
        for report in found {
            self.say(console, first, &report)?;
        }
        Ok(())
    }

    fn starts(&self) -> Vec<OsString> {
        if self.all { vec!["/".into()] } else { self.paths.clone() }
    }

    fn alone(&self, image: &OpenImage) -> Result<Vec<Map<String, Value>>, Failure> {
        let (actor, watcher) = (Actor::root(), Alone);
        let options = Options { form: self.to.form(), dry_run: self.dry_run };
        let mut reports = Vec::new();
        for path in self.starts() {
            let (number, shown) = (image.find(&path, true)?, absolute(path.as_bytes()));
            let job = Job::new(&image.volume, &actor, &watcher, Terms::ALL);
            let report = convert::convert(&job, (number, &shown), options);
            reports.push(report.map_err(|halt| writing::halted(image, halt))?.object());
        }
        Ok(reports)
    }

    /// Returns true if none of the volume's own files is mapped by extents, and no other feature needs them.
    fn own_files_can(&self, volume: &Volume, console: &mut Console<'_>) -> bool {
        let raw = volume.superblock();
        let own = [
            ("the journal", raw.s_journal_inum.get()),
            ("the orphan file", raw.s_orphan_file_inum.get()),
            ("the quota of users", raw.s_usr_quota_inum.get()),
            ("the quota of groups", raw.s_grp_quota_inum.get()),
            ("the quota of projects", raw.s_prj_quota_inum.get()),
        ];
        let is_mapped_so = |number: u32| {
            let facts = InodeNumber::new(number).map(|number| volume.metadata(number));
            facts.is_some_and(|facts| facts.is_ok_and(|facts| facts.flags.contains(InodeFlags::EXTENTS)))
        };
        let left: Vec<_> =
            own.iter().filter(|(_, number)| is_mapped_so(*number)).map(|(name, _)| *name).collect();
        let by_feature =
            [("values of attributes", Incompat::EA_INODE), ("block numbers of 64 bits", Incompat::BIT64)];
        let features = volume.format().features.incompat;
        let needing = by_feature.into_iter().filter(|(_, feature)| features.contains(*feature));
        let left: Vec<_> = left.into_iter().chain(needing.map(|(name, _)| name)).collect();
        if !left.is_empty() {
            console.warn(format!("the volume keeps the feature `extents`: {} need it", left.join(", ")));
        }
        left.is_empty()
    }

    fn live(&self, console: &mut Console<'_>, mount: &OsStr) -> Result<(), Failure> {
        let set = |on: bool, bit: u32| if on { bit } else { 0 };
        let to_pointers = self.to.form() == MapForm::Pointers;
        let flags = set(to_pointers, flag::POINTERS) | set(self.dry_run, flag::DRY_RUN);
        for path in self.starts() {
            let path = live::below(mount, &path);
            let asked = live::Asked { verb: Verb::Convert, flags, numbers: [] };
            let report = live::ask_for_report(asked, path.as_os_str())?;
            self.say(console, path.as_os_str(), &report)?;
        }
        Ok(())
    }

    fn say(
        &self,
        console: &mut Console<'_>,
        subject: &OsStr,
        found: &Map<String, Value>,
    ) -> Result<(), Failure> {
        let failures = found.get("failures").and_then(Value::as_array).cloned().unwrap_or_default();
        for why in failures.iter().filter_map(Value::as_str) {
            console.complain(Failure::Failed(why.into()))?;
        }
        if self.json {
            return Ok(json::print(console.out, found.clone())?);
        }
        if !console.is_quiet() || self.dry_run {
            let number = |name: &str| found.get(name).and_then(Value::as_u64).unwrap_or(0);
            let verb = if self.dry_run { "would convert" } else { "converted" };
            let (subject, converted, inodes) =
                (Shown(subject.as_bytes()), number("converted"), number("inodes"));
            writeln!(console.out, "{subject}: {verb} {converted} of {inodes} maps, {} stay", number("left"))?;
            writeln!(
                console.out,
                "extents: {} before, {} after",
                number("extents_before"),
                number("extents")
            )?;
        }
        Ok(())
    }
}

fn has_extents(image: &OsStr) -> Result<bool, Failure> {
    let device = crate::reading::open_device(image)?;
    let raw = platfs::read_superblock(&*device);
    let raw = raw.map_err(|error| Failure::about(crate::image::shown(image), error))?;
    Ok(raw.s_feature_incompat.get() & Incompat::EXTENTS.bits() != 0)
}

/// Switches the feature `extents` of a volume that is in order on or off, in all copies of the superblock, if the check
/// finds the volume sound with it. Where it is switched on, maps are as they were, so that a crash in between leaves a
/// sound volume.
fn set_extents(image: &OsStr, on: bool, console: &mut Console<'_>) -> Result<(), Failure> {
    let name = crate::image::shown(image).to_string();
    let held = Held::open(image, console)?;
    let drafted = Draft::open(Arc::clone(held.device()), reshaping::limits()).and_then(|mut draft| {
        draft.reshape(|raw| {
            let mut features = raw.features();
            features.incompat.set(Incompat::EXTENTS, on);
            raw.set_features(features);
        })?;
        draft.finish(&[])
    });
    held.write(&drafted.map_err(|error| reshaping::failed(&name, &error))?, None)
}
