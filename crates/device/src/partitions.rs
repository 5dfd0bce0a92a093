//! Partition tables: GPT with its backup, MBR with logical partitions. What is written is planned in `grow`.
//!
//! Nothing in a table is trusted: counts are bounded, ranges checked against the disk, chains of
//! extended boot records end when they are too long or come back to where they were.
//!
//! Sources: UEFI specification 2.10, chapter 5 (GPT); the conventions of the PC's master boot record.

use std::io;

use super::Device;
use ondisk::units::bounded;

mod grow;
#[cfg(test)]
mod tests;

pub use grow::{Growth, grow, shrink};

/// A partition: its number as Linux counts, and its bytes on the disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// 1 and up; logical partitions of an MBR from 5.
    pub number: u32,
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// Name in a GPT, unless that is empty.
    pub name: Option<String>,
}

/// Reason for which partitions can't be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The disk can't be read.
    #[error("reading the partition table: {0}")]
    Io(#[from] io::Error),
    /// There is neither a GPT nor an MBR.
    #[error("has no partition table (neither GPT nor MBR)")]
    NoTable,
    /// The table makes no sense.
    #[error("partition table: {0}")]
    Broken(String),
}

/// Sector sizes that disks have, as a GPT does not say it; the usual one first. An MBR counts 512.
const SECTORS: [u64; 2] = [512, 4096];
/// Most entries of a GPT that are looked at; 128 are usual.
const GPT_ENTRIES_MAX: u32 = 4096;
/// Most logical partitions; Linux itself stops at 255 minors.
const LOGICAL_MAX: u32 = 256;
const SECTOR: u64 = 512;

/// The partitions of a disk, in the order of their numbers. One may leave the disk: see [`Partition::whole_on`].
///
/// # Errors
/// See [`TableError`].
pub fn partitions(disk: &dyn Device) -> Result<Vec<Partition>, TableError> {
    let Some(boot) = boot_record(disk, 0)? else { return Err(TableError::NoTable) };
    let protective = primary(&boot).iter().any(|entry| entry.kind == 0xEE);
    if protective || disk.size() > 2 * SECTOR && has_gpt(disk)? {
        return gpt(disk);
    }
    mbr(disk, &boot)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl Partition {
    /// Refuses a partition that is not whole on the disk, as one of an image that was cut off.
    ///
    /// # Errors
    /// [`TableError::Broken`].
    pub fn whole_on(&self, disk: &dyn Device) -> Result<(), TableError> {
        match self.start.checked_add(self.size) {
            Some(end) if end <= disk.size() => Ok(()),
            _ => Err(self.leaves(disk)),
        }
    }

    /// Bytes of it that are on the disk.
    ///
    /// # Errors
    /// [`TableError::Broken`] if none are.
    pub fn size_on(&self, disk: &dyn Device) -> Result<u64, TableError> {
        match disk.size().checked_sub(self.start) {
            None | Some(0) => Err(self.leaves(disk)),
            Some(room) => Ok(self.size.min(room)),
        }
    }

    fn leaves(&self, disk: &dyn Device) -> TableError {
        let Partition { number, start, size, .. } = self;
        TableError::Broken(format!(
            "partition {number} ({size} bytes at {start}) leaves the disk of {} bytes",
            disk.size()
        ))
    }
}

/// Bytes `start..start + size`, which may leave the disk: others can be read for all that.
fn placed(number: u32, start: u64, size: u64) -> Result<Partition, TableError> {
    match start.checked_add(size) {
        Some(_) if start > 0 => Ok(Partition { number, start, size, name: None }),
        _ => Err(TableError::Broken(format!("partition {number}: {size} bytes at {start} are no place"))),
    }
}

fn sectors(number: u32, count: u64, sector: u64) -> Result<u64, TableError> {
    let bytes = count.checked_mul(sector);
    bytes.ok_or_else(|| TableError::Broken(format!("partition {number}: sector {count} is out of range")))
}

/// The 512 bytes of a (master or extended) boot record; `None` without its signature.
fn boot_record(disk: &dyn Device, offset: u64) -> Result<Option<Vec<u8>>, TableError> {
    if offset.checked_add(SECTOR).is_none_or(|end| end > disk.size()) {
        return Ok(None);
    }
    let mut bytes = vec![0; 512];
    disk.read_at(offset, &mut bytes)?;
    Ok(bytes.ends_with(&[0x55, 0xAA]).then_some(bytes))
}

/// One of the four entries of a boot record.
struct MbrEntry {
    kind: u8,
    start: u64,
    count: u64,
}

impl MbrEntry {
    fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0F | 0x85)
    }
}

fn primary(record: &[u8]) -> [MbrEntry; 4] {
    [0, 1, 2, 3].map(|index| {
        let entry = record.get(446 + 16 * index..462 + 16 * index).unwrap_or_default();
        MbrEntry {
            kind: entry.get(4).copied().unwrap_or_default(),
            start: u64::from(u32_at(entry, 8)),
            count: u64::from(u32_at(entry, 12)),
        }
    })
}

fn mbr(disk: &dyn Device, boot: &[u8]) -> Result<Vec<Partition>, TableError> {
    // The boot sector of a volume without a table carries the same signature.
    if boot.get(446..510).unwrap_or_default().chunks(16).any(|entry| entry[0] & 0x7F != 0) {
        return Err(TableError::NoTable);
    }
    let mut found = Vec::new();
    for (number, entry) in (1..).zip(primary(boot)) {
        if entry.kind == 0 || entry.count == 0 {
            continue;
        }
        if entry.is_extended() {
            logical(disk, &entry, &mut found)?;
        } else {
            found.push(placed(number, entry.start * SECTOR, entry.count * SECTOR)?);
        }
    }
    found.sort_by_key(|partition| partition.number);
    Ok(found)
}

/// Follows the chain of extended boot records: each describes one partition, relative to itself, and
/// the next record, relative to the first. Where a disk was cut off before a record, the partition there is given with the
/// place and length that the record before names, so that the others can be read.
fn logical(disk: &dyn Device, extended: &MbrEntry, found: &mut Vec<Partition>) -> Result<(), TableError> {
    let first = extended.start;
    let (mut at, mut count) = (first, extended.count);
    let mut seen = std::collections::HashSet::new();
    let before = found.iter().filter(|partition| partition.number > 4).count();
    let mut number = 5 + u32::try_from(before).unwrap_or(LOGICAL_MAX);
    while seen.insert(at) {
        let Some(record) = boot_record(disk, at * SECTOR)? else {
            if (at + 1) * SECTOR > disk.size() {
                found.push(placed(number, at * SECTOR, count * SECTOR)?);
                return Ok(());
            }
            return Err(TableError::Broken(format!("no extended boot record at sector {at}")));
        };
        let [partition, next, ..] = primary(&record);
        if partition.kind != 0 && partition.count != 0 {
            let start = (at + partition.start) * SECTOR;
            found.push(placed(number, start, partition.count * SECTOR)?);
            number += 1;
        }
        if next.kind == 0 || next.count == 0 {
            return Ok(());
        }
        (at, count) = (first + next.start, next.count);
        if seen.len() > LOGICAL_MAX as usize {
            return Err(TableError::Broken(format!("more than {LOGICAL_MAX} extended boot records")));
        }
    }
    Err(TableError::Broken(format!("extended boot records lead back to sector {at}")))
}

/// A checked GPT header.
struct Header {
    sector: u64,
    entries_at: u64,
    entries: u32,
    entry_len: u32,
    entries_crc: u32,
}

fn has_gpt(disk: &dyn Device) -> Result<bool, TableError> {
    for sector in SECTORS {
        if read_sector(disk, sector, sector)?.is_some_and(|bytes| bytes.starts_with(b"EFI PART")) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn read_sector(disk: &dyn Device, offset: u64, sector: u64) -> Result<Option<Vec<u8>>, TableError> {
    if offset.checked_add(sector).is_none_or(|end| end > disk.size()) {
        return Ok(None);
    }
    let mut bytes = vec![0; usize::try_from(sector).unwrap_or(512)];
    disk.read_at(offset, &mut bytes)?;
    Ok(Some(bytes))
}

/// The CRC-32 of IEEE 802.3, by the byte.
const CRCS: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0_u32;
    while byte < 256 {
        let (mut crc, mut bit) = (byte, 0);
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 0 { 0 } else { 0xEDB8_8320 };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

fn crc_of(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| crc >> 8 ^ CRCS[(crc & 0xFF ^ u32::from(*byte)) as usize];
    !bytes.iter().fold(u32::MAX, step)
}

fn header(disk: &dyn Device, offset: u64, sector: u64) -> Result<Option<Header>, TableError> {
    let Some(bytes) = read_sector(disk, offset, sector)? else { return Ok(None) };
    let len = u32_at(&bytes, 12) as usize;
    if !bytes.starts_with(b"EFI PART") || len < 92 {
        return Ok(None);
    }
    let Some(mut checked) = bytes.get(..len).map(<[u8]>::to_vec) else { return Ok(None) };
    checked[16..20].fill(0);
    let header = Header {
        sector,
        entries_at: u64_at(&bytes, 72),
        entries: u32_at(&bytes, 80),
        entry_len: u32_at(&bytes, 84),
        entries_crc: u32_at(&bytes, 88),
    };
    let sane = (128..=4096).contains(&header.entry_len) && header.entry_len.is_multiple_of(8);
    Ok(Some(header).filter(|_| sane && crc_of(&checked) == u32_at(&bytes, 16)))
}

/// Reads the table through the primary header, or through the backup at the disk's end.
fn gpt(disk: &dyn Device) -> Result<Vec<Partition>, TableError> {
    for sector in SECTORS {
        for offset in [sector, disk.size().saturating_sub(sector)] {
            if let Some(header) = header(disk, offset, sector)?
                && let Some(table) = entries(disk, &header)?
            {
                return described(&header, &table);
            }
        }
    }
    Err(TableError::Broken("neither the GPT nor its backup has right checksums".into()))
}

fn entries(disk: &dyn Device, header: &Header) -> Result<Option<Vec<u8>>, TableError> {
    if header.entries > GPT_ENTRIES_MAX {
        let problem = format!("{} entries, at most {GPT_ENTRIES_MAX} are believed", header.entries);
        return Err(TableError::Broken(problem));
    }
    // At most 4,096 entries of 4,096 bytes.
    let len = u64::from(header.entries) * u64::from(header.entry_len);
    let start = header.entries_at.checked_mul(header.sector);
    let Some(start) = start.filter(|start| start.checked_add(len).is_some_and(|end| end <= disk.size()))
    else {
        return Ok(None);
    };
    let mut table = vec![0; bounded::<usize>(len)];
    disk.read_at(start, &mut table)?;
    Ok(Some(table).filter(|table| crc_of(table) == header.entries_crc))
}

fn described(header: &Header, table: &[u8]) -> Result<Vec<Partition>, TableError> {
    let mut found = Vec::new();
    for (number, entry) in (1..).zip(table.chunks(header.entry_len as usize)) {
        // An entry whose type is all zeros is not in use.
        if entry.iter().take(16).all(|byte| *byte == 0) {
            continue;
        }
        let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
        let count = last.checked_sub(first).and_then(|count| count.checked_add(1));
        let Some(count) = count else {
            return Err(TableError::Broken(format!("partition {number} ends before it begins")));
        };
        let (start, size) = (sectors(number, first, header.sector)?, sectors(number, count, header.sector)?);
        found.push(Partition { name: name(entry), ..placed(number, start, size)? });
    }
    Ok(found)
}

/// The name in an entry: up to 36 units of UTF-16, which zeros end.
fn name(entry: &[u8]) -> Option<String> {
    let units = entry.get(56..128)?.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let units: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
    Some(String::from_utf16_lossy(&units)).filter(|name| !name.is_empty())
}
