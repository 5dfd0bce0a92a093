//! Windows through the engine: which files compete, what is learned, what is taken back.

use super::*;
use crate::GroupContent;
use crate::engine::Engine;
use crate::layout::Layout;
use crate::policy::BlockPolicyKind;
use ondisk::units::Group;

fn engine() -> Engine {
    let layout = Layout {
        clusters: 8 * 32_768,
        clusters_per_group: 32_768,
        groups: 8,
        inodes_per_group: 8_192,
        groups_per_flex: 1,
        block_bytes: 4_096,
        blocks_per_cluster: 1,
    };
    let engine = Engine::new(layout, BlockPolicyKind::Lease).unwrap();
    for group in (0..8).map(Group) {
        engine.describe_group(group, 32_768, GroupContent::Uninitialised { used: &[] }).unwrap();
    }
    engine
}

/// Clusters `offset..offset + want` of a file that is still open.
fn grow(engine: &Engine, owner: u64, offset: u64, want: u32, goal: u64) -> ClusterRun {
    let request = Request {
        owner,
        directory: 9,
        offset,
        extends: offset > 0,
        growing: true,
        ..Request::data(Cluster(goal), want)
    };
    engine.allocate(&request).unwrap().into_run()
}

#[test]
fn writers_in_turns_do_not_meet() {
    let engine = engine();
    let mut ends = [0; 4];
    for offset in 0..200 {
        for (file, end) in ends.iter_mut().enumerate() {
            let run = grow(&engine, 20 + file as u64, offset, 1, *end);
            assert!(offset == 0 || run.start.0 == *end);
            *end = run.end();
        }
    }
}

#[test]
fn files_that_come_in_one_piece_teach_that_no_room_is_needed() {
    let engine = engine();
    let first = grow(&engine, 20, 0, 40, 0);
    engine.closed(20);
    // The second file lies behind the first, and the third behind the second though both are
    // open: nothing is claimed any more.
    let second = grow(&engine, 21, 0, 40, first.end());
    let third = grow(&engine, 22, 0, 40, second.end());
    assert_eq!((second.start.0, third.start.0), (first.end(), second.end()));
    assert_eq!(engine.free_runs().map(|run| run.count).sum::<u32>(), 8 * 32_768 - 120);
}

#[test]
fn a_large_file_takes_the_windows_back() {
    let engine = engine();
    for file in 0..2 {
        grow(&engine, 100 + file, 0, 1, 0);
    }
    let whole = engine.allocate(&Request { owner: 7, ..Request::data(Cluster(0), 257_000) }).unwrap();
    assert_eq!(whole.run().count, 257_000);
}

#[test]
fn many_short_windows_are_taken_back_before_a_file_is_torn() {
    let engine = engine();
    engine.allocate(&Request::data(Cluster(0), 8 * 32_768)).unwrap().into_run();
    // Files that grow have what is free but for crumbs.
    for owner in 0..90 {
        for (from, count) in [(0, 300), (600, 1)] {
            engine.free(ClusterRun { start: Cluster(owner * 1_000 + from), count }).unwrap();
        }
    }
    for owner in 0..90 {
        grow(&engine, 100 + owner, 0, 160, owner * 1_000);
    }
    let piece = engine.allocate(&Request { owner: 7, ..Request::data(Cluster(0), 150) }).unwrap();
    assert_eq!(piece.run().count, 140);
}
