//! Crash states of a recorded run: contents that the device can have.
//!
//! Writes before the last flush are there. Of those after it any part may be, sector by sector.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use platfs::device::{Device, Event, MemoryDevice, Overlay};
use platfs::ondisk::units::BlockSize;
use testkit::random::Random;

use crate::run::{Mark, Run, copy, image_of};

const SECTOR: usize = 512;
/// Where the superblock of a volume would be torn. Its flags and its checksum stand in different sectors: all that
/// read or write ext4 count on the device to write both or none.
const TORN_SUPERBLOCK: u64 = 1536;
/// Most writes of an epoch of which every subset is tried.
const WHOLE: usize = 6;
/// Random subsets of a larger one, beside the regular ones.
const SAMPLES: u64 = 12;

/// A write since the last flush.
pub(crate) type Write = (u64, Arc<[u8]>);

/// Contents of the device after a crash.
pub(crate) struct State<'r> {
    /// The device as it is before recovery.
    pub(crate) device: Arc<Overlay>,
    /// The last call that was begun before the crash.
    pub(crate) begun: u64,
    /// The last call that was promised.
    pub(crate) promised: u64,
    /// The last call of which all was promised, bytes that may wait in memory too.
    pub(crate) settled: u64,
    /// The last call of which the bytes of a file were promised.
    pub(crate) files: &'r BTreeMap<u32, u64>,
    /// Words that name it.
    pub(crate) name: String,
    /// A hash of what it holds: two states of any runs with the same hold the same.
    pub(crate) identity: u64,
    /// Its place among the states of its run.
    pub(crate) number: u64,
    base: &'r Arc<MemoryDevice>,
    kept: &'r [Write],
}

impl State<'_> {
    /// The last call of which the bytes of a file were promised, with its own or with all.
    pub(crate) fn floor(&self, id: u32) -> u64 {
        self.files.get(&id).copied().unwrap_or(0).max(self.settled)
    }

    /// Makes the state once more, as if it had not been recovered.
    pub(crate) fn again(&self) -> Arc<Overlay> {
        laid_over(self.base, self.kept, self.device.block_size())
    }
}

fn laid_over(base: &Arc<MemoryDevice>, kept: &[Write], block_size: BlockSize) -> Arc<Overlay> {
    let device = Arc::new(Overlay::new(base.clone(), block_size));
    for (offset, data) in kept {
        device.write_at(*offset, data).unwrap();
    }
    device
}

/// Goes through the states of a run.
pub(crate) struct States {
    base: Arc<MemoryDevice>,
    events: Vec<Event>,
    random: Random,
    /// States that were judged: a hash of the device, and how many promises there were.
    seen: HashSet<(u64, u64)>,
    promises: u64,
    /// States that were met, the same ones more than once.
    met: u64,
    /// The sum of all sectors of the base.
    sum: u64,
    block_size: BlockSize,
    begun: u64,
    promised: u64,
    settled: u64,
    files: BTreeMap<u32, u64>,
    epochs: u64,
    /// Writes are taken apart.
    tears: bool,
}

impl States {
    /// The states of a run.
    pub(crate) fn of(run: &Run) -> Self {
        let size = BlockSize::from_bytes(u64::from(run.workload.shape.block_size)).unwrap();
        let states = States::new(Arc::new(copy(&run.base)), run.events.clone(), size, run.seed);
        // Soft updates count on blocks of directories being written whole: their writes are not torn.
        States { tears: !run.workload.order.is_phased(), ..states }
    }

    /// Those of what was recorded on a device that began as `base`, which is used up.
    pub(crate) fn new(base: Arc<MemoryDevice>, events: Vec<Event>, block_size: BlockSize, seed: u64) -> Self {
        States {
            base,
            events,
            random: Random(seed),
            seen: HashSet::new(),
            promises: 0,
            met: 0,
            sum: 0,
            block_size,
            begun: 0,
            promised: 0,
            settled: 0,
            files: BTreeMap::new(),
            epochs: 0,
            tears: true,
        }
    }

    /// The states after each of the writes, in order, to `judge`, until it says that it is enough.
    #[cfg(test)]
    pub(crate) fn prefixes(mut self, mut judge: impl FnMut(&State<'_>) -> bool) {
        let (mut goes_on, mut writes) = (self.pass_on(&[], "at the beginning".into(), &mut judge), 0);
        for event in std::mem::take(&mut self.events) {
            if let Event::Write { offset, data } = event {
                self.sum = self.sum_with(&[(offset, Arc::clone(&data))]);
                self.base.write_at(offset, &data).unwrap();
                (self.epochs, writes) = (self.epochs + 1, writes + 1);
                goes_on = goes_on && self.pass_on(&[], format!("{writes} writes"), &mut judge);
            }
        }
    }

    /// Every state once, to `judge`, until it says that it is enough. How many were met, the same ones more than
    /// once.
    pub(crate) fn all(mut self, mut judge: impl FnMut(&State<'_>) -> bool) -> u64 {
        self.sum = sum_of(&self.base);
        let mut epoch: Vec<Write> = Vec::new();
        for event in std::mem::take(&mut self.events) {
            let goes_on = match event {
                Event::Mark(word) => match self.note(Mark::of(word)) {
                    // A promise asks more of what is there already.
                    true => self.pass_on(&epoch, "after a promise".into(), &mut judge),
                    false => true,
                },
                Event::Write { offset, data } => {
                    epoch.push((offset, data));
                    self.at_write(&epoch, &mut judge)
                }
                Event::Flush => {
                    let goes_on = self.in_parts(&epoch, &mut judge);
                    self.sum = self.sum_with(&epoch);
                    for (offset, data) in epoch.drain(..) {
                        self.base.write_at(offset, &data).unwrap();
                    }
                    self.epochs += 1;
                    goes_on
                }
            };
            if !goes_on {
                break;
            }
        }
        self.met
    }

    /// The crash comes while the last write is made: all before it, and it not, whole, or torn.
    fn at_write(&mut self, epoch: &[Write], judge: &mut impl FnMut(&State<'_>) -> bool) -> bool {
        let Some(((offset, data), before)) = epoch.split_last() else { return true };
        let mut whole = before.to_vec();
        if !self.pass_on(before, format!("epoch {}, {} writes", self.epochs, before.len()), judge) {
            return false;
        }
        let cuts = data.len() / SECTOR;
        let tries = if self.tears { cuts.min(5) } else { 0 };
        for _ in 0..tries {
            let cut = usize::try_from(self.random.below(cuts as u64)).unwrap() * SECTOR;
            if offset + cut as u64 == TORN_SUPERBLOCK {
                continue;
            }
            whole.push((*offset, Arc::from(&data[..cut])));
            let name = format!("epoch {}, {} writes and {cut} bytes", self.epochs, before.len());
            if !self.pass_on(&whole, name, judge) {
                return false;
            }
            whole.pop();
        }
        true
    }

    /// The crash comes before the flush is done: any of the writes of the epoch.
    fn in_parts(&mut self, epoch: &[Write], judge: &mut impl FnMut(&State<'_>) -> bool) -> bool {
        let count = epoch.len();
        let mut choices: Vec<Vec<bool>> = Vec::new();
        if count <= WHOLE {
            choices
                .extend((0..1_u64 << count).map(|bits| (0..count).map(|bit| bits >> bit & 1 == 1).collect()));
        } else {
            let step = count.div_ceil(16);
            for one in (0..count).step_by(step) {
                choices.push((0..count).map(|write| write != one).collect());
                choices.push((0..count).map(|write| write == one).collect());
            }
            choices.push(vec![true; count]);
            for _ in 0..SAMPLES {
                choices.push((0..count).map(|_| self.random.one_in(2)).collect());
            }
        }
        for choice in choices {
            let kept: Vec<Write> = epoch
                .iter()
                .zip(&choice)
                .filter(|(_, kept)| **kept)
                .map(|(write, _)| write.clone())
                .collect();
            let bits: String = choice.iter().map(|kept| if *kept { '1' } else { '0' }).collect();
            if !self.pass_on(&kept, format!("epoch {}, of its writes {bits}", self.epochs), judge) {
                return false;
            }
        }
        true
    }

    /// Notes a mark; returns true if it is a promise.
    fn note(&mut self, mark: Mark) -> bool {
        match mark {
            Mark::Started(call) => {
                self.begun = call;
                return false;
            }
            Mark::Promised(call) => (self.promised, self.settled) = (call, call),
            Mark::PromisedOf { file, call } => {
                self.promised = call;
                self.files.insert(file, call);
            }
            Mark::PromisedBytes { file, call } => drop(self.files.insert(file, call)),
        }
        self.promises += 1;
        true
    }

    /// The sum of all sectors with some writes made: each counts with its place and its bytes.
    fn sum_with(&self, kept: &[Write]) -> u64 {
        let mut last: HashMap<u64, u64> = HashMap::new();
        for (offset, data) in kept {
            for (sector, bytes) in (offset / SECTOR as u64..).zip(data.chunks(SECTOR)) {
                last.insert(sector, hash_of(sector, bytes));
            }
        }
        let mut old = [0; SECTOR];
        last.into_iter().fold(self.sum, |sum, (sector, new)| {
            self.base.read_at(sector * SECTOR as u64, &mut old).unwrap();
            sum.wrapping_sub(hash_of(sector, &old)).wrapping_add(new)
        })
    }

    fn pass_on(&mut self, kept: &[Write], name: String, judge: &mut impl FnMut(&State<'_>) -> bool) -> bool {
        let identity = self.sum_with(kept);
        self.met += 1;
        if !self.seen.insert((identity, self.promises)) {
            return true;
        }
        let number = self.seen.len() as u64 - 1;
        let device = laid_over(&self.base, kept, self.block_size);
        let (begun, promised, base) = (self.begun, self.promised, &self.base);
        let (settled, files) = (self.settled, &self.files);
        judge(&State { device, begun, promised, settled, files, name, identity, number, base, kept })
    }
}

/// The sum of all sectors of a device.
fn sum_of(device: &MemoryDevice) -> u64 {
    let bytes = image_of(device);
    (0..).zip(bytes.chunks(SECTOR)).fold(0, |sum, (sector, bytes)| sum.wrapping_add(hash_of(sector, bytes)))
}

/// A sector of zeros counts nothing: most are.
fn hash_of(sector: u64, bytes: &[u8]) -> u64 {
    if bytes.iter().all(|byte| *byte == 0) {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    (sector, bytes).hash(&mut hasher);
    hasher.finish()
}
