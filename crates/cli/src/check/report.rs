//! A check for people: what was found, grouped and counted; what repair would do and take away; what
//! to do next.

use std::collections::HashMap;
use std::io::{self, Write};

use platfs::check::{Issue, Summary};

use super::findings::{Findings, OfKind};
use platfs_open::names::Names;

/// Issues of a kind that are shown unless more is asked for, and of those that differ in numbers only.
const SHOWN: usize = 10;
const ALIKE_SHOWN: usize = 3;

/// Files that are named as losing something, unless more is asked for.
const NAMED: usize = 50;

/// How much is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// The first of each kind.
    Some,
    /// All that was kept.
    All,
}

impl Detail {
    fn of(self, most: usize) -> usize {
        if self == Detail::All { usize::MAX } else { most }
    }
}

/// A number with its noun, in the plural where it is one.
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Lists the issues, kind by kind.
///
/// # Errors
/// The output's.
pub fn issues(out: &mut dyn Write, findings: &Findings, names: &Names, detail: Detail) -> io::Result<()> {
    for of in &findings.kinds {
        let number = if of.count == 1 { String::new() } else { format!(" ({})", of.count) };
        writeln!(out, "{}: {}{number}", of.kind.id, of.kind.title)?;
        of_kind(out, of, names, detail)?;
    }
    Ok(())
}

fn of_kind(out: &mut dyn Write, of: &OfKind, names: &Names, detail: Detail) -> io::Result<()> {
    let (mut shown, mut rest, mut seen) = (0, of.beyond, HashMap::new());
    for noted in &of.kept {
        let alike: &mut usize = seen.entry(shape(&noted.issue)).or_default();
        if shown == detail.of(SHOWN) || *alike == detail.of(ALIKE_SHOWN) {
            rest.add(&noted.issue.place);
            continue;
        }
        *alike += 1;
        shown += 1;
        one(out, &noted.issue, names)?;
    }
    match of.count - shown as u64 {
        0 => Ok(()),
        more if detail == Detail::All => writeln!(out, "    ... and {more} more of this kind{rest}"),
        more => writeln!(out, "    ... and {more} more of this kind{rest} (-v shows them)"),
    }
}

/// Text of an issue without its numbers: issues that have it in common are alike.
fn shape(issue: &Issue) -> String {
    let texts = [&*issue.found, &*issue.expected, &*issue.repair].join("\n");
    texts.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

fn one(out: &mut dyn Write, issue: &Issue, names: &Names) -> io::Result<()> {
    let mut line = names.place(&issue.place);
    if !issue.found.is_empty() {
        line += if line.is_empty() { "" } else { ": " };
        line += &issue.found;
    }
    if !issue.expected.is_empty() {
        line += &format!("; should be {}", issue.expected);
    }
    let repair = if issue.repair.is_empty() { "can't be repaired" } else { &issue.repair };
    writeln!(out, "    {}", one_line(&line))?;
    writeln!(out, "        repair: {}", one_line(repair))
}

/// Sums up the repairs: how many lose nothing, and which files the others take something from.
///
/// # Errors
/// The output's.
pub fn plan(out: &mut dyn Write, findings: &Findings, names: &Names, detail: Detail) -> io::Result<()> {
    let (safe, risky) = (findings.safe(), findings.risky());
    let without = findings.count() - safe - risky;
    writeln!(out, "\nThe repair:")?;
    if let Some(replay) = &findings.replay {
        writeln!(out, "    the journal is replayed first: {}", one_line(replay))?;
    }
    if safe > 0 {
        writeln!(out, "    {} without loss", counted(safe, "change"))?;
    }
    if without > 0 {
        writeln!(out, "    {} without a repair", counted(without, "problem"))?;
    }
    if risky == 0 {
        return writeln!(out, "    no file loses anything");
    }
    writeln!(out, "    {} that can take something away:", counted(risky, "change"))?;
    for of in findings.kinds.iter().filter(|of| !of.kind.safe && of.repairable > 0) {
        writeln!(out, "        {} ({}): {}", of.kind.id, of.repairable, of.kind.risk)?;
    }
    if findings.losers.is_empty() {
        return Ok(());
    }
    writeln!(out, "    files and directories that are touched by those:")?;
    for inode in findings.losers.iter().take(detail.of(NAMED)) {
        writeln!(out, "        {}", one_line(&names.inode(*inode)))?;
    }
    match findings.losers.len().saturating_sub(detail.of(NAMED)) {
        0 => Ok(()),
        rest => writeln!(out, "        ... and {rest} more (-v shows them)"),
    }
}

/// Files and blocks in use, as e2fsck sums a volume up.
#[must_use]
pub fn in_use(summary: &Summary) -> String {
    // Rounded, as e2fsck does.
    let share = (summary.fragmented * 10_000).checked_div(summary.inodes_used).unwrap_or(0);
    let permille = (share + 5) / 10;
    format!(
        "{}/{} files ({}.{}% non-contiguous), {}/{} blocks",
        summary.inodes_used,
        summary.inodes,
        permille / 10,
        permille % 10,
        summary.blocks_used,
        summary.blocks
    )
}

/// Counts the contents of a volume, for `--verbose`.
///
/// # Errors
/// The output's.
pub fn census(out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    let share = |part: u64, whole: u64| (part * 100).checked_div(whole).unwrap_or(0);
    let (inodes, blocks) = (summary.inodes_used, summary.blocks_used);
    writeln!(out, "{inodes:>12} inodes used ({} %, of {})", share(inodes, summary.inodes), summary.inodes)?;
    writeln!(out, "{blocks:>12} blocks used ({} %, of {})", share(blocks, summary.blocks), summary.blocks)?;
    writeln!(out, "{:>12} directories", summary.directories)?;
    writeln!(out, "{:>12} regular files", summary.files)?;
    writeln!(out, "{:>12} files and directories in more than one piece", summary.fragmented)
}

/// Text of an issue stays on its line, whatever is in it.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_nouns() {
        assert_eq!((counted(1, "change"), counted(0, "change")), ("1 change".into(), "0 changes".into()));
        let summary = Summary {
            inodes: 100,
            inodes_used: 12,
            blocks: 400,
            blocks_used: 50,
            fragmented: 1,
            ..Summary::default()
        };
        assert_eq!(in_use(&summary), "12/100 files (8.3% non-contiguous), 50/400 blocks");
        let summary = Summary { inodes_used: 10_000, fragmented: 26, ..Summary::default() };
        assert!(in_use(&summary).contains("(0.3% non-contiguous)"));
        assert!(in_use(&Summary::default()).starts_with("0/0 files (0.0%"));
    }
}
