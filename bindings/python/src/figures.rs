//! In how many pieces files and free space lie, as numbers for Python.

use std::collections::HashSet;

use platfs::{FileType, FreeRuns, InodeNumber, Pieces, State, Volume, Walk};

/// The pieces of one file and its blocks.
pub(crate) fn pieces(volume: &Volume, inode: InodeNumber) -> platfs::Result<Pieces> {
    let mut count = Pieces::default();
    for segment in volume.map(inode)? {
        let segment = segment?;
        if let State::Mapped(start) | State::Unwritten(start) = segment.state {
            count.add(segment.logical.0.into(), start, segment.count);
        }
    }
    Ok(count)
}

/// Sums over the regular files below a directory: files, with blocks, in pieces, pieces, blocks, unreadable.
pub(crate) type Totals = (u64, u64, u64, u64, u64, u64);
/// Pieces and paths of the most fragmented, most first.
pub(crate) type Worst = Vec<(u64, Vec<u8>)>;

/// Counts the files below a directory, each once however many names it has. What can't be read is counted and left out.
#[derive(Default)]
pub(crate) struct Count {
    totals: Totals,
    worst: Worst,
    most: usize,
    seen: HashSet<InodeNumber>,
}

impl Count {
    /// All below `top`, which is a directory, or one file.
    pub(crate) fn below(
        volume: &Volume,
        top: InodeNumber,
        path: &[u8],
        most: usize,
    ) -> platfs::Result<(Totals, Worst)> {
        let mut count = Count { most, ..Count::default() };
        let mut walk = Walk::new(volume);
        match walk.enter(path, top) {
            Err(platfs::Error::NotDirectory) => count.file(volume, top, path)?,
            entered => count.unreadable(entered?.is_some()),
        }
        while walk.depth() > 0 {
            let Some(entry) = walk.next_entry().cloned() else {
                walk.leave();
                continue;
            };
            match volume.entry_type(&entry) {
                Ok(FileType::Directory) => {
                    let entered = walk.enter(&entry.name, entry.inode);
                    count.unreadable(!matches!(entered, Ok(None)));
                }
                Ok(FileType::Regular) => {
                    let path = [walk.path(), b"/", entry.name.as_slice()].concat();
                    let failed = count.file(volume, entry.inode, &path).is_err();
                    count.unreadable(failed);
                }
                Ok(_) => {}
                Err(_) => count.unreadable(true),
            }
        }
        count.worst.truncate(most);
        Ok((count.totals, count.worst))
    }

    fn unreadable(&mut self, failed: bool) {
        self.totals.5 += u64::from(failed);
    }

    fn file(&mut self, volume: &Volume, inode: InodeNumber, path: &[u8]) -> platfs::Result<()> {
        let facts = volume.metadata(inode)?;
        if !facts.is_file() || facts.links > 1 && !self.seen.insert(inode) {
            return Ok(());
        }
        let found = pieces(volume, inode)?;
        let (files, mapped, fragmented, all, blocks, _) = &mut self.totals;
        *files += 1;
        *mapped += u64::from(found.pieces() > 0);
        *fragmented += u64::from(found.pieces() > 1);
        *all += found.pieces();
        // A sound image can't overflow this; one that shares blocks could.
        *blocks = blocks.saturating_add(found.blocks());
        if found.pieces() > 1 && self.most > 0 {
            let at = self.worst.partition_point(|(pieces, _)| *pieces >= found.pieces());
            if at < self.most {
                self.worst.insert(at, (found.pieces(), path.to_vec()));
                self.worst.truncate(self.most);
            }
        }
        Ok(())
    }
}

/// Size of a block, blocks, free blocks, runs, shortest, longest; for each bin its first bytes, runs and blocks.
pub(crate) type Free = (u32, u64, u64, u64, u64, u64, Vec<(u64, u64, u64)>);

/// How free space is cut up.
pub(crate) fn free(volume: &Volume) -> platfs::Result<Free> {
    let geometry = &volume.format().geometry;
    let runs = FreeRuns::count(volume, |_, _| {})?;
    let blocks = |clusters: u64| clusters << geometry.cluster_log2;
    let unit = geometry.block_size.log2() + geometry.cluster_log2;
    let bins = runs.bins().map(|(bin, count, clusters)| {
        (1_u64.checked_shl(bin + unit).unwrap_or(u64::MAX), count, blocks(clusters))
    });
    Ok((
        geometry.block_size.bytes(),
        geometry.blocks,
        blocks(runs.clusters()),
        runs.runs(),
        blocks(runs.shortest()),
        blocks(runs.longest()),
        bins.collect(),
    ))
}
