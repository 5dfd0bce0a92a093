//! Files of a directory beside each other, through the engine: small cases of what ageing lost.

use super::*;
use crate::GroupContent;
use crate::engine::Engine;
use crate::layout::Layout;
use crate::policy::BlockPolicyKind;
use ondisk::units::Group;

const GROUPS: u32 = 4;

/// A volume of which nothing is free but these runs.
fn engine(free: &[(u64, u32)]) -> Engine {
    let layout = Layout {
        clusters: u64::from(GROUPS) * 32_768,
        clusters_per_group: 32_768,
        groups: GROUPS,
        inodes_per_group: 8_192,
        groups_per_flex: 1,
        block_bytes: 4_096,
        blocks_per_cluster: 1,
    };
    let engine = Engine::new(layout, BlockPolicyKind::Lease).unwrap();
    for group in (0..GROUPS).map(Group) {
        engine.describe_group(group, 32_768, GroupContent::Uninitialised { used: &[] }).unwrap();
    }
    engine.allocate(&Request::data(Cluster(0), GROUPS * 32_768)).unwrap().into_run();
    for &(start, count) in free {
        engine.free(ClusterRun { start: Cluster(start), count }).unwrap();
    }
    engine
}

/// A new file of a directory whose last one ended at `goal`.
fn file(engine: &Engine, goal: u64, want: u32) -> ClusterRun {
    let request = Request { owner: 77, directory: 9, ..Request::data(Cluster(goal), want) };
    let run = engine.allocate(&request).unwrap().into_run();
    engine.closed(77);
    run
}

/// A hole that fits to the cluster lies far away; on a crowded volume, too, the one beside the last file is taken,
/// before or behind it, the tightest of those.
#[test]
fn a_file_goes_beside_the_last_one_of_its_directory() {
    let free = [(1_000, 5), (9_985, 12), (10_020, 7), (10_040, 30), (70_000, 9_000)];
    for (want, expected) in [(5, 10_020), (8, 9_985), (20, 10_040), (40, 70_000)] {
        assert_eq!(file(&engine(&free), 10_000, want).start.0, expected, "{want}");
    }
    // Nothing is within reach: the tightest run of all. So it is where hardly anything is free.
    assert_eq!(file(&engine(&free), 9_900, 5).start.0, 1_000);
    assert_eq!(file(&engine(&free[..4]), 10_000, 5).start.0, 1_000);
}

/// Runs for larger files are not cut for the sake of neighbours: 16 clusters on a crowded volume, 128 else.
#[test]
fn runs_for_larger_files_are_left() {
    let crowded = [(10_000, 20), (20_000, 5), (90_000, 9_000)];
    assert_eq!(file(&engine(&crowded), 10_000, 5).start.0, 20_000);
    let roomy = [(10_000, 100), (20_000, 5), (66_000, 30_000)];
    assert_eq!(file(&engine(&roomy), 10_000, 5).start.0, 10_000);
    let long = [(10_000, 300), (20_000, 5), (66_000, 30_000)];
    assert_eq!(file(&engine(&long), 10_000, 5).start.0, 20_000);
}

/// Files written one after the other into holes that each fit one of them lie together all the same, while there is
/// room: 24 clusters are looked for where a third is free, 4 where a sixth is.
#[test]
fn the_small_files_of_a_directory_begin_where_others_fit_behind_them() {
    let holes = |rest: u32| {
        let tight = (0..40).map(|n| (1_000 + n * 200, 3));
        let more = [(30_000, 40), (40_000, rest), (32_000, 8)];
        tight.chain(more).collect::<Vec<_>>()
    };
    let starts = |rest| {
        let engine = engine(&holes(rest));
        let mut goal = 500;
        [3, 2, 3].map(|want| {
            let run = file(&engine, goal, want);
            goal = run.end();
            run.start.0
        })
    };
    assert_eq!(starts(50_000), [30_000, 30_003, 30_005], "a third is free");
    assert_eq!(starts(24_000), [32_000, 32_003, 32_005], "a sixth");
    let [first, ..] = starts(9_000);
    assert_eq!(first, 1_000, "crowded: the tightest");
}
