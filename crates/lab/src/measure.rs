//! Measures of fragmentation, all independent of the machine: of files, and of free space. Never
//! one without the other, since they trade against each other.

use crate::numbers::float;
use crate::volume::{File, Volume};
use ondisk::units::ClusterRun;

/// A ratio; zero where there is nothing to divide by.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { float(part) / float(whole) }
}

fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Measures of files: extents per file, the 99th percentile of it, extents of files of at least
/// 256 clusters, and the layout score of Smith and Seltzer (share of clusters that follow their
/// predecessor in the file).
pub(crate) fn files<'a>(files: impl Iterator<Item = &'a File>) -> Vec<(&'static str, f64)> {
    let (mut counts, mut large, mut large_extents, mut clusters) = (Vec::new(), 0, 0, 0);
    for file in files.filter(|file| !file.runs.is_empty()) {
        let extents = as_u64(file.runs.len());
        counts.push(extents);
        clusters += file.clusters();
        if file.clusters() >= 256 {
            large += 1;
            large_extents += extents;
        }
    }
    counts.sort_unstable();
    let total: u64 = counts.iter().sum();
    let number = as_u64(counts.len());
    let p99 = counts.get(counts.len() * 99 / 100).copied().unwrap_or(0);
    vec![
        ("extents/file", ratio(total, number)),
        ("p99", float(p99)),
        ("extents/large", ratio(large_extents, large)),
        ("layout", 1.0 - ratio(total.saturating_sub(number), clusters.saturating_sub(number).max(1))),
    ]
}

/// Measures of free space: runs, their mean, the share of free clusters in runs of at least 64,
/// 512 and 2,048, and in completely free aligned chunks of 512.
pub(crate) fn free_space(volume: &Volume) -> Vec<(&'static str, f64)> {
    let runs: Vec<ClusterRun> = volume.engine.free_runs().collect();
    let free: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
    let least = |bound: u32| -> u64 {
        runs.iter().filter(|run| run.count >= bound).map(|run| u64::from(run.count)).sum()
    };
    let chunks = |run: &ClusterRun| (run.end() / 512).saturating_sub(run.start.0.div_ceil(512));
    let aligned: u64 = runs.iter().map(chunks).sum();
    vec![
        ("free runs", float(as_u64(runs.len()))),
        ("mean run", ratio(free, as_u64(runs.len()))),
        (">=64 %", 100.0 * ratio(least(64), free)),
        (">=512 %", 100.0 * ratio(least(512), free)),
        (">=2048 %", 100.0 * ratio(least(2_048), free)),
        ("aligned %", 100.0 * ratio(aligned * 512, free)),
    ]
}

/// Share of file beginnings within 32 clusters of the end of the file before in the same
/// directory, in the order of creation.
pub(crate) fn neighbours<'a>(files: impl Iterator<Item = &'a File>) -> f64 {
    let mut last = std::collections::BTreeMap::new();
    let (mut near, mut all) = (0, 0);
    for file in files {
        let (Some(first), Some(end)) = (file.runs.first(), file.runs.last()) else { continue };
        if let Some(before) = last.insert(file.directory, end.end()) {
            all += 1;
            near += u64::from(first.start.0.abs_diff(before) <= 32);
        }
    }
    100.0 * ratio(near, all)
}
