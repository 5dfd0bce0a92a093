//! The kernel's counters of mballoc (`mb_stats`) next to those of our port of it: the same fragmented image, the same
//! calls, by the kernel on a loop device and by the library with the policy `mballoc`.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use placement::stats::{Criterion, Stats};
use platfs::device::FileDevice;
use platfs::mkfs::{FsType, Options, Plan};
use platfs::placement::BlockPolicyKind;
use platfs::{Allocate, Attributes, Error, InodeNumber, Kind, NewInode, OpenOptions, Volume};

use super::place::{Mounted, WorkDir};
use super::tool;
use crate::experiment::verdict;
use crate::numbers::{Numbers, float};
use crate::results::{Criteria, Record, Results, Skipped};
use crate::system::{Computer, Directory, Library, Op, Phase, Stream, System};
use crate::table::{align, show};
use crate::workload::in_real_time;

const TABLE: &str = "mb_stats";

/// Options of `plat-lab peers mbstats`.
#[derive(clap::Args)]
pub(super) struct MbstatsOptions {
    /// Size of the volume in GiB; it is sparse.
    #[arg(long, default_value_t = 100)]
    pub(super) size: u64,
    /// Files, 64 KiB each, in one directory.
    #[arg(long, default_value_t = 40_000)]
    pub(super) files: u64,
    /// Clients that write them at once.
    #[arg(long, default_value_t = 64)]
    pub(super) threads: u64,
    /// Seed of the free runs.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Only cases whose name contains this.
    #[arg(long, default_value = "")]
    pub(super) case: String,
    /// Where the images are made.
    #[arg(long, default_value = "/var/tmp")]
    pub(super) dir: PathBuf,
    /// Appends the counters to this file.
    #[arg(long, value_name = "FILE")]
    pub(super) results: Option<PathBuf>,
}

/// Work on the fragmented volume.
struct Case {
    name: &'static str,
    /// How often the size of a file is that of the options, and how many times fewer of them there are.
    times: u64,
    /// `mb_stream_req` is set so that every file has a window of its own.
    own_windows: bool,
    about: &'static str,
}

const CASES: &[Case] = &[
    Case { name: "test 1", times: 1, own_windows: false, about: "files of 64 KiB in one directory" },
    Case {
        name: "test 1, own windows",
        times: 1,
        own_windows: true,
        about: "the same with mb_stream_req = 0: none is small enough to share a preallocation",
    },
    Case {
        name: "large files",
        times: 160,
        own_windows: false,
        about: "files of 10 MiB: requests are raised to 8 MiB where free runs are half of that",
    },
];

const FILE: u64 = 64 << 10;

/// Bytes of a write: what Linux asks its allocator for at once where nothing is delayed.
const WRITE: u64 = 4096;

/// Tunables that the port has under the kernel's names: it runs with the values that the kernel chose.
pub(crate) const SHARED: [&str; 7] = [
    "mb_max_to_scan",
    "mb_min_to_scan",
    "mb_order2_req",
    "mb_stream_req",
    "mb_group_prealloc",
    "mb_best_avail_max_trim_order",
    "mb_max_linear_groups",
];

/// Tunables by name.
pub(crate) type Tunables<'n> = Vec<(&'n str, u32)>;

/// Counters by name, those of criteria as `criterion: name`.
pub(crate) type Counts = BTreeMap<String, u64>;

/// Runs every case on both and prints the counters side by side.
///
/// # Errors
/// The first that failed. That the kernel can't be asked is no error; it is reported.
pub(super) fn run(options: &MbstatsOptions) -> Result<(), String> {
    let results = options.results.as_deref().map(Results::append).transpose()?;
    let keep = |record: Record| results.as_ref().map_or(Ok(()), |results| results.add(record));
    let place = WorkDir::new(&options.dir)?;
    eprintln!("making a volume of {} GiB whose free runs are 4 MiB", options.size);
    let free = fragmented(&place.copy(), options.size << 30, options.seed)?;
    println!("{} free runs, {:.1} KiB on average", free.0, float(free.1 * 4) / float(free.0.max(1)));
    for case in CASES.iter().filter(|case| case.name.contains(&options.case)) {
        println!("\n{}: {}", case.name, case.about);
        let (mut all, mut tunables) = (Vec::new(), Tunables::new());
        match missing() {
            None => {
                let (counts, chosen) = by_kernel(&place, options, case)?;
                all.push(("kernel", counts));
                tunables = chosen;
            }
            Some(why) => {
                eprintln!("SKIPPED: kernel: {why}");
                keep(Skipped { table: TABLE.into(), system: "kernel".into(), why }.into())?;
            }
        }
        all.push(("mballoc", by_library(&place, options, case, tunables)?));
        print!("{}", text(&all));
        for (system, counts) in &all {
            keep(criteria(case, system, options.seed, counts).into())?;
        }
        if let [(_, kernels), (_, ours)] = all.as_slice() {
            for (figure, (a, b), holds) in judged(kernels, ours) {
                println!(
                    "  {}: {figure}: kernel {a}, ours {b}",
                    if holds { "holds" } else { "DOES NOT HOLD" }
                );
                let detail = format!("kernel {a}, ours {b}");
                let claim = format!("{}: {figure} within a factor 2 of the kernel's", case.name);
                keep(verdict(TABLE, claim, holds, detail).into())?;
            }
        }
    }
    Ok(())
}

/// Why the kernel can't be asked.
pub(crate) fn missing() -> Option<String> {
    if !tool::can_mount() {
        return Some("needs root".into());
    }
    if !Path::new("/dev/loop-control").exists() {
        return Some("there is no /dev/loop-control".into());
    }
    let tool = ["mount", "umount", "cp"].into_iter().find(|tool| tool::find(tool).is_none());
    tool.map(|tool| format!("{tool} is not installed"))
}

/// Makes a volume whose free space is in runs of 820 to 1,023 blocks (95 %) or up to 2,000, with 850 to 1,199 in
/// use between them: one file takes all there is, and holes are punched into it. Free runs, and their blocks.
pub(super) fn fragmented(image: &Path, size: u64, seed: u64) -> Result<(u64, u64), String> {
    let failure = |error: &dyn std::fmt::Display| format!("{}: {error}", image.display());
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(image);
    let file = file.map_err(|error| failure(&error))?;
    file.set_len(size).map_err(|error| failure(&error))?;
    let device = std::sync::Arc::new(FileDevice::new(file).map_err(|error| failure(&error))?);
    let mut format = Options::new(FsType::Ext4);
    format.reserved_percent = 0.0;
    let plan = Plan::new(&format, size).map_err(|error| failure(&error))?;
    plan.write(&*device).map_err(|error| failure(&error))?;
    let volume = Volume::open(device, &OpenOptions::new().write(true)).map_err(|error| failure(&error))?;
    fill_and_punch(&volume, seed).map_err(|error| failure(&error))?;
    volume.close().map_err(|error| failure(&error))?;
    let free = super::census::Census::of_ext(image)?.free.unwrap_or_default();
    Ok((u64::try_from(free.len()).unwrap_or(u64::MAX), free.iter().sum()))
}

fn fill_and_punch(volume: &Volume, seed: u64) -> platfs::Result<()> {
    const BLOCK: u64 = 4096;
    let attributes = Attributes { permissions: 0o755, ..Attributes::default() };
    let new = |kind| NewInode { kind, attributes, xattrs: &[] };
    volume.create(InodeNumber::ROOT, b"d", &new(Kind::Directory))?;
    let filler = volume.create(InodeNumber::ROOT, b"filler", &new(Kind::File))?;
    let (mut end, mut step) = (0, 32_768);
    while step > 0 {
        match volume.allocate(filler, Allocate::Extend, end * BLOCK, step * BLOCK) {
            Ok(()) => end += step,
            Err(Error::NoSpace) => step /= 2,
            Err(error) => return Err(error),
        }
    }
    let (mut numbers, mut at) = (Numbers::new(seed), 0);
    while at < end {
        at += u64::from(numbers.between(850, 1_199));
        let long = numbers.chance(0.05);
        let run = u64::from(if long { numbers.between(1_024, 2_000) } else { numbers.between(820, 1_023) });
        let run = run.min(end.saturating_sub(at));
        if run > 0 {
            volume.allocate(filler, Allocate::PunchHole, at * BLOCK, run * BLOCK)?;
        }
        at += run;
    }
    volume.sync()
}

/// The calls of a case.
fn phase(options: &MbstatsOptions, case: &Case) -> Phase {
    let (threads, size) = (options.threads.max(1), FILE * case.times);
    let files = options.files / case.times;
    let client = move |thread: u64| -> Stream {
        let own = (thread..files).step_by(usize::try_from(threads).unwrap_or(1));
        Box::new(own.flat_map(move |file| {
            let open = Op::Open { slot: 0, path: format!("d/{file}").into(), create: true };
            let writes = (0..size / WRITE).map(|i| Op::Write { slot: 0, offset: i * WRITE, len: WRITE });
            std::iter::once(open).chain(writes).chain(std::iter::once(Op::Close(0)))
        }))
    };
    Phase::new("files", (0..threads).map(client).collect())
}

/// Copies the fragmented volume to where it is used up.
pub(crate) fn fresh(place: &WorkDir) -> Result<(), String> {
    let paths = [place.copy().into_os_string(), place.image().into_os_string()];
    let words = ["--sparse=always", "--reflink=auto", "--"].map(std::ffi::OsString::from);
    tool::run("cp", words.into_iter().chain(paths)).map(drop)
}

fn by_kernel(
    place: &WorkDir,
    options: &MbstatsOptions,
    case: &Case,
) -> Result<(Counts, Tunables<'static>), String> {
    fresh(place)?;
    let mounted = Mounted::kernel(place, "ext4", "nodelalloc,noinit_itable")?;
    let device = mounted.device().ok_or("the loop device is not known")?;
    let set = |name: &str, value: &str| {
        let path = format!("/sys/fs/ext4/{device}/{name}");
        std::fs::write(&path, value).map_err(|error| format!("{path}: {error}"))
    };
    set("mb_stats", "1")?;
    if case.own_windows {
        set("mb_stream_req", "0")?;
    }
    let tunable = |name: &'static str| {
        let text = std::fs::read_to_string(format!("/sys/fs/ext4/{device}/{name}")).ok()?;
        Some((name, text.trim().parse().ok()?))
    };
    let tunables = SHARED.into_iter().filter_map(tunable).collect();
    in_real_time(&Directory::new(mounted.path()), phase(options, case))?;
    let path = format!("/proc/fs/ext4/{device}/mb_stats");
    let stats = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    mounted.end()?;
    super::remove(&place.image())?;
    Ok((read_mb_stats(&stats), tunables))
}

fn by_library(
    place: &WorkDir,
    options: &MbstatsOptions,
    case: &Case,
    mut tunables: Tunables<'_>,
) -> Result<Counts, String> {
    fresh(place)?;
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    tunables.push(("cpus", u32::try_from(cpus).unwrap_or(1)));
    if case.own_windows {
        tunables.push(("mb_stream_req", 0));
    }
    let how = OpenOptions::new().policy(BlockPolicyKind::Mballoc).tunables(&tunables);
    let library = Library::<Computer>::on_image(&place.image(), &how)?;
    // Linux reads all bitmaps in the background from mounting on.
    library.volume().space().load_bitmaps().map_err(|error| error.to_string())?;
    library.kept(|| in_turns(&library, phase(options, case)))?;
    let counts = counts(&library.statistics());
    library.close()?;
    super::remove(&place.image())?;
    Ok(counts)
}

/// Runs the clients in turns, a file each. In the kernel a file is written faster than a time slice ends; our writers
/// would hand the volume to each other at each call, and tear the files in a shared preallocation.
fn in_turns(system: &dyn System, phase: Phase) -> Result<(), String> {
    let mut clients: VecDeque<_> = phase.clients.into_iter().map(|calls| (system.client(), calls)).collect();
    while let Some((mut client, mut calls)) = clients.pop_front() {
        for call in calls.by_ref() {
            client.perform(&call)?;
            if matches!(call, Op::Close(_)) {
                clients.push_back((client, calls));
                break;
            }
        }
    }
    Ok(())
}

/// Our counters under the kernel's names.
pub(crate) fn counts(stats: &Stats) -> Counts {
    let mut all: Counts = stats.iter().map(|(name, count)| (name.to_string(), count)).collect();
    for criterion in Criterion::ALL {
        let own = stats.criterion(criterion);
        let figures = [
            ("hits", own.hits),
            ("groups_considered", own.groups_considered),
            ("extents_scanned", own.extents_scanned),
            ("useless_loops", own.useless_loops),
        ];
        all.extend(figures.map(|(figure, count)| (format!("{}: {figure}", criterion.name()), count)));
    }
    all
}

/// Reads `/proc/fs/ext4/DEVICE/mb_stats`: lines of `name: value`, those of a criterion below a line `cr_..._stats:`.
/// `buddies_generated: 3/800` is the part that was generated.
pub(crate) fn read_mb_stats(text: &str) -> Counts {
    let (mut counts, mut criterion) = (Counts::new(), None::<String>);
    for line in text.lines() {
        let Some((name, value)) = line.trim().split_once(':') else { continue };
        if let Some(named) = name.strip_suffix("_stats").and_then(criterion_of) {
            criterion = Some(named.to_owned());
            continue;
        }
        let Ok(value) = value.trim().split('/').next().unwrap_or("").trim().parse() else { continue };
        let inside = ["hits", "groups_considered", "extents_scanned", "useless_loops", "bad_suggestions"];
        match criterion.as_ref().filter(|_| line.starts_with("\t\t") && inside.contains(&name)) {
            Some(criterion) => counts.insert(format!("{criterion}: {name}"), value),
            None => counts.insert(name.to_owned(), value),
        };
    }
    counts
}

/// Name of the criterion that a section of the counters is about. Up to 6.4 criteria had numbers.
fn criterion_of(section: &str) -> Option<&str> {
    match section {
        "cr0" => Some("p2_aligned"),
        "cr1" => Some("goal_fast"),
        "cr2" => Some("goal_slow"),
        "cr3" => Some("any_free"),
        _ => section.strip_prefix("cr_"),
    }
}

/// Counters side by side, those that every system has.
fn text(all: &[(&str, Counts)]) -> String {
    let head = ["counter", ""].into_iter().chain(all.iter().map(|(system, _)| *system)).chain(["ratio"]);
    let mut lines: Vec<Vec<String>> = vec![head.map(String::from).collect()];
    let Some((_, first)) = all.first() else { return String::new() };
    for name in first.keys().filter(|name| all.iter().all(|(_, counts)| counts.contains_key(*name))) {
        let values: Vec<u64> = all.iter().filter_map(|(_, counts)| counts.get(name).copied()).collect();
        let ratio = match values.as_slice() {
            [kernel, ours] if *kernel > 0 => show(float(*ours) / float(*kernel)),
            _ => String::new(),
        };
        let line = [name.clone(), String::new()].into_iter().chain(values.iter().map(u64::to_string));
        lines.push(line.chain([ratio]).collect());
    }
    align(&lines)
}

/// Counts to compare, the kernel's and ours, and true if they are within a factor 2: hits and extents scanned of each
/// criterion and in all. Counts below a hundredth of all hits, or of all extents, don't decide anything.
fn judged(kernel: &Counts, ours: &Counts) -> Vec<(String, (u64, u64), bool)> {
    let of = |counts: &Counts, name: &str| counts.get(name).copied().unwrap_or(0);
    let all = |figure: &str| {
        let sum = |counts| {
            Criterion::ALL.iter().map(|c| of(counts, &format!("{}: {figure}", c.name()))).sum::<u64>()
        };
        sum(kernel).max(sum(ours))
    };
    let criteria = Criterion::ALL.iter().flat_map(|criterion| {
        ["hits", "extents_scanned"].map(|figure| format!("{}: {figure}", criterion.name()))
    });
    let names = criteria.chain(["extents_scanned".to_owned()]);
    let pair = |name: String| {
        let (a, b) = (of(kernel, &name), of(ours, &name));
        let little = all(if name.ends_with("hits") { "hits" } else { "extents_scanned" }) / 100;
        let within = a.max(b) <= little || (a <= b.saturating_mul(2) && b <= a.saturating_mul(2));
        (name, (a, b), within)
    };
    names.map(pair).filter(|(name, (a, b), _)| a.max(b) > &0 || name == "extents_scanned").collect()
}

fn criteria(case: &Case, system: &str, seed: u64, counts: &Counts) -> Criteria {
    let of = |figure: &str| {
        let value = |criterion: Criterion| {
            let count = counts.get(&format!("{}: {figure}", criterion.name())).copied().unwrap_or(0);
            (criterion.name(), float(count))
        };
        Criterion::ALL.map(value).into_iter().collect()
    };
    Criteria {
        table: TABLE.into(),
        case: case.name.into(),
        system: system.into(),
        seed,
        hits: of("hits"),
        scanned: of("extents_scanned"),
        ..Criteria::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded on Linux 6.18, the middle criteria left out.
    const RECORDED: &str = "mballoc:\n\treqs: 1280\n\tsuccess: 1280\n\tgroups_scanned: 3\n\tcr_p2_aligned_stats:\n\t\thits: 3
\t\tgroups_considered: 4\n\t\textents_scanned: 3\n\t\tuseless_loops: 0\n\tcr_any_free_stats:\n\t\thits: 7
\t\tgroups_considered: 0\n\t\textents_scanned: 0\n\t\tuseless_loops: 1\n\textents_scanned: 8\n\t\tgoal_hits: 1277
\t\tstream_goal_hits: 1\n\t\tlen_goal_hits: 7\n\t\t2^n_hits: 3\n\t\tbreaks: 0\n\t\tlost: 0\n\tbuddies_generated: 4/800
\tbuddies_time_used: 4836\n\tpreallocated: 2544\n\tdiscarded: 768\n";

    #[test]
    fn what_the_kernel_tells_is_read() {
        let counts = read_mb_stats(RECORDED);
        let of = |name: &str| counts.get(name).copied();
        assert_eq!((of("reqs"), of("extents_scanned"), of("goal_hits")), (Some(1280), Some(8), Some(1277)));
        assert_eq!((of("p2_aligned: hits"), of("any_free: hits")), (Some(3), Some(7)));
        assert_eq!((of("p2_aligned: extents_scanned"), of("buddies_generated")), (Some(3), Some(4)));
        assert_eq!(of("hits"), None);
    }

    #[test]
    fn counts_are_judged_by_a_factor_of_two_and_little_ones_not() {
        let of = |reqs: u64, fast: u64, slow: u64| -> Counts {
            let pairs = [("reqs", reqs), ("goal_fast: hits", fast), ("goal_slow: hits", slow)];
            pairs.map(|(name, count)| (name.to_owned(), count)).into()
        };
        let holds = |a, b| judged(&a, &b).iter().map(|(_, _, holds)| *holds).collect::<Vec<_>>();
        assert_eq!(holds(of(9000, 200, 2), of(9000, 400, 0)), [true, true, true]);
        assert_eq!(holds(of(9000, 100, 30), of(9000, 201, 0)), [false, false, true]);
    }

    /// A small volume: the library's half needs no root.
    #[test]
    fn a_fragmented_volume_is_what_it_is_said_to_be() {
        let place = WorkDir::new(&std::env::temp_dir()).unwrap();
        let (runs, blocks) = fragmented(&place.copy(), 1 << 30, 1).unwrap();
        assert!((90..160).contains(&runs) && (850..1_050).contains(&(blocks / runs)), "{runs} {blocks}");
        let options = MbstatsOptions {
            size: 1,
            files: 320,
            threads: 8,
            seed: 1,
            case: String::new(),
            dir: std::env::temp_dir(),
            results: None,
        };
        let counts = by_library(&place, &options, &CASES[0], Vec::new()).unwrap();
        assert!(counts["reqs"] > 0 && counts["extents_scanned"] > 0, "{counts:?}");
    }

    #[test]
    fn criteria_that_had_numbers_have_names() {
        let old = "mballoc:\n\tcr0_stats:\n\t\thits: 3\n\tcr1_stats:\n\t\thits: 4\n\tcr2_stats:\n\t\thits: 5\n\
                   \tcr3_stats:\n\t\thits: 6\n";
        let counts = read_mb_stats(old);
        let of = |name: &str| counts.get(&format!("{name}: hits")).copied();
        let hits = ["p2_aligned", "goal_fast", "goal_slow", "any_free"].map(of);
        assert_eq!(hits, [Some(3), Some(4), Some(5), Some(6)]);
    }
}
