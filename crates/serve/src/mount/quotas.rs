//! Quota of a mount, as another process sees and changes it.
//!
//! Owns: the form of question and answer, asking, and doing it with a volume. Excludes who may ask (`tree`), and how it is
//! shown.
//!
//! `quotactl(2)` knows file systems of the kernel only, so this is an `ioctl` of our own. Question and answer have as many
//! bytes. The question: version, what is to be done, kind, id (32 bits each), four numbers of 64 bits. The answer:
//! version, a state (0 done, 1 failed), a count, flags, the kinds that are counted as bits, graces for space and inodes (32
//! bits each), a word of zeros; then the count of records of 80 bytes, or where it failed the count of bytes of a text, with the
//! number of the error in the place of the flags.
//! All numbers are little-endian.

use std::fs::File;
use std::io;

use ondisk::quota::{QuotaKind, Usage};
use platfs::Volume;
use platfs::quota::{Graces, Limits, Record};
use rustix::io::Errno;

use crate::refusal::Refusal;

/// The number of the question, in which the length of the answer stands.
pub(in crate::mount) const QUOTA: u32 = 0xfff0_7071;
const LEN: usize = 0x3ff0;
const VERSION: u32 = 1;
const HEAD: usize = 32;
const EACH: usize = 80;
/// Records in one answer.
const MOST: usize = (LEN - HEAD) / EACH;
/// Flags: there are more records behind the last; limits count.
const MORE: u32 = 1;
const ENFORCED: u32 = 2;
/// Bytes of a text at most.
const TEXT: usize = 1024;

/// Request about a quota.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// Show the records from an id on.
    Show(QuotaKind, u32),
    /// Set what an id may use.
    Limit(QuotaKind, u32, Limits),
    /// Set when the graces of an id end; zero leaves one as it is.
    End(QuotaKind, u32, u64, u64),
    /// Set for how long soft limits may be exceeded.
    Grace(QuotaKind, Graces),
    /// Begin to count, and end that, as bits of kinds.
    Switch(u32, u32),
    /// Count again.
    Recount,
}

/// State of a kind of quota.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The kinds that are counted.
    pub kinds: Vec<QuotaKind>,
    /// Limits count.
    pub enforced: bool,
    /// For how long soft limits may be exceeded.
    pub graces: Graces,
    /// Records by id.
    pub records: Vec<Record>,
    more: bool,
    /// Number of ids that a request changed.
    pub count: u32,
}

/// Bits of some kinds.
#[must_use]
pub fn bits(kinds: &[QuotaKind]) -> u32 {
    kinds.iter().fold(0, |bits, kind| bits | 1 << *kind as u32)
}

fn kinds(bits: u32) -> Vec<QuotaKind> {
    QuotaKind::ALL.into_iter().filter(|kind| bits >> *kind as u32 & 1 == 1).collect()
}

/// Does something with the quota of an open volume.
///
/// # Errors
/// Errors of the library.
pub fn perform(volume: &Volume, deed: Deed) -> platfs::Result<Report> {
    let quota = volume.quota();
    let mut report = Report::default();
    match deed {
        Deed::Show(kind, from) => {
            report.graces = quota.graces(kind)?;
            report.records = quota.records(kind)?.into_values().filter(|record| record.id >= from).collect();
        }
        Deed::Limit(kind, id, limits) => quota.set_limits(kind, id, limits)?,
        Deed::End(kind, id, bytes, inodes) => {
            let some = |time: u64| Some(time).filter(|time| *time > 0);
            quota.set_ends(kind, id, some(bytes), some(inodes))?;
        }
        Deed::Grace(kind, graces) => quota.set_graces(kind, graces)?,
        Deed::Switch(on, off) => {
            if off != 0 {
                quota.switch_off(&kinds(off))?;
            }
            if on != 0 {
                quota.switch_on(&kinds(on))?;
            }
        }
        Deed::Recount => report.count = u32::try_from(quota.recount()?).unwrap_or(u32::MAX),
    }
    (report.kinds, report.enforced) = (quota.kinds(), quota.is_enforced());
    Ok(report)
}

/// Does something with the quota of a mount in which a file lies. Records come all, in as many questions as that takes.
///
/// # Errors
/// Why it can't be done, without the name of the file.
pub fn ask(file: &File, deed: Deed) -> Result<Report, Refusal> {
    let mut all = exchange(file, deed)?;
    while let (Deed::Show(kind, _), true, Some(last)) = (deed, all.more, all.records.last()) {
        let Some(next) = last.id.checked_add(1) else { break };
        let part = exchange(file, Deed::Show(kind, next))?;
        (all.more, all.records) = (part.more, [all.records, part.records].concat());
    }
    Ok(all)
}

fn exchange(file: &File, deed: Deed) -> Result<Report, Refusal> {
    let answer = fuse::exchange::<QUOTA, LEN>(file, deed.encode()).map_err(why)?;
    let misread = || Err(Refusal::new(Errno::PROTO, "the answer of the mount can't be understood"));
    Report::decode(&answer).unwrap_or_else(misread)
}

fn why(error: io::Error) -> Refusal {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOTTY | Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => {
            Refusal::new(Errno::NOTTY, "not in a mount by this version of `plat mount`")
        }
        Some(Errno::PERM) => Refusal::new(
            Errno::PERM,
            "only the owner of the mount and programs with CAP_SYS_ADMIN may do that",
        ),
        _ => error.into(),
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|bytes| u32::from_le_bytes(*bytes))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|bytes| u64::from_le_bytes(*bytes))
}

impl Deed {
    fn encode(self) -> [u8; LEN] {
        let (what, kind, id, numbers) = match self {
            Deed::Show(kind, from) => (0_u32, kind as u32, from, [0; 4]),
            Deed::Limit(kind, id, limits) => (1, kind as u32, id, of_limits(limits)),
            Deed::End(kind, id, bytes, inodes) => (2, kind as u32, id, [bytes, inodes, 0, 0]),
            Deed::Grace(kind, Graces { bytes, inodes }) => {
                (3, kind as u32, 0, [u64::from(bytes), u64::from(inodes), 0, 0])
            }
            Deed::Switch(on, off) => (4, 0, 0, [u64::from(on), u64::from(off), 0, 0]),
            Deed::Recount => (5, 0, 0, [0; 4]),
        };
        let mut room = [0; LEN];
        let words = [VERSION, what, kind, id].map(u32::to_le_bytes);
        let numbers = numbers.map(u64::to_le_bytes);
        let all = words.as_flattened().iter().chain(numbers.as_flattened());
        room.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
        room
    }

    /// Decodes a request; `None` if it makes no sense.
    pub(in crate::mount) fn decode(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| long(bytes, 16 + at * 8);
        let small = |at: usize| number(at).and_then(|number| u32::try_from(number).ok());
        let (kind, id) = (*QuotaKind::ALL.get(usize::try_from(word(bytes, 8)?).ok()?)?, word(bytes, 12)?);
        if word(bytes, 0)? != VERSION {
            return None;
        }
        Some(match word(bytes, 4)? {
            0 => Deed::Show(kind, id),
            1 => Deed::Limit(kind, id, limits_of([number(0)?, number(1)?, number(2)?, number(3)?])),
            2 => Deed::End(kind, id, number(0)?, number(1)?),
            3 => Deed::Grace(kind, Graces { bytes: small(0)?, inodes: small(1)? }),
            4 => Deed::Switch(small(0)?, small(1)?),
            5 => Deed::Recount,
            _ => return None,
        })
    }
}

fn of_limits(limits: Limits) -> [u64; 4] {
    [limits.soft_bytes, limits.hard_bytes, limits.soft_inodes, limits.hard_inodes]
}

fn limits_of([soft_bytes, hard_bytes, soft_inodes, hard_inodes]: [u64; 4]) -> Limits {
    Limits { soft_bytes, hard_bytes, soft_inodes, hard_inodes }
}

/// The answer, as bytes.
pub(in crate::mount) fn encode(done: &platfs::Result<Report>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut head = |words: [u32; 8]| out.extend(words.map(u32::to_le_bytes).as_flattened());
    match done {
        Err(error) => {
            let text = error.to_string();
            let text = text.as_bytes().get(..text.len().min(TEXT)).unwrap_or_default();
            let len = u32::try_from(text.len()).unwrap_or(0);
            head([VERSION, 1, len, error.errno().cast_unsigned(), 0, 0, 0, 0]);
            out.extend(text);
        }
        Ok(report) => {
            let records = report.records.get(..report.records.len().min(MOST)).unwrap_or_default();
            let more = if records.len() < report.records.len() { MORE } else { 0 };
            let flags = more | if report.enforced { ENFORCED } else { 0 };
            let count = u32::try_from(records.len()).unwrap_or(0);
            let Graces { bytes, inodes } = report.graces;
            head([VERSION, 0, count, flags, bits(&report.kinds), bytes, inodes, report.count]);
            for record in records {
                let [a, b, c, d] = of_limits(record.limits);
                let Usage { bytes, inodes } = record.usage;
                let numbers = [bytes, inodes, a, b, c, d, record.bytes_until, record.inodes_until, 0];
                out.extend(u64::from(record.id).to_le_bytes());
                out.extend(numbers.map(u64::to_le_bytes).as_flattened());
            }
        }
    }
    out.resize(LEN, 0);
    out
}

impl Report {
    fn decode(bytes: &[u8]) -> Option<Result<Self, Refusal>> {
        let (count, flags) = (usize::try_from(word(bytes, 8)?).ok()?, word(bytes, 12)?);
        if word(bytes, 0)? != VERSION {
            return None;
        }
        if word(bytes, 4)? != 0 {
            let text = bytes.get(HEAD..HEAD.checked_add(count)?)?;
            let words = String::from_utf8_lossy(text).into_owned();
            let errno = match flags.cast_signed() {
                // A server that says no number: an earlier version.
                ..=0 => rustix::io::Errno::IO.raw_os_error(),
                errno => errno,
            };
            return Some(Err(Refusal { errno, words }));
        }
        let record = |index: usize| {
            let at = HEAD + index * EACH;
            let number = |place: usize| long(bytes, at + place * 8);
            Some(Record {
                id: word(bytes, at)?,
                usage: Usage { bytes: number(1)?, inodes: number(2)? },
                limits: limits_of([number(3)?, number(4)?, number(5)?, number(6)?]),
                bytes_until: number(7)?,
                inodes_until: number(8)?,
            })
        };
        Some(Ok(Report {
            kinds: kinds(word(bytes, 16)?),
            enforced: flags & ENFORCED != 0,
            graces: Graces { bytes: word(bytes, 20)?, inodes: word(bytes, 24)? },
            records: (0..count.min(MOST)).map(record).collect::<Option<_>>()?,
            more: flags & MORE != 0,
            count: word(bytes, 28)?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_understood() {
        let limits = limits_of([1, 2, 3, u64::MAX]);
        let graces = Graces { bytes: 5, inodes: 6 };
        for deed in [
            Deed::Show(QuotaKind::Group, 7),
            Deed::Limit(QuotaKind::Project, u32::MAX, limits),
            Deed::End(QuotaKind::User, 1, 2, 3),
            Deed::Grace(QuotaKind::User, graces),
            Deed::Switch(3, 4),
            Deed::Recount,
        ] {
            assert_eq!(Deed::decode(&deed.encode()), Some(deed));
        }
        for (at, value) in [(0, 9), (4, 77), (8, 3)] {
            let mut broken = Deed::Recount.encode();
            broken[at] = value;
            assert_eq!(Deed::decode(&broken), None, "{at}");
        }
        assert_eq!(Deed::decode(&[1, 0, 0]), None);
    }

    #[test]
    fn what_is_answered_is_understood_in_parts() {
        let record =
            |id| Record { id, usage: Usage { bytes: 9, inodes: 8 }, bytes_until: 7, ..Record::default() };
        let records: Vec<Record> = (0..300).map(record).collect();
        let graces = Graces { bytes: 5, inodes: 6 };
        let kinds = vec![QuotaKind::User, QuotaKind::Project];
        let report = Report { kinds, enforced: true, graces, records: records.clone(), ..Report::default() };
        let bytes = encode(&Ok(report.clone()));
        assert_eq!(bytes.len(), LEN);
        let part = Report::decode(&bytes).unwrap().unwrap();
        assert_eq!(part.records, records[..MOST]);
        assert_eq!((part.more, part.kinds, part.graces), (true, report.kinds, report.graces));
        let failed = Report::decode(&encode(&Err(platfs::Error::NoSpace))).unwrap();
        assert_eq!(failed, Err(platfs::Error::NoSpace.into()));
        assert_eq!(Report::decode(&[0; LEN]), None);
    }
}
