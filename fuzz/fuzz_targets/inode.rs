//! Inode records and what hangs on them: times, devices, extent nodes, attributes in the record.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ondisk::extent::Node;
use ondisk::inode::{Inode, TimeField};
use ondisk::units::{BlockSize, InodeNumber};
use ondisk::xattr;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(node) = Node::parse(bytes) {
        let mut stored = bytes.to_vec();
        node.store(&mut stored);
        assert_eq!(Node::parse(&stored).as_ref(), Ok(&node));
    }
    let Some(number) = InodeNumber::new(12) else { return };
    let Ok(mut inode) = Inode::parse(number, bytes) else { return };
    let _ = xattr::in_inode(&inode);
    for log2 in 10..=16 {
        let Some(block_size) = BlockSize::from_log2(log2) else { return };
        let _ = (inode.sectors(block_size), inode.has_map(), inode.is_fast_symlink());
    }
    for field in [TimeField::Access, TimeField::Change, TimeField::Modify] {
        if let Some(time) = inode.time(field) {
            inode.set_time(field, time);
            assert_eq!(inode.time(field).map(|kept| kept.seconds), Some(time.seconds));
        }
    }
    let (major, minor) = inode.device();
    inode.set_device(major, minor);
    let _ = (inode.project(), inode.attribute_block(), inode.size(), inode.file_type());
});
