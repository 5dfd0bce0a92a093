use proptest::prelude::*;

use super::*;
use crate::units::BlockSize;

fn layouts() -> impl Strategy<Value = Layout> {
    (10u32..=16, any::<bool>()).prop_map(|(log2, checksums)| Layout {
        block_size: BlockSize::from_log2(log2).unwrap(),
        file_types: true,
        checksums,
    })
}

fn layout() -> Layout {
    Layout { block_size: BlockSize::from_bytes(1024).unwrap(), file_types: true, checksums: true }
}

fn root() -> Vec<u8> {
    let mut block = vec![0xEE; 1024];
    let own = InodeNumber::constant(12);
    init_root(&mut block, layout(), (own, InodeNumber::ROOT), HashVersion::HalfMd4, FileBlock(1));
    block
}

#[test]
fn a_new_root_is_byte_exact() {
    let block = root();
    assert_eq!(block[..12], [12, 0, 0, 0, 12, 0, 1, 2, b'.', 0, 0, 0]);
    // `..` covers the rest of the block: 1024 - 12 = 1012 = 0x3F4.
    assert_eq!(block[12..24], [2, 0, 0, 0, 0xF4, 3, 2, 2, b'.', b'.', 0, 0]);
    assert_eq!(block[24..32], [0, 0, 0, 0, 1, 8, 0, 0]);
    // Limit (1024 - 32 - 8) / 8 = 123, count 1, leaf in file block 1.
    assert_eq!(block[32..40], [123, 0, 1, 0, 1, 0, 0, 0]);
    assert!(block[40..].iter().all(|byte| *byte == 0));
    assert_eq!(Root::parse(&block, layout(), false), Ok(Root { version: HashVersion::HalfMd4, levels: 1 }));
}

#[test]
fn limits_are_those_of_the_format() {
    let bare = Layout { checksums: false, ..layout() };
    assert_eq!((Kind::Root.limit(bare), Kind::Node.limit(bare)), (124, 127));
    assert_eq!((Kind::Root.limit(layout()), Kind::Node.limit(layout())), (123, 126));
    let wide = Layout { block_size: BlockSize::from_bytes(65536).unwrap(), ..layout() };
    assert_eq!((Kind::Root.limit(wide), Kind::Node.limit(wide)), (8187, 8190));
}

#[test]
fn each_broken_head_is_named() {
    let cases: [(usize, u8, BrokenIndex); 9] = [
        (4, 16, BrokenIndex::NoDots),
        (6, 2, BrokenIndex::NoDots),
        (16, 0, BrokenIndex::NoDots),
        (18, 1, BrokenIndex::NoDots),
        (24, 1, BrokenIndex::NoDots),
        (28, 6, BrokenIndex::HashVersion(6)),
        (29, 9, BrokenIndex::InfoLength(9)),
        (30, 2, BrokenIndex::Levels(3, 2)),
        (31, 1, BrokenIndex::Flags(1)),
    ];
    for (at, value, expected) in cases {
        let mut block = root();
        block[at] = value;
        assert_eq!(Root::parse(&block, layout(), false), Err(expected), "byte {at}");
    }
    let mut block = root();
    block[30] = 2;
    assert_eq!(Root::parse(&block, layout(), true).unwrap().levels, 3);
    block[30] = 255;
    assert_eq!(Root::parse(&block, layout(), true), Err(BrokenIndex::Levels(256, 3)));
    assert_eq!(Root::parse(&[], layout(), true), Err(BrokenIndex::NoDots));
}

#[test]
fn counts_and_limits_are_checked() {
    for (at, value, expected) in [
        (32, 122, BrokenIndex::Limit(122, 123)),
        (34, 0, BrokenIndex::Count(0, 123)),
        (34, 124, BrokenIndex::Count(124, 123)),
    ] {
        let mut block = root();
        block[at] = value;
        assert_eq!(Index::parse(&block, Kind::Root, layout()).unwrap_err(), expected);
    }
    assert_eq!(Index::parse(&root(), Kind::Node, layout()).unwrap_err(), BrokenIndex::NotCovered);
}

#[test]
fn hashes_lead_to_the_last_entry_not_above() {
    let mut block = vec![0; 1024];
    let entries = [(0, 5), (100, 6), (101, 7), (200, 8)];
    let entries = entries.map(|(hash, block)| IndexEntry { hash, block: FileBlock(block) });
    init_node(&mut block, layout(), entries);
    assert!(looks_like_node(&block, layout()));
    let index = Index::parse(&block, Kind::Node, layout()).unwrap();
    for (hash, expected) in [(0, 0), (98, 0), (100, 1), (102, 2), (198, 2), (200, 3), (u32::MAX, 3)] {
        assert_eq!(index.find(hash), expected, "hash {hash}");
    }
}

proptest! {
    #[test]
    fn insertion_and_splitting_keep_the_list(layout in layouts(), positions in prop::collection::vec(any::<usize>(), 1..200)) {
        for kind in [Kind::Root, Kind::Node] {
            let mut block = vec![0; layout.block_size.bytes_usize()];
            let mut model = vec![IndexEntry { hash: 0, block: FileBlock(1) }];
            match kind {
                Kind::Root => {
                    let own = InodeNumber::ROOT;
                    init_root(&mut block, layout, (own, own), HashVersion::Tea, FileBlock(1));
                }
                Kind::Node => init_node(&mut block, layout, model.clone()),
            }
            for (number, position) in positions.iter().enumerate() {
                let position = position % model.len();
                let entry = IndexEntry { hash: u32::try_from(number).unwrap() << 1, block: FileBlock(9) };
                let fits = model.len() < usize::from(kind.limit(layout));
                prop_assert_eq!(insert_after(&mut block, kind, layout, position, entry), fits);
                if fits {
                    model.insert(position + 1, entry);
                }
            }
            let index = Index::parse(&block, kind, layout).unwrap();
            prop_assert_eq!(index.iter().collect::<Vec<_>>(), model.clone());
            let half = model.len().div_ceil(2);
            truncate(&mut block, kind, layout, u16::try_from(half).unwrap());
            let index = Index::parse(&block, kind, layout).unwrap();
            prop_assert_eq!(index.iter().collect::<Vec<_>>(), model[..half].to_vec());
        }
    }

    #[test]
    fn any_bytes_are_parsed_without_harm(layout in layouts(), mut bytes in prop::collection::vec(any::<u8>(), 0..1100), hash in any::<u32>()) {
        let _ = Root::parse(&bytes, layout, true);
        for kind in [Kind::Root, Kind::Node] {
            if let Ok(index) = Index::parse(&bytes, kind, layout) {
                prop_assert!(index.find(hash) < index.len());
            }
        }
        // What is written to is always a whole block.
        bytes.resize(layout.block_size.bytes_usize(), 0);
        for kind in [Kind::Root, Kind::Node] {
            insert_after(&mut bytes, kind, layout, 3, IndexEntry { hash, block: FileBlock(1) });
            truncate(&mut bytes, kind, layout, 2);
        }
        raise_root(&mut bytes, layout, 3, FileBlock(1));
        init_node(&mut bytes, layout, []);
    }
}
