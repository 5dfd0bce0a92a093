//! Names of removed files: entries in copies of directory blocks, and what unused space of directories still shows.
//!
//! Owns: which name led to an inode just before it was removed. Excludes: paths, which take the names of directories.

use std::collections::{BTreeSet, HashMap};

use ondisk::dirent::{self, HEADER_LEN, Layout, entry_len, inline_parent};
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::journal::fast_commit::is_name;
use ondisk::units::{Block, InodeNumber};
use platfs_device::Result;

use super::lives::{Lives, Tables};
use crate::history::{History, When};
use crate::names::inline_rest;
use crate::owners::{self, Part};
use crate::raw_image::RawImage;

/// Where a name was found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// In space of a directory that is not in use any more.
    Slack,
    /// In a directory as a transaction has it.
    Entry,
}

/// A name that led to an inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Link {
    pub(super) parent: u32,
    pub(super) name: Vec<u8>,
    pub(super) source: Source,
}

/// Entries of a directory's block at a moment.
struct Seen {
    when: When,
    parent: u32,
    entries: Vec<(u32, Vec<u8>, Source)>,
}

/// All that copies of directories hold.
#[derive(Default)]
pub(super) struct Links {
    blocks: HashMap<u64, Vec<Seen>>,
    /// The blocks in which an inode was ever named.
    of: HashMap<u32, BTreeSet<u64>>,
}

/// Goes through all copies of directory blocks.
pub(super) fn collect(now: &RawImage, tables: &Tables, lives: &Lives, history: &History) -> Result<Links> {
    let mut blocks: Vec<Block> =
        history.blocks().filter(|block| now.geometry().contains(*block, 1)).collect();
    blocks.retain(|block| tables.first_in(now, *block).is_none());
    blocks.sort_unstable();
    let parents = parents(now, lives, &blocks)?;
    let mut links = Links::default();
    for block in &blocks {
        for (when, copy) in history.copies(*block) {
            let bytes = history.contents(copy)?;
            let known = parents.get(&block.0).map_or(&[][..], |known| known);
            links.take(now, *block, (*when, &bytes), known);
        }
    }
    for (when, inode) in &lives.directories {
        links.inline(now, *when, inode);
    }
    Ok(links)
}

/// Directories that each block belonged to at some time: those of old records, and those of now.
fn parents(now: &RawImage, lives: &Lives, blocks: &[Block]) -> Result<HashMap<u64, Vec<Inode>>> {
    let mut parents: HashMap<u64, Vec<Inode>> = HashMap::new();
    let wanted: BTreeSet<u64> = blocks.iter().map(|block| block.0).collect();
    let mut add = |block: u64, inode: &Inode| {
        let known = parents.entry(block).or_default();
        let is_known = known
            .iter()
            .any(|one: &Inode| one.number() == inode.number() && one.generation() == inode.generation());
        if !is_known {
            known.push(inode.clone());
        }
    };
    for (_, inode) in &lives.directories {
        // A map that can't be followed as it stands now tells nothing.
        let runs = now.map(inode).map(|map| map.runs).unwrap_or_default();
        for run in runs {
            let inside = wanted.range(run.start.0..run.start.0.saturating_add(run.count));
            inside.for_each(|block| add(*block, inode));
        }
    }
    for owner in owners::find(now, blocks)?.found {
        if let Part::Data { inode, .. } = owner.part {
            let inode = now.inode(inode)?;
            if inode.file_type() == Some(FileType::Directory) {
                add(owner.block.0, &inode);
            }
        }
    }
    Ok(parents)
}

impl Links {
    fn take(&mut self, now: &RawImage, block: Block, (when, bytes): (When, &[u8]), known: &[Inode]) {
        let layout = now.layout();
        let Some(entries) = parse(bytes, layout, now.geometry().inodes()) else { return };
        let own = entries.iter().find(|(_, name, source)| name == b"." && *source == Source::Entry);
        let parent = match own {
            Some((inode, ..)) => *inode,
            None => {
                let fits = |one: &&Inode| {
                    let seed = now.sealer().inode_seed(one.number(), one.generation());
                    seed.directory_leaf_is_right(bytes)
                };
                let mut fitting = known.iter().filter(fits);
                match (fitting.next(), fitting.next()) {
                    (Some(one), None) => one.number().get(),
                    _ => return,
                }
            }
        };
        self.add(block.0, Seen { when, parent, entries });
    }

    /// Looks at what unused space of all directories, as they are now, still shows of inodes that were removed without
    /// a trace in the journal.
    pub(super) fn left_in_directories(
        &mut self,
        now: &RawImage,
        unnamed: &BTreeSet<u32>,
        problems: &mut Vec<String>,
    ) -> Result<()> {
        if unnamed.is_empty() {
            return Ok(());
        }
        now.inodes(problems, |inode| {
            let is_mapped = !inode.flags().contains(InodeFlags::INLINE_DATA);
            if inode.links() > 0 && inode.file_type() == Some(FileType::Directory) && is_mapped {
                // A directory that can't be followed or read tells nothing.
                let runs = now.map(&inode).map(|map| map.runs).unwrap_or_default();
                for block in runs.iter().flat_map(|run| run.start.0..run.start.0.saturating_add(run.count)) {
                    if let Ok(bytes) = now.block(Block(block)) {
                        self.left_in(now, (inode.number().get(), block), &bytes, unnamed);
                    }
                }
            }
            Ok(())
        })
    }

    fn left_in(
        &mut self,
        now: &RawImage,
        (parent, block): (u32, u64),
        bytes: &[u8],
        unnamed: &BTreeSet<u32>,
    ) {
        let mut entries = parse(bytes, now.layout(), now.geometry().inodes()).unwrap_or_default();
        entries.retain(|(inode, _, source)| *source == Source::Slack && unnamed.contains(inode));
        if !entries.is_empty() {
            self.add(block, Seen { when: When::MAX, parent, entries });
        }
    }

    /// Directories that stand in their records. Their place here is behind all blocks.
    fn inline(&mut self, now: &RawImage, when: When, inode: &Inode) {
        if !inode.flags().contains(InodeFlags::INLINE_DATA) || inline_parent(&inode.raw().i_block).is_none() {
            return;
        }
        let mut entries = Vec::new();
        for region in [inode.raw().i_block.get(4..).unwrap_or_default(), inline_rest(inode)] {
            let used = dirent::entries_without_tail(region, now.layout()).map_while(std::result::Result::ok);
            entries.extend(
                used.filter_map(|entry| Some((entry.inode?.get(), entry.name.to_vec(), Source::Entry))),
            );
        }
        let parent = inode.number().get();
        self.add(u64::MAX - u64::from(parent), Seen { when, parent, entries });
    }

    fn add(&mut self, block: u64, seen: Seen) {
        for (inode, ..) in &seen.entries {
            self.of.entry(*inode).or_default().insert(block);
        }
        self.blocks.entry(block).or_default().push(seen);
    }

    /// Finds an inode's name in unused space of directories, from a moment on.
    fn left_of(&self, inode: u32, from: When) -> Option<Link> {
        let blocks = self.of.get(&inode).into_iter().flatten();
        let mut seen =
            blocks.filter_map(|block| self.blocks.get(block)).flatten().filter(|seen| seen.when >= from);
        seen.find_map(|seen| {
            let left = seen.entries.iter().find(|(one, _, source)| *one == inode && *source == Source::Slack);
            left.map(|(_, name, source)| Link { parent: seen.parent, name: name.clone(), source: *source })
        })
    }

    /// The names of an inode after one moment and before another, as the directories had them last.
    pub(super) fn before(&self, inode: u32, after: When, end: When) -> Vec<Link> {
        let mut found: Vec<Link> = Vec::new();
        for block in self.of.get(&inode).into_iter().flatten() {
            let past = self.blocks.get(block).map_or(&[][..], |past| past);
            let last = past.partition_point(|seen| seen.when < end).checked_sub(1);
            let Some(last) = last.and_then(|last| past.get(last)) else { continue };
            // What a block held before the life began is another file's.
            if last.when < after {
                continue;
            }
            for (_, name, source) in last.entries.iter().filter(|(one, ..)| *one == inode) {
                let link = Link { parent: last.parent, name: name.clone(), source: *source };
                if name != b"." && name != b".." && !found.contains(&link) {
                    found.push(link);
                }
            }
        }
        if found.is_empty() {
            found.extend(self.left_of(inode, end));
        }
        // Names in use are worth more than what is left of others.
        if found.iter().any(|link| link.source == Source::Entry) {
            found.retain(|link| link.source == Source::Entry);
        }
        found
    }
}

/// The entries of a block, if it is one of a directory: those in use, and what unused space looks like.
fn parse(bytes: &[u8], layout: Layout, inodes: u32) -> Option<Vec<(u32, Vec<u8>, Source)>> {
    let mut entries = Vec::new();
    for entry in dirent::entries(bytes, layout) {
        let entry = entry.ok()?;
        let used = match entry.inode {
            Some(inode) => {
                let is_fine = entry.name == b"." || entry.name == b".." || is_name(entry.name);
                if !is_fine || inode.get() > inodes {
                    return None;
                }
                entries.push((inode.get(), entry.name.to_vec(), Source::Entry));
                entry_len(entry.name.len())
            }
            None => 0,
        };
        let region = bytes.get(entry.offset + used..entry.offset + entry.len).unwrap_or_default();
        slack(region, inodes, &mut entries);
    }
    // A block of zeros is none of a directory, and one without any name tells nothing.
    (!entries.is_empty()).then_some(entries)
}

/// Most entries that unused space of one block is taken for.
const SLACK_MAX: usize = 1_000;

/// Adds the entries that unused space looks like. Later versions of Linux clear it.
fn slack(region: &[u8], inodes: u32, entries: &mut Vec<(u32, Vec<u8>, Source)>) {
    let mut at = 0;
    while at + HEADER_LEN < region.len() && entries.len() < SLACK_MAX {
        match left_over(region.get(at..).unwrap_or_default(), inodes) {
            Some((inode, name)) => {
                at += entry_len(name.len());
                entries.push((inode.get(), name.to_vec(), Source::Slack));
            }
            None => at += 4,
        }
    }
}

fn left_over(bytes: &[u8], inodes: u32) -> Option<(InodeNumber, &[u8])> {
    let &[a, b, c, d, len_low, len_high, name_len, kind] = bytes.first_chunk::<HEADER_LEN>()?;
    let inode = InodeNumber::new(u32::from_le_bytes([a, b, c, d])).filter(|inode| inode.get() <= inodes)?;
    let len = usize::from(u16::from_le_bytes([len_low, len_high]));
    let name = bytes.get(HEADER_LEN..HEADER_LEN + usize::from(name_len)).filter(|name| is_name(name))?;
    let is_fine = len >= entry_len(name.len()) && len.is_multiple_of(4) && kind <= 7;
    is_fine.then_some((inode, name))
}
