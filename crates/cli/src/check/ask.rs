//! Questions on a terminal: whether to repair at all, and issue by issue.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use platfs::check::{Decision, Issue};

use crate::progress;
use crate::text::Shown;

/// Longest line that is read as an answer, as long as a path can be.
const LINE_MAX: usize = 4096;

/// Answer about the whole plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// All repairs.
    All,
    /// All repairs, with the way back in a file.
    Undoable(PathBuf),
    /// To be asked of each.
    Each,
    /// No repairs.
    Nothing,
}

#[derive(Clone, Copy)]
enum Plan {
    All,
    Undoable,
    Each,
    Nothing,
}

/// Asks about the plan; the end of the input means that nothing is wanted. With a `usual` file for the way back
/// that is offered too.
///
/// # Errors
/// The output's.
pub fn about_plan(input: &mut dyn Read, out: &mut dyn Write, usual: Option<&Path>) -> io::Result<Answer> {
    let mut known = vec![('y', Plan::All), ('n', Plan::Nothing), ('e', Plan::Each)];
    let mut question = "Repair? [y]es, all of it; [n]o; ask for [e]ach".to_owned();
    if usual.is_some() {
        known.push(('u', Plan::Undoable));
        question += "; yes, and keep the way back to [u]ndo it";
    }
    question += ": ";
    Ok(match (answer(input, out, &question, &known)?, usual) {
        (Some(Plan::All), _) => Answer::All,
        (Some(Plan::Each), _) => Answer::Each,
        (Some(Plan::Undoable), Some(usual)) => {
            file(input, out, usual)?.map_or(Answer::Nothing, Answer::Undoable)
        }
        _ => Answer::Nothing,
    })
}

/// Asks for the file of the way back; an empty line is the usual one.
fn file(input: &mut dyn Read, out: &mut dyn Write, usual: &Path) -> io::Result<Option<PathBuf>> {
    let _typing = progress::pause();
    write!(out, "New file for the way back [{}]: ", Shown(usual.as_os_str().as_bytes()))?;
    out.flush()?;
    let line = typed(input)?;
    if line.is_empty() {
        writeln!(out)?;
        return Ok(None);
    }
    let line = line.trim_ascii();
    Ok(Some(if line.is_empty() { usual.to_owned() } else { PathBuf::from(OsStr::from_bytes(line)) }))
}

/// Asks issue by issue.
pub struct Questions<'q> {
    input: &'q mut dyn Read,
    out: &'q mut dyn Write,
    /// All that is left gets this answer.
    rest: Option<Decision>,
    /// The user wants to have no part of it done.
    pub cancelled: bool,
}

#[derive(Clone, Copy)]
enum About {
    Yes,
    No,
    Rest,
    Quit,
}

impl<'q> Questions<'q> {
    /// Has asked nothing yet.
    pub fn new(input: &'q mut dyn Read, out: &'q mut dyn Write) -> Self {
        Questions { input, out, rest: None, cancelled: false }
    }

    /// Asks whether an issue, described by `text`, is to be repaired.
    pub fn about(&mut self, issue: &Issue, text: &str) -> Decision {
        if let Some(decision) = self.rest {
            return decision;
        }
        if issue.repair.is_empty() {
            // Nothing to decide; a closed output shows at the next question.
            let _ = writeln!(self.out, "{text}");
            return Decision::Leave;
        }
        let risk =
            if issue.kind.safe { "" } else { "    this can take something away; --explain says what\n" };
        let question = format!("{text}{risk}    Repair? [y]es; [n]o; [a]ll from here on; [q]uit: ");
        let known = [('y', About::Yes), ('n', About::No), ('a', About::Rest), ('q', About::Quit)];
        match answer(self.input, self.out, &question, &known) {
            Ok(Some(About::Yes)) => Decision::Repair,
            Ok(Some(About::No)) => Decision::Leave,
            Ok(Some(About::Rest)) => {
                self.rest = Some(Decision::Repair);
                Decision::Repair
            }
            Ok(Some(About::Quit) | None) | Err(_) => {
                self.rest = Some(Decision::Leave);
                self.cancelled = true;
                Decision::Leave
            }
        }
    }
}

/// The answer that begins with one of the letters; asks again until there is one. `None` at the end of
/// the input.
fn answer<T: Copy>(
    input: &mut dyn Read,
    out: &mut dyn Write,
    question: &str,
    known: &[(char, T)],
) -> io::Result<Option<T>> {
    let _typing = progress::pause();
    loop {
        write!(out, "{question}")?;
        out.flush()?;
        let line = typed(input)?;
        if line.is_empty() {
            writeln!(out)?;
            return Ok(None);
        }
        let first = line.iter().find(|byte| !byte.is_ascii_whitespace()).map(u8::to_ascii_lowercase);
        if let Some((_, answer)) = known.iter().find(|(letter, _)| first == u8::try_from(*letter).ok()) {
            return Ok(Some(*answer));
        }
    }
}

/// A line with its end; empty at the end of the input. Nothing behind it is taken: standard input keeps that for the next
/// question.
fn typed(input: &mut dyn Read) -> io::Result<Vec<u8>> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while line.len() < LINE_MAX && !line.ends_with(b"\n") {
        match input.read_exact(&mut byte) {
            Ok(()) => line.extend(byte),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_answer_is_asked_again() {
        let mut out = Vec::new();
        assert_eq!(about_plan(&mut &b"\nwhat\n Each\n"[..], &mut out, None).unwrap(), Answer::Each);
        assert_eq!(String::from_utf8(out).unwrap().matches("Repair?").count(), 3);
        let usual = Some(Path::new("a.undo"));
        let plan = |mut input: &[u8]| about_plan(&mut input, &mut Vec::new(), usual).unwrap();
        assert_eq!(plan(b""), Answer::Nothing);
        assert_eq!(plan(b"u\n\n"), Answer::Undoable("a.undo".into()));
        assert_eq!(plan(b"u\n elsewhere \n"), Answer::Undoable("elsewhere".into()));
        assert_eq!(plan(b"u\n"), Answer::Nothing);
    }

    #[test]
    fn all_from_here_on_and_the_end_of_the_input() {
        let kind = platfs::check::kinds().next().unwrap();
        let issue = Issue {
            kind,
            place: platfs::check::Location::default(),
            found: String::new(),
            expected: String::new(),
            repair: "it is made right".into(),
            is_overused: false,
        };
        let (mut input, mut out) = (&b"n\na\n"[..], Vec::new());
        let mut questions = Questions::new(&mut input, &mut out);
        let decisions = [0; 4].map(|_| questions.about(&issue, "text\n"));
        assert_eq!(decisions, [Decision::Leave, Decision::Repair, Decision::Repair, Decision::Repair]);
        assert!(!questions.cancelled);
        let (mut input, mut out) = (&b"y\n"[..], Vec::new());
        let mut questions = Questions::new(&mut input, &mut out);
        assert_eq!([0; 2].map(|_| questions.about(&issue, "")), [Decision::Repair, Decision::Leave]);
        assert!(questions.cancelled);
    }
}
