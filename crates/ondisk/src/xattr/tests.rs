use super::*;
use proptest::prelude::*;

type Owned = (u8, Vec<u8>, Vec<u8>);

fn attributes(most: usize) -> impl Strategy<Value = Vec<Owned>> {
    let name = prop::collection::vec(1_u8..=255, 0..=40);
    let value = prop::collection::vec(any::<u8>(), 0..=120);
    let list = prop::collection::vec((1_u8..=10, name, value), 0..=most);
    list.prop_map(|mut list| {
        list.sort_by(|a, b| (a.0, a.1.len(), &a.1).cmp(&(b.0, b.1.len(), &b.1)));
        list.dedup_by(|a, b| (a.0, &a.1) == (b.0, &b.1));
        list
    })
}

fn entries(list: &[Owned]) -> Vec<Entry<'_>> {
    list.iter().map(|(index, name, value)| Entry::here(NameIndex(*index), name, value)).collect()
}

fn facts(entries: &[Entry<'_>]) -> Vec<Owned> {
    let fact = |entry: &Entry<'_>| match entry.value {
        Value::Here(bytes) => (entry.index.0, entry.name.to_vec(), bytes.to_vec()),
        Value::Inode { .. } => panic!("no such value was stored"),
    };
    entries.iter().map(fact).collect()
}

fn space(list: &[Owned]) -> usize {
    list.iter().map(|(_, name, value)| space_of(name.len(), value.len())).sum()
}

proptest! {
    #[test]
    fn blocks_give_back_what_was_stored(list in attributes(12)) {
        let mut block = vec![0xAA; 1024];
        let stored = store_in_block(&mut block, &entries(&list), 3);
        prop_assert_eq!(stored.is_ok(), space(&list) <= room_in_block(1024));
        if stored.is_ok() {
            let (header, found) = in_block(Block(7), &block).unwrap();
            prop_assert_eq!(header.h_refcount.get(), 3);
            prop_assert_eq!(facts(&found), list);
            for entry in &found {
                let Value::Here(value) = entry.value else { unreachable!() };
                prop_assert_eq!(entry.hash, entry_hash(entry.name, value));
            }
        }
    }

    #[test]
    fn inodes_give_back_what_was_stored(list in attributes(4), size in prop::sample::select(vec![128_u16, 256, 512, 1024])) {
        let mut inode = Inode::blank(InodeNumber::constant(12), size);
        let untouched = inode.bytes()[..128.min(usize::from(size))].to_vec();
        let stored = store_in_inode(&mut inode, &entries(&list));
        prop_assert_eq!(stored.is_ok(), list.is_empty() || space(&list) <= room_in_inode(&inode));
        prop_assert_eq!(&inode.bytes()[..untouched.len()], &untouched[..]);
        if stored.is_ok() {
            prop_assert_eq!(facts(&in_inode(&inode).unwrap()), list);
            store_in_inode(&mut inode, &[]).unwrap();
            prop_assert_eq!(inode, Inode::blank(InodeNumber::constant(12), size));
        }
    }

    #[test]
    fn any_bytes_decode_or_complain(bytes in prop::collection::vec(any::<u8>(), 0..300), first in 0_usize..40) {
        let _ = decode(&bytes, first, Place::Journal);
        let mut inode = Inode::blank(InodeNumber::constant(12), 512);
        let at = inode.attributes_offset().unwrap();
        for (to, from) in inode.bytes_mut()[at + 4..].iter_mut().zip(&bytes) {
            *to = *from;
        }
        inode.bytes_mut()[at..at + 4].copy_from_slice(&MAGIC.to_le_bytes());
        let _ = in_inode(&inode);
    }

    #[test]
    fn damaged_blocks_decode_within_their_size(list in attributes(8), damage in prop::collection::vec((0_usize..1024, any::<u8>()), 1..6)) {
        let mut block = vec![0; 1024];
        prop_assume!(store_in_block(&mut block, &entries(&list), 1).is_ok());
        for (at, byte) in damage {
            block[at] = byte;
        }
        if let Ok((_, found)) = in_block(Block(7), &block) {
            let here = |entry: &Entry<'_>| if let Value::Here(bytes) = entry.value { bytes.len() } else { 0 };
            prop_assert!(found.iter().map(here).sum::<usize>() <= block.len());
        }
    }
}

#[test]
fn hashes_are_those_of_linux() {
    // `setfattr -n user.<e acute>` with 2,000 times "a", Linux 6.18: words of one letter cancel
    // each other, which leaves the hash of the name, its characters unsigned.
    assert_eq!(entry_hash("\u{e9}".as_bytes(), &[b'a'; 2000]), 0x18C9);
    assert_eq!(hash_name(&[0xC3, 0xA9], sign_extended), 0x7D6);
    let entry = Entry::in_value_inode(NameIndex::USER, &[0xC3], InodeNumber::ROOT, 5, 0x1234_5678);
    assert!(entry.agrees_with_value_inode(0x1234_5678));
    assert!(!entry.agrees_with_value_inode(0x1234_5679));
    let signed = Entry { hash: hash_words(sign_extended(0xC3), &0x1234_5678_u32.to_le_bytes()), ..entry };
    assert!(signed.agrees_with_value_inode(0x1234_5678));
    assert_eq!(block_hash([1, 2]), 0x0001_0002);
    assert_eq!(block_hash([1, 0, 2]), 0);
}

#[test]
fn names_round_trip_and_strange_ones_are_refused() {
    for full in ["user.a", "trusted.overlay.opaque", "security.capability", "gnu.translator"] {
        let (index, rest) = split_name(full.as_bytes()).unwrap();
        assert_eq!(full_name(index, rest), full.as_bytes());
    }
    assert_eq!(split_name(b"system.posix_acl_access"), Ok((NameIndex::POSIX_ACL_ACCESS, &b""[..])));
    assert_eq!(full_name(NameIndex::POSIX_ACL_DEFAULT, b""), b"system.posix_acl_default");
    assert_eq!(full_name(NameIndex(77), b"x"), b"unknown-77.x");
    for (name, problem) in [
        ("user.", NameProblem::Malformed),
        ("user.a\0", NameProblem::Malformed),
        ("system.data", NameProblem::Reserved),
        ("system.posix_acl_accessory", NameProblem::Reserved),
        ("encryption.c", NameProblem::Reserved),
        ("btrfs.x", NameProblem::UnknownPrefix),
        ("unknown-77.x", NameProblem::UnknownPrefix),
    ] {
        assert_eq!(split_name(name.as_bytes()), Err(problem), "{name}");
    }
    assert_eq!(split_name(&[b'u'; 256]), Err(NameProblem::TooLong(256)));
}

#[test]
fn broken_rules_are_named() {
    let mut block = vec![0; 1024];
    store_in_block(&mut block, &[Entry::here(NameIndex::USER, b"name", b"value")], 1).unwrap();
    let said = |at: usize, bytes: &[u8]| {
        let mut damaged = block.clone();
        damaged[at..at + bytes.len()].copy_from_slice(bytes);
        in_block(Block(7), &damaged).unwrap_err().to_string()
    };
    assert!(said(0, &[1]).contains("magic"));
    assert!(said(4, &[0]).contains("without references"));
    assert!(said(8, &[2]).contains("in 2 blocks"));
    assert!(said(34, &[0, 0]).contains("lies outside"));
    assert!(said(34, &[0xFE, 3]).contains("lies outside"));
    assert!(said(40, &[0xFF, 0xFF, 0xFF, 0xFF]).contains("lies outside"));
    assert!(said(48, &[0]).contains("NUL"));
    // Found by fuzzing: stored again, it would have ended the list.
    assert!(said(32, &[0, 0]).contains("neither an index nor a name"));
    assert!(in_block(Block(7), &block[..40]).unwrap_err().to_string().contains("over the end"));
    let endless = [1_u8; 1024];
    assert!(decode(&endless[..16], 0, Place::Journal).is_err());
}

#[test]
fn overlapping_values_do_not_multiply() {
    let mut block = vec![0; 1024];
    let names: Vec<Vec<u8>> = (0..20).map(|n| vec![b'a' + n]).collect();
    let list: Vec<Entry<'_>> = names.iter().map(|name| Entry::here(NameIndex::USER, name, b"")).collect();
    store_in_block(&mut block, &list, 1).unwrap();
    for entry in 0..20 {
        let at = HEADER_LEN + entry * 20;
        block[at + 2..at + 4].copy_from_slice(&500_u16.to_le_bytes());
        block[at + 8..at + 12].copy_from_slice(&400_u32.to_le_bytes());
    }
    assert!(in_block(Block(7), &block).unwrap_err().to_string().contains("overlap"));
}

#[test]
fn inodes_without_extra_fields_have_no_attributes() {
    let mut inode = Inode::blank(InodeNumber::constant(12), 256);
    inode.bytes_mut()[128..132].copy_from_slice(&[0; 4]);
    assert_eq!(room_in_inode(&inode), 0);
    assert_eq!(in_inode(&inode).unwrap(), []);
    assert!(store_in_inode(&mut inode, &[Entry::here(NameIndex::USER, b"a", b"")]).is_err());
}
