//! Blocks of directories, with and without places for checksums.
//!
//! Changes that can't be made in place are left to the check of the draft, which rewrites directories from their names: a
//! full block that gets a checksum, an index node that has one entry more than fits beside one.

use ondisk::dirent::{self, Layout, MIN_ENTRY_LEN, entry_len};
use ondisk::features::{Compat, Incompat};
use ondisk::htree::{self, Index, Kind, Root};
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::seal::DIRECTORY_TAIL_LEN;
use ondisk::units::Block;

use super::{TuneWork, checksums};
use crate::Result;
use crate::draft::Draft;

/// Kinds of issues by which the check says that a directory is to be rewritten.
pub(super) const REWRITTEN: [&str; 4] =
    ["directory-checksum-missing", "index-limit", "index-checksum", "index-root"];

/// A directory on its way from one layout to another.
pub(super) struct LayoutChange<'d> {
    pub(super) draft: &'d Draft,
    pub(super) old: Layout,
    pub(super) new: Layout,
}

impl LayoutChange<'_> {
    /// Rewrites all blocks of a directory that can be rewritten in place.
    pub(super) fn directory(&self, inode: &Inode) -> Result<()> {
        if inode.flags().contains(InodeFlags::INLINE_DATA) {
            return Ok(());
        }
        let map = self.draft.map_of(inode)?;
        let mut blocks = Vec::new();
        for run in &map.runs {
            blocks.extend((0..run.count).map(|at| (run.logical + at, Block(run.start.0 + at))));
        }
        let nodes = self.nodes(inode, &blocks)?;
        let seed = self.draft.sealer().inode_seed(inode.number(), inode.generation());
        // Entries of encrypted directories without case keep the hash behind the name.
        let hashes = inode.flags().contains(InodeFlags::CASEFOLD | InodeFlags::ENCRYPT);
        for (logical, block) in blocks {
            let mut bytes = self.draft.block(block)?;
            let before = bytes.clone();
            match nodes.iter().find(|(at, _)| *at == logical) {
                Some((_, kind)) => {
                    self.node(&mut bytes, *kind);
                    seed.seal_index_node(&mut bytes, kind.entries_offset());
                }
                None => {
                    self.leaf(&mut bytes, if hashes { 8 } else { 0 });
                    if self.new.checksums && dirent::has_tail(&bytes) {
                        seed.seal_directory_leaf(&mut bytes);
                    }
                }
            }
            if bytes != before {
                self.draft.put_block(block, &bytes)?;
            }
        }
        Ok(())
    }

    /// File blocks that are no leaves but a part of the index.
    fn nodes(&self, inode: &Inode, blocks: &[(u64, Block)]) -> Result<Vec<(u64, Kind)>> {
        if !inode.flags().contains(InodeFlags::INDEX) {
            return Ok(Vec::new());
        }
        let large = self.draft.features().incompat.contains(Incompat::LARGEDIR);
        let read = |logical: u64| -> Result<Vec<u8>> {
            match blocks.binary_search_by_key(&logical, |(at, _)| *at) {
                Ok(found) => self.draft.block(blocks.get(found).map_or(Block(0), |(_, block)| *block)),
                Err(_) => Ok(Vec::new()),
            }
        };
        let top = read(0)?;
        let mut found = vec![(0, Kind::Root)];
        // The hash of a root in an encrypted directory without case is of another kind; only levels count here.
        let levels = match Root::parse(&top, self.old, large) {
            Ok(root) => usize::from(root.levels),
            Err(_) => usize::from(top.get(htree::ROOT_ENTRIES - 2).copied().unwrap_or(0)) + 1,
        };
        let mut level = vec![(top, Kind::Root)];
        for _ in 1..levels.min(4) {
            let mut below = Vec::new();
            for (bytes, kind) in &level {
                let Ok(index) = Index::parse(bytes, *kind, self.old) else { continue };
                for entry in index.iter() {
                    let logical = u64::from(entry.block.0);
                    found.push((logical, Kind::Node));
                    below.push((read(logical)?, Kind::Node));
                }
            }
            level = below;
        }
        Ok(found)
    }

    /// A block of the index: its limit follows the layout.
    fn node(&self, bytes: &mut [u8], kind: Kind) {
        if self.old.checksums == self.new.checksums {
            return;
        }
        let at = kind.entries_offset() + 2;
        let count = match bytes.get(at..at + 2) {
            Some(&[low, high]) => u16::from_le_bytes([low, high]),
            _ => return,
        };
        if count <= kind.limit(self.new) {
            htree::truncate(bytes, kind, self.new, count);
        }
    }

    /// A block of names: it gets a place for its checksum, or gives it to the last entry.
    fn leaf(&self, bytes: &mut [u8], behind_names: usize) {
        match (self.old.checksums, self.new.checksums) {
            (false, true) if !dirent::has_tail(bytes) => self.make_room(bytes, behind_names),
            (true, false) if dirent::has_tail(bytes) => self.give_room(bytes),
            _ => {}
        }
    }

    fn make_room(&self, bytes: &mut [u8], behind_names: usize) {
        let Some(Ok(last)) = dirent::entries_without_tail(bytes, self.old).last() else { return };
        let used = match last.inode {
            Some(_) => entry_len(last.name.len() + behind_names),
            None => MIN_ENTRY_LEN,
        };
        let (offset, len) = (last.offset, last.len);
        if last.inode.is_none() && len == DIRECTORY_TAIL_LEN && offset > 0 {
            dirent::put_tail(bytes);
        } else if len >= used + DIRECTORY_TAIL_LEN {
            let field = self.new.encode_len(len - DIRECTORY_TAIL_LEN);
            bytes.get_mut(offset + 4..offset + 6).unwrap_or_default().copy_from_slice(&field);
            dirent::put_tail(bytes);
        }
    }

    fn give_room(&self, bytes: &mut [u8]) {
        let space = bytes.len() - DIRECTORY_TAIL_LEN;
        let last = dirent::entries_without_tail(bytes.get(..space).unwrap_or_default(), self.old).last();
        let Some(Ok(last)) = last else { return };
        let (offset, len) = (last.offset, last.len);
        let field = self.new.encode_len(len + DIRECTORY_TAIL_LEN);
        bytes.get_mut(offset + 4..offset + 6).unwrap_or_default().copy_from_slice(&field);
        bytes.get_mut(space..).unwrap_or_default().fill(0);
    }
}

/// Returns true if the names of a directory do not fit one block: others, such as an empty lost+found, stay as they are.
fn needs_index(draft: &Draft, inode: &Inode) -> Result<bool> {
    let layout = Layout::new(draft.geometry().block_size, &draft.features());
    let mut used = 0;
    for run in draft.map_of(inode)?.runs {
        for block in (run.start.0..run.start.0 + run.count).map(Block) {
            let bytes = draft.block(block)?;
            let entries = dirent::entries(&bytes, layout).map_while(std::result::Result::ok);
            let named = entries.filter(|entry| entry.inode.is_some());
            used += named.map(|entry| entry_len(entry.name.len())).sum::<usize>();
            if used > layout.leaf_space() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Turns on indexes: directories of more than one block get theirs from the check of the draft, which takes the mark of
/// an index without an index for a broken one.
pub(super) fn index_all(work: &mut TuneWork<'_>) -> Result<()> {
    work.deepen()?;
    work.draft.reshape(|raw| {
        let mut features = raw.features();
        features.compat |= Compat::DIR_INDEX;
        raw.set_features(features);
    })?;
    let block_len = u64::from(work.draft.geometry().block_size.bytes());
    let draft = &work.draft;
    checksums::each_inode(draft, &mut |inode| {
        let flags = inode.flags();
        let is_plain = !flags.intersects(InodeFlags::INDEX | InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT);
        let is_long = is_plain && inode.size() > block_len;
        if inode.file_type() == Some(FileType::Directory) && is_long && needs_index(draft, inode)? {
            inode.set_flags(flags | InodeFlags::INDEX);
            return Ok(true);
        }
        Ok(false)
    })?;
    work.expected.extend(["index-root", "directory-hole"]);
    Ok(())
}
