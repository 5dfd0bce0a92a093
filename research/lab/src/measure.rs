//! Measures of fragmentation, all independent of the machine: of files, and of free space. Never
//! one without the other, since they trade against each other.

use crate::file::File;
use crate::numbers::float;
#[cfg(feature = "whole")]
use crate::results::Extents;
use ondisk::units::{ClusterRun, Group};
use placement::{Engine, Layout};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

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
    for file in files.filter(|file| !file.runs().is_empty()) {
        let extents = as_u64(file.runs().len());
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
pub(crate) fn free_runs(runs: impl Iterator<Item = ClusterRun>) -> Vec<(&'static str, f64)> {
    let runs: Vec<ClusterRun> = runs.collect();
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

/// Free clusters by the length of their run: element `n` counts those in runs of 2^n to
/// 2^(n+1) - 1, the bins of e2freefrag. Ends with the longest that occur.
pub(crate) fn histogram(engine: &Engine) -> Vec<u64> {
    let mut bins = Vec::new();
    for run in engine.free_runs() {
        let bin = run.count.checked_ilog2().unwrap_or(0) as usize;
        if bins.len() <= bin {
            bins.resize(bin + 1, 0);
        }
        if let Some(total) = bins.get_mut(bin) {
            *total += u64::from(run.count);
        }
    }
    bins
}

/// Share in use of each group, 255 for all of it; a group in which anything is in use is never 0, and
/// one in which anything is free never 255.
pub(crate) fn groups(engine: &Engine) -> Vec<u8> {
    let layout = *engine.layout();
    let share = |group: Group| {
        let all = layout.clusters_of(group);
        let used = all.saturating_sub(engine.group_free(group));
        let share = (u64::from(used) * 255).checked_div(u64::from(all)).unwrap_or(255);
        u8::try_from(if used > 0 { share.max(1) } else { share }).unwrap_or(255)
    };
    (0..layout.groups).map(Group).map(share).collect()
}

/// Where the files in the most pieces lie: the longer first of those in as many.
#[cfg(feature = "whole")]
pub(crate) fn worst<'a>(files: impl Iterator<Item = &'a File>) -> Vec<Extents> {
    const FILES: usize = 16;
    const RUNS: usize = 48;
    let mut worst: Vec<&File> = files.filter(|file| !file.runs().is_empty()).collect();
    worst.sort_by_key(|file| Reverse((file.runs().len(), file.clusters(), file.key)));
    worst.truncate(FILES);
    let runs =
        |file: &File| file.runs().iter().take(RUNS).map(|run| (run.start.0, run.count.into())).collect();
    worst.iter().map(|file| Extents { name: format!("file {}", file.key), runs: runs(file) }).collect()
}

/// Measures of reading everything, directory by directory, files in the order of creation: the
/// dynamic layout score of Conway et al. (FAST 2017; share of clusters that follow the one read
/// before), clusters the head travels per file, and block groups a directory's files touch.
pub(crate) fn reading<'a>(
    layout: &Layout,
    files: impl Iterator<Item = &'a File>,
) -> Vec<(&'static str, f64)> {
    let mut directories: BTreeMap<u64, Vec<&ClusterRun>> = BTreeMap::new();
    let mut number = 0;
    for file in files {
        number += 1;
        directories.entry(file.directory).or_default().extend(file.runs());
    }
    let (mut at, mut clusters, mut jumps, mut distance, mut groups) = (0, 0u64, 0u64, 0u64, 0);
    for runs in directories.values() {
        for run in runs {
            jumps += u64::from(run.start.0 != at);
            distance += run.start.0.abs_diff(at);
            clusters += u64::from(run.count);
            at = run.end();
        }
        groups += runs.iter().map(|run| layout.group_of(run.start)).collect::<BTreeSet<_>>().len();
    }
    vec![
        ("dynamic layout", 1.0 - ratio(jumps, clusters)),
        ("travel/file", ratio(distance, number)),
        ("groups/dir", ratio(as_u64(groups), as_u64(directories.len()))),
    ]
}

/// Share of file beginnings within 32 clusters of the end of the file before in the same
/// directory, in the order of creation.
pub(crate) fn neighbours<'a>(files: impl Iterator<Item = &'a File>) -> f64 {
    let mut last = BTreeMap::new();
    let (mut near, mut all) = (0, 0);
    for file in files {
        let (Some(first), Some(end)) = (file.runs().first(), file.runs().last()) else { continue };
        if let Some(before) = last.insert(file.directory, end.end()) {
            all += 1;
            near += u64::from(first.start.0.abs_diff(before) <= 32);
        }
    }
    100.0 * ratio(near, all)
}
