//! Where a command prints and complains, and what its exit code becomes.
//!
//! Commands get a [`Console`] instead of standard output, so that tests run them in-process.
//!
//! Owns: the form of messages, as text and as JSON. Excludes their words.

use std::any::Any;
use std::fmt::{self, Display};
use std::io::{self, Write};
use std::process::ExitCode;

use platfs_serve::mount::error::{MountError, Why};
use platfs_serve::refusal::Refusal;
use serde_json::{Map, Value, json};

use crate::image::ImageError;

/// Why a command did not do all it was asked.
#[derive(Debug)]
pub enum Failure {
    /// Wrong usage: exit code 2.
    Usage(String),
    /// It failed: exit code 1.
    Failed(Trouble),
    /// Another process failed with this code, and said why.
    Reported(u8),
    /// The reader of the output went away: this is no error, and output ends.
    OutputClosed,
}

/// A failure, in words and by its kind.
#[derive(Debug)]
pub struct Trouble {
    /// One line, `SUBJECT: what, where, remedy`.
    text: String,
    /// Subject of the failure, if it is known apart from the text.
    file: Option<String>,
    kind: &'static str,
    /// The volume is full, and no remedy is named yet.
    lacks: Option<Lack>,
}

/// Lack of a full volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// Blocks.
    Room,
    /// Inodes.
    Inodes,
}

impl Lack {
    fn of(error: &platfs::Error) -> Option<Self> {
        match error {
            platfs::Error::NoSpace => Some(Lack::Room),
            platfs::Error::NoInodes => Some(Lack::Inodes),
            _ => None,
        }
    }
}

impl From<String> for Trouble {
    fn from(text: String) -> Self {
        Trouble { text, file: None, kind: FAILED, lacks: None }
    }
}

impl From<&str> for Trouble {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Trouble {
    /// Subject of the failure, if it is known apart from the text.
    #[must_use]
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// Its kind; docs/json.md lists all.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Adds more behind it.
    #[must_use]
    pub fn and(mut self, more: impl Display) -> Self {
        self.text = format!("{}; {more}", self.text);
        self
    }

    /// Lack of the full volume, while no remedy is named.
    #[must_use]
    pub fn lacks(&self) -> Option<Lack> {
        self.lacks
    }

    /// Adds the remedy of a full volume.
    #[must_use]
    pub fn remedied(self, remedy: impl Display) -> Self {
        Trouble { lacks: None, ..self.and(remedy) }
    }

    /// Failure that the server of a mount tells of. Its number does not say if blocks or inodes lack; its words do.
    #[must_use]
    pub fn told(why: Refusal) -> Self {
        let full = [platfs::Error::NoSpace, platfs::Error::NoInodes];
        let lacks = full.into_iter().find(|error| why.words.ends_with(&error.to_string()));
        let kind = kind_of(why.errno);
        Trouble { text: why.words, file: None, kind, lacks: lacks.as_ref().and_then(Lack::of) }
    }
}

/// The kind of a failure of which no more is known.
const FAILED: &str = "failed";

/// The kind of a failure by its number in Linux; docs/json.md lists all.
fn kind_of(number: i32) -> &'static str {
    use rustix::io::Errno;
    match Errno::from_raw_os_error(number) {
        Errno::NOENT => "not-found",
        Errno::PERM | Errno::ACCESS => "not-permitted",
        Errno::BUSY | Errno::TXTBSY | Errno::AGAIN => "busy",
        Errno::EXIST => "exists",
        Errno::NOTDIR | Errno::ISDIR | Errno::NOTEMPTY | Errno::LOOP => "wrong-type",
        Errno::INVAL | Errno::NAMETOOLONG => "invalid",
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => "full",
        Errno::ROFS => "read-only",
        Errno::OPNOTSUPP | Errno::NOSYS => "unsupported",
        Errno::UCLEAN | Errno::BADMSG => "damaged",
        Errno::IO => "io",
        Errno::TIMEDOUT => "timed-out",
        _ => FAILED,
    }
}

/// The kind of what an error says.
fn kind(what: &dyn Any) -> &'static str {
    if let Some(error) = what.downcast_ref::<platfs::Error>() {
        return kind_of(error.errno());
    }
    if let Some(refusal) = what.downcast_ref::<Refusal>() {
        return kind_of(refusal.errno);
    }
    match (what.downcast_ref::<io::Error>(), what.downcast_ref::<ImageError>()) {
        (Some(error), _) | (_, Some(ImageError::Io(error))) => kind_of_host(error),
        (_, Some(ImageError::NoPart(_))) => "not-found",
        (_, Some(ImageError::InUse(_))) => "busy",
        (_, Some(ImageError::Remote)) => "unsupported",
        (_, Some(ImageError::Part(error))) => kind_of(error.errno()),
        _ => FAILED,
    }
}

/// The kind of what the host says.
fn kind_of_host(error: &io::Error) -> &'static str {
    match (error.raw_os_error(), error.kind()) {
        (Some(number), _) => kind_of(number),
        (None, io::ErrorKind::NotFound) => "not-found",
        (None, io::ErrorKind::PermissionDenied) => "not-permitted",
        (None, io::ErrorKind::AlreadyExists) => "exists",
        (None, io::ErrorKind::ResourceBusy) => "busy",
        (None, io::ErrorKind::StorageFull) => "full",
        (None, io::ErrorKind::TimedOut) => "timed-out",
        (None, io::ErrorKind::Unsupported) => "unsupported",
        // In words of our own.
        (None, io::ErrorKind::Other) => FAILED,
        (None, _) => "io",
    }
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Self {
        let MountError { subject, why } = error;
        match why {
            Why::Image(error) => Failure::about(subject, error),
            Why::Key(error) => error.into(),
            Why::Host(error) => Failure::about(subject, error),
            other => Failure::about(subject, other.to_string()),
        }
    }
}

impl Failure {
    /// A failure about something: an image, a file, a path in an image.
    pub fn about(subject: impl Display, what: impl Display + 'static) -> Self {
        let (file, kind) = (subject.to_string(), kind(&what));
        let lacks = (&what as &dyn Any).downcast_ref().and_then(Lack::of);
        Failure::Failed(Trouble { text: format!("{file}: {what}"), file: Some(file), kind, lacks })
    }

    /// Its text.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Failure::Usage(text) => text.clone(),
            Failure::Failed(trouble) => trouble.to_string(),
            Failure::Reported(_) | Failure::OutputClosed => String::new(),
        }
    }

    /// A failure about an output that exists and is not to be replaced.
    pub fn exists(subject: impl Display, words: impl Display) -> Self {
        Failure::of(subject, &platfs::Error::Exists, words)
    }

    /// As [`Failure::about`], with words of our own for an error of the library.
    pub fn of(subject: impl Display, error: &platfs::Error, words: impl Display) -> Self {
        let file = subject.to_string();
        Failure::Failed(Trouble {
            text: format!("{file}: {words}"),
            file: Some(file),
            kind: kind_of(error.errno()),
            lacks: Lack::of(error),
        })
    }
}

/// The output of one command.
pub struct Console<'a> {
    /// Output that was asked for.
    pub out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    failed: bool,
    /// Command whose `--help` is named.
    command: String,
    form: Form,
    /// Summaries are left out.
    quiet: bool,
}

/// The form of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    /// Lines for people.
    #[default]
    Text,
    /// Objects of JSON, one on a line.
    Json,
}

impl<'a> Console<'a> {
    /// Output to `out`, complaints to `err`.
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write) -> Self {
        Console { out, err, failed: false, command: "plat".to_owned(), form: Form::Text, quiet: false }
    }

    /// Says in which form messages are.
    #[must_use]
    pub fn form(mut self, form: Form) -> Self {
        self.form = form;
        self
    }

    /// Tells if JSON is wanted: of the output, and of messages.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.form == Form::Json
    }

    /// Leaves summaries out.
    pub fn be_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
    }

    /// Tells if only what was asked for is printed.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// The stream to which the summary of a command goes.
    pub fn summary(&mut self) -> Summary<'_> {
        Summary { out: (!self.quiet).then_some(&mut *self.out) }
    }

    /// A message on a line.
    fn message(&mut self, label: &str, kind: Option<&str>, file: Option<&str>, text: &str) {
        let _ = self.out.flush();
        let text = one_line(text);
        // Standard error is the last resort: when it is gone, so is its reader.
        let _ = match (self.form, label) {
            (Form::Text, "warning") => writeln!(self.err, "plat: warning: {text}"),
            (Form::Text, _) => writeln!(self.err, "plat: {text}"),
            (Form::Json, label) => {
                let mut object = Map::new();
                let mut put = |name: &str, value: Option<&str>| {
                    value.map(|value| object.insert(name.to_owned(), Value::from(value)))
                };
                put("kind", kind);
                put("file", file.map(one_line).as_deref());
                put("text", Some(&text));
                writeln!(self.err, "{}", json!({ label: object }))
            }
        };
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
        self.message("warning", None, None, &text.to_string());
    }

    /// Says beside the output what it is, or why there is none.
    pub fn note(&mut self, text: impl Display) {
        self.message("note", None, None, &text.to_string());
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

    fn say_failed(&mut self, trouble: &Trouble) {
        self.failed = true;
        self.message("error", Some(trouble.kind), trouble.file.as_deref(), &trouble.text);
    }

    /// Says what is wrong with a command line, and where the usage stands.
    pub fn say_usage(&mut self, problem: &str, help: &str) {
        self.message("error", Some("usage"), None, problem);
        if self.form == Form::Text {
            let _ = writeln!(self.err, "plat: `{help}` shows the usage");
        }
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
                let help = format!("{} --help", self.command);
                self.say_usage(&text, &help);
                ExitCode::from(2)
            }
        }
    }
}

/// Standard output for a summary; nothing where none is wanted.
pub struct Summary<'a> {
    out: Option<&'a mut dyn Write>,
}

impl Summary<'_> {
    /// For `write!` and `writeln!`.
    ///
    /// # Errors
    /// Of the output.
    pub fn write_fmt(&mut self, words: fmt::Arguments<'_>) -> io::Result<()> {
        self.out.as_mut().map_or(Ok(()), |out| out.write_fmt(words))
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
    fn messages_in_json_are_objects_with_kind_and_file() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::new(&mut out, &mut err).form(Form::Json);
        console.warn("a\nb");
        console.complain(Failure::about("a.img", platfs::Error::NotFound)).unwrap();
        console.complain(Failure::about("b.img", io::Error::from_raw_os_error(13))).unwrap();
        assert_eq!(console.finish(Err(Failure::Usage("no".into()))), ExitCode::from(2));
        let lines = String::from_utf8(err).unwrap();
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0], json!({"warning": {"text": "a b"}}));
        assert_eq!(
            (&lines[1]["error"]["kind"], &lines[1]["error"]["file"]),
            (&json!("not-found"), &json!("a.img"))
        );
        assert_eq!(lines[2]["error"]["kind"], "not-permitted");
        assert_eq!(lines[3], json!({"error": {"kind": "usage", "text": "no"}}));
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
