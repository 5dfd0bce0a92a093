//! Reporting of issues by a pass: silently in parallel, aloud by one thread.

use super::issue::{Decision, Issue, Location, Progress, Sink, Summary};
use super::kinds::Kind;

/// Details of an issue that a pass finds; see [`Issue`].
#[derive(Default)]
pub(super) struct Finding {
    pub(super) place: Location,
    pub(super) found: String,
    pub(super) expected: String,
    pub(super) repair: String,
    pub(super) is_overused: bool,
}

impl Finding {
    /// A finding whose kind says what is expected.
    pub(super) fn new(place: Location, found: impl Into<String>, repair: impl Into<String>) -> Self {
        let (found, repair) = (found.into(), repair.into());
        Finding { place, found, expected: String::new(), repair, is_overused: false }
    }

    /// A finding about something whose place is added by [`Finding::at`].
    pub(super) fn unplaced(found: impl Into<String>, repair: impl Into<String>) -> Self {
        Finding::new(Location::default(), found, repair)
    }

    /// Adds the place.
    pub(super) fn at(self, place: Location) -> Self {
        Finding { place, ..self }
    }

    /// Says that something may be in use beyond what is stated.
    pub(super) fn overused(self, is_overused: bool) -> Self {
        Finding { is_overused, ..self }
    }

    /// Adds what should be there.
    pub(super) fn expected(self, expected: impl ToString) -> Self {
        Finding { expected: expected.to_string(), ..self }
    }
}

/// The sink, with the issues reported to it so far.
pub(super) struct Report<'s> {
    sink: &'s mut dyn Sink,
    pub(super) summary: Summary,
    /// True if nothing is repaired from now on.
    held: bool,
    /// True if nothing is reported from now on.
    over: bool,
}

impl<'s> Report<'s> {
    pub(super) fn new(sink: &'s mut dyn Sink) -> Self {
        Report { sink, summary: Summary::default(), held: false, over: false }
    }

    /// Reports an issue; returns true if it is to be repaired. An issue without a repair stays.
    pub(super) fn found(&mut self, kind: &'static Kind, finding: Finding) -> bool {
        if self.over {
            return false;
        }
        let Finding { place, found, expected, repair, is_overused } = finding;
        let possible = !repair.is_empty();
        self.summary.issues += 1;
        let decision = self.sink.issue(Issue { kind, place, found, expected, repair, is_overused });
        let repairs = possible && !self.held && decision == Decision::Repair;
        self.summary.repaired += u64::from(repairs);
        repairs
    }

    /// Reports something whose place is doubtful. If it stays, nothing behind it is repaired: a repair could overwrite
    /// what belongs to others.
    pub(super) fn found_first(&mut self, kind: &'static Kind, finding: Finding) -> bool {
        let repairs = self.found(kind, finding);
        self.held |= !repairs;
        repairs
    }

    /// Reports something that has no repair, and of which everything found from now on may be a consequence: that is
    /// neither reported nor repaired.
    pub(super) fn found_last(&mut self, kind: &'static Kind, finding: Finding) {
        self.found_first(kind, finding);
        self.over = true;
    }

    /// Returns true if everything that was found so far is to stay as it is: then nothing follows from repairs.
    pub(super) fn all_stays(&self) -> bool {
        self.held || self.summary.issues > 0 && self.summary.repaired == 0
    }

    pub(super) fn progress(&mut self, pass: &'static str, done: u64, of: u64) {
        self.sink.progress(Progress { pass, done, of });
    }

    /// Makes a reporter that passes on everything.
    pub(super) fn aloud(&mut self) -> Reporter<'_, 's> {
        Reporter::Aloud(self)
    }
}

/// Reports the issues of one examined structure.
pub(super) enum Reporter<'r, 's> {
    /// Remembers only that there was something, and mends nothing.
    Silent {
        /// True if anything was found.
        any: bool,
    },
    /// Asks the sink, which decides.
    Aloud(&'r mut Report<'s>),
}

impl Reporter<'_, '_> {
    pub(super) fn silent() -> Self {
        Reporter::Silent { any: false }
    }

    /// Returns true if only the first finding matters: an examination may stop once it has one.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self, Reporter::Silent { .. })
    }

    /// Returns true if a silent reporter found anything.
    pub(super) fn any(&self) -> bool {
        matches!(self, Reporter::Silent { any: true })
    }

    /// Issues reported so far, of the whole check; none by a silent reporter.
    pub(super) fn reported(&self) -> u64 {
        match self {
            Reporter::Silent { .. } => 0,
            Reporter::Aloud(report) => report.summary.issues,
        }
    }

    /// Reports an issue; true if it is to be mended now. A silent reporter builds no text.
    pub(super) fn found(&mut self, kind: &'static Kind, finding: impl FnOnce() -> Finding) -> bool {
        match self {
            Reporter::Silent { any } => {
                *any = true;
                false
            }
            Reporter::Aloud(report) => report.found(kind, finding()),
        }
    }
}
