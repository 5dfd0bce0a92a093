//! Bitmaps in memory: dropping, loading again, contradictory ones, volumes up to 1 EiB.

use crate::policy::POLICIES;
use crate::{BlockPolicyKind, Counter, Engine, GroupContent, Layout, Refusal, Request};
use ondisk::units::{Cluster, ClusterRun, Group};
use proptest::prelude::*;

fn layout(clusters_per_group: u32, groups: u32) -> Layout {
    Layout {
        clusters: u64::from(groups) * u64::from(clusters_per_group),
        clusters_per_group,
        groups,
        inodes_per_group: 64,
        groups_per_flex: 16,
        block_bytes: 4_096,
        blocks_per_cluster: 1,
    }
}

/// Every second cluster is used.
fn striped(engine: &Engine) -> Vec<u8> {
    let bitmap = vec![0x55; engine.layout().clusters_per_group as usize / 8];
    for group in (0..engine.layout().groups).map(Group) {
        engine.describe_group(group, engine.layout().clusters_per_group / 2, GroupContent::Unknown).unwrap();
        engine.load_group(group, &bitmap).unwrap();
    }
    bitmap
}

#[test]
fn a_bound_keeps_memory_down_and_nothing_is_lost() {
    let engine = Engine::new(layout(32_768, 200), BlockPolicyKind::Lease).unwrap();
    let bound = 100 * 4_500;
    engine.set_memory_bound(bound);
    let bitmap = striped(&engine);
    let memory = engine.memory();
    assert!(memory.bitmaps + memory.warm <= bound + bound / 16, "{memory:?}");
    assert!(engine.stats().get(Counter::BitmapsEvicted) >= 90);
    assert_eq!(engine.free_clusters(), 200 * 16_384);
    // The first group was dropped, and what it knew is what comes back.
    assert!(engine.needs_bitmap(Group(0)));
    let first = ClusterRun { start: Cluster(1), count: 1 };
    assert!(engine.take_exact(first).is_err());
    engine.load_group(Group(0), &bitmap).unwrap();
    engine.take_exact(first).unwrap().into_run();
    // Now it differs from the disk, so it stays until the disk has it.
    engine.shrink_to(0);
    assert!(!engine.needs_bitmap(Group(0)));
    let mut now = bitmap.clone();
    engine.group_bitmap(Group(0), &mut now).unwrap();
    assert!(!engine.written(Group(0), &bitmap));
    assert!(engine.written(Group(0), &now));
    engine.shrink_to(0);
    assert!(engine.needs_bitmap(Group(0)));
    assert_eq!(engine.memory().warm_regions, 0);
}

/// A run over more groups than the bound leaves loaded is freed all the same, and found again.
#[test]
fn what_a_request_asks_for_stays_until_it_is_met() {
    let engine = Engine::new(layout(256, 300), BlockPolicyKind::Lease).unwrap();
    // The last of each eight clusters is free.
    let bitmap = [0x7F; 32];
    for group in (0..300).map(Group) {
        engine.describe_group(group, 32, GroupContent::Unknown).unwrap();
        engine.load_group(group, &bitmap).unwrap();
    }
    engine.set_memory_bound(1);
    engine.shrink_to(0);
    let mut request = Request { stream: true, ..Request::data(Cluster(0), 2) };
    let refusal = loop {
        match engine.allocate(&request) {
            Err(Refusal::NeedBitmap(group)) => engine.load_group(group, &bitmap).unwrap(),
            other => break other.map(|grant| grant.run().count),
        }
        request.attempt += 1;
        assert!(request.attempt <= 300, "asked for a bitmap again and again");
    };
    assert_eq!(refusal, Ok(1));
}

#[test]
fn loaded_neighbours_are_preferred_when_memory_is_short() {
    let engine = Engine::new(layout(32_768, 64), BlockPolicyKind::Lease).unwrap();
    striped(&engine);
    engine.shrink_to(0);
    let request = Request { owner: 7, ..Request::data(Cluster(40 * 32_768), 1) };
    assert_eq!(engine.allocate(&request).unwrap_err(), Refusal::NeedBitmap(Group(40)));
    assert_eq!(engine.wanted_bitmaps(&request), [Group(40)]);
    engine.prefetch_group(Group(40), &[0x55; 4_096]).unwrap();
    assert!(engine.wanted_bitmaps(&request).is_empty() || engine.wanted_bitmaps(&request) != [Group(40)]);
    let grant = engine.allocate(&Request { goal: Cluster(3 * 32_768), ..request }).unwrap();
    assert_eq!(engine.layout().group_of(grant.run().start), Group(40));
    assert_eq!(engine.stats().get(Counter::BitmapsPrefetched), 1);
    // A file that goes on where it ends is worth a bitmap.
    let more = Request { goal: Cluster(3 * 32_768), extends: true, offset: 9, ..request };
    assert_eq!(engine.allocate(&more).unwrap_err(), Refusal::NeedBitmap(Group(3)));
}

#[test]
fn a_group_out_of_service_stays_out_until_it_is_described() {
    let engine = Engine::new(layout(8_192, 3), BlockPolicyKind::Lease).unwrap();
    let mut bitmap = striped(&engine);
    engine.retire_group(Group(1));
    assert_eq!(engine.group_free(Group(1)), 0);
    assert_eq!((engine.free_clusters(), engine.available_clusters()), (2 * 4_096, 2 * 4_096));
    bitmap[0] = 0xFF;
    engine.load_group(Group(1), &bitmap).unwrap();
    assert_eq!(engine.group_free(Group(1)), 0);
    engine.describe_group(Group(1), 4_092, GroupContent::Unknown).unwrap();
    engine.load_group(Group(1), &bitmap).unwrap();
    assert_eq!(engine.free_clusters(), 3 * 4_096 - 4);
    assert_eq!(engine.available_clusters(), 3 * 4_096 - 4);
}

/// A grant is dropped while its bitmap is not there: it is free once the bitmap is loaded, whatever that says of it.
#[test]
fn what_a_dropped_grant_held_is_free_when_its_bitmap_comes() {
    for says_used in [true, false] {
        let engine = Engine::new(layout(8_192, 3), BlockPolicyKind::Lease).unwrap();
        let mut bitmap = striped(&engine);
        let first = u64::from(bitmap[0].trailing_ones());
        let run = ClusterRun { start: Cluster(8_192 + first), count: 1 };
        let grant = engine.take_exact(run).unwrap();
        bitmap[0] |= 1 << first;
        assert!(engine.written(Group(1), &bitmap));
        engine.shrink_to(0);
        assert!(engine.needs_bitmap(Group(1)));
        drop(grant);
        assert_eq!((engine.orphaned_grants(), engine.free_clusters()), (vec![run], 3 * 4_096 - 1));
        if !says_used {
            bitmap[0] &= !(1 << first);
        }
        engine.load_group(Group(1), &bitmap).unwrap();
        assert_eq!((engine.orphaned_grants(), engine.free_clusters()), (Vec::new(), 3 * 4_096));
        assert_eq!(engine.available_clusters(), 3 * 4_096);
        assert_eq!(engine.is_free(run.start), Some(true));
    }
}

/// 1 EiB as 64 KiB blocks (2^25 groups of 16 regions) and as clusters of 1 MiB.
#[test]
fn an_exbibyte_is_opened_where_it_is_described() {
    for layout in [layout(524_288, 1 << 25), layout(32_768, 1 << 25)] {
        let engine = Engine::new(layout, BlockPolicyKind::Lease).unwrap();
        let groups = [0, 1, 12_345_678, (1 << 25) - 1].map(Group);
        for (group, number) in groups.into_iter().zip(0u8..) {
            if number % 2 == 0 {
                let free = layout.clusters_per_group;
                engine.describe_group(group, free, GroupContent::Uninitialised { used: &[] }).unwrap();
            } else {
                let bitmap = vec![0x0F; layout.clusters_per_group as usize / 8];
                let free = layout.clusters_per_group / 2;
                engine.describe_group(group, free, GroupContent::Unknown).unwrap();
                engine.load_group(group, &bitmap).unwrap();
            }
        }
        let memory = engine.memory();
        assert!(memory.fixed < 16 << 20, "{memory:?}");
        assert!(memory.warm < 1 << 20, "{memory:?}");
        for group in groups {
            let goal = Cluster(engine.layout().group_start(group).0 + 5_000);
            let grant = engine.allocate(&Request::data(goal, 4)).unwrap();
            assert_eq!(engine.layout().group_of(grant.run().start), group);
            grant.into_run();
        }
        let large = Request::data(Cluster(1 << 39), layout.clusters_per_group);
        let grant = engine.allocate(&Request { min: 20_000, ..large }).unwrap();
        assert!([Group(0), Group(12_345_678)].contains(&engine.layout().group_of(grant.run().start)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// Whatever bitmaps, counts and runs are given, nothing panics and the sums agree.
    #[test]
    fn contradictions_never_panic(
        cpg in prop_oneof![Just(256u32), Just(1_000), Just(8_192), Just(40_000)],
        policy in 0..POLICIES.len(),
        steps in prop::collection::vec((0u8..12, any::<u32>(), any::<u32>(), any::<u64>()), 1..80),
    ) {
        let engine = Engine::new(layout(cpg, 4), POLICIES[policy].kind).unwrap();
        let mut held = Vec::new();
        for (what, a, b, seed) in steps {
            let group = Group(a % 5);
            let byte = [0u8, 0xFF, 0x10, 0xF7][(seed % 4) as usize];
            let bitmap = vec![byte; (b % 6_000) as usize];
            let ones = byte.count_ones() * (cpg / 8);
            let free = if seed % 3 == 0 { b % (cpg + 9) } else { cpg - ones.min(cpg) };
            let run = ClusterRun { start: Cluster(seed % (u64::from(cpg) * 5)), count: b % 700 };
            match what {
                0 => {
                    let _ = engine.describe_group(group, free, GroupContent::Unknown);
                }
                1 => {
                    let used = [ClusterRun { count: b % 90, ..run }];
                    let _ = engine.describe_group(group, free, GroupContent::Uninitialised { used: &used });
                }
                2 | 3 => { let _ = engine.load_group(group, &bitmap); },
                4 => engine.retire_group(group),
                5 => { let _ = engine.free(run); },
                6 => held.extend(engine.take_exact(run)),
                7 | 8 => { let _ = engine.free_all([run, ClusterRun { start: Cluster(run.end()), count: 3 }]); },
                9 => drop(held.pop()),
                10 => {
                    engine.written(group, &bitmap);
                    engine.shrink_to(u64::from(b % 9_000));
                }
                _ => held.extend(engine.allocate(&Request { owner: seed % 3, growing: true, ..Request::data(run.start, 1 + b % 900) })),
            }
            let sum: u64 = (0..4).map(|group| u64::from(engine.group_free(Group(group)))).sum();
            prop_assert_eq!(engine.free_clusters(), sum);
            prop_assert!(sum <= u64::from(cpg) * 4);
        }
    }
}
