//! The blocks of the files that the volume keeps for itself: journal, orphan file, quota, bad blocks, and the block that
//! leads to the room for descriptors to come (that room lies behind the descriptors, with what is theirs).

use ondisk::block_map::{DIRECT, POINTER_LEN};
use ondisk::corrupt::Place;
use ondisk::inode::{FileType, Inode};
use ondisk::units::{Block, BlockRun, InodeNumber};

use crate::error::{Error, Result};
use crate::format::Format;
use crate::tx::View;
use crate::zone::BAD_BLOCKS;

/// The slot of the doubly indirect block, the only one that the resize inode uses.
const DOUBLY: usize = DIRECT as usize + 1;

/// Each of these files with its blocks, those of its map included.
///
/// # Errors
/// A file that the superblock names and that has a broken inode or map; the device's failure.
pub(crate) fn own_files(view: View<'_>) -> Result<Vec<(InodeNumber, Vec<BlockRun>)>> {
    let mut all = Vec::new();
    for number in view.format.zone.files() {
        let inode = view.inode(number)?;
        // A directory would be kept from changes by its own blocks, and be written over as if it were the file.
        if inode.file_type() != Some(FileType::Regular) {
            let problem = "is named by the superblock as a file of the volume's own, and is no regular file";
            return Err(Error::corrupt(Place::Inode(number), problem));
        }
        if inode.has_map() && all.iter().all(|(known, _)| *known != number) {
            all.push((number, view.map(&inode).taken()?));
        }
    }
    // No volume is in use by these two alone: one without them may have nothing in their records.
    if let Ok(inode) = view.inode(BAD_BLOCKS)
        && inode.has_map()
    {
        all.push((BAD_BLOCKS, view.map(&inode).taken()?));
    }
    if let Ok(inode) = view.inode(InodeNumber::RESIZE) {
        all.extend(doubly_indirect(view.format, &inode).map(|run| (InodeNumber::RESIZE, vec![run])));
    }
    Ok(all)
}

fn doubly_indirect(format: &Format, inode: &Inode) -> Option<BlockRun> {
    let pointer = inode.raw().i_block.chunks_exact(POINTER_LEN).nth(DOUBLY)?;
    let start = Block(u64::from(u32::from_le_bytes(pointer.try_into().ok()?)));
    format.geometry.contains(start, 1).then_some(BlockRun { start, count: 1 })
}
