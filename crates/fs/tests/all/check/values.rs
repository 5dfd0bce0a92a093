//! Faults of attribute values in inodes of their own.

use ondisk::inode::InodeFlags;
use ondisk::xattr::{self, Value};
use platfs::{InodeNumber, ondisk};

use crate::check::plant::{Image, planted};

/// The inode that holds the value of an attribute of a file.
fn value_of(image: &mut Image, path: &str) -> InodeNumber {
    let inode = image.read_inode(image.inode_of(path));
    let block = inode.attribute_block();
    let bytes = if block.0 == 0 { None } else { Some(image.block(block).to_vec()) };
    let mut entries = xattr::in_inode(&inode).unwrap();
    if let Some(bytes) = &bytes {
        entries.extend(xattr::in_block(block, bytes).unwrap().1);
    }
    let number = entries.iter().find_map(|entry| match entry.value {
        Value::Inode { number, .. } => Some(number),
        Value::Here(_) => None,
    });
    number.expect("a value in an inode of its own")
}

#[test]
fn counts_of_references() {
    planted(
        "ea_inode",
        |image| {
            let number = value_of(image, "large");
            image.inode(number, |inode| {
                let count = inode.raw().i_version_lo.get();
                inode.raw_mut().i_version_lo.set(count + 1);
            });
        },
        &["xattr-value-references"],
    );
}

#[test]
fn a_value_without_its_mark() {
    planted(
        "ea_inode",
        |image| {
            let number = value_of(image, "large");
            image.inode(number, |inode| inode.set_flags(inode.flags() - InodeFlags::EA_INODE));
        },
        &["xattr-value-inode"],
    );
}
