//! From header fields and records to an entry's values: which source wins, what range is allowed.

use super::entry::{Device, EntryKind, Times, Timestamp};
use super::error::Problem;
use super::header::{Dialect, Header, field};
use super::limits;
use super::pax::Overrides;
use std::collections::HashMap;
use std::ops::Range;

/// Fields that the entries before a header set for it.
#[derive(Default)]
pub(super) struct Pending {
    /// Where the first of them stands.
    pub(super) offset: Option<u64>,
    pub(super) pax: Overrides,
    pub(super) long_name: Option<Vec<u8>>,
    pub(super) long_target: Option<Vec<u8>>,
}

pub(super) fn kind_of(type_flag: u8, path: &[u8]) -> Result<EntryKind, Problem> {
    Ok(match type_flag {
        // Before ustar a slash at the end was all that marked a directory.
        0 | b'0' | b'7' if path.ends_with(b"/") => EntryKind::Directory,
        // 7: a contiguous file, which no system treats differently.
        0 | b'0' | b'7' | b'S' => EntryKind::File,
        b'1' => EntryKind::HardLink,
        b'2' => EntryKind::Symlink,
        b'3' => EntryKind::CharDevice,
        b'4' => EntryKind::BlockDevice,
        // D: a directory with the list of its names as data, from incremental backups.
        b'5' | b'D' => EntryKind::Directory,
        b'6' => EntryKind::Fifo,
        other => return Err(Problem::Type(other)),
    })
}

pub(super) fn entry_path(header: Header<'_>, pending: &mut Pending) -> Vec<u8> {
    let sparse_name = pending.pax.sparse.name.take();
    sparse_name
        .or_else(|| pending.pax.path.take())
        .or_else(|| pending.long_name.take())
        .unwrap_or_else(|| header.path())
}

pub(super) fn entry_target(
    header: Header<'_>,
    kind: EntryKind,
    pending: &mut Pending,
) -> Result<Vec<u8>, Problem> {
    let limit = match kind {
        EntryKind::Symlink => limits::TARGET_BYTES,
        EntryKind::HardLink => limits::PATH_BYTES,
        _ => return Ok(Vec::new()),
    };
    let recorded = pending.pax.target.take().or_else(|| pending.long_target.take());
    let target = recorded.unwrap_or_else(|| header.text(field::LINK).to_vec());
    check_name(&target, "the link's target", limit)?;
    Ok(target)
}

pub(super) fn check_name(name: &[u8], what: &'static str, limit: usize) -> Result<(), Problem> {
    if name.len() > limit {
        return Err(Problem::Long { what, len: name.len() as u64, limit: limit as u64 });
    }
    if name.is_empty() || name.contains(&0) { Err(Problem::Name(what)) } else { Ok(()) }
}

pub(super) fn until_nul(mut data: Vec<u8>) -> Vec<u8> {
    let end = data.iter().position(|&b| b == 0).unwrap_or(data.len());
    data.truncate(end);
    data
}

pub(super) fn unsigned(header: Header<'_>, place: Range<usize>, name: &'static str) -> Result<u64, Problem> {
    header.number(place).and_then(|v| u64::try_from(v).ok()).ok_or(Problem::Field(name))
}

/// As [`unsigned`], for a field whose high bits are not used.
pub(super) fn unsigned_or_zero(
    header: Header<'_>,
    place: Range<usize>,
    name: &'static str,
) -> Result<u64, Problem> {
    header.number(place).map(|v| u64::try_from(v).unwrap_or(0)).ok_or(Problem::Field(name))
}

/// An owner's number. Some systems record `nobody` as -2: as 32 bits that is a valid number.
pub(super) fn owner(
    record: Option<u64>,
    header: Header<'_>,
    place: Range<usize>,
    name: &'static str,
) -> Result<u32, Problem> {
    let wide = match record {
        Some(value) => return u32::try_from(value).map_err(|_| Problem::Field(name)),
        None => header.number(place).ok_or(Problem::Field(name))?,
    };
    let negative = i32::try_from(wide).map(i32::cast_unsigned);
    u32::try_from(wide).or(negative).map_err(|_| Problem::Field(name))
}

pub(super) fn device(pax: &Overrides, header: Header<'_>, kind: EntryKind) -> Result<Device, Problem> {
    if !matches!(kind, EntryKind::CharDevice | EntryKind::BlockDevice) {
        return Ok(Device::default());
    }
    let number = |record: Option<u64>, place, name| {
        let value = record.map_or_else(|| unsigned(header, place, name), Ok)?;
        u32::try_from(value).map_err(|_| Problem::Field(name))
    };
    Ok(Device {
        major: number(pax.major, field::MAJOR, "devmajor")?,
        minor: number(pax.minor, field::MINOR, "devminor")?,
    })
}

pub(super) fn times(pax: &Overrides, header: Header<'_>) -> Result<Times, Problem> {
    let in_header =
        || header.number(field::MTIME).map(Timestamp::from_seconds).ok_or(Problem::Field("mtime"));
    // Writers that are not GNU's put other things there: what is no time is no error.
    let extra = |place| header.number(place).filter(|&t| t != 0).map(Timestamp::from_seconds);
    let (accessed, changed) = match header.dialect() {
        Dialect::Gnu => (extra(field::GNU_ATIME), extra(field::GNU_CTIME)),
        Dialect::Star => (extra(field::STAR_ATIME), extra(field::STAR_CTIME)),
        Dialect::V7 | Dialect::Ustar => (None, None),
    };
    Ok(Times {
        modified: pax.modified.map_or_else(in_header, Ok)?,
        accessed: pax.accessed.or(accessed),
        changed: pax.changed.or(changed),
        created: pax.created,
    })
}

/// The names of owners met in headers: ACL text may use them.
#[derive(Default)]
pub(super) struct Owners {
    /// The last pair seen of users and groups: runs of equal owners are the rule.
    last: [(Vec<u8>, i64); 2],
    numbers: HashMap<(bool, Vec<u8>), u32>,
}

impl Owners {
    pub(super) fn note(&mut self, header: Header<'_>) {
        if header.dialect() == Dialect::V7 {
            return;
        }
        let pairs = [(false, field::USER, field::UID), (true, field::GROUP, field::GID)];
        for ((group, name, id), last) in pairs.into_iter().zip(&mut self.last) {
            let (name, Some(id)) = (header.text(name), header.number(id)) else { continue };
            if name.is_empty() || (last.0 == name && last.1 == id) {
                continue;
            }
            *last = (name.to_vec(), id);
            if let Ok(number) = u32::try_from(id) {
                self.numbers.entry((group, name.to_vec())).or_insert(number);
            }
        }
    }

    pub(super) fn number(&self, name: &[u8], group: bool) -> Option<u32> {
        let root = (name == b"root").then_some(0);
        self.numbers.get(&(group, name.to_vec())).copied().or(root)
    }
}
