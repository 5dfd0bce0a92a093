//! Our verdict and e2fsck's on volumes with random damage, and what a repair makes of them.
//!
//! Each image is a function of its number. `PLATFS_SEED=17 PLATFS_STEPS=1` looks at number 17 alone and
//! prints everything; `cargo test --release -p platfs --test all check::agreement -- --ignored --nocapture`
//! looks at 10,000 (or `PLATFS_STEPS`) from number `PLATFS_SEED` on, and prints a table of differences.

mod beside;
mod cut;
mod mutate;
mod part;
mod tally;
mod trial;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use tally::Tally;
use trial::{Bench, Finding};

use crate::check::plant::ready;

/// Threads that look at images: e2fsck runs beside us.
const THREADS: u64 = 2;

/// Looks at `count` images from number `first` on.
fn run(first: u64, count: u64) -> Tally {
    let (next, sum) = (AtomicU64::new(first), Mutex::new(Tally::default()));
    let loud = count <= 3;
    thread::scope(|scope| {
        for _ in 0..THREADS.min(count) {
            scope.spawn(|| {
                let mut bench = Bench::new(loud);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= first + count {
                        break;
                    }
                    let findings: Vec<Finding> = bench.look(number);
                    sum.lock().unwrap_or_else(PoisonError::into_inner).add(number, findings);
                }
            });
        }
    });
    sum.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// Shares in thousandths that must be reached: of verdicts that agree, of repairs that please e2fsck.
const AGREED: u64 = 995;
const REPAIRED: u64 = 980;

#[test]
fn agreement_on_some() {
    if !ready("agreement_on_some") {
        return;
    }
    let (first, count) = (number_from("PLATFS_SEED"), number_from("PLATFS_STEPS"));
    let tally = run(first.unwrap_or(0), count.unwrap_or(400));
    if first.is_none() {
        tally.demand(AGREED, REPAIRED);
    } else {
        println!("{tally}");
    }
}

#[test]
#[ignore = "long: 10,000 images"]
fn agreement_on_many() {
    if !ready("agreement_on_many") {
        return;
    }
    let tally =
        run(number_from("PLATFS_SEED").unwrap_or(1_000_000), number_from("PLATFS_STEPS").unwrap_or(10_000));
    println!("{tally}");
    tally.demand(AGREED, REPAIRED);
}
