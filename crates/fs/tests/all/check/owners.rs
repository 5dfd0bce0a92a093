//! Fields that lead repairs to what belongs to a file: the file keeps every byte, and the volume is sound then.

use std::io::Read;
use std::sync::Arc;

use ondisk::features::{Compat, Features};
use ondisk::units::Block;
use platfs::device::MemoryDevice;
use platfs::{InodeNumber, OpenOptions, Volume, ondisk};
use testkit::fsck;
use testkit::scratch::Scratch;
use testkit::sparse;

use crate::check::plant::{Image, checked, ready, repaired};

/// Files of every base, with contents.
const FILES: [&str; 5] = ["large", "comb", "a/small", "a/b/tiny", "a/b/c/other"];

fn contents(bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let volume = Volume::open(Arc::new(MemoryDevice::from_bytes(bytes)), &OpenOptions::new()).unwrap();
    let read = |path: &&str| {
        let inode = volume.resolve(path.as_bytes()).map_err(|error| format!("{path}: {error}"))?;
        let mut bytes = Vec::new();
        volume
            .open_file(inode)
            .unwrap()
            .read_to_end(&mut bytes)
            .map_err(|error| format!("{path}: {error}"))?;
        Ok(bytes)
    };
    FILES.iter().map(read).collect()
}

type Told = Vec<&'static str>;

/// Repairs all until nothing is left; the first issues and the bytes then, or the issues that never end.
fn settled(bytes: &[u8]) -> Result<(Told, Vec<u8>), Told> {
    let told = |bytes: &[u8]| {
        let (heard, outcome) = checked(bytes);
        (heard.iter().map(|issue| issue.kind.id).collect::<Told>(), repaired(&outcome))
    };
    let (first, mut bytes) = told(bytes);
    let mut left = Vec::new();
    for _ in 0..3 {
        let again = told(&bytes);
        if again.0.is_empty() {
            return Ok((first, bytes));
        }
        (left, bytes) = again;
    }
    Err(left)
}

type Damage = fn(&mut Image);

fn number(image: &Image, path: &str) -> u32 {
    image.inode_of(path).get()
}

fn low(block: Block) -> [u8; 4] {
    u32::try_from(block.0).unwrap().to_le_bytes()
}

/// A field of the superblock or of an inode of the volume's own that names a file, or a block of one.
const DAMAGES: &[(&str, &str, Damage)] = &[
    ("the block of mount protection is a file's", "mmp", |image| {
        let block = image.block_of("large", 10);
        image.superblock(|raw| raw.s_mmp_block.set(block.0));
    }),
    ("the block of mount protection is an inode table's", "mmp", |image| {
        let block = image.read_descriptor(0).inode_table();
        image.superblock(|raw| raw.s_mmp_block.set(block.0 + 1));
    }),
    ("users' quota is a file", "quota", |image| {
        let file = number(image, "large");
        image.superblock(|raw| raw.s_usr_quota_inum.set(file));
    }),
    ("groups' quota is a file, their own is gone", "quota", |image| {
        let file = number(image, "a/b/c/other");
        image.superblock(|raw| raw.s_grp_quota_inum.set(file));
        let own = image.block_of_inode(InodeNumber::new(4).unwrap());
        image.block(own).fill(0);
    }),
    ("projects' quota is a file", "quota", |image| {
        let file = number(image, "large");
        image.superblock(|raw| raw.s_prj_quota_inum.set(file));
    }),
    ("the orphan file is a file", "orphan_file", |image| {
        let file = number(image, "large");
        image.superblock(|raw| raw.s_orphan_file_inum.set(file));
    }),
    ("the orphan file is a file, without a journal", "ext4_nojournal", |image| {
        let file = number(image, "a/b/c/other");
        image.superblock(|raw| {
            raw.s_orphan_file_inum.set(file);
            let features = raw.features();
            raw.set_features(Features { compat: features.compat | Compat::ORPHAN_FILE, ..features });
        });
    }),
    ("the orphan file's blocks are a file's", "orphan_file", |image| {
        let block = image.block_of("large", 3);
        let own = image.superblock_now().s_orphan_file_inum.get();
        image.inode(InodeNumber::new(own).unwrap(), |inode| {
            inode.raw_mut().i_block[20..24].copy_from_slice(&low(block));
        });
    }),
    ("the journal's first block is a file's", "ext3", |image| {
        let block = image.block_of("large", 3);
        image.inode(InodeNumber::JOURNAL, |inode| inode.raw_mut().i_block[..4].copy_from_slice(&low(block)));
    }),
    ("the journal's first extent is a file's", "ext4", |image| {
        let block = image.block_of("large", 0);
        image.inode(InodeNumber::JOURNAL, |inode| {
            inode.raw_mut().i_block[20..24].copy_from_slice(&low(block))
        });
    }),
    ("the journal is a file, its own inode is gone", "ext4", |image| {
        let file = number(image, "large");
        image.superblock(|raw| raw.s_journal_inum.set(file));
        image.inode(InodeNumber::JOURNAL, |inode| inode.raw_mut().i_links_count.set(0));
    }),
    ("deleted files begin with a file", "ext4", |image| {
        let file = number(image, "large");
        image.superblock(|raw| raw.s_last_orphan.set(file));
    }),
    ("the resize inode's map is a file's block", "ext4", |image| {
        let block = image.block_of("large", 3);
        image.inode(InodeNumber::new(7).unwrap(), |inode| {
            inode.raw_mut().i_block[52..56].copy_from_slice(&low(block));
        });
    }),
    ("attributes are a file's block", "ext4_nocsum", |image| {
        let block = image.block_of("large", 3);
        let file = image.inode_of("a/b/tiny");
        image.inode(file, |inode| inode.set_attribute_block(block));
    }),
    ("backups of the superblock are files' groups", "sparse_super2", |image| {
        image.superblock(|raw| {
            raw.s_backup_bgs[0].set(2);
            raw.s_mtime.set(u32::MAX);
        });
    }),
];

#[test]
fn what_a_damaged_field_names_keeps_its_bytes() {
    if !ready("what_a_damaged_field_names_keeps_its_bytes") {
        return;
    }
    let scratch = Scratch::new("owners");
    let judged = DAMAGES.iter().filter_map(|(what, base, damage)| {
        let wrong = judge(&scratch, base, *damage)?;
        Some(format!("{what}: {wrong}"))
    });
    assert_eq!(judged.collect::<Vec<_>>(), Vec::<String>::new());
}

/// Finds the fault of the repair of a damage.
fn judge(scratch: &Scratch, base: &str, damage: Damage) -> Option<String> {
    let mut image = Image::of(base);
    let before = contents(&image.bytes).unwrap();
    damage(&mut image);
    let (told, after) = match settled(&image.bytes) {
        Ok(done) => done,
        Err(left) => return Some(format!("repairs do not settle: {left:?}")),
    };
    if told.is_empty() {
        return Some("nothing was found".to_owned());
    }
    match contents(&after) {
        Ok(contents) if contents == before => {}
        Ok(_) => return Some(format!("a file lost bytes; told were {told:?}")),
        Err(problem) => return Some(format!("{problem}; told were {told:?}")),
    }
    let file = scratch.join("image");
    sparse::write(&file, &after).unwrap();
    let said = fsck::complaints(&file);
    (!said.is_empty()).then_some(said)
}
