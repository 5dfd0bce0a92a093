//! Events that an engine reports, for traces, tests and debugging.
//!
//! A sink is given when the engine is made. Without one an event costs a test of a field that never
//! changes: it is not even put together. Events of one thread come in order; those of several
//! threads in the order in which they reach the sink, each after what it reports has happened.

use crate::request::{Refusal, Request};
use ondisk::units::{ClusterRun, Group};
use std::sync::Arc;

/// Something an engine did. Lengths are in clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A group was described with this free count; `loaded` if its bitmap is not needed.
    Described {
        /// The group.
        group: Group,
        /// Its free clusters.
        free: u32,
        /// True if nothing needs to be loaded.
        known: bool,
    },
    /// The bitmap of a group was taken in.
    Loaded(Group),
    /// The group is out of service: what is said of it does not fit together.
    Broken(Group),
    /// A request was granted.
    Allocated {
        /// Request.
        request: Request,
        /// Granted run.
        run: ClusterRun,
        /// True if it is on account of a promise.
        promised: bool,
    },
    /// A grant is shorter than what was wanted.
    Short {
        /// Clusters that were wanted.
        want: u32,
        /// The grant.
        run: ClusterRun,
        /// True if a sufficient free run was known; always false unless the engine audits.
        avoidable: bool,
    },
    /// A request was refused.
    Refused {
        /// Request.
        request: Request,
        /// Reason of the refusal.
        refusal: Refusal,
    },
    /// Another thread took what the policy had chosen; it chooses again.
    Lost(ClusterRun),
    /// A run was taken by address.
    TakenExact(ClusterRun),
    /// A run was freed, or a grant of it dropped.
    Freed(ClusterRun),
    /// Clusters were promised.
    Promised(u64),
    /// The rest of a promise was given back.
    PromiseEnded(u64),
    /// The last writer of a file is gone.
    Closed(u64),
    /// A file was cut or removed.
    Truncated(u64),
    /// Policies were asked to give up what they hold for later.
    ClaimsReleased,
    /// A policy set a run aside for the growth of a file.
    Claimed {
        /// Key of the file.
        owner: u64,
        /// The run.
        run: ClusterRun,
    },
    /// A policy gave up a run that it had set aside.
    GivenUp(ClusterRun),
}

/// Takes events.
pub trait EventSink: Send + Sync {
    /// Called by the thread that did it, never while the engine holds a lock. It must not call the
    /// engine.
    fn event(&self, event: &Event);
}

/// The sink of an engine, if it has one.
#[derive(Clone, Default)]
pub(crate) struct EventReporter(Option<Arc<dyn EventSink>>);

impl EventReporter {
    pub(crate) fn new(sink: Option<Arc<dyn EventSink>>) -> Self {
        EventReporter(sink)
    }

    /// Reports an event, which is put together only if someone listens.
    #[inline]
    pub(crate) fn report(&self, event: impl FnOnce() -> Event) {
        if let Some(sink) = &self.0 {
            sink.event(&event());
        }
    }
}
