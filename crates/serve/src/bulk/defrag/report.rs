//! Report of a defragmentation: counted, and as JSON, in which form it also comes from a mount.

use serde_json::{Map, Value};

use crate::free_runs::Figures;

/// Failures that are reported in words.
const WORDS: usize = 12;

/// Longest part of a report on a line of the control channel.
const PART: usize = 400;

/// Two moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// Before the work.
    pub before: u64,
    /// After it.
    pub after: u64,
}

/// Results of a defragmentation.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Regular files with blocks.
    pub files: u64,
    /// Pieces of all of them.
    pub pieces: Change,
    /// Files in pieces.
    pub torn: Change,
    /// Bytes of the files that were in pieces.
    pub torn_bytes: u64,
    /// Files that moved, or would.
    pub moved: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Files in pieces for which no free run is long enough.
    pub too_long: u64,
    /// Files in pieces that stay so because no more may be moved.
    pub beyond: u64,
    /// Files that changed again and again while they were copied.
    pub busy: u64,
    /// Files that must not move, or that the actor may not write.
    pub refused: u64,
    /// Free runs.
    pub free_runs: Change,
    /// The longest, in KiB.
    pub longest: Change,
    /// The mean, in KiB.
    pub mean: Change,
    /// Bytes that were free before.
    pub(super) free_bytes: u64,
    failures: Vec<String>,
    failed: u64,
}

impl Report {
    /// Notes a file that could not be moved.
    pub fn failed(&mut self, why: String) {
        self.failed += 1;
        if self.failures.len() < WORDS {
            self.failures.push(why.chars().take(200).collect());
        }
    }

    /// Notes free space, before the work or after it.
    pub(super) fn note_free(&mut self, figures: &Figures, after: bool) {
        let set = |change: &mut Change, value| {
            *(if after { &mut change.after } else { &mut change.before }) = value
        };
        set(&mut self.free_runs, figures.runs());
        set(&mut self.longest, figures.kilobytes(figures.longest()));
        set(&mut self.mean, figures.mean());
        if !after {
            self.free_bytes = figures.free_blocks() << figures.geometry().block_size.log2();
        }
    }

    /// All of it as an object.
    #[must_use]
    pub fn object(&self) -> Map<String, Value> {
        let mut object = Map::new();
        let changes = [
            ("pieces", self.pieces),
            ("files_in_pieces", self.torn),
            ("free_extents", self.free_runs),
            ("longest_free_kib", self.longest),
            ("mean_free_kib", self.mean),
        ];
        let counts = [
            ("files", self.files),
            ("bytes_in_pieces", self.torn_bytes),
            ("files_moved", self.moved),
            ("bytes_moved", self.moved_bytes),
            ("too_long", self.too_long),
            ("beyond", self.beyond),
            ("busy", self.busy),
            ("refused", self.refused),
            ("failed", self.failed),
        ];
        for (name, Change { before, after }) in changes {
            object.insert(format!("{name}_before"), before.into());
            object.insert(name.to_owned(), after.into());
        }
        for (name, count) in counts {
            object.insert(name.to_owned(), count.into());
        }
        object.insert("failures".to_owned(), self.failures.clone().into());
        object
    }
}

/// An object as lines of the control channel; joined they are JSON.
#[must_use]
pub fn lines(object: &Map<String, Value>) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for letter in Value::from(object.clone()).to_string().chars() {
        if line.len() + letter.len_utf8() > PART {
            lines.push(std::mem::take(&mut line));
        }
        line.push(letter);
    }
    lines.push(line);
    lines
}

/// The object of such lines.
#[must_use]
pub fn from_lines(lines: &[String]) -> Option<Map<String, Value>> {
    match serde_json::from_str(&lines.concat()) {
        Ok(Value::Object(object)) => Some(object),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_comes_back_from_its_lines() {
        let mut report = Report { files: 7, torn: Change { before: 3, after: 1 }, ..Report::default() };
        (0..100).for_each(|number| report.failed(format!("/d\u{e4}ta/{number}: {}", "no ".repeat(100))));
        let (object, lines) = (report.object(), lines(&report.object()));
        assert!(lines.len() <= 16 && lines.iter().all(|line| line.len() <= PART));
        assert_eq!(from_lines(&lines), Some(object));
        assert_eq!(from_lines(&["no".to_owned()]), None);
    }
}
