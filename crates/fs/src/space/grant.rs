//! Clusters taken by an update that is not committed.
//!
//! Those that were taken from a promise go back to it when the grant is dropped: else what was accepted on account of
//! that promise could find no space the next time.

use ondisk::units::ClusterRun;
use placement::{Engine, Grant, Refusal, Request};

use crate::locks::lock;
use crate::txn::Account;

/// Clusters taken by an update that is not committed; dropping it returns them to their promise.
pub(super) struct UncommittedGrant {
    grant: Option<Grant>,
    run: ClusterRun,
    /// The promise that they were taken from.
    account: Option<Account>,
}

impl UncommittedGrant {
    fn new(grant: Grant, account: Option<&Account>) -> Self {
        UncommittedGrant { run: grant.run(), grant: Some(grant), account: account.cloned() }
    }

    /// Takes what was promised, or where that is used up, space without a promise.
    pub(super) fn take(
        engine: &Engine,
        account: Option<&Account>,
        request: &Request,
    ) -> Result<Self, Refusal> {
        match account.map(|account| engine.allocate_promised(&mut lock(account), request)) {
            None | Some(Err(Refusal::NoSpace)) => {
                engine.allocate(request).map(|grant| UncommittedGrant::new(grant, None))
            }
            Some(answer) => answer.map(|grant| UncommittedGrant::new(grant, account)),
        }
    }

    pub(super) fn run(&self) -> ClusterRun {
        self.run
    }

    /// The update is committed: they belong to what it gave them to.
    pub(super) fn keep(mut self) -> ClusterRun {
        if let Some(grant) = self.grant.take() {
            grant.into_run();
        }
        self.run
    }

    /// Cuts them in two.
    pub(super) fn split(mut self, count: u32) -> (UncommittedGrant, UncommittedGrant) {
        let account = self.account.take();
        let of = |grant: Option<Grant>, run| UncommittedGrant { grant, run, account: account.clone() };
        match self.grant.take() {
            Some(grant) => {
                let (first, rest) = grant.split(count);
                let runs = (first.run(), rest.run());
                (of(Some(first), runs.0), of(Some(rest), runs.1))
            }
            None => (of(None, self.run), of(None, ClusterRun { count: 0, ..self.run })),
        }
    }
}

impl Drop for UncommittedGrant {
    fn drop(&mut self) {
        if let (Some(grant), Some(account)) = (self.grant.take(), &self.account) {
            grant.give_back(&mut lock(account));
        }
    }
}
