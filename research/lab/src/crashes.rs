//! `plat-lab crash`: goes through crash states and prints how many there were, or what is wrong with one.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{IsTerminal, Write as _, stderr};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use crash::{
    Depth, Limits, Order, Violation, Workload, WorkloadCounts, explore, faults, replay, workload, workloads,
};
use serde_json::{Value, json};

use crate::table;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Orders in which changes reach the device, separated by commas: ordered, writeback, journal, softdep, normal,
    /// sync, or all.
    #[arg(long, value_delimiter = ',', default_value = "all")]
    order: Vec<String>,
    /// Workloads, separated by commas, or all.
    #[arg(long, value_delimiter = ',', default_value = "all")]
    workload: Vec<String>,
    /// The first seed of each workload.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Different crash states of each order, after which it is enough.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    states: u64,
    /// Judges only this state of the run of the seed, in every way.
    #[arg(long, value_name = "K")]
    state: Option<u64>,
    /// Writes the image of the state to this file, as it is before recovery.
    #[arg(long, value_name = "FILE", requires = "state")]
    keep: Option<PathBuf>,
    /// Gives every n-th state to e2fsck, or none.
    #[arg(long, value_name = "N|none", default_value = "200", value_parser = every)]
    e2fsck: u64,
    /// Runs that are gone through side by side; by default as many as there are processors.
    #[arg(long)]
    jobs: Option<usize>,
    /// One JSON value per order.
    #[arg(long)]
    json: bool,
    /// Plants a fault, or all, and shows that it is found.
    #[arg(long, value_name = "NAME|all", conflicts_with_all = ["state", "order", "workload"])]
    fault: Option<String>,
    /// Lists orders, workloads and faults.
    #[arg(long)]
    list: bool,
}

fn every(word: &str) -> Result<u64, String> {
    if word == "none" { Ok(0) } else { word.parse().map_err(|_| "a number, or none".into()) }
}

/// Runs a campaign; returns true if all is as it should be.
pub(crate) fn crash(options: &Options) -> Result<bool, String> {
    if options.list {
        print!("{}", list());
        return Ok(true);
    }
    if options.e2fsck > 0 && !crash::has_e2fsck() {
        return Err("e2fsck is not installed; --e2fsck none goes without".into());
    }
    if let Some(name) = &options.fault {
        return plant(options, name);
    }
    let chosen = chosen(options)?;
    match (options.state, chosen.as_slice()) {
        (None, _) => Ok(explore_all(options, &chosen)),
        (Some(state), [workload]) => again(options, workload, state),
        (Some(_), _) => Err("--state is one of a run: name its order and its workload".into()),
    }
}

fn list() -> String {
    let workloads = Order::ALL.into_iter().flat_map(workloads);
    let workloads: Vec<_> =
        workloads.map(|workload| [workload.order.name(), workload.name].map(String::from).to_vec()).collect();
    let faults: Vec<_> = faults()
        .map(|fault| vec![fault.name.into(), format!("{}: {}", fault.workload(), fault.about)])
        .collect();
    format!("{}\nfaults\n{}", table::align(&workloads), table::align(&faults))
}

/// The workloads that are named, of the orders that are.
fn chosen(options: &Options) -> Result<Vec<Workload>, String> {
    let is_all = |names: &[String]| names.iter().any(|name| name == "all");
    let orders = if is_all(&options.order) {
        Order::ALL.to_vec()
    } else {
        let named = |name: &String| Order::named(name).ok_or_else(|| format!("no order is called {name}"));
        options.order.iter().map(named).collect::<Result<_, _>>()?
    };
    if is_all(&options.workload) {
        return Ok(orders.into_iter().flat_map(workloads).collect());
    }
    let mut chosen = Vec::new();
    let mut unknown: BTreeSet<&String> = options.workload.iter().collect();
    for order in orders {
        for name in &options.workload {
            if let Some(workload) = workload(order, name) {
                unknown.remove(name);
                chosen.push(workload);
            }
        }
    }
    match unknown.first() {
        Some(name) => {
            Err(format!("no workload of these orders is called {name}; `plat-lab crash --list` names them"))
        }
        None => Ok(chosen),
    }
}

/// Says on a terminal how far it has come, a few times in a second.
struct Progress {
    order: &'static str,
    wanted: u64,
    begun: Instant,
    shown: Option<Mutex<Instant>>,
    states: AtomicU64,
}

impl Progress {
    const PAUSE: Duration = Duration::from_millis(200);

    fn new(order: Order, wanted: u64) -> Self {
        let shown = stderr().is_terminal().then(|| Mutex::new(Instant::now()));
        Progress { order: order.name(), wanted, begun: Instant::now(), shown, states: AtomicU64::new(0) }
    }

    fn show(&self, states: u64) {
        self.states.fetch_max(states, Ordering::Relaxed);
        let Some(mut shown) = self.shown.as_ref().and_then(|shown| shown.try_lock().ok()) else { return };
        if shown.elapsed() >= Self::PAUSE {
            *shown = Instant::now();
            let Progress { order, wanted, begun, .. } = self;
            // What can't be shown is not missed.
            let _ =
                write!(stderr(), "\r{order}: {states} of {wanted} states, {} s ", begun.elapsed().as_secs());
        }
    }

    fn end(&self) {
        if self.shown.is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

fn explore_all(options: &Options, chosen: &[Workload]) -> bool {
    let jobs = options.jobs.unwrap_or_else(|| available_parallelism().map_or(1, Into::into));
    let mut is_right = true;
    for order in Order::ALL {
        let workloads: Vec<_> = chosen.iter().filter(|workload| workload.order == order).copied().collect();
        if workloads.is_empty() {
            continue;
        }
        // Of one run no more than its share, or what other runs show would not be seen.
        let most = (options.states / workloads.len() as u64).max(200);
        let depth = Depth { e2fsck: options.e2fsck, check: 7, twice: 41, most };
        let limits = Limits { seed: options.seed, states: options.states, runs: u64::MAX, depth, jobs };
        let progress = Progress::new(order, options.states);
        let tallies = explore(&workloads, &limits, &|states| progress.show(states));
        progress.end();
        let seconds = progress.begun.elapsed().as_secs_f64();
        if options.json {
            println!("{}", in_json(order, &tallies, seconds));
        } else {
            print!("{}", in_text(order, &tallies, seconds));
        }
        is_right &= tallies.iter().all(|tally| tally.violations.is_empty());
    }
    is_right
}

const COLUMNS: [&str; 8] =
    ["order", "workload", "runs", "crash states", "distinct", "judged", "by e2fsck", "violations"];

fn cells(name: &str, tallies: &[WorkloadCounts]) -> [String; 7] {
    let sum = |of: fn(&WorkloadCounts) -> u64| tallies.iter().map(of).sum::<u64>().to_string();
    [
        name.into(),
        sum(|tally| tally.runs),
        sum(|tally| tally.met),
        sum(|tally| tally.distinct),
        sum(|tally| tally.judged),
        sum(|tally| tally.by_e2fsck),
        sum(|tally| tally.violations.len() as u64),
    ]
}

fn in_text(order: Order, tallies: &[WorkloadCounts], seconds: f64) -> String {
    let mut lines = vec![COLUMNS.map(String::from).to_vec()];
    let line = |cells: [String; 7]| [order.name().to_string()].into_iter().chain(cells).collect();
    lines.extend(tallies.iter().map(|tally| line(cells(tally.workload.name, std::slice::from_ref(tally)))));
    lines.push(line(cells("all", tallies)));
    let mut out = table::align(&lines);
    // Writing to a string can't fail.
    let _ = writeln!(out, "{seconds:.1} s\n");
    for violation in tallies.iter().flat_map(|tally| &tally.violations) {
        let _ = writeln!(out, "{violation}\n  plat-lab crash {}\n", violation.arguments());
    }
    out
}

fn of_violation(violation: &Violation) -> Value {
    let Violation { workload, seed, state, name, what } = violation;
    let (order, command) = (workload.order.name(), format!("plat-lab crash {}", violation.arguments()));
    json!({ "order": order, "workload": workload.name, "seed": seed, "state": state, "name": name, "what": what, "command": command })
}

fn in_json(order: Order, tallies: &[WorkloadCounts], seconds: f64) -> Value {
    let rows = tallies.iter().map(|tally| {
        let WorkloadCounts { workload, runs, met, judged, distinct, by_e2fsck, violations } = tally;
        json!({
            "workload": workload.name, "runs": runs, "crash_states": met, "distinct": distinct, "judged": judged,
            "by_e2fsck": by_e2fsck, "violations": violations.iter().map(of_violation).collect::<Vec<_>>(),
        })
    });
    json!({ "order": order.name(), "seconds": seconds, "workloads": rows.collect::<Vec<_>>() })
}

/// Judges one state again.
fn again(options: &Options, workload: &Workload, state: u64) -> Result<bool, String> {
    let mut kept = Ok(());
    let found = replay(workload, options.seed, state, options.e2fsck > 0, |bytes| {
        if let Some(file) = &options.keep {
            kept = fs::write(file, bytes).map_err(|error| format!("{}: {error}", file.display()));
        }
    })?;
    kept?;
    match &found {
        Some(violation) if options.json => println!("{}", of_violation(violation)),
        Some(violation) => println!("{violation}"),
        None if options.json => println!("null"),
        None => println!("{workload}, seed {}, state {state}: as it should be", options.seed),
    }
    Ok(found.is_none())
}

/// Plants faults; whether each was found.
fn plant(options: &Options, name: &str) -> Result<bool, String> {
    let mut wanted = faults().filter(|fault| name == "all" || fault.name == name).peekable();
    if wanted.peek().is_none() {
        return Err(format!("no fault is called {name}; `plat-lab crash --list` names them"));
    }
    let mut is_right = true;
    for fault in wanted {
        let found = fault.find(options.seed);
        is_right &= found.is_some();
        if options.json {
            let found = found.as_ref().map(of_violation);
            println!("{}", json!({ "fault": fault.name, "about": fault.about, "found": found }));
        } else {
            println!("{}: {}", fault.name, fault.about);
            println!("  {}\n", found.map_or_else(|| "NOT FOUND".into(), |found| format!("found: {found}")));
        }
    }
    Ok(is_right)
}
