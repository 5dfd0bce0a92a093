//! Cost of opening a huge volume and allocating in order, in time of the processor: other work on the
//! machine does not count. Bounds are loose: they catch a change of order, not of percent.
use crate::{BlockPolicyKind, Engine, GroupContent, Layout, Request};
use ondisk::units::{Cluster, Group};
use std::time::Duration;

/// Returns the processor time of this thread.
fn spent() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

fn untouched(groups: u32) -> Engine {
    let layout = Layout {
        clusters: u64::from(groups) * 32_768,
        clusters_per_group: 32_768,
        groups,
        inodes_per_group: 8_192,
        groups_per_flex: 16,
        block_bytes: 4_096,
        blocks_per_cluster: 1,
    };
    let engine = Engine::new(layout, BlockPolicyKind::Lease).unwrap();
    for group in (0..groups).map(Group) {
        engine.describe_group(group, 32_768, GroupContent::Uninitialised { used: &[] }).unwrap();
    }
    engine
}

#[test]
fn sixteen_tebibytes_open_at_once() {
    let start = spent();
    let engine = untouched(131_072);
    let took = spent() - start;
    assert!(took < Duration::from_secs(1), "{took:?}");
    println!("16 TiB described in {took:?}");
    let grant = engine.allocate(&Request::data(Cluster(4_000_000_000), 5)).unwrap();
    assert!(grant.run().start.0.abs_diff(4_000_000_000) < 32_768);
}

#[test]
fn loading_in_order_is_quick_and_dense() {
    let engine = untouched(100);
    let (start, mut goal) = (spent(), Cluster(0));
    for number in 0..100_000u32 {
        let request = Request { stream: true, ..Request::data(goal, 1 + number % 31) };
        let run = engine.allocate(&request).unwrap().into_run();
        assert_eq!(run.start, goal);
        goal = Cluster(run.end());
    }
    let took = spent() - start;
    assert!(took < Duration::from_secs(1), "{took:?}");
    println!("{} ns per allocation", took.as_nanos() / 100_000);
    assert_eq!(engine.free_runs().count(), 1);
}
