//! QEMU's copy-on-write format, version 3, after its specification (`docs/interop/qcow2.txt` of QEMU).
//!
//! The file is the header, the clusters that hold something in the order of the disk, the tables that say where they
//! are, and the counts of references. Clusters that hold only zeros are not there. Nothing is compressed or encrypted.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::contents::{Contents, PIECE, PIECE_LEN, is_zero};
use ondisk::invariant;
use ondisk::units::bounded;

const CLUSTER_LOG2: u32 = 16;
const CLUSTER: u64 = 1 << CLUSTER_LOG2;
/// Entries of a table that is one cluster.
const ENTRIES: u64 = CLUSTER / 8;
/// Counts of references in a cluster of them, of 16 bits each.
const COUNTS: u64 = CLUSTER / 2;
const HEADER_LEN: u32 = 104;
/// The entry's cluster has one reference.
const COPIED: u64 = 1 << 63;

/// Clusters of the disk that lie behind each other in the file.
struct Run {
    guest: Range<u64>,
    host: u64,
}

/// The file as it is written.
struct Image<'f> {
    file: &'f File,
    /// The next cluster of the file.
    next: u64,
}

impl Image<'_> {
    /// Writes entries of 64 bits at the end, in whole clusters; gives the first of them.
    fn table(&mut self, entries: impl Iterator<Item = u64>, count: u64) -> io::Result<u64> {
        let first = self.next;
        let mut bytes = Vec::new();
        for entry in entries {
            bytes.extend(entry.to_be_bytes());
            if bytes.len() as u64 == CLUSTER {
                self.cluster(&mut bytes)?;
            }
        }
        if !bytes.is_empty() {
            self.cluster(&mut bytes)?;
        }
        self.next = first + count.div_ceil(ENTRIES);
        Ok(first)
    }

    fn cluster(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        self.file.write_all_at(bytes, self.next * CLUSTER)?;
        self.next += 1;
        bytes.clear();
        Ok(())
    }
}

pub(super) fn write(
    contents: &Contents,
    file: &File,
    alive: &mut dyn FnMut(u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut image = Image { file, next: 1 };
    let runs = data(contents, &mut image, alive)?;
    let size = contents.len.next_multiple_of(512);
    let tables = size.div_ceil(CLUSTER).div_ceil(ENTRIES);
    let level_2 = level_2(&mut image, &runs, tables)?;
    let level_1 = image.table(level_2.into_iter(), tables)?;
    let (references, clusters) = references(&mut image)?;
    let header = header(size, tables, (level_1, references, clusters));
    file.write_all_at(&header, 0)?;
    file.set_len(image.next * CLUSTER)
}

/// Writes the clusters that hold something.
fn data(
    contents: &Contents,
    image: &mut Image<'_>,
    alive: &mut dyn FnMut(u64) -> io::Result<()>,
) -> io::Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    let mut bytes = vec![0; PIECE_LEN];
    for range in contents.units(PIECE) {
        for piece in range {
            contents.read(piece * PIECE, &mut bytes)?;
            alive(PIECE)?;
            let clusters = bytes.chunks_exact(1 << CLUSTER_LOG2).zip(piece * (PIECE / CLUSTER)..);
            for (bytes, guest) in clusters.filter(|(bytes, _)| !is_zero(bytes)) {
                image.file.write_all_at(bytes, image.next * CLUSTER)?;
                match runs.last_mut() {
                    Some(last) if last.guest.end == guest => last.guest.end += 1,
                    _ => runs.push(Run { guest: guest..guest + 1, host: image.next }),
                }
                image.next += 1;
            }
        }
    }
    Ok(runs)
}

/// Writes the tables of the second level; gives the entries of the first.
fn level_2(image: &mut Image<'_>, runs: &[Run], tables: u64) -> io::Result<Vec<u64>> {
    let mut first_level = Vec::new();
    for table in 0..tables {
        let covered = table * ENTRIES..(table + 1) * ENTRIES;
        let first = runs.partition_point(|run| run.guest.end <= covered.start);
        let inside = || runs.iter().skip(first).take_while(|run| run.guest.start < covered.end);
        if inside().next().is_none() {
            first_level.push(0);
            continue;
        }
        let mut entries = vec![0; bounded::<usize>(ENTRIES)];
        for run in inside() {
            for guest in run.guest.start.max(covered.start)..run.guest.end.min(covered.end) {
                let place = bounded::<usize>(guest - covered.start);
                *invariant!(entries.get_mut(place), "a cluster has an entry of its table") =
                    ((run.host + guest - run.guest.start) * CLUSTER) | COPIED;
            }
        }
        first_level.push((image.table(entries.into_iter(), ENTRIES)? * CLUSTER) | COPIED);
    }
    Ok(first_level)
}

/// Writes the counts, one for each cluster of the file with those of the counts themselves; gives the first cluster of
/// their table and its clusters.
fn references(image: &mut Image<'_>) -> io::Result<(u64, u64)> {
    let (mut blocks, mut tables) = (0_u64, 0_u64);
    let total = loop {
        let total = image.next + blocks + tables;
        let needed = total.div_ceil(COUNTS);
        if (needed, needed.div_ceil(ENTRIES)) == (blocks, tables) {
            break total;
        }
        (blocks, tables) = (needed, needed.div_ceil(ENTRIES));
    };
    let first = image.next;
    for block in 0..blocks {
        let counted = total.saturating_sub(block * COUNTS).min(COUNTS);
        let mut bytes: Vec<u8> = (0..counted).flat_map(|_| 1_u16.to_be_bytes()).collect();
        image.cluster(&mut bytes)?;
    }
    let table = image.table((first..first + blocks).map(|block| block * CLUSTER), blocks)?;
    Ok((table, tables))
}

fn header(size: u64, tables: u64, places: (u64, u64, u64)) -> Vec<u8> {
    let (level_1, references, clusters) = places;
    let low = |number: u64| bounded::<u32>(number);
    let mut header = b"QFI\xfb".to_vec();
    header.extend(3_u32.to_be_bytes());
    // No backing file: its name's place and length.
    header.extend([0; 12]);
    header.extend(CLUSTER_LOG2.to_be_bytes());
    header.extend(size.to_be_bytes());
    // No encryption.
    header.extend([0; 4]);
    header.extend(low(tables).to_be_bytes());
    header.extend((level_1 * CLUSTER).to_be_bytes());
    header.extend((references * CLUSTER).to_be_bytes());
    header.extend(low(clusters).to_be_bytes());
    // No snapshots: number and place. No features of the three kinds.
    header.extend([0; 12 + 24]);
    // Counts have 2^4 bits.
    header.extend(4_u32.to_be_bytes());
    header.extend(HEADER_LEN.to_be_bytes());
    // The end of the extensions.
    header.extend([0; 8]);
    header
}
