//! How files and free space lie, for any file system: pieces of files as filefrag(8) counts them, and runs of free
//! blocks. ext images are read by the library; others show it through FIEMAP and their own tools.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use ondisk::inode::FileType;
use ondisk::units::Group;
use platfs::device::FileDevice;
use platfs::{InodeNumber, OpenOptions, State, Volume, Walk};

use super::tool;
use crate::measure::ratio;
use crate::numbers::float;

/// Layout of files and free space, in blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Census {
    /// Pieces of each file that has blocks.
    pub(super) pieces: Vec<u64>,
    /// Lengths of the runs of free blocks, where they are known.
    pub(super) free: Option<Vec<u64>>,
}

/// Counts pieces: one begins where the disk does not go on as the file does. A hole that the disk leaves room for
/// breaks nothing, and unwritten space is no piece of its own.
#[derive(Default)]
struct Pieces {
    /// Ends of the stretch before, in the file and on disk.
    before: Option<(u64, u64)>,
    count: u64,
}

impl Pieces {
    fn add(&mut self, logical: u64, physical: u64, blocks: u64) {
        let follows = self.before.is_some_and(|(file, disk)| {
            physical == disk || physical == disk.saturating_add(logical.saturating_sub(file))
        });
        self.count += u64::from(!follows);
        self.before = Some((logical.saturating_add(blocks), physical.saturating_add(blocks)));
    }
}

/// Splits bitmaps, group after group, into runs of free bits.
#[derive(Default)]
struct FreeRuns {
    runs: Vec<u64>,
    open: u64,
}

impl FreeRuns {
    fn bitmap(&mut self, bitmap: &[u8], bits: u64) {
        for bit in 0..bits {
            let byte = usize::try_from(bit / 8).ok().and_then(|at| bitmap.get(at)).copied().unwrap_or(0xFF);
            if byte >> (bit % 8) & 1 == 0 {
                self.open += 1;
            } else {
                self.close();
            }
        }
    }

    fn close(&mut self) {
        let run = std::mem::take(&mut self.open);
        if run > 0 {
            self.runs.push(run);
        }
    }
}

impl Census {
    /// Of an ext image that is not open anywhere.
    ///
    /// # Errors
    /// It can't be read.
    pub(super) fn of_ext(image: &Path) -> Result<Census, String> {
        let failure = |error: &dyn std::fmt::Display| format!("{}: {error}", image.display());
        let device = FileDevice::new(File::open(image).map_err(|error| failure(&error))?)
            .map_err(|error| failure(&error))?;
        let volume = Volume::open(Arc::new(device), &OpenOptions::new()).map_err(|error| failure(&error))?;
        let pieces = pieces(&volume).map_err(|error| failure(&error))?;
        let geometry = volume.format().geometry;
        let mut free = FreeRuns::default();
        for group in (0..geometry.groups).map(Group) {
            let bitmap = volume.block_bitmap(group).map_err(|error| failure(&error))?;
            free.bitmap(&bitmap, u64::from(geometry.group_clusters(group)));
        }
        free.close();
        Ok(Census { pieces, free: Some(free.runs) })
    }

    /// Of what is mounted there, by FIEMAP; XFS shows its free space too.
    ///
    /// # Errors
    /// filefrag is not installed or fails.
    pub(super) fn of_mount(root: &Path, is_xfs: bool) -> Result<Census, String> {
        let filefrag = tool::find("filefrag").ok_or("filefrag is not installed")?;
        let find = ["-xdev", "-type", "f", "-exec"].map(std::ffi::OsString::from);
        let words = std::iter::once(root.as_os_str().to_owned()).chain(find);
        let rest = [filefrag.into_os_string(), "-v".into(), "{}".into(), "+".into()];
        let pieces = read_filefrag(&tool::run("find", words.chain(rest))?);
        let free = match is_xfs {
            true => Some(read_freesp(&tool::run(
                "xfs_spaceman",
                ["-c".as_ref(), "freesp -d".as_ref(), root.as_os_str()],
            )?)),
            false => None,
        };
        Ok(Census { pieces, free })
    }

    /// Figures to compare: of files, and of free space where it is known; some of it beside the volume when it was
    /// new, since formats cut up empty volumes in different ways.
    pub(super) fn figures(&self, new: &Census) -> Vec<(&'static str, f64)> {
        let count = |values: &[u64]| u64::try_from(values.len()).unwrap_or(u64::MAX);
        let files = count(&self.pieces);
        let whole = count(&self.pieces.iter().copied().filter(|&pieces| pieces == 1).collect::<Vec<_>>());
        let mut figures = vec![
            ("files", float(files)),
            ("extents/file", ratio(self.pieces.iter().sum(), files)),
            ("most extents", float(self.pieces.iter().copied().max().unwrap_or(0))),
            ("whole %", 100.0 * ratio(whole, files)),
        ];
        if let (Some(free), Some(new)) = (&self.free, &new.free) {
            let largest = |runs: &[u64]| runs.iter().copied().max().unwrap_or(0);
            let all: u64 = free.iter().sum();
            let least = |bound: u64| free.iter().filter(|&&run| run >= bound).sum::<u64>();
            figures.extend([
                ("free blocks", float(all)),
                ("free runs", float(count(free))),
                ("runs added", float(count(free)) - float(count(new))),
                ("mean run", ratio(all, count(free))),
                ("largest run", float(largest(free))),
                ("largest left %", 100.0 * ratio(largest(free), largest(new))),
                (">=512 %", 100.0 * ratio(least(512), all)),
                (">=2048 %", 100.0 * ratio(least(2_048), all)),
            ]);
        }
        figures
    }

    /// Free blocks in runs of 2^n to 2^(n+1) - 1.
    pub(super) fn bins(&self) -> Vec<u64> {
        let mut bins = Vec::new();
        for &run in self.free.iter().flatten() {
            let bin = run.checked_ilog2().unwrap_or(0) as usize;
            if bins.len() <= bin {
                bins.resize(bin + 1, 0);
            }
            bins[bin] += run;
        }
        bins
    }
}

/// The pieces of every regular file of a volume, hard links once.
fn pieces(volume: &Volume) -> platfs::Result<Vec<u64>> {
    let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
    each_entry(volume, &mut |number, file_type| {
        if file_type != FileType::Regular || !seen.insert(number) {
            return Ok(());
        }
        let mut pieces = Pieces::default();
        for segment in volume.map(number)? {
            let segment = segment?;
            if let State::Mapped(start) | State::Unwritten(start) = segment.state {
                pieces.add(u64::from(segment.logical.0), start.0, segment.count);
            }
        }
        all.extend((pieces.count > 0).then_some(pieces.count));
        Ok(())
    })?;
    Ok(all)
}

/// Visits every entry of a volume, in the order of its directories; what a directory holds comes behind its entry.
pub(super) fn each_entry(
    volume: &Volume,
    visit: &mut dyn FnMut(InodeNumber, FileType) -> platfs::Result<()>,
) -> platfs::Result<()> {
    let mut walk = Walk::new(volume);
    walk.enter(b"", InodeNumber::ROOT)?;
    while walk.depth() > 0 {
        let Some(entry) = walk.next_entry().cloned() else {
            walk.leave();
            continue;
        };
        let file_type = volume.entry_type(&entry)?;
        visit(entry.inode, file_type)?;
        if file_type == FileType::Directory {
            walk.enter(&entry.name, entry.inode)?;
        }
    }
    Ok(())
}

/// Pieces of each file with blocks in what `filefrag -v` prints.
fn read_filefrag(text: &str) -> Vec<u64> {
    let (mut all, mut pieces) = (Vec::new(), Pieces::default());
    for line in text.lines() {
        if line.ends_with(" extent found") || line.ends_with(" extents found") {
            let done = std::mem::take(&mut pieces);
            all.extend((done.count > 0).then_some(done.count));
        } else if let Some((logical, physical, blocks)) = extent(line) {
            pieces.add(logical, physical, blocks);
        }
    }
    all
}

/// A line of an extent: number, first and last file block, first and last disk block, blocks, expected, flags. None
/// for all else, and for those that lie nowhere yet.
fn extent(line: &str) -> Option<(u64, u64, u64)> {
    let mut fields = line.split(':');
    let _number: u64 = fields.next()?.trim().parse().ok()?;
    let first = |range: &str| range.split("..").next()?.trim().parse::<u64>().ok();
    let (logical, physical) = (first(fields.next()?)?, first(fields.next()?)?);
    let blocks = fields.next()?.trim().parse().ok()?;
    let nowhere =
        fields.any(|field| ["inline", "delalloc", "unknown_loc"].iter().any(|flag| field.contains(flag)));
    (!nowhere).then_some((logical, physical, blocks))
}

/// Lengths in what `freesp -d` of xfs_spaceman(8) and xfs_db(8) prints: lines of group, block, length; then a
/// histogram.
fn read_freesp(text: &str) -> Vec<u64> {
    let run = |line: &str| {
        let numbers: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        match numbers.as_slice() {
            [_, _, len] if line.split_whitespace().count() == 3 => Some(*len),
            _ => None,
        }
    };
    text.lines().filter_map(run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded on XFS and on ext4.
    const FILEFRAG: &str = "\
Filesystem type is: 58465342
File size of m/a is 5242880 (1280 blocks of 4096 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..    1279:         24..      1303:   1280:             last,eof
m/a: 1 extent found
File size of m/b is 40960 (10 blocks of 4096 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        3..       3:         10..        10:      1:          3:
   1:        6..       6:         13..        13:      1:            
   2:        9..       9:         15..        15:      1:         16: last,eof
m/b: 2 extents found
File size of m/e is 0 (0 blocks of 4096 bytes)
m/e: 0 extents found
File size of m/c is 8192 (2 blocks of 4096 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..       1:          0..         1:      2:             last,unknown_loc,delalloc,eof
m/c: 1 extent found
";

    #[test]
    fn what_filefrag_prints_is_read_with_its_own_counts() {
        assert_eq!(read_filefrag(FILEFRAG), [1, 2]);
        assert_eq!(read_filefrag("no: such\n: : :\nx: 1 extent found\n"), Vec::<u64>::new());
    }

    #[test]
    fn what_freesp_prints_is_read_with_a_head_or_without() {
        let spaceman = "       0       13        3\n       0       33    32735\n   from      to extents  blocks    pct\n      2       3       1       3   0.00\n";
        assert_eq!(read_freesp(spaceman), [3, 32_735]);
        assert_eq!(read_freesp(&format!("    agno    agbno      len\n{spaceman}")), [3, 32_735]);
    }

    #[test]
    fn free_runs_cross_bytes_and_groups() {
        let mut free = FreeRuns::default();
        free.bitmap(&[0b0000_0111, 0b0001_0000], 16);
        free.bitmap(&[0b1000_0000], 8);
        free.close();
        assert_eq!(free.runs, [9, 10]);
        let census = Census { pieces: vec![1, 1, 4], free: Some(free.runs) };
        assert_eq!(census.bins(), [0, 0, 0, 19]);
        let new = Census { pieces: Vec::new(), free: Some(vec![38]) };
        let figures = census.figures(&new);
        let figure = |name: &str| figures.iter().find(|figure| figure.0 == name).unwrap().1;
        assert_eq!((figure("extents/file"), figure("most extents"), figure("mean run")), (2.0, 4.0, 9.5));
        assert_eq!((figure("runs added"), figure("largest left %")), (1.0, 1000.0 / 38.0));
    }
}
