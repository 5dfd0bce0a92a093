//! `plat-lab matrix FILE`: every combination of what a file lists, on whole file systems in model time.
//!
//! The file says what varies and over which seeds; each combination of it is a cell (research/docs/lab.md). What can't
//! be had together (soft updates of a volume that can't have them, clusters without extents) is reported and left
//! out. Tables give statistics over the seeds, and say where noise hides a difference.

use std::collections::BTreeMap;
use std::path::PathBuf;

use platfs::placement::inode::policy::DIRECTORY_POLICIES;
use platfs::placement::policy::{POLICIES, tunable};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::digest;
use crate::experiment::cells;
use crate::jobs::{Bounds, Found, Job, Key};
use crate::numbers::float;
use crate::results::{Cell, Figures, Record, Results, Skipped};
use crate::system::{Library, Mounting, Named};
use crate::table;
use crate::workload::{Scale, Workload, in_model_time};

/// Options of `plat-lab matrix`.
#[derive(clap::Args)]
pub(crate) struct MatrixOptions {
    /// The matrix, in TOML.
    file: PathBuf,
    /// Appends what is found to this file; what an earlier run left there is not measured again.
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Cells at once; by default one for each processor.
    #[arg(long)]
    jobs: Option<usize>,
    /// Memory in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    memory: u64,
    /// Only says how many cells there are, and which can't be.
    #[arg(long)]
    count: bool,
}

/// A matrix, as its file gives it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Matrix {
    /// Name of the table in results.
    #[serde(default = "matrix")]
    name: String,
    workloads: Vec<String>,
    policies: Vec<String>,
    #[serde(default = "near")]
    directories: Vec<String>,
    #[serde(default = "ordered")]
    orders: Vec<String>,
    #[serde(default = "delayed")]
    delalloc: Vec<bool>,
    #[serde(default = "block_sizes")]
    block_sizes: Vec<u32>,
    /// 0: without bigalloc.
    #[serde(default = "no_clusters")]
    cluster_sizes: Vec<u64>,
    #[serde(default = "drives")]
    drives: Vec<String>,
    #[serde(default = "ext4")]
    types: Vec<String>,
    #[serde(default = "seeds")]
    seeds: Vec<u64>,
    #[serde(default = "size")]
    size_mib: u64,
    #[serde(default)]
    quick: bool,
    /// Settings by workload.
    #[serde(default)]
    settings: BTreeMap<String, BTreeMap<String, Value>>,
    /// Tunables by policy.
    #[serde(default)]
    tunables: BTreeMap<String, BTreeMap<String, u32>>,
}

fn matrix() -> String {
    "matrix".into()
}
fn near() -> Vec<String> {
    vec!["near".into()]
}
fn ordered() -> Vec<String> {
    vec!["ordered".into()]
}
fn delayed() -> Vec<bool> {
    vec![true]
}
fn block_sizes() -> Vec<u32> {
    vec![4096]
}
fn no_clusters() -> Vec<u64> {
    vec![0]
}
fn drives() -> Vec<String> {
    vec!["sata-2010".into()]
}
fn ext4() -> Vec<String> {
    vec!["ext4".into()]
}
fn seeds() -> Vec<u64> {
    vec![1, 2, 3]
}
fn size() -> u64 {
    8192
}

/// Most cells of a matrix: more are a mistake.
const MOST: usize = 100_000;

/// Memory of a cell beside its pages: the volume's metadata, the engine.
const BASE: u64 = 64 << 20;

/// Runs the matrix of a file.
///
/// # Errors
/// A fault of the file, with its line; a cell that could not be measured.
pub(crate) fn run(options: &MatrixOptions) -> Result<(), String> {
    let failure = |error: &dyn std::fmt::Display| format!("{}: {error}", options.file.display());
    let text = std::fs::read_to_string(&options.file).map_err(|error| failure(&error))?;
    let matrix: Matrix = toml::from_str(&text).map_err(|error| failure(&error))?;
    let combinations = matrix.combinations().map_err(|error| failure(&error))?;
    let (possible, skipped): (Vec<_>, Vec<_>) =
        combinations.into_iter().partition(|combination| combination.refused.is_none());
    for Combination { key, refused } in &skipped {
        println!("left out: {}, {}: {}", key.case, key.system, refused.as_deref().unwrap_or_default());
    }
    if options.count {
        println!("{} cells", possible.len());
        return Ok(());
    }
    print!("{}", table::statistics(&measured(&matrix, possible, &skipped, options)?));
    Ok(())
}

fn measured(
    matrix: &Matrix,
    possible: Vec<Combination>,
    skipped: &[Combination],
    options: &MatrixOptions,
) -> Result<Vec<Cell>, String> {
    let earlier = crate::results::earlier(options.results.as_deref())?;
    let results = options.results.as_deref().map(Results::append).transpose()?;
    let keep = |found: &[Record]| match &results {
        Some(results) => found.iter().try_for_each(|record| results.add(record.clone())),
        None => Ok(()),
    };
    let left_out = skipped.iter().map(|Combination { key, refused }| Skipped {
        table: key.table.clone(),
        system: format!("{}, {}", key.case, key.system),
        why: refused.clone().unwrap_or_default(),
    });
    keep(&left_out.map(Record::from).collect::<Vec<_>>())?;
    let jobs =
        possible.into_iter().map(|combination| matrix.job(combination.key)).collect::<Result<Vec<_>, _>>()?;
    let default = Bounds::default();
    let bounds =
        Bounds { jobs: options.jobs.unwrap_or(default.jobs), memory: options.memory.saturating_mul(1 << 20) };
    let found = crate::jobs::run(jobs, bounds, &earlier, &keep)?;
    Ok(cells(found.into_iter().flatten()))
}

/// A cell, and why it can't be.
struct Combination {
    key: Key,
    refused: Option<String>,
}

/// Why a volume can't be, by all that it hangs on; a policy refuses none.
type Refusals = BTreeMap<[String; 5], Option<String>>;

/// All combinations of a value of each list, the last list fastest.
fn product(lists: &[(&str, Vec<Value>)]) -> Vec<Map<String, Value>> {
    let mut all = vec![Map::new()];
    for (name, values) in lists {
        let with = |one: &Map<String, Value>, value: &Value| {
            let mut one = one.clone();
            one.insert((*name).to_string(), value.clone());
            one
        };
        all = all.iter().flat_map(|one| values.iter().map(move |value| with(one, value))).collect();
    }
    all
}

fn values<T: Clone + Into<Value>>(list: &[T]) -> Vec<Value> {
    list.iter().cloned().map(Into::into).collect()
}

impl Matrix {
    fn combinations(&self) -> Result<Vec<Combination>, String> {
        let lists = [
            ("workload", values(&self.workloads)),
            ("drive", values(&self.drives)),
            ("type", values(&self.types)),
            ("block_size", values(&self.block_sizes)),
            ("cluster_size", values(&self.cluster_sizes)),
            ("order", values(&self.orders)),
            ("delalloc", values(&self.delalloc)),
            ("directories", values(&self.directories)),
            ("policy", values(&self.policies)),
            ("seed", values(&self.seeds)),
        ];
        if let Some((name, _)) = lists.iter().find(|(_, values)| values.is_empty()) {
            return Err(format!("{name}: the list is empty"));
        }
        let number = lists.iter().fold(1usize, |number, (_, values)| number.saturating_mul(values.len()));
        if number > MOST {
            return Err(format!("{number} cells are more than {MOST}"));
        }
        self.check_settings()?;
        let mut refusals = Refusals::new();
        product(&lists).into_iter().map(|varied| self.combination(varied, &lists, &mut refusals)).collect()
    }

    fn check_settings(&self) -> Result<(), String> {
        for (workload, settings) in &self.settings {
            let known = Workload::named(workload)?.settings;
            if let Some(name) = settings.keys().find(|name| !known.iter().any(|(known, _)| known == name)) {
                return Err(format!("settings.{workload}: there is no {name}"));
            }
        }
        for (policy, tunables) in &self.tunables {
            let of_blocks = POLICIES.iter().map(|row| (row.name, row.tunables));
            let mut rows = of_blocks.chain(DIRECTORY_POLICIES.iter().map(|row| (row.name, row.tunables)));
            let row = rows.find(|row| row.0 == policy);
            let (name, known) = row.ok_or_else(|| format!("tunables.{policy}: no such policy"))?;
            let tunables: Vec<_> = tunables.iter().map(|(name, value)| (&**name, *value)).collect();
            let checked = tunable::settings(name, known, &tunables);
            checked.map_err(|error| format!("tunables.{policy}: {error}"))?;
        }
        Ok(())
    }

    /// The key of a combination: what varies among several values makes up the names of case and system.
    fn combination(
        &self,
        mut varied: Map<String, Value>,
        lists: &[(&str, Vec<Value>)],
        refusals: &mut Refusals,
    ) -> Result<Combination, String> {
        let seed = varied.remove("seed").and_then(|seed| seed.as_u64()).unwrap_or(0);
        let several = |name: &str| lists.iter().any(|(known, values)| *known == name && values.len() > 1);
        let part = |name: &str| match &varied[name] {
            Value::String(text) => text.clone(),
            Value::Bool(on) => if *on { "delalloc" } else { "nodelalloc" }.into(),
            Value::Number(number) if name == "cluster_size" => format!("clusters of {number}"),
            Value::Number(number) => format!("blocks of {number}"),
            other => other.to_string(),
        };
        let name = |parts: &[&str]| -> String {
            let all = parts.iter().enumerate().filter(|(at, name)| *at == 0 || several(name));
            all.map(|(_, name)| part(name)).collect::<Vec<_>>().join(", ")
        };
        let case = name(&["workload", "drive", "type", "block_size", "cluster_size"]);
        let system = name(&["policy", "directories", "order", "delalloc"]);
        let workload = varied["workload"].as_str().unwrap_or_default().to_string();
        let policy = varied["policy"].as_str().unwrap_or_default().to_string();
        let directories = varied["directories"].as_str().unwrap_or_default().to_string();
        let mut parameters = varied;
        parameters.insert("size_mib".into(), self.size_mib.into());
        parameters.insert("quick".into(), self.quick.into());
        let settings = self.settings.get(&workload).into_iter().flatten();
        let settings: BTreeMap<_, _> = settings.map(|(name, value)| (name.clone(), plain(value))).collect();
        parameters.insert("files".into(), digest::of_files(&settings));
        for (name, value) in settings {
            parameters.insert(format!("{workload}.{name}"), value.into());
        }
        for policy in [policy, directories] {
            for (name, value) in self.tunables.get(&policy).into_iter().flatten() {
                parameters.insert(format!("{policy}:{name}"), (*value).into());
            }
        }
        let key = Key { table: self.name.clone(), case, system, seed, parameters };
        let mounting = self.mounting(&key)?;
        let matters = ["drive", "type", "block_size", "cluster_size", "order"];
        let matters = matters.map(|name| key.parameters[name].to_string());
        let refused = refusals.entry(matters).or_insert_with(|| Library::new(&mounting).err()).clone();
        Ok(Combination { key, refused })
    }

    fn mounting(&self, key: &Key) -> Result<Mounting, String> {
        let text = |name: &str| key.parameters[name].as_str().unwrap_or_default();
        let number = |name: &str| key.parameters[name].as_u64().unwrap_or(0);
        let policy = text("policy");
        let named = Named {
            drive: text("drive"),
            size_mib: self.size_mib,
            fs_type: text("type"),
            block_size: u32::try_from(number("block_size")).ok(),
            cluster_size: Some(number("cluster_size")).filter(|size| *size > 0),
            policy,
            directories: text("directories"),
            order: text("order"),
            delalloc: key.parameters["delalloc"].as_bool() == Some(true),
            seed: key.seed,
        };
        let both = [policy, text("directories")].into_iter().filter_map(|policy| self.tunables.get(policy));
        let tunables = both.flatten().map(|(name, value)| (name.clone(), *value)).collect();
        Ok(Mounting { tunables, ..named.mounting()? })
    }

    fn job(&self, key: Key) -> Result<Job, String> {
        let mounting = self.mounting(&key)?;
        let name = key.parameters["workload"].as_str().unwrap_or_default();
        let workload = Workload::named(name)?;
        let settings = self.settings.get(name).into_iter().flatten();
        let settings = settings.map(|(name, value)| (name.clone(), plain(value))).collect();
        let scale = Scale { seed: key.seed, quick: self.quick, settings };
        let memory = BASE + mounting.drive.waiting + self.size_mib * 1024;
        let run = move |key: &Key| measure(workload, &scale, &mounting, key);
        Ok(Job { key, memory, weight: 1, run: Box::new(run) })
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), String::from)
}

/// Runs a workload on a new volume: seconds and what the drive did, phase by phase, and how all lies then.
fn measure(workload: &Workload, scale: &Scale, mounting: &Mounting, key: &Key) -> Result<Found, String> {
    let library = Library::new(mounting)?;
    let mut figures = Vec::new();
    for phase in (workload.phases)(scale)? {
        let outcome = in_model_time(&library, phase)?;
        let name = &outcome.name;
        figures.push((format!("{name} s"), outcome.seconds()));
        if outcome.kinds.values().any(|timing| timing.bytes > 0) {
            figures.push((format!("{name} MB/s"), outcome.megabytes_per_second()));
        }
        figures.push((format!("{name} requests"), float(outcome.drive.reads + outcome.drive.writes)));
        figures.push((format!("{name} seeks"), float(outcome.drive.seeks)));
    }
    let lies = crate::layout::measures(library.volume()).map_err(|error| error.to_string())?;
    figures.extend(lies.into_iter().map(|(name, value)| (name.to_string(), value)));
    Ok(vec![Cell { figures: Figures(figures), ..key.cell() }.into()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Matrix, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    const SMALL: &str = r#"
        name = "small"
        workloads = ["dd"]
        policies = ["lease", "single"]
        orders = ["async", "softdep"]
        types = ["ext2"]
        delalloc = [true, false]
        seeds = [1, 2]
        size_mib = 64
        quick = true
        settings.dd = { files = 3, size = 3_000_000 }
    "#;

    fn found(matrix: &Matrix) -> Vec<Cell> {
        let cells = matrix.combinations().unwrap();
        let jobs = cells.into_iter().map(|cell| matrix.job(cell.key).unwrap()).collect();
        let found = crate::jobs::run(jobs, Bounds::default(), &[], &|_| Ok(())).unwrap();
        let cell = |record| match record {
            Record::Cell(cell) => cell,
            other => panic!("{other:?}"),
        };
        found.into_iter().flatten().map(cell).collect()
    }

    #[test]
    fn every_combination_is_measured_and_twice_the_same() {
        let matrix = read(SMALL).unwrap();
        let cells = found(&matrix);
        assert_eq!(cells.len(), 16);
        let systems = table::systems(&cells);
        assert_eq!(systems.len(), 8);
        assert!(systems.contains(&"single, softdep, nodelalloc"), "{systems:?}");
        assert_eq!(cells, found(&matrix));
        let text = table::statistics(&cells);
        let of = |system: &str| {
            let row =
                text.lines().find(|line| line.contains("extents/file") && line.contains(system)).unwrap();
            row.split_once(system).unwrap().1.split_whitespace().collect::<Vec<_>>()
        };
        // An indirect block lies within each file: two extents are the least. Files that grow side by side without
        // waiting cut each other up, except where each begins in a part of the group of its own.
        let [runs, _, _, median, ..] = of("lease, async, delalloc")[..] else { panic!("{text}") };
        assert_eq!((runs, median), ("2", "2"), "{text}");
        assert!(of("lease, async, nodelalloc").contains(&"differs"), "{text}");
        assert!(of("single, async, nodelalloc").contains(&"same"), "{text}");
    }

    #[test]
    fn what_cannot_be_is_left_out_and_said() {
        let matrix = read(
            "workloads = ['dd']\npolicies = ['lease']\ntypes = ['ext2']\ncluster_sizes = [0, 65536]\nsize_mib = 64",
        );
        let cells = matrix.unwrap().combinations().unwrap();
        let refused: Vec<_> = cells.iter().filter_map(|cell| cell.refused.as_deref()).collect();
        assert_eq!((cells.len(), refused.len()), (6, 3));
        assert!(refused[0].contains("bigalloc"), "{refused:?}");
    }

    #[test]
    fn mistakes_are_named() {
        let with = |line: &str| {
            let text = format!("workloads = ['dd']\npolicies = ['lease']\nsize_mib = 64\n{line}");
            read(&text).and_then(|matrix| matrix.combinations().map(|_| ())).unwrap_err()
        };
        for (line, named) in [
            ("orders = ['fast']", "fast"),
            ("orders = []", "empty"),
            ("drives = ['drum']", "drum"),
            ("directories = ['far']", "far"),
            ("polices = ['lease']", "polices"),
            ("settings.dd.color = 'red'", "color"),
            ("settings.xx.color = 'red'", "xx"),
            ("tunables.lease.speed = 3", "speed"),
            ("tunables.dirpref.avgfpdir = 0", "from 1 to"),
            ("tunables.far.avgfpdir = 1", "no such policy"),
            ("types = ['ext5']", "ext5"),
        ] {
            assert!(with(line).contains(named), "{line}: {}", with(line));
        }
    }
}
