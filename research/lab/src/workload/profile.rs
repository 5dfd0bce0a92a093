//! Ageing by the profiles of published studies: one client creates, appends and deletes until the volume is full to a
//! level and that much was written over several times.
//!
//! Profiles: `agrawal` (sizes lognormal 9.48, 2.46 with a Pareto tail, after Agrawal et al. 2007 as fitted in
//! Impressions 2009), `geriatrix` (the same sizes up to 8 MiB, victims mostly young), `git` (small files replaced a
//! directory at a time) and `large` (4 KiB to 64 MiB, every octave as likely). Half of the victims are uniform, half
//! among the youngest third, but where a profile says otherwise.
//!
//! The client knows how full the volume is by its own sums, as if metadata took nothing: on a whole file system `fill`
//! leaves room for that.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::Scale;
use crate::numbers::{Numbers, count, float};
use crate::system::{Name, Op, Phase};

pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("profile", "agrawal, geriatrix, git or large"),
    ("volume", "bytes of the volume"),
    ("fill", "percent of it in use"),
    ("over", "percent of these bytes that are written again and again behind that"),
    ("parts", "phases into which the run is cut"),
];

/// Bytes of a block: what a file takes is a multiple of it.
const BLOCK: u64 = 4096;

#[derive(Debug)]
struct Profile {
    name: &'static str,
    /// Blocks of a new file.
    size: fn(&mut Numbers) -> u32,
    /// Share of victims among the youngest third.
    young: f64,
    /// Share of steps that append to a file.
    appends: f64,
    /// Most files created in a row in one directory.
    burst: u32,
    directories: u64,
}

const PROFILES: &[Profile] = &[
    Profile { name: "agrawal", size: agrawal, young: 0.5, appends: 0.05, burst: 24, directories: 400 },
    Profile { name: "geriatrix", size: geriatrix, young: 0.8, appends: 0.0, burst: 8, directories: 400 },
    Profile { name: "git", size: git, young: 0.2, appends: 0.0, burst: 200, directories: 200 },
    Profile { name: "large", size: large, young: 0.5, appends: 0.0, burst: 4, directories: 200 },
];

fn blocks(bytes: f64, limit: u32) -> u32 {
    count((bytes / 4_096.0).ceil(), limit).max(1)
}

fn agrawal(numbers: &mut Numbers) -> u32 {
    let tail = numbers.chance(0.000_06);
    let bytes =
        if tail { 512e6 * (1.0 - numbers.unit()).powf(-1.0 / 0.91) } else { numbers.lognormal(9.48, 2.46) };
    blocks(bytes, 32_768)
}

fn geriatrix(numbers: &mut Numbers) -> u32 {
    blocks(numbers.lognormal(9.48, 2.46), 2_048)
}

fn git(numbers: &mut Numbers) -> u32 {
    blocks(numbers.lognormal(8.6, 1.6), 2_048)
}

fn large(numbers: &mut Numbers) -> u32 {
    blocks(numbers.log_uniform(4_096.0, 64.0 * 1_048_576.0), 16_384)
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
    let ageing = Arc::new(Mutex::new(Ageing {
        profile,
        volume,
        fill,
        files: Vec::new(),
        alive: 0,
        numbers: Numbers::new(scale.seed),
        used: 0,
        written: 0,
        next: 0,
        calls: (0..profile.directories).map(|number| Op::MakeDirectory(directory(number).into())).collect(),
    }));
    Ok(super::in_parts(parts, 1.0 + over, &ageing, Ageing::call))
}

fn directory(number: u64) -> String {
    format!("profile.{number}")
}

/// A file that exists, with its blocks.
struct LiveFile {
    path: Name,
    blocks: u64,
}

struct Ageing {
    profile: &'static Profile,
    /// Blocks of the volume, and the share of them that is to be in use.
    volume: u64,
    fill: f64,
    /// In the order of creation; deleted ones leave a gap until the next tidying.
    files: Vec<Option<LiveFile>>,
    alive: usize,
    numbers: Numbers,
    used: u64,
    written: u64,
    next: u64,
    calls: VecDeque<Op>,
}

impl Ageing {
    /// The next call, until the space in use was written `end` times.
    fn call(&mut self, end: f64) -> Option<Op> {
        let space = float(self.volume) * self.fill;
        while self.calls.is_empty() && float(self.written) < space * end {
            self.step();
        }
        self.calls.pop_front()
    }

    fn create(&mut self, number: u64) {
        let blocks = u64::from((self.profile.size)(&mut self.numbers));
        let path: Name = format!("{}/{}", directory(number), self.next).into();
        self.next += 1;
        self.calls.push_back(Op::Open { slot: 0, path: path.clone(), create: true });
        self.calls.push_back(Op::Write { slot: 0, offset: 0, len: blocks * BLOCK });
        if self.used + blocks > self.volume {
            // It finds no room: its writer sees that by the sync, and gives up.
            self.calls.extend([Op::Sync { slot: 0, data_only: true }, Op::Remove(path)]);
            return;
        }
        self.calls.push_back(Op::Close(0));
        self.written += blocks;
        self.used += blocks;
        self.files.push(Some(LiveFile { path, blocks }));
        self.alive += 1;
    }

    fn append(&mut self) {
        if self.alive == 0 {
            return;
        }
        let mut at = self.numbers.index(self.files.len());
        while self.files.get(at).is_none_or(Option::is_none) {
            at = self.numbers.index(self.files.len());
        }
        let more = u64::from(((self.profile.size)(&mut self.numbers) / 4).max(1));
        let Some(Some(file)) = self.files.get_mut(at) else { return };
        self.calls.extend([
            Op::Open { slot: 0, path: file.path.clone(), create: false },
            Op::Write { slot: 0, offset: file.blocks * BLOCK, len: more * BLOCK },
            Op::Close(0),
        ]);
        // What there is room for is written.
        let room = self.volume.saturating_sub(self.used);
        self.written += if more <= room { more } else { 0 };
        self.used += more.min(room);
        file.blocks += more.min(room);
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
            // Of the youngest third none may be left: then it would be looked for without an end.
            let is_left = || self.files.iter().rev().take(third).any(Option::is_some);
            if young && (self.alive < len / 2 || !is_left()) {
                self.tidy();
            }
        };
        self.alive -= 1;
        self.used -= file.blocks;
        self.calls.push_back(Op::Remove(file.path));
        if self.alive < self.files.len() / 2 {
            self.tidy();
        }
    }

    fn tidy(&mut self) {
        self.files.retain(Option::is_some);
    }

    fn step(&mut self) {
        if self.numbers.chance(self.profile.appends) {
            self.append();
        } else {
            let directory = self.numbers.below(self.profile.directories);
            for _ in 0..self.numbers.between(1, self.profile.burst) {
                self.create(directory);
            }
        }
        while self.alive > 0 && float(self.used) / float(self.volume) > self.fill {
            self.delete();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(settings: &[(&str, &str)]) -> Scale {
        let settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Scale { seed: 1, quick: true, settings }
    }

    #[test]
    fn parts_make_the_calls_of_the_whole_and_end_where_it_is_written() {
        for profile in ["agrawal", "geriatrix", "git", "large"] {
            let calls = |parts: &str| -> Vec<Vec<Op>> {
                let scale = scale(&[("profile", profile), ("parts", parts), ("volume", "67108864")]);
                let phases = phases(&scale).unwrap();
                phases.into_iter().map(|mut phase| phase.clients.remove(0).collect()).collect()
            };
            let (whole, parts) = (calls("1"), calls("7"));
            assert_eq!((whole.len(), parts.len()), (1, 7));
            assert_eq!(whole[0], parts.concat(), "{profile}");
            let written: u64 =
                whole[0].iter().map(|op| if let Op::Write { len, .. } = op { *len } else { 0 }).sum();
            assert!(written >= (64 << 20) * 60 / 100 * 2, "{profile}: {written}");
        }
        assert!(phases(&scale(&[("profile", "best")])).err().unwrap().contains("geriatrix"));
    }
}
