//! A history that is checked out commit by commit, as git does it: loose objects under temporary names, files of the
//! work tree removed and written again, index and reference by renaming a lock, packs and pruning from time to time.

use super::Scale;
use crate::numbers::{Numbers, count};
use crate::system::{Name, Op, Phase, Stream};

pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("files", "files of the work tree"),
    ("commits", "commits that are fetched and checked out"),
    ("gc", "commits between packs"),
];

/// Directories of the work tree for a number of files.
const FILES: u64 = 20;

pub(super) fn phases(scale: &Scale) -> Result<Vec<Phase>, String> {
    let files = scale.number("files", 10_000, 200)?.max(1);
    let commits = scale.number("commits", 400, 20)?;
    let gc = scale.number("gc", 50, 8)?.max(1);
    let mut history =
        History { files, numbers: Numbers::new(scale.seed), loose: Vec::new(), next: 0, packs: 0 };
    let clone: Vec<Op> = history.clone_all();
    let commits = (1..=commits).flat_map(move |commit| {
        let mut calls = history.commit();
        if commit % gc == 0 {
            calls.extend(history.pack());
        }
        calls
    });
    let sync: Stream = Box::new(std::iter::once(Op::SyncAll));
    Ok(vec![
        Phase::new("clone", vec![Box::new(clone.into_iter())]),
        Phase::new("history", vec![Box::new(commits)]),
        Phase::new("sync", vec![sync]),
    ])
}

struct History {
    files: u64,
    numbers: Numbers,
    /// Loose objects by number.
    loose: Vec<u64>,
    next: u64,
    packs: u64,
}

fn path(text: String) -> Name {
    text.into()
}

/// Writes a file whole.
fn file(path: &Name, len: u64, sync: bool) -> Vec<Op> {
    let mut calls = vec![Op::Open { slot: 0, path: path.clone(), create: true }];
    if len > 0 {
        calls.push(Op::Write { slot: 0, offset: 0, len });
    }
    calls.extend(sync.then_some(Op::Sync { slot: 0, data_only: false }));
    calls.push(Op::Close(0));
    calls
}

impl History {
    fn len(&mut self) -> u64 {
        u64::from(count(self.numbers.lognormal(8.0, 1.6), 2 << 20))
    }

    fn work(&self, number: u64) -> Name {
        let directory = number / FILES;
        path(format!("work/d{}/d{directory}/f{number}", directory % 32))
    }

    /// Writes a file under a lock's name and moves it into place.
    fn locked(&self, name: &str, len: u64) -> Vec<Op> {
        let lock = path(format!("work/.git/{name}.lock"));
        let mut calls = file(&lock, len, false);
        calls.push(Op::Rename(lock, path(format!("work/.git/{name}"))));
        calls
    }

    fn index(&self) -> Vec<Op> {
        self.locked("index", self.files * 80)
    }

    fn clone_all(&mut self) -> Vec<Op> {
        let git = ["work", "work/.git", "work/.git/objects", "work/.git/objects/pack"];
        let mut calls: Vec<Op> = git.map(|name| Op::MakeDirectory(name.into())).into();
        calls.extend((0..256).map(|fan| Op::MakeDirectory(path(format!("work/.git/objects/{fan:02x}")))));
        let directories = self.files.div_ceil(FILES);
        calls.extend((0..directories.min(32)).map(|top| Op::MakeDirectory(path(format!("work/d{top}")))));
        calls.extend((0..directories).map(|at| Op::MakeDirectory(path(format!("work/d{}/d{at}", at % 32)))));
        calls.extend(self.pack());
        for number in 0..self.files {
            let len = self.len();
            calls.extend(file(&self.work(number), len, false));
        }
        calls.extend(self.index());
        calls
    }

    /// An object of a hash that is as good as random: in any of the 256 directories.
    fn object(&mut self) -> Vec<Op> {
        let number = self.next;
        self.next += 1;
        let len = self.len() / 3;
        let tmp = path(format!(
            "work/.git/objects/{:02x}/tmp_obj_{number}",
            number.wrapping_mul(0x9E37_79B9) >> 24 & 255
        ));
        self.loose.push(number);
        let mut calls = file(&tmp, len.max(40), false);
        calls.push(Op::Rename(tmp, self.object_path(number)));
        calls
    }

    fn object_path(&self, number: u64) -> Name {
        path(format!("work/.git/objects/{:02x}/{number:038x}", number.wrapping_mul(0x9E37_79B9) >> 24 & 255))
    }

    /// Objects of the changed files and their directories, then the files themselves.
    fn commit(&mut self) -> Vec<Op> {
        let mut calls = Vec::new();
        let changed = u64::from(count(self.numbers.lognormal(1.5, 1.2), 2_000).max(1)).min(self.files);
        let first = self.numbers.below(self.files);
        for at in 0..changed {
            // Changes lie near each other, but for one in four.
            let far = self.numbers.chance(0.25);
            let number = if far { self.numbers.below(self.files) } else { (first + at) % self.files };
            calls.extend(self.object());
            calls.push(Op::Status(self.work(number)));
            calls.push(Op::Remove(self.work(number)));
            let len = self.len();
            calls.extend(file(&self.work(number), len, false));
        }
        (0..4).for_each(|_| calls.extend(self.object()));
        calls.extend(self.index());
        calls.extend(self.locked("HEAD", 41));
        calls
    }

    /// All loose objects go into a pack, which is made stable before they are removed.
    fn pack(&mut self) -> Vec<Op> {
        let number = self.packs;
        self.packs += 1;
        let objects = self.loose.len() as u64 + if number == 0 { self.files } else { 0 };
        let mut calls = Vec::new();
        for (kind, len) in [("pack", objects * 1500), ("idx", objects * 32 + 1100)] {
            let tmp = path(format!("work/.git/objects/pack/tmp_{kind}"));
            calls.extend(file(&tmp, len, true));
            calls.push(Op::Rename(tmp, path(format!("work/.git/objects/pack/pack-{number}.{kind}"))));
        }
        let loose = std::mem::take(&mut self.loose);
        calls.extend(loose.into_iter().map(|number| Op::Remove(self.object_path(number))));
        calls
    }
}
