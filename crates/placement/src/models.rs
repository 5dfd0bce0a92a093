//! Models of the lock protocol: a scheduler (shuttle) runs small volumes under many interleavings
//! of their threads, switching at every lock and every atomic access. Run by `make models`.
//!
//! Shown for each interleaving tried: no cluster is granted twice, none is lost, counters agree
//! with bitmaps, what is refused is not there, no thread waits for ever (shuttle reports that as a
//! deadlock).

use crate::events::EventReporter;
use crate::inode::InodeContent;
use crate::inode::map::InodeMap;
use crate::policy::POLICIES;
use crate::promise::FreeAccounting;
use crate::{BlockPolicyKind, Engine, GroupContent, Layout, Refusal, Request};
use ondisk::units::{Cluster, ClusterRun, Group};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;
use std::sync::Arc;

/// Two groups of one region each, so that runs cross an edge.
const LAYOUT: Layout = Layout {
    clusters: 192,
    clusters_per_group: 96,
    groups: 2,
    inodes_per_group: 16,
    groups_per_flex: 1,
    block_bytes: 4_096,
    blocks_per_cluster: 1,
};

/// Interleavings per model; `SHUTTLE_ITERATIONS` says otherwise.
fn iterations(default: usize) -> usize {
    std::env::var("SHUTTLE_ITERATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Tries random schedules, then such that switch rarely (Burckhardt et al. 2010), which find
/// different faults.
fn check(count: usize, model: impl Fn() + Send + Sync + Clone + 'static) {
    let count = iterations(count);
    shuttle::check_random(model.clone(), count);
    shuttle::check_pct(model, count, 3);
}

fn engine(policy: BlockPolicyKind) -> Engine {
    let engine = Engine::new(LAYOUT, policy).unwrap();
    for group in 0..LAYOUT.groups {
        engine.describe_group(Group(group), 96, GroupContent::Uninitialised { used: &[] }).unwrap();
    }
    engine
}

fn request(owner: u64, want: u32) -> Request {
    let mut numbers = thread_rng();
    Request {
        owner,
        directory: 1 + owner % 2,
        growing: numbers.gen_bool(0.5),
        ..Request::data(Cluster(numbers.gen_range(0..LAYOUT.clusters)), want)
    }
}

/// Runs a thread of a volume for some steps; returns the runs that it still owns.
fn live(engine: &Engine, name: &str, owner: u64, steps: u32) -> Vec<ClusterRun> {
    let mut owned: Vec<ClusterRun> = Vec::new();
    for _ in 0..steps {
        let want = thread_rng().gen_range(1..12);
        match thread_rng().gen_range(0..7) {
            0..=2 => owned.extend(engine.allocate(&request(owner, want)).map(crate::Grant::into_run)),
            3 => drop(engine.allocate(&request(owner, want))),
            4 => {
                if let Ok(mut promise) = engine.promise(u64::from(want)) {
                    let granted = engine.allocate_promised(&mut promise, &request(owner, want));
                    let run = granted
                        .unwrap_or_else(|r| panic!("{name}: what was promised is not there: {r}"))
                        .into_run();
                    assert_eq!(promise.count(), u64::from(want - run.count));
                    owned.push(run);
                }
            }
            5 => {
                if let Some(run) = owned.pop() {
                    engine.free_all([run]).expect("only owned runs are freed");
                }
            }
            _ => {
                engine.closed(owner);
                if let Some(run) = owned.pop() {
                    engine.free(run).expect("an owned run is in use");
                }
            }
        }
    }
    owned
}

/// Every cluster is owned once or free once, in every account of it.
fn agree(engine: &Engine, owned: &[ClusterRun]) {
    let mut used = vec![false; 192];
    for cluster in owned.iter().flat_map(|run| run.start.0..run.end()) {
        let flag = &mut used[usize::try_from(cluster).unwrap()];
        assert!(!std::mem::replace(flag, true), "cluster {cluster} was granted twice");
    }
    engine.release_claims();
    let free = u64::try_from(used.iter().filter(|used| !**used).count()).unwrap();
    assert_eq!(engine.free_clusters(), free);
    assert_eq!(engine.available_clusters(), free);
    for (cluster, used) in (0..).zip(&used) {
        assert_eq!(engine.is_free(Cluster(cluster)), Some(!*used), "cluster {cluster}");
    }
    let runs: u64 = engine.free_runs().map(|run| u64::from(run.count)).sum();
    assert_eq!(runs, free);
    // The index leads to all of it.
    let mut left = free;
    while left > 0 {
        let run =
            engine.allocate(&Request::data(Cluster(0), 192)).expect("free clusters are found").into_run();
        left -= u64::from(run.count);
    }
    assert_eq!(engine.allocate(&Request::data(Cluster(0), 1)).err(), Some(Refusal::NoSpace));
}

fn volume(policy: BlockPolicyKind, threads: u64, steps: u32) {
    let engine = Arc::new(engine(policy));
    let lives: Vec<_> = (1..=threads)
        .map(|owner| {
            let engine = Arc::clone(&engine);
            thread::spawn(move || live(&engine, policy.name(), owner, steps))
        })
        .collect();
    let owned: Vec<ClusterRun> = lives.into_iter().flat_map(|life| life.join().unwrap()).collect();
    agree(&engine, &owned);
}

#[test]
fn every_policy_keeps_count_of_every_cluster() {
    for row in POLICIES {
        let kind = row.kind;
        check(60, move || volume(kind, 3, 6));
    }
}

#[test]
fn our_policy_under_more_threads_and_schedules() {
    check(300, || volume(BlockPolicyKind::Lease, 2, 12));
    check(100, || volume(BlockPolicyKind::Lease, 4, 6));
}

/// Two threads take and free on both sides of a region edge, over which the free run is joined.
#[test]
fn a_joined_edge_is_never_forgotten() {
    check(500, || {
        let engine = Arc::new(engine(BlockPolicyKind::Lease));
        let sides =
            [ClusterRun { start: Cluster(90), count: 6 }, ClusterRun { start: Cluster(96), count: 5 }];
        let threads = sides.map(|run| {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                for _ in 0..2 {
                    drop(engine.take_exact(run).expect("nobody else wants it"));
                }
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        let whole = engine.allocate(&Request { min: 192, ..Request::data(Cluster(0), 192) });
        assert_eq!(whole.expect("all is one run").run().count, 192);
    });
}

/// A bitmap is loaded by two threads at once while a third allocates.
#[test]
fn loading_twice_is_loading_once() {
    check(300, || {
        let engine = Arc::new(Engine::new(LAYOUT, BlockPolicyKind::Lease).unwrap());
        engine.describe_group(Group(0), 48, GroupContent::Unknown).unwrap();
        engine.describe_group(Group(1), 0, GroupContent::Unknown).unwrap();
        let bitmap = [0x55u8; 12];
        let threads = [0, 1, 2].map(|number| {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                if number < 2 {
                    engine.load_group(Group(0), &bitmap).unwrap();
                }
                match engine.allocate(&Request::data(Cluster(0), 1)) {
                    Ok(grant) => Some(grant.into_run()),
                    Err(Refusal::NeedBitmap(group)) if number == 2 => {
                        assert_eq!(group, Group(0));
                        None
                    }
                    Err(refusal) => panic!("{refusal}"),
                }
            })
        });
        let owned: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect();
        let taken = u64::try_from(owned.len()).unwrap();
        assert_eq!((engine.free_clusters(), engine.available_clusters()), (48 - taken, 48 - taken));
    });
}

/// A thread that takes no more than the others leave is never refused, wherever the credits lie.
#[test]
fn the_accounting_refuses_only_what_is_not_there() {
    check(1_000, || {
        let accounting = Arc::new(FreeAccounting::new(EventReporter::default()));
        accounting.adjust(0, 40);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let accounting = Arc::clone(&accounting);
                thread::spawn(move || {
                    for _ in 0..3 {
                        let count = thread_rng().gen_range(1..=13);
                        assert!(accounting.take(count), "3 x 13 of 40 are always there");
                        accounting.give(count);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(accounting.available(), 40);
        assert_eq!(accounting.take_up_to(40, 41), Some(40));
    });
}

/// A group that goes out of service while an inode of it is taken has none left, and no count passes below zero.
#[test]
fn groups_are_retired_while_inodes_are_taken() {
    check(2_000, || {
        let map = Arc::new(InodeMap::new(LAYOUT));
        map.describe(Group(0), 16, 0, InodeContent::Uninitialised { used: 0 }).unwrap();
        let taking = Arc::clone(&map);
        let taker = thread::spawn(move || taking.take_among(&[Group(0)]).is_ok());
        map.retire(Group(0));
        assert!(map.free() <= 16, "a count below zero");
        taker.join().unwrap();
        assert_eq!((map.group_free(Group(0)), map.free()), (0, 0));
    });
}
