//! Ageing by profiles that others published: those of Geriatrix (Kadekodi, Nagarajan and Ganger, 2018).
//!
//! A profile is three histograms: sizes of files, their ages as shares of the volume's, and depths of their directories with
//! the number of directories at each. Here as there, time counts operations; files get their space by `fallocate`, all at once;
//! while the volume is fuller than it is to be, a file goes from the age group that has most beyond its share. Beside the
//! original, directories of every depth lie in the root (depth changes no placement of blocks), and a run ends by bytes.
//!
//! The numbers are those of the published profiles; nothing else is from there.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::Scale;
use crate::numbers::{Numbers, float};
use crate::system::{Name, Op, Phase};

pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("profile", "agrawal, douceur, meyer or wang-lanl"),
    ("volume", "bytes of the volume"),
    ("fill", "percent of it in use"),
    ("over", "percent of these bytes that are written again and again behind that"),
    ("parts", "phases into which the run is cut"),
];

/// Bytes of a block: what a file takes is a multiple of it.
const BLOCK: u64 = 4096;

/// Steps after which the age groups are counted again.
const LOOK: u64 = 64;

struct Profile {
    name: &'static str,
    /// Bytes of a file, and the weight of files of that size.
    sizes: &'static [(u64, u32)],
    /// The end of an age group, in a unit of its own, and the weight of files of that age.
    ages: &'static [(f64, u32)],
    /// For each depth the weight of its files, and its directories.
    depths: &'static [(u32, u32)],
}

const PROFILES: &[Profile] = &[
    Profile {
        name: "agrawal",
        sizes: &[
            (8, 1),
            (32, 7),
            (128, 16),
            (512, 40),
            (2_048, 50),
            (8_192, 46),
            (32_768, 35),
            (131_072, 20),
            (524_288, 10),
            (2_097_152, 4),
            (8_388_608, 1),
        ],
        ages: &[
            (10.74, 1),
            (31.0, 2),
            (85.98, 8),
            (240.0, 20),
            (687.87, 44),
            (1_945.59, 75),
            (5_502.98, 144),
            (15_768.0, 146),
            (44_023.9, 23),
            (122_640.0, 1),
        ],
        depths: &[
            (1, 1),
            (2, 5),
            (14, 13),
            (15, 19),
            (23, 30),
            (24, 36),
            (42, 32),
            (22, 26),
            (15, 22),
            (12, 17),
            (7, 8),
            (4, 5),
            (3, 2),
            (2, 1),
            (1, 1),
        ],
    },
    Profile {
        name: "douceur",
        sizes: &[
            (0, 180),
            (2, 10),
            (4, 15),
            (8, 90),
            (16, 25),
            (32, 165),
            (64, 380),
            (128, 425),
            (256, 620),
            (512, 880),
            (1_024, 1_080),
            (2_048, 1_100),
            (4_096, 1_000),
            (8_192, 1_025),
            (16_384, 920),
            (32_768, 800),
            (65_536, 575),
            (131_072, 375),
            (262_144, 200),
            (524_288, 100),
            (1_048_576, 75),
            (2_097_152, 20),
            (4_194_304, 10),
            (8_388_608, 5),
        ],
        ages: &[
            (9.0, 25),
            (18.0, 30),
            (36.0, 50),
            (72.0, 60),
            (144.0, 80),
            (288.0, 90),
            (576.0, 120),
            (1_152.0, 200),
            (2_304.0, 300),
            (4_608.0, 400),
            (9_216.0, 600),
            (18_432.0, 1_050),
            (36_864.0, 1_250),
            (73_728.0, 1_900),
            (147_456.0, 1_800),
            (294_912.0, 1_500),
            (589_824.0, 700),
            (1_179_648.0, 100),
            (2_359_296.0, 30),
            (4_718_592.0, 25),
        ],
        depths: &[
            (50, 16),
            (450, 32),
            (1_150, 64),
            (1_650, 32),
            (1_800, 16),
            (1_450, 8),
            (1_125, 4),
            (625, 2),
            (400, 1),
            (160, 1),
            (100, 1),
            (150, 1),
            (50, 1),
            (20, 1),
            (20, 1),
            (10, 1),
        ],
    },
    Profile {
        name: "meyer",
        sizes: &[
            (0, 100),
            (1, 20),
            (2, 40),
            (4, 30),
            (8, 30),
            (16, 100),
            (32, 100),
            (64, 170),
            (128, 220),
            (256, 400),
            (512, 680),
            (1_024, 1_180),
            (2_048, 1_230),
            (4_096, 1_150),
            (8_192, 1_020),
            (16_384, 900),
            (32_768, 700),
            (65_536, 680),
            (131_072, 440),
            (262_144, 300),
            (524_288, 230),
            (1_048_576, 175),
            (2_097_152, 130),
            (4_194_304, 100),
            (8_388_608, 60),
            (16_777_216, 40),
            (33_554_432, 20),
            (67_108_864, 10),
            (134_217_728, 10),
        ],
        ages: &[
            (2.0, 3),
            (4.0, 90),
            (6.0, 70),
            (8.0, 30),
            (10.0, 20),
            (12.0, 10),
            (14.0, 14),
            (16.0, 10),
            (18.0, 10),
            (20.0, 4),
            (22.0, 4),
            (24.0, 18),
            (26.0, 11),
            (28.0, 8),
            (30.0, 2),
            (32.0, 4),
            (34.0, 5),
            (36.0, 1),
            (38.0, 15),
            (40.0, 8),
            (42.0, 1),
            (44.0, 1),
            (46.0, 2),
            (48.0, 1),
        ],
        depths: &[
            (10, 16),
            (30, 32),
            (100, 64),
            (830, 32),
            (600, 16),
            (800, 8),
            (900, 4),
            (930, 2),
            (860, 1),
            (780, 1),
            (550, 1),
            (300, 1),
            (190, 1),
            (130, 1),
            (90, 1),
            (50, 1),
            (20, 1),
            (10, 1),
            (5, 1),
            (4, 1),
            (3, 1),
        ],
    },
    Profile {
        name: "wang-lanl",
        sizes: &[
            (32, 1),
            (512, 1),
            (2_048, 1),
            (4_096, 1),
            (32_768, 1),
            (65_536, 1),
            (131_072, 47),
            (262_144, 20),
            (524_288, 10),
            (1_048_576, 1),
            (2_097_152, 1),
        ],
        ages: &[
            (2.0, 1),
            (4.0, 1),
            (8.0, 1),
            (16.0, 1),
            (32.0, 3),
            (64.0, 35),
            (128.0, 51),
            (256.0, 42),
            (512.0, 47),
            (1_024.0, 18),
            (2_048.0, 1),
            (4_096.0, 1),
        ],
        depths: &[(1, 1)],
    },
];

/// Draws by weights: the place of the one drawn.
fn draw(numbers: &mut Numbers, weights: impl Iterator<Item = u32> + Clone) -> usize {
    let all: u64 = weights.clone().map(u64::from).sum();
    let mut left = numbers.below(all.max(1));
    for (at, weight) in weights.enumerate() {
        match left.checked_sub(weight.into()) {
            Some(rest) => left = rest,
            None => return at,
        }
    }
    0
}

pub(super) fn phases(scale: &Scale) -> Result<Vec<Phase>, String> {
    let name = scale.settings.get("profile").map_or("agrawal", String::as_str);
    let profile = PROFILES.iter().find(|profile| profile.name == name);
    let profile = profile.ok_or_else(|| {
        let names: Vec<_> = PROFILES.iter().map(|profile| profile.name).collect();
        format!("profile={name} is none of {}", names.join(", "))
    })?;
    let volume = scale.number("volume", 1 << 30, 64 << 20)? / BLOCK;
    let fill = float(scale.number("fill", 80, 60)?.min(100)) / 100.0;
    let over = float(scale.number("over", 400, 100)?) / 100.0;
    let parts = scale.number("parts", 1, 1)?.clamp(1, 10_000);
    let ageing = Arc::new(Mutex::new(Ageing::new(profile, volume, fill, scale.seed)));
    Ok(super::in_parts(parts, 1.0 + over, &ageing, Ageing::call))
}

/// A file that exists, when it was made, and its blocks.
struct LiveFile {
    path: Name,
    born: u64,
    blocks: u64,
}

struct Ageing {
    profile: &'static Profile,
    /// Blocks of the volume, and how many of them are to be in use.
    volume: u64,
    space: f64,
    /// In the order of creation; deleted ones leave a gap until the next look.
    files: Vec<Option<LiveFile>>,
    /// Where each age group begins among the files, the youngest last, and how many it has.
    groups: Vec<(usize, usize)>,
    looked: u64,
    numbers: Numbers,
    /// Operations so far: the volume's age.
    now: u64,
    used: u64,
    written: u64,
    calls: VecDeque<Op>,
}

impl Ageing {
    fn new(profile: &'static Profile, volume: u64, fill: f64, seed: u64) -> Self {
        let directories = profile.depths.iter().zip(0..);
        let paths = directories
            .flat_map(|((_, count), depth)| (0..u64::from(*count)).map(move |n| directory(depth, n)));
        Ageing {
            profile,
            volume,
            space: float(volume) * fill,
            files: Vec::new(),
            groups: Vec::new(),
            looked: 0,
            numbers: Numbers::new(seed),
            now: 0,
            used: 0,
            written: 0,
            calls: paths.map(|path| Op::MakeDirectory(path.into())).collect(),
        }
    }

    /// The next call, until the space that is to be in use was written `end` times.
    fn call(&mut self, end: f64) -> Option<Op> {
        while self.calls.is_empty() && float(self.written) < self.space * end {
            self.create();
            while float(self.used) > self.space && self.delete() {}
        }
        self.calls.pop_front()
    }

    fn create(&mut self) {
        let Profile { sizes, depths, .. } = self.profile;
        let at = draw(&mut self.numbers, sizes.iter().map(|(_, weight)| *weight));
        let len = sizes.get(at).map_or(0, |(len, _)| *len);
        let blocks = len.div_ceil(BLOCK);
        let depth = draw(&mut self.numbers, depths.iter().map(|(weight, _)| *weight));
        let count = depths.get(depth).map_or(1, |(_, count)| *count);
        let number = self.numbers.below(count.max(1).into());
        self.now += 1;
        // A small volume has no room for the largest files.
        if blocks > self.volume / 16 {
            return;
        }
        let path: Name = format!("{}/{}", directory(depth as u64, number), self.now).into();
        self.calls.push_back(Op::Open { slot: 0, path: path.clone(), create: true });
        if self.used + blocks > self.volume {
            self.calls.extend([Op::Close(0), Op::Remove(path)]);
            return;
        }
        if len > 0 {
            self.calls.push_back(Op::Reserve { slot: 0, offset: 0, len });
        }
        self.calls.push_back(Op::Close(0));
        self.written += blocks;
        self.used += blocks;
        self.files.push(Some(LiveFile { path, born: self.now, blocks }));
    }

    /// Removes a file of the age group that has most beyond its share; `false` if there is none.
    fn delete(&mut self) -> bool {
        if self.groups.is_empty() || self.now >= self.looked + LOOK {
            self.look();
        }
        let Some(group) = self.most_beyond() else { return false };
        let (from, _) = self.groups[group];
        // Groups lie the oldest first.
        let to = if group == 0 { self.files.len() } else { self.groups[group - 1].0 };
        let Some(file) = self.any_of(from, to) else {
            // Those that were made since the last look are all there is.
            self.groups[group].1 = 0;
            return self.groups.iter().any(|(_, count)| *count > 0) || self.used > 0 && self.oldest();
        };
        self.groups[group].1 -= 1;
        self.removed(file);
        true
    }

    /// A file among these places: from a random one on, the next.
    fn any_of(&mut self, from: usize, to: usize) -> Option<LiveFile> {
        let len = to.checked_sub(from).filter(|len| *len > 0)?;
        let start = from + self.numbers.index(len);
        let mut places = (start..to).chain(from..start);
        let at = places.find(|at| self.files.get(*at).is_some_and(Option::is_some))?;
        self.files.get_mut(at).and_then(Option::take)
    }

    fn oldest(&mut self) -> bool {
        match self.files.iter_mut().find_map(Option::take) {
            Some(file) => {
                self.removed(file);
                true
            }
            None => false,
        }
    }

    fn removed(&mut self, file: LiveFile) {
        self.now += 1;
        self.used -= file.blocks;
        self.calls.push_back(Op::Remove(file.path));
    }

    /// The age group that has most beyond its share.
    fn most_beyond(&self) -> Option<usize> {
        let ages = self.profile.ages;
        let weights = float(ages.iter().map(|(_, weight)| u64::from(*weight)).sum());
        let all = float(self.groups.iter().map(|(_, count)| *count as u64).sum());
        let beyond = |group: usize| {
            let share = ages.get(group).map_or(0.0, |(_, weight)| f64::from(*weight)) / weights;
            float(self.groups[group].1 as u64) - all * share
        };
        let filled = (0..self.groups.len()).filter(|group| self.groups[*group].1 > 0);
        filled.max_by(|a, b| beyond(*a).total_cmp(&beyond(*b)))
    }

    /// Drops the gaps and counts the age groups.
    fn look(&mut self) {
        self.files.retain(Option::is_some);
        let oldest = self.profile.ages.last().map_or(1.0, |(age, _)| *age);
        let mut end = self.files.len();
        self.groups.clear();
        for (age, _) in self.profile.ages {
            // What is older than this group.
            let before = float(self.now) * (1.0 - age / oldest);
            let is_older =
                |file: &Option<LiveFile>| file.as_ref().is_some_and(|file| float(file.born) < before);
            let from = self.files.partition_point(is_older).min(end);
            self.groups.push((from, end - from));
            end = from;
        }
        self.looked = self.now;
    }
}

fn directory(depth: u64, number: u64) -> String {
    format!("geriatrix.{depth}.{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(settings: &[(&str, &str)]) -> Scale {
        let settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Scale { seed: 1, quick: true, settings }
    }

    #[test]
    fn parts_make_the_calls_of_the_whole_and_fill_what_is_to_be_filled() {
        for profile in PROFILES {
            let calls = |parts: &str| -> Vec<Vec<Op>> {
                let scale = scale(&[("profile", profile.name), ("parts", parts), ("volume", "536870912")]);
                let phases = phases(&scale).unwrap();
                phases.into_iter().map(|mut phase| phase.clients.remove(0).collect()).collect()
            };
            let (whole, parts) = (calls("1"), calls("7"));
            assert_eq!((whole.len(), parts.len()), (1, 7));
            assert_eq!(whole[0], parts.concat(), "{}", profile.name);
            let reserved =
                |op: &Op| if let Op::Reserve { len, .. } = op { len.div_ceil(BLOCK) * BLOCK } else { 0 };
            let written: u64 = whole[0].iter().map(reserved).sum();
            assert!(written >= (512 << 20) * 60 / 100 * 2, "{}: {written}", profile.name);
        }
        assert!(phases(&scale(&[("profile", "best")])).err().unwrap().contains("douceur"));
    }

    /// The more often all is written over, the nearer the ages come to what was published.
    #[test]
    fn ages_become_those_of_the_profile() {
        let profile = PROFILES.iter().find(|profile| profile.name == "agrawal").unwrap();
        let apart = |times: f64| {
            let mut ageing = Ageing::new(profile, (512 << 20) / BLOCK, 0.8, 1);
            while ageing.call(times).is_some() {}
            ageing.look();
            let all = float(ageing.groups.iter().map(|(_, count)| *count as u64).sum());
            let weights = float(profile.ages.iter().map(|(_, weight)| u64::from(*weight)).sum());
            let shares = ageing.groups.iter().zip(profile.ages);
            shares
                .map(|((_, n), (_, w))| (float(*n as u64) / all - f64::from(*w) / weights).abs())
                .sum::<f64>()
        };
        let (early, late) = (apart(2.0), apart(12.0));
        assert!(late < early && late < 0.6, "{early} {late}");
    }
}
