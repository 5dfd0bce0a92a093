//! A check of the whole volume before anything of it is changed, for images from strangers.
//!
//! Every verb believes a bitmap, a map or a count that it can't disprove from where it stands: that a block is free, or
//! belongs to one file only, is known to a check of all owners alone. Owns: what of a check keeps a volume from being
//! changed, and how that is said. Excludes: repairs.

use std::sync::Arc;

use ondisk::inode::Timestamp;
use platfs::check::{Decision, Issue, Options, Severity, Sink, check};
use platfs::device::Device;

use crate::memory;
use crate::names::Names;

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
    /// Reads two options, of which clap lets one be given.
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

    /// Returns true if a change of the volume could do harm before this is repaired. What is only untidy, as a crash leaves it
    /// for the next mount, is passed over.
    fn minds(self, issue: &Issue) -> bool {
        issue.endangers_others() || self == When::ForAll && issue.kind.severity >= Severity::Wrong
    }
}

/// Hears only what matters: the first of it is kept, all is counted.
struct Minding {
    when: When,
    first: Option<Issue>,
    count: u64,
}

impl Sink for Minding {
    fn issue(&mut self, issue: Issue) -> Decision {
        if self.when.minds(&issue) && !is_replay(&issue) {
            self.count += 1;
            self.first.get_or_insert(issue);
        }
        Decision::Leave
    }
}

/// Tells if an issue is what waits in the journal, which every mount replays: by itself it is no problem.
fn is_replay(issue: &Issue) -> bool {
    issue.kind.id == "journal-needs-replay" && !issue.repair.is_empty()
}

/// Refuses a volume that is not sound, if it is to be checked. The device is only read; a journal that waits is replayed
/// in memory.
///
/// # Errors
/// The first finding, how much there is, and the remedy; that it could not be checked.
pub fn sound(when: When, device: &Arc<dyn Device>, name: &str, now: Timestamp) -> Result<(), String> {
    if !when.is_now(&**device) {
        return Ok(());
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let options = Options { threads, now, memory: memory::for_check(), ..Options::default() };
    let mut minding = Minding { when, first: None, count: 0 };
    let outcome = check(Arc::clone(device), &options, &mut minding)
        .map_err(|error| format!("could not be checked, and nothing was changed: {error}"))?;
    match &minding.first {
        None => Ok(()),
        Some(first) => Err(refusal(first, minding.count, &Names::of(first.place.inode, &outcome), name)),
    }
}

fn refusal(first: &Issue, count: u64, names: &Names, name: &str) -> String {
    let place = names.place(&first.place);
    let place = if place.is_empty() { place } else { format!("{place}: ") };
    let (title, found) = (first.kind.title, &first.found);
    let noun = if count == 1 { "problem" } else { "problems" };
    format!(
        "not sound, and nothing was changed: {title}: {place}{found} ({count} {noun} in all); `plat check {name}` shows the \
         repair, `plat check -y {name}` makes it"
    )
}
