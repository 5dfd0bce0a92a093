//! Where a file lies: its runs of clusters, whichever system placed them.

use ondisk::units::ClusterRun;

/// A file: its runs in file order, neighbours joined.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    pub(crate) key: u64,
    pub(crate) directory: u64,
    runs: Vec<ClusterRun>,
    /// Of all runs: each write asks, and a worn file has many.
    clusters: u64,
}

impl File {
    /// A file without clusters.
    pub(crate) fn new(key: u64, directory: u64) -> Self {
        File { key, directory, ..File::default() }
    }

    pub(crate) fn runs(&self) -> &[ClusterRun] {
        &self.runs
    }

    pub(crate) fn clusters(&self) -> u64 {
        self.clusters
    }

    /// Adds a run to the end.
    pub(crate) fn push(&mut self, run: ClusterRun) {
        self.clusters += u64::from(run.count);
        match self.runs.last_mut() {
            Some(last) if last.end() == run.start.0 && last.count.checked_add(run.count).is_some() => {
                last.count += run.count;
            }
            _ => self.runs.push(run),
        }
    }

    /// Takes off all clusters from a place on, the last first.
    pub(crate) fn cut(&mut self, clusters: u64) -> Vec<ClusterRun> {
        let mut off = Vec::new();
        while self.clusters > clusters
            && let Some(mut run) = self.runs.pop()
        {
            let more = u32::try_from(self.clusters - clusters).unwrap_or(u32::MAX).min(run.count);
            run.count -= more;
            let start = ondisk::units::Cluster(run.end());
            off.push(ClusterRun { start, count: more });
            if run.count > 0 {
                self.runs.push(run);
            }
            self.clusters -= u64::from(more);
        }
        off
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::units::Cluster;

    #[test]
    fn a_cut_takes_the_last_clusters_and_leaves_the_others() {
        let run = |start, count| ClusterRun { start: Cluster(start), count };
        let mut file = File::default();
        for part in [run(10, 4), run(14, 2), run(30, 5)] {
            file.push(part);
        }
        assert_eq!(file.runs, [run(10, 6), run(30, 5)]);
        assert_eq!((file.cut(11), file.clusters()), (vec![], 11));
        assert_eq!(file.cut(4), [run(30, 5), run(14, 2)]);
        assert_eq!((file.runs(), file.clusters()), (&[run(10, 4)][..], 4));
        assert_eq!(file.cut(0), [run(10, 4)]);
        assert_eq!(file.clusters(), 0);
    }
}
