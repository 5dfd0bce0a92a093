//! `plat undelete`: removed files that can be recovered, and how sure it is; the image is only read.

mod write;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use ondisk::inode::{FileType, TimeField};
use platfs_forensics::removed::{self, Confidence, Findings, PastSummary, Removed};
use platfs_host::{Directory, Facts};
use serde_json::{Map, Value};

use super::json::Array;
use super::{cage, runs};
use crate::check::report::counted;
use crate::console::{Console, Failure};
use crate::door;
use crate::reading;
use crate::sandbox::Plan;
use crate::size::human;
use crate::text::{self, Shown, put_bytes};
use write::Target;

/// Arguments of `plat undelete`.
#[derive(Args, Debug)]
pub struct Undelete {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`.
    image: OsString,
    /// A directory that files are recovered into: one that is empty, or not there yet. Without it they are listed.
    #[arg(long, value_name = "DIR", conflicts_with = "list")]
    into: Option<PathBuf>,
    /// Lists only, which is the default.
    #[arg(long)]
    list: bool,
    /// Only files that are surely right.
    #[arg(long, conflicts_with = "all")]
    sure: bool,
    /// Doubtful files, too: parts of them belong to other files by now. And in the list files without a name.
    #[arg(long)]
    all: bool,
    /// A JSON array with one object per file.
    #[arg(long)]
    json: bool,
}

impl Undelete {
    pub(super) fn cage(&self) -> Option<Plan> {
        let plan = cage::reading(&[&self.image], &[], None)?;
        let Some(into) = &self.into else { return Some(plan) };
        // A directory that is there already is reached from the one above, too.
        let plan = match into.file_name() {
            Some(_) => cage::with_output(plan, into),
            None => cage::with_outputs_in(plan, into),
        };
        Some(cage::with_attributes(plan))
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let (now, name) = reading::ground(&self.image, console)?;
        if let Some(path) = &self.into {
            self.refuse_itself(path)?;
        }
        let mut silence = (Vec::new(), Vec::new());
        let mut quiet = Console::new(&mut silence.0, &mut silence.1);
        let (bare, _) = reading::bare_ground(&self.image, &mut quiet)?;
        let findings = removed::find(&bare, &now).map_err(|error| {
            Failure::about(&name, reading::no_superblock(&**bare.device(), &name, &error.into()))
        })?;
        for problem in &findings.problems {
            console.warn(format!("{name}: {problem}"));
        }
        let mut target = self.into.as_deref().map(|path| Target::new(path, &now)).transpose()?;
        if let (Some(path), Some(target)) = (&self.into, &target) {
            // The path may lead elsewhere by now.
            self.refuse_place(path, target.facts())?;
        }
        let mut array = Array::default();
        if !self.json && target.is_none() && findings.removed.iter().any(|one| self.is_listed(one)) {
            let (sure, inode, size, removed) = ("SURE", "INODE", "SIZE", "REMOVED");
            writeln!(console.out, "{sure:<8} {inode:>10} {size:>12} {removed:<20} PATH")?;
        }
        for one in findings.removed.iter().filter(|one| self.is_listed(one)) {
            let place = match &mut target {
                Some(target) if self.takes(one) => match target.recover(one) {
                    Ok(place) => Some(place),
                    Err(failure) => {
                        console.complain(failure)?;
                        None
                    }
                },
                _ => None,
            };
            match (self.json, &target) {
                (true, _) => array.push(console.out, object(one, place.as_deref()))?,
                (false, None) => line(console, one)?,
                (false, Some(_)) if place.is_some() => line(console, one)?,
                _ => {}
            }
        }
        if self.json {
            array.end(console.out)?;
        } else {
            console.note(format!("{name}: {}", summary(&findings, |one| self.is_listed(one))));
        }
        match target {
            Some(target) => target.finish(),
            None => Ok(()),
        }
    }

    /// Files that are recovered into the volume that they were removed from take the blocks of those that are not yet.
    fn refuse_itself(&self, into: &Path) -> Result<(), Failure> {
        let above = into.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let place = Directory::open(into).or_else(|_| Directory::open(above)).and_then(|place| place.facts());
        self.refuse_place(into, place)
    }

    fn refuse_place(&self, into: &Path, place: std::io::Result<Facts>) -> Result<(), Failure> {
        if place.is_ok_and(|facts| door::holds(&self.image, facts.id.device)) {
            return Err(Failure::about(
                Shown(into.as_os_str().as_encoded_bytes()),
                "lies in the volume that is to be recovered from: what is written there takes the blocks of removed files; \
                 name a directory of another file system",
            ));
        }
        Ok(())
    }

    /// Tells if it stands in the list. Files without a name are for those who ask, and for scripts.
    fn is_listed(&self, one: &Removed) -> bool {
        let whole = self.all || self.json || self.into.is_some();
        is_use(one) && (whole || !one.paths.is_empty())
    }

    fn takes(&self, one: &Removed) -> bool {
        let least = match (self.sure, self.all) {
            (true, _) => Confidence::Sure,
            (_, true) => Confidence::Doubtful,
            _ => Confidence::Likely,
        };
        let kind = one.inode.file_type();
        one.confidence >= least && matches!(kind, Some(FileType::Regular | FileType::Symlink))
    }
}

/// How many there are, and what was looked at: an empty list has a reason.
fn summary(findings: &Findings, is_listed: impl Fn(&Removed) -> bool) -> String {
    let (mut all, mut sure, mut bytes, mut nameless) = (0_u64, 0_u64, 0_u64, 0_u64);
    for one in &findings.removed {
        if is_listed(one) {
            all += 1;
            sure += u64::from(one.confidence == Confidence::Sure);
            bytes = bytes.saturating_add(one.inode.size());
        } else if one.paths.is_empty() && is_use(one) {
            nameless += 1;
        }
    }
    let PastSummary { has_journal, transactions, since } = findings.past;
    let past = match since.map(text::whole_seconds) {
        _ if !has_journal => {
            "there is no journal that tells of others: found is only what the records of removed \
                              files still lead to, which Linux and plat clear"
                .to_owned()
        }
        Some(since) => {
            format!("the journal holds {} since {since}", counted(transactions as u64, "transaction"))
        }
        None => "the journal holds no transaction that tells of a removal".to_owned(),
    };
    let more =
        if nameless > 0 { format!("; {nameless} without a name: --all lists them") } else { String::new() };
    let (files, bytes) = (counted(all, "removed file"), human(bytes));
    format!("{files} with {bytes}, {sure} surely right{more}; {past}")
}

/// Directories are part of the paths of others; a doubtful file of which nothing is known is no use to anybody.
fn is_use(one: &Removed) -> bool {
    let is_directory = one.inode.file_type() == Some(FileType::Directory);
    !is_directory && (one.confidence > Confidence::Doubtful || !one.paths.is_empty() || !one.runs.is_empty())
}

fn word(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Sure => "sure",
        Confidence::Likely => "likely",
        Confidence::Doubtful => "doubtful",
    }
}

fn line(console: &mut Console<'_>, one: &Removed) -> Result<(), Failure> {
    let when = one.removed.map_or_else(|| "?".repeat(20), text::whole_seconds);
    let paths: Vec<String> = one.paths.iter().map(|path| format!("/{}", Shown(path))).collect();
    let paths = if paths.is_empty() { "(no name)".to_owned() } else { paths.join(", ") };
    let why = if one.doubts.is_empty() { String::new() } else { format!(" ({})", one.doubts.join("; ")) };
    let (sure, number, size) = (word(one.confidence), one.inode.number().get(), one.inode.size());
    Ok(writeln!(console.out, "{sure:<8} {number:>10} {size:>12} {when} {paths}{why}")?)
}

fn object(one: &Removed, place: Option<&[u8]>) -> Map<String, Value> {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    let inode = &one.inode;
    put("inode", inode.number().get().into());
    put("type", inode.file_type().map(text::type_name).into());
    put("mode", format!("{:04o}", inode.mode() & 0o7777).into());
    put("uid", inode.uid().into());
    put("gid", inode.gid().into());
    put("size", inode.size().into());
    put("modified", inode.time(TimeField::Modify).map(text::time).into());
    put("removed", one.removed.map(text::whole_seconds).into());
    put("sureness", word(one.confidence).into());
    put("doubts", one.doubts.clone().into());
    put("blocks", one.fate.blocks.into());
    put("reused_blocks", one.fate.reused.into());
    let runs = one.runs.iter().map(|run| {
        runs::object(&runs::Run {
            logical: run.logical,
            start: run.start,
            count: run.count,
            unwritten: run.unwritten,
        })
    });
    put("runs", runs.collect());
    let names = one.paths.iter().map(|path| {
        let mut named = Map::new();
        put_bytes(&mut named, "path", path);
        Value::Object(named)
    });
    put("names", names.collect());
    if let Some(place) = place {
        put_bytes(&mut object, "recovered", place);
    }
    object
}
