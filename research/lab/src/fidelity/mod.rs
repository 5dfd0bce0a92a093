//! `plat-lab fidelity`: the port of mballoc beside the allocator that it is a port of. The same calls run on copies of
//! one image by the kernel and by the library; the kernel's counters and the place of every file are the measure.
//!
//! Owns: the options, the judgement, and what is printed. Excludes the calls (`workloads`), the volumes (`volume`), how
//! they are carried out (`sides`), and the table of what a kernel did (`recorded`).

mod recorded;
mod sides;
mod volume;
mod workloads;

use std::collections::BTreeMap;
use std::path::PathBuf;

use placement::stats::Criterion;
use serde_json::{Value, json};

use crate::peers::{Counts, Tunables, WorkDir, missing};
use crate::table::align;
use sides::{Files, Outcome, by_kernel, by_port, kernel, policy_of};
use volume::Shape;
use workloads::{WORKLOADS, Workload};

/// Options of `plat-lab fidelity`.
#[derive(clap::Args)]
pub(crate) struct FidelityOptions {
    /// Workloads; all if none is named.
    workloads: Vec<String>,
    /// Seed of the calls and of the free runs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A line of JSON for each workload.
    #[arg(long)]
    json: bool,
    /// Size of the volume in GiB; it is sparse. Some workloads have a part of it.
    #[arg(long, value_name = "GIB", default_value_t = 20)]
    size: u64,
    /// Files of each workload, rounded up to whole rounds of 8 or 16 where files are written in turn; for those that fill
    /// the volume, hundredths of the free space.
    #[arg(long)]
    files: Option<u64>,
    /// Settings of the port, as `name=value`.
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',')]
    set: Vec<String>,
    /// Shows so many files that lie elsewhere.
    #[arg(long, default_value_t = 0)]
    differences: usize,
    /// Adds where the kernel's files lie to this table.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Where the images are made.
    #[arg(long, default_value = "/var/tmp")]
    dir: PathBuf,
}

/// The outcomes of a workload: the kernel's and the port's.
struct Comparison {
    kernel: Outcome,
    port: Outcome,
}

/// Runs the workloads and prints how alike the two are.
///
/// # Errors
/// A workload that is not known; the first call that failed. That the kernel can't be asked is no error; it is
/// reported.
pub(crate) fn run(options: &FidelityOptions) -> Result<(), String> {
    let chosen = chosen(&options.workloads)?;
    let set = settings(&options.set)?;
    let place = WorkDir::new(&options.dir)?;
    let (why, mut base, mut lines) = (missing(), None::<(Shape, u64)>, vec![head()]);
    for workload in chosen {
        if let Some(why) = &why {
            skipped(options, workload, why);
            continue;
        }
        let free = match base {
            Some((shape, free)) if shape == workload.shape => free,
            _ => workload.shape.make(&place.copy(), options.size << 30, options.seed)?,
        };
        base = Some((workload.shape, free));
        eprintln!("{}: {}", workload.name, workload.about);
        let found = compare(&place, workload, options, free, &set)
            .map_err(|error| format!("{}: {error}", workload.name))?;
        if let Some(table) = &options.record {
            recorded::add(table, workload, options, &found.kernel.files)?;
        }
        differences(&found, options.differences);
        match options.json {
            true => println!("{}", found.json(workload.name, options.seed)),
            false => lines.push(found.line(workload.name)),
        }
    }
    if !options.json {
        print!("Linux {}\n{}", kernel(), align(&lines));
    }
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<&'static Workload>, String> {
    let named = |name: &String| {
        let found = WORKLOADS.iter().find(|workload| workload.name == name);
        let all = || WORKLOADS.iter().map(|workload| workload.name).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| format!("no workload is called {name}; there are {}", all()))
    };
    if names.is_empty() { Ok(WORKLOADS.iter().collect()) } else { names.iter().map(named).collect() }
}

fn settings(words: &[String]) -> Result<Vec<(String, u32)>, String> {
    let setting = |word: &String| {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("{word}: not NAME=VALUE"))?;
        let value = value.parse().map_err(|_| format!("{word}: not a number"))?;
        Ok((name.to_owned(), value))
    };
    words.iter().map(setting).collect()
}

fn skipped(options: &FidelityOptions, workload: &Workload, why: &str) {
    if options.json {
        println!("{}", json!({ "workload": workload.name, "kernel": null, "skipped": why }));
    } else {
        println!("SKIPPED: {}: {why}", workload.name);
    }
}

fn compare(
    place: &WorkDir,
    workload: &Workload,
    options: &FidelityOptions,
    free: u64,
    set: &[(String, u32)],
) -> Result<Comparison, String> {
    let calls = workload.calls(options.seed, options.files.unwrap_or(workload.count), free);
    let (kernel, chosen) = by_kernel(place, workload.delays, &calls)?;
    let own = set.iter().map(|(name, value)| (name.as_str(), *value));
    let tunables: Tunables<'_> = chosen.into_iter().chain(own).collect();
    let port = by_port(place, policy_of(&sides::kernel()), workload.delays, &tunables, &calls)?;
    Ok(Comparison { kernel, port })
}

fn of(counts: &Counts, criterion: Criterion, figure: &str) -> u64 {
    counts.get(&format!("{}: {figure}", criterion.name())).copied().unwrap_or(0)
}

fn pieces(files: &Files) -> usize {
    files.values().map(Vec::len).sum()
}

impl Comparison {
    /// Files of either that lie in the same places.
    fn identical(&self) -> usize {
        let same = |(path, pieces): &(&String, &Vec<_>)| self.port.files.get(*path) == Some(*pieces);
        self.kernel.files.iter().filter(same).count()
    }

    /// Files and directories, and those whose inode has one number in both.
    fn inodes(&self) -> [usize; 2] {
        let (kernel, port) = (&self.kernel.inodes, &self.port.inodes);
        let others = port.keys().filter(|path| !kernel.contains_key(*path)).count();
        let same = kernel.iter().filter(|(path, inode)| port.get(*path) == Some(*inode)).count();
        [kernel.len() + others, same]
    }

    fn files(&self) -> usize {
        let others = self.port.files.keys().filter(|path| !self.kernel.files.contains_key(*path)).count();
        self.kernel.files.len() + others
    }

    /// A figure of each criterion, the kernel's and the port's.
    fn criteria(&self, figure: &str) -> BTreeMap<&'static str, [u64; 2]> {
        let both = |criterion| [&self.kernel, &self.port].map(|side| of(&side.counts, criterion, figure));
        Criterion::ALL.into_iter().map(|criterion| (criterion.name(), both(criterion))).collect()
    }

    fn both(&self, name: &str) -> [u64; 2] {
        [&self.kernel, &self.port].map(|side| side.counts.get(name).copied().unwrap_or(0))
    }

    fn json(&self, workload: &str, seed: u64) -> Value {
        json!({
            "workload": workload,
            "seed": seed,
            "kernel": kernel(),
            "files": self.files(),
            "identical": self.identical(),
            "inodes": self.inodes(),
            "hits": self.criteria("hits"),
            "groups_considered": self.criteria("groups_considered"),
            "extents_scanned": self.criteria("extents_scanned"),
            "groups_scanned": self.both("groups_scanned"),
            "extents": [pieces(&self.kernel.files), pieces(&self.port.files)],
        })
    }

    fn line(&self, workload: &str) -> Vec<String> {
        let slashed = |counts: &Counts| {
            Criterion::ALL.map(|criterion| of(counts, criterion, "hits").to_string()).join("/")
        };
        let [scanned, port_scanned] = self.both("extents_scanned");
        vec![
            workload.into(),
            String::new(),
            self.files().to_string(),
            self.identical().to_string(),
            self.inodes().map(|count| count.to_string()).join("/"),
            slashed(&self.kernel.counts),
            slashed(&self.port.counts),
            format!("{scanned}/{port_scanned}"),
            format!("{}/{}", pieces(&self.kernel.files), pieces(&self.port.files)),
        ]
    }
}

fn head() -> Vec<String> {
    [
        "workload",
        "",
        "files",
        "identical",
        "inodes/same",
        "kernel's hits",
        "port's hits",
        "scanned",
        "extents",
    ]
    .map(String::from)
    .into()
}

/// Shows some of the files that lie elsewhere, and of the names that have another inode.
fn differences(found: &Comparison, most: usize) {
    let differs = |(path, pieces): &(&String, &Vec<_>)| found.port.files.get(*path) != Some(*pieces);
    for (path, pieces) in found.kernel.files.iter().filter(differs).take(most) {
        eprintln!("{path}: kernel {pieces:?}, port {:?}", found.port.files.get(path));
    }
    let differs = |(path, inode): &(&String, &u64)| found.port.inodes.get(*path) != Some(*inode);
    for (path, inode) in found.kernel.inodes.iter().filter(differs).take(most) {
        eprintln!("{path}: inode of the kernel {inode}, of the port {:?}", found.port.inodes.get(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(workloads: &[&str]) -> FidelityOptions {
        FidelityOptions {
            workloads: workloads.iter().map(|name| (*name).into()).collect(),
            seed: 3,
            json: false,
            size: 1,
            files: Some(40),
            set: Vec::new(),
            differences: 0,
            record: None,
            dir: std::env::temp_dir(),
        }
    }

    #[test]
    fn what_is_asked_wrongly_is_explained() {
        let unknown = options(&["no-such"]);
        assert!(run(&unknown).unwrap_err().contains("there are small, small-mixed"));
        let set = FidelityOptions { set: vec!["cpus".into()], ..options(&["small"]) };
        assert!(run(&set).unwrap_err().contains("not NAME=VALUE"));
    }

    #[test]
    fn files_and_counts_are_compared() {
        let side = |at: u64, hits: u64| Outcome {
            counts: [("goal_fast: hits".to_owned(), hits)].into(),
            files: [("/d/a".to_owned(), vec![[0, 7, 1]]), ("/d/b".to_owned(), vec![[0, at, 2]])].into(),
            inodes: [("/d".to_owned(), 11), ("/d/a".to_owned(), 12), ("/d/b".to_owned(), at)].into(),
        };
        let mut found = Comparison { kernel: side(9, 3), port: side(19, 4) };
        found.port.files.insert("/d/c".into(), Vec::new());
        found.port.inodes.insert("/d/c".into(), 13);
        let json = found.json("w", 5);
        assert_eq!((&json["files"], &json["identical"]), (&json!(3), &json!(1)));
        assert_eq!(json["inodes"], json!([4, 2]));
        assert_eq!((&json["hits"]["goal_fast"], &json["extents"]), (&json!([3, 4]), &json!([2, 2])));
        assert_eq!((json["seed"].as_u64(), json["kernel"].is_string()), (Some(5), true));
    }

    /// The kernel of this machine, with small counts: files of up to 16 blocks lie where it puts them.
    #[test]
    fn small_files_lie_where_the_kernel_puts_them() {
        if let Some(why) = missing() {
            testkit::tool::skip("fidelity", &why);
            return;
        }
        if !kernel().starts_with("6.18") {
            testkit::tool::skip("fidelity", "the port follows Linux 6.18");
            return;
        }
        let options = options(&[]);
        let place = WorkDir::new(&options.dir).unwrap();
        let free = Shape::PLAIN.make(&place.copy(), 1 << 30, options.seed).unwrap();
        for workload in chosen(&["small".into(), "small-mixed".into()]).unwrap() {
            let found = compare(&place, workload, &options, free, &[]).unwrap();
            assert_eq!((found.identical(), found.files()), (40, 40), "{}", workload.name);
            let [kernel, port] = found.both("p2_aligned: hits");
            assert!(kernel > 0 && port > 0, "{kernel} {port}");
        }
    }
}
