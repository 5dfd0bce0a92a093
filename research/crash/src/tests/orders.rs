//! Each workload in each order: what a crash may leave of a few runs holds what was promised.
//!
//! A failure says how `plat-lab crash` repeats it. The long run: `make crash`.

use crate::{Calls, Depth, Limits, Order, Workload, WorkloadCounts, explore, workloads};
use testkit::tool;

/// Judgements of each state in the suite.
const DEPTH: Depth = Depth { e2fsck: 120, check: 7, twice: 41, most: 300 };

fn explored(workloads: &[Workload], seed: u64, runs: u64) -> Vec<WorkloadCounts> {
    within(workloads, &Limits { seed, states: u64::MAX, runs, depth: DEPTH, jobs: 1 })
}

/// Explores within limits, prints the counts, and fails at a violation.
fn within(workloads: &[Workload], limits: &Limits) -> Vec<WorkloadCounts> {
    let tallies = explore(workloads, limits, &|_| ());
    for tally in &tallies {
        let WorkloadCounts { workload, runs, met, judged, distinct, by_e2fsck, violations } = tally;
        println!(
            "{workload}: {runs} runs, {met} states met, {distinct} different, {judged} judged, {by_e2fsck} by e2fsck"
        );
        for violation in violations {
            println!("{violation}\nplat-lab crash {}", violation.arguments());
        }
        assert!(violations.is_empty(), "{}", violations[0]);
    }
    tallies
}

fn named(order: Order, prefix: &str) -> Vec<Workload> {
    workloads(order).into_iter().filter(|workload| workload.name.starts_with(prefix)).collect()
}

/// Explores the workloads whose names begin so, until there were so many different states.
fn for_long(order: Order, prefix: &str, states: u64, jobs: usize) {
    let limits = Limits { seed: 100, states, runs: u64::MAX, depth: DEPTH, jobs };
    let distinct: u64 = within(&named(order, prefix), &limits).iter().map(|tally| tally.distinct).sum();
    println!("{}: {distinct} different states", order.name());
    assert!(distinct >= states, "{}: only {distinct} states", order.name());
}

/// At least 2,000 different states of each order, from every workload.
fn in_suite(order: Order) {
    if !tool::have_tools(order.name(), &["e2fsck"]) {
        return;
    }
    let (sequences, others): (Vec<_>, Vec<_>) =
        workloads(order).into_iter().partition(|workload| workload.calls == Calls::Sequences);
    let mut tallies = explored(&others, 1, 2);
    tallies.extend(explored(&sequences, 0, 16));
    for WorkloadCounts { workload, distinct, .. } in &tallies {
        assert!(*distinct >= 200, "{workload}: only {distinct} states");
    }
    let sum = |of: fn(&WorkloadCounts) -> u64| tallies.iter().map(of).sum::<u64>();
    let (distinct, by_e2fsck) = (sum(|tally| tally.distinct), sum(|tally| tally.by_e2fsck));
    println!("{}: {distinct} different states, {by_e2fsck} by e2fsck", order.name());
    assert!(
        distinct >= 2000 && by_e2fsck >= 16,
        "{}: {distinct} states, {by_e2fsck} by e2fsck",
        order.name()
    );
}

macro_rules! orders {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            in_suite(Order::named(stringify!($name)).unwrap());
        })*
    };
}

orders! { ordered writeback journal softdep normal sync }

/// Faults that long runs found stay mended: a record that was written behind the part of its table that counts was found, after a
/// recovery, in the place of the next inode of its number.
#[test]
fn what_long_runs_found_stays_mended() {
    for name in ["ext4_reclaiming", "ext4_4k_reclaiming", "bigalloc_reclaiming"] {
        let found = crate::workload(Order::Softdep, name).into_iter().collect::<Vec<_>>();
        explored(&found, 15, 1);
    }
    // More directories were freed than a descriptor counted, and its count corrected in the same sync.
    let deep = crate::workload(Order::Softdep, "deep_reclaiming").into_iter().collect::<Vec<_>>();
    explored(&deep, 7, 1);
    explored(&deep, 13, 1);
}

/// Counts of usage are right after replay.
#[test]
fn quota_is_right_after_crashes() {
    for order in [Order::Ordered, Order::Writeback, Order::Journal] {
        let found = crate::workload(order, "quota").into_iter().collect::<Vec<_>>();
        explored(&found, 5, 2);
    }
}

/// Without a journal all is counted again, files of quota that a crash left in parts of several moments are made again, and
/// limits that were stable stay.
#[test]
fn quota_without_a_journal_is_counted_again() {
    explored(&named(Order::Softdep, "quota"), 3, 5);
    // The first call is another label, and nothing else was changed that a sync would write.
    let first = crate::workload(Order::Softdep, "quota").into_iter().collect::<Vec<_>>();
    explored(&first, 109, 1);
}

/// Runs longer: `cargo test -p platfs-crash --lib orders::quota_without -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes: 20,000 states of each order"]
fn quota_without_a_journal_for_long() {
    for order in [Order::Softdep, Order::Normal, Order::Sync] {
        for_long(order, "quota", 20_000, 1);
    }
}

/// Files that move and maps that change their form, longer: `cargo test -p platfs-crash --lib orders::moving -- --ignored
/// --nocapture`.
#[test]
#[ignore = "takes minutes: 10,000 states of each order"]
fn moving_files_in_all_orders() {
    Order::ALL.into_iter().for_each(|order| for_long(order, "moving", 10_000, 2));
}

/// Attributes that files share, with lists that come and go in one update, longer: `cargo test -p platfs-crash --lib
/// orders::shared -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes: 10,000 states of each order"]
fn shared_attributes_in_all_orders() {
    Order::ALL.into_iter().for_each(|order| for_long(order, "sharing", 10_000, 1));
}
