//! Interleaved sequential writers, as in the comparisons of 2004 and 2010: each writes its file a
//! cluster at a time, in turns. What counts is how far the files are torn apart.
//!
//! - `nine-writers`: nine files of 20 MB, with and without delayed allocation.
//! - `stream-writers`: 1 GB in 4, 8, 16, 32 files, with and without delayed allocation.
//! - `windows`: 1, 4, 8, 16 clients, each writing many files of a few to a few hundred clusters in
//!   a directory of its own and deleting some again.
//! - `appenders`: 64 files grown to 1 GiB by `fallocate` of 4 KiB on 200 GiB.

use super::Setup;
use crate::measure::{self, ratio};
use crate::numbers::{Numbers, count, float};
use crate::table::{Row, Rows};
use crate::volume::{File, Volume, Writing, layout};
use ondisk::units::{Cluster, Group};
use placement::{BlockPolicyKind, Counter};

const BASELINES: [BlockPolicyKind; 6] = [
    BlockPolicyKind::Lease,
    BlockPolicyKind::Single,
    BlockPolicyKind::Prealloc8,
    BlockPolicyKind::Window,
    BlockPolicyKind::WindowDynamic,
    BlockPolicyKind::Mballoc,
];

/// Distance the head travels between runs when every file is read in order.
fn seek_sum(files: &[File]) -> u64 {
    let gap = |pair: &[ondisk::units::ClusterRun]| match pair {
        [a, b] => b.start.0.abs_diff(a.end()),
        _ => 0,
    };
    files.iter().flat_map(|file| file.runs.windows(2)).map(gap).sum()
}

fn figures(volume: &Volume, files: &[File]) -> Vec<(&'static str, f64)> {
    let stats = volume.engine.stats();
    let number = u64::try_from(files.len()).unwrap_or(0);
    let extents: u64 = files.iter().map(|f| u64::try_from(f.runs.len()).unwrap_or(0)).sum();
    let (hits, misses) = (stats.get(Counter::WindowHits), stats.get(Counter::WindowMisses));
    vec![
        ("extents/file", ratio(extents, number)),
        ("seek sum", float(seek_sum(files))),
        ("calls/file", ratio(stats.get(Counter::Reqs), number)),
        ("window hits %", 100.0 * ratio(hits, hits + misses)),
        ("scanned", float(stats.get(Counter::ExtentsScanned))),
    ]
}

/// Every writer in turn adds a cluster until its file has `clusters`.
fn interleave(volume: &mut Volume, writers: u32, clusters: u32, delayed: bool) -> Vec<File> {
    let mut files: Vec<File> = (0..writers).map(|n| volume.file(2 + u64::from(n))).collect();
    if delayed {
        for file in &mut files {
            volume.append(file, clusters, Cluster(0), Writing::Whole);
        }
    } else {
        for _ in 0..clusters {
            for file in &mut files {
                volume.append(file, 1, Cluster(0), Writing::Growing);
            }
        }
    }
    for file in &files {
        volume.close(file);
    }
    files
}

fn table(setup: &Setup, cases: &[(String, u32, u32)], own: &[BlockPolicyKind]) -> Rows {
    let mut rows = Vec::new();
    for delayed in [false, true] {
        for (name, writers, clusters) in cases {
            let case = format!("{name} {}", if delayed { "delayed" } else { "at once" });
            for policy in setup.policies(own).into_iter().filter(|_| setup.wants(&case)) {
                let Some(mut volume) = setup.volume(64, 32_768, policy) else { continue };
                let clusters = if setup.quick { clusters / 16 } else { *clusters };
                let files = interleave(&mut volume, *writers, clusters, delayed);
                let values = figures(&volume, &files);
                setup.counters.note(&case, policy, &volume.engine);
                rows.push(Row { case: case.clone(), policy: policy.name().into(), values });
            }
        }
    }
    rows
}

pub(crate) fn nine(setup: &Setup) -> Rows {
    table(setup, &[("9 x 20 MB".to_string(), 9, 4_883)], &BASELINES)
}

pub(crate) fn streams(setup: &Setup) -> Rows {
    let cases = [4u32, 8, 16, 32].map(|n| (format!("{n} writers"), n, 262_144 / n));
    table(setup, &cases, &BASELINES)
}

pub(crate) fn windows(setup: &Setup) -> Rows {
    let mut rows = Vec::new();
    for clients in [1u32, 4, 8, 16] {
        let case = format!("{clients} clients");
        for policy in setup.policies(&BASELINES).into_iter().filter(|_| setup.wants(&case)) {
            rows.extend(client_files(&case, clients, policy, setup));
        }
    }
    rows
}

/// Clients write files of 1 to 512 clusters a cluster at a time, in turns; when one is done it is
/// closed, a fifth of the older ones are deleted, and the next is begun.
fn client_files(case: &str, clients: u32, policy: BlockPolicyKind, setup: &Setup) -> Option<Row> {
    let mut numbers = Numbers::new(setup.seed);
    let mut volume = setup.volume(16, 32_768, policy)?;
    let steps = if setup.quick { 20_000 } else { 300_000 };
    let mut done = Vec::new();
    let mut open: Vec<(File, u32)> = Vec::new();
    for client in 0..clients {
        open.push((volume.file(u64::from(client) + 2), 1));
    }
    for step in 0..steps {
        let client = step % open.len();
        let groups = volume.engine.layout().groups;
        let home = u32::try_from(client).unwrap_or(0) % groups;
        let goal = volume.engine.layout().group_start(Group(home / 4));
        let Some((file, left)) = open.get_mut(client) else { continue };
        volume.append(file, 1, goal, Writing::Growing);
        *left -= 1;
        if *left == 0 {
            volume.close(file);
            let directory = file.directory;
            let full = std::mem::replace(file, volume.file(directory));
            *left = count(numbers.log_uniform(1.0, 512.0), 512).max(1);
            done.push(full);
            while volume.fullness() > 0.6 || (done.len() > 50 && numbers.chance(0.2)) {
                let victim = done.swap_remove(numbers.index(done.len()));
                volume.remove(&victim);
            }
        }
    }
    setup.counters.note(case, policy, &volume.engine);
    Some(Row { case: case.into(), policy: policy.name().into(), values: figures(&volume, &done) })
}

pub(crate) fn appenders(setup: &Setup) -> Rows {
    let own = [BlockPolicyKind::Lease, BlockPolicyKind::Mballoc, BlockPolicyKind::Mballoc65];
    let mut rows = Vec::new();
    for policy in setup.policies(&own) {
        rows.extend(append(policy, setup));
    }
    rows
}

/// The kernel's `fallocate` forbids raising the request, so mballoc runs with `no_normalize`.
fn append(policy: BlockPolicyKind, setup: &Setup) -> Option<Row> {
    let engine = setup.engine(layout(1_600, 32_768), policy, &[("no_normalize", 1), ("cpus", 64)])?;
    let mut volume = Volume::on(engine);
    volume.describe_empty()?;
    let clusters = if setup.quick { 4_096 } else { 262_144 };
    let files = interleave(&mut volume, 64, clusters, false);
    let mut values = figures(&volume, &files);
    values.extend(measure::free_space(&volume).into_iter().take(2));
    let case = format!("64 x {} MiB", clusters / 256);
    setup.counters.note(&case, policy, &volume.engine);
    Some(Row { case, policy: policy.name().into(), values })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(case: &str) -> Setup {
        Setup { seed: 1, quick: true, case: case.into(), ..Setup::default() }
    }

    #[test]
    fn delayed_writers_get_one_extent_each_and_ours_is_best_at_once() {
        let rows = nine(&setup(""));
        let extents = |case: &str, policy: &str| {
            let row = rows.iter().find(|r| r.case.ends_with(case) && r.policy == policy).unwrap();
            row.values[0].1
        };
        assert_eq!(extents("delayed", "lease"), 1.0);
        for row in &rows {
            let case = if row.case.ends_with("delayed") { "delayed" } else { "at once" };
            assert!(extents(case, "lease") <= row.values[0].1, "{} {}", row.case, row.policy);
        }
        assert!(extents("at once", "window") < extents("at once", "single"));
    }

    #[test]
    fn appenders_stay_whole() {
        let rows = appenders(&Setup { policies: vec!["lease".into()], ..setup("") });
        assert!(rows[0].values[0].1 <= 9.0, "{}", rows[0].values[0].1);
    }
}
