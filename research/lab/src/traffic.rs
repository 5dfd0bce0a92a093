//! Work of a drive, in numbers.

/// Counts of a drive's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Requests that the mechanism served, and their bytes.
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    /// Requests for which the arm was moved.
    pub(crate) seeks: u64,
    pub(crate) flushes: u64,
    /// Time in which it worked.
    pub(crate) busy: u64,
    /// Time in which processors computed, in which they held the lock of a group to look at free runs, and in which they
    /// spun until they had one.
    pub(crate) computed: u64,
    pub(crate) held: u64,
    pub(crate) spun: u64,
}

impl Figures {
    /// Returns the counts since an earlier moment.
    pub(crate) fn since(self, before: Figures) -> Figures {
        Figures {
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            read_bytes: self.read_bytes - before.read_bytes,
            written_bytes: self.written_bytes - before.written_bytes,
            seeks: self.seeks - before.seeks,
            flushes: self.flushes - before.flushes,
            busy: self.busy - before.busy,
            computed: self.computed - before.computed,
            held: self.held - before.held,
            spun: self.spun - before.spun,
        }
    }
}
