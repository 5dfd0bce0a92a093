//! The metadata of a volume without contents of files: what somebody needs who looks for an error.
//!
//! Owns: which blocks are metadata, and what is taken out of them: values of attributes, contents that stand in inodes,
//! and names on demand. Checksums that were right are right afterwards, and wrong ones stay wrong. Excludes: the form of
//! the file that is made.
//!
//! The log of the journal is left out: it has old copies of everything. So the volume must be one after replay.

mod names;

use std::collections::HashSet;

use ondisk::dirent::{self, Layout};
use ondisk::features::Incompat;
use ondisk::inode::{FileType, I_BLOCK_OFFSET, Inode, InodeFlags};
use ondisk::invariant_or;
use ondisk::superblock::{RawSuperblock, SUPERBLOCK_LEN};
use ondisk::units::{Block, Group, InodeNumber, saturated};
use ondisk::xattr::{self, NameIndex, Value};
use platfs_device::{Device, Error, Result};
use zerocopy::IntoBytes;

use crate::htree::{self, Holds};
use crate::owners::{self, Part, Stretch};
use crate::raw_image::{RawImage, note};
use names::Names;

/// Result of copying.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Copied {
    /// Blocks that were written.
    pub blocks: u64,
    /// Structures that could not be read or followed, and are missing.
    pub problems: Vec<String>,
}

/// Copies the metadata of a volume to a device that reads as zeros. With a key names are made unreadable.
///
/// # Errors
/// A volume that waits for replay; with a key one with names that ignore case; the devices' failures.
pub fn copy(image: &RawImage, to: &dyn Device, key: Option<[u32; 4]>) -> Result<Copied> {
    let incompat = image.features().incompat;
    if incompat.contains(Incompat::RECOVER) {
        return Err(Error::Unsupported("the journal of the volume is to be replayed first".into()));
    }
    if key.is_some() && incompat.contains(Incompat::CASEFOLD) {
        let what = "names that ignore case can't be made unreadable: they could become the same";
        return Err(Error::Unsupported(what.into()));
    }
    let mut copying =
        Copying { image, to, names: key.map(Names::new), last: None, copied: Copied::default() };
    let mut problems = Vec::new();
    owners::all(image, &mut problems, |stretch| copying.stretch(stretch))?;
    copying.copied.problems.append(&mut problems);
    copying.superblocks()?;
    Ok(copying.copied)
}

/// Treatment of an inode's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// They are metadata.
    Whole,
    /// Names.
    Directory,
    /// The target of a link.
    Link,
    /// A log: its first block only.
    Journal,
    /// They are nobody's business.
    Nothing,
}

struct Copying<'g> {
    image: &'g RawImage,
    to: &'g dyn Device,
    names: Option<Names>,
    /// The inode whose contents were met last, and the blocks of its index.
    last: Option<(Inode, HashSet<u64>)>,
    copied: Copied,
}

impl Copying<'_> {
    fn put(&mut self, block: Block, bytes: &[u8]) -> Result<()> {
        self.copied.blocks += 1;
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let written = self.to.write_at(self.image.geometry().byte_offset(block), bytes);
        written.map_err(|source| Error::io(format!("writing block {block}"), source))
    }

    /// Copies blocks, each after a change.
    fn blocks(
        &mut self,
        stretch: &Stretch,
        mut change: impl FnMut(&mut Self, u64, Block, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        for index in 0..stretch.count {
            let block = Block(stretch.start.0 + index);
            match self.image.block(block) {
                Ok(mut bytes) => {
                    change(self, index, block, &mut bytes)?;
                    self.put(block, &bytes)?;
                }
                Err(error) => note(&mut self.copied.problems, error.to_string()),
            }
        }
        Ok(())
    }

    fn stretch(&mut self, stretch: &Stretch) -> Result<()> {
        match stretch.part {
            Part::InodeTable(_, first) => self.blocks(stretch, |copying, index, _, bytes| {
                copying.table(first, index, bytes);
                Ok(())
            }),
            Part::Attributes(_) => self.blocks(stretch, |copying, _, block, bytes| {
                copying.attributes(block, bytes);
                Ok(())
            }),
            Part::Data { inode, file_block, .. } => self.contents(stretch, inode, file_block),
            Part::Boot => Ok(()),
            _ => self.blocks(stretch, |_, _, _, _| Ok(())),
        }
    }

    fn kind(&self, inode: &Inode) -> Kind {
        let raw = self.image.superblock();
        let number = inode.number().get();
        let own = [raw.s_usr_quota_inum.get(), raw.s_grp_quota_inum.get(), raw.s_prj_quota_inum.get()];
        match inode.file_type() {
            _ if number == raw.s_journal_inum.get() => Kind::Journal,
            _ if own.contains(&number) || number == raw.s_orphan_file_inum.get() => Kind::Whole,
            _ if number == InodeNumber::RESIZE.get() => Kind::Whole,
            Some(FileType::Directory) => Kind::Directory,
            Some(FileType::Symlink) => Kind::Link,
            _ => Kind::Nothing,
        }
    }

    fn contents(&mut self, stretch: &Stretch, number: InodeNumber, first: u64) -> Result<()> {
        if self.last.as_ref().is_none_or(|(last, _)| last.number() != number) {
            let inode = self.image.inode(number)?;
            let index = self.index_blocks(&inode);
            self.last = Some((inode, index));
        }
        let Some((inode, index)) = self.last.clone() else { return Ok(()) };
        match self.kind(&inode) {
            Kind::Nothing => Ok(()),
            Kind::Whole => self.blocks(stretch, |_, _, _, _| Ok(())),
            Kind::Journal if first == 0 => {
                let one = Stretch { count: 1, ..*stretch };
                self.blocks(&one, |_, _, _, _| Ok(()))
            }
            Kind::Journal => Ok(()),
            Kind::Link => self.blocks(stretch, |copying, _, _, bytes| {
                let len = saturated::<usize>(inode.size()).min(bytes.len());
                let (target, rest) = bytes.split_at_mut(len);
                rest.fill(0);
                if let Some(names) = &copying.names {
                    names.path(target);
                }
                Ok(())
            }),
            Kind::Directory => self.blocks(stretch, |copying, at, block, bytes| {
                copying.directory(&inode, index.contains(&(first + at)), (first + at, block), bytes);
                Ok(())
            }),
        }
    }

    /// The blocks of a directory that are of its index; with names made unreadable it has none any more.
    fn index_blocks(&mut self, inode: &Inode) -> HashSet<u64> {
        if self.names.is_none() || !inode.flags().contains(InodeFlags::INDEX) {
            return HashSet::new();
        }
        match htree::read(self.image, inode) {
            Ok(tree) => {
                let nodes = tree.into_iter().flat_map(|tree| tree.nodes);
                let index = nodes.filter(|node| matches!(node.holds, Holds::Index { .. }));
                index.map(|node| u64::from(node.file_block.0)).collect()
            }
            Err(error) => {
                note(&mut self.copied.problems, error.to_string());
                HashSet::new()
            }
        }
    }

    /// A block of a directory: with names made unreadable a plain one, of which unused space is zeros.
    fn directory(&mut self, inode: &Inode, is_index: bool, (at, block): (u64, Block), bytes: &mut [u8]) {
        let Some(names) = self.names else { return };
        let (layout, own) = (self.image.layout(), inode.number());
        let seed = self.image.sealer().inode_seed(own, inode.generation());
        let was_right = is_index || seed.directory_leaf_is_right(bytes);
        if is_index && at == 0 {
            let parent = dirent::entries(bytes, layout).map_while(std::result::Result::ok).nth(1);
            let parent = parent.and_then(|entry| entry.inode).unwrap_or(own);
            dirent::init_directory(bytes, layout, own, parent);
        } else if is_index {
            dirent::init_leaf(bytes, layout);
        } else if let Err(problem) = unreadable(names, bytes, layout, dirent::entries) {
            note(
                &mut self.copied.problems,
                format!("block {block} of directory {own}: {problem}; it is left out"),
            );
            dirent::init_leaf(bytes, layout);
        }
        if was_right {
            seed.seal_directory_leaf(bytes);
        }
    }

    /// A block of attributes: their names without values.
    fn attributes(&mut self, block: Block, bytes: &mut [u8]) {
        let old = bytes.to_vec();
        let was_right = self.image.sealer().attribute_block_is_right(block, bytes);
        let stored = xattr::in_block(block, &old).ok().and_then(|(header, entries)| {
            let blanks = blanks(&entries);
            xattr::store_in_block(bytes, &blanked(&entries, &blanks), header.h_refcount.get()).ok()
        });
        if stored.is_none() {
            note(&mut self.copied.problems, format!("attribute block {block} is broken, and left out"));
            bytes.fill(0);
        } else if was_right {
            self.image.sealer().seal_attribute_block(block, bytes);
        }
    }

    /// A block of an inode table, the `index`-th.
    fn table(&mut self, first: InodeNumber, index: u64, bytes: &mut [u8]) {
        let geometry = self.image.geometry();
        let per_block = u64::from(geometry.inodes_per_block());
        let Ok(skipped) = u32::try_from(index * per_block) else { return };
        let size = usize::from(geometry.inode_size);
        for (number, record) in (first.get().saturating_add(skipped)..).zip(bytes.chunks_exact_mut(size)) {
            let Some(number) = InodeNumber::new(number) else { continue };
            if record.iter().any(|byte| *byte != 0) {
                let blanked = self.record(Inode::unjudged(number, record));
                record.copy_from_slice(blanked.bytes().get(..size).unwrap_or_default());
            }
        }
    }

    /// A record without contents and values.
    fn record(&mut self, mut inode: Inode) -> Inode {
        let was_right = self.image.sealer().inode_is_right(&inode);
        let old = inode.clone();
        let (kind, flags) = (inode.file_type(), inode.flags());
        let is_inline = flags.contains(InodeFlags::INLINE_DATA);
        match xattr::in_inode(&old) {
            Ok(entries) if !entries.is_empty() => {
                let mut blanks = blanks(&entries);
                for (entry, blank) in entries.iter().zip(&mut blanks).filter(|(entry, _)| is_contents(entry))
                {
                    self.inline(kind, entry, blank);
                }
                if xattr::store_in_inode(&mut inode, &blanked(&entries, &blanks)).is_err() {
                    note(
                        &mut self.copied.problems,
                        format!("attributes of inode {} are left out", inode.number()),
                    );
                    let _ = xattr::store_in_inode(&mut inode, &[]);
                }
            }
            Ok(_) => {}
            Err(error) => {
                note(&mut self.copied.problems, format!("{error}; they are left out"));
                let _ = xattr::store_in_inode(&mut inode, &[]);
            }
        }
        self.first_bytes(&mut inode, kind, is_inline);
        if self.names.is_some() && kind == Some(FileType::Directory) {
            inode.set_flags(flags.difference(InodeFlags::INDEX));
        }
        if was_right {
            self.image.sealer().seal_inode(&mut inode);
        }
        inode
    }

    /// Makes names in `i_block` unreadable, and clears inline contents of files.
    fn first_bytes(&mut self, inode: &mut Inode, kind: Option<FileType>, is_inline: bool) {
        let is_fast = inode.is_fast_symlink();
        let size = saturated::<usize>(inode.size()).min(60);
        let layout = self.image.layout();
        let Some(block) = inode.bytes_mut().get_mut(I_BLOCK_OFFSET..I_BLOCK_OFFSET + 60) else { return };
        match (kind, self.names) {
            (Some(FileType::Directory), Some(names)) if is_inline => {
                let region = block.get_mut(4..).unwrap_or_default();
                if unreadable(names, region, layout, dirent::entries_without_tail).is_err() {
                    region.fill(0);
                }
            }
            (Some(FileType::Symlink), Some(names)) if is_fast || is_inline => {
                names.path(block.get_mut(..size).unwrap_or_default());
            }
            (Some(FileType::Directory | FileType::Symlink), _) => {}
            _ if is_inline => block.fill(0),
            _ => {}
        }
    }

    /// Copies the part of an inline directory or link that stands in its attribute.
    fn inline(&mut self, kind: Option<FileType>, entry: &xattr::Entry<'_>, blank: &mut [u8]) {
        let Value::Here(value) = entry.value else { return };
        if !matches!(kind, Some(FileType::Directory | FileType::Symlink)) {
            return;
        }
        blank.copy_from_slice(value);
        let Some(names) = self.names else { return };
        let layout = self.image.layout();
        if kind == Some(FileType::Symlink) {
            names.path(blank);
        } else if unreadable(names, blank, layout, dirent::entries_without_tail).is_err() {
            blank.fill(0);
        }
    }

    /// Where the volume was mounted last is a name as well.
    fn superblocks(&mut self) -> Result<()> {
        if self.names.is_none() {
            return Ok(());
        }
        let geometry = *self.image.geometry();
        for group in (0..geometry.groups).map(Group).filter(|group| geometry.backups.has_superblock(*group)) {
            let offset = geometry.superblock_offset(group);
            let mut bytes = [0; SUPERBLOCK_LEN];
            let read = self.to.read_at(offset, &mut bytes);
            read.map_err(|source| Error::io("reading a superblock that was written", source))?;
            let Ok(mut raw) = RawSuperblock::parse(&bytes) else { continue };
            let was_right = self.image.sealer().superblock_is_right(&raw);
            raw.s_last_mounted.fill(0);
            raw.s_volume_name.fill(0);
            if was_right {
                self.image.sealer().seal_superblock(&mut raw);
            }
            let written = self.to.write_at(offset, raw.as_bytes());
            written.map_err(|source| Error::io("writing a superblock", source))?;
        }
        Ok(())
    }
}

/// True if an attribute holds contents of the inode that did not fit its record.
fn is_contents(entry: &xattr::Entry<'_>) -> bool {
    entry.index == NameIndex::SYSTEM && entry.name == b"data"
}

/// Values of zeros, as long as those that stand beside their entries. How a file is encrypted tells nothing without the
/// key, and checkers look at it.
fn blanks(entries: &[xattr::Entry<'_>]) -> Vec<Vec<u8>> {
    let blank = |entry: &xattr::Entry<'_>| match entry.value {
        Value::Here(value) if entry.index == NameIndex::ENCRYPTION => value.to_vec(),
        Value::Here(value) => vec![0; value.len()],
        Value::Inode { .. } => Vec::new(),
    };
    entries.iter().map(blank).collect()
}

fn blanked<'e>(entries: &[xattr::Entry<'e>], blanks: &'e [Vec<u8>]) -> Vec<xattr::Entry<'e>> {
    let with = |(entry, blank): (&xattr::Entry<'e>, &'e Vec<u8>)| match entry.value {
        Value::Here(_) => xattr::Entry::here(entry.index, entry.name, blank),
        Value::Inode { .. } => *entry,
    };
    entries.iter().zip(blanks).map(with).collect()
}

/// Function that finds the entries of a region.
type Parse = for<'b> fn(&'b [u8], Layout) -> dirent::Entries<'b>;

/// Makes the names of a block unreadable, and unused space zeros.
fn unreadable(
    names: Names,
    bytes: &mut [u8],
    layout: Layout,
    parse: Parse,
) -> std::result::Result<(), dirent::BrokenEntry> {
    let old = bytes.to_vec();
    for entry in parse(&old, layout) {
        let entry = entry?;
        let name = entry.offset + dirent::HEADER_LEN;
        let used = name + if entry.inode.is_some() { entry.name.len() } else { 0 };
        let end = entry.offset + entry.len;
        // Entries that parse lie inside. What did not would stay readable.
        names.name(invariant_or!(bytes.get_mut(name..used), continue, "a name lies in its block"));
        invariant_or!(bytes.get_mut(used..end), continue, "an entry lies in its block").fill(0);
        if entry.inode.is_none() {
            // The length of the name of an unused entry is nothing.
            bytes.get_mut(entry.offset + 6..entry.offset + 8).unwrap_or_default().fill(0);
        }
    }
    Ok(())
}
