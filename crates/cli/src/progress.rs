//! How far a command is: one line below all that it has printed, while it lasts and standard error is a terminal.
//!
//! Owns: the line, the thread that draws it, and the standard streams of the process, which take the line away before
//! they write. Leaves to others: what is counted (the work says so by [`show`]), and what is printed (`console`).
//!
//! Work never waits for the terminal: it leaves a [`Step`], and the thread looks at it from time to time. The line is
//! locked by one who writes to the terminal, for that write.

mod words;

use std::io::{self, IsTerminal, Read, Write};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use crate::locks::locked;
use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};

pub use words::Step;

/// A command that is done by then shows no line.
const FIRST: Duration = Duration::from_millis(500);
/// How often the line is drawn.
const EVERY: Duration = Duration::from_millis(200);
/// Columns of a terminal that does not say how many it has.
const COLUMNS: u16 = 80;
/// Takes the line away: the cursor goes to its start, and all behind that is cleared.
const ERASE: &str = "\r\x1b[K";
/// How often one who is in a hurry tries to get the line, and how long it waits between.
const TRIES: u32 = 20;
const BETWEEN: Duration = Duration::from_millis(5);

static LINE: Mutex<Line> = Mutex::new(Line::NONE);
static STEP: Mutex<Step> = Mutex::new(Step::NONE);

/// The last line of the terminal.
struct Line {
    command: String,
    /// When the command began, if a line is to be drawn.
    since: Option<Instant>,
    /// It stands on the terminal now.
    drawn: bool,
    /// True if the last text printed has not ended its line.
    open: bool,
    /// Something was printed since the thread looked last.
    printed: bool,
    /// How many want no line now.
    paused: u32,
}

/// Begins to show that a command lasts, where there is a terminal for it.
pub fn begin() {
    if !has_terminal() {
        return;
    }
    locked(&LINE).since = Some(Instant::now());
    // Without the thread there is no line: the command is the same.
    let _ = thread::Builder::new().name("progress".into()).spawn(keep_drawing);
}

/// Returns true if the terminal of standard error can have a line. Behind a pipe there may be a pager, whose screen it is then.
fn has_terminal() -> bool {
    let stderr = io::stderr();
    let can_erase = std::env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != "dumb");
    stderr.is_terminal() && can_erase && !is_pipe(&io::stdout())
}

fn is_pipe(stream: &io::Stdout) -> bool {
    rustix::fs::fstat(stream).is_ok_and(|facts| {
        let kind = rustix::fs::FileType::from_raw_mode(facts.st_mode);
        matches!(kind, rustix::fs::FileType::Fifo | rustix::fs::FileType::Socket)
    })
}

/// Names the command.
pub fn named(command: &str) {
    command.clone_into(&mut locked(&LINE).command);
}

/// Takes the line away for good.
pub fn end() {
    let mut line = locked(&LINE);
    line.erase();
    line.since = None;
}

/// Says how far the work is.
pub fn show(step: Step) {
    *locked(&STEP) = step;
}

/// No line is drawn while this lives: somebody types.
#[must_use]
pub struct Pause(());

/// Takes the line away until the end of what is returned.
pub fn pause() -> Pause {
    let mut line = locked(&LINE);
    line.erase();
    line.paused += 1;
    Pause(())
}

impl Drop for Pause {
    fn drop(&mut self) {
        let mut line = locked(&LINE);
        line.paused -= 1;
        // Who has typed a line has ended it.
        line.open = false;
    }
}

/// Takes the line away and does something before it is drawn again; `work` hears whether there was one. Does not wait for
/// a terminal that takes no more.
pub fn aside<T>(work: impl FnOnce(bool) -> T) -> T {
    let mut line = hurried();
    let was_drawn = line.as_ref().is_some_and(|line| line.drawn);
    if let Some(line) = &mut line {
        line.erase();
    }
    work(was_drawn)
}

fn hurried() -> Option<MutexGuard<'static, Line>> {
    for _ in 0..TRIES {
        match LINE.try_lock() {
            Ok(line) => return Some(line),
            Err(TryLockError::Poisoned(line)) => return Some(line.into_inner()),
            Err(TryLockError::WouldBlock) => thread::sleep(BETWEEN),
        }
    }
    None
}

fn keep_drawing() {
    thread::sleep(FIRST);
    loop {
        let step = *locked(&STEP);
        let mut line = locked(&LINE);
        let Some(since) = line.since else { return };
        line.draw(&step, since.elapsed());
        drop(line);
        thread::sleep(EVERY);
    }
}

impl Line {
    const NONE: Line =
        Line { command: String::new(), since: None, drawn: false, open: false, printed: false, paused: 0 };

    fn draw(&mut self, step: &Step, elapsed: Duration) {
        if std::mem::take(&mut self.printed) || self.open || self.paused > 0 || !is_in_front() {
            return;
        }
        let text = words::line(step, &self.command, elapsed, columns());
        let _ = io::stderr().write_all(format!("{ERASE}{text}").as_bytes());
        self.drawn = true;
    }

    fn erase(&mut self) {
        if std::mem::take(&mut self.drawn) && is_in_front() {
            let _ = io::stderr().write_all(ERASE.as_bytes());
        }
    }

    fn wrote(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last() {
            (self.open, self.printed) = (*last != b'\n', true);
        }
    }
}

/// Returns true if the terminal is this job's now: another one may be in front, as the shell is behind Ctrl-Z.
fn is_in_front() -> bool {
    tcgetpgrp(io::stderr()).is_ok_and(|group| group == getpgrp())
}

fn columns() -> u16 {
    let size = tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col);
    if size == 0 { COLUMNS } else { size }
}

/// A standard stream, which takes the line away before it writes to a terminal.
pub struct Printing<S> {
    stream: S,
    is_terminal: bool,
}

/// Standard output.
#[must_use]
pub fn stdout() -> Printing<io::Stdout> {
    Printing { is_terminal: io::stdout().is_terminal(), stream: io::stdout() }
}

/// Standard error.
#[must_use]
pub fn stderr() -> Printing<io::Stderr> {
    Printing { is_terminal: io::stderr().is_terminal(), stream: io::stderr() }
}

impl<S: Write> Write for Printing<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return self.stream.write(bytes);
        }
        let mut line = locked(&LINE);
        line.erase();
        let count = self.stream.write(bytes)?;
        line.wrote(bytes.get(..count).unwrap_or_default());
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.is_terminal {
            return self.stream.flush();
        }
        let mut line = locked(&LINE);
        line.erase();
        self.stream.flush()
    }
}

/// Standard input: while it is read from a terminal, the line is the user's.
pub struct Typing {
    _alone: Option<Pause>,
}

/// Standard input.
#[must_use]
pub fn stdin() -> Typing {
    Typing { _alone: io::stdin().is_terminal().then(pause) }
}

impl Read for Typing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        io::stdin().read(buffer)
    }
}
