//! The check of a volume as a draft makes it: whether anything is wrong, and repairs of what was expected.

use std::sync::Arc;

use platfs_check::{Decision, Issue, Options, Sink, Staged, check};
use platfs_device::Device;

use super::Limits;
use crate::Result;
use crate::error::refused;

/// Verdict of the check.
pub struct CheckResult {
    /// Issues that were not expected: the first in words, and their number.
    pub refusal: Option<String>,
    /// The repairs of what was expected, in memory over the device that was judged; `None` if there are none.
    pub repaired: Option<Arc<Staged>>,
    /// Number of expected issues that were found.
    pub expected: u64,
}

/// Remembers what was not expected. A clock that is wrong says nothing of the volume.
struct Listener<'e> {
    expected: &'e [&'e str],
    first: Option<String>,
    count: u64,
    met: u64,
}

impl Sink for Listener<'_> {
    fn issue(&mut self, issue: Issue) -> Decision {
        if self.expected.contains(&issue.kind.id) {
            self.met += 1;
            return Decision::Repair;
        }
        if issue.kind.is_of_a_clock() {
            return Decision::Leave;
        }
        self.count += 1;
        self.first.get_or_insert_with(|| described(&issue));
        Decision::Leave
    }
}

fn described(issue: &Issue) -> String {
    let place = &issue.place;
    let inode = place.inode.map(|inode| format!(" (inode {inode})")).unwrap_or_default();
    let group = place.group.map(|group| format!(" (group {group})")).unwrap_or_default();
    format!("{}{inode}{group}: {}", issue.kind.title, issue.found)
}

/// Checks the volume on a device, which is only read. Kinds of issues in `expected` are repaired in memory.
///
/// # Errors
/// There is nothing to check.
pub fn judge(device: &Arc<dyn Device>, limits: &Limits, expected: &[&str]) -> Result<CheckResult> {
    let options =
        Options { threads: limits.threads, now: limits.now, memory: limits.memory, ..Options::default() };
    let mut listener = Listener { expected, first: None, count: 0, met: 0 };
    let outcome = check(Arc::clone(device), &options, &mut listener)?;
    let refusal = listener.first.map(|first| match listener.count {
        1 => first,
        count => format!("{first} ({count} problems in all)"),
    });
    let repaired = (!outcome.repaired.is_unchanged()).then_some(outcome.repaired);
    Ok(CheckResult { refusal, repaired, expected: listener.met })
}

/// Refuses a volume of which the check finds anything wrong. The owners that the check finds then are those that the
/// bitmaps know, so that what they call free belongs to nobody.
///
/// # Errors
/// An issue, with the remedy; there is nothing to check.
pub fn refuse_unsound(device: &Arc<dyn Device>, limits: &Limits) -> Result<()> {
    match judge(device, limits, &[])?.refusal {
        None => Ok(()),
        Some(why) => {
            refused(format!("not sound, and nothing was changed: {why}; `plat check -y` repairs it"))
        }
    }
}
