//! `plat tune IMAGE`: parameters and features of a volume, with tune2fs's letters.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use ondisk::superblock::RawSuperblock;
use ondisk::units::BlockSize;
use platfs::device::{Device, Overlay};
use platfs_forensics::facts;
use platfs_reshape::tune::{Request, Tuned, refuse_more, tune};
use serde_json::{Map, Value};

use super::cage;
use super::info;
use super::{json, live};
use crate::console::{Console, Failure};
use crate::control::protocol::Verb;
use crate::format::ChangeArgs;
use crate::image;
use crate::reading::{no_superblock, open_device, warn_of_writer};
use crate::reshaping::{self, Held};
use crate::sandbox;
use crate::text::Shown;

/// Arguments of `plat tune`.
#[derive(Args, Debug)]
#[command(
    after_help = "A change is made in memory first, and checked there. If it is cut off, the same command takes it back \
                  and begins again: docs/tune.md."
)]
pub struct Tune {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`; or a directory of a mount.
    image: OsString,
    /// List the fields of the superblock, after the changes if there are any.
    #[arg(short = 'l', long)]
    list: bool,
    /// Show what would change, and change nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Keep the way back in a new file: `plat check --undo-from FILE IMAGE` goes it.
    #[arg(short = 'z', long, value_name = "FILE")]
    undo: Option<PathBuf>,
    /// With `-O ^has_journal`: give up a journal whose device is lost, with all changes that only it has. With
    /// `-E clear_mmp`: clear the mark of another host at once, without a look at whether that host lives. What else tune2fs
    /// would force is refused here for a reason.
    #[arg(short, long)]
    force: bool,
    /// One JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    changes: ChangeArgs,
}

impl Tune {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        cage::reshaping(&self.image, self.undo.as_deref())
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let name = image::shown(&self.image).to_string();
        let mut request = self.changes.parse()?;
        request.force = self.force;
        request.mmp.names = (node_name(), file_name(&self.image));
        if request.is_empty() {
            if !self.list {
                return Err(Failure::Usage("nothing to change; -l lists what there is".into()));
            }
            return self.list(console, &name);
        }
        if live::is_directory(&self.image) {
            return self.mounted(console, &name, &request);
        }
        let tuned = if self.dry_run {
            self.plan(console, &name, &request)?
        } else {
            self.change(console, &name, &request)?
        };
        self.report(console, &name, &tuned)
    }

    /// Has the server of a mount make the changes.
    fn mounted(&self, console: &mut Console<'_>, name: &str, request: &Request) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::about(name, error);
        if self.dry_run || self.undo.is_some() || self.list {
            return Err(Failure::Usage("on a mount -n, -z and -l are not known: they are for images".into()));
        }
        refuse_more(request).map_err(|error| reshaping::failed(name, &error))?;
        let mut file = tempfile::tempfile().map_err(failed)?;
        file.write_all(&request.encode()).and_then(|()| file.rewind()).map_err(failed)?;
        let places = [live::directory(&self.image)?];
        live::ask(console, (Verb::Tune, 0), &places, Some(&file))?;
        if self.json {
            let facts = [("image".to_owned(), name.into()), ("written".to_owned(), true.into())];
            json::print(console.out, Map::from_iter(facts))?;
        }
        Ok(())
    }

    fn list(&self, console: &mut Console<'_>, name: &str) -> Result<(), Failure> {
        warn_of_writer(&self.image, console);
        let device = open_device(&self.image)?;
        let raw = platfs::read_superblock(&*device)
            .map_err(|error| Failure::about(name, no_superblock(&*device, name, &error)))?;
        self.fields(console, &raw)
    }

    fn fields(&self, console: &mut Console<'_>, raw: &RawSuperblock) -> Result<(), Failure> {
        let known = facts::superblock(raw);
        if self.json {
            let object: Map<String, Value> =
                known.into_iter().map(|fact| (fact.key.to_owned(), fact.value)).collect();
            let all = Map::from_iter([("superblock".to_owned(), Value::Object(object))]);
            return Ok(json::print(console.out, all)?);
        }
        known.iter().try_for_each(|fact| info::print(console, fact))
    }

    /// Plans the change: the image is only read.
    fn plan(&self, console: &mut Console<'_>, name: &str, request: &Request) -> Result<Tuned, Failure> {
        warn_of_writer(&self.image, console);
        // Blocks that are free may be written on the way.
        let pieces = BlockSize::from_log2(12).ok_or_else(|| Failure::about(name, "no block size"))?;
        let device: Arc<dyn Device> = Arc::new(Overlay::new(open_device(&self.image)?, pieces));
        tune(&device, request, reshaping::limits()).map_err(|error| reshaping::failed(name, &error))
    }

    fn change(&self, console: &mut Console<'_>, name: &str, request: &Request) -> Result<Tuned, Failure> {
        let held = match request.mmp.clear {
            true => Held::open_deserted(&self.image, self.force, console)?,
            false => Held::open(&self.image, console)?,
        };
        let tuned = tune(held.device(), request, reshaping::limits())
            .map_err(|error| reshaping::failed(name, &error))?;
        held.write(&tuned.change, self.undo.as_deref())?;
        Ok(tuned)
    }

    fn report(&self, console: &mut Console<'_>, name: &str, tuned: &Tuned) -> Result<(), Failure> {
        let changed = differences(&tuned.before, &tuned.after);
        if self.json {
            return self.as_json(console, name, tuned, &changed);
        }
        for note in &tuned.notes {
            console.warn(format!("{name}: {note}"));
        }
        if tuned.change.is_empty() {
            writeln!(console.out, "{name}: nothing to change")?;
        }
        let would = if self.dry_run { "would become" } else { "is now" };
        for one in &changed {
            if one.key == "features" {
                writeln!(console.out, "{}: {}", one.label, words(&one.before.0, &one.after.0))?;
                continue;
            }
            let (before, after) = (Shown(one.before.0.as_bytes()), Shown(one.after.0.as_bytes()));
            writeln!(console.out, "{}: {would} {after} (was {before})", one.label)?;
        }
        if self.dry_run {
            let how = if tuned.change.is_atomic() { ", superblocks only" } else { "" };
            writeln!(
                console.out,
                "{name}: nothing was written; {} bytes would be{how}",
                tuned.change.bytes()
            )?;
        }
        if self.list { self.fields(console, &tuned.after) } else { Ok(()) }
    }

    fn as_json(
        &self,
        console: &mut Console<'_>,
        name: &str,
        tuned: &Tuned,
        changed: &[Changed],
    ) -> Result<(), Failure> {
        let list = changed
            .iter()
            .map(|one| serde_json::json!({ "field": one.key, "before": one.before.1, "after": one.after.1 }));
        let mut object = Map::new();
        object.insert("image".to_owned(), name.into());
        object.insert("written".to_owned(), (!self.dry_run && !tuned.change.is_empty()).into());
        object.insert("bytes".to_owned(), tuned.change.bytes().into());
        object.insert("changed".to_owned(), Value::Array(list.collect()));
        object.insert("notes".to_owned(), tuned.notes.clone().into());
        Ok(json::print(console.out, object)?)
    }
}

/// A field that changes: as text and as JSON.
struct Changed {
    key: &'static str,
    label: &'static str,
    before: (String, Value),
    after: (String, Value),
}

/// Fields that change with every write.
const ALWAYS: [&str; 2] = ["last_write", "checksum"];

/// Fields that differ, but for what changes with every write.
fn differences(before: &RawSuperblock, after: &RawSuperblock) -> Vec<Changed> {
    let none = || ("<none>".to_owned(), Value::Null);
    let mut old: BTreeMap<&str, _> =
        facts::superblock(before).into_iter().map(|fact| (fact.key, fact)).collect();
    let mut changed = Vec::new();
    for fact in facts::superblock(after) {
        let before = old.remove(fact.key).map_or_else(none, |fact| (fact.text, fact.value));
        if before.1 != fact.value && !ALWAYS.contains(&fact.key) {
            changed.push(Changed {
                key: fact.key,
                label: fact.label,
                before,
                after: (fact.text, fact.value),
            });
        }
    }
    let gone = old.into_values().filter(|fact| fact.value != Value::Null && !ALWAYS.contains(&fact.key));
    changed.extend(gone.map(|fact| Changed {
        key: fact.key,
        label: fact.label,
        before: (fact.text, fact.value),
        after: none(),
    }));
    changed
}

/// Words that come, with a plus before them, and words that go, with a minus.
fn words(before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.split(' ').collect(), after.split(' ').collect());
    let come = new.iter().filter(|word| !old.contains(word)).map(|word| format!("+{word}"));
    let go = old.iter().filter(|word| !new.contains(word)).map(|word| format!("-{word}"));
    come.chain(go).collect::<Vec<_>>().join(" ")
}

fn node_name() -> Vec<u8> {
    rustix::system::uname().nodename().to_bytes().to_vec()
}

fn file_name(image: &OsStr) -> Vec<u8> {
    std::path::Path::new(image).file_name().unwrap_or_default().as_bytes().to_vec()
}
