//! Clusters that were taken and are nobody's for good yet. Those that were taken from a promise go back to it when they
//! are dropped: else what was accepted on account of it could find no space the next time.

use ondisk::units::ClusterRun;
use placement::{Engine, Grant, Refusal, Request};

use super::lock;
use crate::txn::Account;

/// They.
pub(super) struct Drawn {
    grant: Option<Grant>,
    run: ClusterRun,
    /// What they were taken from.
    account: Option<Account>,
}

impl Drawn {
    fn new(grant: Grant, account: Option<&Account>) -> Self {
        Drawn { run: grant.run(), grant: Some(grant), account: account.cloned() }
    }

    /// Takes what was promised, or where that is used up what nobody was promised.
    pub(super) fn take(
        engine: &Engine,
        account: Option<&Account>,
        request: &Request,
    ) -> Result<Self, Refusal> {
        match account.map(|account| engine.allocate_promised(&mut lock(account), request)) {
            None | Some(Err(Refusal::NoSpace)) => {
                engine.allocate(request).map(|grant| Drawn::new(grant, None))
            }
            Some(answer) => answer.map(|grant| Drawn::new(grant, account)),
        }
    }

    pub(super) fn run(&self) -> ClusterRun {
        self.run
    }

    /// They are somebody's from now on.
    pub(super) fn keep(mut self) -> ClusterRun {
        if let Some(grant) = self.grant.take() {
            grant.keep();
        }
        self.run
    }

    /// Cuts them in two.
    pub(super) fn split(mut self, count: u32) -> (Drawn, Drawn) {
        let account = self.account.take();
        let of = |grant: Option<Grant>, run| Drawn { grant, run, account: account.clone() };
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

impl Drop for Drawn {
    fn drop(&mut self) {
        if let (Some(grant), Some(account)) = (self.grant.take(), &self.account) {
            grant.give_back(&mut lock(account));
        }
    }
}
