//! Directory blocks: linear entries and index nodes, read and changed.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ondisk::dirent::{self, Layout, Name, Record};
use ondisk::htree::{Index, Kind, Root};
use ondisk::inode::FileType;
use ondisk::units::{BlockSize, InodeNumber};

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, block)) = bytes.split_first() else { return };
    let Some(block_size) = BlockSize::from_log2(10 + u32::from(choice & 7) % 7) else { return };
    let layout = Layout { block_size, file_types: choice & 8 != 0, checksums: choice & 16 != 0 };
    // Most blocks are of full length; shorter ones are inline directories.
    let mut block = block.to_vec();
    if choice & 32 == 0 {
        block.resize(block_size.bytes_usize(), choice);
    }
    let names: Vec<Vec<u8>> =
        dirent::entries(&block, layout).flatten().map(|entry| entry.name.to_vec()).collect();
    let _ = dirent::entries_without_tail(&block, layout).count();
    let _ = dirent::has_tail(&block);

    let _ = Root::parse(&block, layout, choice & 64 != 0);
    for kind in [Kind::Root, Kind::Node] {
        if let Ok(index) = Index::parse(&block, kind, layout) {
            let _ = (index.iter().count(), index.find(u32::from(choice)), index.get(usize::from(choice)));
        }
    }
    if choice & 32 != 0 {
        return;
    }
    let Some(inode) = InodeNumber::new(12) else { return };
    if let Ok(name) = Name::new(b"a name") {
        let record = Record::new(name, inode, FileType::Regular, layout);
        if let Ok(Some(room)) = dirent::find_room(&block, layout, record.needs()) {
            dirent::insert_at(&mut block, layout, room, &record);
            assert!(dirent::find(&block, layout, b"a name").is_ok_and(|found| found.is_some()));
        }
    }
    for name in names.iter().take(4) {
        if let Ok(Some(entry)) = dirent::find(&block, layout, name) {
            let offset = entry.offset;
            let _ = dirent::remove(&mut block, layout, offset);
        }
    }
});
