//! Tables of text: one entry a line, `#` before comments.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::error::SourceError;

/// The text of a table, if it has at most `most` bytes.
pub(super) fn read(path: &Path, most: u64) -> Result<String, SourceError> {
    let host = |action: &'static str| move |error| SourceError::host(action, path, error);
    let file = File::open(path).map_err(host("open"))?;
    let mut text = String::new();
    file.take(most + 1).read_to_string(&mut text).map_err(host("read"))?;
    if text.len() as u64 > most {
        let error = std::io::Error::other(format!("it is longer than {most} bytes"));
        return Err(SourceError::host("read", path, error));
    }
    Ok(text)
}

/// The lines that say something, with their numbers.
pub(super) fn of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().map(str::trim).zip(1..).map(|(line, number)| (number, line));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}
