//! Attribute blocks, ACLs and quota files.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ondisk::acl::Acl;
use ondisk::quota::{self, QuotaKind};
use ondisk::units::Block;
use ondisk::xattr;

fuzz_target!(|bytes: &[u8]| {
    let _ = xattr::in_block(Block(7), bytes);
    // Without this, few inputs would pass the magic number.
    let mut block = bytes.to_vec();
    if let Some(magic) = block.get_mut(..4) {
        magic.copy_from_slice(&0xea02_0000_u32.to_le_bytes());
    }
    if block.len() <= 65_536
        && let Ok((_, entries)) = xattr::in_block(Block(7), &block)
    {
        // What was found fits where it was found, and comes out again.
        let mut stored = vec![0; block.len()];
        assert!(xattr::store_in_block(&mut stored, &entries, 1).is_ok());
        assert_eq!(xattr::in_block(Block(7), &stored).map(|(_, again)| again.len()), Ok(entries.len()));
    }
    for acl in [Acl::from_disk(bytes), Acl::from_xattr(bytes)].into_iter().flatten() {
        let _ = acl.check();
        assert!(Acl::from_disk(&acl.to_disk()).is_ok());
        assert!(Acl::from_xattr(&acl.to_xattr()).is_ok());
    }
    let _ = quota::decode(QuotaKind::User, bytes);
});
