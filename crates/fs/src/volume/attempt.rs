//! One attempt at a verb that changes something, as one update.
//!
//! Owns: the writer's lock, and that an update is published whole or not at all (I8). Excludes: what is done when an
//! attempt misses a block, space or room in the running transaction (`ops`), and how all of it comes to the device
//! (`sync`).

use std::sync::MutexGuard;

use crate::context::Context;
use crate::error::{Flow, Result};
use crate::locks::lock;
use crate::order::WritebackUrgency;
use crate::tx::Tx;
use crate::txn::Update;
use crate::volume::Core;

/// Proof that the caller is the only one changing the volume.
pub(crate) struct Writing<'v>(#[expect(dead_code, reason = "held for its drop")] MutexGuard<'v, ()>);

impl Core {
    /// A verb's access to the volume, without changes yet.
    pub(crate) fn tx(&self, context: Context) -> Tx<'_> {
        Tx::new(self.view(), &self.session, Update::new(&self.cache, &self.order, context))
    }

    /// Waits until no other thread changes the volume, and makes sure that it may be changed.
    pub(crate) fn begin(&self) -> Result<Writing<'_>> {
        let writing = Writing(lock(&self.writer));
        self.syncing().refuse_failed()?;
        Ok(writing)
    }

    /// As `begin`, once the disk says that the volume is in use. Until then another thread may mark it as clean at any
    /// moment.
    fn begin_marked(&self) -> Result<Writing<'_>> {
        loop {
            self.syncing().mark_changed()?;
            let writing = self.begin()?;
            if self.session.options.loading || self.syncing().is_marked() {
                return Ok(writing);
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
        if self.order.relief(&self.cache) == WritebackUrgency::Commit {
            return Err(Flow::Full);
        }
        self.attempt_at_once(&writing, verb, may_wait)
    }

    /// As `attempt`, as part of the running transaction, if it has any room.
    pub(crate) fn attempt_at_once<'v, T>(
        &'v self,
        _writing: &Writing<'_>,
        verb: &mut impl FnMut(&mut Tx<'v>) -> Result<T>,
        may_wait: bool,
    ) -> Result<T, Flow> {
        let mut tx = self.tx(Context { may_wait, ..self.context() });
        let done = verb(&mut tx);
        if self.space.has_news_of_damage() {
            self.session.note_damage();
        }
        let done = done.and_then(|done| tx.settle_charges().map(|()| done));
        let done = tx.ended(done)?;
        tx.admit()?;
        tx.commit();
        Ok(done)
    }
}
