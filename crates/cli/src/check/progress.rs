//! How far a check is: a bar on a terminal, or lines for a program that asked for them (`-C`).

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};
use platfs::check::Progress;

/// Passes as fsck(8) numbers them, by what of ours each is.
const NUMBERED: [(&str, u32); 9] = [
    ("opening", 1),
    ("descriptors", 1),
    ("inodes", 1),
    ("shared", 1),
    ("directories", 2),
    ("connect", 3),
    ("links", 4),
    ("space", 5),
    ("quota", 5),
];

/// Shows progress.
pub struct Meter {
    bar: ProgressBar,
    lines: Option<(File, String)>,
    pass: &'static str,
}

impl Meter {
    /// Shows nothing.
    #[must_use]
    pub fn silent() -> Self {
        Meter { bar: ProgressBar::hidden(), lines: None, pass: "" }
    }

    /// A bar, where standard error is a terminal.
    #[must_use]
    pub fn bar() -> Self {
        if !std::io::stderr().is_terminal() {
            return Meter::silent();
        }
        let bar = ProgressBar::new(1);
        if let Ok(style) = ProgressStyle::with_template("{msg:12} {bar:40} {percent:>3} %  {eta} left") {
            bar.set_style(style);
        }
        Meter { bar, ..Meter::silent() }
    }

    /// Lines `PASS DONE OF NAME` to an open file descriptor, as e2fsck writes them.
    ///
    /// # Errors
    /// The descriptor can't be written to.
    pub fn to_descriptor(descriptor: u32, name: &str) -> std::io::Result<Self> {
        let file = OpenOptions::new().append(true).open(format!("/dev/fd/{descriptor}"))?;
        Ok(Meter { lines: Some((file, name.to_owned())), ..Meter::silent() })
    }

    /// Shows how far the check is.
    pub fn show(&mut self, progress: Progress) {
        if let Some((file, name)) = &mut self.lines {
            let number =
                NUMBERED.iter().find(|(pass, _)| *pass == progress.pass).map_or(1, |(_, number)| *number);
            let written = writeln!(file, "{number} {} {} {name}", progress.done, progress.of);
            // The progress has no reader any more: the check goes on.
            if written.is_err() {
                self.lines = None;
            }
        }
        if self.bar.is_hidden() {
            return;
        }
        if self.pass != progress.pass {
            self.pass = progress.pass;
            self.bar.reset();
            self.bar.set_message(progress.pass);
        }
        self.bar.set_length(progress.of);
        self.bar.set_position(progress.done);
    }

    /// Does something while no bar is in the way.
    pub fn suspended<T>(&self, work: impl FnOnce() -> T) -> T {
        self.bar.suspend(work)
    }

    /// The check is over.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
