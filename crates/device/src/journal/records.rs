//! The records of fast commits that count, gathered by what they speak of.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use ondisk::extent::Extent;
use ondisk::inode::{I_BLOCK_LEN, I_BLOCK_OFFSET};
use ondisk::journal::fast_commit::{NameChange, Scan, Tag, tags};
use ondisk::units::saturated;

use super::location::Log;
use crate::{Error, Result};

/// Most bytes that records may take in memory. An area of Linux's usual 256 blocks has a hundredth of it.
const BYTES_MAX: usize = 64 << 20;
/// Bytes that a record takes beside its own, about.
const OVERHEAD: usize = 100;

/// A change of a name.
pub struct NameRecord {
    /// Kind of the change.
    pub change: NameChange,
    /// The directory.
    pub parent: u32,
    /// Inode that the name leads to.
    pub inode: u32,
    /// The name.
    pub name: Vec<u8>,
}

/// A change of a map.
pub enum Range {
    /// File blocks lie here now.
    Add(Extent),
    /// File blocks are a hole.
    Delete {
        /// The first of them.
        first: u32,
        /// Number of file blocks.
        count: u32,
    },
}

/// Changes of an inode.
#[derive(Default)]
pub struct InodeChanges {
    /// Its record, as it was last.
    pub record: Option<Vec<u8>>,
    /// Changes of its map.
    pub ranges: Vec<Range>,
    /// Those of them before the last record.
    before_record: usize,
    /// It was made since the last transaction.
    pub is_created: bool,
    /// It lost a name.
    pub is_unlinked: bool,
}

/// All that fast commits say.
#[derive(Default)]
pub struct Records {
    /// In the order in which they were made.
    pub names: Vec<NameRecord>,
    /// By inode number.
    pub inodes: BTreeMap<u32, InodeChanges>,
    /// Fast commits that they are of.
    pub commits: u32,
    bytes: usize,
}

/// The generation in a record: it differs between uses of a number.
pub fn generation(record: &[u8]) -> Option<[u8; 4]> {
    record.get(I_BLOCK_OFFSET + I_BLOCK_LEN..)?.first_chunk().copied()
}

impl Records {
    fn take(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Name { change, parent, inode, name } => {
                let changes = self.inodes.entry(inode).or_default();
                changes.is_created |= change == NameChange::Create;
                changes.is_unlinked |= change == NameChange::Unlink;
                self.bytes += name.len();
                self.names.push(NameRecord { change, parent, inode, name: name.to_vec() });
            }
            Tag::Inode { inode, record } => {
                let changes = self.inodes.entry(inode).or_default();
                let is_another =
                    changes.record.as_ref().is_some_and(|before| generation(before) != generation(record));
                if is_another {
                    changes.ranges.drain(..changes.before_record);
                }
                self.bytes += record.len();
                changes.record = Some(record.to_vec());
                changes.before_record = changes.ranges.len();
            }
            Tag::AddRange { inode, extent } => {
                self.inodes.entry(inode).or_default().ranges.push(Range::Add(extent));
            }
            Tag::DeleteRange { inode, first, count } => {
                self.inodes.entry(inode).or_default().ranges.push(Range::Delete { first, count });
            }
            Tag::Padding | Tag::Tail { .. } | Tag::Head { .. } => return,
        }
        self.bytes += OVERHEAD;
    }
}

/// Fast commits that count.
pub(super) struct FastCommitTotals {
    pub(super) commits: u32,
    records: u64,
}

/// The fast commits that follow the last complete transaction; `None` if there are none.
///
/// # Errors
/// The device's failure; unknown features.
pub(super) fn find(log: &Log, transaction: u32) -> Result<Option<FastCommitTotals>> {
    if log.superblock.fast_commit_area().is_empty() {
        return Ok(None);
    }
    let mut scan = Scan::after(transaction);
    let mut bytes = vec![0; log.format.block_len()];
    for at in log.superblock.fast_commit_area() {
        log.read(at, &mut bytes)?;
        if scan.block(&bytes)? == ControlFlow::Break(()) {
            break;
        }
    }
    Ok((scan.commits() > 0).then(|| FastCommitTotals { commits: scan.commits(), records: scan.counted() }))
}

/// The records of fast commits.
///
/// # Errors
/// The device's failure; more than fits into the memory that they may take.
pub(super) fn read_records(log: &Log, found: &FastCommitTotals) -> Result<Records> {
    let mut records = Records { commits: found.commits, ..Records::default() };
    let mut count = found.records;
    let mut bytes = vec![0; log.format.block_len()];
    for at in log.superblock.fast_commit_area() {
        if count == 0 {
            break;
        }
        log.read(at, &mut bytes)?;
        for (tag, _) in tags(&bytes).flatten().take(saturated::<usize>(count)) {
            records.take(tag);
            count -= 1;
        }
        if records.bytes > BYTES_MAX {
            let problem = format!("its fast commits take more than {BYTES_MAX} bytes");
            return Err(Error::Unsupported(problem));
        }
    }
    Ok(records)
}
