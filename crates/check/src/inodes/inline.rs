//! Contents in the inode itself.

use ondisk::features::Incompat;
use ondisk::inode::{I_BLOCK_LEN, InodeFlags};
use ondisk::xattr::{self, Entry, NameIndex};

use super::record::Examination;
use crate::kinds::inodes::{INLINE_ATTRIBUTE, INLINE_FEATURE};
use crate::reporter::Finding;

impl Examination<'_, '_, '_, '_> {
    /// Inline contents need the feature, and an attribute for what is behind 60 bytes, also where that
    /// is nothing.
    pub(super) fn inline_attribute(&mut self) {
        if !self.pass.special.is_ordinary(self.inode().number()) {
            return;
        }
        self.extra_fields();
        self.in_inode_attributes();
        if self.is_over() {
            return;
        }
        let there = self.inline_len().is_some();
        if !self.subject().has_incompat(Incompat::INLINE_DATA) {
            self.inline_without_feature(there);
        } else if !there {
            self.inline_without_attribute();
        }
    }

    fn inline_without_feature(&mut self, there: bool) {
        let pointers = self.could_be_pointers();
        let mends = self.tell(&INLINE_FEATURE, |_| {
            let repair = match (there, pointers) {
                (true, _) => "the feature is set",
                (_, true) => "it holds block pointers: the flag is cleared",
                _ => "the place of its contents is not known: the inode is cleared",
            };
            Finding::unplaced("contents are in the inode, which the volume's features do not name", repair)
        });
        match (mends, there, pointers) {
            (false, ..) => {}
            (_, true, _) => self.pass.special.want_inline(),
            (_, _, true) => self.drop_flags(InodeFlags::INLINE_DATA),
            _ => self.clear(),
        }
    }

    fn inline_without_attribute(&mut self) {
        let size = self.inode().size();
        let most = I_BLOCK_LEN as u64;
        if !self.cut
            && !self.tell(&INLINE_ATTRIBUTE, |_| {
                let repair = if size > most {
                    format!("the first {most} bytes are kept, {} are lost", size - most)
                } else {
                    "an empty one is added, nothing is lost".to_owned()
                };
                Finding::unplaced("the attribute for contents behind byte 60 is missing", repair)
            })
        {
            return;
        }
        let copy = self.inode().clone();
        let mut entries = xattr::in_inode(&copy).unwrap_or_default();
        entries.push(Entry::here(NameIndex::SYSTEM, b"data", b""));
        if xattr::store_in_inode(&mut self.scratch.inode, &entries).is_ok() {
            self.scratch.inode.set_size(size.min(most));
        } else {
            self.scratch.inode.raw_mut().i_block.fill(0);
            self.scratch.inode.set_size(0);
            self.drop_flags(InodeFlags::INLINE_DATA);
        }
        self.cut();
    }
}
