//! Attribute values with a structure of their own, as the system calls take them.

/// `security.capability` of revision 2: `cap_net_raw` permitted and effective (magic and flags, then permitted and inheritable, low and high).
pub(super) const CAP_NET_RAW: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;

/// A POSIX ACL with entries for `users` further users and one group: version 2, then tag, permissions, identity of each.
pub(super) fn access(users: u32) -> Vec<u8> {
    let mut entries = vec![(USER_OBJ, 6, NO_ID)];
    entries.extend((0..users).map(|user| (USER, 5, 70_000 + user)));
    entries.extend([(GROUP_OBJ, 4, NO_ID), (GROUP, 7, 1234), (MASK, 5, NO_ID), (OTHER, 0, NO_ID)]);
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, identity) in entries {
        let permissions: u16 = permissions;
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(identity.to_le_bytes());
    }
    bytes
}
