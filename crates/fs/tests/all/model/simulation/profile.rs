//! The kinds of volumes that runs are made on.

use platfs::mkfs::{FsType, Options, parse_features};

/// One kind of volume.
#[derive(Clone)]
pub struct Profile {
    pub name: &'static str,
    pub options: Options,
    pub bytes: u64,
    pub block: u64,
    /// The unit of moving ranges.
    pub cluster: u64,
    pub extents: bool,
    /// Files stay below this.
    pub longest: u64,
}

fn profile(
    name: &'static str,
    fs_type: FsType,
    block: u32,
    features: &str,
    inode_size: u32,
    mib: u64,
) -> Profile {
    let mut options = Options::new(fs_type);
    options.block_size = Some(block);
    options.inode_size = Some(inode_size);
    options.inodes = Some(if mib < 16 { 200 } else { 2000 });
    options.features = parse_features(features).expect("features");
    options.uuid = [0x5A; 16];
    options.hash_seed = [0x3C; 16];
    let block = u64::from(block);
    let cluster = if features.contains("bigalloc") { 16 * block } else { block };
    let longest = (400 * block).clamp(64 << 10, 2 << 20);
    Profile { name, options, bytes: mib << 20, block, cluster, extents: fs_type == FsType::Ext4, longest }
}

pub fn profiles() -> Vec<Profile> {
    vec![
        profile("extents_1k", FsType::Ext4, 1024, "", 256, 96),
        profile("extents_4k", FsType::Ext4, 4096, "", 256, 192),
        profile("extents_64k", FsType::Ext4, 65536, "", 256, 768),
        profile("pointers_1k", FsType::Ext2, 1024, "", 128, 96),
        profile("pointers_4k", FsType::Ext3, 4096, "", 256, 192),
        profile("bigalloc_4k", FsType::Ext4, 4096, "bigalloc", 256, 512),
        profile("bigalloc_1k", FsType::Ext4, 1024, "bigalloc", 256, 192),
        profile("inline_data", FsType::Ext4, 1024, "inline_data", 256, 96),
        profile("old_checksums", FsType::Ext4, 1024, "^metadata_csum,uninit_bg,^64bit", 256, 96),
        profile("no_features", FsType::Ext4, 1024, "^metadata_csum,^dir_index,^flex_bg,^filetype", 256, 96),
        profile("value_inodes", FsType::Ext4, 1024, "ea_inode,large_dir", 256, 96),
        profile("tiny", FsType::Ext4, 1024, "", 256, 6),
    ]
}
