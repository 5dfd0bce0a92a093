//! Power failures while a volume that is not in use changes its parameters or its size: whatever the device holds then,
//! the same command makes of it the volume that was asked for, with the same tree.
//!
//! The states are made in memory: what was flushed is there, and of the rest any sectors. What stands beside the image is
//! the file of the way back, from the moment at which the command made it stable to the end.

use std::collections::HashSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use plat_cli::console::Console;
use plat_cli::reshaping::{self, Held};
use platfs::check::{self, Decision, Issue, Sink, check};
use platfs::device::{Device, Event, MemoryDevice, Overlay, Recorder};
use platfs::mkfs::{JournalOptions, parse_features};
use platfs::ondisk::inode::FileType;
use platfs::ondisk::units::BlockSize;
use platfs::{InodeNumber, OpenOptions, Volume};
use platfs_reshape::resize::Plan;
use platfs_reshape::tune::{Field, Request, tune};
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::{fsck, sparse, tool};

const SECTOR: usize = 512;
/// Of the blocks of all volumes.
const BLOCK: u64 = 1024;
const MIB: u64 = 1 << 20;

/// Command under test.
#[allow(clippy::large_enum_variant, reason = "there are few of them")]
enum Verb {
    Tune(Request),
    /// To this size, in bytes.
    Resize(u64),
    Least,
}

/// A change of a kind of volume.
struct Case {
    name: &'static str,
    /// For mke2fs.
    options: &'static str,
    verb: Verb,
}

fn features(name: &'static str, options: &'static str) -> Case {
    let features = parse_features(name).unwrap();
    Case { name, options, verb: Verb::Tune(Request { features, random: [7; 16], ..Request::default() }) }
}

fn resized(name: &'static str, options: &'static str, bytes: u64) -> Case {
    Case { name, options, verb: Verb::Resize(bytes) }
}

fn tuned(name: &'static str, options: &'static str, request: Request) -> Case {
    Case { name, options, verb: Verb::Tune(Request { random: [7; 16], ..request }) }
}

/// The files fill the first group.
const FULL_GROUP: &str = "-t ext2 -I 128 -g 1024 -N 2048";

/// Changes of parameters.
fn tunings() -> Vec<Case> {
    let label = vec![Field::Label(b"another".to_vec()), Field::ReservedBlocks(9)];
    let journal = JournalOptions { size: Some(2 * MIB), ..JournalOptions::default() };
    vec![
        tuned("fields", "", Request { fields: label, ..Request::default() }),
        tuned("uuid", "", Request { uuid: Some([9; 16]), ..Request::default() }),
        tuned("another journal", "", Request { journal: Some(journal), ..Request::default() }),
        tuned("larger inodes", "-I 128", Request { inode_size: Some(256), ..Request::default() }),
        tuned(
            "larger inodes, files move",
            FULL_GROUP,
            Request { inode_size: Some(256), ..Request::default() },
        ),
        features("^metadata_csum", ""),
        features("metadata_csum", "-O ^metadata_csum"),
        features("quota", ""),
        features("^quota", "-O quota"),
        features("has_journal", "-O ^has_journal"),
        features("^has_journal", ""),
        features("orphan_file", ""),
        features("^filetype", ""),
        features("filetype", "-O ^filetype"),
        features("^dir_index", ""),
        features("dir_index", "-O ^dir_index"),
        features("^resize_inode", ""),
        features("64bit", "-O ^64bit,^resize_inode"),
        features("^64bit", ""),
        features("mmp", ""),
    ]
}

/// Changes of the size.
fn resizings() -> Vec<Case> {
    vec![
        resized("larger", "", 15 * MIB),
        resized("larger by groups", "-g 1024", 14 * MIB),
        resized("larger, descriptors move", "-O ^resize_inode -g 256", 16 * MIB),
        resized("larger, ext2", "-t ext2", 16 * MIB),
        resized("smaller", "-g 1024 -J size=1", 6 * MIB),
        resized("smaller, ext3", "-t ext3 -g 1024 -J size=1", 6 * MIB),
        resized("smaller, ext2", "-t ext2 -g 1024", 5 * MIB),
        Case { name: "least", options: "-g 1024 -J size=1", verb: Verb::Least },
        Case { name: "least, ext2", options: "-t ext2 -g 1024", verb: Verb::Least },
    ]
}

/// Bytes of the device; the volume has half of them at first.
const DEVICE: u64 = 16 * MIB;

/// A small volume with something of everything, in a device with room behind it.
fn made(options: &str) -> Vec<u8> {
    let scratch = Scratch::new("interrupted");
    let (image, tree) = (scratch.join("disk.img"), scratch.join("tree"));
    fs::create_dir_all(tree.join("many")).unwrap();
    for number in 0..60_u32 {
        fs::write(tree.join(format!("many/a name of some length, number {number}")), number.to_string())
            .unwrap();
    }
    for number in 0..12_u8 {
        fs::write(tree.join(format!("large{number}")), vec![number; 20_000 + usize::from(number) * 9_000])
            .unwrap();
    }
    std::os::unix::fs::symlink("t".repeat(90), tree.join("link")).unwrap();
    let mut command = tool::command("mke2fs");
    if !options.contains("-t ") {
        command.args(["-t", "ext4"]);
    }
    command.args(["-q", "-F", "-b", "1024", "-N", "256"]).args(options.split_whitespace());
    tool::run(command.arg("-d").arg(&tree).arg(&image).arg("8M"));
    // mke2fs does not count what it copies.
    let _ = tool::command("e2fsck").arg("-fy").arg(&image).output().unwrap();
    let mut bytes = fs::read(&image).unwrap();
    bytes.resize(usize::try_from(DEVICE).unwrap(), 0);
    bytes
}

/// Does what the command does. `begins` is called when the way back is about to be written.
fn run(verb: &Verb, device: &Arc<dyn Device>, beside: PathBuf, begins: &dyn Fn()) -> Result<(), String> {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut console = Console::new(&mut out, &mut err);
    let text = |error: platfs_reshape::Error| error.to_string();
    let held = Held::on("disk.img".into(), Arc::clone(device), beside, &mut console);
    let held = held.map_err(|failure| format!("{failure:?}"))?;
    let limits = reshaping::limits();
    let change = match verb {
        Verb::Tune(request) => tune(held.device(), request, limits).map_err(text)?.change,
        Verb::Resize(_) | Verb::Least => {
            let plan = match verb {
                Verb::Resize(bytes) => Plan::new(Arc::clone(device), *bytes),
                _ => Plan::smallest(Arc::clone(device)),
            };
            let plan = plan.map_err(text)?;
            if plan.is_empty() {
                return Ok(());
            }
            plan.draft(Arc::clone(device), device.size(), &limits).map_err(text)?
        }
    };
    begins();
    held.write(&change, None).map_err(|failure| format!("{failure:?}"))
}

/// The first thing that a check finds.
#[derive(Default)]
struct First(Option<String>);

impl Sink for First {
    fn issue(&mut self, issue: Issue) -> Decision {
        let Issue { kind, place, found, .. } = issue;
        self.0.get_or_insert_with(|| format!("{} {place:?}: {found}", kind.id));
        Decision::Leave
    }
}

/// Paths and contents, as a number.
fn tree_of(device: &Arc<dyn Device>) -> Result<u64, String> {
    let mut hasher = DefaultHasher::new();
    let volume = Volume::open(Arc::clone(device), &OpenOptions::new()).map_err(|error| error.to_string())?;
    walk(&volume, InodeNumber::ROOT, &mut hasher).map_err(|error| error.to_string())?;
    Ok(hasher.finish())
}

fn walk(volume: &Volume, directory: InodeNumber, hasher: &mut DefaultHasher) -> platfs::Result<()> {
    let entries: Result<Vec<_>, _> = volume.read_dir(directory)?.collect();
    let mut entries = entries?;
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    for entry in entries {
        let facts = volume.metadata(entry.inode)?;
        (&entry.name, facts.mode()).hash(hasher);
        match facts.file_type {
            FileType::Regular => {
                let mut bytes = vec![0; usize::try_from(facts.size).unwrap()];
                volume.read_at(entry.inode, 0, &mut bytes)?;
                bytes.hash(hasher);
            }
            FileType::Symlink => volume.read_link(entry.inode)?.hash(hasher),
            _ => walk(volume, entry.inode, hasher)?,
        }
    }
    Ok(())
}

/// State that a power failure may leave.
struct State {
    device: Arc<Overlay>,
    /// The way back is there.
    is_kept: bool,
}

/// A change as it was recorded.
struct Recorded {
    base: Arc<dyn Device>,
    writes: Vec<(u64, Arc<[u8]>)>,
    /// How many writes were made before each flush.
    flushes: Vec<usize>,
    /// How many were made when the way back was stable; what it holds, unless none is needed.
    kept: (usize, Option<Vec<u8>>),
    tree: u64,
    /// Sizes and features of the superblock in the end.
    shape: (u64, String),
}

fn shape_of(device: &Arc<dyn Device>) -> (u64, String) {
    let raw = platfs::read_superblock(&**device).unwrap();
    (raw.blocks_count(), format!("{:?} {:?}", raw.features(), raw.label()))
}

/// Keeps a copy of the way back when the change begins to be written over the image.
struct Watching {
    inner: Arc<Recorder>,
    beside: PathBuf,
    begun: Mutex<Option<(usize, Option<Vec<u8>>)>>,
    events: Mutex<Vec<Event>>,
    waits: std::sync::atomic::AtomicBool,
}

impl Watching {
    fn gather(&self) -> usize {
        let mut events = self.events.lock().unwrap();
        events.extend(self.inner.take());
        events.iter().filter(|event| matches!(event, Event::Write { .. })).count()
    }
}

impl Device for Watching {
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.inner.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        if self.waits.swap(false, std::sync::atomic::Ordering::SeqCst) {
            *self.begun.lock().unwrap() = Some((self.gather(), fs::read(&self.beside).ok()));
        }
        self.inner.write_at(offset, data)
    }
    fn flush(&self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

fn recorded(case: &Case) -> Recorded {
    let scratch = Scratch::new("interrupted");
    let beside = scratch.join("way-back");
    let bytes = made(case.options);
    let base: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&bytes));
    let watching = Arc::new(Watching {
        inner: Arc::new(Recorder::new(Arc::new(MemoryDevice::from_bytes(&bytes)))),
        beside: beside.clone(),
        begun: Mutex::default(),
        events: Mutex::default(),
        waits: false.into(),
    });
    let device: Arc<dyn Device> = Arc::clone(&watching) as Arc<dyn Device>;
    let begins = || watching.waits.store(true, std::sync::atomic::Ordering::SeqCst);
    run(&case.verb, &device, beside, &begins).unwrap_or_else(|why| panic!("{}: {why}", case.name));
    watching.gather();
    let kept = watching.begun.lock().unwrap().take();
    let kept = kept.unwrap_or_else(|| panic!("{}: nothing to do", case.name));
    let tree = tree_of(&base).unwrap();
    assert_eq!(tree, tree_of(&device).unwrap(), "{}", case.name);
    let (mut writes, mut flushes) = (Vec::new(), Vec::new());
    for event in watching.events.lock().unwrap().drain(..) {
        match event {
            Event::Write { offset, data } => writes.push((offset, data)),
            Event::Flush => flushes.push(writes.len()),
            Event::Mark(_) => {}
        }
    }
    Recorded { base, writes, flushes, kept, tree, shape: shape_of(&device) }
}

impl Recorded {
    /// One of the states that a power failure may leave. The superblock is written whole.
    fn state(&self, random: &mut Random) -> State {
        let nth = random.below(self.flushes.len() as u64 + 1);
        let at = usize::try_from(nth).unwrap();
        let stable = if at == 0 { 0 } else { self.flushes[at - 1] };
        let end = self.flushes.get(at).copied().unwrap_or(self.writes.len());
        let device = Overlay::new(Arc::clone(&self.base), BlockSize::from_bytes(BLOCK).unwrap());
        let some = stable + usize::try_from(random.below((end - stable + 1) as u64)).unwrap();
        let odds = random.below(4);
        for (index, (offset, data)) in self.writes[..end].iter().enumerate() {
            let whole = *offset == 1024 && data.len() == 1024 && self.kept.1.is_none();
            let there = |random: &mut Random| match odds {
                // A prefix; or most; or few; or half.
                0 => index < some,
                1 => random.below(8) > 0,
                2 => random.below(8) == 0,
                _ => random.below(2) == 0,
            };
            let at_once = there(random);
            for (sector, piece) in data.chunks(SECTOR).enumerate() {
                if index < stable || if whole { at_once } else { there(random) } {
                    device.write_at(offset + (sector * SECTOR) as u64, piece).unwrap();
                }
            }
        }
        // Behind the last flush the file is gone or not.
        let is_over = at == self.flushes.len() && random.one_in(2);
        State { device: Arc::new(device), is_kept: end > self.kept.0 && !is_over }
    }

    /// Number that identifies the state: the blocks that are not as they were.
    fn identity(&self, state: &State) -> u64 {
        let mut hasher = DefaultHasher::new();
        state.is_kept.hash(&mut hasher);
        for (block, bytes) in state.device.written() {
            let mut before = vec![0; bytes.len()];
            self.base.read_at(block * bytes.len() as u64, &mut before).unwrap();
            if before[..] != bytes[..] {
                (block, bytes).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// Runs the command again on a state.
    fn judge(&self, case: &Case, state: State, scratch: &Scratch, with_e2fsck: bool) -> Result<(), String> {
        let beside = scratch.join("way-back");
        let _ = fs::remove_file(&beside);
        if let (true, Some(kept)) = (state.is_kept, &self.kept.1) {
            fs::write(&beside, kept).unwrap();
        }
        let device: Arc<dyn Device> = state.device;
        run(&case.verb, &device, beside.clone(), &|| ())?;
        if beside.exists() {
            return Err("the way back is still there".into());
        }
        if shape_of(&device) != self.shape {
            return Err(format!("{:?} in place of {:?}", shape_of(&device), self.shape));
        }
        let mut first = First::default();
        check(Arc::clone(&device), &check::Options::default(), &mut first)
            .map_err(|error| error.to_string())?;
        if let Some(what) = first.0 {
            return Err(what);
        }
        if tree_of(&device)? != self.tree {
            return Err("another tree".into());
        }
        if with_e2fsck {
            let image = scratch.join("state.img");
            let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
            device.read_at(0, &mut bytes).unwrap();
            sparse::write(&image, bytes).unwrap();
            let said = fsck::complaints(&image);
            if !said.is_empty() {
                return Err(said);
            }
        }
        Ok(())
    }
}

/// Judges `states` different states of each case, one of `e2fsck` with e2fsck, too. `PLATFS_SEED` is where they begin.
fn explore(test: &str, cases: &[Case], states: usize, e2fsck: usize) {
    if !tool::have_tools(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let first = std::env::var("PLATFS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let scratch = Scratch::new("interrupted");
    let mut sum = 0;
    for case in cases {
        let recorded = recorded(case);
        let (mut random, mut seen, mut tries) = (Random(first), HashSet::new(), 0);
        while seen.len() < states && tries < states * 3 {
            tries += 1;
            let seed = random.next();
            let state = recorded.state(&mut Random(seed));
            if seen.insert(recorded.identity(&state)) {
                let done = recorded.judge(case, state, &scratch, seen.len() % e2fsck == 1);
                done.unwrap_or_else(|why| panic!("{} ({}), seed {seed}: {why}", case.name, case.options));
            }
        }
        println!("{}: {} states of {} writes", case.name, seen.len(), recorded.writes.len());
        sum += seen.len();
    }
    println!("{sum} states");
}

#[test]
fn another_size_comes_after_power_failures() {
    explore("another_size", &resizings(), 12, 6);
}

#[test]
fn other_parameters_come_after_power_failures() {
    explore("other_parameters", &tunings(), 8, 8);
}

fn many() -> usize {
    std::env::var("PLATFS_STATES").ok().and_then(|states| states.parse().ok()).unwrap_or(100_000)
}

/// `cargo test -p platfs-cli --test all interrupted:: -- --ignored --nocapture`; `PLATFS_STATES` of each verb in all.
#[test]
#[ignore = "minutes: up to 100,000 different states"]
fn another_size_comes_after_power_failures_often() {
    let cases = resizings();
    explore("another_size", &cases, many().div_ceil(cases.len()), 50);
}

#[test]
#[ignore = "minutes: up to 100,000 different states"]
fn other_parameters_come_after_power_failures_often() {
    let cases = tunings();
    explore("other_parameters", &cases, many().div_ceil(cases.len()), 50);
}
