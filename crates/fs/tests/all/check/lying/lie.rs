//! Lies: one field of a sound image says something else, and every checksum is right.

use std::collections::BTreeMap;

use ondisk::group::GroupFlags;
use ondisk::inode::InodeFlags;
use ondisk::units::{Block, Group};
use platfs::{InodeNumber, ondisk};
use testkit::random::Random;

use super::super::plant::Image;
use super::owners::{Owner, Owners};

/// A kind of lie.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lie {
    /// A bitmap calls a block free that is in use; the counts agree.
    BlockBitmap,
    /// An inode bitmap calls a used inode free.
    InodeBitmap,
    /// A map leads to a block of another owner.
    Map,
    /// A block of a map does.
    MapBlock,
    /// An inode leads to attributes that are something else.
    Attributes,
    /// A descriptor places a bitmap or table elsewhere.
    Placement,
    /// A descriptor says that a group or a part of its table was never used.
    NeverUsed,
    /// The superblock names other inodes or blocks as its own.
    Superblock,
    /// A name leads to another inode.
    Name,
}

pub const ALL: [Lie; 9] = [
    Lie::BlockBitmap,
    Lie::InodeBitmap,
    Lie::Map,
    Lie::MapBlock,
    Lie::Attributes,
    Lie::Placement,
    Lie::NeverUsed,
    Lie::Superblock,
    Lie::Name,
];

/// Lie that was planted.
pub struct Told {
    pub lie: Lie,
    /// The volume itself is what would suffer.
    pub about_volume: bool,
    /// The inode whose map, attributes or name lies.
    pub liar: Option<u32>,
    pub story: String,
}

/// A block in use, of the volume as often as of files.
fn victim(owners: &Owners, random: &mut Random) -> (u64, Owner) {
    let wants_volume = random.one_in(2);
    let blocks: Vec<_> =
        owners.blocks.iter().filter(|(_, owner)| owner.is_volume() == wants_volume).collect();
    // The one bitmap of a group is met as often as one of the blocks of its table.
    let mut kinds: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (block, owner) in blocks {
        let kind = format!("{owner:?}");
        let kind = kind.split('(').next().unwrap_or_default().to_owned();
        kinds.entry(kind).or_default().push(*block);
    }
    let kinds: Vec<Vec<u64>> = kinds.into_values().collect();
    let block = random.pick(&kinds).cloned().and_then(|kind| random.pick(&kind).copied()).unwrap();
    (block, owners.blocks[&block])
}

/// An ordinary inode of a kind.
fn some_file(image: &Image, owners: &Owners, random: &mut Random, mapped: bool) -> Option<InodeNumber> {
    let first = image.format.geometry.first_inode;
    let files: Vec<u32> =
        owners.inodes.keys().copied().filter(|number| *number >= first || *number == 2).collect();
    let owned = |number: &u32| owners.blocks.values().any(|owner| *owner == Owner::File(*number));
    let files: Vec<u32> = files.into_iter().filter(|number| !mapped || owned(number)).collect();
    random.pick(&files).copied().and_then(InodeNumber::new)
}

impl Lie {
    /// Writes the lie into an image; `None` where it has no place for it.
    pub fn tell(self, image: &mut Image, owners: &Owners, random: &mut Random) -> Option<Told> {
        let (block, owner) = victim(owners, random);
        let told = |story: String| Told { lie: self, about_volume: owner.is_volume(), liar: None, story };
        match self {
            Lie::BlockBitmap => {
                free_block(image, block);
                Some(told(format!("block {block} of {owner:?} is free")))
            }
            Lie::InodeBitmap => inode_bitmap(image, owners, random),
            Lie::Map => {
                let number = some_file(image, owners, random, true)?;
                lead(image, number, block, random);
                Some(Told {
                    liar: Some(number.get()),
                    ..told(format!("{number} leads to {block} of {owner:?}"))
                })
            }
            Lie::MapBlock => map_block(image, block, random).map(|number| Told {
                liar: Some(number),
                ..told(format!("a block of the map of {number} leads to {block} of {owner:?}"))
            }),
            Lie::Attributes => {
                let number = some_file(image, owners, random, false)?;
                image.inode(number, |inode| inode.set_attribute_block(Block(block)));
                Some(Told {
                    liar: Some(number.get()),
                    ..told(format!("attributes of {number} at {block} of {owner:?}"))
                })
            }
            Lie::Placement => {
                let group = random.below(image.format.geometry.groups.into()) as u32;
                let which = random.below(3);
                image.descriptor(group, |raw| match which {
                    0 => raw.set_block_bitmap(Block(block)),
                    1 => raw.set_inode_bitmap(Block(block)),
                    _ => raw.set_inode_table(Block(block)),
                });
                Some(told(format!("structure {which} of group {group} at {block} of {owner:?}")))
            }
            Lie::NeverUsed => never_used(image, random),
            Lie::Superblock => Some(superblock(image, owners, block, random)),
            Lie::Name => name(image, owners, random),
        }
    }
}

pub fn free_block(image: &mut Image, block: u64) {
    let geometry = image.format.geometry;
    let group = geometry.group_of_block(Block(block)).unwrap_or(Group(0));
    let cluster = geometry.cluster_of(Block(block)).0;
    let bit = (cluster - u64::from(group.0) * u64::from(geometry.clusters_per_group())) as usize;
    let mut was_set = false;
    image.block_bitmap(group.0, |bitmap| {
        was_set = bitmap[bit / 8] >> (bit % 8) & 1 == 1;
        bitmap[bit / 8] &= !(1 << (bit % 8));
    });
    if was_set {
        image.descriptor(group.0, |raw| raw.set_free_clusters(raw.free_clusters() + 1));
        let more = u64::from(geometry.blocks_per_cluster());
        image.superblock(|raw| raw.set_free_blocks_count(raw.free_blocks_count() + more));
    }
}

fn inode_bitmap(image: &mut Image, owners: &Owners, random: &mut Random) -> Option<Told> {
    let all: Vec<u32> = owners.inodes.keys().copied().collect();
    let number = *random.pick(&all)?;
    let (group, index) = image.format.geometry.locate_inode(InodeNumber::new(number)?)?;
    let index = index as usize;
    image.inode_bitmap(group.0, |bitmap| bitmap[index / 8] &= !(1 << (index % 8)));
    image.descriptor(group.0, |raw| raw.set_free_inodes(raw.free_inodes() + 1));
    image.superblock(|raw| raw.s_free_inodes_count.set(raw.s_free_inodes_count.get() + 1));
    Some(Told {
        lie: Lie::InodeBitmap,
        about_volume: true,
        liar: None,
        story: format!("inode {number} is free"),
    })
}

/// Changes where a random entry of an inode's own map leads.
fn lead(image: &mut Image, number: InodeNumber, block: u64, random: &mut Random) {
    image.inode(number, |inode| {
        let is_tree = inode.flags().contains(InodeFlags::EXTENTS);
        let root = &mut inode.raw_mut().i_block;
        let low = (block as u32).to_le_bytes();
        let at = if is_tree {
            let entries = u64::from(u16::from_le_bytes([root[2], root[3]]));
            let is_index = root[6] != 0;
            12 + 12 * random.below(entries) as usize + if is_index { 4 } else { 8 }
        } else {
            let used: Vec<usize> = (0..15).filter(|slot| root[4 * slot..4 * slot + 4] != [0; 4]).collect();
            4 * random.pick(&used).copied().unwrap_or(0)
        };
        root[at..at + 4].copy_from_slice(&low);
    });
}

/// Changes an entry of a block of a map, if any file has one; says whose.
fn map_block(image: &mut Image, block: u64, random: &mut Random) -> Option<u32> {
    let inventory = super::super::inventory::Inventory::of(image);
    let own = [7, 8];
    let blocks: Vec<_> = inventory
        .structures
        .iter()
        .filter(|of| of.map_of().is_some_and(|number| !own.contains(&number)))
        .collect();
    let of = random.pick(&blocks)?;
    let number = of.map_of()?;
    let at = of.at as usize;
    let low = (block as u32).to_le_bytes();
    let seed = {
        let inode = image.read_inode(InodeNumber::new(number)?);
        image.format.seed_of(&inode)
    };
    if of.class == "extents" {
        let bytes = &mut image.bytes[at..at + of.len as usize];
        let entries = u64::from(u16::from_le_bytes([bytes[2], bytes[3]]));
        let is_index = bytes[6] != 0;
        let entry = 12 + 12 * random.below(entries) as usize + if is_index { 4 } else { 8 };
        bytes[entry..entry + 4].copy_from_slice(&low);
        seed.seal_extent_node(bytes);
    } else {
        let slot = at + 4 * random.below(8) as usize;
        image.bytes[slot..slot + 4].copy_from_slice(&low);
    }
    Some(number)
}

fn never_used(image: &mut Image, random: &mut Random) -> Option<Told> {
    let group = random.below(image.format.geometry.groups.into()) as u32;
    if !image.format.features.descriptor_csum() {
        return None;
    }
    let geometry = image.format.geometry;
    let which = random.below(3);
    let raw = image.read_descriptor(group);
    let less = random.below(u64::from(geometry.inodes_per_group)) as u32;
    let mut story = format!("group {group}: ");
    match which {
        0 => {
            let own: u64 = u64::from(geometry.group_header(Group(group)).count);
            let free = geometry.group_clusters(Group(group)) - (own as u32 >> geometry.cluster_log2);
            story += "no block was ever used";
            image.descriptor(group, |raw| {
                raw.set_flags(raw.flags() | GroupFlags::BLOCK_UNINIT);
                raw.set_free_clusters(free.max(raw.free_clusters()));
            });
        }
        1 => {
            story += "no inode was ever used";
            image.descriptor(group, |raw| {
                raw.set_flags(raw.flags() | GroupFlags::INODE_UNINIT);
                raw.set_free_inodes(geometry.inodes_per_group);
                raw.set_unused_inodes(geometry.inodes_per_group);
            });
        }
        _ => {
            story += "inodes at the end of its table were never used";
            image.descriptor(group, |raw| raw.set_unused_inodes(raw.unused_inodes().max(less)));
        }
    }
    let _ = raw;
    Some(Told { lie: Lie::NeverUsed, about_volume: false, liar: None, story })
}

fn superblock(image: &mut Image, owners: &Owners, block: u64, random: &mut Random) -> Told {
    let all: Vec<u32> = owners.inodes.keys().copied().collect();
    let number = random.pick(&all).copied().unwrap_or(2);
    let which = random.below(6);
    image.superblock(|raw| match which {
        0 => raw.s_journal_inum.set(number),
        1 => raw.s_orphan_file_inum.set(number),
        2 => raw.s_last_orphan.set(number),
        3 => raw.s_mmp_block.set(block),
        4 => raw.s_first_ino.set(11 + random.below(30) as u32),
        _ => raw.s_last_orphan.set(8),
    });
    let story = format!("field {which} of the superblock: {number} or block {block}");
    // A file that is named as an orphan is finished, as the list says.
    Told {
        lie: Lie::Superblock,
        about_volume: !matches!(which, 2),
        liar: matches!(which, 2).then_some(number),
        story,
    }
}

/// Lets a name lead to another inode.
fn name(image: &mut Image, owners: &Owners, random: &mut Random) -> Option<Told> {
    let inventory = super::super::inventory::Inventory::of(image);
    let leaves: Vec<_> = inventory.structures.iter().filter(|of| of.class == "leaf").collect();
    let leaf = random.pick(&leaves)?;
    let directory = leaf.directory()?;
    let at = leaf.at as usize;
    let layout = ondisk::dirent::Layout::new(image.format.geometry.block_size, &image.format.features);
    let bytes = image.bytes[at..at + leaf.len as usize].to_vec();
    let places: Vec<usize> = ondisk::dirent::entries(&bytes, layout)
        .flatten()
        .filter(|entry| entry.inode.is_some() && !matches!(entry.name, b"." | b".."))
        .map(|entry| entry.offset)
        .collect();
    let place = *random.pick(&places)?;
    let all: Vec<u32> = owners.inodes.keys().copied().collect();
    let number = *random.pick(&all)?;
    image.bytes[at + place..at + place + 4].copy_from_slice(&number.to_le_bytes());
    let inode = image.read_inode(InodeNumber::new(directory)?);
    let seed = image.format.seed_of(&inode);
    seed.seal_directory_leaf(&mut image.bytes[at..at + leaf.len as usize]);
    let kept = number < image.format.geometry.first_inode && number != 2;
    let story = format!("a name in directory {directory} leads to inode {number}");
    Some(Told { lie: Lie::Name, about_volume: kept, liar: Some(number), story })
}
