//! The differences between two trees, in words.

use super::{Entry, Rules, Snapshot};
use std::fmt::Debug;
use std::ops::Range;

/// Most differences that are reported: the first ones say what is wrong.
const REPORTED: usize = 40;

/// The differences between the tree that was `expected` and the tree `found`, one per line of text.
pub fn differences(expected: &Snapshot, found: &Snapshot, rules: &Rules) -> Vec<String> {
    let mut report = Vec::new();
    let counted = |entry: &&Entry| rules.sockets || !entry.is_socket();
    for (path, entry) in &expected.entries {
        if !counted(&entry) {
            continue;
        }
        let shown = show(path);
        match found.entries.get(path) {
            None => report.push(format!("{shown}: missing")),
            Some(other) => compare(&shown, entry, other, rules, &mut report),
        }
    }
    for (path, entry) in &found.entries {
        let shown = show(path);
        if counted(&entry) && !expected.entries.contains_key(path) {
            report.push(format!("{shown}: not expected"));
        }
        check_directory_links(&shown, entry, &mut report);
    }
    report
}

/// Asserts that the two trees are the same.
///
/// # Panics
/// With the differences when they are not.
pub fn assert_same(expected: &Snapshot, found: &Snapshot, rules: &Rules) {
    let all = differences(expected, found, rules);
    let first: Vec<_> = all.iter().take(REPORTED).map(String::as_str).collect();
    assert!(all.is_empty(), "{} differences, the first of them:\n{}", all.len(), first.join("\n"));
}

fn show(path: &[u8]) -> String {
    if path.is_empty() { "/".to_owned() } else { path.escape_ascii().to_string() }
}

/// A directory has two links, and one for each directory in it; or just one when there are too many to count (dir_nlink).
fn check_directory_links(path: &str, entry: &Entry, report: &mut Vec<String>) {
    if entry.is_directory() && entry.links != 1 && entry.links != entry.subdirectories + 2 {
        report.push(format!("{path}: {} links with {} directories in it", entry.links, entry.subdirectories));
    }
}

fn compare(path: &str, expected: &Entry, found: &Entry, rules: &Rules, report: &mut Vec<String>) {
    let mut differ = |what: &str, expected: &dyn Debug, found: &dyn Debug, same: bool| {
        if !same {
            report.push(format!("{path}: {what}: expected {expected:?}, found {found:?}"));
        }
    };
    let octal = |mode: u32| format!("{mode:o}");
    differ("mode", &octal(expected.mode), &octal(found.mode), expected.mode == found.mode);
    if rules.owners {
        let (left, right) = ((expected.uid, expected.gid), (found.uid, found.gid));
        differ("owner", &left, &right, left == right);
    }
    if rules.times {
        let same =
            expected.mtime.0 == found.mtime.0 && (!rules.nanoseconds || expected.mtime.1 == found.mtime.1);
        differ("mtime", &expected.mtime, &found.mtime, same);
    }
    if !expected.is_directory() {
        differ("links", &expected.links, &found.links, expected.links == found.links);
        differ("size", &expected.size, &found.size, expected.size == found.size);
    }
    differ("device", &expected.device, &found.device, expected.device == found.device);
    differ("content", &expected.digest, &found.digest, expected.digest == found.digest);
    let names = |entry: &Entry| entry.link_of.as_deref().map(show);
    differ("link of", &names(expected), &names(found), expected.link_of == found.link_of);
    if rules.hole_granularity != 0 {
        let rounded = [expected, found].map(|entry| round(&entry.data, entry.size, rules.hole_granularity));
        differ("data ranges", &rounded[0], &rounded[1], rounded[0] == rounded[1]);
    }
    if rules.xattrs {
        compare_xattrs(path, expected, found, report);
    }
}

fn compare_xattrs(path: &str, expected: &Entry, found: &Entry, report: &mut Vec<String>) {
    for (name, value) in &expected.xattrs {
        let name_shown = show(name);
        match found.xattrs.get(name) {
            None => report.push(format!("{path}: xattr {name_shown}: missing")),
            Some(other) if other != value => report.push(format!(
                "{path}: xattr {name_shown}: expected {:?}, found {:?}",
                value.escape_ascii().to_string(),
                other.escape_ascii().to_string()
            )),
            Some(_) => {}
        }
    }
    for name in found.xattrs.keys().filter(|name| !expected.xattrs.contains_key(*name)) {
        report.push(format!("{path}: xattr {}: not expected", show(name)));
    }
}

/// `ranges` rounded outward to `granularity`, joined where they touch, ending no later than the size.
fn round(ranges: &[Range<u64>], size: u64, granularity: u64) -> Vec<Range<u64>> {
    let mut rounded: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        let start = range.start / granularity * granularity;
        let end = range.end.next_multiple_of(granularity).min(size);
        match rounded.last_mut() {
            Some(last) if last.end >= start => last.end = last.end.max(end),
            _ => rounded.push(start..end),
        }
    }
    rounded
}
