//! Random damage to a base: a function of its seed.

use std::ops::Range;
use std::sync::Arc;

use ondisk::group::RawGroupDescriptor;
use ondisk::inode::Inode;
use ondisk::journal::RawJournalSuperblock;
use ondisk::superblock::RawSuperblock;
use ondisk::units::Group;
use platfs::check::Staged;
use platfs::device::Device;
use platfs::{Format, ondisk};
use testkit::random::Random;
use zerocopy::IntoBytes;

use crate::check::inventory::{Inventory, Seal, Structure};

/// A base under mutation.
pub struct Mutant {
    pub device: Arc<Staged>,
    pub format: Format,
    inventory: Arc<Inventory>,
    /// The bytes that were damaged, without the checksums that were made right.
    pub damaged: Vec<Range<u64>>,
    /// Description of the changes, for people.
    pub story: Vec<String>,
}

impl Mutant {
    /// One to five mutations of a base.
    pub fn new(
        base: Arc<dyn Device>,
        format: Format,
        inventory: Arc<Inventory>,
        random: &mut Random,
    ) -> Self {
        let device = Arc::new(Staged::new(base, 256 << 20));
        let mut mutant = Mutant { device, format, inventory, damaged: Vec::new(), story: Vec::new() };
        for _ in 0..=random.below(5).min(random.below(5)) {
            mutant.mutate(random);
        }
        mutant
    }

    fn read(&self, at: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.device.read_at(at, &mut bytes).unwrap();
        bytes
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.device.write_at(at, bytes).unwrap();
        self.damaged.push(at..at + bytes.len() as u64);
    }

    fn mutate(&mut self, random: &mut Random) {
        let inventory = Arc::clone(&self.inventory);
        let structure = pick(&inventory, random);
        let what = match random.below(20) {
            0 => self.random_bytes(structure, random),
            1 => self.copy_of_another(structure, random),
            2 => self.zeros(structure, random),
            _ => self.field(structure, random),
        };
        let sealed = structure.seal != Seal::None && random.below(5) < 3;
        if sealed {
            self.seal(structure);
        }
        self.story.push(format!("{}{}", what, if sealed { ", sealed" } else { "" }));
    }

    fn random_bytes(&mut self, structure: &Structure, random: &mut Random) -> String {
        let count = 1 + random.below(16).min(structure.len - 1);
        let at = random.below(structure.len - count + 1);
        let bytes = random.bytes(count);
        self.write(structure.at + at, &bytes);
        format!("{}: {count} random bytes at {at}", structure.name)
    }

    fn zeros(&mut self, structure: &Structure, random: &mut Random) -> String {
        let from = random.below(structure.len);
        let len = (1 << random.below(11)).min(structure.len - from);
        self.write(structure.at + from, &vec![0; len as usize]);
        format!("{}: {len} zeros at {from}", structure.name)
    }

    fn copy_of_another(&mut self, structure: &Structure, random: &mut Random) -> String {
        let inventory = Arc::clone(&self.inventory);
        let other = alike(&inventory, structure, random);
        let bytes = self.read(other.at, other.len.min(structure.len));
        self.write(structure.at, &bytes);
        format!("{}: a copy of {}", structure.name, other.name)
    }

    fn field(&mut self, structure: &Structure, random: &mut Random) -> String {
        let Some(&(offset, width)) = random.pick(&structure.fields) else {
            return self.random_bytes(structure, random);
        };
        let at = structure.at + offset;
        let bytes = self.read(at, width);
        let old = bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        let most = u64::MAX >> (64 - 8 * width);
        let new = match random.below(10) {
            0 => 0,
            1 => most,
            2 => old.wrapping_add(1),
            3 => old.wrapping_sub(1),
            4 | 5 => old ^ 1 << random.below(8 * width),
            6 => 1 << random.below(8 * width),
            7 => {
                let other = alike(&self.inventory, structure, random);
                let from = other
                    .fields
                    .iter()
                    .find(|field| **field == (offset, width))
                    .map_or(at, |_| other.at + offset);
                let bytes = self.read(from, width);
                bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
            }
            8 => random.below(self.format.geometry.blocks),
            _ => random.next(),
        } & most;
        self.write(at, &new.to_le_bytes()[..width as usize]);
        format!("{}: {width} bytes at {offset:#x}: {old:#x} -> {new:#x}", structure.name)
    }

    /// Makes the checksum of a structure right for what is in it now.
    fn seal(&mut self, structure: &Structure) {
        let mut bytes = self.read(structure.at, structure.len);
        let sealer = self.format.sealer;
        let generation_of = |mutant: &Self, number: ondisk::units::InodeNumber| mutant.generation(number);
        match structure.seal {
            Seal::None => return,
            Seal::Superblock => {
                // The seed may be among what was changed.
                let Ok(mut raw) = RawSuperblock::parse(&bytes) else { return };
                ondisk::seal::Sealer::from_superblock(&raw).seal_superblock(&mut raw);
                bytes = raw.as_bytes().to_vec();
            }
            Seal::Descriptor(group) => {
                let mut raw = RawGroupDescriptor::parse(&bytes);
                sealer.seal_descriptor(Group(group), &mut raw, &[]);
                raw.store(&mut bytes);
            }
            Seal::BlockBitmap(group) => {
                let sum = sealer.bitmap_checksum(&bytes, self.format.geometry.clusters_per_group());
                return self.edit_descriptor(group, |raw| {
                    raw.set_block_bitmap_checksum(sum.unwrap_or(raw.block_bitmap_checksum()));
                });
            }
            Seal::InodeBitmap(group) => {
                let sum = sealer.bitmap_checksum(&bytes, self.format.geometry.inodes_per_group);
                return self.edit_descriptor(group, |raw| {
                    raw.set_inode_bitmap_checksum(sum.unwrap_or(raw.inode_bitmap_checksum()));
                });
            }
            Seal::Inode(number) => {
                let Ok(mut inode) = Inode::parse(number, &bytes) else { return };
                sealer.seal_inode(&mut inode);
                bytes = inode.bytes().to_vec();
            }
            Seal::Extents(number) => {
                sealer.inode_seed(number, generation_of(self, number)).seal_extent_node(&mut bytes);
            }
            Seal::Leaf(number) => {
                sealer.inode_seed(number, generation_of(self, number)).seal_directory_leaf(&mut bytes);
            }
            Seal::Index(number, at) => {
                sealer.inode_seed(number, generation_of(self, number)).seal_index_node(&mut bytes, at);
            }
            Seal::Attributes(block) => sealer.seal_attribute_block(block, &mut bytes),
            Seal::Journal => {
                let Ok(mut raw) = RawJournalSuperblock::parse(&bytes) else { return };
                raw.seal();
                bytes[..1024].copy_from_slice(raw.as_bytes());
            }
        }
        self.device.write_at(structure.at, &bytes).unwrap();
    }

    fn generation(&self, number: ondisk::units::InodeNumber) -> u32 {
        let found = self.inventory.structures.iter().find(|of| of.seal == Seal::Inode(number)).unwrap();
        Inode::parse(number, &self.read(found.at, found.len)).map_or(0, |inode| inode.generation())
    }

    fn edit_descriptor(&mut self, group: u32, edit: impl FnOnce(&mut RawGroupDescriptor)) {
        let found = self.inventory.structures.iter().find(|of| of.seal == Seal::Descriptor(group)).unwrap();
        let mut bytes = self.read(found.at, found.len);
        let mut raw = RawGroupDescriptor::parse(&bytes);
        edit(&mut raw);
        self.format.sealer.seal_descriptor(Group(group), &mut raw, &[]);
        raw.store(&mut bytes);
        self.device.write_at(found.at, &bytes).unwrap();
    }
}

/// A structure: first its class is chosen, so that the one superblock is hit as often as one of the inodes.
fn pick<'i>(inventory: &'i Inventory, random: &mut Random) -> &'i Structure {
    let mut classes: Vec<&str> = inventory.structures.iter().map(|of| of.class).collect();
    classes.sort_unstable();
    classes.dedup();
    let class = random.pick(&classes).unwrap();
    let of_class: Vec<_> = inventory.structures.iter().filter(|of| of.class == *class).collect();
    random.pick(&of_class).unwrap()
}

/// One of the same class.
fn alike<'i>(inventory: &'i Inventory, structure: &Structure, random: &mut Random) -> &'i Structure {
    let of_class: Vec<_> = inventory.structures.iter().filter(|of| of.class == structure.class).collect();
    random.pick(&of_class).unwrap()
}
