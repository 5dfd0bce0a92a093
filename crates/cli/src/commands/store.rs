//! `plat store`: what a store holds, snapshots and forks, and cleaning up.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use platfs_store::{Store as Held, compact, fork, remove, rename, stats, verify, volumes};
use serde_json::{Map, Value, json};

use super::cage;
use super::json;
use crate::console::{Console, Failure};
use crate::image;
use crate::sandbox;
use crate::size::human;
use crate::stores;
use crate::text::{self, Shown};

/// Arguments of `plat store`.
#[derive(Args, Debug)]
pub struct Store {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Lists the volumes of a store.
    Ls(Whole),
    /// Counts objects and bytes of a store, and those that no volume refers to.
    Stats(Whole),
    /// Reads everything that volumes refer to, and verifies it.
    Verify(Whole),
    /// Removes what no volume has referred to for a time.
    Gc(Gc),
    /// Writes again what is in use of a volume's objects that are mostly overwritten: clean-ups then remove these.
    Compact(Compact),
    /// Makes a snapshot of a volume, which is never written: however large it is, one object more.
    Snapshot(Naming),
    /// Makes a volume that begins as what another is now: however large it is, one object more.
    Fork(Naming),
    /// Gives a volume another name, and its snapshots with it.
    Mv(Naming),
    /// Takes a volume or a snapshot out. Its objects go with the next clean-ups.
    Rm(One),
}

#[derive(Args, Debug)]
struct Whole {
    /// The store: `file:///path`, `s3://bucket/prefix`, `gs://...`, `az://...`.
    store: OsString,
    /// JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct Gc {
    #[command(flatten)]
    whole: Whole,
    /// Hours that nothing must have referred to an object before it is removed.
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    grace: u64,
    /// Removes nothing, and says what would be.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

#[derive(Args, Debug)]
struct Compact {
    /// The volume, which nobody has open for writing: `file:///path#NAME`.
    volume: OsString,
    /// Objects of whose bytes no more than this share is in use.
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u8).range(0..=100))]
    live: u8,
    /// JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct Naming {
    /// The volume: `file:///path#NAME`.
    volume: OsString,
    /// The new name in the same store; of a snapshot what stands behind the `@`.
    name: String,
}

#[derive(Args, Debug)]
struct One {
    /// The volume or snapshot: `file:///path#NAME`, `file:///path#NAME@SNAPSHOT`.
    volume: OsString,
}

impl Store {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        let name = match &self.verb {
            Verb::Ls(whole) | Verb::Stats(whole) | Verb::Verify(whole) => &whole.store,
            Verb::Gc(gc) => &gc.whole.store,
            Verb::Compact(compact) => &compact.volume,
            Verb::Snapshot(naming) | Verb::Fork(naming) | Verb::Mv(naming) => &naming.volume,
            Verb::Rm(one) => &one.volume,
        };
        cage::changing(name)
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        match &self.verb {
            Verb::Ls(whole) => whole.list(console),
            Verb::Stats(whole) => whole.stats(console),
            Verb::Verify(whole) => whole.verify(console),
            Verb::Gc(gc) => gc.run(console),
            Verb::Compact(compact) => compact.run(console),
            Verb::Snapshot(naming) => naming.run(Copying::Snapshot),
            Verb::Fork(naming) => naming.run(Copying::Fork),
            Verb::Mv(naming) => naming.run(Copying::Name),
            Verb::Rm(one) => one.run(),
        }
    }
}

fn opened(name: &OsString) -> Result<(Arc<Held>, Option<String>), Failure> {
    let failed = |error| Failure::about(image::shown(name), error);
    let address = stores::address(name).map_err(failed)?;
    Ok((stores::store(&address).map_err(failed)?, address.name))
}

/// The store and the volume of an address that must name one.
fn volume(name: &OsString) -> Result<(Arc<Held>, String), Failure> {
    let (store, volume) = opened(name)?;
    let missing = || Failure::Usage(format!("{}: names no volume: it ends with `#NAME`", image::shown(name)));
    Ok((store, volume.ok_or_else(missing)?))
}

impl Whole {
    fn open(&self) -> Result<Arc<Held>, Failure> {
        match opened(&self.store)? {
            (store, None) => match platfs_store::is_made(&store).map_err(|error| self.failed(error))? {
                true => Ok(store),
                // A wrong address: an empty answer would look like a store that has lost all.
                false => Err(self.failed("is no store: nothing was pushed there")),
            },
            (_, Some(_)) => Err(Failure::Usage(format!(
                "{}: a store is meant, without `#NAME`",
                image::shown(&self.store)
            ))),
        }
    }

    fn failed(&self, error: impl std::fmt::Display + 'static) -> Failure {
        Failure::about(image::shown(&self.store), error)
    }

    fn list(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let mut array = json::Array::default();
        for one in volumes(&*self.open()?, false).map_err(|error| self.failed(error))? {
            if self.json {
                let object = json!({
                    "name": one.name, "size": one.size, "created": one.created, "snapshot": one.flags.frozen,
                    "open": one.flags.open, "holder": one.holder,
                });
                array.push(console.out, object.as_object().cloned().unwrap_or_default())?;
                continue;
            }
            let kind = if one.flags.frozen { "snapshot" } else { "volume" };
            let created = text::whole_seconds(one.created);
            let open = if one.flags.open {
                format!("  open: {}", Shown(one.holder.as_bytes()))
            } else {
                String::new()
            };
            let (size, name) = (human(one.size), Shown(one.name.as_bytes()));
            writeln!(console.out, "{size:>10}  {kind:8}  {created}  {name}{open}")?;
        }
        if self.json {
            array.end(console.out)?;
        }
        Ok(())
    }

    fn stats(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let stats = stats(&self.open()?).map_err(|error| self.failed(error))?;
        let facts = [
            ("volumes", stats.volumes),
            ("volume_bytes", stats.volume_bytes),
            ("objects", stats.objects),
            ("bytes", stats.bytes),
            ("unused_objects", stats.unused_objects),
            ("unused_bytes", stats.unused_bytes),
        ];
        if self.json {
            return Ok(json::print(console.out, numbers(&facts))?);
        }
        let (all, bytes) = (human(stats.volume_bytes), human(stats.bytes));
        writeln!(
            console.out,
            "{} volumes with {all} in {} objects with {bytes}",
            stats.volumes, stats.objects
        )?;
        let unused = human(stats.unused_bytes);
        Ok(writeln!(console.out, "{} objects with {unused} are not in use", stats.unused_objects)?)
    }

    fn verify(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let mut findings = Vec::new();
        let objects = verify(&self.open()?, &mut |finding| findings.push(finding))
            .map_err(|error| self.failed(error))?;
        if self.json {
            let found = findings.iter().map(|one| json!({"volume": one.volume, "problem": one.problem}));
            let object = json!({"objects": objects, "findings": found.collect::<Vec<_>>()});
            json::print(console.out, object.as_object().cloned().unwrap_or_default())?;
        } else {
            let word = if findings.is_empty() { "all is well" } else { "not all is well" };
            writeln!(console.out, "{objects} objects read: {word}")?;
        }
        for finding in findings {
            let volume = Shown(finding.volume.as_bytes());
            console.complain(self.failed(format!("{volume}: {}", finding.problem)))?;
        }
        Ok(())
    }
}

fn numbers(facts: &[(&str, u64)]) -> Map<String, Value> {
    facts.iter().map(|(name, count)| ((*name).to_owned(), Value::from(*count))).collect()
}

impl Gc {
    fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let grace = Duration::from_secs(self.grace.saturating_mul(3600));
        let store = self.whole.open()?;
        let done =
            platfs_store::clean(&store, grace, self.dry_run).map_err(|error| self.whole.failed(error))?;
        if self.whole.json {
            let mut facts = numbers(&[
                ("removed", done.removed),
                ("removed_bytes", done.removed_bytes),
                ("waiting", done.waiting),
                ("waiting_bytes", done.waiting_bytes),
                ("strange", done.strange),
            ]);
            facts.insert("written".into(), Value::from(!self.dry_run));
            return Ok(json::print(console.out, facts)?);
        }
        let word = if self.dry_run { "would be removed" } else { "removed" };
        let (removed, waiting) = (human(done.removed_bytes), human(done.waiting_bytes));
        writeln!(console.out, "{} objects with {removed} {word}", done.removed)?;
        writeln!(console.out, "{} objects with {waiting} wait: go in {} hours", done.waiting, self.grace)?;
        if done.strange > 0 {
            let keys: Vec<String> =
                done.strange_keys.iter().map(|key| Shown(key.as_bytes()).to_string()).collect();
            let more = if done.strange > keys.len() as u64 { ", ..." } else { "" };
            let keys = keys.join(", ");
            writeln!(console.out, "{} objects are of other programs and stay: {keys}{more}", done.strange)?;
        }
        Ok(())
    }
}

impl Compact {
    fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let (store, name) = volume(&self.volume)?;
        let done = compact(&store, &name, &stores::holder(), self.live)
            .map_err(|error| Failure::about(image::shown(&self.volume), error))?;
        if self.json {
            let facts = [
                ("objects", done.objects),
                ("emptied", done.emptied),
                ("freed_bytes", done.freed_bytes),
                ("moved_bytes", done.moved_bytes),
            ];
            return Ok(json::print(console.out, numbers(&facts))?);
        }
        let (freed, moved) = (human(done.freed_bytes), human(done.moved_bytes));
        Ok(writeln!(
            console.out,
            "{} of {} objects with {freed} are not in use any more; {moved} were written again",
            done.emptied, done.objects
        )?)
    }
}

/// Kind of copy of a volume.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copying {
    Snapshot,
    Fork,
    /// Another name.
    Name,
}

impl Naming {
    fn run(&self, what: Copying) -> Result<(), Failure> {
        let (store, from) = volume(&self.volume)?;
        if self.name.contains('@') {
            return Err(Failure::Usage(format!(
                "{}: a name without `@` is meant",
                Shown(self.name.as_bytes())
            )));
        }
        let of_snapshot = what == Copying::Name && from.contains('@');
        let to = match what == Copying::Snapshot || of_snapshot {
            true => format!("{}@{}", from.split('@').next().unwrap_or_default(), self.name),
            false => self.name.clone(),
        };
        let make = || match what {
            Copying::Name => rename(&store, &from, &to),
            Copying::Snapshot | Copying::Fork => fork(&store, &from, &to).map(drop),
        };
        // The same rules as in an address.
        stores::address(OsString::from(format!("file:///x#{to}")).as_ref())
            .and_then(|_| make())
            .map_err(|error| Failure::about(image::shown(&self.volume), error))
    }
}

impl One {
    fn run(&self) -> Result<(), Failure> {
        let (store, name) = volume(&self.volume)?;
        remove(&store, &name).map_err(|error| Failure::about(image::shown(&self.volume), error))
    }
}
