//! S1 on the kernel itself: its allocator (of this machine's kernel) and ours through the library, on copies of one image whose
//! free runs are 4 MiB, without delayed allocation, by 64 threads: files of 64 KiB by fs_mark, and bytes by fio. The
//! library gets the same calls from threads of its own.
//!
//! How long locks are held the kernel tells only where it was built for that (`CONFIG_LOCK_STAT`); what it always tells is how many
//! groups were searched under theirs.

use platfs::OpenOptions;
use platfs::placement::{BlockPolicyKind, Counter, Stats};

use super::mbstats::{self, Counts, MbstatsOptions};
use super::place::{Mounted, WorkDir};
use super::tool;
use crate::experiment::verdict;
use crate::numbers::{Numbers, float};
use crate::results::{Cell, Record, Results, Skipped};
use crate::system::{Computer, Library, Op, Phase, Stream};
use crate::table::{align, show};
use crate::workload::in_real_time;

const TABLE: &str = "S1 on the kernel";

/// Options of `plat-lab peers s1`.
#[derive(clap::Args)]
pub(super) struct S1Options {
    #[command(flatten)]
    volume: MbstatsOptions,
    /// MiB that are written in all by fio's cases.
    #[arg(long, value_name = "MIB", default_value_t = 5120)]
    bytes: u64,
}

/// Work to do, and the program for it on the kernel's mount.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Files,
    /// By every other thread in random places, or by none.
    Bytes {
        random: bool,
    },
}

const CASES: [(&str, Work, bool, &str); 4] = [
    ("fs_mark", Work::Files, false, "files of 64 KiB in one directory"),
    ("fs_mark, own windows", Work::Files, true, "the same with mb_stream_req = 0"),
    (
        "fio, mixed",
        Work::Bytes { random: true },
        false,
        "a file for each thread, every other in random places",
    ),
    ("fio, in order", Work::Bytes { random: false }, false, "a file for each thread"),
];

const FILE: u64 = 64 << 10;
const PIECE: u64 = 64 << 10;
/// Bytes of a write of fs_mark's cases: what Linux asks its allocator for at once where nothing is delayed.
const WRITE: u64 = 4096;

/// Figures of a system in a case, in the order of the table.
const FIGURES: [&str; 8] = [
    "seconds",
    "processor s",
    "requests",
    "scanned",
    "scanned/req",
    "groups/req",
    "free runs",
    "mean free KiB",
];

/// Runs every case on the kernel, on our port of its allocator and on ours, and prints the figures side by side.
///
/// # Errors
/// The first that failed. That the kernel can't be asked is no error; it is reported.
pub(super) fn run(options: &S1Options) -> Result<(), String> {
    let results = options.volume.results.as_deref().map(Results::append).transpose()?;
    let keep = |record: Record| results.as_ref().map_or(Ok(()), |results| results.add(record));
    let place = WorkDir::new(&options.volume.dir)?;
    let free = mbstats::fragmented(&place.copy(), options.volume.size << 30, options.volume.seed)?;
    println!("{} free runs, {:.1} KiB on average", free.0, float(free.1 * 4) / float(free.0.max(1)));
    for case in CASES.iter().filter(|case| case.0.contains(&options.volume.case)) {
        println!("\n{}: {}", case.0, case.3);
        let mut all = Vec::new();
        match able(case.1) {
            None => all.push(("kernel", by_kernel(&place, options, case)?)),
            Some(why) => {
                eprintln!("SKIPPED: kernel: {why}");
                keep(Skipped { table: TABLE.into(), system: "kernel".into(), why }.into())?;
            }
        }
        for policy in [BlockPolicyKind::Mballoc, BlockPolicyKind::Lease] {
            all.push((policy.name(), by_library(&place, options, case, policy)?));
        }
        print!("{}", text(&all));
        for (system, figures) in &all {
            keep(cell(case.0, system, options.volume.seed, figures).into())?;
        }
        for (claim, holds, detail) in judged(&all) {
            println!("  {}: {claim}: {detail}", if holds { "holds" } else { "DOES NOT HOLD" });
            keep(verdict(TABLE, format!("{}: {claim}", case.0), holds, detail).into())?;
        }
    }
    Ok(())
}

/// Why the kernel can't be asked.
fn able(work: Work) -> Option<String> {
    let program = if work == Work::Files { "fs_mark" } else { "fio" };
    let missing = tool::find(program).is_none().then(|| format!("{program} is not installed"));
    mbstats::missing().or(missing)
}

/// The program's arguments; it works in `d` of its directory. (fs_mark takes no long paths.)
fn arguments(options: &S1Options, work: Work) -> Vec<String> {
    let threads = options.volume.threads.max(2);
    match work {
        Work::Files => {
            let files = options.volume.files / threads;
            let line = format!("-d d -l /dev/null -n {files} -s {FILE} -w {WRITE} -t {threads} -S 0 -k");
            line.split(' ').map(str::to_owned).collect()
        }
        Work::Bytes { random } => {
            let size = options.bytes * 1024 / threads;
            let job = |name: &str, rw: &str| {
                let half = threads / 2;
                format!(
                    "--name={name} --directory=d --numjobs={half} --size={size}k --bs={PIECE} --rw={rw} --ioengine=psync --fallocate=none --norandommap --thread --group_reporting --randrepeat=1 --file_service_type=sequential"
                )
            };
            let line = [job("a", "write"), job("b", if random { "randwrite" } else { "write" })].join(" ");
            line.split(' ').map(str::to_owned).collect()
        }
    }
}

/// Phase of these calls for the library.
fn phase(options: &S1Options, work: Work) -> Phase {
    let threads = options.volume.threads.max(2);
    let files = options.volume.files / threads;
    let pieces = (options.bytes * 1024 / threads * 1024).div_ceil(PIECE);
    let seed = options.volume.seed;
    let client = |thread: u64| -> Stream {
        match work {
            Work::Files => Box::new((0..files).flat_map(move |file| {
                let open = Op::Open { slot: 0, path: format!("d/{thread}.{file}").into(), create: true };
                let writes =
                    (0..FILE / WRITE).map(|at| Op::Write { slot: 0, offset: at * WRITE, len: WRITE });
                std::iter::once(open).chain(writes).chain([Op::Close(0)])
            })),
            Work::Bytes { random } => {
                let mut numbers = Numbers::new(seed.wrapping_mul(128).wrapping_add(thread));
                let random = random && thread % 2 == 1;
                let open = Op::Open { slot: 0, path: format!("d/{thread}").into(), create: true };
                let writes = (0..pieces).map(move |piece| {
                    let at = if random { numbers.below(pieces) } else { piece };
                    Op::Write { slot: 0, offset: at * PIECE, len: PIECE }
                });
                Box::new(std::iter::once(open).chain(writes).chain([Op::Close(0)]))
            }
        }
    };
    Phase::new("work", (0..threads).map(client).collect())
}

type Figures = [f64; FIGURES.len()];

/// Ticks of this process and of those it waited for, in seconds.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind = stat.rsplit_once(") ").map_or("", |(_, behind)| behind);
    let ticks = behind.split(' ').skip(11).take(4).filter_map(|word| word.parse::<u64>().ok()).sum::<u64>();
    float(ticks) / 100.0
}

/// Runs something: seconds, and those of processors.
fn timed(work: impl FnOnce() -> Result<(), String>) -> Result<(f64, f64), String> {
    let (begun, before) = (std::time::Instant::now(), processor_seconds());
    work()?;
    Ok((begun.elapsed().as_secs_f64(), processor_seconds() - before))
}

fn by_kernel(
    place: &WorkDir,
    options: &S1Options,
    (_, work, own_windows, _): &(&str, Work, bool, &str),
) -> Result<Figures, String> {
    mbstats::fresh(place)?;
    let mounted = Mounted::kernel(place, "ext4", "nodelalloc,noinit_itable")?;
    let device = mounted.device().ok_or("the loop device is not known")?;
    let set = |name: &str, value: &str| {
        let path = format!("/sys/fs/ext4/{device}/{name}");
        std::fs::write(&path, value).map_err(|error| format!("{path}: {error}"))
    };
    set("mb_stats", "1")?;
    if *own_windows {
        set("mb_stream_req", "0")?;
    }
    let program = if *work == Work::Files { "fs_mark" } else { "fio" };
    let words = arguments(options, *work);
    let times = timed(|| tool::run_in(&mounted.path(), program, &words).map(drop))?;
    let path = format!("/proc/fs/ext4/{device}/mb_stats");
    let stats = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    mounted.end()?;
    let counts = mbstats::read_mb_stats(&stats);
    figures(place, times, &counts)
}

fn by_library(
    place: &WorkDir,
    options: &S1Options,
    (_, work, own_windows, _): &(&str, Work, bool, &str),
    policy: BlockPolicyKind,
) -> Result<Figures, String> {
    mbstats::fresh(place)?;
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut tunables = Vec::new();
    if policy == BlockPolicyKind::Mballoc {
        tunables.push(("cpus", u32::try_from(cpus).unwrap_or(1)));
        tunables.extend(own_windows.then_some(("mb_stream_req", 0)));
    }
    let how = OpenOptions::new().policy(policy).tunables(&tunables);
    let library = Library::<Computer>::on_image(&place.image(), &how)?;
    library.volume().space().load_bitmaps().map_err(|error| error.to_string())?;
    let times = timed(|| library.kept(|| in_real_time(&library, phase(options, *work)).map(drop)))?;
    let counts = counts(&library.statistics());
    library.close()?;
    figures(place, times, &counts)
}

/// Ours under the kernel's names; a search of the index takes one lock, as one of a group does.
fn counts(stats: &Stats) -> Counts {
    let mut counts = mbstats::counts(stats);
    let searched = stats.get(Counter::GroupsScanned).max(stats.get(Counter::IndexLookups));
    counts.insert("groups_scanned".into(), searched);
    counts
}

/// The figures of a system, whose image is read and removed.
fn figures(place: &WorkDir, (seconds, processor): (f64, f64), counts: &Counts) -> Result<Figures, String> {
    let of = |name: &str| float(counts.get(name).copied().unwrap_or(0));
    let free = super::census::Census::of_ext(&place.image())?.free.unwrap_or_default();
    super::remove(&place.image())?;
    let (runs, blocks) = (float(free.len() as u64), float(free.iter().sum()));
    let requests = of("reqs").max(1.0);
    Ok([
        seconds,
        processor,
        of("reqs"),
        of("extents_scanned"),
        of("extents_scanned") / requests,
        of("groups_scanned") / requests,
        runs,
        blocks * 4.0 / runs.max(1.0),
    ])
}

fn text(all: &[(&str, Figures)]) -> String {
    let head = ["", ""].into_iter().chain(all.iter().map(|(system, _)| *system));
    let mut lines: Vec<Vec<String>> = vec![head.map(String::from).collect()];
    for (at, name) in FIGURES.iter().enumerate() {
        let values = all.iter().map(|(_, figures)| show(figures[at]));
        lines.push([(*name).to_owned(), String::new()].into_iter().chain(values).collect());
    }
    align(&lines)
}

/// Judgements of ours beside the kernel's: counts, no times.
fn judged(all: &[(&str, Figures)]) -> Vec<(&'static str, bool, String)> {
    let of = |name: &str| all.iter().find(|(system, _)| *system == name).map(|(_, figures)| *figures);
    let (Some(kernel), Some(ours)) = (of("kernel"), of("lease")) else { return Vec::new() };
    let pair = |at: usize| format!("{} and {}", show(ours[at]), show(kernel[at]));
    vec![
        ("lease looks at no more free runs than the kernel", ours[3] <= kernel[3], pair(3)),
        ("free runs stay as long as the kernel leaves them", ours[7] >= kernel[7], pair(7)),
    ]
}

fn cell(case: &str, system: &str, seed: u64, figures: &Figures) -> Cell {
    let figures = FIGURES.into_iter().zip(*figures).collect();
    Cell { table: TABLE.into(), case: case.into(), system: system.into(), seed, figures, ..Cell::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_is_judged_by_counts_beside_the_kernel() {
        let figures = |scanned, mean| [1.0, 1.0, 10.0, scanned, 1.0, 1.0, 5.0, mean];
        let holds = |ours, kernel| {
            let all = [("kernel", kernel), ("lease", ours)];
            judged(&all).iter().map(|(_, holds, _)| *holds).collect::<Vec<_>>()
        };
        assert_eq!(holds(figures(3.0, 4.0), figures(3.0, 4.0)), [true, true]);
        assert_eq!(holds(figures(4.0, 3.0), figures(3.0, 4.0)), [false, false]);
        assert!(judged(&[("lease", figures(1.0, 1.0))]).is_empty());
    }

    /// A small volume: the library's half needs no root and no program.
    #[test]
    fn the_library_gets_the_calls_of_both_programs() {
        let dir = std::env::temp_dir();
        let volume = MbstatsOptions {
            size: 1,
            files: 320,
            threads: 8,
            seed: 1,
            case: String::new(),
            dir: dir.clone(),
            results: None,
        };
        let options = S1Options { volume, bytes: 64 };
        let place = WorkDir::new(&dir).unwrap();
        mbstats::fragmented(&place.copy(), 1 << 30, 1).unwrap();
        for case in &CASES {
            for policy in [BlockPolicyKind::Mballoc, BlockPolicyKind::Lease] {
                let figures = by_library(&place, &options, case, policy).unwrap();
                assert!(figures[2] >= 8.0 && figures[6] > 50.0, "{}: {figures:?}", case.0);
            }
        }
        let words = arguments(&options, Work::Bytes { random: true });
        assert!(words.contains(&"--rw=randwrite".into()) && words.contains(&"--size=8192k".into()));
        let words = arguments(&options, Work::Files);
        assert_eq!(words[4..6], ["-n", "40"]);
    }
}
