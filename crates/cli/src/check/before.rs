//! A check of the whole volume before anything of it is changed, for images from strangers.
//!
//! Every verb believes a bitmap, a map or a count that it can't disprove from where it stands: that a block is free, or
//! belongs to one file only, is known to a check of all owners alone. Owns: what of a check keeps a volume from being
//! changed, and how that is said. Excludes: repairs.

use std::sync::Arc;

use ondisk::inode::Timestamp;
use platfs::check::{Decision, Issue, Options, Severity, Sink, check};
use platfs::device::Device;

use super::findings::{Findings, Listener, OfKind, Policy};
use super::memory;
use super::names::Names;
use super::progress::Meter;
use super::report::counted;

/// When a volume is checked before it is changed.
///
/// No size is too large to be checked: what a volume says of its size is a stranger's word too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum When {
    /// Always, for what endangers other files only.
    #[default]
    ForOthers,
    /// Always, and for all that is wrong.
    ForAll,
    /// Never.
    Never,
}

impl When {
    /// What two options mean, of which clap lets one be given.
    #[must_use]
    pub fn of(first: bool, never: bool) -> Self {
        match (first, never) {
            (_, true) => When::Never,
            (true, false) => When::ForAll,
            (false, false) => When::ForOthers,
        }
    }

    fn is_now(self, device: &dyn Device) -> bool {
        match self {
            When::ForAll => true,
            When::Never => false,
            // What has no superblock is refused by whatever opens it.
            When::ForOthers => platfs::read_superblock(device).is_ok(),
        }
    }

    /// Whether a change of the volume could do harm before this is repaired. What is only untidy, as a crash leaves it
    /// for the next mount, is passed over.
    fn minds(self, issue: &Issue) -> bool {
        issue.endangers_others() || self == When::ForAll && issue.kind.severity >= Severity::Wrong
    }
}

/// Hears only what matters.
struct Minding<'p, 'm>(When, Listener<'p, 'm>);

impl Sink for Minding<'_, '_> {
    fn issue(&mut self, issue: Issue) -> Decision {
        if self.0.minds(&issue) { self.1.issue(issue) } else { Decision::Leave }
    }
}

/// Refuses a volume that is not sound, if it is to be checked. The device is only read; a journal that waits is replayed
/// in memory.
///
/// # Errors
/// What was found first, how much there is, and the remedy; that it could not be checked.
pub fn sound(when: When, device: &Arc<dyn Device>, name: &str, now: Timestamp) -> Result<(), String> {
    if !when.is_now(&**device) {
        return Ok(());
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let options = Options { threads, now, memory: memory::bound(), ..Options::default() };
    let mut meter = Meter::silent();
    let mut minding = Minding(when, Listener::new(Policy::Look, &mut meter));
    let outcome = check(Arc::clone(device), &options, &mut minding)
        .map_err(|error| format!("could not be checked, and nothing was changed: {error}"))?;
    let findings = minding.1.findings;
    match findings.kinds.first() {
        None => Ok(()),
        Some(first) => Err(refusal(first, &findings, &Names::of(&findings, &outcome), name)),
    }
}

fn refusal(first: &OfKind, findings: &Findings, names: &Names, name: &str) -> String {
    let what = first.kept.first().map_or_else(String::new, |noted| {
        let place = names.place(&noted.issue.place);
        let place = if place.is_empty() { place } else { format!("{place}: ") };
        format!(": {place}{}", noted.issue.found)
    });
    let title = first.kind.title;
    format!(
        "not sound, and nothing was changed: {title}{what} ({} in all); `plat check {name}` shows the repair, \
         `plat check -y {name}` makes it",
        counted(findings.count(), "problem")
    )
}
