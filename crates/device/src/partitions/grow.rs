//! A partition that gets the room behind it, or gives up its end.
//!
//! Of a GPT the backup is written first and made stable, then the primary: at any moment one of both is right. An entry
//! of an MBR lies in one sector. Excludes what is in the partition, and the kernel's view of a disk that it has open.

use crate::Device;
use ondisk::invariant_or;
use ondisk::units::saturated;

use super::{
    Header, Partition, SECTOR, SECTORS, TableError, boot_record, crc_of, described, entries, has_gpt, header,
    mbr, primary, read_sector, u64_at,
};

/// Ends of partitions lie on multiples of this, where that is possible.
const ALIGNED: u64 = 1 << 20;
/// Bytes of a header that mean something.
const HEADER_LEN: u8 = 92;

/// Table after the change.
pub struct Growth {
    /// The partition as it will be.
    pub partition: Partition,
    /// Writes, in this order and each stable before the next: offset and bytes.
    pub(super) writes: Vec<(u64, Vec<u8>)>,
    /// Bytes of the disk that are needed then: it may be cut behind them.
    pub needed: u64,
}

impl Growth {
    /// Writes the table.
    ///
    /// # Errors
    /// The device's own words.
    pub fn write(&self, disk: &dyn Device) -> std::io::Result<()> {
        for (offset, bytes) in &self.writes {
            disk.write_at(*offset, bytes)?;
            disk.flush()?;
        }
        Ok(())
    }
}

fn broken<T>(problem: impl Into<String>) -> Result<T, TableError> {
    Err(TableError::Broken(problem.into()))
}

/// Plans a table in which a partition reaches up to the next one, or to the end of the disk.
///
/// # Errors
/// No such partition; one that can't grow; a table that makes no sense.
pub fn grow(disk: &dyn Device, number: u32) -> Result<Growth, TableError> {
    change(disk, number, NewSize::AllThereIs)
}

/// Plans a table in which a partition has `bytes` bytes at least, and no more than their rounding asks for. With the last
/// partition of a disk the end of the disk comes nearer; a GPT has its backup there then.
///
/// # Errors
/// No such partition; one that is smaller; a table that makes no sense.
pub fn shrink(disk: &dyn Device, number: u32, bytes: u64) -> Result<Growth, TableError> {
    change(disk, number, NewSize::Bytes(bytes))
}

/// Size that a partition is to have.
#[derive(Clone, Copy)]
enum NewSize {
    AllThereIs,
    Bytes(u64),
}

fn change(disk: &dyn Device, number: u32, new_size: NewSize) -> Result<Growth, TableError> {
    let Some(boot) = boot_record(disk, 0)? else { return Err(TableError::NoTable) };
    let protective = primary(&boot).iter().any(|entry| entry.kind == 0xEE);
    if protective || disk.size() > 2 * SECTOR && has_gpt(disk)? {
        return in_gpt(disk, number, new_size);
    }
    in_mbr(disk, &boot, number, new_size)
}

/// The end of a partition that may reach up to `limit`.
fn end(partition: &Partition, limit: u64, unit: u64, new_size: NewSize) -> Result<u64, TableError> {
    let old = partition.start + partition.size;
    match new_size {
        NewSize::AllThereIs => {
            let aligned = limit / ALIGNED * ALIGNED;
            Ok(if aligned >= old { aligned } else { (limit / unit * unit).max(old) })
        }
        NewSize::Bytes(bytes) if bytes <= partition.size => {
            let least = partition.start + bytes;
            Ok(least.next_multiple_of(ALIGNED).min(old))
        }
        NewSize::Bytes(bytes) => {
            broken(format!("partition {} has {} bytes, not {bytes}", partition.number, partition.size))
        }
    }
}

/// The end of a partition that gave up its end, if nothing of the table lies behind: the disk may end there.
fn new_end(all: &[Partition], changed: &Partition, containers: u64, new_size: NewSize) -> Option<u64> {
    let NewSize::Bytes(_) = new_size else { return None };
    let is_last = all.iter().all(|other| other.start <= changed.start) && containers <= changed.start;
    is_last.then_some(changed.start + changed.size)
}

/// Where the next partition begins.
fn next(all: &[Partition], own: &Partition, last: u64) -> u64 {
    let starts = all.iter().map(|other| other.start).filter(|start| *start > own.start);
    starts.min().unwrap_or(last).min(last)
}

fn find(all: &[Partition], number: u32) -> Result<Partition, TableError> {
    match all.iter().find(|partition| partition.number == number) {
        Some(partition) => Ok(partition.clone()),
        None => broken(format!("there is no partition {number}")),
    }
}

fn in_mbr(disk: &dyn Device, boot: &[u8], number: u32, new_size: NewSize) -> Result<Growth, TableError> {
    let all = mbr(disk, boot)?;
    let mut partition = find(&all, number)?;
    partition.whole_on(disk)?;
    if number > 4 {
        return broken(format!(
            "partition {number} lies inside an extended one, which would have to change, too"
        ));
    }
    // An extended partition is in the way with all of it.
    let extended: Vec<_> = primary(boot).into_iter().filter(|entry| entry.is_extended()).collect();
    let starts = extended.iter().map(|entry| entry.start * SECTOR);
    let starts = starts.filter(|start| *start > partition.start).min().unwrap_or(u64::MAX);
    let last = disk.size().min(u64::from(u32::MAX) * SECTOR).min(starts);
    let end = end(&partition, next(&all, &partition, last), SECTOR, new_size)?;
    partition.size = end - partition.start;
    let Ok(count) = u32::try_from(partition.size / SECTOR) else {
        return broken("these are more sectors than an MBR can count");
    };
    let mut record = boot.to_vec();
    let at = 446 + 16 * (number as usize - 1) + 12;
    let to = invariant_or!(
        record.get_mut(at..at + 4),
        return broken("has no such entry"),
        "an entry lies in its sector"
    );
    to.copy_from_slice(&count.to_le_bytes());
    let writes = if record == boot { Vec::new() } else { vec![(0, record)] };
    let containers = extended.iter().map(|entry| (entry.start + entry.count) * SECTOR).max().unwrap_or(0);
    let needed = new_end(&all, &partition, containers, new_size).unwrap_or(disk.size());
    Ok(Growth { partition, writes, needed })
}

fn in_gpt(disk: &dyn Device, number: u32, new_size: NewSize) -> Result<Growth, TableError> {
    for sector in SECTORS {
        for offset in [sector, disk.size().saturating_sub(sector)] {
            if let Some(header) = header(disk, offset, sector)?
                && let Some(table) = entries(disk, &header)?
                && let Some(bytes) = read_sector(disk, offset, sector)?
            {
                return Gpt { disk, header, bytes, table }.change(number, new_size);
            }
        }
    }
    broken("neither the GPT nor its backup has right checksums")
}

/// A GPT that is right, and its header's sector.
struct Gpt<'d> {
    disk: &'d dyn Device,
    header: Header,
    bytes: Vec<u8>,
    table: Vec<u8>,
}

impl Gpt<'_> {
    fn change(mut self, number: u32, new_size: NewSize) -> Result<Growth, TableError> {
        let sector = self.header.sector;
        let sectors = self.disk.size() / sector;
        let table = (self.table.len() as u64).div_ceil(sector);
        // The backup's table and header stand at the very end.
        let Some(last) = sectors.checked_sub(table + 1) else { return broken("the disk is too small") };
        let all = described(&self.header, &self.table)?;
        if all.iter().any(|partition| partition.start + partition.size > last * sector) {
            return broken("a partition lies where the backup of the table belongs");
        }
        let mut partition = find(&all, number)?;
        let end = end(&partition, next(&all, &partition, last * sector), sector, new_size)?;
        partition.size = end - partition.start;
        let at = (number as usize - 1) * self.header.entry_len as usize + 40;
        let entry = self.table.get_mut(at..at + 8);
        let Some(entry) = entry else { return broken(format!("there is no partition {number}")) };
        entry.copy_from_slice(&(end / sector - 1).to_le_bytes());
        let needed = match new_end(&all, &partition, 0, new_size) {
            // Whole MiB where that is possible.
            Some(end) => (end + (table + 1) * sector).next_multiple_of(ALIGNED).min(sectors * sector),
            None => self.disk.size(),
        };
        let writes = self.written(needed / sector, table)?;
        Ok(Growth { partition, writes, needed })
    }

    /// Returns the writes that fit the table to a disk of `sectors` sectors. The backup at the end of the disk comes first.
    fn written(&self, sectors: u64, table: u64) -> Result<Vec<(u64, Vec<u8>)>, TableError> {
        let sector = self.header.sector;
        let last = sectors - table - 1;
        let primary = self.primary_table(table)?;
        let backup = self.header_bytes(sectors - 1, 1, last, last - 1);
        let first = self.header_bytes(1, sectors - 1, primary, last - 1);
        let mut writes = vec![
            (last * sector, self.table.clone()),
            ((sectors - 1) * sector, backup),
            (primary * sector, self.table.clone()),
            (sector, first),
        ];
        writes.extend(self.protective(sectors)?);
        Ok(writes)
    }

    /// The sector of the primary table: right behind the header, unless it is known to stand elsewhere.
    fn primary_table(&self, table: u64) -> Result<u64, TableError> {
        let own = u64_at(&self.bytes, 24) == 1;
        let at = if own { self.header.entries_at } else { 2 };
        let first_usable = u64_at(&self.bytes, 40);
        if at < 2 || at + table > first_usable {
            return broken("the table of partitions lies among them");
        }
        Ok(at)
    }

    /// A header for a place, with its checksum.
    fn header_bytes(&self, own: u64, other: u64, table: u64, last_usable: u64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let mut put = |at: usize, value: &[u8]| {
            let to = bytes.get_mut(at..at + value.len());
            invariant_or!(to, return, "a field lies in its sector").copy_from_slice(value);
        };
        put(12, &u32::from(HEADER_LEN).to_le_bytes());
        put(16, &[0; 4]);
        put(24, &own.to_le_bytes());
        put(32, &other.to_le_bytes());
        put(48, &last_usable.to_le_bytes());
        put(72, &table.to_le_bytes());
        put(88, &crc_of(&self.table).to_le_bytes());
        let crc = crc_of(bytes.get(..usize::from(HEADER_LEN)).unwrap_or_default());
        let to = bytes.get_mut(16..20);
        invariant_or!(to, return bytes, "a field lies in its sector").copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The protective MBR covers the whole disk.
    fn protective(&self, sectors: u64) -> Result<Option<(u64, Vec<u8>)>, TableError> {
        let Some(boot) = boot_record(self.disk, 0)? else { return Ok(None) };
        let Some(index) = primary(&boot).iter().position(|entry| entry.kind == 0xEE) else { return Ok(None) };
        let mut record = boot.clone();
        // A disk that is larger than the field can say has the largest number there.
        let count = saturated::<u32>(sectors - 1);
        let at = 446 + 16 * index + 12;
        let to = record.get_mut(at..at + 4);
        invariant_or!(to, return Ok(None), "an entry lies in its sector")
            .copy_from_slice(&count.to_le_bytes());
        Ok((record != boot).then_some((0, record)))
    }
}
