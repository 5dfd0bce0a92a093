//! A volume of which much lies in pieces is written anew, part by part: the longest free run is filled with whole files,
//! of those that lie behind it, and what they leave becomes the next run to be filled.
//!
//! So each file moves once, and free space ends as few long runs.

use std::collections::{HashMap, HashSet};

use ondisk::units::{Cluster, InodeNumber};
use platfs::{Relocation, State, Towards};

use super::{Torn, Work, as_path, free_space};
use crate::bulk::Halt;

/// Windows that are filled, at most.
const WINDOWS: u32 = 10_000;

/// Free runs that are tried if the longest takes no file.
const RUNS: usize = 8;

/// A file that may be written anew.
struct Source {
    blocks: u64,
    pieces: u64,
}

/// All of them, and where their parts lie.
struct Sources {
    files: HashMap<InodeNumber, Source>,
    /// First cluster of each part, with the file, in the order of the volume.
    parts: Vec<(u64, InodeNumber)>,
    /// Bytes of files in pieces that were not written anew.
    torn: u64,
}

impl Work<'_> {
    /// Whether so much lies in pieces that this pays.
    pub(super) fn is_mostly_torn(&self) -> bool {
        let geometry = &self.job.volume.format().geometry;
        let report = self.report.borrow();
        let used = (geometry.blocks << geometry.block_size.log2()).saturating_sub(report.free_bytes);
        report.torn_bytes > used / 4
    }

    /// Writes files anew; returns those that are still in pieces.
    pub(super) fn slide(&self, torn: Vec<Torn>) -> Result<Vec<Torn>, Halt> {
        let mut sources = self.sources()?;
        for _ in 0..WINDOWS {
            let runs = free_space::longest(self.job.volume, RUNS).map_err(Halt::at(b"/"))?;
            let mut filled = false;
            for (start, length) in runs {
                filled = self.fill(&mut sources, start, length)? > 0;
                if filled {
                    break;
                }
            }
            self.settle()?;
            if !filled || sources.torn == 0 {
                break;
            }
        }
        let is_left = |file: &Torn| sources.files.get(&file.number).is_some_and(|source| source.pieces > 1);
        Ok(torn.into_iter().filter(is_left).collect())
    }

    fn sources(&self) -> Result<Sources, Halt> {
        let mut sources = Sources { files: HashMap::new(), parts: Vec::new(), torn: 0 };
        for number in &self.files {
            self.job.go_on()?;
            // One that is gone, or broken, is no reason to end.
            let Ok((pieces, blocks)) = self.job.volume.inode(*number).pieces() else { continue };
            let Ok(map) = self.job.volume.map(*number) else { continue };
            for segment in map.map_while(Result::ok) {
                if let State::Mapped(start) | State::Unwritten(start) = segment.state {
                    let cluster = self.job.volume.format().geometry.cluster_of(start).0;
                    sources.parts.push((cluster, *number));
                }
            }
            sources.torn += if pieces > 1 { self.bytes(blocks) } else { 0 };
            sources.files.insert(*number, Source { blocks, pieces });
        }
        sources.parts.sort_unstable();
        Ok(sources)
    }

    /// Fills a free run with files from behind it; says with how many clusters.
    fn fill(&self, sources: &mut Sources, start: u64, length: u64) -> Result<u64, Halt> {
        let geometry = &self.job.volume.format().geometry;
        let block = |cluster| geometry.cluster_start(Cluster(cluster)).0;
        let end = start + length;
        let first = sources.parts.partition_point(|(cluster, _)| *cluster < end);
        let (before, behind) = sources.parts.split_at(first);
        let (mut at, mut tried) = (start, HashSet::new());
        for (_, number) in behind.iter().chain(before) {
            let Some(source) = sources.files.get(number).filter(|_| tried.insert(*number)) else { continue };
            let clusters = source.blocks.div_ceil(1 << geometry.cluster_log2);
            let is_torn = source.pieces > 1;
            if clusters > length / 2 || !self.has_room_for(source, sources.torn) {
                continue;
            }
            // What lies behind it would leave no long run, but holes beside it.
            if clusters > end - at {
                break;
            }
            let towards = Towards::Into { start: block(at), end: block(end) };
            let wish = Relocation { most_pieces: 1, towards, directory: None };
            let done = self.relocate(*number, (&as_path(*number), source.blocks), &wish)?;
            if done.is_some_and(|done| done.blocks == 0) {
                // With its map it is a little longer.
                continue;
            }
            sources.torn -= if is_torn { self.bytes(source.blocks).min(sources.torn) } else { 0 };
            sources.files.remove(number);
            at += if done.is_some() { clusters } else { 0 };
            if at >= end || sources.torn == 0 {
                break;
            }
        }
        Ok(at.min(end) - start)
    }

    /// A whole file moves only if what is in pieces can still move too.
    fn has_room_for(&self, source: &Source, torn: u64) -> bool {
        let log2 = self.job.volume.format().geometry.block_size.log2();
        let others = if source.pieces > 1 { 0 } else { torn >> log2 };
        self.may_move(source.blocks + others)
    }
}
