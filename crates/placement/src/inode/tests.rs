//! Inode engine: order, locality, counters, bitmaps.

use super::*;
use crate::GroupContent;
use crate::policy::BlockPolicyKind;
use proptest::prelude::*;

fn volume(groups: u32, inodes: u32) -> InodeEngine {
    let layout = Layout {
        clusters: u64::from(groups) * 8_192,
        clusters_per_group: 8_192,
        groups,
        inodes_per_group: inodes,
        groups_per_flex: 4,
        block_bytes: 4_096,
        blocks_per_cluster: 1,
    };
    let space = Arc::new(Engine::new(layout, BlockPolicyKind::Lease).unwrap());
    for group in (0..groups).map(Group) {
        space.describe_group(group, 8_192, GroupContent::Uninitialised { used: &[] }).unwrap();
    }
    InodeEngine::new(space, DirectoryPolicyKind::Near)
}

fn fresh(groups: u32, inodes: u32) -> InodeEngine {
    let engine = volume(groups, inodes);
    for group in (0..groups).map(Group) {
        let used = if group.0 == 0 { 10 } else { 0 };
        engine.describe_group(group, inodes - used, 0, InodeContent::Uninitialised { used }).unwrap();
    }
    engine
}

pub(super) fn file(parent: u32) -> InodeRequest {
    InodeRequest {
        parent,
        is_directory: false,
        top_level: false,
        name_hash: 0,
        seeded_hash: 0,
        sequential: false,
    }
}

#[test]
fn sequential_inodes_rise() {
    let engine = fresh(3, 16);
    let request = InodeRequest { sequential: true, ..file(1) };
    let order: Vec<u32> = (0..38).map(|_| engine.allocate(&request).unwrap().into_index()).collect();
    assert_eq!(order, (10..48).collect::<Vec<u32>>());
    assert_eq!(engine.allocate(&request).unwrap_err(), InodeRefusal::NoInodes);
    assert_eq!(engine.free_inodes(), 0);
    engine.free(20, false).unwrap();
    assert_eq!(engine.free(20, false), Err(Denial::Inode { index: 20, expected: "used" }));
    assert_eq!(engine.allocate(&request).unwrap().into_index(), 20);
}

#[test]
fn files_follow_their_directory_and_top_level_directories_spread() {
    let engine = fresh(16, 64);
    let directory = |parent, hash, top_level| InodeRequest {
        is_directory: true,
        top_level,
        name_hash: hash,
        seeded_hash: hash,
        ..file(parent)
    };
    let mut flexes = Vec::new();
    for hash in 0..4 {
        let index = engine.allocate(&directory(1, hash, true)).unwrap().into_index();
        flexes.push(index / 64 / 4);
        let child = engine.allocate(&directory(index, 0, false)).unwrap().into_index();
        assert_eq!(child / 64, index / 64);
        assert_eq!(engine.allocate(&file(child)).unwrap().into_index() / 64, child / 64);
    }
    flexes.sort_unstable();
    flexes.dedup();
    // Flex group 0 has the reserved inodes, so less than the mean is free there.
    assert_eq!(flexes, [1, 2, 3]);
    assert_eq!((0..16).map(|g| engine.group_dirs(Group(g))).sum::<u32>(), 8);
    drop(engine.allocate(&directory(1, 0, true)).unwrap());
    assert_eq!((0..16).map(|g| engine.group_dirs(Group(g))).sum::<u32>(), 8);
}

#[test]
fn bitmaps_are_asked_for_and_checked() {
    let engine = volume(2, 20);
    engine.describe_group(Group(0), 3, 1, InodeContent::Unknown).unwrap();
    engine.describe_group(Group(1), 5, 0, InodeContent::Unknown).unwrap();
    assert!(engine.describe_group(Group(0), 21, 0, InodeContent::Unknown).is_err());
    engine.describe_group(Group(0), 3, 1, InodeContent::Unknown).unwrap();
    assert_eq!(engine.allocate(&file(1)).unwrap_err(), InodeRefusal::NeedBitmap(Group(0)));
    engine.load_group(Group(0), &[0b1111_1101, 0b1110_1111, 0b0000_1101]).unwrap();
    let taken: Vec<u32> = (0..3).map(|_| engine.allocate(&file(1)).unwrap().into_index()).collect();
    assert_eq!(taken, [1, 12, 17]);
    assert_eq!(engine.allocate(&file(1)).unwrap_err(), InodeRefusal::NeedBitmap(Group(1)));
    assert!(engine.load_group(Group(1), &[0xFF, 0xFF, 0xFF]).is_err());
    assert_eq!(engine.allocate(&file(1)).unwrap_err(), InodeRefusal::NoInodes);
    engine.free(19, false).unwrap();
}

proptest! {
    #[test]
    fn agrees_with_flags(
        size in prop_oneof![Just(16u32), Just(24), Just(64), Just(200)],
        steps in prop::collection::vec((any::<u8>(), any::<u32>()), 1..300),
    ) {
        let engine = fresh(5, size);
        let mut used: Vec<bool> = (0..5 * size).map(|index| index < 10).collect();
        for (what, at) in steps {
            let index = at % (5 * size);
            match what % 3 {
                0 => {
                    let request = InodeRequest { sequential: what % 2 == 0, ..file(index) };
                    match engine.allocate(&request) {
                        Ok(grant) => {
                            let got = grant.into_index();
                            prop_assert!(!used[got as usize]);
                            used[got as usize] = true;
                        }
                        Err(refusal) => {
                            prop_assert_eq!(refusal, InodeRefusal::NoInodes);
                            prop_assert!(used.iter().all(|u| *u));
                        }
                    }
                }
                1 => {
                    prop_assert_eq!(engine.free(index, false).is_ok(), used[index as usize]);
                    used[index as usize] = false;
                }
                _ => {
                    let grant = engine.take_exact(index, false);
                    prop_assert_eq!(grant.is_ok(), !used[index as usize]);
                    if let Ok(grant) = grant {
                        grant.into_index();
                        used[index as usize] = true;
                    }
                }
            }
            let mut out = vec![0u8; size.div_ceil(8) as usize + 2];
            for group in 0..5u32 {
                let flags = &used[(group * size) as usize..((group + 1) * size) as usize];
                engine.group_bitmap(Group(group), &mut out).unwrap();
                for bit in 0..out.len() * 8 {
                    let expected = flags.get(bit).copied().unwrap_or(true);
                    prop_assert_eq!(out[bit / 8] >> (bit % 8) & 1 != 0, expected);
                }
                let free = flags.iter().filter(|u| !**u).count();
                prop_assert_eq!(engine.group_free(Group(group)) as usize, free);
            }
        }
    }
}
