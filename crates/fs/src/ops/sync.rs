//! Making a volume stable: everything, or what is not delayed, and for the sake of space.
//!
//! Owns: what is brought to its end before a sync: write-back, orphans without users, wasteful maps, what a crash left.
//! Excludes: the sync itself (`volume`).

use ondisk::units::InodeNumber;

use super::flush::WriteBack;
use super::node::Node;
use crate::dirty::{ErrorCursor, Failures, Reason};
use crate::error::{Error, Result};
use crate::volume::Volume;

impl Volume {
    /// Makes everything written so far stable.
    ///
    /// # Errors
    /// The device's failure; a bitmap or descriptor that contradicts what was allocated. After that
    /// nothing more is written: every changing verb gives [`Error::WriteFailed`].
    pub fn sync(&self) -> Result<()> {
        if !self.space.is_writable() {
            return Err(Error::ReadOnly);
        }
        self.write_back(None)?;
        sync_metadata(self)
    }

    /// Makes stable all that was changed but for bytes that are still delayed: with a journal, commits the
    /// running transaction. Where closes are unreported, to be called at intervals: files that nobody wrote to for six of
    /// them give up the room that was set aside for their growth.
    ///
    /// # Errors
    /// As [`Volume::sync`].
    pub fn commit(&self) -> Result<()> {
        for idle in self.session.delayed.gone_idle() {
            self.space.closed(idle);
        }
        if self.space.is_writable() { sync_metadata(self) } else { Err(Error::ReadOnly) }
    }

    /// Makes everything stable and says on disk that the volume is in order. A volume that was
    /// changed and is only dropped counts as not closed cleanly: it must be checked before it is
    /// written again. Does nothing to a volume that was only read, also where another host has it by now.
    ///
    /// # Errors
    /// As [`Volume::sync`].
    pub fn close(self) -> Result<()> {
        self.put_in_order()
    }

    /// As [`Volume::close`], for a volume that others still hold but do not change meanwhile: the
    /// next change takes it back.
    ///
    /// # Errors
    /// As [`Volume::sync`].
    pub fn put_in_order(&self) -> Result<()> {
        if !self.space.is_writable() || self.syncing().is_lost_unchanged() {
            return Ok(());
        }
        self.sync()?;
        if self.reclaiming.is_pending() {
            self.leftovers().reclaim()?;
            self.sync()?;
        }
        // An orphan for whose end there was no space is for the next opening.
        let is_left = self.reclaiming.is_unfinished() || self.session.handles.has_deletable();
        if is_left { Ok(()) } else { self.syncing().mark_in_order() }
    }

    /// Makes a file stable: its bytes and all that is needed to read them again.
    ///
    /// # Errors
    /// As [`Volume::sync`]; a write-back that failed earlier, once.
    pub fn sync_inode(&self, number: InodeNumber) -> Result<()> {
        self.inode(number).sync_reporting(Stable::All, |failures| failures.take_unreported())
    }
}

/// Part of a file that is to be stable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stable {
    /// All of it.
    All,
    /// Its bytes, and what is needed to read them again.
    Data,
}

impl Node<'_> {
    /// Where a file that is opened now stands among the write-back errors of its inode, for
    /// [`Node::sync_opened`].
    #[must_use]
    pub fn error_cursor(&self) -> ErrorCursor {
        let file = self.volume.session.delayed.find(self.number);
        file.map_or_else(ErrorCursor::default, |file| file.state().failures.cursor())
    }

    /// Makes an open file stable. An earlier write-back error is reported once by each open file, as fsync does in
    /// Linux.
    ///
    /// # Errors
    /// As [`Volume::sync`]; a write-back that failed.
    pub fn sync_opened(&self, cursor: &mut ErrorCursor) -> Result<()> {
        self.sync_reporting(Stable::All, |failures| failures.report(cursor))
    }

    /// Makes the bytes of a file stable, and all that is needed to read them again (`fdatasync`). Times and names may
    /// still be those of the last commit: where nothing else of the file changed since, its bytes are written in their
    /// place and the device is flushed, once.
    ///
    /// # Errors
    /// As [`Volume::sync`]; a write-back that failed earlier, once.
    pub fn sync_data(&self) -> Result<()> {
        self.sync_reporting(Stable::Data, |failures| failures.take_unreported())
    }

    /// As [`Node::sync_data`], for an open file, as [`Node::sync_opened`].
    ///
    /// # Errors
    /// As [`Volume::sync`]; a write-back that failed.
    pub fn sync_opened_data(&self, cursor: &mut ErrorCursor) -> Result<()> {
        self.sync_reporting(Stable::Data, |failures| failures.report(cursor))
    }

    fn sync_reporting(self, what: Stable, report: impl FnOnce(&mut Failures) -> Option<Error>) -> Result<()> {
        let volume = self.volume;
        if let Some(file) = volume.session.delayed.find(self.number) {
            let done = {
                let _shared = file.share();
                WriteBack::new(volume).file(&file, Reason::Asked)
            };
            match done {
                Ok(()) => {}
                // The bytes are not lost.
                Err(Error::NoSpace) => return done,
                Err(error) => {
                    let mut state = file.state();
                    state.failures.note(&error);
                    drop(report(&mut state.failures));
                    return Err(error);
                }
            }
            let failed = report(&mut file.state().failures);
            failed.map_or(Ok(()), Err)?;
        }
        if what == Stable::Data && !volume.order.awaits(self.number) {
            return volume.syncing().flush();
        }
        let all_at_once = volume.order.survives_crashes();
        if all_at_once { sync_metadata(volume) } else { volume.sync() }
    }
}

/// Makes stable what is not delayed.
pub(crate) fn sync_metadata(volume: &Volume) -> Result<()> {
    let syncing = volume.syncing();
    syncing.refuse_failed()?;
    if !syncing.is_due() {
        return Ok(());
    }
    volume.uses().reap()?;
    volume.uses().tidy_maps();
    syncing.commit()
}

/// Makes what was freed usable, unless that has happened since `free_generation`; says whether it is
/// worth looking again.
pub(super) fn make_space(volume: &Volume, free_generation: u64) -> Result<bool> {
    let space = &volume.space;
    if space.await_held(free_generation) {
        return Ok(true);
    }
    if !space.holds_freed() {
        return Ok(space.free_generation() != free_generation || volume.leftovers().reclaim_for_space()?);
    }
    volume.syncing().release_freed(free_generation)?;
    Ok(true)
}
