//! Ages a volume: files are created, appended to and deleted until it is full to a level and
//! everything was written several times over; then measures files and free space.
//!
//! Profiles: `agrawal` (sizes lognormal 9.48, 2.46 with a Pareto tail, after Agrawal et al. 2007
//! as fitted in Impressions 2009), `open` (the same, placed while the files are still open for
//! writing, as without delayed allocation), `geriatrix` (the same sizes up to 8 MiB, victims mostly young),
//! `git` (small files replaced a directory at a time) and `large` (4 KiB to 64 MiB, every octave
//! as likely). Clusters of 4 KiB; half of the victims are uniform, half among the youngest third.

use super::Setup;
use crate::measure;
use crate::numbers::{Numbers, count};
use crate::table::{Row, Rows};
use crate::volume::{File, Volume, Writing};
use ondisk::units::{Cluster, Group};
use placement::policy::POLICIES;
use placement::{BlockPolicyKind, Counter};
use std::collections::BTreeMap;

struct Profile {
    name: &'static str,
    /// Clusters of a new file.
    size: fn(&mut Numbers) -> u32,
    /// Share of victims among the youngest third.
    young: f64,
    /// Share of steps that append to a file.
    appends: f64,
    /// Most files created in a row in one directory.
    burst: u32,
    directories: u64,
    writing: Writing,
}

const PROFILES: &[Profile] = &[
    Profile {
        name: "agrawal",
        size: agrawal,
        young: 0.5,
        appends: 0.05,
        burst: 24,
        directories: 400,
        writing: Writing::Whole,
    },
    Profile {
        name: "open",
        size: agrawal,
        young: 0.5,
        appends: 0.05,
        burst: 24,
        directories: 400,
        writing: Writing::Growing,
    },
    Profile {
        name: "geriatrix",
        size: geriatrix,
        young: 0.8,
        appends: 0.0,
        burst: 8,
        directories: 400,
        writing: Writing::Whole,
    },
    Profile {
        name: "git",
        size: git,
        young: 0.2,
        appends: 0.0,
        burst: 200,
        directories: 200,
        writing: Writing::Whole,
    },
    Profile {
        name: "large",
        size: large,
        young: 0.5,
        appends: 0.0,
        burst: 4,
        directories: 200,
        writing: Writing::Whole,
    },
];

const FILLS: &[u32] = &[50, 70, 80, 90, 95];
/// Times the used space is written over after it is reached.
const TURNOVER: f64 = 4.0;

fn clusters(bytes: f64, limit: u32) -> u32 {
    count((bytes / 4_096.0).ceil(), limit).max(1)
}

fn agrawal(numbers: &mut Numbers) -> u32 {
    let tail = numbers.chance(0.000_06);
    let bytes =
        if tail { 512e6 * (1.0 - numbers.unit()).powf(-1.0 / 0.91) } else { numbers.lognormal(9.48, 2.46) };
    clusters(bytes, 32_768)
}

fn geriatrix(numbers: &mut Numbers) -> u32 {
    clusters(numbers.lognormal(9.48, 2.46), 2_048)
}

fn git(numbers: &mut Numbers) -> u32 {
    clusters(numbers.lognormal(8.6, 1.6), 2_048)
}

fn large(numbers: &mut Numbers) -> u32 {
    clusters(numbers.log_uniform(4_096.0, 64.0 * 1_048_576.0), 16_384)
}

pub(crate) fn run(setup: &Setup) -> Rows {
    let own: Vec<BlockPolicyKind> = POLICIES.iter().map(|row| row.kind).collect();
    let fills = if setup.quick { &[80][..] } else { FILLS };
    let mut rows = Vec::new();
    for profile in PROFILES {
        for &fill in fills {
            let case = format!("{} {fill} %", profile.name);
            for policy in setup.policies(&own).into_iter().filter(|_| setup.wants(&case)) {
                rows.extend(one(&case, profile, fill, policy, setup));
            }
        }
    }
    rows
}

struct Ageing<'a> {
    volume: Volume,
    /// In the order of creation; deleted ones leave a gap until the next tidying.
    files: Vec<Option<File>>,
    alive: usize,
    /// Where the last file of each directory ends: the goal of its next.
    ends: BTreeMap<u64, Cluster>,
    numbers: Numbers,
    profile: &'a Profile,
    written: u64,
    refused: u64,
}

impl Ageing<'_> {
    fn goal(&self, directory: u64) -> Cluster {
        if let Some(end) = self.ends.get(&directory) {
            return *end;
        }
        let groups = self.volume.engine.layout().groups;
        // A fixed spread of directories over groups, the same for every policy.
        let group = directory.wrapping_mul(0x9E37_79B1) % u64::from(groups);
        self.volume.engine.layout().group_start(Group(u32::try_from(group).unwrap_or(0)))
    }

    fn create(&mut self, directory: u64) {
        let size = (self.profile.size)(&mut self.numbers);
        let mut file = self.volume.file(directory);
        let goal = self.goal(directory);
        if self.volume.append(&mut file, size, goal, self.profile.writing) {
            self.written += u64::from(size);
            self.volume.close(&file);
            if let Some(last) = file.runs.last() {
                self.ends.insert(directory, Cluster(last.end()));
            }
            self.files.push(Some(file));
            self.alive += 1;
        } else {
            self.refused += 1;
            self.volume.remove(&file);
        }
    }

    fn append(&mut self) {
        if self.alive == 0 {
            return;
        }
        let mut at = self.numbers.index(self.files.len());
        while self.files.get(at).is_none_or(Option::is_none) {
            at = self.numbers.index(self.files.len());
        }
        let size = ((self.profile.size)(&mut self.numbers) / 4).max(1);
        let Some(Some(file)) = self.files.get_mut(at) else { return };
        if self.volume.append(file, size, Cluster(0), self.profile.writing) {
            self.written += u64::from(size);
        }
        self.volume.close(file);
    }

    fn delete(&mut self) {
        if self.alive == 0 {
            return;
        }
        let young = self.numbers.chance(self.profile.young);
        let file = loop {
            let len = self.files.len();
            let third = (len / 3).max(1);
            let at = if young { len - 1 - self.numbers.index(third) } else { self.numbers.index(len) };
            if let Some(file) = self.files.get_mut(at).and_then(Option::take) {
                break file;
            }
            if young && self.alive < len / 2 {
                self.tidy();
            }
        };
        self.alive -= 1;
        self.volume.remove(&file);
        if self.alive < self.files.len() / 2 {
            self.tidy();
        }
    }

    fn tidy(&mut self) {
        self.files.retain(Option::is_some);
    }

    fn step(&mut self, fill: f64) {
        if self.numbers.chance(self.profile.appends) {
            self.append();
        } else {
            let directory = 100 + self.numbers.below(self.profile.directories);
            for _ in 0..self.numbers.between(1, self.profile.burst) {
                self.create(directory);
            }
        }
        while self.volume.fullness() > fill {
            self.delete();
        }
    }
}

fn one(case: &str, profile: &Profile, fill: u32, policy: BlockPolicyKind, setup: &Setup) -> Option<Row> {
    let groups = if setup.quick { 16 } else { 64 };
    let fill = f64::from(fill) / 100.0;
    let mut ageing = Ageing {
        volume: setup.volume(groups, 32_768, policy)?,
        files: Vec::new(),
        alive: 0,
        ends: BTreeMap::new(),
        numbers: Numbers::new(setup.seed),
        profile,
        written: 0,
        refused: 0,
    };
    let space = crate::numbers::float(ageing.volume.engine.layout().clusters) * fill;
    let mut probe = setup.series.probe(case, policy.name(), setup.seed, 1.0 + TURNOVER);
    while crate::numbers::float(ageing.written) < space * (1.0 + TURNOVER) {
        ageing.step(fill);
        let over = crate::numbers::float(ageing.written) / space;
        probe.sample(over, &ageing.volume, ageing.files.iter().flatten());
    }
    let stats = ageing.volume.engine.stats();
    setup.counters.note(case, policy, &ageing.volume.engine);
    ageing.volume.engine.settle();
    let mut values = measure::files(ageing.files.iter().flatten());
    values.push(("refused", crate::numbers::float(ageing.refused)));
    values.push(("near %", measure::neighbours(ageing.files.iter().flatten())));
    values.extend(measure::reading(&ageing.volume, ageing.files.iter().flatten()));
    values.extend(measure::free_space(&ageing.volume));
    values
        .push(("scanned/req", measure::ratio(stats.get(Counter::ExtentsScanned), stats.get(Counter::Reqs))));
    Some(Row { case: case.into(), policy: policy.name().into(), values })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One seed on a small volume; the figures over five seeds are in docs/placement-results.md.
    #[test]
    fn files_are_whole_and_free_space_is_in_longer_runs_than_mballoc_leaves() {
        for case in ["geriatrix", "open", "large"] {
            let policies = vec!["lease".to_string(), "mballoc".to_string()];
            let rows = run(&Setup { seed: 1, quick: true, case: case.into(), policies, ..Setup::default() });
            let [ours, kernels] = rows.as_slice() else { panic!("two rows") };
            let figure = |row: &Row, name: &str| row.values.iter().find(|v| v.0 == name).unwrap().1;
            assert!(figure(ours, "extents/file") <= 1.02, "{case}");
            for name in ["mean run", ">=512 %", ">=2048 %", "aligned %"] {
                assert!(figure(ours, name) >= figure(kernels, name), "{case}: {name}");
            }
        }
    }
}
