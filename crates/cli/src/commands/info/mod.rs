//! `plat info`: what an image is, also when it can't be opened.
//!
//! First what a person wants to know, then the fields of the superblock with the labels of
//! dumpe2fs(8), then, if asked for, the groups. The superblock is read by itself, so that an image
//! with unknown features or a broken superblock is shown as far as it can be, with what is wrong.

mod container;
mod groups;
mod search;

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use ondisk::journal::RawJournalSuperblock;
use ondisk::superblock::RawSuperblock;
use ondisk::units::InodeNumber;
use platfs::device::{Device, mmp};
use platfs::{OpenOptions, Volume};
use platfs_forensics::facts::{self, Fact};
use platfs_host::{Opened, target_of};
use platfs_image::Source;
use serde_json::{Map, Value};

use super::cage;
use super::json;
use crate::console::{Console, Failure};
use crate::image;
use crate::reading::{no_superblock, open_device, warn_of_writer};
use crate::sandbox::Plan;
use crate::text::Shown;

/// Arguments of `plat info`.
#[derive(Args, Debug)]
pub struct Info {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`. Or a container image, of which the
    /// configuration is shown.
    image: OsString,
    /// Looks at each sector for volumes, and prints the names by which commands take them: where a partition table is lost, or
    /// volumes lie in something else (LVM).
    #[arg(long, conflicts_with = "groups")]
    search: bool,
    /// Every block group, too.
    #[arg(short, long)]
    groups: bool,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

/// Everything that could be found out.
struct Findings {
    all: facts::Findings,
    volume: Result<Volume, platfs::Error>,
}

impl Findings {
    fn of(device: Arc<dyn Device>, raw: RawSuperblock) -> Self {
        let mark = mmp::read_block(&*device, &raw);
        let mut all = facts::Findings { raw, journal: None, mark, problems: Vec::new() };
        // Everything is shown as it stands on the device.
        match Volume::open(device, &OpenOptions::new().noload(true)) {
            Ok(volume) => {
                match journal(&volume, &all.raw) {
                    Ok(journal) => all.journal = journal,
                    Err(error) => all.problems.push(error.to_string()),
                }
                Findings { all, volume: Ok(volume) }
            }
            Err(error) => {
                all.problems.push(error.to_string());
                Findings { all, volume: Err(error) }
            }
        }
    }
}

/// The superblock of a journal inside the volume.
fn journal(volume: &Volume, raw: &RawSuperblock) -> platfs::Result<Option<RawJournalSuperblock>> {
    let Some(inode) = InodeNumber::new(raw.s_journal_inum.get()) else { return Ok(None) };
    if !raw.features().compat.contains(ondisk::features::Compat::HAS_JOURNAL) {
        return Ok(None);
    }
    let mut bytes = [0; ondisk::journal::JOURNAL_SUPERBLOCK_LEN];
    volume.open_file(inode)?.read_at(0, &mut bytes)?;
    Ok(Some(RawJournalSuperblock::parse(&bytes)?))
}

impl Info {
    pub(super) fn cage(&self) -> Option<Plan> {
        let path = Path::new(&self.image);
        // Only what may be an archive is unpacked somewhere, and nothing before there is a cage.
        let may_be_archive =
            || matches!(target_of(path), Ok((_, Opened::File(file))) if Source::may_be_archive(&file));
        match platfs_host::path::is_directory(path) || (!is_named_as_image(path) && may_be_archive()) {
            true => Some(cage::container(&self.image)),
            false => cage::reading(&[&self.image], &[], None),
        }
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let name = image::shown(&self.image).to_string();
        let path = Path::new(&self.image);
        if platfs_host::path::is_directory(path) && container::print(console, &self.image, self.json)? {
            return Ok(());
        }
        warn_of_writer(&self.image, console);
        let device = open_device(&self.image)?;
        if self.search {
            return search::run(console, &self.image, &*device, self.json);
        }
        let raw = match platfs::read_superblock(&*device) {
            Ok(raw) => raw,
            Err(_)
                if !is_named_as_image(path)
                    && is_archive(path)
                    && container::print(console, &self.image, self.json)? =>
            {
                return Ok(());
            }
            Err(error) => return Err(Failure::about(&name, no_superblock(&*device, &name, &error))),
        };
        let findings = Findings::of(Arc::clone(&device), raw);
        if self.json {
            self.json(console, &findings)?
        } else {
            self.text(console, &name, &findings)?
        }
        // Shown as far as it goes.
        let opened = findings.volume.as_ref().map(drop);
        opened.map_err(|error| Failure::about(&name, no_superblock(&*device, &name, error)))
    }

    fn text(&self, console: &mut Console<'_>, name: &str, findings: &Findings) -> Result<(), Failure> {
        writeln!(console.out, "Image:                    {name}")?;
        for fact in facts::summary(&findings.all).iter().chain(&[Fact::new("", "", "")]) {
            print(console, fact)?;
        }
        let mark = facts::mark(&findings.all);
        let fields = facts::superblock(&findings.all.raw);
        for fact in fields.iter().chain(&mark).chain(&facts::journal(&findings.all)) {
            print(console, fact)?;
        }
        match &findings.volume {
            Ok(volume) if self.groups => groups::text(console, volume),
            _ => Ok(()),
        }
    }

    fn json(&self, console: &mut Console<'_>, findings: &Findings) -> Result<(), Failure> {
        let object = |facts: Vec<Fact>| -> Map<String, Value> {
            facts.into_iter().map(|fact| (fact.key.to_owned(), fact.value)).collect()
        };
        let mut all = object(facts::summary(&findings.all));
        all.insert("superblock".to_owned(), Value::Object(object(facts::superblock(&findings.all.raw))));
        let journal = facts::journal(&findings.all);
        if !journal.is_empty() {
            all.insert("journal_superblock".to_owned(), Value::Object(object(journal)));
        }
        let mark = facts::mark(&findings.all);
        if !mark.is_empty() {
            all.insert("mmp".to_owned(), Value::Object(object(mark)));
        }
        if let (true, Ok(volume)) = (self.groups, &findings.volume) {
            all.insert("groups".to_owned(), groups::json(volume));
        }
        Ok(json::print(console.out, all)?)
    }
}

/// True if a file has the name of an image of a disk. It is not looked at for an archive: that is done before the command
/// shows that it works, and a slow disk would keep the terminal empty.
fn is_named_as_image(path: &Path) -> bool {
    let end = path.extension().unwrap_or_default();
    ["img", "raw", "ext2", "ext3", "ext4", "dd"].iter().any(|name| end == *name)
}

fn is_archive(path: &Path) -> bool {
    matches!(target_of(path), Ok((_, Opened::File(file))) if Source::is_archive(&file))
}

pub(super) fn print(console: &mut Console<'_>, fact: &Fact) -> Result<(), Failure> {
    if fact.label.is_empty() {
        return Ok(writeln!(console.out)?);
    }
    let label = format!("{}:", fact.label);
    Ok(writeln!(console.out, "{label:<25} {}", Shown(fact.text.as_bytes()))?)
}
