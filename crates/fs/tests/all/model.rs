//! Random runs of all verbs against a model in memory: after every step both say the same of whether
//! it works, and now and then the whole tree is compared, the volume is closed and opened again, and
//! e2fsck must have nothing to say. At the end the kernel mounts it and must show the model's tree.
//!
//! A failure prints the seed: `PLATFS_SEED=N PLATFS_STEPS=M cargo test -p platfs --test all model::PROFILE`
//! repeats it.

mod simulation;

use simulation::profile::{Profile, profiles};
use simulation::run::Run;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|value| value.parse().ok())
}

/// The steps of a short run, in all profiles together a few thousand.
const SHORT: u64 = 450;
/// Those of a long one.
const LONG: u64 = 100_000;

fn play(profile: &Profile, seed: u64, steps: u64) {
    let seed = number("PLATFS_SEED").unwrap_or(seed);
    let steps = number("PLATFS_STEPS").unwrap_or(steps);
    println!("PLATFS_SEED={seed} PLATFS_STEPS={steps} profile {}", profile.name);
    Run::new(profile, seed).play(steps);
}

macro_rules! short {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            let profile = profiles().into_iter().find(|profile| profile.name == stringify!($name)).unwrap();
            play(&profile, 1, SHORT);
        })*
    };
}

short!(
    extents_1k,
    extents_4k,
    extents_64k,
    pointers_1k,
    pointers_4k,
    bigalloc_4k,
    bigalloc_1k,
    inline_data,
    old_checksums,
    no_features,
    value_inodes,
    tiny
);

/// A million and more operations: `cargo test --release -p platfs --test all model:: -- --ignored`.
#[test]
#[ignore = "takes many minutes"]
fn long_runs_of_every_profile() {
    for profile in profiles() {
        play(&profile, 99, LONG);
    }
}
