//! Replaying a trace under any policy, with the same counters and measures for each.

use crate::file::File;
use crate::measure;
use crate::numbers::float;
use crate::plan::{Plan, Setting};
use crate::results::Cell;
use crate::table;
use ondisk::units::{Cluster, ClusterRun, Group};
use placement::trace::{Ask, Goal, Name, Reader, Record, TraceError};
use placement::{BlockPolicyKind, Engine, GroupContent, Promise, Request};
use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct ReplayOptions {
    /// The trace.
    trace: PathBuf,
    /// Policies, separated by commas; all if none is named.
    #[arg(long, value_delimiter = ',')]
    policies: Vec<String>,
    /// Sets a tunable, as for `run`.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = Setting::read)]
    sets: Vec<Setting>,
    /// One line per figure.
    #[arg(long)]
    csv: bool,
}

/// Replays a trace under each policy and prints the figures of all.
///
/// # Errors
/// A fault of the options or of the trace.
pub(crate) fn run(options: &ReplayOptions) -> Result<(), String> {
    let plan = Plan { policies: options.policies.clone(), sets: options.sets.clone(), ..Plan::default() };
    let unknown = options.policies.iter().find(|name| BlockPolicyKind::named(name).is_none());
    if let Some(name) = unknown {
        return Err(format!("no policy is called {name}; `plat-lab list` names them"));
    }
    let all: Vec<_> = placement::policy::POLICIES.iter().map(|row| row.kind).collect();
    let cells = plan.policies(&all).into_iter().map(|policy| replay(&options.trace, policy, &plan));
    let cells = cells.collect::<Result<Vec<_>, _>>()?;
    print!(
        "{}",
        if options.csv { table::csv(&cells) } else { table::columns(&cells, "replay", ["figure", ""]) }
    );
    Ok(())
}

/// A volume on which a trace is replayed.
struct Replay {
    engine: Engine,
    /// Clusters by name and place in it: place to (start, count).
    files: BTreeMap<Name, BTreeMap<u64, (u64, u32)>>,
    promised: Option<Promise>,
    refused: u64,
}

impl Replay {
    /// The cluster at a place.
    fn cluster(&self, name: Name, place: u64) -> Option<u64> {
        let (at, (start, count)) = self.files.get(&name)?.range(..=place).next_back()?;
        (place - at < u64::from(*count)).then(|| start + (place - at))
    }

    /// First part of `from..end` that is not there yet.
    fn gap(&self, name: Name, from: u64, end: u64) -> Option<(u64, u32)> {
        let mut at = from;
        if let Some(pieces) = self.files.get(&name) {
            let begin = pieces.range(..=from).next_back().map_or(from, |(start, _)| *start);
            for (start, (_, count)) in pieces.range(begin..end) {
                if *start > at {
                    return Some((at, u32::try_from(start - at).unwrap_or(u32::MAX)));
                }
                at = at.max(start + u64::from(*count));
            }
        }
        (at < end).then(|| (at, u32::try_from(end - at).unwrap_or(u32::MAX)))
    }

    fn goal(&self, ask: &Ask, at: u64) -> Cluster {
        let behind = |name, place| self.cluster(name, place).map(|cluster| Cluster(cluster + 1));
        let own = at.checked_sub(1).filter(|_| at > ask.at).and_then(|last| behind(ask.name, last));
        own.unwrap_or_else(|| match ask.goal {
            Goal::At(place) => Cluster(place),
            Goal::Behind(name, place) => behind(name, place).unwrap_or(Cluster(0)),
        })
    }

    /// Asks until the whole range is there; returns whether it is.
    fn allocate(&mut self, ask: &Ask) -> bool {
        while let Some((at, count)) = self.gap(ask.name, ask.at, ask.at + u64::from(ask.want)) {
            let request = Request {
                goal: self.goal(ask, at),
                min: ask.min.min(count),
                want: count,
                kind: ask.kind,
                stream: ask.stream,
                owner: ask.owner,
                offset: ask.offset + (at - ask.at),
                extends: ask.extends || at > ask.at,
                size: ask.size,
                growing: ask.growing,
                directory: ask.directory,
                process: 0,
                attempt: 0,
                file: None,
            };
            let granted = match &mut self.promised {
                Some(promise) if ask.promised && promise.count() >= u64::from(request.min) => {
                    self.engine.allocate_promised(promise, &request)
                }
                _ => self.engine.allocate(&request),
            };
            let Ok(grant) = granted else { return false };
            let run = grant.into_run();
            self.files.entry(ask.name).or_default().insert(at, (run.start.0, run.count));
        }
        true
    }

    fn free(&mut self, name: Name, at: u64, count: u64) {
        let end = at.saturating_add(count);
        while let Some((place, start, len)) = self.piece(name, at, end) {
            let Some(pieces) = self.files.get_mut(&name) else { return };
            pieces.remove(&place);
            let (low, high) = (at.max(place), end.min(place + u64::from(len)));
            for (from, to) in [(place, low), (high, place + u64::from(len))] {
                if let Ok(rest @ 1..) = u32::try_from(to.saturating_sub(from)) {
                    pieces.insert(from, (start + (from - place), rest));
                }
            }
            let run = ClusterRun {
                start: Cluster(start + (low - place)),
                count: u32::try_from(high - low).unwrap_or(0),
            };
            // What was allocated here is in use.
            let _ = self.engine.free(run);
        }
        if self.files.get(&name).is_some_and(BTreeMap::is_empty) {
            self.files.remove(&name);
        }
    }

    /// A piece that overlaps `at..end`.
    fn piece(&self, name: Name, at: u64, end: u64) -> Option<(u64, u64, u32)> {
        let (place, (start, len)) = self.files.get(&name)?.range(..end).next_back()?;
        (place + u64::from(*len) > at).then_some((*place, *start, *len))
    }

    fn apply(&mut self, record: &Record) -> Result<(), String> {
        match record {
            Record::Group { group, free } => self.describe(Group(*group), *free)?,
            Record::Allocate(ask) => self.refused += u64::from(!self.allocate(ask)),
            Record::Refused(ask) => {
                let before = self.gap(ask.name, ask.at, ask.at + u64::from(ask.want));
                self.refused += u64::from(!self.allocate(ask));
                // It was refused when it was recorded: no later record frees it.
                if let Some((at, count)) = before {
                    self.free(ask.name, at, u64::from(count));
                }
            }
            Record::Free { name, at, count } => self.free(*name, *at, *count),
            Record::Close(owner) => self.engine.closed(*owner),
            Record::Truncate(owner) => self.engine.truncated(*owner),
            Record::Promise(count) => {
                if let Ok(more) = self.engine.promise(*count) {
                    match &mut self.promised {
                        Some(promise) => promise.join(more),
                        none => *none = Some(more),
                    }
                }
            }
            Record::EndPromise(count) => {
                if let Some(promise) = &mut self.promised {
                    drop(promise.split(*count));
                }
            }
            Record::Settle => self.engine.release_claims(),
        }
        Ok(())
    }

    fn describe(&self, group: Group, free: u32) -> Result<(), String> {
        let layout = self.engine.layout();
        let used = layout.clusters_of(group).saturating_sub(free);
        let run = ClusterRun { start: layout.group_start(group), count: used };
        let runs = if used > 0 { vec![run] } else { Vec::new() };
        let content = GroupContent::Uninitialised { used: &runs };
        self.engine.describe_group(group, free, content).map_err(|error| error.to_string())
    }

    /// Data files as lists of runs, neighbours joined.
    fn data_files(&self) -> Vec<File> {
        let mut files = Vec::new();
        for (name, pieces) in &self.files {
            let Name::File(key) = name else { continue };
            let mut file = File::new(*key, 0);
            for (start, count) in pieces.values() {
                file.push(ClusterRun { start: Cluster(*start), count: *count });
            }
            files.push(file);
        }
        files
    }
}

/// Replays a trace under one policy.
///
/// # Errors
/// A fault of the trace, or of its file.
fn replay(path: &Path, policy: BlockPolicyKind, plan: &Plan) -> Result<Cell, String> {
    let shown = path.display();
    let named = |error: TraceError| format!("{shown}: {error}");
    let file = std::fs::File::open(path).map_err(|error| format!("{shown}: {error}"))?;
    let mut reader = Reader::new(BufReader::new(file)).map_err(named)?;
    let engine = plan.engine(*reader.layout(), policy, &[])?;
    let mut replay = Replay { engine, files: BTreeMap::new(), promised: None, refused: 0 };
    let mut records = 0u64;
    while let Some(record) = reader.record().map_err(named)? {
        replay.apply(&record).map_err(|error| format!("{shown}: {error}"))?;
        records += 1;
    }
    replay.promised = None;
    replay.engine.release_claims();
    let files = replay.data_files();
    let stats = replay.engine.stats();
    let mut values = vec![("records", float(records)), ("refused", float(replay.refused))];
    values.extend(measure::files(files.iter()));
    values.extend(measure::free_runs(replay.engine.free_runs()));
    values.extend(stats.iter().map(|(name, count)| (name, float(count))));
    let (table, system) = ("replay".into(), policy.name().into());
    Ok(Cell {
        case: "replay".into(),
        table,
        system,
        figures: values.into_iter().collect(),
        ..Cell::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, cells, records};
    use crate::tape::Tape;

    #[test]
    fn a_recorded_run_replays_to_the_same_counters_and_drives_other_policies() {
        let path = std::env::temp_dir().join(format!("plat-lab-replay-{}", std::process::id()));
        let tape = Tape::create(&path).unwrap();
        let plan = Plan {
            seed: 1,
            quick: true,
            policies: vec!["lease".into()],
            case: "4 clients".into(),
            tape: tape.clone(),
            ..Plan::default()
        };
        let recorded = cells(records(Experiment::named("windows").unwrap(), &plan));
        tape.finish().unwrap();
        let again = |policy| replay(&path, policy, &Plan::default()).unwrap();
        let value = |cell: &Cell, name: &str| cell.figures.get(name).unwrap();
        let lease = again(BlockPolicyKind::Lease);
        assert_eq!(value(&lease, "refused"), 0.0);
        assert_eq!(value(&lease, "extents_scanned"), value(&recorded[0], "scanned"));
        assert!(value(&lease, "free runs") >= 1.0 && value(&lease, "records") > 20_000.0);
        let single = again(BlockPolicyKind::Single);
        assert!(value(&single, "extents/file") > value(&lease, "extents/file"));
        std::fs::remove_file(&path).unwrap();
    }
}
