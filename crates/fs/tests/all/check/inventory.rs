//! All metadata of a base, field by field, and which bytes each file's contents depend on.

use std::collections::BTreeSet;
use std::ops::Range;

use ondisk::extent::{Entries, Node};
use ondisk::features::Compat;
use ondisk::htree;
use ondisk::inode::{FileType, Inode, InodeFlags, OLD_SIZE};
use ondisk::units::{Block, InodeNumber};
use platfs::ondisk;

use super::plant::Image;

/// How the checksum of a structure is made right again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seal {
    None,
    Superblock,
    Descriptor(u32),
    BlockBitmap(u32),
    InodeBitmap(u32),
    Inode(InodeNumber),
    Extents(InodeNumber),
    Leaf(InodeNumber),
    /// With the offset of the count.
    Index(InodeNumber, usize),
    Attributes(Block),
    Journal,
}

/// A structure with fields.
#[derive(Clone, Debug)]
pub struct Structure {
    /// Class of the structure; those of one class have alike fields.
    pub class: &'static str,
    /// Which one.
    pub name: String,
    pub at: u64,
    pub len: u64,
    /// Offsets and widths of fields.
    pub fields: Vec<(u64, u64)>,
    pub seal: Seal,
}

impl Structure {
    /// The inode of whose map it is a block.
    pub fn map_of(&self) -> Option<u32> {
        if !matches!(self.class, "extents" | "pointers") {
            return None;
        }
        self.name.rsplit(' ').next()?.parse().ok()
    }

    /// The directory of which it is a block.
    pub fn directory(&self) -> Option<u32> {
        self.name.split_once(" of directory ")?.1.parse().ok()
    }
}

/// A file and all that its contents depend on.
pub struct Kept {
    pub inode: InodeNumber,
    pub needs: Vec<Range<u64>>,
}

/// Structures that may be mutated, and files that must survive.
#[derive(Default)]
pub struct Inventory {
    pub structures: Vec<Structure>,
    pub files: Vec<Kept>,
}

/// Consecutive fields of these widths from an offset on.
fn fields(start: u64, widths: &[u64]) -> Vec<(u64, u64)> {
    let mut at = start;
    widths
        .iter()
        .map(|width| {
            at += width;
            (at - width, *width)
        })
        .collect()
}

fn words(start: u64, end: u64) -> Vec<(u64, u64)> {
    (start..end).step_by(4).map(|at| (at, 4)).collect()
}

/// Header and entries of an extent node.
fn extent_fields(start: u64, bytes: &[u8]) -> Vec<(u64, u64)> {
    let mut all = fields(start, &[2, 2, 2, 2, 4]);
    let count = u64::from(u16::from_le_bytes([bytes[2], bytes[3]]));
    for entry in 0..count.min(30) {
        all.extend(fields(start + 12 + entry * 12, &[4, 2, 2, 4]));
    }
    all
}

fn attribute_entry_fields(start: u64, bytes: &[u8]) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    let mut at = start as usize;
    while let Some([len, index, ..]) = bytes.get(at..at + 4)
        && (*len, *index) != (0, 0)
    {
        all.extend(fields(at as u64, &[1, 1, 2, 4, 4, 4]));
        at += 16 + usize::from(*len).next_multiple_of(4);
    }
    all
}

fn leaf_fields(bytes: &[u8]) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    let mut at = 0;
    while let Some([_, _, _, _, a, b, len, _]) = bytes.get(at..at + 8) {
        all.extend(fields(at as u64, &[4, 2, 1, 1]));
        if *len > 0 {
            all.push((at as u64 + 8, 1));
        }
        at += usize::from(u16::from_le_bytes([*a, *b])).max(8);
    }
    all
}

impl Inventory {
    pub fn of(image: &mut Image) -> Self {
        let mut all = Inventory::default();
        all.superblock();
        all.groups(image);
        for number in 1..=image.format.geometry.inodes() {
            let number = InodeNumber::new(number).unwrap();
            let inode = image.read_inode(number);
            if inode.links() > 0 || inode.size() > 0 {
                all.inode(image, &inode);
            }
        }
        all
    }

    fn put(
        &mut self,
        class: &'static str,
        name: String,
        place: (u64, u64),
        fields: Vec<(u64, u64)>,
        seal: Seal,
    ) {
        self.structures.push(Structure { class, name, at: place.0, len: place.1, fields, seal });
    }

    fn superblock(&mut self) {
        let mut all = words(0, 0x34);
        all.extend(fields(0x34, &[2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 2, 2, 4, 2, 2, 4, 4, 4]));
        all.extend(fields(0xC8, &[4, 1, 1, 2]));
        all.extend(fields(0xE0, &[4, 4, 4, 4, 4, 4, 4, 1, 1, 2, 4, 4, 4]));
        all.extend(fields(0x150, &[4, 4, 4, 2, 2, 4, 2, 2, 8, 4, 1, 1, 2]));
        all.extend(fields(0x240, &[4, 4, 4, 4, 4]));
        all.extend(fields(0x268, &[4, 4, 4]));
        all.extend(fields(0x27C, &[2, 2, 4]));
        all.push((0x3FC, 4));
        self.put("superblock", "superblock".into(), (1024, 1024), all, Seal::Superblock);
    }

    fn groups(&mut self, image: &mut Image) {
        let geometry = image.format.geometry;
        let block = u64::from(geometry.block_size.bytes());
        for group in 0..geometry.groups {
            let at = image.descriptor_at(group) as u64;
            let raw = image.read_descriptor(group);
            let size = u64::from(geometry.descriptor_size);
            let mut all = fields(0, &[4, 4, 4, 2, 2, 2, 2, 4, 2, 2, 2, 2]);
            if size >= 64 {
                all.extend(fields(32, &[4, 4, 4, 2, 2, 2, 2, 4, 2, 2, 4]));
            }
            self.put("descriptor", format!("descriptor {group}"), (at, size), all, Seal::Descriptor(group));
            let place = geometry.byte_offset(raw.block_bitmap());
            let bytes = u64::from(geometry.clusters_per_group() / 8);
            let name = format!("block bitmap {group}");
            self.put(
                "bitmap",
                name,
                (place, block),
                (0..bytes).map(|at| (at, 1)).collect(),
                Seal::BlockBitmap(group),
            );
            let place = geometry.byte_offset(raw.inode_bitmap());
            let bytes = u64::from(geometry.inodes_per_group / 8);
            let name = format!("inode bitmap {group}");
            self.put(
                "bitmap",
                name,
                (place, block),
                (0..bytes).map(|at| (at, 1)).collect(),
                Seal::InodeBitmap(group),
            );
        }
    }

    fn inode(&mut self, image: &mut Image, inode: &Inode) {
        let number = inode.number();
        let size = u64::from(image.format.geometry.inode_size);
        let at = image.inode_at(number) as u64;
        let mut all = fields(0, &[2, 2, 4, 4, 4, 4, 4, 2, 2, 4, 4, 4]);
        let extents = inode.flags().contains(InodeFlags::EXTENTS);
        all.extend(if extents { extent_fields(0x28, &inode.raw().i_block) } else { words(0x28, 0x64) });
        all.extend(fields(0x64, &[4, 4, 4, 4, 2, 2, 2, 2, 2, 2]));
        if size > OLD_SIZE as u64 {
            all.extend(fields(0x80, &[2, 2, 4, 4, 4, 4, 4, 4, 4]));
            if let Some(start) = inode.attributes_offset() {
                all.push((start as u64, 4));
                all.extend(attribute_entry_fields(start as u64 + 4, inode.bytes()));
            }
        }
        self.put("inode", format!("inode {number}"), (at, size), all, Seal::Inode(number));

        let mut needs: Vec<Range<u64>> = std::iter::once(at..at + size).collect();
        let mut data = Vec::new();
        if inode.has_map() {
            self.map(image, inode, &mut data, &mut needs);
        }
        let block = image.format.geometry.block_size.bytes_usize() as u64;
        let place = |image: &Image, block: Block| image.format.geometry.byte_offset(block);
        needs.extend(data.iter().map(|at| place(image, *at)..place(image, *at) + block));
        let acl = inode.attribute_block();
        if acl.0 != 0 {
            let bytes = image.block(acl).to_vec();
            let mut all = words(0, 32);
            all.extend(attribute_entry_fields(32, &bytes));
            let at = place(image, acl);
            if !self.structures.iter().any(|known| known.at == at) {
                self.put(
                    "attributes",
                    format!("attribute block {acl}"),
                    (at, block),
                    all,
                    Seal::Attributes(acl),
                );
            }
        }
        let raw = ondisk::superblock::RawSuperblock::parse(&image.bytes[1024..2048]).unwrap();
        // Files of the volume itself: repairs write their contents.
        let own = [raw.s_orphan_file_inum, raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum];
        let is_own = number.get() < 11 || own.map(|own| own.get()).contains(&number.get());
        match inode.file_type() {
            Some(FileType::Directory) => self.directory(image, inode, &data),
            Some(FileType::Regular | FileType::Symlink) if !is_own => {
                self.files.push(Kept { inode: number, needs });
            }
            _ => self.special(image, inode, &data),
        }
    }

    /// Structures of a map: extent nodes or blocks of pointers. Fills `data` in the order of the file.
    fn map(&mut self, image: &mut Image, inode: &Inode, data: &mut Vec<Block>, needs: &mut Vec<Range<u64>>) {
        let number = inode.number();
        let len = image.format.geometry.block_size.bytes_usize() as u64;
        if !inode.flags().contains(InodeFlags::EXTENTS) {
            let pointers: Vec<u32> = inode
                .raw()
                .i_block
                .chunks(4)
                .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
                .collect();
            data.extend(
                pointers[..12].iter().filter(|block| **block != 0).map(|block| Block((*block).into())),
            );
            for (level, pointer) in pointers[12..].iter().enumerate().filter(|(_, block)| **block != 0) {
                self.pointers(image, number, Block((*pointer).into()), level, (data, needs));
            }
            return;
        }
        let mut waiting = vec![inode.raw().i_block.to_vec()];
        while let Some(bytes) = waiting.pop() {
            match Node::parse(&bytes).unwrap().entries {
                Entries::Leaf(extents) => {
                    for extent in extents {
                        data.extend((0..u64::from(extent.count)).map(|at| Block(extent.start.0 + at)));
                    }
                }
                Entries::Index(children) => {
                    for child in children.iter().rev() {
                        let bytes = image.block(child.node).to_vec();
                        let at = image.format.geometry.byte_offset(child.node);
                        let name = format!("extent node {} of inode {number}", child.node);
                        self.put("extents", name, (at, len), extent_fields(0, &bytes), Seal::Extents(number));
                        needs.push(at..at + len);
                        waiting.push(bytes);
                    }
                }
            }
        }
    }

    fn pointers(
        &mut self,
        image: &mut Image,
        number: InodeNumber,
        block: Block,
        level: usize,
        into: (&mut Vec<Block>, &mut Vec<Range<u64>>),
    ) {
        let bytes = image.block(block).to_vec();
        let at = image.format.geometry.byte_offset(block);
        let name = format!("pointer block {block} of inode {number}");
        self.put("pointers", name, (at, bytes.len() as u64), words(0, 160), Seal::None);
        into.1.push(at..at + bytes.len() as u64);
        for word in bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())) {
            match (word, level) {
                (0, _) => {}
                (_, 0) => into.0.push(Block(word.into())),
                _ => self.pointers(image, number, Block(word.into()), level - 1, (into.0, into.1)),
            }
        }
    }

    fn directory(&mut self, image: &mut Image, inode: &Inode, data: &[Block]) {
        let number = inode.number();
        let len = image.format.geometry.block_size.bytes_usize() as u64;
        let indexed = inode.flags().contains(InodeFlags::INDEX);
        let layout = ondisk::dirent::Layout::new(image.format.geometry.block_size, &image.format.features);
        for (position, block) in data.iter().enumerate() {
            let bytes = image.block(*block).to_vec();
            let at = image.format.geometry.byte_offset(*block);
            let count_at = match position {
                0 if indexed => Some(htree::ROOT_ENTRIES),
                _ if indexed && htree::looks_like_node(&bytes, layout) => Some(htree::NODE_ENTRIES),
                _ => None,
            };
            let name = format!("block {position} of directory {number}");
            if let Some(start) = count_at {
                let mut all = fields(0, &[4, 2, 1, 1, 4, 4, 2, 1, 1, 4, 4, 1, 1, 1, 1]);
                all.truncate(if position == 0 { 15 } else { 2 });
                all.extend(fields(start as u64, &[2, 2, 4]));
                all.extend((1..8).flat_map(|entry| fields(start as u64 + 8 * entry, &[4, 4])));
                self.put("index", name, (at, len), all, Seal::Index(number, start));
            } else {
                self.put("leaf", name, (at, len), leaf_fields(&bytes), Seal::Leaf(number));
            }
        }
    }

    /// Files of the volume itself: the journal's superblock, quota trees, orphans.
    fn special(&mut self, image: &mut Image, inode: &Inode, data: &[Block]) {
        let number = inode.number();
        let len = image.format.geometry.block_size.bytes_usize() as u64;
        let Some(first) = data.first() else { return };
        let at = image.format.geometry.byte_offset(*first);
        if number.get() == 8 && image.format.features.compat.contains(Compat::HAS_JOURNAL) {
            let all = [words(0, 0x30), words(0x40, 0x60), vec![(0x50, 1), (0xFC, 4)]].concat();
            self.put("journal", "journal superblock".into(), (at, len), all, Seal::Journal);
            return;
        }
        let mut seen = BTreeSet::new();
        for block in data.iter().take(8).filter(|block| seen.insert(block.0)) {
            let at = image.format.geometry.byte_offset(*block);
            let name = format!("block {block} of inode {number}");
            self.put("special", name, (at, len), words(0, 96), Seal::None);
        }
    }
}
