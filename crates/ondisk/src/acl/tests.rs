use super::*;
use proptest::prelude::*;

fn any_entry() -> impl Strategy<Value = AclEntry> {
    let subject = prop_oneof![
        Just(Subject::Owner),
        (0..u32::MAX).prop_map(Subject::User),
        Just(Subject::OwningGroup),
        (0..u32::MAX).prop_map(Subject::Group),
        Just(Subject::Mask),
        Just(Subject::Others),
    ];
    (subject, 0_u16..8).prop_map(|(subject, permissions)| AclEntry { subject, permissions })
}

proptest! {
    #[test]
    fn both_forms_round_trip(entries in prop::collection::vec(any_entry(), 0..40)) {
        let acl = Acl { entries };
        prop_assert_eq!(&Acl::from_disk(&acl.to_disk()).unwrap(), &acl);
        prop_assert_eq!(&Acl::from_xattr(&acl.to_xattr()).unwrap(), &acl);
    }

    #[test]
    fn any_bytes_decode_or_complain(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = Acl::from_disk(&bytes);
        let _ = Acl::from_xattr(&bytes);
        let mut dressed = vec![1, 0, 0, 0];
        dressed.extend(bytes);
        if let Ok(acl) = Acl::from_disk(&dressed) {
            prop_assert_eq!(acl.to_disk(), dressed);
            let _ = acl.check();
        }
    }
}

/// `setfacl -m u:70000:rx,g:1234:rwx` on a file of mode 0640, as Linux stores it.
const ON_DISK: [u8; 36] = [
    1, 0, 0, 0, // version
    1, 0, 6, 0, // owner
    2, 0, 5, 0, 0x70, 0x11, 1, 0, // user 70000
    4, 0, 4, 0, // owning group
    8, 0, 7, 0, 0xD2, 4, 0, 0, // group 1234
    0x10, 0, 7, 0, // mask
    0x20, 0, 0, 0, // others
];

#[test]
fn the_form_of_the_disk_is_that_of_linux() {
    let acl = Acl::from_disk(&ON_DISK).unwrap();
    acl.check().unwrap();
    assert_eq!(acl.entries()[1], AclEntry { subject: Subject::User(70_000), permissions: 5 });
    assert_eq!(acl.to_disk(), ON_DISK);
    assert_eq!(acl.to_xattr().len(), 4 + 6 * 8);
    assert_eq!(&acl.to_xattr()[..12], [2, 0, 0, 0, 1, 0, 6, 0, 0xFF, 0xFF, 0xFF, 0xFF]);
}

#[test]
fn invalid_lists_name_the_rule() {
    let list = |subjects: &[Subject]| Acl {
        entries: subjects.iter().map(|subject| AclEntry { subject: *subject, permissions: 4 }).collect(),
    };
    use Subject::{Group, Mask, Others, Owner, OwningGroup, User};
    assert!(list(&[]).check().is_ok());
    assert!(list(&[Owner, OwningGroup, Others]).check().is_ok());
    assert!(list(&[Owner, User(5), User(1), OwningGroup, Mask, Others]).check().is_ok());
    for (subjects, complaint) in [
        (&[Owner, Others][..], "POSIX ACL: no entry with tag 0x4"),
        (&[Owner, OwningGroup, Group(1), Others], "POSIX ACL: names users or groups without a mask"),
        (&[Owner, Owner, OwningGroup, Others], "POSIX ACL: tag 0x1 after 0x1"),
        (&[OwningGroup, Owner, Others], "POSIX ACL: tag 0x1 after 0x4"),
    ] {
        assert_eq!(list(subjects).check().unwrap_err().to_string(), complaint);
    }
    for (bytes, complaint) in [
        (&[][..], "ends in the middle of an entry"),
        (&[3, 0, 0, 0], "version 3 instead of 1"),
        (&[1, 0, 0, 0, 3, 0, 0, 0], "unknown tag 0x3"),
        (&[1, 0, 0, 0, 1, 0, 8, 0], "permissions 0o10 of tag 0x1"),
        (&[1, 0, 0, 0, 2, 0, 7, 0], "ends in the middle"),
        (&[1, 0, 0, 0, 2, 0, 7, 0, 255, 255, 255, 255], "names nobody"),
    ] {
        let said = Acl::from_disk(bytes).unwrap_err().to_string();
        assert!(said.contains(complaint), "{said}");
    }
}

fn list(entries: &[(Subject, u16)]) -> Acl {
    Acl {
        entries: entries
            .iter()
            .map(|(subject, permissions)| AclEntry { subject: *subject, permissions: *permissions })
            .collect(),
    }
}

#[test]
fn the_mask_stands_for_the_group_in_the_mode() {
    let named = list(&[
        (Subject::Owner, 7),
        (Subject::User(5), 6),
        (Subject::OwningGroup, 5),
        (Subject::Mask, 4),
        (Subject::Others, 1),
    ]);
    assert_eq!(named.mode(), 0o741);
    assert!(!named.is_just_a_mode());
    let changed = named.with_mode(0o620);
    assert_eq!(changed.mode(), 0o620);
    assert_eq!(changed.entries()[2].permissions, 5, "the group keeps what the mask now hides");
    assert_eq!(named.inherited(0o666).mode(), 0o640);
    let plain = list(&[(Subject::Owner, 6), (Subject::OwningGroup, 4), (Subject::Others, 0)]);
    assert!(plain.is_just_a_mode());
    assert_eq!((plain.mode(), plain.with_mode(0o077).mode()), (0o640, 0o077));
}
