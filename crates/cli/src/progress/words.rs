//! The words of a line of progress: as many as the terminal is wide.

use std::time::Duration;

use crate::size::human;

/// Widest line: a wider one is no better to read.
const WIDEST: usize = 79;
/// Columns of a bar.
const BAR: std::ops::RangeInclusive<usize> = 8..=30;

/// How far the work is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Step {
    /// Name of the step, if there are several; plain ASCII.
    pub what: &'static str,
    /// Files so far.
    pub files: u64,
    /// Bytes so far.
    pub bytes: u64,
    /// So much is done, of so much.
    pub part: Option<(u64, u64)>,
}

impl Step {
    /// Nothing is known.
    pub const NONE: Step = Step { what: "", files: 0, bytes: 0, part: None };
}

/// The line, shorter than the terminal is wide: a full line would make some terminals go to the next.
pub(super) fn line(step: &Step, command: &str, elapsed: Duration, columns: u16) -> String {
    let room = usize::from(columns).saturating_sub(1).min(WIDEST);
    let head = if step.what.is_empty() { command.to_owned() } else { format!("{command}: {}", step.what) };
    let (time, part) = (time(elapsed), step.part.filter(|(_, of)| *of > 0).map(|(done, of)| share(done, of)));
    let percent = part.map(|part| format!("{part} %"));
    let mut facts: Vec<String> = percent.into_iter().chain(counts(step)).chain([time]).collect();
    // What is least worth goes first: counts, and the bar before them.
    loop {
        let text = facts.join(", ");
        let rest = room.saturating_sub(head.len() + text.len() + 2);
        let bar = part.filter(|_| rest > *BAR.start()).map(|part| bar(part, (rest - 1).min(*BAR.end())));
        let line = match bar {
            Some(bar) => format!("{head}: {bar} {text}"),
            None => format!("{head}: {text}"),
        };
        if line.len() <= room {
            return line;
        }
        if facts.len() < 2 {
            return line.chars().take(room).collect();
        }
        facts.remove(facts.len() - 2);
    }
}

fn counts(step: &Step) -> Vec<String> {
    let files =
        (step.files > 0).then(|| format!("{} file{}", step.files, if step.files == 1 { "" } else { "s" }));
    let bytes = (step.bytes > 0).then(|| human(step.bytes));
    files.into_iter().chain(bytes).collect()
}

/// Percent, 100 only for all.
fn share(done: u64, of: u64) -> usize {
    let percent = u128::from(done) * 100 / u128::from(of.max(1));
    usize::try_from(percent).unwrap_or(100).min(100)
}

/// `[====>     ]`.
fn bar(percent: usize, columns: usize) -> String {
    let inside = columns.saturating_sub(2);
    let done = inside * percent / 100;
    let head = if done < inside { ">" } else { "" };
    format!("[{:inside$}]", "=".repeat(done) + head)
}

fn time(elapsed: Duration) -> String {
    match elapsed.as_secs() {
        seconds @ ..60 => format!("{seconds} s"),
        seconds @ ..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Step = Step { what: "inodes", files: 12, bytes: 3 << 20, part: Some((45, 100)) };

    fn at(columns: u16) -> String {
        line(&STEP, "check", Duration::from_secs(65), columns)
    }

    #[test]
    fn a_line_has_what_fits() {
        assert_eq!(at(80), "check: inodes: [============>              ] 45 %, 12 files, 3.0 MiB, 1 min 5 s");
        assert_eq!(at(50), "check: inodes: 45 %, 12 files, 3.0 MiB, 1 min 5 s");
        assert_eq!(at(40), "check: inodes: [==>   ] 45 %, 1 min 5 s");
        assert_eq!(at(26), "check: inodes: 1 min 5 s");
        assert_eq!(at(10), "check: in");
    }

    #[test]
    fn no_line_is_as_wide_as_its_terminal() {
        for columns in 0..200 {
            for step in [STEP, Step::NONE, Step { part: Some((u64::MAX, u64::MAX)), ..STEP }] {
                let text = line(&step, "check", Duration::from_secs(100_000), columns);
                assert!(
                    text.len() < usize::from(columns).clamp(1, 80) && text.is_ascii(),
                    "{columns}: {text}"
                );
            }
        }
    }

    #[test]
    fn a_bar_is_full_at_its_end_only() {
        assert_eq!(bar(0, 12), "[>         ]");
        assert_eq!(bar(99, 12), "[=========>]");
        assert_eq!(bar(100, 12), "[==========]");
        assert_eq!([share(0, 0), share(99, 100), share(3, 2)], [0, 99, 100]);
    }
}
