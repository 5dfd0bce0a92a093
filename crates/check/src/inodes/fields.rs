//! Rules of single fields: flags against type and features, numbers that must be zero, sizes of the
//! extra part, times.

use ondisk::extent::{self, Head};
use ondisk::features::{Compat, Incompat, RoCompat};
use ondisk::inode::{FileType, I_BLOCK_LEN, InodeFlags, OLD_SIZE};
use ondisk::superblock::CREATOR_HURD;
use ondisk::units::{Block, bounded};
use ondisk::xattr;

use super::record::Examination;
use crate::kinds::inodes::{
    INODE_CASEFOLD, INODE_EXTENTS_FEATURE, INODE_EXTENTS_FLAG, INODE_EXTRA_SIZE, INODE_FRAGMENT,
    INODE_HIGH_FIELD, INODE_IMAGIC, INODE_INLINE_AND_EXTENTS, INODE_TIME_EPOCH, VALUE_FLAG,
    XATTR_BLOCK_PLACE,
};
use crate::reporter::Finding;
use crate::slices::word;

/// Offsets of the seconds and of the extra word of each time in the record.
const TIMES: [(usize, usize); 4] = [(0x08, 0x8C), (0x0C, 0x84), (0x90, 0x94), (0x10, 0x88)];

/// Returns true if the bytes begin like a node of an extent tree of their length.
pub(super) fn is_extent_head(bytes: &[u8]) -> bool {
    let head = Head::read(bytes);
    let most = extent::capacity(bytes.len());
    // Tools may leave room for a tail or two.
    head.magic == extent::EXTENT_MAGIC
        && head.count <= head.capacity
        && head.capacity <= most
        && head.capacity + 2 >= most
}

impl Examination<'_, '_, '_, '_> {
    pub(super) fn is_hurd(&self) -> bool {
        self.subject().raw.s_creator_os.get() == CREATOR_HURD
    }

    /// The block of attributes, in as many bits as the volume has for it.
    pub(super) fn attribute_block(&self) -> Block {
        let block = self.inode().attribute_block();
        if self.subject().has_incompat(Incompat::BIT64) { block } else { Block(block.0 & 0xFFFF_FFFF) }
    }

    /// Returns true if each pointer in `i_block` could be one.
    pub(super) fn could_be_pointers(&self) -> bool {
        let blocks = self.subject().geometry.blocks;
        self.inode().raw().i_block.chunks_exact(4).all(|bytes| u64::from(word(bytes, 0)) < blocks)
    }

    /// Flags that say how the contents are kept, and that need a feature.
    pub(super) fn flags_and_features(&mut self) {
        let is_dir = self.inode().file_type() == Some(FileType::Directory);
        if self.has(InodeFlags::CASEFOLD)
            && (!is_dir || !self.subject().has_incompat(Incompat::CASEFOLD))
            && self.tell(&INODE_CASEFOLD, |_| {
                let found = if is_dir { "the volume has no such feature" } else { "not a directory" };
                Finding::unplaced(format!("ignores the case of names, but: {found}"), "the flag is cleared")
            })
        {
            self.drop_flags(InodeFlags::CASEFOLD);
        }
        self.value_flag();
        if self.has(InodeFlags::INLINE_DATA) && self.has(InodeFlags::EXTENTS) {
            self.inline_and_extents();
        }
        if !self.is_over() && self.has(InodeFlags::INLINE_DATA) {
            self.inline_attribute();
        }
        if !self.is_over() {
            self.extents_flag();
        }
    }

    /// Values of attributes are in regular files only. What should be a file and is none is given up by other
    /// rules.
    fn value_flag(&mut self) {
        let is_value = match self.inode().file_type() {
            Some(FileType::Regular) => true,
            Some(_) => false,
            None => self.inode().links() == 0 || self.pass.special.is_ordinary(self.inode().number()),
        };
        if self.has(InodeFlags::EA_INODE)
            && !is_value
            && self.tell(&VALUE_FLAG, |_| {
                Finding::unplaced(
                    "holds the value of an attribute, but is no regular file",
                    "the flag is cleared",
                )
            })
        {
            self.drop_flags(InodeFlags::EA_INODE);
        }
    }

    /// Contents can't be inline and mapped by extents.
    fn inline_and_extents(&mut self) {
        let subject = self.subject();
        let mapped = self.inode().file_type().is_none_or(|file_type| {
            matches!(file_type, FileType::Regular | FileType::Directory | FileType::Symlink)
        });
        if !mapped || !subject.has_incompat(Incompat::EXTENTS) && !subject.has_incompat(Incompat::INLINE_DATA)
        {
            return;
        }
        let room =
            self.inode().bytes().len().saturating_sub(OLD_SIZE + usize::from(self.inode().extra_size()));
        let wrong = if is_extent_head(&self.inode().raw().i_block) {
            InodeFlags::INLINE_DATA
        } else if self.inode().size() < (I_BLOCK_LEN + room) as u64 {
            InodeFlags::EXTENTS
        } else {
            InodeFlags::INLINE_DATA | InodeFlags::EXTENTS
        };
        let given_up =
            wrong.contains(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA) && !self.could_be_pointers();
        let mends = self.tell(&INODE_INLINE_AND_EXTENTS, |_| {
            let repair = match wrong {
                _ if given_up => "the place of its contents is not known: the inode is cleared",
                InodeFlags::INLINE_DATA => {
                    "it begins with a tree of extents: the flag for inline contents is cleared"
                }
                InodeFlags::EXTENTS => "it is small enough: the flag for extents is cleared",
                _ => "it holds block pointers: both flags are cleared",
            };
            Finding::unplaced("contents are both inline and mapped by extents", repair)
        });
        if mends && given_up {
            self.clear();
        } else if mends {
            self.drop_flags(wrong);
        }
    }

    /// The flag for extents against the feature and against what stands there.
    fn extents_flag(&mut self) {
        let number = self.inode().number();
        let looked_at = self.inode().links() > 0 || matches!(number.get(), 1 | 2 | 8);
        if !looked_at {
            return;
        }
        let head = is_extent_head(&self.inode().raw().i_block);
        let feature = self.subject().has_incompat(Incompat::EXTENTS) || self.pass.special.wants_extents();
        let flag = self.has(InodeFlags::EXTENTS);
        if flag && !feature {
            self.extents_without_feature(head);
        } else if (feature || self.pass.special.has_trees())
            && !flag
            && head
            && matches!(self.inode().file_type(), Some(FileType::Regular | FileType::Directory))
            && self.tell(&INODE_EXTENTS_FLAG, |_| {
                Finding::unplaced("a tree of extents without the flag for it", "the flag is set")
            })
        {
            let flags = self.inode().flags() | InodeFlags::EXTENTS;
            self.scratch.inode.set_flags(flags);
            if !feature {
                self.pass.special.want_extents();
            }
        }
    }

    fn extents_without_feature(&mut self, head: bool) {
        let pointers = self.could_be_pointers();
        if head {
            self.pass.special.note_tree();
        }
        let mends = self.tell(&INODE_EXTENTS_FEATURE, |_| {
            let repair = match (head, pointers) {
                (true, _) => "the feature is set",
                (_, true) => "it holds block pointers: the flag is cleared",
                _ => "the place of its contents is not known: the inode is cleared",
            };
            Finding::unplaced("mapped by extents, which the volume's features do not name", repair)
        });
        match (mends, head, pointers) {
            (false, ..) => {}
            (_, true, _) => self.pass.special.want_extents(),
            (_, _, true) => self.drop_flags(InodeFlags::EXTENTS),
            _ => self.clear(),
        }
    }

    /// Fields that must be zero, and a flag that needs a feature.
    pub(super) fn fields(&mut self) {
        if self.has(InodeFlags::IMAGIC)
            && !self.subject().has_compat(Compat::IMAGIC_INODES)
            && self.tell(&INODE_IMAGIC, |_| Finding::unplaced("the flag is set", "the flag is cleared"))
        {
            self.drop_flags(InodeFlags::IMAGIC);
        }
        let address = self.inode().raw().i_obso_faddr.get();
        if address != 0
            && self.tell(&INODE_FRAGMENT, |_| {
                Finding::unplaced(format!("the address of a fragment is {address}"), "the field is cleared")
                    .expected(0)
            })
        {
            self.scratch.inode.raw_mut().i_obso_faddr.set(0);
        }
        self.high_fields();
    }

    /// Upper halves of fields that the volume's features do not allow.
    fn high_fields(&mut self) {
        if self.is_hurd() {
            return;
        }
        let blocks = self.inode().raw().i_blocks_high.get();
        if blocks != 0
            && !self.subject().has_ro_compat(RoCompat::HUGE_FILE)
            && self.tell(&INODE_HIGH_FIELD, |_| {
                let found = format!("the upper half of the count of blocks is {blocks}");
                Finding::unplaced(found, "the field is cleared").expected(0)
            })
        {
            self.scratch.inode.raw_mut().i_blocks_high.set(0);
        }
        let attributes = self.inode().raw().i_file_acl_high.get();
        if attributes != 0
            && !self.subject().has_incompat(Incompat::BIT64)
            && self.tell(&INODE_HIGH_FIELD, |_| {
                let found = format!("the upper half of the block of attributes is {attributes}");
                Finding::unplaced(found, "the field is cleared").expected(0)
            })
        {
            self.scratch.inode.raw_mut().i_file_acl_high.set(0);
        }
        self.attribute_block_place();
    }

    fn attribute_block_place(&mut self) {
        let block = self.attribute_block();
        let feature = self.subject().has_compat(Compat::EXT_ATTR);
        if block.0 == 0 || feature && self.subject().geometry.contains(block, 1) {
            return;
        }
        if self.tell(&XATTR_BLOCK_PLACE, |_| {
            let why = if feature { "outside the volume" } else { "the volume has no attributes" };
            Finding::unplaced(format!("attributes in block {block}: {why}"), "the attributes are given up")
        }) {
            self.scratch.inode.set_attribute_block(Block(0));
            self.cut();
        }
    }

    /// The size of the part behind byte 128 that holds fields.
    pub(super) fn extra_fields(&mut self) {
        let len = self.inode().bytes().len();
        let (extra, most) = (usize::from(self.inode().extra_size()), len - OLD_SIZE);
        // Zero is wrong too, but old volumes have it, and Linux and e2fsck accept it.
        if most == 0 || extra == 0 || (4..=most).contains(&extra) && extra.is_multiple_of(4) {
            return;
        }
        let right = self.right_extra_size(extra, most);
        if self.tell(&INODE_EXTRA_SIZE, |_| {
            Finding::unplaced(format!("{extra} bytes of extra fields"), format!("becomes {right}"))
                .expected(right)
        }) && let Some(field) = self.scratch.inode.bytes_mut().get_mut(OLD_SIZE..OLD_SIZE + 2)
        {
            field.copy_from_slice(&bounded::<u16>(right).to_le_bytes());
        }
    }

    /// Where attributes begin is where the extra fields end; without any: as new inodes have it.
    fn right_extra_size(&self, extra: usize, most: usize) -> usize {
        let bytes = self.inode().bytes();
        let marked = (4..=most.saturating_sub(4))
            .step_by(4)
            .find(|size| word(bytes, OLD_SIZE + size) == xattr::MAGIC && *size >= 28);
        let wanted = usize::from(self.subject().raw.s_want_extra_isize.get());
        let usual = if (4..=most).contains(&wanted) { wanted & !3 } else { most.min(32) };
        marked.unwrap_or(if (4..=most).contains(&extra) {
            extra.next_multiple_of(4).min(most)
        } else {
            usual
        })
    }

    /// Times before 1970 that an old kernel wrote as times after 2310.
    pub(super) fn times(&mut self) {
        let bytes = self.inode().bytes();
        let most = bytes.len() - OLD_SIZE;
        if most == 0 || usize::from(self.inode().extra_size()) + 4 >= most || bytes.len() < 0x98 {
            return;
        }
        let wrong = |bytes: &[u8], (seconds, extra): (usize, usize)| {
            word(bytes, seconds) >> 31 == 1 && word(bytes, extra) & 3 == 3
        };
        if !TIMES.iter().any(|time| wrong(bytes, *time)) {
            return;
        }
        if self.tell(&INODE_TIME_EPOCH, |_| {
            Finding::unplaced("a time is between the years 2310 and 2378", "the time becomes one before 1970")
        }) {
            for time in TIMES {
                let bytes = self.scratch.inode.bytes_mut();
                if wrong(bytes, time)
                    && let Some(low) = bytes.get_mut(time.1)
                {
                    *low &= !3;
                }
            }
        }
    }
}
