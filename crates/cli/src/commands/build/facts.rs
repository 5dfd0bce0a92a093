//! The summary of `plat build --json`.

use platfs_image::Built;
use platfs_image::builder::Update;
use platfs_image::disk::{Format, Verity};
use serde::Serialize;

/// The JSON summary; names are documented in docs/json.md.
#[derive(Serialize)]
pub(super) struct Facts {
    bytes: u64,
    block_size: u32,
    free_blocks: u64,
    inodes: u32,
    free_inodes: u64,
    uuid: String,
    files: u64,
    directories: u64,
    symlinks: u64,
    specials: u64,
    names: u64,
    data_bytes: u64,
    apparent_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    like: Option<Like>,
    format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    align: Option<Align>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verity: Option<Hashes>,
}

/// Where data begin.
#[derive(Serialize)]
struct Align {
    size: u64,
    cost_bytes: u64,
}

/// A tree of hashes that was made.
#[derive(Serialize)]
struct Hashes {
    root_hash: String,
    salt: String,
    uuid: String,
    hash_offset: u64,
    data_block_size: u64,
    hash_block_size: u64,
    data_blocks: u64,
}

impl From<Verity> for Hashes {
    fn from(verity: Verity) -> Self {
        Hashes {
            root_hash: verity.root_hash(),
            salt: verity.salt_text(),
            uuid: crate::text::uuid(&verity.uuid),
            hash_offset: verity.offset,
            data_block_size: verity.data_block,
            hash_block_size: verity.hash_block(),
            data_blocks: verity.data_blocks,
        }
    }
}

/// Counts of what an image that was made like an older one took over.
#[derive(Serialize)]
struct Like {
    same: u64,
    in_place: u64,
    placed: u64,
    renamed: u64,
    removed: u64,
    grown_bytes: u64,
}

impl From<Update> for Like {
    fn from(update: Update) -> Self {
        let Update { same, in_place, placed, renamed, removed, grown, .. } = update;
        Like { same, in_place, placed, renamed, removed, grown_bytes: grown }
    }
}

impl Facts {
    pub(super) fn of(built: &Built, format: Format, align: Option<u64>) -> Self {
        let contents = &built.contents;
        Facts {
            bytes: built.bytes,
            block_size: built.block_size,
            free_blocks: built.free_blocks,
            inodes: built.inodes,
            free_inodes: built.free_inodes,
            uuid: crate::text::uuid(&built.uuid),
            files: contents.files,
            directories: contents.directories,
            symlinks: contents.symlinks,
            specials: contents.specials,
            names: contents.names,
            data_bytes: contents.data_bytes,
            apparent_bytes: contents.apparent_bytes,
            like: built.update.map(Like::from),
            format: format.name(),
            align: align.map(|size| Align { size, cost_bytes: built.align_cost }),
            verity: built.verity.map(Hashes::from),
        }
    }
}
