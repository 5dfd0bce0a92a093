//! Rules that only a tunable brings to light.

use super::*;
use crate::GroupContent;
use crate::engine::Engine;
use crate::request::FileState;
use crate::stats::Criterion;
use ondisk::units::Group;

/// Two groups of 4,096 clusters; the first 5 of each are used. They have sets, though they are few.
fn engine(tunables: Tunables) -> Engine {
    let tunables = Tunables { mb_optimize_scan: tunables.mb_optimize_scan.min(1), ..tunables };
    let layout = Layout {
        clusters: 8_192,
        clusters_per_group: 4_096,
        groups: 2,
        inodes_per_group: 64,
        groups_per_flex: 1,
        block_bytes: 4_096,
        blocks_per_cluster: 1,
    };
    let engine = Engine::with_policy(layout, Box::new(Mballoc::new(tunables))).unwrap();
    for group in 0..2u32 {
        let used = [ClusterRun { start: Cluster(u64::from(group) * 4_096), count: 5 }];
        engine.describe_group(Group(group), 4_091, GroupContent::Uninitialised { used: &used }).unwrap();
    }
    engine
}

fn start_of(tunables: Tunables, want: u32) -> u64 {
    let request = Request { owner: 9, size: u64::from(want), ..Request::data(Cluster(0), want) };
    engine(tunables).allocate(&request).unwrap().into_run().start.0
}

#[test]
fn whole_stripes_begin_at_a_stripe() {
    let plain = Tunables::new(Generation::From617);
    // 96 is no power of two, so that no buddy decides.
    assert_eq!(start_of(plain, 96), 5);
    assert_eq!(start_of(Tunables { stripe: 48, ..plain }, 96), 48);
    assert_eq!(start_of(Tunables { stripe: 40, ..plain }, 96), 5, "not whole stripes");
}

#[test]
fn pools_are_whole_stripes() {
    let tunables = Tunables { stripe: 48, ..Tunables::new(Generation::From617) };
    let engine = engine(tunables);
    assert_eq!(tunables.group_prealloc(engine.layout()), 528);
    // The kernel measures what is free at a stripe no further than a stripe needs: buddies of 16 and of 64 at 48.
    let request = Request { owner: 9, ..Request::data(Cluster(0), 4) };
    assert_eq!(engine.allocate(&request).unwrap().into_run().start.0, 48);
    assert_eq!(engine.stats().get(Counter::Preallocated), 16 + 64 - 4);
}

#[test]
fn rotating_disks_are_scanned_in_order_first() {
    let plain = Tunables { mb_max_linear_groups: 2, ..Tunables::new(Generation::From617) };
    let engine = engine(plain);
    // Longer than the mean of either group: no set is asked for it, and the first pass sees both.
    let request = Request { owner: 9, size: 4_091, ..Request::data(Cluster(0), 4_091) };
    engine.allocate(&request).unwrap().into_run();
    assert!(engine.stats().criterion(crate::stats::Criterion::GoalLenFast).groups_considered >= 1);
}

#[test]
fn what_is_found_at_the_goal_counts_as_an_extent_that_was_looked_at() {
    let engine = engine(Tunables { mb_stream_req: 0, ..Tunables::new(Generation::From617) });
    let piece = |offset: u64, goal: u64| {
        let request = Request { owner: 9, offset, extends: offset > 0, ..Request::data(Cluster(goal), 4) };
        engine.allocate(&Request { growing: true, size: offset + 4, ..request }).unwrap().into_run()
    };
    let scanned = || engine.stats().get(Counter::ExtentsScanned);
    let first = piece(0, 0);
    let before = scanned();
    let second = piece(4, first.end());
    assert_eq!(second.start.0, first.end());
    assert_eq!(scanned(), before + 1);
    let criteria = crate::stats::Criterion::ALL.map(|criterion| engine.stats().criterion(criterion).hits);
    assert_eq!(criteria.iter().sum::<u64>(), 1);
}

#[test]
fn of_searches_that_go_on_at_once_one_gets_the_best_run() {
    let starts = |searchers| {
        let plain = Tunables::new(Generation::UpTo64);
        let engine = engine(Tunables { searchers, forced_goal: 2_048, mb_max_to_scan: 3, ..plain });
        // Free: 5 to 1,000, 1,001 to 2,001, 2,002 to 3,500 (the longest) and 3,501 to 4,096, in either group.
        for at in [1_000, 2_001, 3_500, 5_096, 6_097, 7_596] {
            let one = Request { extends: true, ..Request::metadata(Cluster(at), 1) };
            assert_eq!(engine.allocate(&one).unwrap().into_run().start.0, at);
        }
        let take = |owner| {
            let request = Request { owner, size: 4, ..Request::data(Cluster(0), 4) };
            engine.allocate(&request).unwrap().into_run().start.0
        };
        let found: Vec<_> = (9..12).map(take).collect();
        (found, engine.stats().get(Counter::Lost))
    };
    let (alone, lost) = starts(1);
    assert!((2_002..3_500).contains(&alone[0]) && lost == 0, "{alone:?}");
    assert!((1_001..2_001).contains(&alone[1]), "{alone:?}: the longest of what is left");
    let (together, lost) = starts(3);
    assert!((2_002..3_500).contains(&together[0]) && lost == 2, "{together:?}");
    assert!((5..1_000).contains(&together[1]) && (1_001..2_001).contains(&together[2]), "{together:?}");
}

/// Each thread gets clusters of its own, and what the groups are thought to hold is what they hold.
#[test]
fn threads_search_side_by_side() {
    for generation in [Generation::UpTo64, Generation::From65, Generation::From617] {
        let engine = &engine(Tunables { forced_goal: 64, ..Tunables::new(generation) });
        let live = |thread: u64| {
            let mut kept = Vec::new();
            for file in 0..40 {
                let owner = 100 + thread * 40 + file;
                let request = Request { owner, size: 3, ..Request::data(Cluster(0), 3) };
                kept.push(engine.allocate(&request).unwrap().into_run());
                engine.closed(owner);
                if file % 3 == 2 {
                    engine.free(kept.swap_remove(0)).unwrap();
                }
            }
            kept
        };
        let mut kept = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || live(thread))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        kept.sort_unstable_by_key(|run| run.start);
        assert!(kept.is_sorted_by(|before, run| before.end() <= run.start.0));
        let used: u64 = kept.iter().map(|run| u64::from(run.count)).sum();
        assert_eq!(engine.free_clusters(), 8_182 - used);
        // All that is free is found, by a policy that only knows its buddies.
        let mut left = 8_182 - used;
        while left > 0 {
            let request = Request { owner: 9, size: 1, ..Request::data(Cluster(0), 1) };
            left -= u64::from(engine.allocate(&request).unwrap().into_run().count);
        }
        assert_eq!(engine.stats().get(Counter::Lost), 0, "{generation:?}");
    }
}

/// As when another thread takes the best run between the look at it and the second look.
#[test]
fn a_search_that_loses_the_best_run_takes_the_first() {
    let engine = engine(Tunables::new(Generation::UpTo64));
    let (view, groups, losers) = (engine.shared.view(), Groups::default(), AtomicU32::new(0));
    groups.prepare(&view);
    groups.mark(&view, ClusterRun { start: Cluster(1_000), count: 1 }, true);
    let tunables = Tunables { mb_max_to_scan: 1, ..Tunables::new(Generation::UpTo64) };
    let mut search = Search::new((&view, &groups, &losers), tunables, Kind::Data, (4_000, 4), 0);
    search.walk(Criterion::GoalLenSlow, 0).unwrap();
    // The longer of the two runs of the first group; a part of it goes first, then all.
    groups.mark(&view, ClusterRun { start: Cluster(1_500), count: 1 }, true);
    let best = search.take_best().unwrap();
    assert_eq!((best.start.0, best.count), (1_001, 499), "what is left of it");
    assert_eq!(search.take_best(), None);
    assert_eq!(search.first().unwrap().map(|run| run.start.0), Some(5));
    assert_eq!(engine.stats().get(Counter::Lost), 1);
}

/// The second group is full, so that no other one comes behind the first in its set.
#[test]
fn the_best_available_run_is_taken_as_it_was_found() {
    for generation in [Generation::From65, Generation::From617] {
        let engine = engine(Tunables { forced_goal: 2_048, ..Tunables::new(generation) });
        for (at, count) in [(1_000, 1), (2_001, 1), (3_500, 1), (4_101, 4_091)] {
            engine.take_exact(ClusterRun { start: Cluster(at), count }).unwrap().into_run();
        }
        // Free runs of 995, 1,000, 1,498 and 595: none has 2,048, on average they have 1,022.
        let request = Request { owner: 9, size: 4, ..Request::data(Cluster(0), 4) };
        assert_eq!(engine.allocate(&request).unwrap().into_run().count, 4);
        assert_eq!(engine.stats().get(Counter::Preallocated), 512 - 4, "{generation:?}");
    }
}

/// Free runs of 60 clusters in both groups, 20 used ones between them.
fn fragmented(tunables: Tunables) -> Engine {
    let engine = engine(tunables);
    for at in (65..8_192).step_by(80).filter(|at| !(4_076..4_101).contains(at) && *at < 8_172) {
        engine.take_exact(ClusterRun { start: Cluster(at), count: 20 }).unwrap().into_run();
    }
    engine
}

/// Where no group has the length of a pool, nor an eighth of it, a small file gets what it asked for.
#[test]
fn a_pool_that_is_found_nowhere_is_forgotten() {
    for generation in [Generation::From65, Generation::From617] {
        let engine = fragmented(Tunables::new(generation));
        let request = Request { owner: 9, ..Request::data(Cluster(0), 4) };
        assert_eq!(engine.allocate(&request).unwrap().into_run().count, 4);
        assert_eq!(engine.stats().get(Counter::Preallocated), 0, "{generation:?}");
        assert_eq!(engine.stats().criterion(Criterion::GoalLenSlow).hits, 1, "{generation:?}");
    }
}

/// The first large file begins where streams do, in any directory.
#[test]
fn streams_begin_in_the_first_group() {
    let engine = engine(Tunables::new(Generation::From617));
    let request = Request { owner: 9, growing: true, size: 96, ..Request::data(Cluster(5_000), 96) };
    assert!(engine.allocate(&request).unwrap().into_run().start.0 < 4_096);
    // A small one begins in the group of its own goal.
    let small = Request { owner: 10, ..Request::data(Cluster(5_000), 4) };
    assert!(engine.allocate(&small).unwrap().into_run().start.0 >= 4_096);
}

/// A call that reserves space says how much it wants.
#[test]
fn reserved_space_is_not_raised() {
    let file =
        FileState { bytes: 0, goal: Cluster(0), before: None, behind: None, reserved: true, is_open: true };
    let preallocated = |reserved, want| {
        let engine = engine(Tunables::new(Generation::From617));
        let file = Some(FileState { reserved, ..file });
        let request = Request { owner: 9, file, ..Request::data(Cluster(0), want) };
        assert_eq!(engine.allocate(&request).unwrap().into_run().count, want);
        engine.stats().get(Counter::Preallocated)
    };
    assert_eq!([preallocated(true, 9), preallocated(true, 90)], [0, 0]);
    assert_eq!([preallocated(false, 9), preallocated(false, 90)], [503, 38]);
}

/// The place behind a file is tried for its window only; a small file's blocks come from its group.
#[test]
fn the_place_behind_a_file_is_tried_for_windows_only() {
    let engine = engine(Tunables { mb_group_prealloc: 32, ..Tunables::new(Generation::From617) });
    let small = Request { owner: 9, offset: 4, extends: true, size: 8, ..Request::data(Cluster(4_500), 4) };
    assert_ne!(engine.allocate(&small).unwrap().into_run().start.0, 4_500);
    let large = Request { offset: 40, size: 48, growing: true, ..small };
    assert_eq!(engine.allocate(&large).unwrap().into_run().start.0, 4_500);
}

/// A group whose bitmap comes later is found by its sets.
#[test]
fn a_group_enters_its_sets_when_its_bitmap_comes() {
    let layout = Layout {
        clusters: 12_288,
        clusters_per_group: 4_096,
        groups: 3,
        inodes_per_group: 64,
        groups_per_flex: 4,
        block_bytes: 4_096,
        blocks_per_cluster: 1,
    };
    let tunables = Tunables { mb_optimize_scan: 1, ..Tunables::new(Generation::From617) };
    let engine = Engine::with_policy(layout, Box::new(Mballoc::new(tunables))).unwrap();
    let full = |group: u32| ClusterRun { start: Cluster(u64::from(group) * 4_096), count: 4_096 };
    for group in 0..2 {
        let used = [full(group)];
        engine.describe_group(Group(group), 0, GroupContent::Uninitialised { used: &used }).unwrap();
    }
    engine.describe_group(Group(2), 4_096, GroupContent::Unknown).unwrap();
    let request = Request { owner: 9, size: 96, ..Request::data(Cluster(0), 96) };
    // Nothing is known to be free, so that all searches but the last ones pass it by.
    assert_eq!(engine.allocate(&request).unwrap_err(), Refusal::NeedBitmap(Group(2)));
    engine.load_group(Group(2), &[0; 512]).unwrap();
    assert_eq!(engine.allocate(&request).unwrap().into_run().start.0, 8_192);
    assert_eq!(engine.stats().criterion(Criterion::GoalLenFast).hits, 1);
}

/// The rests of pools are told apart by their size: of those that a request fits, the nearest to its goal serves it.
#[test]
fn rests_of_pools_are_kept_by_size() {
    let mut pools = prealloc::Preallocations::default();
    let run = |start, count| ClusterRun { start: Cluster(start), count };
    for at in 0..9 {
        assert!(pools.add_pool(0, run(100 * at, 20)).is_empty());
    }
    assert!(pools.add_pool(0, run(5_000, 40)).is_empty(), "another size");
    let dropped = pools.add_pool(0, run(900, 19));
    assert_eq!(dropped, [run(0, 20), run(100, 20), run(200, 20), run(300, 20)]);
    let request = |want| Request::data(Cluster(0), want);
    assert_eq!(pools.use_pool(0, &request(8), Cluster(600)), Some(run(600, 8)));
    assert_eq!(pools.use_pool(0, &request(30), Cluster(600)), Some(run(5_000, 30)));
    assert_eq!(pools.use_pool(0, &request(30), Cluster(600)), None);
    assert!(pools.take_dropped().is_empty());
}

/// On volumes of few groups no set is asked: they are scanned in order, and what was looked for stays what it was.
#[test]
fn few_groups_have_no_sets() {
    let layout = |groups: u32| Layout {
        clusters: u64::from(groups) * 64,
        clusters_per_group: 64,
        groups,
        inodes_per_group: 64,
        groups_per_flex: 1,
        block_bytes: 4_096,
        blocks_per_cluster: 1,
    };
    let plain = Tunables::new(Generation::From617);
    assert_eq!([15, 16].map(|groups| plain.has_sets(&layout(groups))), [false, true]);
    let told = |mb_optimize_scan| Tunables { mb_optimize_scan, ..plain }.has_sets(&layout(8));
    assert_eq!([told(0), told(1), told(2)], [false, true, false]);
}
