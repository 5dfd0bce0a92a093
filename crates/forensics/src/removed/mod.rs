//! Removed files that can be recovered: what the journal and the volume still tell of them, and how sure it is.
//!
//! Linux clears the map of a file that it removes, so that the volume itself tells nothing. But the journal holds copies
//! of inode tables and directories from before, and bitmaps from after: which file it was, where it lay, what it was
//! called, and whether its blocks were given to another file since.
//!
//! Owns: the list of removed files and the judgement. Excludes: reading their contents out, and where they go.

mod contents;
mod links;
mod lives;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::units::{InodeNumber, saturated};
use platfs_device::Result;
use platfs_device::map::Run;

use crate::history::{History, When};
use crate::names::{self, inline_rest};
use crate::raw_image::{RawImage, is_directory, note};
pub use contents::Fate;
use contents::{Contents, Judge};
pub use links::Source;
use links::{Link, Links};
use lives::{Life, Lives, Tables, is_held};

/// Confidence that the recovered file is as it was when it was last committed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Confidence {
    /// Some of it is gone, or nobody knows.
    Doubtful,
    /// Nothing speaks against it, but not all could be proved.
    Likely,
    /// Its record, its name and all blocks are there, and no block was used again.
    Sure,
}

/// A removed file.
#[derive(Clone, Debug)]
pub struct Removed {
    /// The record as it was last.
    pub inode: Inode,
    /// Paths from the root, without a slash before; they begin with `<inode>` where a directory is not known.
    pub paths: Vec<Vec<u8>>,
    /// When it was removed, in seconds since 1970.
    pub removed: Option<u64>,
    /// Where its contents lie.
    pub runs: Vec<Run>,
    /// Fate of its blocks.
    pub fate: Fate,
    /// Confidence that this is the file as it was when it was last committed.
    pub confidence: Confidence,
    /// Reasons for it not being sure.
    pub doubts: Vec<String>,
}

impl Removed {
    /// Contents that stand in the record itself; `None` if they lie in blocks.
    #[must_use]
    pub fn inside(&self) -> Option<Vec<u8>> {
        let is_inline = self.inode.flags().contains(InodeFlags::INLINE_DATA);
        if !is_inline && !self.inode.is_fast_symlink() {
            return None;
        }
        let mut bytes = self.inode.raw().i_block.to_vec();
        if is_inline {
            bytes.extend_from_slice(inline_rest(&self.inode));
        }
        bytes.truncate(saturated::<usize>(self.inode.size()));
        Some(bytes)
    }
}

/// Past that was searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PastSummary {
    /// True if there is a journal.
    pub has_journal: bool,
    /// Transactions that it still holds.
    pub transactions: usize,
    /// When the oldest of them was committed, in seconds since 1970.
    pub since: Option<u64>,
}

/// Everything that was found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Past that was searched.
    pub past: PastSummary,
    /// Removed files, by inode number.
    pub removed: Vec<Removed>,
    /// Structures that could not be read.
    pub problems: Vec<String>,
}

/// Finds removed files. `bare` is the volume as it stands on its device, `now` as it is after replay.
///
/// # Errors
/// A journal that can't be read; the device's failure.
pub fn find(bare: &RawImage, now: &RawImage) -> Result<Findings> {
    let history = History::read(bare)?;
    let tables = Tables::read(now)?;
    let mut lives = lives::collect(bare, now, &tables, &history)?;
    let mut links = links::collect(now, &tables, &lives, &history)?;
    let mut findings = Findings { past: past(&history), ..Findings::default() };
    let known: HashSet<u32> = lives.ended.iter().map(|life| life.last.number().get()).collect();
    let orphans = orphans(now, &known, history.now(), &mut findings.problems)?;
    let unnamed = orphans.iter().map(|life| life.last.number().get()).collect();
    links.left_in_directories(now, &unnamed, &mut findings.problems)?;
    lives.ended.extend(orphans);
    let paths = Paths::read(now, &lives, &links, &mut findings.problems)?;
    let mut judge = Judge::new(now, &history);
    for life in &lives.ended {
        let past = Past { history: &history, lives: &lives, inodes: now.geometry().inodes() };
        findings.removed.push(removed(life, &paths, &mut judge, &past));
    }
    findings.removed.sort_by_key(|one| one.inode.number().get());
    Ok(findings)
}

fn past(history: &History) -> PastSummary {
    let transactions = history.now();
    let since = (1..=transactions).find_map(|when| history.seconds(when));
    PastSummary { has_journal: history.has_journal(), transactions, since }
}

/// When the record says that it was removed. On a list of such files it says which is the next.
fn deletion_time(life: &Life, inodes: u32) -> Option<u64> {
    let time = life.last.raw().i_dtime.get();
    (life.last.links() == 0 && !life.held && time > inodes).then(|| time.into())
}

/// Files without a name that still have their map: open when they were removed, or removed by a tool that clears
/// nothing.
fn orphans(now: &RawImage, known: &HashSet<u32>, end: When, problems: &mut Vec<String>) -> Result<Vec<Life>> {
    let mut found = Vec::new();
    now.inodes(problems, |inode| {
        let is_file = matches!(inode.file_type(), Some(FileType::Regular | FileType::Symlink));
        let has_contents = inode.size() > 0 && inode.raw().i_block != [0; 60];
        if inode.links() == 0 && is_file && has_contents && !known.contains(&inode.number().get()) {
            let held = is_held(&inode, now.geometry().inodes());
            found.push(Life { last: inode, seen: end, after: 0, ended: None, held });
        }
        Ok(())
    })?;
    found.retain(|life| now.map(&life.last).is_ok_and(|map| !map.runs.is_empty()) || !life.last.has_map());
    Ok(found)
}

struct Past<'p> {
    history: &'p History,
    lives: &'p Lives,
    inodes: u32,
}

fn removed(life: &Life, paths: &Paths<'_>, judge: &mut Judge<'_>, past: &Past<'_>) -> Removed {
    let inodes = past.inodes;
    let links = paths.links(life);
    let mut doubts = Vec::new();
    let (contents, is_lost) = match judge.contents(life) {
        Ok(contents) => (contents, false),
        Err(error) => {
            doubts.push(error.to_string());
            (Contents::default(), true)
        }
    };
    let Contents { runs, fate, doubts: of_map } = contents;
    doubts.extend(of_map);
    if fate.reused > 0 {
        doubts.push(format!("{} of its {} blocks were used again", fate.reused, fate.blocks));
    }
    doubts.extend(of_links(&links));
    doubts.extend(of_time(life, past));
    if life.last.flags().contains(InodeFlags::ENCRYPT) {
        doubts.push("its contents are encrypted".to_owned());
    }
    let confidence = match (is_lost || fate.reused > 0, doubts.is_empty()) {
        (true, _) => Confidence::Doubtful,
        (false, true) => Confidence::Sure,
        (false, false) => Confidence::Likely,
    };
    Removed {
        inode: life.last.clone(),
        paths: links.iter().map(|link| paths.path(link, life)).collect(),
        removed: life
            .ended
            .and_then(|ended| past.history.seconds(ended))
            .or_else(|| deletion_time(life, inodes)),
        runs,
        fate,
        confidence,
        doubts,
    }
}

fn of_links(links: &[Link]) -> Option<String> {
    match links.first() {
        None => Some("its name is not known".to_owned()),
        Some(link) if link.source == Source::Slack => {
            Some("its name is from space that is not in use".to_owned())
        }
        Some(_) => None,
    }
}

/// Says what the order of events leaves open.
fn of_time(life: &Life, past: &Past<'_>) -> Option<String> {
    let Some(ended) = life.ended else {
        return Some("no journal tells what became of its blocks since".to_owned());
    };
    if life.seen == 0 || !past.history.is_whole_from(life.seen.max(1)) {
        return Some("the journal does not hold all that happened since".to_owned());
    }
    // Files that came and went between two commits may have had blocks that nothing tells of.
    let since = past.history.seconds(ended).unwrap_or(0).saturating_sub(1);
    let mut unseen = past.lives.unseen.range(ended + 1..).filter(|(_, removed)| **removed >= since);
    unseen.next().map(|_| "files came and went since of which the journal has no record".to_owned())
}

/// Paths of removed files.
struct Paths<'p> {
    links: &'p Links,
    /// Removed directories.
    gone: BTreeMap<u32, Vec<&'p Life>>,
    /// Paths of directories that exist.
    here: BTreeMap<u32, Vec<u8>>,
}

/// Deepest path.
const DEPTH_MAX: usize = 1_000;

impl<'p> Paths<'p> {
    fn read(
        now: &RawImage,
        lives: &'p Lives,
        links: &'p Links,
        problems: &mut Vec<String>,
    ) -> Result<Paths<'p>> {
        let mut gone: BTreeMap<u32, Vec<&Life>> = BTreeMap::new();
        for life in lives.ended.iter().filter(|life| is_directory(&life.last)) {
            gone.entry(life.last.number().get()).or_default().push(life);
        }
        let mut paths = Paths { links, gone, here: BTreeMap::new() };
        let every = lives.ended.iter().flat_map(|life| paths.links(life));
        let parents: BTreeSet<InodeNumber> = every.filter_map(|link| InodeNumber::new(link.parent)).collect();
        let named = names::find(now, &parents)?;
        named.problems.into_iter().for_each(|problem| note(problems, problem));
        paths.here = named
            .paths
            .into_iter()
            .filter_map(|(inode, all)| Some((inode, all.into_iter().next()?)))
            .collect();
        Ok(paths)
    }

    fn links(&self, life: &Life) -> Vec<Link> {
        self.links.before(life.last.number().get(), life.after, life.ended.unwrap_or(usize::MAX))
    }

    fn path(&self, link: &Link, life: &Life) -> Vec<u8> {
        let (mut parts, mut parent) = (vec![link.name.clone()], link.parent);
        let end = life.ended.unwrap_or(usize::MAX);
        let mut start = Vec::new();
        while parent != InodeNumber::ROOT.get() {
            // A directory that was removed later than the file held it.
            let of = self.gone.get(&parent).map_or(&[][..], |lives| lives);
            let gone = of.iter().find(|gone| gone.after < end && gone.ended.is_none_or(|ended| ended >= end));
            let above = gone.and_then(|gone| self.links(gone).into_iter().next());
            match (above, self.here.get(&parent)) {
                (Some(above), _) if parts.len() < DEPTH_MAX => {
                    parent = above.parent;
                    parts.push(above.name);
                }
                (None, Some(here)) if gone.is_none() => {
                    start = here.strip_prefix(b"/").unwrap_or(here).to_vec();
                    break;
                }
                _ => {
                    start = format!("<{parent}>").into_bytes();
                    break;
                }
            }
        }
        parts.iter().rev().fold(start, |mut path, part| {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(part);
            path
        })
    }
}
