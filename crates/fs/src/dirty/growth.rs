//! How a file that is written to grows, and whether it seems to go on.
//!
//! Owns: what is remembered of its writes, and the guesses from it. Excludes: what follows from a guess, which is
//! the table's and placement's.

/// The largest write that hosts send in one: a file of this size may be one that is only begun.
const PIECE: u64 = 1 << 20;

/// Why a file is written back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// A caller asked for the file, or needs it.
    Asked,
    /// A caller asked for all files.
    All,
    /// It has been dirty for long.
    Age,
    /// There is too much.
    Pressure,
}

/// Growth pattern of a file.
#[derive(Default)]
pub(crate) struct Growth {
    /// Writes that made it longer since its last write-back.
    pub(super) extensions: u32,
    /// It has been written back before.
    pub(super) written_back: bool,
    /// Bytes that had been written to all files when it was last written to, and when it first grew.
    pub(super) last: u64,
    pub(super) first: u64,
    /// Writes that made it longer in all.
    pub(super) writes: u32,
    /// It has not been open since.
    pub(super) ended: bool,
    /// Room may have been set aside for it when it was last written back, and its close is not reported.
    pub(super) room: bool,
    /// Commits since it was last written to.
    pub(super) commits: u8,
}

impl Growth {
    /// True if a file that may be open will well become longer than it is: it grew again after a write-back; it was
    /// written to piece by piece, and is taken from its writer for lack of memory; or its last write was a moment ago.
    pub(super) fn goes_on(&self, reason: Reason, hot: bool) -> bool {
        self.again()
            || match reason {
                Reason::Asked | Reason::All => hot && self.in_pieces(),
                Reason::Age => false,
                Reason::Pressure => hot || self.in_pieces(),
            }
    }

    /// As [`Growth::goes_on`], for one that may be closed too: its last write fits its rhythm, and it
    /// grew again after a write-back, is written piece by piece, or is large and taken from its writer for lack of
    /// memory. What comes in one piece is complete.
    pub(super) fn seems_to_go_on(&self, reason: Reason, hot: bool, bytes: u64) -> bool {
        let begun = match reason {
            Reason::Asked => self.in_pieces(),
            Reason::Age | Reason::All => false,
            Reason::Pressure => self.in_pieces() || bytes >= PIECE,
        };
        hot && (self.again() || begun)
    }

    fn again(&self) -> bool {
        self.written_back && self.extensions > 0
    }

    fn in_pieces(&self) -> bool {
        self.extensions > 1
    }

    /// True if the next write may be near: it was not missed several times. In bytes that were written to all files
    /// until `now`, since files that grow side by side take turns; where there is no rhythm yet, within `patience`.
    pub(super) fn keeps_rhythm(&self, now: u64, patience: u64) -> bool {
        let since = now.saturating_sub(self.last);
        match u64::from(self.writes).checked_sub(1) {
            Some(gaps) if gaps > 0 => since <= 4 * PIECE + 4 * (self.last.saturating_sub(self.first) / gaps),
            _ => since <= patience,
        }
    }
}
