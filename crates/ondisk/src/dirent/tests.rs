use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn layouts() -> impl Strategy<Value = Layout> {
    (10u32..=16, any::<bool>(), any::<bool>()).prop_map(|(log2, file_types, checksums)| Layout {
        block_size: BlockSize::from_log2(log2).unwrap(),
        file_types,
        checksums,
    })
}

fn layout(block_size: u64) -> Layout {
    Layout { block_size: BlockSize::from_bytes(block_size).unwrap(), file_types: true, checksums: true }
}

fn inode(number: u32) -> InodeNumber {
    InodeNumber::new(number).unwrap()
}

fn names(block: &[u8], layout: Layout) -> Vec<Vec<u8>> {
    let used = entries(block, layout).map(|entry| entry.unwrap()).filter(|entry| entry.inode.is_some());
    used.map(|entry| entry.name.to_vec()).collect()
}

fn insert(block: &mut [u8], layout: Layout, record: &Record<'_>) -> Result<bool, BrokenEntry> {
    let room = find_room(block, layout, record.needs())?;
    if let Some(room) = room {
        insert_at(block, layout, room, record);
    }
    Ok(room.is_some())
}

fn new<'n>(layout: Layout, name: &'n [u8], number: u32) -> Record<'n> {
    Record::new(Name::new(name).unwrap(), inode(number), FileType::Regular, layout)
}

#[test]
fn a_new_directory_is_byte_exact() {
    let layout = layout(1024);
    let mut block = vec![0xAA; 1024];
    init_directory(&mut block, layout, inode(12), InodeNumber::ROOT);
    assert_eq!(block[..12], [12, 0, 0, 0, 12, 0, 1, 2, b'.', 0, 0, 0]);
    // `..` covers all but `.` and the tail: 1024 - 12 - 12 = 1000 = 0x3E8.
    assert_eq!(block[12..24], [2, 0, 0, 0, 0xE8, 3, 2, 2, b'.', b'.', 0, 0]);
    assert_eq!(block[1012..], [0, 0, 0, 0, 12, 0, 0, 0xDE, 0, 0, 0, 0]);
    assert!(has_tail(&block));
}

#[test]
fn blocks_of_64_kib_encode_their_whole_length() {
    let layout = Layout { checksums: false, ..layout(65536) };
    let mut block = vec![0; 65536];
    init_leaf(&mut block, layout);
    assert_eq!(block[4..6], [0xFF, 0xFF]);
    assert_eq!(entries(&block, layout).next().unwrap().unwrap().len, 65536);
    block[4..6].fill(0);
    assert_eq!(entries(&block, layout).next().unwrap().unwrap().len, 65536);
    // The two low bits are the highest of the length: 4 + 0x10000 reaches over the end.
    block[4..6].copy_from_slice(&[5, 0]);
    let broken = entries(&block, layout).next().unwrap().unwrap_err();
    assert_eq!(broken.rule, EntryRule::OverEnd { len: 0x1_0004, left: 65536 });
}

#[test]
fn each_rule_is_reported_with_its_offset() {
    let layout = Layout { checksums: false, ..layout(1024) };
    let mut sound = vec![0; 1024];
    init_directory(&mut sound, layout, inode(12), InodeNumber::ROOT);
    let cases: [(&[u8], EntryRule); 6] = [
        (&[2, 0, 0, 0, 8, 0, 2, 2], EntryRule::TooShort { len: 8 }),
        (&[2, 0, 0, 0, 14, 0, 2, 2], EntryRule::Unaligned { len: 14 }),
        (&[2, 0, 0, 0, 0xF8, 3, 2, 2], EntryRule::OverEnd { len: 1016, left: 1012 }),
        (&[2, 0, 0, 0, 0xEC, 3, 2, 2], EntryRule::LeavesScrap { len: 1004, left: 8 }),
        (&[2, 0, 0, 0, 12, 0, 5, 2], EntryRule::NameOverEnd { name_len: 5, len: 12 }),
        (&[2, 0, 0, 0, 12, 0, 0, 2], EntryRule::NoName { len: 12 }),
    ];
    for (header, rule) in cases {
        let mut block = sound.clone();
        block[12..20].copy_from_slice(header);
        let broken = BrokenEntry { offset: 12, rule };
        assert_eq!(entries(&block, layout).nth(1), Some(Err(broken)));
        assert_eq!(entries(&block, layout).count(), 2, "the walk goes on behind {rule}");
        assert_eq!(find(&block, layout, b"x"), Err(broken));
        assert_eq!(insert(&mut block, layout, &new(layout, b"x", 3)), Err(broken));
        assert_eq!(remove(&mut block, layout, 12), Err(broken));
    }
    assert_eq!(entries_without_tail(&[1; 5], layout).next().unwrap().unwrap_err().rule, EntryRule::NoHeader);
}

#[test]
fn removed_names_leave_no_trace() {
    let layout = layout(1024);
    let mut block = vec![0; 1024];
    init_leaf(&mut block, layout);
    for (number, name) in [(20, b"secret"), (21, b"public"), (22, b"hidden")] {
        assert!(insert(&mut block, layout, &new(layout, name, number)).unwrap());
    }
    for name in [b"secret", b"hidden"] {
        let offset = find(&block, layout, name).unwrap().unwrap().offset;
        assert!(remove(&mut block, layout, offset).unwrap());
        assert!(!remove(&mut block, layout, offset).unwrap());
        assert!(!block.windows(6).any(|window| window == name));
    }
    assert_eq!(names(&block, layout), [b"public"]);
}

#[test]
fn a_target_changes_in_place() {
    let layout = layout(1024);
    let mut block = vec![0; 1024];
    init_directory(&mut block, layout, inode(12), inode(13));
    assert!(retarget(&mut block, layout, 12, inode(77), FileType::Directory).unwrap());
    assert!(!retarget(&mut block, layout, 16, inode(78), FileType::Directory).unwrap());
    assert_eq!(find(&block, layout, b"..").unwrap().unwrap().inode, Some(inode(77)));
}

#[test]
fn types_are_stored_only_with_the_feature() {
    let with = layout(1024);
    let without = Layout { file_types: false, ..with };
    let mut block = vec![0; 1024];
    init_leaf(&mut block, without);
    insert(&mut block, without, &new(without, b"x", 3)).unwrap();
    assert_eq!(find(&block, without, b"x").unwrap().unwrap().type_code, 0);
    block[7] = 1;
    assert_eq!(find(&block, without, b"x").unwrap().unwrap().file_type(without), None);
    assert_eq!(find(&block, with, b"x").unwrap().unwrap().file_type(with), Some(FileType::Regular));
}

#[test]
fn names_obey_their_rules() {
    assert_eq!(Name::new(b""), Err(BadName::Empty));
    assert_eq!(Name::new(&[b'n'; 256]), Err(BadName::TooLong(256)));
    assert_eq!(Name::new(b"a/b"), Err(BadName::Byte(b'/')));
    assert_eq!(Name::new(b"a\0b"), Err(BadName::Byte(0)));
    assert!(Name::new(&[0xFF; 255]).is_ok() && Name::new(b"..").unwrap().is_dots());
}

fn legal_name() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("not in names", |byte| !matches!(byte, 0 | b'/'));
    prop_oneof![
        prop::collection::vec(Just(b'n'), 1..=20),
        prop::collection::vec(byte.clone(), 1..=4),
        prop::collection::vec(byte, 1..=255)
    ]
}

proptest! {
    #[test]
    fn a_block_holds_what_a_map_holds(
        layout in layouts(),
        steps in prop::collection::vec((any::<bool>(), legal_name(), 1u32..9999), 1..300),
    ) {
        let mut block = vec![0xEE; layout.block_size.bytes_usize()];
        init_leaf(&mut block, layout);
        let mut model = BTreeMap::new();
        for (put_in, name, number) in steps {
            let held = find(&block, layout, &name).unwrap();
            prop_assert_eq!(held.and_then(|entry| entry.inode), model.get(&name).map(|n| inode(*n)));
            if let Some(entry) = held {
                if !put_in {
                    let offset = entry.offset;
                    prop_assert!(remove(&mut block, layout, offset).unwrap());
                    model.remove(&name);
                }
            } else if insert(&mut block, layout, &new(layout, &name, number)).unwrap() {
                model.insert(name, number);
            } else {
                let used: usize = model.keys().map(|name| entry_len(name.len())).sum();
                // Refused only when it does not fit one hole; with no hole it must.
                prop_assert!(used > 0 || entry_len(name.len()) > layout.leaf_space());
            }
        }
        let mut held = names(&block, layout);
        held.sort();
        prop_assert_eq!(held, model.into_keys().collect::<Vec<_>>());
        prop_assert_eq!(has_tail(&block), layout.checksums);
        let covered: usize = entries(&block, layout).map(|entry| entry.unwrap().len).sum();
        prop_assert_eq!(covered, layout.leaf_space());
    }

    #[test]
    fn filled_blocks_read_back(layout in layouts(), list in prop::collection::vec(legal_name(), 0..40)) {
        let mut block = vec![0xEE; layout.block_size.bytes_usize()];
        let fits = list.iter().map(|name| entry_len(name.len())).sum::<usize>() <= layout.leaf_space();
        let records = list.iter().map(|name| new(layout, name, 7));
        prop_assert_eq!(fill(&mut block, layout, records), fits);
        if fits {
            prop_assert_eq!(names(&block, layout), list);
        }
    }

    #[test]
    fn any_bytes_are_walked_without_harm(
        layout in layouts(),
        mut bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(12)], 0..2100),
    ) {
        let walked: Vec<_> = entries(&bytes, layout).collect();
        prop_assert!(walked.len() <= bytes.len() / MIN_ENTRY_LEN + 1);
        let sound = walked.iter().filter_map(|entry| entry.ok());
        prop_assert!(sound.map(|entry| entry.len).sum::<usize>() <= bytes.len());
        let len = bytes.len();
        let _ = insert(&mut bytes, layout, &new(layout, b"name", 5));
        let _ = remove(&mut bytes, layout, len / 8 * 4);
        let _ = retarget(&mut bytes, layout, 12, inode(5), FileType::Fifo);
        let _ = inline_parent(&bytes);
        fill(&mut bytes, layout, [new(layout, b"name", 5)]);
        prop_assert_eq!(bytes.len(), len);
    }
}

#[test]
fn an_index_root_may_end_in_what_was_a_tail() {
    // The kernel leaves the leaf's tail where it was, but for the half that the index's own tail covers.
    let layout = layout(1024);
    let mut block = vec![0; 1024];
    init_directory(&mut block, layout, inode(12), InodeNumber::ROOT);
    block[16..18].copy_from_slice(&(1024u16 - 12).to_le_bytes());
    assert!(has_tail(&block));
    assert_eq!(names(&block, layout), [b".".to_vec(), b"..".to_vec()]);
    // A node's only entry covers all of it.
    block[..8].copy_from_slice(&[0, 0, 0, 0, 0, 4, 0, 0]);
    assert_eq!(names(&block, layout), Vec::<Vec<u8>>::new());
}
