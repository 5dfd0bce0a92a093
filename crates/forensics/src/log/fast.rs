//! The records of fast commits that lie behind the log.

use std::ops::ControlFlow;

use ondisk::extent::Extent;
use ondisk::journal::fast_commit::{NameChange, Scan, Tag, tags};
use ondisk::units::saturated;
use platfs_device::journal::Log;
use platfs_device::{Device, Result};

use super::read;

/// Most records that are kept.
const RECORDS_MAX: usize = 1 << 20;

/// Kind of a record, with its values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecordKind {
    /// File blocks of an inode lie here.
    AddRange {
        /// The inode.
        inode: u32,
        /// Where.
        extent: Extent,
    },
    /// File blocks of an inode are a hole.
    DeleteRange {
        /// The inode.
        inode: u32,
        /// The first of them.
        first: u32,
        /// Number of file blocks.
        count: u32,
    },
    /// A name changes.
    Name {
        /// Kind of the change.
        change: NameChange,
        /// The directory.
        parent: u32,
        /// The inode that is named.
        inode: u32,
        /// The name.
        name: Vec<u8>,
    },
    /// The record of an inode.
    Inode(u32),
    /// The end of a fast commit.
    Tail(u32),
    /// The beginning of the area.
    Head(u32),
}

/// A record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The block of the journal.
    pub at: u32,
    /// Kind of the record.
    pub kind: RecordKind,
}

/// Content of the area for fast commits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FastCommits {
    /// The transaction that they follow; `None` if the area was never used.
    pub transaction: Option<u32>,
    /// Complete ones.
    pub commits: u32,
    /// The next replay brings them in.
    pub waiting: bool,
    /// The records of the complete ones.
    pub records: Vec<Record>,
}

fn owned(tag: Tag<'_>) -> Option<RecordKind> {
    Some(match tag {
        Tag::AddRange { inode, extent } => RecordKind::AddRange { inode, extent },
        Tag::DeleteRange { inode, first, count } => RecordKind::DeleteRange { inode, first, count },
        Tag::Name { change, parent, inode, name } => {
            RecordKind::Name { change, parent, inode, name: name.to_vec() }
        }
        Tag::Inode { inode, .. } => RecordKind::Inode(inode),
        Tag::Tail { transaction, .. } => RecordKind::Tail(transaction),
        Tag::Head { transaction, .. } => RecordKind::Head(transaction),
        Tag::Padding => return None,
    })
}

/// Reads the area; `next` is the transaction that would follow those that wait.
pub(super) fn read_area(log: &Log, device: &dyn Device, next: u32) -> Result<Option<FastCommits>> {
    let area = log.superblock.fast_commit_area();
    if area.is_empty() {
        return Ok(None);
    }
    let mut found = FastCommits::default();
    let first = read(log, device, area.start)?;
    let Some((Tag::Head { transaction, .. }, _)) = tags(&first).next().flatten() else {
        return Ok(Some(found));
    };
    let mut scan = Scan::after(transaction);
    let mut seen = Vec::new();
    for at in area {
        let bytes = read(log, device, at)?;
        seen.extend(tags(&bytes).map_while(|tag| tag).map(|(tag, _)| (at, owned(tag))));
        // Unknown features: nothing behind means anything that is known here.
        if !matches!(scan.block(&bytes), Ok(ControlFlow::Continue(()))) || seen.len() > RECORDS_MAX {
            break;
        }
    }
    seen.truncate(saturated::<usize>(scan.counted()));
    found.transaction = Some(transaction);
    found.commits = scan.commits();
    found.waiting = !log.superblock.is_clean() && transaction == next && found.commits > 0;
    found.records = seen.into_iter().filter_map(|(at, kind)| Some(Record { at, kind: kind? })).collect();
    Ok(Some(found))
}
