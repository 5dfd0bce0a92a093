//! Issues of a check, kept for a report: everything is counted, and of each kind the first are kept.
//! Excludes how it is shown.

use std::collections::BTreeSet;

use ondisk::units::InodeNumber;
use platfs::check::{Decision, Issue, Kind, Progress, Sink};

use super::progress::Meter;
use super::spread::Spread;

/// Issues of each kind that are kept whole in any case, and of all kinds together up to which more are kept: a volume may
/// have millions.
const KEPT_OF_KIND: usize = 2000;
const KEPT_IN_ALL: usize = 100_000;

/// Most inodes that lose something whose paths are looked for.
const LOSERS_NAMED: usize = 100_000;

/// How it is decided what becomes of an issue.
pub enum Policy<'p> {
    /// Nothing is repaired. What could be is noted.
    Look,
    /// Everything is repaired that can be.
    All,
    /// The user is asked.
    Ask(&'p mut dyn FnMut(&Issue) -> Decision),
}

/// An issue, and what was decided.
pub struct Noted {
    /// It.
    pub issue: Issue,
    /// True if it is repaired, in memory.
    pub repaired: bool,
}

/// All issues of a kind.
pub struct OfKind {
    /// The kind.
    pub kind: &'static Kind,
    /// How many there are.
    pub count: u64,
    /// How many of them are repaired, in memory.
    pub repaired: u64,
    /// How many have a repair.
    pub repairable: u64,
    /// The first of them, as many as are kept whole.
    pub kept: Vec<Noted>,
    /// Where the others are.
    pub beyond: Spread,
}

/// The kind of work that every mount does, too: by itself it is no problem.
const REPLAY: &str = "journal-needs-replay";

/// Everything that was found.
#[derive(Default)]
pub struct Findings {
    /// Transactions that wait in the journal and can be replayed. They are none of the problems.
    pub replay: Option<String>,
    /// By kind, in the order in which each kind was first found.
    pub kinds: Vec<OfKind>,
    /// Inodes that a repair takes something from.
    pub losers: BTreeSet<InodeNumber>,
    /// How many issues are kept whole.
    kept: usize,
}

impl Findings {
    /// Inodes that are named by what is kept.
    #[must_use]
    pub fn inodes(&self) -> BTreeSet<InodeNumber> {
        let kept = self.kinds.iter().flat_map(|of| &of.kept);
        let named = kept.filter_map(|noted| noted.issue.place.inode);
        named.chain(self.losers.iter().copied().take(LOSERS_NAMED)).collect()
    }

    /// Returns true if an issue of a kind was found.
    #[must_use]
    pub fn has(&self, id: &str) -> bool {
        self.kinds.iter().any(|of| of.kind.id == id)
    }

    /// How many issues there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.kinds.iter().map(|of| of.count).sum()
    }

    /// The number of findings that are only about a wrong clock.
    #[must_use]
    pub fn of_clocks(&self) -> u64 {
        self.kinds.iter().filter(|of| of.kind.is_of_a_clock()).map(|of| of.count).sum()
    }

    /// How many of them are repaired, in memory.
    #[must_use]
    pub fn repaired(&self) -> u64 {
        self.kinds.iter().map(|of| of.repaired).sum()
    }

    /// How many have a repair that loses nothing.
    #[must_use]
    pub fn safe(&self) -> u64 {
        self.kinds.iter().filter(|of| of.kind.safe).map(|of| of.repairable).sum()
    }

    /// How many have a repair that takes something away.
    #[must_use]
    pub fn risky(&self) -> u64 {
        self.kinds.iter().filter(|of| !of.kind.safe).map(|of| of.repairable).sum()
    }

    /// How many have a repair.
    #[must_use]
    pub fn repairable(&self) -> u64 {
        self.safe() + self.risky()
    }

    /// Returns true if each has a repair that loses nothing.
    #[must_use]
    pub fn all_safe(&self) -> bool {
        self.safe() == self.count()
    }

    fn note(&mut self, issue: Issue, repaired: bool) {
        if issue.kind.id == REPLAY && !issue.repair.is_empty() {
            self.replay = Some(issue.found);
            return;
        }
        let at = self.kinds.iter().position(|of| of.kind.id == issue.kind.id);
        let at = at.unwrap_or_else(|| {
            self.kinds.push(OfKind {
                kind: issue.kind,
                count: 0,
                repaired: 0,
                repairable: 0,
                kept: Vec::new(),
                beyond: Spread::default(),
            });
            self.kinds.len() - 1
        });
        let Some(of) = self.kinds.get_mut(at) else { return };
        of.count += 1;
        of.repaired += u64::from(repaired);
        of.repairable += u64::from(!issue.repair.is_empty());
        if let Some(inode) = issue.place.inode
            && !issue.kind.safe
            && !issue.repair.is_empty()
        {
            self.losers.insert(inode);
        }
        if of.kept.len() < KEPT_OF_KIND || self.kept < KEPT_IN_ALL {
            of.kept.push(Noted { issue, repaired });
            self.kept += 1;
        } else {
            of.beyond.add(&issue.place);
        }
    }
}

/// Receives what a check finds, decides by a policy, and shows how far it is.
pub struct Listener<'p, 'm> {
    policy: Policy<'p>,
    meter: &'m mut Meter,
    /// Issues that were heard.
    pub findings: Findings,
}

impl<'p, 'm> Listener<'p, 'm> {
    /// Has heard nothing yet.
    pub fn new(policy: Policy<'p>, meter: &'m mut Meter) -> Self {
        Listener { policy, meter, findings: Findings::default() }
    }
}

impl Sink for Listener<'_, '_> {
    fn issue(&mut self, issue: Issue) -> Decision {
        let decision = match &mut self.policy {
            Policy::Look => Decision::Leave,
            Policy::All => Decision::Repair,
            Policy::Ask(ask) => ask(&issue),
        };
        let repaired = decision == Decision::Repair && !issue.repair.is_empty();
        self.findings.note(issue, repaired);
        decision
    }

    fn progress(&mut self, progress: Progress) {
        self.meter.show(progress);
    }
}
