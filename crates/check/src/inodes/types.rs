//! Types of inodes: the stated type against the contents, and the types of inodes with a purpose.

use ondisk::dirent;
use ondisk::inode::{FileType, I_BLOCK_LEN, Inode, InodeFlags};
use ondisk::units::{Block, FileBlock, InodeNumber, bounded};
use ondisk::unseal;

use super::fields::is_extent_head;
use super::record::Examination;
use super::special::Role;
use crate::kinds::inodes::{
    INODE_GARBAGE, INODE_RESERVED, INODE_ROOT, INODE_SPECIAL_FLAGS, INODE_SPECIAL_SIZE, INODE_TYPE,
    INODE_VACANT, SYMLINK_FLAGS, SYMLINK_TARGET,
};
use crate::reporter::Finding;
use crate::slices::word;

/// Flags with which nothing could be done to a special file or symbolic link any more.
const FIXED: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);

/// Tells if bytes begin with a directory entry of a known type, whose name lies in them whole.
fn begins_with_name(entries: &[u8]) -> bool {
    let Some(&[len, code]) = entries.get(6..8) else { return false };
    let name = entries.get(8..8 + usize::from(len)).unwrap_or_default();
    FileType::from_entry_code(code).is_some()
        && !name.is_empty()
        && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

impl Examination<'_, '_, '_, '_> {
    /// Returns true if the record is no inode at all: its checksum is wrong, and most of its neighbours in the
    /// same block are broken too, as when something else was written there.
    pub(super) fn is_garbage(&mut self) -> bool {
        if self.inode().links() == 0 || !self.is_among_broken() {
            return false;
        }
        let mends = self.tell(&INODE_GARBAGE, |_| {
            Finding::unplaced(
                "most inodes in this block of the table are broken, this one too",
                "the inode is cleared",
            )
        });
        if mends {
            self.clear();
        }
        mends
    }

    fn is_among_broken(&self) -> bool {
        let (subject, number) = (self.subject(), self.inode().number());
        let per_block = subject.geometry.inodes_per_block();
        let Some(offset) = subject.inode_offset(number) else { return false };
        if per_block < 2 {
            return false;
        }
        let block_len = subject.block_len() as u64;
        let size = usize::from(subject.geometry.inode_size);
        let Ok(bytes) = subject.block(Block(offset / block_len)) else { return false };
        let first = number.index() - number.index() % per_block;
        let broken = bytes.chunks_exact(size).zip(first..).filter(|(record, index)| {
            InodeNumber::new(index + 1).is_some_and(|number| {
                // Those that were cleared before this one count too.
                self.pass.facts.altered.contains(u64::from(number.index()))
                    || !subject.sealer.inode_is_right(&Inode::unjudged(number, record))
            })
        });
        broken.count() > per_block as usize / 2 && !self.agrees_with_another(&bytes, first)
    }

    /// True if another inode of the block was sealed with the same seed, which then is not the volume's: both are sound.
    /// A change of the UUID that broke off leaves such.
    fn agrees_with_another(&self, block: &[u8], first: u32) -> bool {
        let (inode, size) = (self.inode(), usize::from(self.subject().geometry.inode_size));
        let Some(seed) = unseal::by_inode(inode) else { return false };
        let numbers = (first..).map_while(|index| InodeNumber::new(index + 1));
        let mut others =
            numbers.zip(block.chunks_exact(size)).filter(|(number, _)| *number != inode.number());
        others.any(|(number, record)| unseal::by_inode(&Inode::unjudged(number, record)) == Some(seed))
    }

    /// The root must be a directory.
    pub(super) fn root_type(&mut self) {
        if self.inode().file_type() == Some(FileType::Directory) {
            return;
        }
        let is_dir = self.is_really_directory();
        if self.tell(&INODE_ROOT, |inode| {
            let repair = if is_dir {
                "its contents are those of a directory: it becomes one again"
            } else {
                "it is cleared and recreated; what it led to goes to lost+found"
            };
            Finding::unplaced(format!("the root's mode is {:#o}", inode.mode()), repair)
        }) {
            if is_dir { self.set_type(FileType::Directory) } else { self.clear() }
        }
    }

    pub(super) fn set_type(&mut self, file_type: FileType) {
        let raw = self.scratch.inode.raw_mut();
        let mode = raw.i_mode.get() & 0xFFF | file_type.mode_bits();
        raw.i_mode.set(mode);
        self.changed = true;
        self.altered();
    }

    /// Hidden files are regular files with a link, without which Linux refuses them; other reserved inodes are nothing.
    pub(super) fn reserved_type(&mut self, role: Role) {
        let (mode, file_type, links) = (self.inode().mode(), self.inode().file_type(), self.inode().links());
        let boot = self.inode().number().get() == 5;
        let wrong = match role {
            Role::Hidden => file_type != Some(FileType::Regular),
            Role::Resize => mode != 0 && file_type != Some(FileType::Regular),
            _ if boot => file_type == Some(FileType::Directory),
            _ => mode != 0,
        };
        if wrong
            && self.tell(&INODE_RESERVED, |_| {
                Finding::unplaced(format!("a reserved inode with mode {mode:#o}"), "the mode is set right")
            })
        {
            let mode = if role == Role::Hidden { FileType::Regular.mode_bits() | 0o600 } else { 0 };
            self.scratch.inode.raw_mut().i_mode.set(mode);
        }
        let is_file = self.inode().file_type() == Some(FileType::Regular);
        if role == Role::Hidden
            && is_file
            && links == 0
            && (self.changed
                || self.tell(&INODE_RESERVED, |_| {
                    Finding::unplaced("a file of the volume itself without a link", "it gets its link")
                }))
        {
            self.scratch.inode.raw_mut().i_links_count.set(1);
        }
    }

    /// Inodes for files that the volume does not have are empty.
    pub(super) fn vacant(&mut self) {
        let raw = self.inode().raw();
        let empty = raw.i_links_count.get() == 0 && raw.i_blocks_lo.get() == 0 && word(&raw.i_block, 0) == 0;
        if !empty
            && self.tell(&INODE_VACANT, |_| {
                Finding::unplaced(
                    "holds something, but nothing of the volume uses it",
                    "the inode is emptied",
                )
            })
        {
            self.scratch.inode.bytes_mut().fill(0);
            self.pass.facts.gave_up();
        }
    }

    /// The list of bad blocks is no file.
    pub(super) fn bad_blocks(&mut self) {
        let raw = self.inode().raw();
        let clean = raw.i_mode.get() == 0
            && raw.i_uid.get() == 0
            && raw.i_gid.get() == 0
            && raw.i_links_count.get() == 0
            && raw.i_file_acl_lo.get() == 0
            && !self.has(InodeFlags::INLINE_DATA);
        if !clean
            && self.tell(&INODE_RESERVED, |_| {
                Finding::unplaced(
                    "the list of bad blocks has a mode, owner, links or attributes",
                    "the list is emptied",
                )
            })
        {
            self.scratch.inode.bytes_mut().fill(0);
            self.pass.facts.gave_up();
        }
        self.use_as(None, false);
        let mapped = self.indirect();
        if self.cut {
            self.count_of_blocks(mapped.clusters);
        }
    }

    /// The type that the contents speak for.
    fn true_type(&self) -> Option<FileType> {
        if self.is_really_directory() {
            return Some(FileType::Directory);
        }
        let i_block = &self.inode().raw().i_block;
        let inside = self.says_inline() && self.inline_len().is_some();
        (inside || self.has(InodeFlags::EXTENTS) && is_extent_head(i_block)).then_some(FileType::Regular)
    }

    /// Returns true if the inode says that it holds contents itself: one flag alone may be a mistake.
    fn says_inline(&self) -> bool {
        self.has(InodeFlags::INLINE_DATA) && self.inode().size() > 0
    }

    /// Tells if the inode holds a parent's number and directory entries: either all of them are sound, or the first one has a
    /// plausible name, and only its length may be wrong.
    fn is_inline_directory(&self) -> bool {
        let inodes = self.subject().geometry.inodes();
        let (parent, entries) = self.inode().raw().i_block.split_at(4);
        let inside = |number: u32| (1..=inodes).contains(&number);
        let layout = self.subject().layout();
        let is_whole = || {
            dirent::entries_without_tail(entries, layout)
                .all(|entry| entry.is_ok_and(|entry| entry.inode.is_none_or(|inode| inside(inode.get()))))
        };
        let begins = inside(word(entries, 0)) && begins_with_name(entries);
        inside(word(parent, 0)) && self.inline_len().is_some() && (begins || is_whole())
    }

    /// Returns true if the first block begins like that of this directory, or the inode holds one.
    fn is_really_directory(&self) -> bool {
        let subject = self.subject();
        let raw = self.inode().raw();
        let pointers = (0..I_BLOCK_LEN).step_by(4).map(|at| u64::from(word(&raw.i_block, at)));
        let first = if self.has(InodeFlags::INLINE_DATA) {
            return self.is_inline_directory();
        } else if self.has(InodeFlags::EXTENTS) {
            let Some(block) = self.first_mapped() else { return false };
            block
        } else {
            if pointers.clone().any(|block| block != 0 && !subject.geometry.contains(Block(block), 1)) {
                return false;
            }
            let device =
                matches!(self.inode().file_type(), Some(FileType::CharDevice | FileType::BlockDevice));
            if device && raw.i_links_count.get() == 1 && pointers.skip(4).all(|block| block == 0) {
                return false;
            }
            Block(u64::from(word(&raw.i_block, 0)))
        };
        first.0 != 0 && subject.block(first).is_ok_and(|bytes| self.begins_like_directory(&bytes))
    }

    fn begins_like_directory(&self, bytes: &[u8]) -> bool {
        let at = |at: usize, len: usize| bytes.get(at..at + len).unwrap_or_default();
        let short = |from: usize| at(from, 2).try_into().map_or(0, u16::from_le_bytes);
        let first = usize::from(short(4));
        let entry = |from: usize, name: &[u8]| {
            let len = usize::from(short(from + 4));
            at(from + 6, 1) == [bounded::<u8>(name.len())]
                && at(from + 8, name.len()) == name
                && len >= 12
                && len.is_multiple_of(4)
        };
        word(bytes, 0) == self.inode().number().get()
            && entry(0, b".")
            && first + 12 < bytes.len()
            && entry(first, b"..")
    }

    /// The block of file block 0 of a map of extents, as far as it is simple to find.
    fn first_mapped(&self) -> Option<Block> {
        let mut bytes = self.inode().raw().i_block.to_vec();
        for _ in 0..=ondisk::extent::MAX_DEPTH {
            match ondisk::extent::Node::parse(&bytes).ok()?.entries {
                ondisk::extent::Entries::Leaf(extents) => {
                    let first = extents.first()?;
                    return (first.logical == FileBlock(0)).then_some(first.start);
                }
                ondisk::extent::Entries::Index(children) => {
                    bytes = self.subject().block(children.first()?.node).ok()?;
                }
            }
        }
        None
    }

    /// The type against what the inode holds.
    pub(super) fn file_type(&mut self) {
        let file_type = self.inode().file_type();
        let wrong = match file_type {
            Some(FileType::Regular | FileType::Directory) => return,
            Some(FileType::Symlink) => return self.symlink(),
            Some(_) => {
                self.has(InodeFlags::EXTENTS | InodeFlags::INDEX)
                    || self.says_inline()
                    || self.holds_more_than_a_device()
            }
            None => true,
        };
        let holds = word(&self.inode().raw().i_block, 0) != 0;
        let wrong = wrong || holds && self.is_really_directory();
        if !wrong {
            return self.special_file();
        }
        let right = if self.reporter.is_silent() { None } else { self.true_type() };
        let flags_only = right.is_none() && file_type.is_some() && !self.holds_more_than_a_device();
        if !self.tell(&INODE_TYPE, |inode| {
            let repair = match right {
                Some(FileType::Directory) => "its contents are those of a directory: it becomes one",
                Some(_) => "it has contents: it becomes a regular file",
                None if flags_only => "the flags of files with contents are cleared",
                None => "the inode is cleared, names that lead to it go",
            };
            Finding::unplaced(format!("mode {:#o} does not suit what the inode holds", inode.mode()), repair)
        }) {
            return;
        }
        match right {
            Some(right) => self.set_type(right),
            None if flags_only => {
                self.drop_flags(InodeFlags::EXTENTS | InodeFlags::INDEX | FIXED | InodeFlags::INLINE_DATA);
                self.scratch.inode.set_size(0);
            }
            None => self.clear(),
        }
    }

    /// Returns true if `i_block` holds more than device numbers, together with flags that devices can't get.
    fn holds_more_than_a_device(&self) -> bool {
        let i_block = &self.inode().raw().i_block;
        self.has(FIXED) && i_block.iter().skip(16).any(|byte| *byte != 0)
    }

    /// Devices, pipes and sockets.
    fn special_file(&mut self) {
        let wrong = InodeFlags::INLINE_DATA | FIXED;
        if self.has(wrong)
            && self.tell(&INODE_SPECIAL_FLAGS, |inode| {
                let bits = (inode.flags() & wrong).bits();
                Finding::unplaced(format!("a special file with flags {bits:#x}"), "the flags are cleared")
            })
        {
            self.drop_flags(wrong);
        }
        if self.inode().size() != 0
            && self.tell(&INODE_SPECIAL_SIZE, |inode| {
                Finding::unplaced(format!("a special file of {} bytes", inode.size()), "the size becomes 0")
                    .expected(0)
            })
        {
            self.scratch.inode.set_size(0);
        }
    }

    fn symlink(&mut self) {
        if self.has(InodeFlags::EXTENTS)
            && !self.has_blocks()
            && self.tell(&SYMLINK_FLAGS, |_| {
                Finding::unplaced(
                    "the target is in the inode, the flag for extents is set",
                    "the flag is cleared",
                )
            })
        {
            self.drop_flags(InodeFlags::EXTENTS);
        }
        if self.is_over() {
            return;
        }
        if self.has(InodeFlags::INDEX)
            && self.tell(&SYMLINK_FLAGS, |_| {
                Finding::unplaced("the flag for indexed directories is set", "the flag is cleared")
            })
        {
            self.drop_flags(InodeFlags::INDEX);
        }
        self.target();
        if !self.is_over()
            && self.has(FIXED)
            && self.tell(&INODE_SPECIAL_FLAGS, |_| {
                Finding::unplaced("can't be changed", "the flags are cleared")
            })
        {
            self.drop_flags(FIXED);
        }
    }

    /// The length of the target is the size.
    fn target(&mut self) {
        let size = self.inode().size();
        let found = self.target_len();
        if found.is_some_and(|len| len == size && len > 0) {
            return;
        }
        let keeps = found.filter(|len| *len > 0);
        if !self.tell(&SYMLINK_TARGET, |_| match keeps {
            Some(len) => {
                Finding::unplaced(format!("{size} bytes long, the target has {len}"), "the size is set right")
            }
            None => {
                Finding::unplaced("no target can be read", "the link is cleared, names that lead to it go")
            }
        }) {
            return;
        }
        match keeps {
            Some(len) => self.scratch.inode.set_size(len),
            None => self.clear(),
        }
    }

    /// Bytes of the target; `None` where there is none, or none that ends.
    fn target_len(&self) -> Option<u64> {
        let inode = self.inode();
        if self.has(InodeFlags::INLINE_DATA) {
            if self.has(InodeFlags::EXTENTS) {
                return None;
            }
            return self.inline_len();
        }
        let fast = inode.size() > 0 && inode.size() < I_BLOCK_LEN as u64;
        let block;
        let bytes: &[u8] = if fast {
            if self.has(InodeFlags::EXTENTS) {
                return None;
            }
            &inode.raw().i_block
        } else {
            block = self.subject().block(self.target_block()?).ok()?;
            &block
        };
        let len = if self.has(InodeFlags::ENCRYPT) {
            u64::from(u16::from_le_bytes([*bytes.first()?, *bytes.get(1)?])) + 2
        } else {
            bytes.iter().position(|byte| *byte == 0)? as u64
        };
        // A size that fits the inode would say that the target is there.
        let least = if fast { 0 } else { I_BLOCK_LEN as u64 };
        (least..bytes.len() as u64).contains(&len).then_some(len)
    }

    /// The one block of a long target.
    fn target_block(&self) -> Option<Block> {
        let i_block = &self.inode().raw().i_block;
        let block = if self.has(InodeFlags::EXTENTS) {
            match ondisk::extent::Node::parse(i_block).ok()?.entries {
                ondisk::extent::Entries::Leaf(extents) => match extents.as_slice() {
                    [one] if one.logical == FileBlock(0) && one.count == 1 => one.start,
                    _ => return None,
                },
                ondisk::extent::Entries::Index(_) => return None,
            }
        } else {
            let others = i_block.get(4..)?.iter().all(|byte| *byte == 0);
            others.then(|| Block(u64::from(word(i_block, 0))))?
        };
        self.subject().geometry.contains(block, 1).then_some(block)
    }
}
