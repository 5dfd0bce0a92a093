//! A check as JSON; the names are documented in docs/json.md.

use platfs::check::{Issue, Kind, Summary, kinds};
use serde_json::{Map, Value, json};

use super::findings::{Findings, OfKind};
use crate::text::put_bytes;
use platfs_open::names::Names;

/// Result of a check.
pub struct Verdict<'v> {
    /// The image's name.
    pub image: &'v str,
    /// `clean` (passed over), `sound`, `repaired`, or `unsound`.
    pub outcome: &'static str,
    /// The exit code.
    pub exit_code: u8,
    /// True if the image was written.
    pub written: bool,
}

/// One object with everything.
#[must_use]
pub fn check(
    verdict: &Verdict<'_>,
    summary: Option<&Summary>,
    findings: &Findings,
    names: &Names,
) -> Map<String, Value> {
    let mut all = Map::new();
    let mut put = |key: &str, value: Value| all.insert(key.to_owned(), value);
    put("image", verdict.image.into());
    put("outcome", verdict.outcome.into());
    put("exit_code", verdict.exit_code.into());
    put("written", verdict.written.into());
    if let Some(replay) = &findings.replay {
        put("journal_replay", replay.as_str().into());
    }
    put("issues", findings.count().into());
    // What was repaired in memory only is as wrong as before.
    let written = verdict.written;
    put("repaired", if written { findings.repaired() } else { 0 }.into());
    put("kinds", findings.kinds.iter().map(|of| of_kind(of, names, written)).collect());
    let losers = findings.losers.iter().map(|inode| {
        let mut object = Map::new();
        object.insert("inode".into(), inode.get().into());
        if let Some(path) = names.path(*inode) {
            put_bytes(&mut object, "path", path);
        }
        Value::Object(object)
    });
    put("losing", losers.collect());
    if let Some(summary) = summary {
        put(
            "volume",
            json!({
                "inodes": summary.inodes,
                "inodes_used": summary.inodes_used,
                "blocks": summary.blocks,
                "blocks_used": summary.blocks_used,
                "directories": summary.directories,
                "files": summary.files,
                "fragmented": summary.fragmented,
            }),
        );
    }
    all
}

fn of_kind(of: &OfKind, names: &Names, written: bool) -> Value {
    let kept = of.kept.iter();
    let issues: Vec<Value> =
        kept.map(|noted| issue(&noted.issue, written && noted.repaired, names)).collect();
    json!({
        "id": of.kind.id,
        "severity": of.kind.severity.name(),
        "safe": of.kind.safe,
        "title": of.kind.title,
        "count": of.count,
        "repaired": if written { of.repaired } else { 0 },
        "issues": issues,
    })
}

fn issue(issue: &Issue, repaired: bool, names: &Names) -> Value {
    let mut object = Map::new();
    let place = &issue.place;
    let mut number = |key: &str, value: Option<u64>| {
        if let Some(value) = value {
            object.insert(key.to_owned(), value.into());
        }
    };
    number("group", place.group.map(|group| u64::from(group.0)));
    number("inode", place.inode.map(|inode| u64::from(inode.get())));
    number("block", place.block.map(|block| block.0));
    number("file_block", place.file_block.map(|block| u64::from(block.0)));
    if let Some(path) = place.inode.and_then(|inode| names.path(inode)) {
        put_bytes(&mut object, "path", path);
    }
    if let Some(name) = &place.name {
        put_bytes(&mut object, "name", name);
    }
    for (key, text) in [("found", &issue.found), ("expected", &issue.expected), ("repair", &issue.repair)] {
        object.insert(key.to_owned(), text.as_str().into());
    }
    object.insert("repaired".into(), repaired.into());
    Value::Object(object)
}

/// Kinds, explained.
#[must_use]
pub fn explained(kind: &Kind) -> Map<String, Value> {
    let value = json!({
        "id": kind.id,
        "severity": kind.severity.name(),
        "safe": kind.safe,
        "title": kind.title,
        "means": kind.means,
        "risk": kind.risk,
    });
    if let Value::Object(object) = value { object } else { Map::new() }
}

/// The kind with this identifier; else those that look like it.
///
/// # Errors
/// There is none; identifiers that share a word with it.
pub fn find_kind(id: &str) -> Result<&'static Kind, Vec<&'static str>> {
    let found = kinds().find(|kind| kind.id == id);
    found.ok_or_else(|| {
        let words: Vec<&str> = id.split('-').filter(|word| word.len() > 2).collect();
        let alike = kinds().map(|kind| kind.id).filter(|id| words.iter().any(|word| id.contains(word)));
        alike.collect()
    })
}
