//! Contents: the map or the bytes in the inode, and the size and count of blocks that must agree with it.

use ondisk::block_map;
use ondisk::dirent;
use ondisk::features::{Compat, Incompat, RoCompat};
use ondisk::inode::{FileType, InodeFlags};
use ondisk::units::{Block, InodeNumber, high_u32, join_u64, low_u16, low_u32};

use super::record::{Claim, Examination};
use super::special::Role;
use crate::kinds::inodes::{
    DIRECTORY_EMPTY_MAP, INODE_BLOCKS, INODE_INDEX_FLAG, INODE_SIZE, MAP_BLOCKS_IN_CLUSTERS,
};
use crate::reporter::Finding;
use crate::slices::word;
use std::sync::atomic::Ordering;

/// Most bytes of a regular file on a volume without the feature for large ones.
const SMALL_MAX: u64 = 0x7FFF_FFFF;

/// Result of the walk over a map.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mapped {
    /// Clusters of contents and of the map's own nodes.
    pub(super) clusters: u64,
    /// One past the last mapped file block.
    pub(super) end: u64,
    /// One past the last mapped file block that is written; in directories that of any.
    pub(super) written_end: u64,
    /// True if the map has nodes of its own, all of them in an extent tree.
    pub(super) is_tree: bool,
    /// True if the pieces do not lie behind each other.
    pub(super) fragmented: bool,
    /// The last block that was seen, to see the next behind it; 0 before the first.
    pub(super) previous: u64,
}

impl Examination<'_, '_, '_, '_> {
    /// Returns true if `i_block` leads to blocks, as far as type, size and counts show.
    pub(super) fn has_blocks(&self) -> bool {
        let inode = self.inode();
        if self.pass.special.role(inode.number()) == Role::BadBlocks {
            return !self.has(InodeFlags::INLINE_DATA);
        }
        match inode.file_type() {
            Some(FileType::Symlink) if self.attribute_block().0 == 0 => inode.raw().i_blocks_lo.get() != 0,
            Some(FileType::Symlink) => {
                inode.size() >= 60 || inode.size() > 4 && word(&inode.raw().i_block, 4) == 0
            }
            Some(FileType::Regular | FileType::Directory) => !self.has(InodeFlags::INLINE_DATA),
            _ => false,
        }
    }

    /// Returns true if the contents are in the inode, on a volume that has that or will.
    fn is_inline(&self) -> bool {
        let has = self.subject().has_incompat(Incompat::INLINE_DATA) || self.pass.special.wants_inline();
        has && self.has(InodeFlags::INLINE_DATA)
    }

    /// Returns true if the inode has a tree of extents, on a volume that has those or will.
    fn is_mapped_by_extents(&self) -> bool {
        let has = self.subject().has_incompat(Incompat::EXTENTS) || self.pass.special.wants_extents();
        has && self.has(InodeFlags::EXTENTS)
    }

    /// The contents where nothing was looked at before: attributes in the inode are charged to it, too.
    pub(super) fn contents_alone(&mut self) {
        self.in_inode_attributes();
        self.contents();
    }

    /// Claims the block in which the Hurd keeps the name of a file's translator; clusters that it takes.
    fn translator(&mut self) -> u64 {
        let block = Block(u64::from(self.inode().raw().i_version_lo.get()));
        let has_one = self.is_hurd() && block.0 != 0 && self.subject().geometry.contains(block, 1);
        if has_one {
            self.scratch.claims.push(Claim { start: block, count: 1, node: true });
        }
        u64::from(has_one)
    }

    /// All of the contents, and what must agree with them.
    pub(super) fn contents(&mut self) {
        let attributes = self.attribute_block_contents();
        if self.is_over() {
            return;
        }
        let inline = self.is_inline();
        let mapped = if inline || self.inode().is_fast_symlink() || !self.has_blocks() {
            Mapped::default()
        } else if self.is_mapped_by_extents() {
            self.extents()
        } else {
            self.indirect()
        };
        if self.is_over() {
            return;
        }
        let clusters = mapped.clusters + attributes + self.translator() + self.charged;
        let role = self.pass.special.role(self.inode().number());
        let visible = matches!(role, Role::Ordinary | Role::Root);
        let file_type = self.inode().file_type().filter(|_| visible);
        self.index_flag();
        if file_type == Some(FileType::Directory) && !inline && mapped.end == 0 {
            return self.empty_directory(attributes + self.charged);
        }
        self.size(&mapped, inline);
        self.count_of_blocks(clusters);
        self.pointers_in_clusters(mapped.clusters);
        let few = clusters < u64::from(self.subject().geometry.blocks_per_group);
        // The blocks of the resize inode lie where the format wants them; e2fsck does not count it either.
        self.use_as(file_type, mapped.fragmented && few && !self.is_resize());
    }

    /// Only directories have an index, where the volume has any.
    fn index_flag(&mut self) {
        if !self.has(InodeFlags::INDEX) {
            return;
        }
        let is_dir = self.inode().file_type() == Some(FileType::Directory);
        if (!is_dir || !self.subject().has_compat(Compat::DIR_INDEX))
            && self.tell(&INODE_INDEX_FLAG, |_| {
                let found = if is_dir { "the volume has no such feature" } else { "not a directory" };
                Finding::unplaced(
                    format!("the flag for an index is set, but: {found}"),
                    "the flag is cleared",
                )
            })
        {
            self.drop_flags(InodeFlags::INDEX);
        }
    }

    /// A directory without a block of names. One that has pointer blocks at least lost what was below them,
    /// and goes on in one of these.
    fn empty_directory(&mut self, others: u64) {
        let node = self.scratch.claims.iter().find(|claim| claim.node).map(|claim| claim.start);
        let node = node.filter(|node| !self.has(InodeFlags::EXTENTS) && !self.is_foreign(*node));
        if !self.tell(&DIRECTORY_EMPTY_MAP, |_| match node {
            Some(_) => Finding::unplaced(
                "a directory with pointer blocks and nothing behind them",
                "it becomes an empty one; what it led to goes to lost+found",
            ),
            None => Finding::unplaced(
                "a directory without a block",
                "it is cleared; what it led to goes to lost+found",
            ),
        }) {
            return self.use_as(Some(FileType::Directory), false);
        }
        match node {
            Some(node) => self.begin_directory(node, others),
            None => self.clear(),
        }
    }

    /// Makes the directory one of a single block without names. The pass over the tree finds its parent.
    fn begin_directory(&mut self, block: Block, others: u64) {
        let subject = self.subject();
        let mut bytes = vec![0; subject.block_len()];
        dirent::init_directory(&mut bytes, subject.layout(), self.inode().number(), InodeNumber::ROOT);
        subject.seed_of(self.inode()).seal_directory_leaf(&mut bytes);
        self.stage(block, &bytes);
        let i_block = &mut self.scratch.inode.raw_mut().i_block;
        i_block.fill(0);
        if let Some(slot) = i_block.first_chunk_mut() {
            *slot = low_u32(block.0).to_le_bytes();
        }
        self.drop_flags(InodeFlags::INDEX);
        self.scratch.inode.set_size(bytes.len() as u64);
        self.scratch.claims.clear();
        self.scratch.claims.push(Claim { start: block, count: 1, node: false });
        self.lose_names();
        self.cut();
        self.count_of_blocks(1 + others);
        self.use_as(Some(FileType::Directory), false);
    }

    /// The size against the map.
    fn size(&mut self, mapped: &Mapped, inline: bool) {
        let size = self.inode().size();
        let right = match self.inode().file_type() {
            Some(FileType::Symlink) => None,
            Some(FileType::Directory) => self.directory_size(size, mapped, inline),
            _ => self.file_size(size, mapped),
        };
        if let Some(right) = right {
            let follows = self.cut;
            if follows && !self.reporter.is_silent() {
                self.scratch.inode.set_size(right);
                self.changed = true;
            } else if self.tell(&INODE_SIZE, |_| {
                Finding::unplaced(format!("{size} bytes"), format!("the size becomes {right}"))
                    .expected(right)
            }) {
                self.scratch.inode.set_size(right);
            }
        }
        if self.inode().file_type() == Some(FileType::Regular) && self.inode().size() > SMALL_MAX {
            self.pass.large.store(true, Ordering::Relaxed);
        }
    }

    /// The size that a directory should have, if it has another.
    fn directory_size(&self, size: u64, mapped: &Mapped, inline: bool) -> Option<u64> {
        if inline {
            return self.inline_len().filter(|len| *len != size);
        }
        let block_size = self.subject().geometry.block_size;
        let blocks = size >> block_size.log2();
        let ahead = u64::from(self.subject().raw.s_prealloc_dir_blocks);
        let wrong = size & (u64::from(block_size.bytes()) - 1) != 0
            || blocks > mapped.end
            || mapped.end - blocks > ahead;
        wrong.then_some(mapped.end << block_size.log2())
    }

    /// The size that a file should have, if it has another: at least up to the last block that is
    /// written, at most what its map can hold.
    fn file_size(&self, size: u64, mapped: &Mapped) -> Option<u64> {
        let block_size = self.subject().geometry.block_size;
        let block_len = u64::from(block_size.bytes());
        let extents = self.is_mapped_by_extents();
        let last = mapped.written_end.checked_sub(1);
        // Readers of a tree stop at the block of the size; of a root and of pointers one more is allowed.
        let short = !self.has(InodeFlags::VERITY)
            && last.is_some_and(|last| {
                size < last * block_len || mapped.is_tree && size > 0 && size == last * block_len
            });
        let most = if extents { (block_len << 32) - 1 } else { self.most_by_pointers() };
        (short || size > most).then_some((mapped.end * block_len).min(most))
    }

    /// Bytes that block pointers reach.
    fn most_by_pointers(&self) -> u64 {
        let block_size = self.subject().geometry.block_size;
        let blocks = u64::from(block_map::DIRECT)
            + (1..=3).map(|depth| block_map::span(block_size, depth)).sum::<u64>();
        blocks << block_size.log2()
    }

    /// The count of blocks that are charged to the inode.
    pub(super) fn count_of_blocks(&mut self, clusters: u64) {
        if self.is_hurd() {
            return;
        }
        let geometry = &self.subject().geometry;
        let huge_feature = self.subject().has_ro_compat(RoCompat::HUGE_FILE);
        let in_blocks = huge_feature && self.has(InodeFlags::HUGE_FILE);
        let blocks = clusters << geometry.cluster_log2;
        let right = if in_blocks { blocks } else { blocks << (geometry.block_size.log2() - 9) };
        let raw = self.inode().raw();
        let high = raw.i_blocks_high.get();
        let stated = join_u64(if huge_feature { u32::from(high) } else { 0 }, raw.i_blocks_lo.get());
        if stated == right && !(in_blocks && high != 0) {
            return;
        }
        let follows = self.cut && !self.reporter.is_silent();
        if !follows
            && !self.tell(&INODE_BLOCKS, |_| {
                let unit = if in_blocks { "blocks" } else { "sectors" };
                Finding::unplaced(format!("{stated} {unit}"), format!("becomes {right}")).expected(right)
            })
        {
            return;
        }
        let raw = self.scratch.inode.raw_mut();
        raw.i_blocks_lo.set(low_u32(right));
        raw.i_blocks_high.set(low_u16(high_u32(right)));
        self.changed = true;
    }

    /// Volumes of clusters map files by extents only.
    fn pointers_in_clusters(&mut self, clusters: u64) {
        let number = self.inode().number();
        let counted = number == InodeNumber::ROOT || self.pass.special.is_ordinary(number);
        if clusters > 0
            && counted
            && self.subject().has_ro_compat(RoCompat::BIGALLOC)
            && !self.has(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA)
            && matches!(self.inode().file_type(), Some(FileType::Regular | FileType::Directory))
        {
            self.convert_pointers();
        }
    }

    /// Writes a map of pointers as extents, into the clusters that its pointer blocks had.
    fn convert_pointers(&mut self) {
        let found = "mapped by block pointers";
        if !self.tell(&MAP_BLOCKS_IN_CLUSTERS, |_| Finding::unplaced(found, "the map is written as extents"))
        {
            return;
        }
        let claims = self.scratch.claims.len();
        let walk = self.walk_pointers();
        self.scratch.claims.truncate(claims);
        let nodes = self.rebuild(&walk.kept, &walk.own, || None);
        let flags = self.inode().flags() | InodeFlags::EXTENTS;
        self.scratch.inode.set_flags(flags);
        let mapped = self.recount(&walk.kept, &nodes, 0);
        self.count_of_blocks(mapped.clusters);
    }
}
