//! Limits as lines, in the form of `setquota -b`.
//!
//! Owns: reading and writing them: a name or a number, soft and hard limit of space in KiB, soft and hard limit of inodes.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ondisk::quota::QuotaKind;
use platfs::quota::{Limits, Record};

use crate::console::Failure;
use crate::mount::quotas::Deed;
use crate::owner::Names;
use crate::text::Shown;

/// Bytes of the unit of space.
const UNIT: u64 = 1024;
/// Longest list that is read.
const MOST: u64 = 64 << 20;

/// Writes the limits of all ids that have any.
pub(super) fn export(out: &mut dyn Write, kind: QuotaKind, records: &[Record]) -> Result<(), Failure> {
    let names = Names::of_host(kind);
    for Record { id, limits, .. } in records.iter().filter(|record| record.limits != Limits::default()) {
        let name = names.name(*id).map_or_else(|| id.to_string(), str::to_owned);
        let Limits { soft_bytes, hard_bytes, soft_inodes, hard_inodes } = *limits;
        let (soft, hard) = (soft_bytes / UNIT, hard_bytes / UNIT);
        writeln!(out, "{name} {soft} {hard} {soft_inodes} {hard_inodes}")?;
    }
    Ok(())
}

/// Reads a list.
pub(super) fn import(file: &OsStr, kind: QuotaKind) -> Result<Vec<Deed>, Failure> {
    let about = |what: String| Failure::about(Shown(file.as_bytes()), what);
    let read = match file.as_bytes() {
        b"-" => {
            let mut bytes = Vec::new();
            std::io::stdin().take(MOST).read_to_end(&mut bytes).map(|_| bytes)
        }
        _ => platfs_host::read_named(Path::new(file), MOST).map(|(_, bytes)| bytes),
    };
    let bytes = read.map_err(|error| about(error.to_string()))?;
    let text = std::str::from_utf8(&bytes).map_err(|error| about(error.to_string()))?;
    parse(text, kind).map_err(about)
}

fn parse(text: &str, kind: QuotaKind) -> Result<Vec<Deed>, String> {
    let names = Names::of_host(kind);
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let line = |(number, line): (usize, &str)| {
        let wrong = |what: &str| format!("line {number}: {what}");
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [name, limits @ ..] = &fields[..] else { return Err(wrong("it is empty")) };
        let id = names.id(name).ok_or_else(|| wrong(&format!("this host knows no {kind} `{name}`")))?;
        let numbers: Option<Vec<u64>> = limits.iter().map(|text| text.parse().ok()).collect();
        let Some([soft, hard, soft_inodes, hard_inodes]) = numbers.as_deref() else {
            return Err(wrong("a name and four numbers are needed"));
        };
        let bytes = |kib: &u64| kib.checked_mul(UNIT).ok_or_else(|| wrong("more than 2^64 bytes"));
        let (soft_bytes, hard_bytes) = (bytes(soft)?, bytes(hard)?);
        let limits = Limits { soft_bytes, hard_bytes, soft_inodes: *soft_inodes, hard_inodes: *hard_inodes };
        Ok(Deed::Limit(kind, id, limits))
    };
    lines.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let limits = Limits { soft_bytes: 1024, hard_bytes: 4096, soft_inodes: 3, hard_inodes: 4 };
        let records =
            [Record { id: 77_001, limits, ..Record::default() }, Record { id: 77_002, ..Record::default() }];
        let mut out = Vec::new();
        export(&mut out, QuotaKind::Project, &records).ok().unwrap();
        assert_eq!(out, b"77001 1 4 3 4\n");
        let text = format!("# a list\n\n{}", String::from_utf8(out).unwrap());
        assert_eq!(
            parse(&text, QuotaKind::Project),
            Ok(vec![Deed::Limit(QuotaKind::Project, 77_001, limits)])
        );
        for wrong in
            ["5 1 2 3", "5 1 2 3 x", "5 1 2 3 4 5", "nobody-here 1 2 3 4", "5 18446744073709551615 0 0 0"]
        {
            assert!(parse(wrong, QuotaKind::Project).unwrap_err().starts_with("line 1: "), "{wrong}");
        }
    }
}
