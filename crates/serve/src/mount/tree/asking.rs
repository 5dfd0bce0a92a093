//! Answers to the kernel's question before it takes a `write` into its pages, where there is little room.
//!
//! Owns: when it must ask, and that what it takes has room promised. Excludes where little begins (`nearly_full`), and
//! how a call is looked at (`calls`).

use fuse::{Cached, Caller};
use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::{Error, Metadata};

use super::calls::{self, Call};
use super::nearly_full::LITTLE;
use super::{Altering, Failed, Tree};

impl Tree {
    /// Where there is little room from now on, the kernel is made to ask for the files that programs may be writing to.
    pub(super) fn little_is_left(&self, is_so: bool) {
        let Some(notifier) = self.notifier.get().filter(|_| is_so && self.terms.writeback) else { return };
        for file in self.nearly_full.all_open() {
            // Without a connection nobody writes.
            let _ = notifier.node(u64::from(file.get()), false);
        }
    }

    /// A file is open for writing from now on. Says whether writes to it must be asked for.
    pub(super) fn opened_for_writing(&self, number: InodeNumber) -> Result<Cached, Failed> {
        if !self.terms.writeback {
            return Ok(Cached::Valid);
        }
        self.nearly_full.opened(number);
        if self.volume.quota().is_enforced() {
            self.look_at_limits(&self.volume.metadata(number)?);
        }
        Ok(if self.asks(number) { Cached::Stale } else { Cached::Valid })
    }

    /// A file is made and opened in one call. Its limits were looked at when it was made.
    pub(super) fn open_from_birth(&self, node: u64) {
        if let (true, Ok(number)) = (self.terms.writeback, self.inode(node)) {
            self.nearly_full.opened(number);
        }
    }

    /// An open file was closed for good: the kernel has handed over all that was written to it.
    pub(super) fn closed_after_writing(&self, number: InodeNumber) {
        if self.terms.writeback && self.nearly_full.closed(number) {
            self.volume.expect_no_more(number);
        }
    }

    /// Returns true if the kernel must ask before each write to a file.
    pub(super) fn asks(&self, number: InodeNumber) -> bool {
        if !self.terms.writeback {
            return false;
        }
        let full = &self.nearly_full;
        full.watches(number)
            || (full.is_short() || self.volume.quota().is_enforced())
                && full.is_open(number)
                && (full.is_short() || self.is_near_limit(number))
    }

    fn is_near_limit(&self, number: InodeNumber) -> bool {
        let left = |facts: Metadata| self.volume.quota().left([facts.uid, facts.gid, facts.project]);
        self.volume.metadata(number).and_then(left).is_ok_and(|left| left.is_some_and(|left| left < LITTLE))
    }

    /// Looks at what limits of quota leave to the owner of a file that is, or will be, written to.
    pub(super) fn look_at_limits(&self, facts: &Metadata) {
        let quota = self.volume.quota();
        if facts.file_type == FileType::Regular
            && quota.is_enforced()
            && let Ok(Some(left)) = quota.left([facts.uid, facts.gid, facts.project])
        {
            self.little_is_left(self.nearly_full.is_near_limit(left));
        }
    }
}

impl Altering<'_> {
    /// A program may be about to write to a file: has room promised to what it writes. What can't be seen of a call has
    /// none, and is reported when it is lost.
    pub(super) fn make_room(&self, caller: Caller, number: InodeNumber) -> Result<(), Failed> {
        let facts = self.tree.volume.metadata(number)?;
        self.look_at_limits(&facts);
        let asks = self.asks(number);
        let device = self.tree.tickets.file_system().filter(|_| asks);
        let file = device.map(|device| (device, u64::from(number.get())));
        let call = file.map_or(Call::Hidden, |file| calls::of(caller, file));
        if call == Call::Reads {
            return Ok(());
        }
        if let Some(error) = self.nearly_full.report(number) {
            return Err(error.into());
        }
        let Call::Writes { offset, len } = call else { return Ok(()) };
        let end = self.nearly_full.end(number, facts.size);
        let offset = offset.unwrap_or(end);
        match self.taking(caller, |volume| volume.expect(number, offset, len)) {
            Ok(()) => {}
            // These are refused by the kernel, or when they come.
            Err(Error::Invalid(_) | Error::FileTooLarge(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        self.nearly_full.set_end(number, end.max(offset.saturating_add(len)));
        Ok(())
    }
}
