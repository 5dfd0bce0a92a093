//! Where a command prints and complains, and what its exit code becomes.
//!
//! Commands get a [`Console`] instead of standard output, so that tests run them in-process.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

/// Why a command did not do all it was asked.
#[derive(Debug)]
pub enum Failure {
    /// Wrong usage: exit code 2.
    Usage(String),
    /// It failed: exit code 1. The text is one line, `SUBJECT: what, where, remedy`.
    Failed(String),
    /// Another process failed with this code, and said why.
    Reported(u8),
    /// The reader of the output went away: this is no error, and output ends.
    OutputClosed,
}

impl Failure {
    /// A failure about something: an image, a file, a path in an image.
    pub fn about(subject: impl Display, what: impl Display) -> Self {
        Failure::Failed(format!("{subject}: {what}"))
    }
}

/// The output of one command.
pub struct Console<'a> {
    /// What was asked for.
    pub out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    failed: bool,
    /// What `--help` stands behind.
    command: String,
}

impl<'a> Console<'a> {
    /// Output to `out`, complaints to `err`.
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write) -> Self {
        Console { out, err, failed: false, command: "plat".to_owned() }
    }

    /// Names the command that is run, for hints.
    #[must_use]
    pub fn of(mut self, command: &str) -> Self {
        if !command.is_empty() {
            self.command = format!("plat {command}");
        }
        self
    }

    /// Says something that does not make the command fail.
    pub fn warn(&mut self, text: impl Display) {
        // Standard error is the last resort: when it is gone, so is its reader.
        let _ = self.out.flush();
        let _ = writeln!(self.err, "plat: warning: {}", one_line(&text.to_string()));
    }

    /// Says beside the output what it is, or why there is none.
    pub fn note(&mut self, text: impl Display) {
        let _ = self.out.flush();
        let _ = writeln!(self.err, "plat: {}", one_line(&text.to_string()));
    }

    /// Says that a part failed; the command goes on with the rest and fails in the end.
    ///
    /// # Errors
    /// Usage errors and a closed output come back: there is no going on after them.
    pub fn complain(&mut self, failure: Failure) -> Result<(), Failure> {
        match failure {
            Failure::Failed(text) => {
                self.say_failed(&text);
                Ok(())
            }
            other => Err(other),
        }
    }

    fn say_failed(&mut self, text: &str) {
        self.failed = true;
        let _ = self.out.flush();
        let _ = writeln!(self.err, "plat: {}", one_line(text));
    }

    /// Prints the failure, if there is one, and turns all that happened into the exit code.
    pub fn finish(&mut self, done: Result<(), Failure>) -> ExitCode {
        match done {
            Ok(()) if self.failed => ExitCode::FAILURE,
            Ok(()) | Err(Failure::OutputClosed) => ExitCode::SUCCESS,
            Err(Failure::Failed(text)) => {
                self.say_failed(&text);
                ExitCode::FAILURE
            }
            Err(Failure::Reported(code)) => ExitCode::from(code),
            Err(Failure::Usage(text)) => {
                let (text, command) = (one_line(&text), &self.command);
                let _ = writeln!(self.err, "plat: {text}\nplat: `{command} --help` shows the usage");
                ExitCode::from(2)
            }
        }
    }
}

/// A message on one line whatever is in it: scripts read errors by lines. The numbers that the system's words bring along
/// are left out.
fn one_line(text: &str) -> String {
    without_numbers(text).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A text without ` (os error N)`, which the standard library puts behind the system's words.
fn without_numbers(text: &str) -> String {
    const MARK: &str = " (os error ";
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(MARK) {
        kept.push_str(before);
        let digits = behind.trim_start_matches(|c: char| c.is_ascii_digit());
        rest = match digits.strip_prefix(')') {
            Some(after) if digits.len() < behind.len() => after,
            _ => {
                kept.push_str(MARK);
                behind
            }
        };
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_lets_the_command_go_on_and_fail() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::new(&mut out, &mut err);
        console.complain(Failure::about("a.img", "broken\nbadly")).unwrap();
        assert_eq!(console.finish(Ok(())), ExitCode::FAILURE);
        assert_eq!(err, b"plat: a.img: broken badly\n");
    }

    #[test]
    fn system_words_come_without_numbers() {
        let error = std::io::Error::from_raw_os_error(2);
        assert!(error.to_string().contains("os error"));
        let said = without_numbers(&format!("a: {error}; b: {error}"));
        assert!(!said.contains("os error") && said.starts_with("a: ") && said.contains("; b: "), "{said}");
        for kept in ["x (os error )", "x (os error 2", "x (os error two)"] {
            assert_eq!(without_numbers(kept), kept);
        }
    }

    #[test]
    fn a_closed_output_is_no_failure_and_usage_is_two() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::new(&mut out, &mut err);
        assert_eq!(console.finish(Err(Failure::OutputClosed)), ExitCode::SUCCESS);
        assert_eq!(console.finish(Err(Failure::Usage("no".into()))), ExitCode::from(2));
    }
}
