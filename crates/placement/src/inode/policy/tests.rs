//! Rules of the policies, one by one, and all of them against flags over random steps.

use super::*;
use crate::GroupContent;
use crate::engine::Engine;
use crate::inode::tests::file;
use crate::inode::{InodeContent, InodeEngine, InodeRefusal, InodeRequest};
use crate::policy::BlockPolicyKind;
use ondisk::units::{Cluster, ClusterRun};
use proptest::prelude::*;
use std::sync::Arc;

const CLUSTERS: u32 = 2_048;

fn layout(groups: u32, inodes: u32, flex: u32) -> Layout {
    Layout {
        clusters: u64::from(groups) * u64::from(CLUSTERS),
        clusters_per_group: CLUSTERS,
        groups,
        inodes_per_group: inodes,
        groups_per_flex: flex,
        block_bytes: 4_096,
        blocks_per_cluster: 1,
    }
}

/// An empty volume; returns the block engine, too, so that space can be taken.
fn volume(layout: Layout, policy: Box<dyn DirectoryPolicy>) -> (Arc<Engine>, InodeEngine) {
    let space = Arc::new(Engine::new(layout, BlockPolicyKind::Single).unwrap());
    let engine = InodeEngine::with_policy(Arc::clone(&space), policy);
    for group in (0..layout.groups).map(Group) {
        space.describe_group(group, CLUSTERS, GroupContent::Uninitialised { used: &[] }).unwrap();
        let content = InodeContent::Uninitialised { used: 0 };
        engine.describe_group(group, layout.inodes_per_group, 0, content).unwrap();
    }
    (space, engine)
}

fn new(groups: u32, inodes: u32, flex: u32, kind: DirectoryPolicyKind) -> (Arc<Engine>, InodeEngine) {
    volume(layout(groups, inodes, flex), kind.make())
}

fn directory(parent: u32) -> InodeRequest {
    InodeRequest { is_directory: true, ..file(parent) }
}

fn top(name_hash: u32) -> InodeRequest {
    InodeRequest { top_level: true, name_hash, seeded_hash: name_hash, ..directory(0) }
}

fn take(engine: &InodeEngine, request: &InodeRequest) -> u32 {
    engine.allocate(request).unwrap().into_index()
}

fn groups_of(engine: &InodeEngine, request: &InodeRequest, count: u32) -> Vec<u32> {
    (0..count).map(|_| take(engine, request) / engine.layout().inodes_per_group).collect()
}

/// Uses clusters at the start of a group.
fn fill(space: &Engine, group: u32, count: u32) {
    let start = Cluster(u64::from(group) * u64::from(CLUSTERS));
    space.take_exact(ClusterRun { start, count }).unwrap().into_run();
}

#[test]
fn names_are_unique_and_lead_to_their_rows() {
    for row in DIRECTORY_POLICIES {
        assert_eq!(DirectoryPolicyKind::named(row.name), Some(row.kind));
        assert_eq!(row.kind.name(), row.name);
    }
    assert_eq!(DirectoryPolicyKind::named("none"), None);
}

#[test]
fn spread_takes_the_fewest_directories_among_the_mean_of_inodes() {
    let (_, engine) = new(4, 64, 1, DirectoryPolicyKind::Spread);
    // The parent does not matter.
    assert_eq!(groups_of(&engine, &directory(64 * 3), 4), [0, 1, 2, 3]);
    // Group 0 falls under the mean; among the others the first with one directory.
    assert_eq!(groups_of(&engine, &file(0), 8), [0; 8]);
    assert_eq!(groups_of(&engine, &directory(0), 3), [1, 2, 3]);
}

#[test]
fn a_full_group_is_left_by_one_three_seven() {
    for kind in [DirectoryPolicyKind::Spread, DirectoryPolicyKind::Dirpref] {
        let (_, engine) = new(10, 8, 1, kind);
        assert_eq!(groups_of(&engine, &file(0), 8), [0; 8]);
        assert_eq!(groups_of(&engine, &file(0), 32), [1, 3, 7, 5].map(|g| [g; 8]).concat());
        // All probes are full: any, from the second group behind on.
        assert_eq!(groups_of(&engine, &file(0), 16), [2, 4].map(|g| [g; 8]).concat());
    }
}

#[test]
fn dirpref_spreads_the_first_level_from_the_place_of_the_name() {
    let (space, engine) = new(8, 256, 1, DirectoryPolicyKind::Dirpref);
    assert_eq!(groups_of(&engine, &top(5), 4), [5, 6, 7, 0]);
    // Clusters under the mean rule a group out.
    fill(&space, 1, 100);
    assert_eq!(groups_of(&engine, &top(1), 1), [2]);
}

#[test]
fn dirpref_stays_with_the_parent_until_a_row_is_too_long() {
    // 8 MiB of 4 KiB clusters over 1 MiB expected is 8, but 256 inodes over 64 are 4.
    let (_, engine) = new(8, 256, 1, DirectoryPolicyKind::Dirpref);
    assert_eq!(groups_of(&engine, &directory(256 * 2), 9), [2, 2, 2, 2, 3, 3, 3, 3, 4]);
    // A file in group 2 makes room for one more there.
    take(&engine, &file(256 * 2));
    assert_eq!(groups_of(&engine, &directory(256 * 2), 2), [2, 4]);
}

#[test]
fn dirpref_follows_its_tunables() {
    let tuned = |size, files| {
        let policy = DirectoryPolicyKind::Dirpref.tuned(&[("avgfilesize", size), ("avgfpdir", files)]);
        volume(layout(8, 256, 1), policy.unwrap()).1
    };
    assert!(DirectoryPolicyKind::Dirpref.tuned(&[("avgfiles", 1)]).is_err());
    // A directory of 2 files of 4 MiB fills a group of 8 MiB.
    assert_eq!(groups_of(&tuned(4 << 20, 2), &directory(0), 3), [0, 1, 2]);
    // 255 in a row; what holds first is a sixteenth of the inodes over the mean, which is 2 by then.
    let expected = [[0; 18].as_slice(), &[1]].concat();
    assert_eq!(groups_of(&tuned(1, 1), &directory(0), 19), expected);
}

/// The limit is in bytes: where a cluster has four times the bytes, a group holds four times the directories.
#[test]
fn dirpref_counts_bytes_of_the_volumes_own_clusters() {
    let rows = |block_bytes, blocks_per_cluster| {
        let policy =
            DirectoryPolicyKind::Dirpref.tuned(&[("avgfilesize", 1 << 20), ("avgfpdir", 4)]).unwrap();
        let layout = Layout { block_bytes, blocks_per_cluster, ..layout(8, 256, 1) };
        let (_, engine) = volume(layout, policy);
        groups_of(&engine, &directory(0), 9)
    };
    // 2 MiB, 8 MiB and 32 MiB of a group over 4 MiB expected.
    assert_eq!(rows(1_024, 1), [0, 1, 2, 3, 4, 5, 6, 7, 0]);
    assert_eq!(rows(4_096, 1), [0, 0, 1, 1, 2, 2, 3, 3, 4]);
    assert_eq!(rows(4_096, 4), [0, 0, 0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn oldalloc_takes_the_most_free_blocks_among_the_mean_of_inodes() {
    let (space, engine) = new(4, 64, 1, DirectoryPolicyKind::OldAlloc);
    assert_eq!(groups_of(&engine, &directory(64 * 3), 1), [0]);
    fill(&space, 1, 100);
    fill(&space, 2, 10);
    fill(&space, 3, 20);
    // Group 0 has most until it has fewer inodes than the mean.
    assert_eq!(groups_of(&engine, &directory(64), 4), [0, 2, 2, 3]);
}

#[test]
fn dirpref_leaves_groups_short_of_inodes_or_clusters() {
    let (space, engine) = new(8, 256, 1, DirectoryPolicyKind::Dirpref);
    // A quarter of a group under the mean, which the use itself lowers by an eighth of it.
    fill(&space, 2, 512 + 73);
    assert_eq!(groups_of(&engine, &directory(256 * 2), 1), [2]);
    fill(&space, 3, 512 + 300);
    assert_eq!(groups_of(&engine, &directory(256 * 3), 1), [4]);
    assert_eq!(groups_of(&engine, &file(256 * 5), 80), [5; 80]);
    assert_eq!(groups_of(&engine, &directory(256 * 5), 1), [6]);
}

#[test]
fn orlov_counts_in_flex_groups_and_starts_where_the_parent_was_last() {
    let (_, engine) = new(16, 64, 4, DirectoryPolicyKind::Orlov);
    // Flex group 2 by its name. A sixteenth of its 256 inodes are 16; the mean of 21 directories
    // over four flex groups is 5.
    let parent = take(&engine, &top(2));
    assert_eq!(parent, 2 * 256);
    assert_eq!(groups_of(&engine, &directory(parent), 20), [8; 20]);
    assert_eq!(groups_of(&engine, &directory(parent), 2), [12, 12]);
    // Room in flex group 2 again: the parent goes on in flex group 3.
    for index in parent + 1..parent + 9 {
        engine.free(index, true).unwrap();
    }
    let considered = engine.groups_considered();
    assert_eq!(groups_of(&engine, &directory(parent), 1), [12]);
    assert_eq!(engine.groups_considered() - considered, 4);
}

#[test]
fn orlov_files_fill_the_parents_flex_group_then_go_where_it_was_last() {
    let (_, engine) = new(16, 8, 4, DirectoryPolicyKind::Orlov);
    let parent = take(&engine, &top(1));
    assert_eq!(parent, 32);
    let groups: Vec<u32> = [vec![4; 7], vec![5; 8], vec![6; 8], vec![7; 8]].concat();
    assert_eq!(groups_of(&engine, &file(parent), 31), groups);
    assert_eq!(groups_of(&engine, &file(parent), 2), [8, 8]);
    // With the parent's flex group open again, back home.
    engine.free(40, false).unwrap();
    assert_eq!(groups_of(&engine, &file(parent), 2), [5, 8]);
}

#[test]
fn orlov_debt_leaves_groups_whose_directories_got_no_files() {
    // 2,048 clusters over 256 are 8, but 256 inodes over 64 are 4.
    let (_, engine) = new(8, 256, 1, DirectoryPolicyKind::OrlovDebt);
    assert_eq!(groups_of(&engine, &directory(256), 5), [1, 1, 1, 1, 2]);
    assert_eq!(groups_of(&engine, &file(256), 2), [1, 1]);
    assert_eq!(groups_of(&engine, &directory(256), 3), [1, 1, 2]);
}

#[test]
fn orlov_debt_probes_from_parent_and_number() {
    let (space, engine) = new(8, 64, 1, DirectoryPolicyKind::OrlovDebt);
    fill(&space, 0, CLUSTERS);
    // Group 0 has inodes but no clusters: group + number + 1 = 0 + 5 + 1, and 1 behind that.
    assert_eq!(groups_of(&engine, &file(5), 1), [7]);
    fill(&space, 7, CLUSTERS);
    assert_eq!(groups_of(&engine, &file(5), 1), [1]);
}

#[test]
fn near_looks_at_64_flex_groups_for_a_top_level_directory() {
    let (_, engine) = new(400, 32, 1, DirectoryPolicyKind::Near);
    assert_eq!(groups_of(&engine, &top(300), 1), [300]);
    assert_eq!(engine.groups_considered(), 64);
    let (_, engine) = new(400, 32, 4, DirectoryPolicyKind::Near);
    assert_eq!(groups_of(&engine, &top(50), 1), [200]);
    // Around the end: flex groups 50 to 99, then 0 to 13; all alike but 50.
    assert_eq!(groups_of(&engine, &top(50), 1), [204]);
}

#[test]
fn near_goes_on_where_the_last_sibling_went() {
    let (_, engine) = new(64, 64, 1, DirectoryPolicyKind::Near);
    let before = engine.groups_considered();
    for _ in 0..200 {
        take(&engine, &directory(0));
    }
    // Each looks at the last group and at times at the next.
    assert!(engine.groups_considered() - before < 300);
}

#[test]
fn near_keeps_files_of_one_writer_dense() {
    let (_, engine) = new(4, 256, 1, DirectoryPolicyKind::Near);
    let files: Vec<u32> = (0..40).map(|_| take(&engine, &file(0))).collect();
    assert_eq!(files, (0..40).collect::<Vec<u32>>());
}

#[test]
fn near_leases_numbers_to_directories_filled_side_by_side() {
    let blocks = |kind: DirectoryPolicyKind| {
        let (_, engine) = new(4, 1_024, 1, kind);
        let parents: Vec<u32> = (0..8).map(|_| take(&engine, &directory(0))).collect();
        let mut files: Vec<Vec<u32>> = vec![Vec::new(); 8];
        for _ in 0..64 {
            for (parent, files) in parents.iter().zip(&mut files) {
                files.push(take(&engine, &file(*parent)) / 16);
            }
        }
        files.iter_mut().for_each(|of_one| of_one.dedup());
        files.iter().map(Vec::len).sum::<usize>()
    };
    // 8 directories of 64 files need 32 blocks of 16 inodes at least.
    assert_eq!(blocks(DirectoryPolicyKind::Orlov), 8 * 33);
    assert!(blocks(DirectoryPolicyKind::Near) <= 64, "{}", blocks(DirectoryPolicyKind::Near));
}

#[test]
fn near_gives_leases_up_before_the_group() {
    let (_, engine) = new(2, 64, 1, DirectoryPolicyKind::Near);
    let parents: Vec<u32> = (0..2).map(|_| take(&engine, &directory(0))).collect();
    let taken: Vec<u32> = (0..62).map(|n| take(&engine, &file(parents[n % 2]))).collect();
    assert!(taken.iter().all(|index| *index < 64), "{taken:?}");
    assert_eq!(groups_of(&engine, &file(0), 1), [1]);
}

#[test]
fn near_looks_for_a_lease_only_where_a_run_is_free() {
    let (_, engine) = new(1, 256, 1, DirectoryPolicyKind::Near);
    let parents: Vec<u32> = (0..2).map(|_| take(&engine, &directory(0))).collect();
    // Every third number is used, so no 16 in a row are free below 200.
    for index in (3..200).step_by(3) {
        engine.take_exact(index, false).unwrap().into_index();
    }
    let taken: Vec<u32> = (0..24).map(|n| take(&engine, &file(parents[n % 2]))).collect();
    let (torn, leased): (Vec<u32>, Vec<u32>) = taken.iter().partition(|index| **index < 200);
    assert!(leased.iter().all(|index| *index >= 208) && torn.len() >= 8, "{taken:?}");
    assert!(leased.len() >= 12, "{taken:?}");
}

#[test]
fn threads_never_share_an_inode() {
    for row in DIRECTORY_POLICIES {
        let (_, engine) = new(8, 256, 4, row.kind);
        let work = |thread: u32| {
            let mut held = Vec::new();
            for n in 0..500 {
                let request = if n % 5 == 0 { directory(thread * 300) } else { file(thread * 300) };
                held.extend(engine.allocate(&request).map(crate::InodeGrant::into_index));
            }
            held
        };
        let mut all: Vec<u32> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || work(thread))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 2_000, "{}", row.name);
        assert_eq!(engine.free_inodes(), 48, "{}", row.name);
    }
}

#[test]
fn near_forgets_the_lease_of_a_removed_directory() {
    let (_, engine) = new(2, 256, 1, DirectoryPolicyKind::Near);
    let parents: Vec<u32> = (0..2).map(|_| take(&engine, &directory(0))).collect();
    let files: Vec<u32> = (0..16).map(|n| take(&engine, &file(parents[n % 2]))).collect();
    let leased = files[15];
    assert!(leased > 18, "{files:?}");
    engine.free(parents[1], true).unwrap();
    // Any file may have the numbers of the lease now.
    let next: Vec<u32> = (0..40).map(|_| take(&engine, &file(77))).collect();
    assert!(next.contains(&(leased + 1)), "{leased} {next:?}");
}

#[test]
fn a_grant_that_is_dropped_leaves_no_trace_in_the_counters() {
    for row in DIRECTORY_POLICIES {
        let (_, engine) = new(4, 64, 2, row.kind);
        drop(engine.allocate(&directory(0)).unwrap());
        drop(engine.allocate(&file(0)).unwrap());
        assert_eq!(engine.free_inodes(), 256, "{}", row.name);
        assert_eq!((0..4).map(|g| engine.group_dirs(Group(g))).sum::<u32>(), 0, "{}", row.name);
    }
}

/// Model that every policy must agree with: flags.
struct Flags {
    used: Vec<bool>,
    dirs: Vec<bool>,
    per_group: usize,
}

impl Flags {
    fn check(&self, engine: &InodeEngine) -> Result<(), TestCaseError> {
        let free = self.used.iter().filter(|used| !**used).count();
        prop_assert_eq!(engine.free_inodes(), free as u64);
        for (group, flags) in (0u32..).zip(self.used.chunks(self.per_group)) {
            let free = flags.iter().filter(|used| !**used).count();
            prop_assert_eq!(engine.group_free(Group(group)) as usize, free);
        }
        for (group, flags) in (0u32..).zip(self.dirs.chunks(self.per_group)) {
            let dirs = flags.iter().filter(|dir| **dir).count();
            prop_assert_eq!(engine.group_dirs(Group(group)) as usize, dirs);
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn every_policy_agrees_with_flags(
        row in 0..DIRECTORY_POLICIES.len(),
        groups in 1u32..9,
        inodes in prop_oneof![Just(8u32), Just(24), Just(64), Just(136)],
        flex in prop_oneof![Just(1u32), Just(2), Just(4)],
        settings in prop::collection::vec(0u8..6, 4),
        steps in prop::collection::vec((any::<u8>(), any::<u32>()), 1..600),
    ) {
        let row = &DIRECTORY_POLICIES[row];
        // Some parameters at an end of their range.
        let ends = row.tunables.iter().zip(settings).filter_map(|(tunable, end)| {
            Some((tunable.name, *[tunable.least, tunable.most].get(usize::from(end))?))
        });
        let policy = row.kind.tuned(&ends.collect::<Vec<_>>()).unwrap();
        let (space, engine) = volume(layout(groups, inodes, flex), policy);
        let all = groups * inodes;
        let none = vec![false; all as usize];
        let mut flags = Flags { used: none.clone(), dirs: none, per_group: inodes as usize };
        for (what, number) in steps {
            let index = number % all;
            let is_directory = what & 1 == 1;
            match what % 8 {
                0..=4 => {
                    // A few parents, so that some become busy; hashes and parents of any size.
                    let parent = if what & 64 == 0 { number % 5 * 3 } else { number };
                    let request = InodeRequest { parent, is_directory, top_level: what & 32 != 0, name_hash: number, seeded_hash: number, sequential: false };
                    match engine.allocate(&request) {
                        Ok(grant) if what & 128 == 0 => {
                            let got = grant.into_index() as usize;
                            prop_assert!(!flags.used[got]);
                            (flags.used[got], flags.dirs[got]) = (true, is_directory);
                        }
                        Ok(grant) => prop_assert!(!flags.used[grant.index() as usize]),
                        Err(refusal) => {
                            prop_assert_eq!(refusal, InodeRefusal::NoInodes);
                            prop_assert!(flags.used.iter().all(|used| *used));
                        }
                    }
                }
                5 | 6 => {
                    let was_directory = flags.dirs[index as usize];
                    prop_assert_eq!(engine.free(index, was_directory).is_ok(), flags.used[index as usize]);
                    (flags.used[index as usize], flags.dirs[index as usize]) = (false, false);
                }
                _ => {
                    // Free clusters move the limits.
                    let _ = space.allocate(&crate::Request::data(Cluster(u64::from(number)), number % 900)).map(crate::Grant::into_run);
                }
            }
            flags.check(&engine)?;
        }
    }
}
