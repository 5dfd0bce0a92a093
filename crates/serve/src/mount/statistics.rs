//! Statistics of a mount, as another process asks for them.
//!
//! Owns: the question, and reading the answer. Excludes what is counted, which is the tree's.

use std::fs::File;
use std::io;
use std::path::Path;

use platfs_host::Kind;
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde_json::{Map, Value};

use crate::refusal::Refusal;

use super::tree::control::{STATISTICS, STATISTICS_LEN, STATISTICS_VERSION};

/// The statistics of the mount that a path lies in.
///
/// # Errors
/// Why there are none, without the path's name.
pub fn of(path: &Path) -> Result<Map<String, Value>, Refusal> {
    let place = open(path)?;
    let answer = fuse::ask::<STATISTICS, STATISTICS_LEN>(place).map_err(|error| {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            // Other file systems by FUSE have answers of their own to numbers that they don't know.
            Some(Errno::NOTTY | Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => {
                Refusal::new(Errno::NOTTY, "not in a mount by `plat mount`")
            }
            _ => error.into(),
        }
    })?;
    parse(&answer)
}

/// Returns true if the process behind a mount has its volume open for writing; so it is taken to be where it does not say.
#[must_use]
pub fn is_writable(directory: &Path) -> bool {
    let said = of(directory).ok().and_then(|statistics| statistics.get("writable").and_then(Value::as_bool));
    said.unwrap_or(true)
}

fn parse(answer: &[u8]) -> Result<Map<String, Value>, Refusal> {
    let word = |at: usize| {
        let bytes = answer.get(at..).and_then(|rest| rest.first_chunk::<4>());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    if word(0) != STATISTICS_VERSION {
        let what = format!("form {} of statistics, not {STATISTICS_VERSION}", word(0));
        let words = format!("the mount is served by another version of plat ({what})");
        return Err(Refusal::new(Errno::PROTO, words));
    }
    let len = usize::try_from(word(4)).unwrap_or(usize::MAX);
    let text = answer.get(8..).and_then(|rest| rest.get(..len)).unwrap_or_default();
    match serde_json::from_slice(text) {
        Ok(Value::Object(statistics)) => Ok(statistics),
        _ => Err(Refusal::new(Errno::PROTO, "the statistics of the mount can't be understood")),
    }
}

/// Opens a file or directory to ask about. What may not be opened just to ask (a pipe would wait, a device could
/// act) is asked about by its directory.
fn open(path: &Path) -> io::Result<File> {
    let found = platfs_host::path::facts(path)?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let place = if matches!(found.kind, Kind::File | Kind::Directory) { path } else { above };
    platfs_host::path::open(place, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(version: u32, len: u32, text: &str) -> Vec<u8> {
        [&version.to_le_bytes()[..], &len.to_le_bytes(), text.as_bytes(), &[0; 9]].concat()
    }

    #[test]
    fn only_whole_answers_of_the_known_form_are_read() {
        let text = "{\"writable\":true}";
        assert_eq!(parse(&answer(1, 17, text)).unwrap()["writable"], true);
        assert!(parse(&answer(2, 17, text)).unwrap_err().words.contains("another version"));
        for broken in
            [answer(1, 16, text), answer(1, u32::MAX, text), answer(1, 2, "[]"), vec![1, 0, 0, 0, 5]]
        {
            assert!(parse(&broken).unwrap_err().words.contains("understood"));
        }
        assert!(parse(&[]).is_err());
    }
}
