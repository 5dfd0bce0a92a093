//! The block groups: where their structures lie and what is free in them.

use ondisk::group::{GroupFlags, RawGroupDescriptor};
use ondisk::units::Group;
use platfs::Volume;
use serde_json::{Map, Value};

use crate::console::{Console, Failure};

const FLAGS: [(GroupFlags, &str); 3] = [
    (GroupFlags::INODE_UNINIT, "INODE_UNINIT"),
    (GroupFlags::BLOCK_UNINIT, "BLOCK_UNINIT"),
    (GroupFlags::INODE_ZEROED, "ITABLE_ZEROED"),
];

fn flags(raw: &RawGroupDescriptor) -> Vec<&'static str> {
    FLAGS.iter().filter(|(flag, _)| raw.flags().contains(*flag)).map(|(_, name)| *name).collect()
}

fn all(volume: &Volume) -> impl Iterator<Item = (Group, platfs::Result<RawGroupDescriptor>)> {
    let groups = (0..volume.format().geometry.groups).map(Group);
    groups.map(|group| (group, volume.space().descriptor(group)))
}

pub(super) fn text(console: &mut Console<'_>, volume: &Volume) -> Result<(), Failure> {
    let geometry = &volume.format().geometry;
    for (group, raw) in all(volume) {
        let first = geometry.group_start(group).0;
        let last = first + u64::from(geometry.group_blocks(group)).saturating_sub(1);
        let raw = match raw {
            Ok(raw) => raw,
            Err(error) => {
                writeln!(console.out, "Group {group}: blocks {first}-{last}: {error}")?;
                continue;
            }
        };
        let flags = flags(&raw).join(", ");
        let flags = if flags.is_empty() { flags } else { format!(" [{flags}]") };
        writeln!(console.out, "Group {group}: blocks {first}-{last}{flags}")?;
        let header = geometry.group_header(group);
        if geometry.backups.has_superblock(group) {
            let kind = if group.0 == 0 { "Primary" } else { "Backup" };
            let end = header.start.0 + u64::from(header.count).saturating_sub(1);
            writeln!(console.out, "  {kind} superblock and descriptors at {}-{end}", header.start)?;
        }
        let table = raw.inode_table().0;
        let table_end = table + u64::from(geometry.inode_table_blocks()).saturating_sub(1);
        writeln!(
            console.out,
            "  Block bitmap at {}, inode bitmap at {}, inode table at {table}-{table_end}",
            raw.block_bitmap(),
            raw.inode_bitmap()
        )?;
        writeln!(
            console.out,
            "  {} free {}, {} free inodes, {} directories, {} unused inodes",
            raw.free_clusters(),
            if geometry.cluster_log2 == 0 { "blocks" } else { "clusters" },
            raw.free_inodes(),
            raw.used_directories(),
            raw.unused_inodes()
        )?;
    }
    Ok(())
}

pub(super) fn json(volume: &Volume) -> Value {
    let geometry = &volume.format().geometry;
    let described = all(volume).map(|(group, raw)| {
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
        put("group", group.0.into());
        put("first_block", geometry.group_start(group).0.into());
        put("blocks", geometry.group_blocks(group).into());
        put("has_superblock", geometry.backups.has_superblock(group).into());
        match raw {
            Ok(raw) => {
                put("block_bitmap", raw.block_bitmap().0.into());
                put("inode_bitmap", raw.inode_bitmap().0.into());
                put("inode_table", raw.inode_table().0.into());
                put("free_clusters", raw.free_clusters().into());
                put("free_inodes", raw.free_inodes().into());
                put("directories", raw.used_directories().into());
                put("unused_inodes", raw.unused_inodes().into());
                put("flags", flags(&raw).into());
            }
            Err(error) => {
                put("problem", error.to_string().into());
            }
        }
        Value::Object(object)
    });
    Value::Array(described.collect())
}
