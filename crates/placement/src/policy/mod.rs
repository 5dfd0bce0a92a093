//! Block policies and their registry.
//!
//! A policy sees a read-only [`View`] and returns a choice; the engine verifies and takes it. To
//! write a new one, copy a file of this directory and add a row to the table below ([`POLICIES`]).

mod lease;
pub mod mballoc;
mod prealloc8;
mod settled;
mod single;
pub mod tunable;
mod window;
mod xfs;

use crate::request::{Refusal, Request};
use crate::view::View;
use mballoc::{Generation, Mballoc, Tunables};
use ondisk::units::{Cluster, ClusterRun, Group};
use tunable::{Settings, Tunable};

/// Decides which run answers a request.
///
/// A policy may set clusters aside for later (claims): it returns them as the surplus of a choice,
/// and keeps account of them until it uses them or gives them up in [`BlockPolicy::event`].
/// Claimed clusters are used for every search and free for every counter.
pub trait BlockPolicy: Send + Sync {
    /// Chooses a run of at least `request.min` and at most `request.want` clusters.
    ///
    /// # Errors
    /// [`Refusal`] if there is none, or a bitmap must be loaded to find out.
    fn choose(&self, view: &View<'_>, request: &Request) -> Result<Choice, Refusal>;

    /// The choice was taken. Surplus of it is claimed from now on. Returns claims that are given
    /// up instead.
    fn taken(&self, _view: &View<'_>, _request: &Request, _choice: &Choice) -> Vec<ClusterRun> {
        Vec::new()
    }

    /// The choice could not be taken: another thread was first, or what the policy remembers is
    /// not what is.
    fn lost(&self, _view: &View<'_>, _choice: &Choice) {}

    /// Clusters became used or free other than by a choice of this policy, or claims that it gave
    /// up are free now.
    fn changed(&self, _view: &View<'_>, _run: ClusterRun, _used: bool) {}

    /// True if requests are to say what the file system knows of their file ([`Request::file`]), and [`Event::Closed`]
    /// is to come when the last program closes a file and not before.
    fn wants_file(&self) -> bool {
        false
    }

    /// True if the kernel that is followed writes files back by folios of many blocks, and asks for the rest of one alone
    /// where a run ended inside of it.
    fn writes_folios(&self) -> bool {
        false
    }

    /// The bitmap of a group came.
    fn loaded(&self, _view: &View<'_>, _group: Group) {}

    /// Gives up claims: those of a file, or all of them.
    fn event(&self, _view: &View<'_>, _event: Event) -> Vec<ClusterRun> {
        Vec::new()
    }

    /// All clusters that are claimed.
    fn claims(&self) -> Vec<ClusterRun> {
        Vec::new()
    }
}

/// Choice of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The clusters that are granted.
    pub run: ClusterRun,
    /// Where they come from.
    pub source: Source,
}

impl Choice {
    /// A free run, and nothing more.
    #[must_use]
    pub fn free(start: Cluster, count: u32) -> Self {
        Choice { run: ClusterRun { start, count }, source: Source::Free }
    }
}

/// Where the clusters of a choice come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// They are free.
    Free,
    /// They lie in this free run, of which the policy claims the rest.
    FreeWithSurplus(ClusterRun),
    /// The policy had claimed them; from now on they are not its own.
    Claimed,
}

/// Events that are reported to policies so that they give up claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The last writer of this file is gone.
    Closed(u64),
    /// This file was cut or removed.
    Truncated(u64),
    /// Space is short: everything must go.
    Pressure,
}

/// A row of the registry.
pub struct PolicyRow {
    /// Policy of the row.
    pub kind: BlockPolicyKind,
    /// Name in options and reports.
    pub name: &'static str,
    /// Description, in one line.
    pub summary: &'static str,
    /// Parameters of the policy.
    pub tunables: &'static [Tunable],
    /// Makes one for an engine.
    pub make: fn(&Settings) -> Box<dyn BlockPolicy>,
}

/// Writes the registry and the names of its rows from one table.
macro_rules! registry {
    ($($(#[$default:meta])? $kind:ident($name:literal, $summary:literal, $tunables:expr, $make:expr))*) => {
        /// Names the block policies.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
        pub enum BlockPolicyKind {
            $($(#[$default])? #[doc = $summary] $kind,)*
        }

        /// All block policies.
        pub const POLICIES: &[PolicyRow] = &[$(PolicyRow {
            kind: BlockPolicyKind::$kind,
            name: $name,
            summary: $summary,
            tunables: $tunables,
            make: $make,
        },)*];
    };
}

registry! {
    #[default]
    Lease(
        "lease",
        "ours: exact run search, shelves for small files, windows, a reserve of long runs",
        lease::TUNABLES,
        |settings| Box::new(lease::Lease::new(settings))
    )
    Mballoc(
        "mballoc",
        "ext4 6.17: buddy orders, several stream goals, best available length",
        mballoc::TUNABLES,
        |settings| Box::new(Mballoc::new(Tunables::tuned(Generation::From617, settings)))
    )
    Mballoc65(
        "mballoc-6.5",
        "ext4 6.5 to 6.16: best available length",
        mballoc::TUNABLES,
        |settings| Box::new(Mballoc::new(Tunables::tuned(Generation::From65, settings)))
    )
    Mballoc64(
        "mballoc-6.4",
        "ext4 up to 6.4: no trimming before the slow criteria",
        mballoc::TUNABLES,
        |settings| Box::new(Mballoc::new(Tunables::tuned(Generation::UpTo64, settings)))
    )
    Window(
        "window",
        "reservation windows of 8 clusters in memory (ext3)",
        window::FIXED,
        |settings| Box::new(window::ReservationWindow::fixed(settings))
    )
    WindowDynamic(
        "window-dynamic",
        "reservation windows that double up to 1,024 clusters while used (2010)",
        window::DYNAMIC,
        |settings| Box::new(window::ReservationWindow::dynamic(settings))
    )
    Prealloc8(
        "prealloc8",
        "eight blocks at a time for each file (old ext2)",
        &[],
        |_| Box::new(prealloc8::Prealloc8::default())
    )
    Single(
        "single",
        "one block at a time from a goal (ext2, ext3)",
        single::TUNABLES,
        |settings| Box::new(single::Single::new(settings))
    )
    Settled(
        "settled",
        "for updates of images: what is new shares as few zones as possible",
        settled::TUNABLES,
        |settings| Box::new(settled::Settled::new(settings))
    )
    Xfs(
        "xfs",
        "after XFS: by offset in the goal's group, by length elsewhere, room ahead that doubles",
        xfs::TUNABLES,
        |settings| Box::new(xfs::Xfs::new(settings))
    )
}

impl BlockPolicyKind {
    /// The policy of this name; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        POLICIES.iter().find(|row| row.name == name).map(|row| row.kind)
    }

    /// Its name in options and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Makes one with default settings.
    #[must_use]
    pub fn make(self) -> Box<dyn BlockPolicy> {
        (self.row().make)(&Settings::default())
    }
}
