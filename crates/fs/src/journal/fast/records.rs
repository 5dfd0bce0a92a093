//! The records of fast commits that count, gathered by what they speak of.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use ondisk::extent::Extent;
use ondisk::inode::{I_BLOCK_LEN, I_BLOCK_OFFSET};
use ondisk::journal::fast_commit::{NameChange, Scan, Tag, tags};

use super::super::place::Log;
use crate::error::{Error, Result};

/// Most bytes that records may take in memory. An area of Linux's usual 256 blocks has a hundredth of it.
const BYTES_MAX: usize = 64 << 20;
/// What a record takes beside its bytes, about.
const OVERHEAD: usize = 100;

/// A change of a name.
pub(super) struct Named {
    pub(super) change: NameChange,
    pub(super) parent: u32,
    pub(super) inode: u32,
    pub(super) name: Vec<u8>,
}

/// A change of a map.
pub(super) enum Range {
    Add(Extent),
    Delete { first: u32, count: u32 },
}

/// What becomes of an inode.
#[derive(Default)]
pub(super) struct Changes {
    /// Its record, as it was last.
    pub(super) record: Option<Vec<u8>>,
    /// Changes of its map.
    pub(super) ranges: Vec<Range>,
    /// Those of them before the last record.
    before_record: usize,
    /// It was made since the last transaction.
    pub(super) is_created: bool,
    /// It lost a name.
    pub(super) is_unlinked: bool,
}

/// All that fast commits say.
#[derive(Default)]
pub(super) struct Records {
    /// In the order in which they were made.
    pub(super) names: Vec<Named>,
    pub(super) inodes: BTreeMap<u32, Changes>,
    bytes: usize,
}

/// The generation in a record: it differs between uses of a number.
pub(super) fn generation(record: &[u8]) -> Option<[u8; 4]> {
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
                self.names.push(Named { change, parent, inode, name: name.to_vec() });
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

/// How many fast commits follow the last complete transaction, and how many records they have.
///
/// # Errors
/// The device's failure; unknown features.
pub(super) fn scan(log: &Log, transaction: u32) -> Result<Scan> {
    let mut scan = Scan::of(transaction);
    let mut bytes = vec![0; log.format.block_len()];
    for at in log.superblock.fast_commit_area() {
        log.read(at, &mut bytes)?;
        if scan.block(&bytes)? == ControlFlow::Break(()) {
            break;
        }
    }
    Ok(scan)
}

/// So many records from the first on.
///
/// # Errors
/// The device's failure; more than fits into the memory that they may take.
pub(super) fn gather(log: &Log, mut count: u64) -> Result<Records> {
    let mut records = Records::default();
    let mut bytes = vec![0; log.format.block_len()];
    for at in log.superblock.fast_commit_area() {
        if count == 0 {
            break;
        }
        log.read(at, &mut bytes)?;
        for (tag, _) in tags(&bytes).flatten().take(usize::try_from(count).unwrap_or(usize::MAX)) {
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
