//! Lies with right checksums: what belongs to the volume itself is never given away or written through a map.

use std::sync::Arc;

use ondisk::group::GroupFlags;
use ondisk::inode::InodeFlags;
use ondisk::superblock::{RawSuperblock, STATE_ERROR};
use ondisk::units::{Block, Group};
use platfs::device::{Device, MemoryDevice};
use platfs::{
    Allocate, Attributes, InodeNumber, Kind, NewInode, OpenOptions, Replace, Volume, WriteOptions, ondisk,
};

use crate::check::plant::{Image, ready};

fn open(image: &Image) -> (Arc<MemoryDevice>, Volume) {
    let device = Arc::new(MemoryDevice::from_bytes(&image.bytes));
    let options = OpenOptions::new().write(true);
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, &options).unwrap();
    (device, volume)
}

fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

fn create(volume: &Volume, name: &str, kind: Kind<'_>) -> platfs::Result<InodeNumber> {
    let new = NewInode { kind, attributes: Attributes::default(), xattrs: &[] };
    volume.create(InodeNumber::ROOT, name.as_bytes(), &new)
}

fn write(volume: &Volume, inode: InodeNumber, offset: u64, data: &[u8]) -> platfs::Result<()> {
    volume.write_at(inode, offset, data, WriteOptions::default())
}

/// Fills the volume with one file.
fn fill(volume: &Volume) {
    let file = create(volume, "filler", Kind::File).unwrap();
    let (mut at, mut len) = (0, 1 << 20);
    while len >= 1024 {
        match write(volume, file, at, &vec![0xD7; len]) {
            Ok(()) => at += len as u64,
            // What was promised of a group that then is left out can't be had.
            Err(error) => {
                assert!(error.to_string().contains("no space"), "{error}");
                len /= 2;
            }
        }
    }
}

/// Says that some blocks are free which are not, with right counts.
fn free_in_bitmap(image: &mut Image, blocks: &[Block]) {
    let geometry = image.format.geometry;
    for block in blocks {
        let group = geometry.group_of_block(*block).unwrap();
        let cluster = geometry.cluster_of(*block).0;
        let bit = (cluster - u64::from(group.0) * u64::from(geometry.clusters_per_group())) as usize;
        image.block_bitmap(group.0, |bitmap| {
            assert!(bitmap[bit / 8] >> (bit % 8) & 1 == 1);
            bitmap[bit / 8] &= !(1 << (bit % 8));
        });
        image.descriptor(group.0, |raw| raw.set_free_clusters(raw.free_clusters() + 1));
        image.superblock(|raw| {
            let more = u64::from(geometry.blocks_per_cluster());
            raw.set_free_blocks_count(raw.free_blocks_count() + more);
        });
    }
}

/// The last block of the inode table of group 0, that of a journal, of an orphan file.
#[test]
fn what_the_volume_needs_itself_is_never_given_away() {
    if !ready("what_the_volume_needs_itself_is_never_given_away") {
        return;
    }
    for base in ["ext4", "ext4_nocsum", "ext2", "ext3", "bigalloc", "meta_bg", "orphan_file", "mmp"] {
        let image = Image::of(base);
        let geometry = image.format.geometry;
        let raw = RawSuperblock::parse(&image.bytes[1024..2048]).unwrap();
        let table = image.read_descriptor(0).inode_table();
        let mut own = vec![Block(table.0 + u64::from(geometry.inode_table_blocks()) - 1)];
        if geometry.groups > 1 && geometry.group_header(Group(1)).count > 0 {
            own.push(geometry.group_start(Group(1)));
        }
        let is_stored = |block: &Block| {
            let group = geometry.group_of_block(*block).unwrap();
            !image.read_descriptor(group.0).flags().contains(GroupFlags::BLOCK_UNINIT)
        };
        own.extend((raw.s_mmp_block.get() != 0).then(|| Block(raw.s_mmp_block.get())));
        for file in [raw.s_journal_inum.get(), raw.s_orphan_file_inum.get()].map(InodeNumber::new) {
            let volume = image.volume();
            let segments = file.map(|file| volume.map(file).unwrap()).into_iter().flatten();
            own.extend(segments.filter_map(|segment| match segment.unwrap().state {
                platfs::State::Mapped(block) => Some(block),
                _ => None,
            }));
        }
        for block in own.into_iter().filter(is_stored) {
            let mut lying = Image::of(base);
            free_in_bitmap(&mut lying, &[block]);
            let before = lying.block(block).to_vec();
            let (device, volume) = open(&lying);
            fill(&volume);
            let damage = volume.space().damage();
            let group = geometry.group_of_block(block).unwrap();
            let named = format!("block bitmap of group {group}: says that block ");
            assert!(damage.iter().any(|wrong| wrong.to_string().starts_with(&named)), "{base}: {damage:?}");
            // With bytes that found no place.
            volume.unlink(InodeNumber::ROOT, b"filler").unwrap();
            volume.close().unwrap();
            let mut after = Image::from_bytes(bytes_of(&device));
            let has_journal = raw.s_journal_inum.get() != 0;
            assert!(has_journal || after.block(block) == before, "{base}: block {block} was overwritten");
            assert!(
                !after.block(block).starts_with(&[0xD7; 64]),
                "{base}: block {block} holds a file's bytes"
            );
            let state = RawSuperblock::parse(&after.bytes[1024..2048]).unwrap().s_state.get();
            assert!(state & STATE_ERROR != 0, "{base}: the superblock does not tell of it");
        }
    }
}

#[test]
fn inodes_in_use_are_never_given_away() {
    if !ready("inodes_in_use_are_never_given_away") {
        return;
    }
    for base in ["ext4", "ext4_nocsum", "ext2"] {
        for number in [7, 8, 11, 14] {
            let mut image = Image::of(base);
            image.inode_bitmap(0, |bitmap| bitmap[(number - 1) / 8] &= !(1 << ((number - 1) % 8)));
            image.descriptor(0, |raw| raw.set_free_inodes(raw.free_inodes() + 1));
            image.superblock(|raw| raw.s_free_inodes_count.set(raw.s_free_inodes_count.get() + 1));
            let victim = InodeNumber::new(number as u32).unwrap();
            let before = image.read_inode(victim).bytes().to_vec();
            let (device, volume) = open(&image);
            for index in 0..20 {
                let made = create(&volume, &format!("new-{index}"), Kind::File).unwrap();
                assert_ne!(made, victim, "{base}");
            }
            let damage = volume.space().damage();
            let told = format!("inode bitmap of group 0: says that inode {number} is free");
            assert!(damage.iter().any(|wrong| wrong.to_string().starts_with(&told)), "{base}: {damage:?}");
            volume.close().unwrap();
            assert!(Image::from_bytes(bytes_of(&device)).read_inode(victim).bytes() == before, "{base}");
        }
    }
}

/// Lets the map of an inode begin at a block.
fn lead(image: &mut Image, number: InodeNumber, to: Block) {
    image.inode(number, |inode| {
        let extents = inode.flags().contains(InodeFlags::EXTENTS);
        let at = if extents { 20 } else { 0 };
        let low = (to.0 as u32).to_le_bytes();
        inode.raw_mut().i_block[at..at + 4].copy_from_slice(&low);
    });
}

#[test]
fn no_map_leads_into_what_the_volume_needs_itself() {
    if !ready("no_map_leads_into_what_the_volume_needs_itself") {
        return;
    }
    for base in ["ext4", "ext4_4k", "ext4_nocsum", "ext2", "ext3", "bigalloc", "meta_bg", "sparse_super2"] {
        let image = Image::of(base);
        let raw = image.read_descriptor(0);
        let mut own = vec![
            (image.format.geometry.group_start(Group(0)), "superblock and descriptors of group 0"),
            (raw.block_bitmap(), "block bitmap of group 0"),
            (raw.inode_bitmap(), "inode bitmap of group 0"),
            (raw.inode_table(), "inode table of group 0"),
        ];
        if RawSuperblock::parse(&image.bytes[1024..2048]).unwrap().s_journal_inum.get() != 0 {
            let journal = image.volume().map(InodeNumber::JOURNAL).unwrap().next().unwrap().unwrap();
            let platfs::State::Mapped(start) = journal.state else { panic!("{journal:?}") };
            own.push((start, "inode 8"));
        }
        let (file, directory) = (image.inode_of("/a/small"), image.inode_of("/a/b"));
        for (block, named) in own {
            let mut lying = Image::of(base);
            lead(&mut lying, file, block);
            lead(&mut lying, directory, block);
            let before = lying.bytes.clone();
            let (device, volume) = open(&lying);
            let mut buffer = [0; 10];
            let told = |done: platfs::Result<()>| {
                let said = done.unwrap_err().to_string();
                let (cluster, _) = (image.format.geometry.cluster_log2, ());
                assert!(cluster > 0 || said.contains(named), "{base}: {said} does not name {named}");
                assert!(said.contains("leads to block"), "{base}: {said}");
            };
            told(write(&volume, file, 3, b"in place"));
            told(volume.read_at(file, 0, &mut buffer).map(|_| ()));
            told(volume.truncate(file, 0));
            told(volume.allocate(file, Allocate::PunchHole, 0, 1 << 20));
            told(
                volume
                    .unlink(volume.lookup(InodeNumber::ROOT, b"a").unwrap(), b"again")
                    .and_then(|()| volume.unlink(volume.lookup(InodeNumber::ROOT, b"a").unwrap(), b"small")),
            );
            told(volume.lookup(directory, b"tiny").map(|_| ()));
            let new = NewInode { kind: Kind::Directory, attributes: Attributes::default(), xattrs: &[] };
            told(volume.create(directory, b"new", &new).map(|_| ()));
            drop(volume);
            let after = bytes_of(&device);
            let len = image.format.geometry.block_size.bytes_usize();
            let at = image.format.geometry.byte_offset(block) as usize;
            // Without a journal the superblock says that the volume is in use, and nothing else has changed.
            let same = |from: usize, to: usize| after[from..to] == before[from..to];
            assert!(same(at.max(2048), (at + len).max(2048)), "{base}: {named} was overwritten");
        }
    }
}

#[test]
fn indirect_blocks_and_attributes_do_not_lead_there_either() {
    if !ready("indirect_blocks_and_attributes_do_not_lead_there_either") {
        return;
    }
    let mut image = Image::of("ext2");
    let (large, small) = (image.inode_of("/large"), image.inode_of("/a/b/c/other"));
    let table = image.read_descriptor(0).inode_table();
    image.inode(large, |inode| {
        inode.raw_mut().i_block[48..52].copy_from_slice(&(table.0 as u32).to_le_bytes());
    });
    image.inode(small, |inode| inode.set_attribute_block(table));
    let before = image.bytes.clone();
    let (device, volume) = open(&image);
    for done in [
        write(&volume, large, 20 << 10, b"behind the direct ones"),
        volume.inode(small).set_xattr(b"user.long", &[7; 900]),
        volume.inode(small).xattr_names().map(|_| ()),
    ] {
        let said = done.unwrap_err().to_string();
        assert!(said.contains("leads to block") && said.contains("inode table of group 0"), "{said}");
    }
    drop(volume);
    assert!(bytes_of(&device)[2048..] == before[2048..]);
}

#[test]
fn structures_that_overlap_are_not_written() {
    if !ready("structures_that_overlap_are_not_written") {
        return;
    }
    let mut image = Image::of("ext4_nojournal");
    let other = image.read_descriptor(1).inode_table();
    image.descriptor(0, |raw| raw.set_block_bitmap(Block(other.0 + 3)));
    let device = Arc::new(MemoryDevice::from_bytes(&image.bytes));
    let opened = Volume::open(device.clone(), &OpenOptions::new().write(true));
    let said = opened.err().unwrap().to_string();
    assert!(said.contains("block bitmap of group 0") && said.contains("inode table of group 1"), "{said}");
    assert!(bytes_of(&device) == image.bytes);
    // Reading does without.
    assert!(Volume::open(device, &OpenOptions::new()).is_ok());
}

#[test]
fn structures_outside_of_their_group_are_not_written() {
    if !ready("structures_outside_of_their_group_are_not_written") {
        return;
    }
    for base in ["ext2", "ext3"] {
        let mut image = Image::of(base);
        // Written, they would be contents of a file.
        let block = image.block_of("/large", 20);
        assert_eq!(image.format.geometry.group_of_block(block), Some(Group(0)));
        let sound = image.bytes.clone();
        for what in ["block bitmap", "inode bitmap", "inode table"] {
            image.bytes.copy_from_slice(&sound);
            image.descriptor(1, |raw| match what {
                "block bitmap" => raw.set_block_bitmap(block),
                "inode bitmap" => raw.set_inode_bitmap(block),
                _ => raw.set_inode_table(block),
            });
            let device = Arc::new(MemoryDevice::from_bytes(&image.bytes));
            let opened = Volume::open(device.clone(), &OpenOptions::new().write(true));
            let said = opened.err().unwrap().to_string();
            let told = format!("{what} of group 1 at block {block} lies outside the group");
            assert!(said.contains(&told), "{base}: {said}");
            assert!(bytes_of(&device) == image.bytes, "{base}");
            // Reading does without.
            assert!(Volume::open(device, &OpenOptions::new()).is_ok());
        }
    }
}

#[test]
fn a_name_of_the_journal_removes_nothing() {
    if !ready("a_name_of_the_journal_removes_nothing") {
        return;
    }
    let mut image = Image::of("ext3");
    let root = image.block_of("/", 0);
    let layout = ondisk::dirent::Layout::new(image.format.geometry.block_size, &image.format.features);
    let block = image.block(root).to_vec();
    let found = ondisk::dirent::find(&block, layout, b"nothing").unwrap().unwrap();
    let at = found.offset;
    image.block(root)[at..at + 4].copy_from_slice(&8_u32.to_le_bytes());
    let (_, volume) = open(&image);
    for done in [
        volume.unlink(InodeNumber::ROOT, b"nothing"),
        volume.lookup(InodeNumber::ROOT, b"nothing").map(|_| ()),
    ] {
        let said = done.unwrap_err().to_string();
        assert!(said.contains("'nothing' leads to inode 8, which the volume keeps for itself"), "{said}");
    }
}

/// Directories whose map is empty, or that have a size of 0 bytes, too.
#[test]
fn a_directory_without_blocks_is_reported_by_every_verb() {
    if !ready("a_directory_without_blocks_is_reported_by_every_verb") {
        return;
    }
    for (base, size) in
        [("ext2", None), ("ext2", Some(0)), ("ext4_nojournal", None), ("ext4_nojournal", Some(0))]
    {
        let mut image = Image::of(base);
        let number = image.inode_of("/a/b/c");
        let (root, above) = (InodeNumber::ROOT, image.inode_of("/a/b"));
        image.inode(number, |inode| {
            let map = &mut inode.raw_mut().i_block;
            // An extent tree without entries; no pointer.
            if map[..2] == [0x0A, 0xF3] {
                map[2..4].fill(0)
            } else {
                map.fill(0)
            }
            inode.set_size(size.unwrap_or(inode.size()));
        });
        let (device, volume) = open(&image);
        let new = |kind| NewInode { kind, attributes: Attributes::default(), xattrs: &[] };
        let file = volume.lookup(root, b"large").unwrap();
        let done: [(&str, platfs::Result<()>); 9] = [
            ("lookup", volume.lookup(number, b"other").map(|_| ())),
            ("list", volume.read_dir(number).and_then(|mut list| list.next().transpose()).map(|_| ())),
            ("create", volume.create(number, b"new", &new(Kind::File)).map(|_| ())),
            ("mkdir", volume.create(number, b"new", &new(Kind::Directory)).map(|_| ())),
            ("link", volume.link(file, number, b"new")),
            ("unlink", volume.unlink(number, b"other")),
            ("rmdir", volume.rmdir(above, b"c")),
            ("rename into", volume.rename(root, b"nothing", number, b"new", Replace::Yes)),
            ("rename out of", volume.rename(number, b"other", root, b"new", Replace::Yes)),
        ];
        for (verb, done) in done {
            let said = done.expect_err(verb).to_string();
            let named = format!("directory inode {number}: it");
            assert!(said.starts_with(&named) && said.ends_with("check the volume"), "{base} {verb}: {said}");
        }
        volume.close().unwrap();
        assert!(bytes_of(&device)[2048..] == image.bytes[2048..], "{base}: something was written");
    }
}
