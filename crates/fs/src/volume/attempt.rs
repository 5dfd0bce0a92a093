//! Verbs that change something: as one update each, tried until nothing interrupts it.
//!
//! Owns: the writer's lock, and what is done when an attempt misses a block, space or room in the running transaction.
//! Excludes: what verbs do (`ops`), and how all of it comes to the device (`sync`).

use std::sync::MutexGuard;

use crate::cache::{Blocks, Role};
use crate::context::Context;
use crate::error::{Error, Flow, Result};
use crate::locks::lock;
use crate::order::Relief;
use crate::tx::Tx;
use crate::volume::Volume;

/// Times a verb makes a sync for space that others then take before it.
const SYNCS_FOR_SPACE: u32 = 16;

/// Blocks that a verb may find missing before it waits for them with the writer's lock.
const MISSES: u32 = 64;

/// Proof that the caller is the only one changing the volume.
pub(crate) struct Writing<'v>(#[expect(dead_code, reason = "held for its drop")] MutexGuard<'v, ()>);

impl Volume {
    /// A verb's access to the volume, without changes yet.
    pub(crate) fn tx(&self, context: Context) -> Tx<'_> {
        Tx::new(&self.cache, &self.order, &self.format, &self.space, &self.session, context)
    }

    /// Waits until no other thread changes the volume, and makes sure that it may be changed.
    pub(crate) fn begin(&self) -> Result<Writing<'_>> {
        let writing = Writing(lock(&self.writer));
        self.refuse_failed()?;
        Ok(writing)
    }

    /// The same once the disk says that the volume is in use. Until then another thread may mark it as in order at any
    /// moment.
    fn begin_marked(&self) -> Result<Writing<'_>> {
        loop {
            self.mark_changed()?;
            let writing = self.begin()?;
            if self.session.options.loading || self.is_marked() {
                return Ok(writing);
            }
        }
    }

    /// Does a verb that changes something: as one update, or not at all (I8). If it finds no space
    /// while some is only waiting for a sync, the sync is made and the verb tried again: so it
    /// must not leave anything behind in what it borrows when it fails.
    pub(crate) fn change<'v, T>(&'v self, mut verb: impl FnMut(&mut Tx<'v>) -> Result<T>) -> Result<T> {
        if !self.space.is_writable() {
            return Err(Error::ReadOnly);
        }
        self.mark_changed()?;
        self.orphans().reap()?;
        let (mut left, mut need) = (SYNCS_FOR_SPACE, None);
        loop {
            let settlements = self.space.settlements();
            let done = self.perform(&mut verb);
            if need.is_none() && matches!(done, Err(Error::NoSpace | Error::NoInodes)) {
                need = self.space.in_need();
            }
            match done {
                Err(Error::NoSpace | Error::NoInodes) if left > 0 && self.make_space(settlements)? => {
                    left -= 1
                }
                done => {
                    let done = done?;
                    self.relieve()?;
                    if self.order.syncs_changes() {
                        self.sync_metadata()?;
                    }
                    return Ok(done);
                }
            }
        }
    }

    /// Does a verb as one update, whatever space it finds. Where it would wait for the device, it is dropped, the block
    /// read while no other verb waits for it, and the verb begun again. What is too large for the journal is tried once
    /// more without what can be done later.
    pub(crate) fn perform<'v, T>(&'v self, verb: &mut impl FnMut(&mut Tx<'v>) -> Result<T>) -> Result<T> {
        let mut left = if self.session.options.loading { 0 } else { MISSES };
        let mut postponing = false;
        loop {
            let mut verb = |tx: &mut Tx<'v>| {
                if postponing {
                    tx.postpone_removal();
                }
                verb(tx)
            };
            match self.attempt(&mut verb, left == 0) {
                Err(Flow::Missing(block)) => {
                    left = left.saturating_sub(1);
                    // What is wrong with it the verb will say.
                    let _ = self.cache.read(block, Role::Plain);
                }
                Err(Flow::Full) => self.commit_full()?,
                Err(Flow::Failed(Error::TooLargeForLog { .. })) if !postponing => postponing = true,
                Err(Flow::Failed(error)) => return Err(error),
                Ok(done) => {
                    if postponing {
                        // What fails here is met by the next change.
                        let _ = self.orphans().reap();
                    }
                    return Ok(done);
                }
            }
        }
    }

    /// One try at a verb, which waits for the device, or is dropped where it would.
    ///
    /// # Errors
    /// [`Flow::Full`] too where the running transaction is filling: others must not keep it from its end.
    pub(crate) fn attempt<'v, T>(
        &'v self,
        verb: &mut impl FnMut(&mut Tx<'v>) -> Result<T>,
        may_wait: bool,
    ) -> Result<T, Flow> {
        let writing = self.begin_marked()?;
        if self.order.relief(&self.cache) == Relief::Commit {
            return Err(Flow::Full);
        }
        self.attempt_at_once(&writing, verb, may_wait)
    }

    /// The same as part of the transaction that is running, if it has any room.
    pub(crate) fn attempt_at_once<'v, T>(
        &'v self,
        _writing: &Writing<'_>,
        verb: &mut impl FnMut(&mut Tx<'v>) -> Result<T>,
        may_wait: bool,
    ) -> Result<T, Flow> {
        let mut tx = self.tx(Context { may_wait, ..self.context() });
        let done = verb(&mut tx);
        if self.space.has_news_of_damage() {
            self.note_damage();
        }
        let done = tx.ended(done)?;
        tx.admit()?;
        tx.commit();
        Ok(done)
    }
}
