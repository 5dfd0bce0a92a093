//! The option `--keep-going`, and what commands say of all that their output lacks.

use std::fmt::Display;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use clap::{Args, ValueEnum};
use platfs_image::export::{Lacks, OnUnread, Unread};
use platfs_image::{ExportError, Exporter};

use crate::console::{Console, Failure};
use crate::locks::locked;
use crate::reading::explained;
use crate::text::Shown;

/// Lines that wait in memory; more are only counted.
const LINES: usize = 100_000;

/// Treatment of a file of which some bytes can't be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Unreadable {
    /// It is left out.
    LeaveOut,
    /// Zeros stand in their place.
    Zeros,
}

/// Option to go on where the image can't be read.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct KeepGoingArgs {
    /// Goes on where the image can't be read: each lack is named, and the exit code is 1. A file with bytes that can't
    /// be read is left out; with `=zeros` it has zeros in their place.
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "leave-out")]
    pub(super) keep_going: Option<Unreadable>,
}

impl KeepGoingArgs {
    /// Has an export go on, if that is asked for.
    pub(super) fn apply<'v>(self, exporter: Exporter<'v>, tell: &'v OnUnread<'v>) -> Exporter<'v> {
        match self.keep_going {
            Some(how) => exporter.keep_going(how == Unreadable::Zeros, tell),
            None => exporter,
        }
    }

    /// A failure of an export that ended at something of the image, with the remedy.
    pub(super) fn hinted(self, error: ExportError, shown: impl FnOnce(ExportError) -> Failure) -> Failure {
        let helps = self.keep_going.is_none() && error.is_of_image();
        match shown(error) {
            Failure::Failed(why) if helps => Failure::Failed(why.and("--keep-going takes out all else")),
            failure => failure,
        }
    }

    /// Fails where the option was given for something else than an image.
    pub(super) fn refuse_of_mount(self) -> Result<(), Failure> {
        match self.keep_going {
            Some(_) => {
                Err(Failure::Usage("--keep-going is for images; a mount is read by the kernel".to_owned()))
            }
            None => Ok(()),
        }
    }
}

/// Parts that an output lacks, until they are reported.
pub(super) struct Lacking {
    /// The name of the image.
    image: String,
    held: Mutex<(u64, Vec<String>)>,
}

impl Lacking {
    pub(super) fn of(image: &str) -> Self {
        Lacking { image: image.to_owned(), held: Mutex::default() }
    }

    /// Notes what an export can't read.
    pub(super) fn unread(&self, unread: &Unread<'_>) {
        let why = match unread.error {
            ExportError::Image { error, .. } => explained(error),
            other => other.to_string(),
        };
        let path = Shown(unread.path);
        let line = match &unread.lacks {
            Lacks::All => format!("{path}: left out: {why}"),
            Lacks::Names => format!("{path}: some of its names are left out: {why}"),
            Lacks::Attributes => format!("{path}: without its extended attributes: {why}"),
            Lacks::FileFor(range) => format!("{path}: left out, as {} can't be read: {why}", bytes(range)),
            Lacks::Bytes(range) => format!("{path}: {} are zeros: {why}", bytes(range)),
        };
        self.note(&line);
    }

    /// Notes bytes of the image that can't be read.
    pub(super) fn zeros(&self, range: &Range<u64>, why: impl Display) {
        self.note(&format!("{} are zeros: {why}", bytes(range)));
    }

    fn note(&self, line: &str) {
        let mut held = locked(&self.held);
        held.0 += 1;
        if held.1.len() < LINES {
            held.1.push(format!("{}: {line}", self.image));
        }
    }

    /// Says all, which makes the command fail.
    ///
    /// # Errors
    /// The output was closed.
    pub(super) fn say(self, console: &mut Console<'_>) -> Result<(), Failure> {
        let (count, lines) = self.held.into_inner().unwrap_or_else(PoisonError::into_inner);
        for line in lines {
            console.complain(Failure::Failed(line.into()))?;
        }
        if count > 0 {
            let what = format!("{count} parts can't be read; all else is in the output");
            console.complain(Failure::about(&self.image, what))?;
        }
        Ok(())
    }
}

fn bytes(range: &Range<u64>) -> String {
    format!("bytes {} to {}", range.start, range.end.saturating_sub(1))
}
