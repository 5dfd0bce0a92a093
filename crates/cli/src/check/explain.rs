//! Explanation of a kind of issue: its meaning and its risk, for `--explain`.

use std::io::{self, Write};

use platfs::check::{Kind, kinds};

/// Columns that text is broken at.
const WIDTH: usize = 96;

/// All kinds, a line each.
///
/// # Errors
/// The output's.
pub fn all(out: &mut dyn Write) -> io::Result<()> {
    let width = kinds().map(|kind| kind.id.len()).max().unwrap_or(0);
    for kind in kinds() {
        let safe = if kind.safe { "" } else { " (its repair can take something away)" };
        writeln!(out, "{:width$}  {}{safe}", kind.id, kind.title)?;
    }
    Ok(())
}

/// One kind in full.
///
/// # Errors
/// The output's.
pub fn one(out: &mut dyn Write, kind: &Kind) -> io::Result<()> {
    let safe = if kind.safe { "the repair loses nothing" } else { "the repair can take something away" };
    writeln!(out, "{}: {}", kind.id, kind.title)?;
    writeln!(out, "    {}: {}; {safe}\n", kind.severity.name(), kind.severity.weight())?;
    for (label, text) in [("What it means", kind.means), ("What the repair does", kind.risk)] {
        writeln!(out, "{label}:")?;
        for line in broken(text) {
            writeln!(out, "    {line}")?;
        }
    }
    Ok(())
}

/// Lines of at most [`WIDTH`] columns; a word that is longer stands alone.
fn broken(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        if let Some(line) = lines.last_mut() {
            if line.is_empty() || line.len() + 1 + word.len() <= WIDTH {
                *line += if line.is_empty() { "" } else { " " };
                *line += word;
                continue;
            }
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_between_words() {
        let text = "word ".repeat(50);
        let lines = broken(&text);
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= WIDTH));
        assert_eq!(lines.join(" "), text.trim_end());
    }

    #[test]
    fn every_kind_is_listed_and_explained_in_full() {
        let mut listed = Vec::new();
        all(&mut listed).unwrap();
        assert_eq!(String::from_utf8(listed).unwrap().lines().count(), kinds().count());
        for kind in kinds() {
            let mut text = Vec::new();
            one(&mut text, kind).unwrap();
            assert!(String::from_utf8(text).unwrap().contains(kind.title));
        }
    }
}
