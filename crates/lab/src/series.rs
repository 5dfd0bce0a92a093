//! Measures along the way of a run, for plots: a scenario that ages a volume offers its state after
//! every step, and the probe samples it at even distances. Without a collection nothing is measured.

use crate::measure;
use crate::numbers::count;
use crate::results::{Aging, Extents};
use crate::volume::{File, Volume};
use std::sync::{Arc, Mutex, PoisonError};

/// Samples of one run.
const SAMPLES: f64 = 48.0;

/// One sample.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) case: String,
    pub(crate) policy: String,
    pub(crate) seed: u64,
    /// Progress of the run in the scenario's own unit.
    pub(crate) at: f64,
    /// Measures of files and of free space.
    pub(crate) values: Vec<(&'static str, f64)>,
    /// Free clusters in runs of 2^n to 2^(n+1) - 1, for n from 0.
    pub(crate) histogram: Vec<u64>,
    pub(crate) fullness: f64,
    pub(crate) operations: u64,
    /// Share in use of each group, 255 for all of it.
    pub(crate) groups: Vec<u8>,
    pub(crate) clusters: u64,
    /// The files in the most pieces.
    pub(crate) worst: Vec<Extents>,
}

impl Point {
    /// The sample as a line of the file of results.
    pub(crate) fn frame(&self, table: &str) -> Aging {
        let value = |name| self.values.iter().find(|(own, _)| *own == name).map_or(0.0, |(_, value)| *value);
        Aging {
            table: table.into(),
            case: self.case.clone(),
            system: self.policy.clone(),
            seed: self.seed,
            step: self.at,
            fullness: self.fullness,
            operations: self.operations,
            extents_per_file: value("extents/file"),
            free_runs: count(value("free runs"), u32::MAX).into(),
            free_bins: self.histogram.clone(),
            groups: self.groups.clone(),
            clusters: self.clusters,
            files: self.worst.clone(),
        }
    }
}

/// Where samples are collected, if they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    points: Option<Arc<Mutex<Vec<Point>>>>,
}

impl Series {
    /// A collection.
    pub(crate) fn collecting() -> Series {
        Series { points: Some(Arc::default()) }
    }

    /// What was collected so far, in order; the collection is empty afterwards.
    pub(crate) fn take(&self) -> Vec<Point> {
        let Some(points) = &self.points else { return Vec::new() };
        std::mem::take(&mut *points.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A probe for one run, which goes from 0 to `end`.
    pub(crate) fn probe(&self, case: &str, policy: &str, seed: u64, end: f64) -> Probe {
        let (case, policy) = (case.to_string(), policy.to_string());
        Probe {
            series: self.clone(),
            case,
            policy,
            seed,
            step: end / SAMPLES,
            next: end / SAMPLES,
            operations: 0,
        }
    }
}

/// Samples one run.
pub(crate) struct Probe {
    series: Series,
    case: String,
    policy: String,
    seed: u64,
    step: f64,
    next: f64,
    operations: u64,
}

impl Probe {
    /// Takes a sample if one is due at `at`; called after every step.
    pub(crate) fn sample<'a>(
        &mut self,
        at: f64,
        volume: &Volume,
        files: impl Iterator<Item = &'a File> + Clone,
    ) {
        self.operations += 1;
        let Some(points) = self.series.points.as_ref().filter(|_| at >= self.next) else { return };
        while self.next <= at {
            self.next += self.step.max(f64::MIN_POSITIVE);
        }
        let mut values = measure::files(files.clone());
        values.extend(measure::free_space(volume));
        let point = Point {
            case: self.case.clone(),
            policy: self.policy.clone(),
            seed: self.seed,
            at,
            values,
            histogram: measure::histogram(volume),
            fullness: volume.fullness(),
            operations: self.operations,
            groups: measure::groups(volume),
            clusters: volume.engine.layout().clusters,
            worst: measure::worst(files),
        };
        points.lock().unwrap_or_else(PoisonError::into_inner).push(point);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Setup;
    use placement::BlockPolicyKind;

    #[test]
    fn samples_come_at_even_distances_and_only_when_collected() {
        const EXPECTED: [u64; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32_768];
        let volume = Setup::default().volume(1, 32_768, BlockPolicyKind::Lease).unwrap();
        let series = Series::collecting();
        for (series, expected) in [(&series, 48), (&Series::default(), 0)] {
            let mut probe = series.probe("case", "lease", 1, 480.0);
            for at in 0..=480u32 {
                probe.sample(f64::from(at), &volume, std::iter::empty());
            }
            let points = series.take();
            assert_eq!(points.len(), expected);
            assert!(points.iter().all(|point| point.histogram == EXPECTED && point.groups == [0]));
            assert!(points.last().is_none_or(|point| point.operations == 481), "one per call");
        }
    }
}
