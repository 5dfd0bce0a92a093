//! The examination of one directory: its holes, its index, its blocks one by one.

use std::collections::HashMap;

use ondisk::dirent::{self, Layout};
use ondisk::features::Incompat;
use ondisk::htree::ROOT_ENTRIES;
use ondisk::inode::{Inode, InodeFlags};
use ondisk::seal::{DIRECTORY_TAIL_LEN, InodeSeed};
use ondisk::units::{Block, FileBlock, InodeNumber, bounded, low_u32};

use super::Pass;
use super::blocks::Blocks;
use super::index::{self, Role, Stop};
use super::inline;
use super::leaf::{Examiner, RebuildDecision, RegionLocation, chain_reaches};
use super::parents::DirectoryLinks;
use crate::issue::Location;
use crate::kinds::directories::{
    DIRECTORY_HOLE, DIRECTORY_UNREADABLE, ENTRY_DUPLICATE, LEAF_CHECKSUM, LEAF_TAIL,
};
use crate::kinds::inodes::INODE_INDEX_FLAG;
use crate::reporter::{Finding, Reporter};
use crate::slices::put;
use crate::staged::staging;
use crate::subject::Subject;
use platfs_device::Result;

/// Bytes of directories that are read at once.
const PIECE: usize = 64 << 10;
/// Bytes of an inode table that are read at once.
const TABLE_PIECE: u64 = 16 << 10;
/// Names of a directory without an index that are compared with one another: 32 MiB of hashes.
const NAMES_MAX: usize = 4 << 20;

/// Buffers that a thread reuses from directory to directory, so that a sound one takes no memory of its own.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) found: DirectoryLinks,
    blocks: Blocks,
    roles: Vec<Role>,
    seen: Vec<u64>,
    piece: Vec<u8>,
    table: Vec<u8>,
    table_at: u64,
}

impl Scratch {
    /// An inode's record, read together with its neighbours.
    fn inode(&mut self, subject: &Subject, number: InodeNumber, alone: bool) -> Option<Inode> {
        if alone {
            return subject.inode(number).ok();
        }
        let offset = subject.inode_offset(number)?;
        let size = usize::from(subject.geometry.inode_size);
        let inside = |scratch: &Scratch| {
            let at = usize::try_from(offset.checked_sub(scratch.table_at)?).ok()?;
            Inode::parse(number, scratch.table.get(at..at.checked_add(size)?)?).ok()
        };
        if let Some(inode) = inside(self) {
            return Some(inode);
        }
        self.table_at = offset - offset % TABLE_PIECE;
        let device: &dyn platfs_device::Device = &*subject.device;
        let len = TABLE_PIECE.min(device.size().saturating_sub(self.table_at));
        self.table.resize(bounded::<usize>(len), 0);
        if device.read_at(self.table_at, &mut self.table).is_err() {
            // A neighbour may be to blame, which is not even of the table.
            self.table.clear();
            return subject.inode(number).ok();
        }
        inside(self)
    }
}

/// A directory with what its examination needs.
struct Directory<'a, 'e> {
    subject: &'a Subject,
    layout: Layout,
    inode: &'a Inode,
    seed: InodeSeed,
    examiner: Examiner<'e>,
}

/// Examines a directory. A silent reporter ends it at the first thing that is wrong.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn examine(
    pass: &Pass<'_>,
    number: InodeNumber,
    scratch: &mut Scratch,
    reporter: &mut Reporter<'_, '_>,
) -> Result<RebuildDecision> {
    let &Pass { subject, facts, ref bounds, .. } = pass;
    scratch.found.clear();
    if !facts.used.contains(u64::from(number.index())) {
        return Ok(RebuildDecision::default());
    }
    // What cannot be read at all was reported by the pass over inodes.
    let Some(mut inode) = scratch.inode(subject, number, !reporter.is_silent()) else {
        return Ok(RebuildDecision::default());
    };
    index_without_blocks(subject, &mut inode, reporter)?;
    let Scratch { found, blocks, roles, seen, piece, .. } = scratch;
    seen.clear();
    let layout = subject.layout();
    let examiner = Examiner {
        facts,
        bounds,
        layout,
        inode: &inode,
        hasher: None,
        found,
        seen,
        known: HashMap::new(),
        whole: RebuildDecision::default(),
        headed: false,
    };
    if inode.flags().contains(InodeFlags::INLINE_DATA) {
        return inline::examine(subject, examiner, reporter);
    }
    if blocks.read(subject, &inode).is_err() || blocks.mapped() == 0 {
        return Ok(RebuildDecision::default());
    }
    let seed = subject.seed_of(&inode);
    let mut directory = Directory { subject, layout, inode: &inode, seed, examiner };
    let whole_index = !directory.holes(blocks, reporter) && directory.index(blocks, roles, reporter)?;
    directory.blocks(blocks, if whole_index { Some(roles) } else { None }, piece, reporter)?;
    Ok(directory.examiner.whole)
}

/// A directory inside its inode has no blocks for an index: the flag goes.
fn index_without_blocks(subject: &Subject, inode: &mut Inode, reporter: &mut Reporter<'_, '_>) -> Result<()> {
    let flags = inode.flags();
    if !flags.contains(InodeFlags::INDEX | InodeFlags::INLINE_DATA) {
        return Ok(());
    }
    let place = Location::inode(inode.number());
    let found = "the flag for an index is set, but: the directory stands in its inode";
    if reporter.found(&INODE_INDEX_FLAG, || Finding::new(place, found, "the flag is cleared")) {
        inode.set_flags(flags.difference(InodeFlags::INDEX));
        subject.write_inode(inode).map_err(staging("an inode"))?;
    }
    Ok(())
}

impl Directory<'_, '_> {
    fn place(&self) -> Location {
        Location::inode(self.inode.number())
    }

    /// Reports holes that the directory should not have; returns true if they are to be mended.
    fn holes(&mut self, blocks: &Blocks, reporter: &mut Reporter<'_, '_>) -> bool {
        let (end, mapped) = (blocks.end(), blocks.mapped());
        // Volumes with large directories may drop emptied blocks; not most of them, though.
        let may = self.subject.has_incompat(Incompat::LARGEDIR)
            && !self.subject.has_incompat(Incompat::INLINE_DATA)
            && end <= mapped * 2 + 64
            && blocks.find(FileBlock(0)).is_some();
        if end == mapped || may {
            return false;
        }
        let mend = reporter.found(&DIRECTORY_HOLE, || {
            let found = format!("{mapped} of {end} blocks");
            Finding::new(self.place(), found, "the directory is rewritten without the gap")
        });
        if mend {
            self.examiner.whole.rebuild = true;
            self.examiner.facts.names_lost();
        }
        true
    }

    /// Walks the index, if there should be one; returns true if the roles of blocks are known by it.
    fn index(
        &mut self,
        blocks: &Blocks,
        roles: &mut Vec<Role>,
        reporter: &mut Reporter<'_, '_>,
    ) -> Result<bool> {
        if reporter.any() || !self.inode.flags().contains(InodeFlags::INDEX) {
            return Ok(false);
        }
        let Some(start) = blocks.find(FileBlock(0)) else { return Ok(false) };
        let Ok(mut root) = self.subject.block(start) else { return Ok(false) };
        // What is wrong with `.` and `..` is not the index's fault.
        let region = RegionLocation { file_block: FileBlock(0), block: Some(start), hashes: None };
        if self.examiner.head(&mut root, &region, reporter) {
            self.seed.seal_index_node(&mut root, ROOT_ENTRIES);
            self.write(start, &root)?;
        }
        let mut walk = index::Walk {
            subject: self.subject,
            layout: self.layout,
            inode: self.inode,
            seed: self.seed,
            blocks,
            roles,
        };
        match walk.run(&root) {
            Ok(hasher) => {
                self.examiner.hasher = Some(hasher);
                Ok(true)
            }
            Err(Stop::Fault(fault)) => {
                self.examiner.whole.rebuild |= reporter.found(fault.kind, || {
                    let place = self.place().at_file_block(fault.file_block);
                    Finding::new(place, fault.found, "the index is rebuilt from the names")
                });
                Ok(false)
            }
            Err(Stop::Unreadable(error)) => {
                self.examiner.whole.rebuild |= reporter.found(&DIRECTORY_UNREADABLE, || {
                    Finding::new(self.place(), error.to_string(), "the index is rebuilt from the names")
                });
                Ok(false)
            }
        }
    }

    fn write(&self, block: Block, bytes: &[u8]) -> Result<()> {
        self.subject.write(block, bytes).map_err(staging("a block of a directory"))
    }

    /// Examines all blocks, in the order in which they are.
    fn blocks(
        &mut self,
        blocks: &Blocks,
        roles: Option<&[Role]>,
        piece: &mut Vec<u8>,
        reporter: &mut Reporter<'_, '_>,
    ) -> Result<()> {
        let len = self.subject.block_len();
        let at_once = if reporter.is_silent() { low_u32((PIECE / len).max(1) as u64) } else { 1 };
        for run in &blocks.runs {
            let mut done = 0;
            while done < run.count {
                if reporter.any() {
                    return Ok(());
                }
                let count = at_once.min(run.count - done);
                piece.resize(count as usize * len, 0);
                let first = Block(run.start.0 + u64::from(done));
                if let Err(error) = self.subject.read(first, piece) {
                    self.unreadable(FileBlock(run.first.0 + done), first, &error, reporter)?;
                    done += count;
                    continue;
                }
                for (at, bytes) in (0..).zip(piece.chunks_exact_mut(len)) {
                    let region = RegionLocation {
                        file_block: FileBlock(run.first.0 + done + at),
                        block: Some(Block(first.0 + u64::from(at))),
                        hashes: None,
                    };
                    self.block(bytes, region, roles, reporter)?;
                }
                done += count;
            }
        }
        self.repeated(reporter);
        Ok(())
    }

    /// A block that the device does not give: reported, and written as one without names.
    fn unreadable(
        &mut self,
        at: FileBlock,
        block: Block,
        error: &std::io::Error,
        reporter: &mut Reporter<'_, '_>,
    ) -> Result<()> {
        let place = self.place().at_file_block(at).at_block(block);
        let finding = || Finding::new(place, error.to_string(), "the block is written without names");
        if reporter.found(&DIRECTORY_UNREADABLE, finding) {
            self.examiner.facts.names_lost();
            let mut bytes = vec![0; self.subject.block_len()];
            if at.0 == 0 {
                dirent::init_directory(&mut bytes, self.layout, self.inode.number(), InodeNumber::ROOT);
            } else {
                dirent::init_leaf(&mut bytes, self.layout);
            }
            self.seed.seal_directory_leaf(&mut bytes);
            self.write(block, &bytes)?;
            self.examiner.whole.rebuild |= self.inode.flags().contains(InodeFlags::INDEX);
        } else if !reporter.is_silent() {
            self.examiner.facts.names_unknown();
            self.examiner.whole.stays = true;
        }
        Ok(())
    }

    /// Looks for repeated names among those seen so far.
    fn repeated(&mut self, reporter: &mut Reporter<'_, '_>) {
        let seen = &mut *self.examiner.seen;
        seen.sort_unstable();
        if reporter.is_silent() && seen.windows(2).any(|pair| pair.first() == pair.last()) {
            reporter.found(&ENTRY_DUPLICATE, || Finding::new(Location::default(), "", ""));
        }
        seen.clear();
    }

    fn block(
        &mut self,
        bytes: &mut [u8],
        region: RegionLocation,
        roles: Option<&[Role]>,
        reporter: &mut Reporter<'_, '_>,
    ) -> Result<()> {
        let indexed = self.inode.flags().contains(InodeFlags::INDEX);
        let role =
            roles.map(|roles| roles.get(region.file_block.0 as usize).copied().unwrap_or(Role::Unknown));
        let is_index = match role {
            Some(role) => role == Role::Index,
            // The root was looked at before its index; a node has no names.
            None if indexed && region.file_block.0 == 0 => is_root(bytes, self.layout),
            None => indexed && index::is_misplaced_node(bytes, self.layout),
        };
        if is_index {
            return Ok(());
        }
        let hashes = match role {
            Some(Role::Leaf(least, most)) => Some((least, most)),
            _ => None,
        };
        self.leaf(bytes, &RegionLocation { hashes, ..region }, reporter)?;
        if hashes.is_some() || self.examiner.seen.len() >= NAMES_MAX {
            self.repeated(reporter);
        }
        Ok(())
    }

    fn leaf(
        &mut self,
        bytes: &mut [u8],
        region: &RegionLocation,
        reporter: &mut Reporter<'_, '_>,
    ) -> Result<()> {
        let (layout, len) = (self.layout, bytes.len());
        let space = layout.leaf_space();
        // Without a tail the entries may go on to the end of the block. A silent reporter need not know: they
        // are broken where the tail should begin.
        let covered = layout.checksums
            && !reporter.is_silent()
            && chain_reaches(bytes, layout, len)
            && !chain_reaches(bytes, layout, space);
        let has_tail = !layout.checksums || (dirent::has_tail(bytes) && !covered);
        let end = if covered { len } else { space };
        let reported = reporter.reported();
        let mut changed = self.examiner.walk(
            bytes.get_mut(..end).unwrap_or_default(),
            region,
            region.file_block.0 == 0,
            reporter,
        );
        if !layout.checksums || reporter.any() {
            return if changed { self.store(bytes, region) } else { Ok(()) };
        }
        let place = || {
            let place = self.place().at_file_block(region.file_block);
            region.block.map_or(place.clone(), |block| place.at_block(block))
        };
        let quiet = reporter.reported() == reported;
        if !has_tail {
            let finding = || Finding::new(place(), "no checksum", "the place for it is made");
            if changed || (quiet && reporter.found(&LEAF_TAIL, finding)) {
                let made = make_tail(bytes, layout);
                self.examiner.whole.rebuild |= !made;
                changed |= made;
            }
        } else if quiet && !changed && !self.seed.directory_leaf_is_right(bytes) {
            let finding = || Finding::new(place(), "a wrong checksum", "the checksum is recomputed");
            changed |= reporter.found(&LEAF_CHECKSUM, finding);
        }
        if changed { self.store(bytes, region) } else { Ok(()) }
    }

    fn store(&self, bytes: &mut [u8], region: &RegionLocation) -> Result<()> {
        if dirent::has_tail(bytes) {
            self.seed.seal_directory_leaf(bytes);
        }
        region.block.map_or(Ok(()), |block| self.write(block, bytes))
    }
}

/// Returns true if the entry of `..` covers a block to its end, as in the root of an index.
fn is_root(bytes: &[u8], layout: Layout) -> bool {
    let mut entries = dirent::entries_without_tail(bytes, layout).map_while(std::result::Result::ok);
    entries.nth(1).is_some_and(|entry| entry.offset + entry.len == bytes.len())
}

/// Makes room for a tail behind the last entry of a block; returns true if there is any.
fn make_tail(bytes: &mut [u8], layout: Layout) -> bool {
    let space = layout.leaf_space();
    if !chain_reaches(bytes, layout, space) {
        let Some(Ok(last)) = dirent::entries_without_tail(bytes, layout).last() else { return false };
        let used =
            if last.inode.is_some() { dirent::entry_len(last.name.len()) } else { dirent::MIN_ENTRY_LEN };
        let offset = last.offset;
        if offset + used > space {
            return false;
        }
        let len = layout.encode_len(space - offset);
        put(bytes, offset + 4, &len);
    }
    debug_assert_eq!(bytes.len() - space, DIRECTORY_TAIL_LEN);
    dirent::put_tail(bytes);
    true
}
