//! Output of quota, for people and as JSON, and of planned changes.

use std::io::Write;

use ondisk::quota::QuotaKind;
use platfs::quota::{Limits, Record};
use serde_json::{Map, Value, json};

use super::super::json;
use super::{Quota, Source};
use crate::console::{Console, Failure};
use crate::mount::quotas::{Deed, Report};
use crate::owner::Names;
use crate::size::human;
use crate::text::whole_seconds;

/// Shows the records of a kind, of an id, or all.
pub(super) fn show(
    quota: &Quota,
    source: &Source<'_>,
    whose: Option<(QuotaKind, Option<u32>)>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let kinds = match whose {
        Some((kind, _)) => vec![kind],
        None => source.kinds()?,
    };
    let mut all = Vec::new();
    for kind in kinds {
        let mut report = source.records(kind)?;
        if let Some((_, Some(id))) = whose {
            let found = report.records.iter().find(|record| record.id == id).copied();
            report.records = vec![found.unwrap_or(Record { id, ..Record::default() })];
        } else {
            report.records.retain(|record| !record.is_empty());
        }
        all.push((kind, report));
    }
    if quota.json {
        let kinds: Vec<Value> = all.iter().map(|(kind, report)| object(*kind, report)).collect();
        return Ok(json::print(console.out, Map::from_iter([("kinds".to_owned(), kinds.into())]))?);
    }
    if all.is_empty() {
        writeln!(console.out, "nothing is counted: `plat quota --on user,group` begins that")?;
    }
    all.iter().try_for_each(|(kind, report)| Ok(table(console.out, *kind, report)?))
}

fn object(kind: QuotaKind, report: &Report) -> Value {
    let names = Names::of_host(kind);
    let time = |seconds: u64| if seconds == 0 { Value::Null } else { whole_seconds(seconds).into() };
    let record = |record: &Record| {
        let Limits { soft_bytes, hard_bytes, soft_inodes, hard_inodes } = record.limits;
        json!({
            "id": record.id,
            "name": names.name(record.id),
            "bytes": record.usage.bytes,
            "inodes": record.usage.inodes,
            "soft_bytes": soft_bytes,
            "hard_bytes": hard_bytes,
            "soft_inodes": soft_inodes,
            "hard_inodes": hard_inodes,
            "bytes_until": time(record.bytes_until),
            "inodes_until": time(record.inodes_until),
        })
    };
    json!({
        "kind": kind.name(),
        "grace_seconds": report.graces.bytes,
        "inode_grace_seconds": report.graces.inodes,
        "records": report.records.iter().map(record).collect::<Vec<_>>(),
    })
}

fn table(out: &mut dyn Write, kind: QuotaKind, report: &Report) -> std::io::Result<()> {
    let names = Names::of_host(kind);
    let graces = [report.graces.bytes, report.graces.inodes].map(|grace| duration(u64::from(grace)));
    writeln!(out, "{kind}s; grace {} for space, {} for inodes", graces[0], graces[1])?;
    let columns = ["space", "soft", "hard", "grace until", "inodes", "soft", "hard", "grace until"];
    write!(out, "{:<16}", kind.name())?;
    writeln!(out, "{}", columns.map(|column| width(column, column)).concat())?;
    for record in &report.records {
        let name = names.name(record.id).map_or_else(|| format!("#{}", record.id), str::to_owned);
        let Limits { soft_bytes, hard_bytes, soft_inodes, hard_inodes } = record.limits;
        let size = |bytes: u64| if bytes == 0 { "-".to_owned() } else { human(bytes) };
        let count = |count: u64| if count == 0 { "-".to_owned() } else { count.to_string() };
        let time = |seconds: u64| if seconds == 0 { "-".to_owned() } else { whole_seconds(seconds) };
        let cells = [
            human(record.usage.bytes),
            size(soft_bytes),
            size(hard_bytes),
            time(record.bytes_until),
            record.usage.inodes.to_string(),
            count(soft_inodes),
            count(hard_inodes),
            time(record.inodes_until),
        ];
        write!(out, "{name:<16}")?;
        let cells = cells.iter().zip(columns).map(|(cell, column)| width(cell, column));
        writeln!(out, "{}", cells.collect::<String>())?;
    }
    Ok(())
}

fn width(cell: &str, column: &str) -> String {
    if column.starts_with("grace") { format!("{cell:>22}") } else { format!("{cell:>10}") }
}

fn duration(seconds: u64) -> String {
    const UNITS: [(u64, char); 4] = [(86_400, 'd'), (3600, 'h'), (60, 'm'), (1, 's')];
    let unit = UNITS.iter().find(|(each, _)| seconds >= *each && seconds.is_multiple_of(*each));
    unit.map_or_else(|| format!("{seconds}s"), |(each, letter)| format!("{}{letter}", seconds / each))
}

/// Says what would be done.
pub(super) fn plan(out: &mut dyn Write, deed: Deed) -> std::io::Result<()> {
    let some = |bits: u32| {
        let kinds = QuotaKind::ALL.into_iter().filter(|kind| bits >> *kind as u32 & 1 == 1);
        kinds.map(QuotaKind::name).collect::<Vec<_>>().join(", ")
    };
    match deed {
        Deed::Show(..) => Ok(()),
        Deed::Limit(kind, id, limits) => {
            let Limits { soft_bytes, hard_bytes, soft_inodes, hard_inodes } = limits;
            writeln!(
                out,
                "{kind} {id}: soft {soft_bytes} and hard {hard_bytes} bytes, soft {soft_inodes} and hard {hard_inodes} inodes"
            )
        }
        Deed::End(kind, id, bytes, inodes) => {
            let time = |at: u64| if at == 0 { "as it is".to_owned() } else { whole_seconds(at) };
            writeln!(
                out,
                "{kind} {id}: grace for space until {}, for inodes until {}",
                time(bytes),
                time(inodes)
            )
        }
        Deed::Grace(kind, graces) => {
            let [bytes, inodes] = [graces.bytes, graces.inodes].map(|grace| duration(u64::from(grace)));
            writeln!(out, "all {kind}s: grace {bytes} for space, {inodes} for inodes")
        }
        Deed::Switch(on, off) => {
            for (bits, what) in [(off, "end"), (on, "begin")] {
                if bits != 0 {
                    writeln!(out, "{what} to count: {}", some(bits))?;
                }
            }
            Ok(())
        }
        Deed::Recount => writeln!(out, "count again what all files hold"),
    }
}
