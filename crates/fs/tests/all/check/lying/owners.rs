//! The owner of each block and each inode record of a sound image, and what of it was changed.

use std::collections::{BTreeMap, BTreeSet};

use ondisk::inode::{FileType, InodeFlags};
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, Group};
use platfs::{InodeNumber, State, ondisk};

use super::super::inventory::Inventory;
use super::super::plant::Image;

/// The byte that the work writes.
pub const DATA: u8 = 0xD7;

/// The owner of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Owner {
    /// Copies of the superblock and of descriptors that nothing writes.
    Backup,
    /// The primary superblock and descriptors.
    Primary,
    BlockBitmap(u32),
    InodeBitmap(u32),
    InodeTable(u32),
    /// A file of the volume's own: the journal, the orphan file, the block of multiple mount protection.
    Own(u32),
    /// An ordinary file, directory or link: data and map.
    File(u32),
}

impl Owner {
    /// True if it is the volume itself.
    pub fn is_volume(self) -> bool {
        !matches!(self, Owner::File(_))
    }
}

/// The map of owners, made from the sound image.
pub struct Owners {
    pub blocks: BTreeMap<u64, Owner>,
    /// Inodes in use, with what they are.
    pub inodes: BTreeMap<u32, Option<FileType>>,
    /// Inodes that change with others: those that hold attributes of others, and the files that count quotas.
    pub values: BTreeSet<u32>,
    /// Where the inode table of each group lies.
    tables: Vec<u64>,
}

impl Owners {
    pub fn of(image: &mut Image) -> Self {
        let geometry = image.format.geometry;
        let mut owners = Owners {
            blocks: BTreeMap::new(),
            inodes: BTreeMap::new(),
            values: BTreeSet::new(),
            tables: (0..geometry.groups).map(|group| image.read_descriptor(group).inode_table().0).collect(),
        };
        owners.files(image);
        owners.groups(image);
        owners
    }

    fn put(&mut self, start: u64, count: u64, owner: Owner) {
        self.blocks.extend((start..start + count).map(|block| (block, owner)));
    }

    fn groups(&mut self, image: &Image) {
        let geometry = image.format.geometry;
        for group in 0..geometry.groups {
            let header = geometry.group_header(Group(group));
            let owner = if group == 0 { Owner::Primary } else { Owner::Backup };
            self.put(header.start.0, header.count.into(), owner);
            let raw = image.read_descriptor(group);
            self.put(raw.block_bitmap().0, 1, Owner::BlockBitmap(group));
            self.put(raw.inode_bitmap().0, 1, Owner::InodeBitmap(group));
            self.put(raw.inode_table().0, geometry.inode_table_blocks().into(), Owner::InodeTable(group));
        }
        // With meta_bg the primary descriptors lie in their groups.
        for index in 0..geometry.descriptor_blocks() {
            self.put(geometry.descriptor_block(index).0, 1, Owner::Primary);
        }
    }

    fn files(&mut self, image: &mut Image) {
        let raw = RawSuperblock::parse(&image.bytes[1024..2048]).unwrap();
        let own = [8, raw.s_orphan_file_inum.get()];
        let quota = [&raw.s_usr_quota_inum, &raw.s_grp_quota_inum, &raw.s_prj_quota_inum];
        self.values.extend(quota.map(|number| number.get()));
        let len = image.format.geometry.block_size.bytes_usize() as u64;
        let volume = image.volume();
        for number in (1..=image.format.geometry.inodes()).filter_map(InodeNumber::new) {
            let inode = image.read_inode(number);
            if inode.links() == 0 || number == InodeNumber::RESIZE {
                continue;
            }
            self.inodes.insert(number.get(), inode.file_type());
            if inode.flags().contains(InodeFlags::EA_INODE) {
                self.values.insert(number.get());
            }
            let is_own = own.contains(&number.get());
            let owner = if is_own { Owner::Own(number.get()) } else { Owner::File(number.get()) };
            for segment in volume.map(number).unwrap() {
                let segment = segment.unwrap();
                if let State::Mapped(start) | State::Unwritten(start) = segment.state {
                    self.put(start.0, segment.count, owner);
                }
            }
            if inode.attribute_block() != Block(0) {
                self.put(inode.attribute_block().0, 1, owner);
            }
        }
        let inventory = Inventory::of(image);
        for (owner, at) in inventory.structures.iter().filter_map(|of| Some((of.map_of()?, of.at))) {
            self.put(at / len, 1, if own.contains(&owner) { Owner::Own(owner) } else { Owner::File(owner) });
        }
        if raw.s_mmp_block.get() != 0 {
            self.put(raw.s_mmp_block.get(), 1, Owner::Own(0));
        }
    }

    /// The harm between two images: owners whose bytes differ, that no verb on the `touched` inodes may change.
    /// With a `log`, the journal may hold anything but bytes of files.
    pub fn harmed(
        &self,
        before: &Image,
        after: &Image,
        touched: &BTreeSet<u32>,
        log: bool,
    ) -> BTreeSet<Owner> {
        let len = before.format.geometry.block_size.bytes_usize();
        let mut harmed = BTreeSet::new();
        for (block, owner) in &self.blocks {
            let at = *block as usize * len;
            let bytes = (&before.bytes[at..at + len], &after.bytes[at..at + len]);
            if bytes.0 == bytes.1 {
                continue;
            }
            match owner {
                Owner::Primary if self.may_change(before, *block, bytes) => {}
                Owner::BlockBitmap(group) => harmed.extend(self.freed(before, *group, bytes)),
                Owner::InodeBitmap(group) => harmed.extend(self.freed_inodes(before, *group, bytes)),
                Owner::InodeTable(group) => harmed.extend(self.records(before, *group, *block, bytes)),
                Owner::Own(_) if log && !starts_with_data(bytes.1, bytes.0) => {}
                _ => {
                    harmed.insert(*owner);
                }
            }
        }
        harmed.retain(|owner| !matches!(owner, Owner::File(number) if touched.contains(number)));
        harmed
    }

    /// Descriptors change with what is taken and freed, and so does the superblock.
    fn may_change(&self, image: &Image, block: u64, bytes: (&[u8], &[u8])) -> bool {
        let geometry = image.format.geometry;
        if (0..geometry.descriptor_blocks()).any(|index| geometry.descriptor_block(index).0 == block) {
            return true;
        }
        let start = block * u64::from(geometry.block_size.bytes());
        let is_superblock = |at: usize| (1024..2048).contains(&(start as usize + at));
        bytes.0.iter().zip(bytes.1).enumerate().all(|(at, (old, new))| old == new || is_superblock(at))
    }

    /// Owners of blocks whose bits were cleared.
    fn freed(&self, image: &Image, group: u32, bytes: (&[u8], &[u8])) -> BTreeSet<Owner> {
        let geometry = image.format.geometry;
        let start = geometry.group_start(Group(group)).0;
        let blocks = 0..u64::from(geometry.group_blocks(Group(group)));
        let cleared = blocks.filter(|at| is_cleared(bytes, (at >> geometry.cluster_log2) as usize));
        cleared.filter_map(|at| self.blocks.get(&(start + at)).copied()).collect()
    }

    /// The owner that an inode stands for.
    fn inode(&self, image: &Image, number: u32) -> Option<Owner> {
        self.inodes.contains_key(&number).then_some(match number {
            2 => Owner::File(2),
            _ if number < image.format.geometry.first_inode => Owner::Own(number),
            _ => Owner::File(number),
        })
    }

    fn freed_inodes(&self, image: &Image, group: u32, bytes: (&[u8], &[u8])) -> BTreeSet<Owner> {
        let per_group = image.format.geometry.inodes_per_group;
        let cleared = (0..per_group).filter(|index| is_cleared(bytes, *index as usize));
        cleared.filter_map(|index| self.inode(image, group * per_group + index + 1)).collect()
    }

    /// Inodes whose records were changed.
    fn records(&self, image: &Image, group: u32, block: u64, bytes: (&[u8], &[u8])) -> BTreeSet<Owner> {
        let geometry = image.format.geometry;
        let size = usize::from(geometry.inode_size);
        let table = self.tables[group as usize];
        let first = group * geometry.inodes_per_group + (block - table) as u32 * geometry.inodes_per_block();
        let records = bytes.0.chunks(size).zip(bytes.1.chunks(size)).enumerate();
        let changed = records.filter(|(_, (old, new))| old != new).map(|(index, _)| index as u32);
        changed.filter_map(|index| self.inode(image, first + index + 1)).collect()
    }
}

fn is_cleared(bytes: (&[u8], &[u8]), bit: usize) -> bool {
    let is_set = |bytes: &[u8]| bytes[bit / 8] >> (bit % 8) & 1 == 1;
    is_set(bytes.0) && !is_set(bytes.1)
}

/// True if a block got bytes of a file that it had not before.
fn starts_with_data(new: &[u8], old: &[u8]) -> bool {
    !old.starts_with(&[DATA; 32]) && new.starts_with(&[DATA; 32])
}
