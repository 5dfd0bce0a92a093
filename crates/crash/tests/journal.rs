//! Crashes of volumes with a journal: every state that the device may be left in, of recorded runs, is recovered
//! and compared with what was promised; some by e2fsck too, and some recoveries are cut off and begun anew.
//!
//! `PLATFS_SEED=n cargo test -p platfs-crash --test journal KIND` repeats a random run, `PLATFS_SEQUENCE=n` one of the
//! sequences: a failure says which.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crash::kinds::{KINDS, Kind};
use crash::record::{record, record_sequence, set_up};
use crash::survive::{Depth, Looked, enumerate, survive};
use crash::{ace, faults};
use platfs::DataMode;
use testkit::tool;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|number| number.parse().ok())
}

fn kind(name: &str) -> &'static Kind {
    KINDS.iter().find(|kind| kind.name == name).unwrap()
}

/// Runs in the suite.
const RUNS: u64 = 2;

fn in_suite(name: &str) {
    if !tool::have_tools(name, &["e2fsck"]) {
        return;
    }
    let seeds = number("PLATFS_SEED").map_or(1..RUNS + 1, |seed| seed..seed + 1);
    let mut looked = Looked::new();
    seeds.for_each(|seed| survive(kind(name), seed, 350, Depth::SUITE, &mut looked));
    println!("{name}: {} states", looked.len());
    assert!(looked.len() >= 300, "only {} states", looked.len());
}

macro_rules! kinds {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            in_suite(stringify!($name));
        })*
    };
}

kinds! {
    ext3_1k ext4_1k ext4_4k ext4_delayed ext4_full ext4_crowded ext4_bigalloc
    ext3_journal ext4_journal ext4_journal_crowded ext4_writeback ext3_writeback
}

/// Goes through the states of each so manieth sequence, until it is enough.
fn sequences(
    kind: &Kind,
    every: usize,
    depth: Depth,
    looked: &mut Looked,
    is_enough: impl Fn(&Looked) -> bool,
) -> usize {
    let base = set_up(kind);
    let only = number("PLATFS_SEQUENCE").and_then(|number| usize::try_from(number).ok());
    let mut made = 0;
    for (number, calls) in ace::sequences().enumerate() {
        let wanted = only.map_or(number % every == 0, |only| number == only);
        if !wanted {
            continue;
        }
        if is_enough(looked) {
            break;
        }
        let Some(run) = record_sequence(kind, &base, &calls) else { continue };
        made += 1;
        let done = enumerate(kind, &run, 0, depth, looked);
        done.unwrap_or_else(|what| panic!("PLATFS_SEQUENCE={number}, {calls:?}: {what}"));
    }
    made
}

/// Sequences of one and two calls: a few in the suite.
#[test]
fn sequences_of_calls() {
    if !tool::have_tools("sequences_of_calls", &["e2fsck"]) {
        return;
    }
    for (name, every) in [("ext4_1k", 149), ("ext3_journal", 151), ("ext4_writeback", 157), ("ext4_4k", 163)]
    {
        let mut looked = Looked::new();
        let made = sequences(kind(name), every, Depth::SUITE, &mut looked, |_| false);
        println!("{name}: {} states of {made} sequences", looked.len());
        assert!(looked.len() > 300, "{name}: only {} states of {made} sequences", looked.len());
    }
}

/// Faults that a log writer could have, put into what was recorded of a right one: each is found.
#[test]
fn faults_are_found() {
    for (kind, name, fault) in faults::journal::FAULTS {
        let kind = self::kind(kind);
        let found = (1..=FAULTY_RUNS).find_map(|seed| {
            let mut run = record(kind, seed, 400);
            run.events = fault(run.events, kind.block_size as usize);
            enumerate(kind, &run, seed, Depth::PLAIN, &mut Looked::new()).err()
        });
        let found = found.unwrap_or_else(|| panic!("{name} is not found"));
        println!("{name}: {}", found.chars().take(160).collect::<String>());
    }
}

/// Runs in which a fault must show.
const FAULTY_RUNS: u64 = 6;

/// `cargo test --release -p platfs-crash --test journal many_states -- --ignored --nocapture`: 100,000 different states of
/// each mode (`PLATFS_MODE=Journal`: only of that one), or `PLATFS_STATES`, half of them of random runs
/// (`PLATFS_SEED`: other ones), half of sequences.
#[test]
#[ignore = "takes minutes"]
fn many_states() {
    let wanted = usize::try_from(number("PLATFS_STATES").unwrap_or(100_000)).unwrap();
    let first = number("PLATFS_SEED").unwrap_or(1000);
    let only = std::env::var("PLATFS_MODE").ok();
    let is_wanted = |mode: &DataMode| only.as_ref().is_none_or(|only| format!("{mode:?}") == *only);
    let modes = [DataMode::Ordered, DataMode::Writeback, DataMode::Journal];
    for mode in modes.into_iter().filter(is_wanted) {
        let kinds: Vec<_> = KINDS.iter().filter(|kind| kind.data == mode).collect();
        let (mut looked, mut seed) = (Looked::new(), first);
        while looked.len() < wanted / 2 {
            kinds.iter().for_each(|kind| survive(kind, seed, 250, Depth::LONG, &mut looked));
            seed += 1;
        }
        let random = looked.len();
        println!("{mode:?}: {random} states of {} random runs of each kind", seed - first);
        let mut made = 0;
        for (index, kind) in kinds.iter().enumerate() {
            let enough = random + (wanted - random.min(wanted)) * (index + 1) / kinds.len();
            made += sequences(kind, 1, Depth::LONG, &mut looked, |looked| looked.len() >= enough);
        }
        let (all, runs) = (looked.len(), seed - first);
        println!(
            "{mode:?}: {all} states, {random} of {runs} random runs of each kind, the others of {made} sequences"
        );
    }
}
