//! `plat-lab peers`: the very same workloads in real time on real images, ours next to the kernel's file systems:
//! how files and free space lie behind each phase, and how long it took.
//!
//! Owns: which workloads at which sizes, the volumes and mounts of every system, and the reading of their layout.
//! Excludes the calls themselves: [`crate::workload`].

mod census;
mod cold;
mod compare;
mod mbstats;
mod peer;
mod place;
mod s1;
#[cfg(test)]
mod tests;
pub(crate) mod tool;

use std::path::{Path, PathBuf};

pub(crate) use mbstats::{Counts, SHARED, Tunables, counts, fresh, missing, read_mb_stats};
pub(crate) use place::{Mounted, WorkDir};

use census::Census;
use peer::Peer;

use crate::results::{Cell, Results, Skipped};
use crate::workload::{Scale, Workload};

/// The name of the table in results.
const TABLE: &str = "peers";

/// Options of `plat-lab peers`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct PeersOptions {
    #[command(subcommand)]
    what: Option<PeerCommand>,
    #[command(flatten)]
    compare: CompareOptions,
}

#[derive(clap::Subcommand)]
enum PeerCommand {
    /// The kernel's own counters of its allocator next to those of our port of it, on the same image.
    Mbstats(mbstats::MbstatsOptions),
    /// Files by fs_mark and bytes by fio on fragmented free space: the kernel's allocator, our port of it, and ours.
    S1(s1::S1Options),
}

#[derive(clap::Args)]
struct CompareOptions {
    /// Cases, separated by commas; all if none is named.
    #[arg(long, value_delimiter = ',')]
    workloads: Vec<String>,
    /// Systems, separated by commas: library, fuse, ext4, xfs, btrfs, fuse2fs. With mount options: `ext4:nodelalloc`;
    /// options are separated by `+`.
    #[arg(long, value_delimiter = ',', default_value = "library,fuse,ext4,xfs,btrfs,fuse2fs")]
    systems: Vec<String>,
    /// Size of the volumes, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    size: u64,
    /// Runs each so often, with seeds of its own.
    #[arg(long, default_value_t = 1)]
    rounds: u64,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Small sizes.
    #[arg(long)]
    quick: bool,
    /// Where the images are made, one at a time; they are sparse.
    #[arg(long, default_value = "/var/tmp")]
    dir: PathBuf,
    /// The program `plat`; else the one beside plat-lab.
    #[arg(long)]
    plat: Option<PathBuf>,
    /// Appends every figure to this file.
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
}

/// A workload as it is run here, and what it is.
struct Case {
    name: &'static str,
    workload: &'static str,
    settings: &'static [(&'static str, &'static str)],
    about: &'static str,
}

const CASES: &[Case] = &[
    Case { name: "dd", workload: "dd", settings: &[], about: "nine files of 20 MB at once" },
    Case {
        name: "append",
        workload: "append",
        settings: &[],
        about: "64 files grown side by side to 4 MiB, 4 KiB at a time",
    },
    Case {
        name: "append-sync",
        workload: "append",
        settings: &[("sync", "16"), ("size", "1048576")],
        about: "the same to 1 MiB, fsync after every 64 KiB",
    },
    Case {
        name: "append-reserve",
        workload: "append",
        settings: &[("reserve", "1")],
        about: "the same to 4 MiB by fallocate",
    },
    Case {
        name: "fsmark",
        workload: "fsmark",
        settings: &[],
        about: "10,000 files of 50 KiB by four threads",
    },
    Case { name: "dbench", workload: "dbench", settings: &[], about: "eight clients of a file server" },
    Case { name: "tree", workload: "tree", settings: &[], about: "a ports tree unpacked, and removed" },
    Case { name: "age", workload: "age", settings: &[], about: "full to 80 %, all written over twice" },
    Case { name: "age-85", workload: "age", settings: &[("fill", "85")], about: "the same to 85 %" },
    Case {
        name: "geriatrix",
        workload: "geriatrix",
        settings: &[("fill", "80"), ("over", "400")],
        about: "Geriatrix's profile agrawal: full to 80 %, all written over four times",
    },
    Case {
        name: "geriatrix-douceur",
        workload: "geriatrix",
        settings: &[("profile", "douceur"), ("fill", "80"), ("over", "400")],
        about: "the same by its profile douceur",
    },
];

/// Runs the comparisons that the options name.
///
/// # Errors
/// A fault of the options; the first system that failed on the way, with the case.
pub(crate) fn peers(options: &PeersOptions) -> Result<(), String> {
    match &options.what {
        Some(PeerCommand::Mbstats(mbstats)) => return mbstats::run(mbstats),
        Some(PeerCommand::S1(s1)) => return s1::run(s1),
        None => {}
    }
    let cells = compare_all(&options.compare, CASES)?;
    for case in CASES.iter().filter(|case| cells.iter().any(|cell| cell.case == case.name)) {
        println!("{:16} {}", case.name, case.about);
    }
    print!("{}", compare::text(&cells));
    Ok(())
}

fn compare_all(options: &CompareOptions, cases: &[Case]) -> Result<Vec<Cell>, String> {
    let results = options.results.as_deref().map(Results::append).transpose()?;
    let peers = able(options, results.as_ref())?;
    let known = |name: &&String| !cases.iter().any(|case| case.name == name.as_str());
    if let Some(name) = options.workloads.iter().find(known) {
        let names: Vec<_> = cases.iter().map(|case| case.name).collect();
        return Err(format!("no case is called {name}; there are {}", names.join(", ")));
    }
    let wanted =
        |case: &&Case| options.workloads.is_empty() || options.workloads.iter().any(|n| n == case.name);
    let place = WorkDir::new(&options.dir)?;
    let mut cells = Vec::new();
    for seed in options.seed..options.seed.saturating_add(options.rounds.max(1)) {
        for case in cases.iter().filter(wanted) {
            for peer in &peers {
                eprintln!("{}: {} (seed {seed})", case.name, peer.name);
                let failure = |error| format!("{} on {}: {error}", case.name, peer.name);
                let found = one(options, &place, case, peer, seed).map_err(failure)?;
                if let Some(results) = &results {
                    found.iter().try_for_each(|cell| results.add(cell.clone()))?;
                }
                cells.extend(found);
            }
        }
    }
    if let Some(results) = &results {
        compare::verdicts(&cells).into_iter().try_for_each(|verdict| results.add(verdict))?;
    }
    Ok(cells)
}

/// The systems that can run here; for the others the reason is reported.
fn able(options: &CompareOptions, results: Option<&Results>) -> Result<Vec<Peer>, String> {
    let plat = options.plat.clone().or_else(beside);
    let mut peers = Vec::new();
    for name in &options.systems {
        let peer = Peer::named(&name.replace('+', ","), plat.clone())?;
        match peer.missing() {
            None => peers.push(peer),
            Some(why) => {
                eprintln!("SKIPPED: {name}: {why}");
                let skipped = Skipped { table: TABLE.into(), system: peer.name, why };
                results.map_or(Ok(()), |results| results.add(skipped))?;
            }
        }
    }
    Ok(peers)
}

/// The program `plat` beside this one.
fn beside() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let plat = own.with_file_name("plat");
    plat.is_file().then_some(plat)
}

/// A case on a new volume of one system: a cell behind each phase.
fn one(
    options: &CompareOptions,
    place: &WorkDir,
    case: &Case,
    peer: &Peer,
    seed: u64,
) -> Result<Vec<Cell>, String> {
    let size = options.size << 20;
    let workload = Workload::named(case.workload)?;
    let mut scale = Scale { seed, quick: options.quick, ..Scale::default() };
    for (name, value) in case.settings {
        scale.settings.insert((*name).into(), (*value).into());
    }
    if workload.settings.iter().any(|(name, _)| *name == "volume") {
        scale.settings.insert("volume".into(), size.to_string());
    }
    peer.make(place, size)?;
    let new = peer.census(place)?;
    let mut cells = Vec::new();
    for phase in (workload.phases)(&scale)? {
        // Every phase has a sync behind it here.
        if phase.name == "sync" {
            continue;
        }
        let name = format!("{}: {}", case.name, phase.name);
        let outcome = peer.run(place, phase)?;
        let census = peer.census(place)?;
        let figures = std::iter::once(("seconds", outcome.seconds())).chain(census.figures(&new));
        let figures = figures.chain(peer.cold(place)?);
        cells.push(Cell {
            table: TABLE.into(),
            case: name,
            system: peer.name.clone(),
            seed,
            parameters: parameters(options, &census),
            figures: figures.collect(),
            ..Cell::default()
        });
    }
    remove(&place.image())?;
    Ok(cells)
}

/// Images take what the disk may not have.
pub(crate) fn remove(image: &Path) -> Result<(), String> {
    std::fs::remove_file(image).map_err(|error| format!("{}: {error}", image.display()))
}

fn parameters(options: &CompareOptions, census: &Census) -> serde_json::Map<String, serde_json::Value> {
    let mut parameters = serde_json::Map::new();
    parameters.insert("size_mib".into(), options.size.into());
    parameters.insert("free_bins".into(), census.bins().into());
    if options.quick {
        parameters.insert("quick".into(), true.into());
    }
    parameters
}
