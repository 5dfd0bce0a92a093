//! Tables of text: one entry a line, `#` before comments.

use std::path::Path;

use super::error::SourceError;

/// The text of a table, if it has at most `most` bytes.
pub(super) fn read(path: &Path, most: u64) -> Result<String, SourceError> {
    let read = platfs_host::read_named(path, most).and_then(|(_, bytes)| {
        String::from_utf8(bytes).map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))
    });
    read.map_err(|error| SourceError::host("read", path, error))
}

/// The lines that say something, with their numbers.
pub(super) fn of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().map(str::trim).zip(1..).map(|(line, number)| (number, line));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}
