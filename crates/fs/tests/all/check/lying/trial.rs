//! Lying images one by one, by any means of work: which one a number means, how the work ended, and the table of all.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use testkit::random::Random;

use super::super::plant::{Image, bases};
use super::lie::{self, Lie, Told};
use super::owners::Owners;

/// Outcome of an image.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum End {
    /// It was not opened for writing, and is as it was.
    Refused,
    /// All was worked on, and no file was harmed.
    Kept,
    /// A file was harmed that was not worked on.
    FileHarmed,
    /// The volume itself was harmed.
    VolumeHarmed,
}

/// Bases with their owners, made once.
#[derive(Default)]
pub struct Bench {
    owners: HashMap<&'static str, Owners>,
}

impl Bench {
    /// A random lying image; `None` where the lie has no place.
    pub fn trial(&mut self, random: &mut Random) -> Option<Trial<'_>> {
        let names: Vec<&'static str> = bases().collect();
        let base = *random.pick(&names)?;
        let owners = self.owners.entry(base).or_insert_with(|| Owners::of(&mut Image::of(base)));
        let mut image = Image::of(base);
        let told = random.pick(&lie::ALL)?.tell(&mut image, owners, random)?;
        Some(Trial { base, image, told, owners })
    }
}

/// A lying image before any work.
pub struct Trial<'b> {
    base: &'static str,
    pub image: Image,
    told: Told,
    owners: &'b Owners,
}

impl Trial<'_> {
    /// The image in words.
    #[allow(dead_code, reason = "the tests of the command name it")]
    pub fn line(&self) -> String {
        format!("{} {:?} {}", self.base, self.told.lie, self.told.story)
    }

    /// Nothing was worked on: these bytes must be the image's, but for the mark of the host that looked (`mmp`).
    pub fn refused(self, after: &[u8]) -> Finding {
        let end = if self.is_untouched(after) { End::Refused } else { End::VolumeHarmed };
        Finding { base: self.base, told: self.told, end, harmed: Vec::new() }
    }

    /// These bytes are the image's, but for the mark of the host that looked.
    pub fn is_untouched(&self, after: &[u8]) -> bool {
        let mark = self.mark();
        let same = |range: std::ops::Range<usize>| after.get(range.clone()) == self.image.bytes.get(range);
        after.len() == self.image.bytes.len() && same(0..mark.start) && same(mark.end..after.len())
    }

    /// Bytes of the block of multiple mount protection; none where there is no such block.
    fn mark(&self) -> std::ops::Range<usize> {
        let block = usize::try_from(self.image.superblock_now().s_mmp_block.get()).unwrap_or(0);
        let len = usize::try_from(self.image.format.geometry.block_size.bytes()).unwrap();
        let end = block.saturating_add(1).saturating_mul(len);
        if block == 0 || end > self.image.bytes.len() { 0..0 } else { end - len..end }
    }

    /// Work on the `touched` inodes left these bytes; with a `log` also in the journal.
    pub fn end(self, after: Vec<u8>, mut touched: BTreeSet<u32>, log: bool) -> Finding {
        touched.extend(self.told.liar);
        touched.extend(&self.owners.values);
        let after = Image { bytes: after, format: self.image.format.clone() };
        let harmed = self.owners.harmed(&self.image, &after, &touched, log);
        let end = match () {
            () if harmed.iter().any(|owner| owner.is_volume()) => End::VolumeHarmed,
            // A record shows by itself that its inode is in use.
            () if self.told.lie == Lie::InodeBitmap && !harmed.is_empty() => End::VolumeHarmed,
            () if !harmed.is_empty() => End::FileHarmed,
            () => End::Kept,
        };
        let harmed = harmed.iter().map(|owner| format!("{owner:?}")).collect();
        Finding { base: self.base, told: self.told, end, harmed }
    }
}

/// Report of one image.
pub struct Finding {
    base: &'static str,
    told: Told,
    end: End,
    harmed: Vec<String>,
}

impl Finding {
    fn line(&self, number: u64) -> String {
        let Finding { base, told, end, harmed } = self;
        format!("{number}: {base} {:?} {}: {end:?} {harmed:?}", told.lie, told.story)
    }
}

/// Ends by kinds of lies, and whether those are about the volume itself.
type Table = BTreeMap<(Lie, bool), BTreeMap<End, u64>>;

/// Looks at images; a table by kinds of lies, and those that ended worse than `worst`.
fn run(
    numbers: std::ops::Range<u64>,
    is_loud: bool,
    worst: End,
    look: impl Fn(&mut Bench, u64) -> Option<Finding>,
) -> (Table, Vec<String>) {
    let mut bench = Bench::default();
    let (mut table, mut bad) = (Table::new(), Vec::new());
    for number in numbers {
        let Some(found) = look(&mut bench, number) else { continue };
        if is_loud || found.end == End::FileHarmed {
            println!("{}", found.line(number));
        }
        *table.entry((found.told.lie, found.told.about_volume)).or_default().entry(found.end).or_default() +=
            1;
        if found.end > worst {
            bad.push(found.line(number));
        }
    }
    (table, bad)
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// Calls `look` with images from number `first` on, `PLATFS_STEPS` from number `PLATFS_SEED` on if they are given;
/// prints the table, and asserts that no volume was harmed.
pub fn judge(first: u64, count: u64, look: impl Fn(&mut Bench, u64) -> Option<Finding> + Sync) {
    judge_to(End::FileHarmed, first, count, look);
}

/// As [`judge`], where no file may be harmed either.
pub fn judge_strictly(first: u64, count: u64, look: impl Fn(&mut Bench, u64) -> Option<Finding> + Sync) {
    judge_to(End::Kept, first, count, look);
}

fn judge_to(worst: End, first: u64, count: u64, look: impl Fn(&mut Bench, u64) -> Option<Finding> + Sync) {
    let is_loud = count_of(count) <= 3;
    let ((mut table, mut bad), (rest, more)) =
        in_halves(first, count, |numbers| run(numbers, is_loud, worst, &look));
    for (kind, ends) in rest {
        for (end, times) in ends {
            *table.entry(kind).or_default().entry(end).or_default() += times;
        }
    }
    bad.extend(more);
    for ((lie, about_volume), ends) in &table {
        let about = if *about_volume { "the volume" } else { "files" };
        println!("{lie:?} about {about}: {ends:?}");
    }
    refuse_all(count, &bad);
}

fn count_of(count: u64) -> u64 {
    number_from("PLATFS_STEPS").unwrap_or(count)
}

/// Two threads look at a half each of the numbers that are asked for.
fn in_halves<R: Send>(first: u64, count: u64, look: impl Fn(std::ops::Range<u64>) -> R + Sync) -> (R, R) {
    let (first, count) = (number_from("PLATFS_SEED").unwrap_or(first), count_of(count));
    let middle = first + count / 2;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| look(middle..first + count));
        (look(first..middle), other.join().unwrap())
    })
}

fn refuse_all(count: u64, bad: &[String]) {
    assert!(bad.is_empty(), "{} of {}:\n{}", bad.len(), count_of(count), bad[..bad.len().min(40)].join("\n"));
}

/// As [`judge`], for work whose harm is known as words: none may be said.
#[allow(dead_code, reason = "the tests of the command have such work")]
pub fn pairs(first: u64, count: u64, harm: impl Fn(&mut Bench, u64) -> Option<Vec<String>> + Sync) {
    let (mut bad, more) = in_halves(first, count, |numbers| {
        let mut bench = Bench::default();
        numbers.filter_map(|number| harm(&mut bench, number)).flatten().collect::<Vec<_>>()
    });
    bad.extend(more);
    refuse_all(count, &bad);
}
