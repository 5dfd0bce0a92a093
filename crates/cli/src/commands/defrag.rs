//! `plat defrag`: files in pieces become whole, of an image or of a mount.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use serde_json::{Map, Value};

use super::cage;
use super::json;
use super::live::{self, Alone};
use crate::bulk::defrag::{self, Options};
use crate::bulk::{Actor, Job, Terms};
use crate::console::{Console, Failure};
use crate::control::protocol::{Verb, flag};
use crate::reading::{OpenImage, absolute, paths_or_root};
use crate::sandbox;
use crate::size;
use crate::text::Shown;
use crate::writing::{self, Target};

/// Arguments of `plat defrag`.
#[derive(Args, Debug)]
pub struct Defrag {
    #[command(flatten)]
    image: Target,
    /// Files, and directories with all below them [default: /]. Of a mount: below the directory that stands in the place
    /// of the image.
    paths: Vec<OsString>,
    /// Free space is brought together too: files leave the parts of the volume in which little is in use.
    #[arg(long)]
    free: bool,
    /// Says what would be done, and changes nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Bytes that are moved in a second, at most: 20M.
    #[arg(long, value_name = "BYTES", value_parser = size::parse_size)]
    rate: Option<u64>,
    /// Bytes that are moved, at most [default: 1.29 times those of the files in pieces; with --free at least as much as is
    /// free].
    #[arg(long, value_name = "BYTES", value_parser = size::parse_size)]
    most: Option<u64>,
    /// What was found and done, as JSON.
    #[arg(long)]
    json: bool,
}

impl Defrag {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        cage::changing(self.image.name())
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let first = self.image.name();
        if live::is_directory(first) {
            return self.live(console, first);
        }
        let mut found = Map::new();
        if self.dry_run {
            let image = OpenImage::open(first, console)?;
            found = self.alone(&image)?;
        } else {
            writing::change_in_order(&self.image, console, |image, _| {
                found = self.alone(image)?;
                Ok(())
            })?;
        }
        self.say(console, first, &found)
    }

    fn options(&self) -> Options {
        Options {
            free: self.free,
            dry_run: self.dry_run,
            rate: self.rate.unwrap_or(0),
            most: self.most.unwrap_or(0),
        }
    }

    fn alone(&self, image: &OpenImage) -> Result<Map<String, Value>, Failure> {
        let mut starts = Vec::new();
        for path in paths_or_root(&self.paths) {
            starts.push((image.find(&path, true)?, absolute(path.as_bytes())));
        }
        let starts: Vec<_> = starts.iter().map(|(number, path)| (*number, &path[..])).collect();
        let (actor, watcher) = (Actor::root(), Alone);
        let job = Job::new(&image.volume, &actor, &watcher, Terms::ALL);
        let report = defrag::defrag(&job, &starts, self.options());
        Ok(report.map_err(|halt| writing::halted(image, halt))?.object())
    }

    fn live(&self, console: &mut Console<'_>, mount: &OsStr) -> Result<(), Failure> {
        let set = |on: bool, bit: u32| if on { bit } else { 0 };
        let flags = set(self.free, flag::FREE) | set(self.dry_run, flag::DRY_RUN);
        let options = self.options();
        for path in paths_or_root(&self.paths) {
            let path = live::below(mount, &path);
            let asked = live::Asked { verb: Verb::Defrag, flags, numbers: [options.rate, options.most] };
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
        // What would be done is what was asked for.
        if console.is_quiet() && !self.dry_run {
            return Ok(());
        }
        say_at_length(console, subject, found, self.dry_run)
    }
}

fn say_at_length(
    console: &mut Console<'_>,
    subject: &OsStr,
    found: &Map<String, Value>,
    dry_run: bool,
) -> Result<(), Failure> {
    let number = |name: &str| found.get(name).and_then(Value::as_u64).unwrap_or(0);
    let before = |name: &str| number(&format!("{name}_before"));
    let out = &mut *console.out;
    let (subject, verb) = (Shown(subject.as_bytes()), if dry_run { "would move" } else { "moved" });
    let bytes = size::human(number("bytes_in_pieces"));
    let torn = before("files_in_pieces");
    writeln!(out, "{subject}: {} files, {torn} in pieces with {bytes}", number("files"))?;
    let bytes = size::human(number("bytes_moved"));
    writeln!(out, "{verb} {} files with {bytes}", number("files_moved"))?;
    let notes = [
        ("too_long", "longer than any free run"),
        ("beyond", "no more bytes may be moved"),
        ("busy", "changed again and again while they were copied"),
        ("refused", "immutable, or not to be written"),
    ];
    for (name, what) in notes.iter().filter(|(name, _)| number(name) > 0) {
        writeln!(out, "{} files stay: {what}", number(name))?;
    }
    writeln!(out, "{:<20}{:>12}{:>12}", "", "before", "after")?;
    let rows = [
        ("extents", "pieces"),
        ("files in pieces", "files_in_pieces"),
        ("free extents", "free_extents"),
        ("longest free, KiB", "longest_free_kib"),
        ("mean free, KiB", "mean_free_kib"),
    ];
    for (shown, name) in rows {
        writeln!(out, "{shown:<20}{:>12}{:>12}", before(name), number(name))?;
    }
    Ok(())
}
