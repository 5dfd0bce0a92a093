//! `plat-lab work`: one workload on one file system, in model time or in a directory.

use std::path::PathBuf;

use crate::drive::DRIVES;
use crate::numbers::float;
use crate::system::{Directory, Library, Mounting, Named};
use crate::workload::{Outcome, Scale, WORKLOADS, Workload, in_model_time, in_real_time};

/// Options of `plat-lab work`.
#[derive(clap::Args)]
pub(crate) struct WorkOptions {
    /// Name of the workload; `list` names workloads and drives.
    workload: String,
    /// Runs in this directory, in real time, instead of on the library in model time.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["drive", "size", "fs_type", "policy", "dirs", "order"])]
    within: Option<PathBuf>,
    /// The drive of the model.
    #[arg(long, default_value = "sata-2010")]
    drive: String,
    /// Size of the volume, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 10_240)]
    size: u64,
    /// ext2, ext3 or ext4.
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = "ext4")]
    fs_type: String,
    /// Bytes of a block.
    #[arg(short, long)]
    block_size: Option<u32>,
    /// Bytes of a cluster (bigalloc).
    #[arg(short = 'C', long)]
    cluster_size: Option<u64>,
    /// The block policy.
    #[arg(long, default_value = "lease")]
    policy: String,
    /// The directory policy.
    #[arg(long, default_value = "near")]
    dirs: String,
    /// ordered, writeback, journal, softdep, normal, sync or async.
    #[arg(long, default_value = "ordered")]
    order: String,
    /// Blocks are chosen at each write.
    #[arg(long)]
    nodelalloc: bool,
    /// Seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Small sizes.
    #[arg(long)]
    quick: bool,
    /// Sets something of the workload, or a parameter of the policies.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    sets: Vec<String>,
}

/// Runs it and prints a line per phase and kind of call.
///
/// # Errors
/// A fault of the options; the first call that failed.
pub(crate) fn work(options: &WorkOptions) -> Result<(), String> {
    if options.workload == "list" {
        list();
        return Ok(());
    }
    let workload = Workload::named(&options.workload)?;
    let mut scale = Scale { seed: options.seed, quick: options.quick, ..Scale::default() };
    let is_placement = |set: &&String| {
        let name = set.split_once('=').map_or("", |(name, _)| name);
        placement::parameters::parameter(name).is_some()
            && !workload.settings.iter().any(|(known, _)| *known == name)
    };
    let (of_placement, of_workload): (Vec<_>, Vec<_>) = options.sets.iter().partition(is_placement);
    for set in of_workload {
        let (name, value) = set.split_once('=').ok_or_else(|| format!("{set}: say name=value"))?;
        if !workload.settings.iter().any(|(known, _)| *known == name) {
            let names: Vec<_> = workload.settings.iter().map(|(known, _)| *known).collect();
            return Err(format!("{} has no setting {name}; it has {}", workload.name, names.join(", ")));
        }
        scale.settings.insert(name.into(), value.into());
    }
    let phases = (workload.phases)(&scale)?;
    if let Some(root) = &options.within {
        let directory = Directory::new(root);
        for phase in phases {
            print(&in_real_time(&directory, phase)?);
        }
        return Ok(());
    }
    let mut mounting = options.mounting()?;
    for set in of_placement {
        let (name, value) = set.split_once('=').unwrap_or_default();
        let value = value.parse().map_err(|_| format!("{set}: {value} is not a whole number"))?;
        mounting.tunables.push((name.into(), value));
    }
    let library = Library::new(&mounting)?;
    for phase in phases {
        print(&in_model_time(&library, phase)?);
    }
    Ok(())
}

impl WorkOptions {
    fn mounting(&self) -> Result<Mounting, String> {
        Named {
            drive: &self.drive,
            size_mib: self.size,
            fs_type: &self.fs_type,
            block_size: self.block_size,
            cluster_size: self.cluster_size,
            policy: &self.policy,
            directories: &self.dirs,
            order: &self.order,
            delalloc: !self.nodelalloc,
            seed: self.seed,
        }
        .mounting()
    }
}

fn list() {
    println!("workloads");
    for workload in WORKLOADS {
        println!("  {:12} {}", workload.name, workload.summary);
        for (name, meaning) in workload.settings {
            println!("    {name:20} {meaning}");
        }
    }
    println!("drives");
    for drive in DRIVES {
        println!("  {:12} {} ({})", drive.name, drive.summary, drive.source);
    }
}

fn print(outcome: &Outcome) {
    let drive = outcome.drive;
    println!("{}: {:.3} s, {:.2} MB/s", outcome.name, outcome.seconds(), outcome.megabytes_per_second());
    if drive.reads + drive.writes > 0 {
        println!(
            "  drive: {} reads of {} KiB, {} writes of {} KiB, {} seeks, {} flushes, busy {:.3} s",
            drive.reads,
            drive.read_bytes >> 10,
            drive.writes,
            drive.written_bytes >> 10,
            drive.seeks,
            drive.flushes,
            float(drive.busy) / 1e9
        );
    }
    for (kind, timing) in &outcome.kinds {
        println!(
            "  {kind:10} {:9} calls, {:12.1} us each, {:9.3} ms at most",
            timing.calls,
            float(timing.time) / 1e3 / float(timing.calls.max(1)),
            float(timing.longest) / 1e6
        );
    }
}
