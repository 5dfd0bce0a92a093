//! A check of the whole volume before anything of it is changed, for images from strangers.
//!
//! Every verb believes a bitmap, a map or a count that it can't disprove from where it stands: that a block is free, or
//! belongs to one file only, is known to a check of all owners alone. Owns: what of a check keeps a volume from being
//! changed, and how that is said. Excludes: repairs.

use std::sync::Arc;

use ondisk::inode::Timestamp;
use platfs::check::{Options, Severity, check};
use platfs::device::Device;

use super::findings::{Findings, Listener, OfKind, Policy};
use super::memory;
use super::names::Names;
use super::progress::Meter;
use super::report::counted;

/// Kinds that are no more than untidy by themselves, though a change can make harm of them: a count of users that is too
/// low frees what others use.
const COUNTS_OF_USERS: [&str; 2] = ["xattr-references", "xattr-value-references"];

/// Whether a change of the volume could do harm before issues of this kind are repaired. What is only untidy, as a crash
/// leaves it for the next mount, is passed over.
fn matters(of: &OfKind) -> bool {
    of.kind.severity >= Severity::Wrong || COUNTS_OF_USERS.contains(&of.kind.id)
}

/// Refuses a volume that is not sound. The device is only read; a journal that waits is replayed in memory.
///
/// # Errors
/// What was found first, how much there is, and the remedy; that it could not be checked.
pub fn sound(device: &Arc<dyn Device>, name: &str, now: Timestamp) -> Result<(), String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let options = Options { threads, now, memory: memory::bound(), ..Options::default() };
    let mut meter = Meter::silent();
    let mut listener = Listener::new(Policy::Look, &mut meter);
    let outcome = check(Arc::clone(device), &options, &mut listener)
        .map_err(|error| format!("could not be checked, and nothing was changed: {error}"))?;
    let findings = listener.findings;
    match findings.kinds.iter().find(|of| matters(of)) {
        None => Ok(()),
        Some(first) => Err(refusal(first, &findings, &Names::of(&findings, &outcome), name)),
    }
}

fn refusal(first: &OfKind, findings: &Findings, names: &Names, name: &str) -> String {
    let count = findings.kinds.iter().filter(|of| matters(of)).map(|of| of.count).sum();
    let what = first.kept.first().map_or_else(String::new, |noted| {
        let place = names.place(&noted.issue.place);
        let place = if place.is_empty() { place } else { format!("{place}: ") };
        format!(": {place}{}", noted.issue.found)
    });
    let title = first.kind.title;
    format!(
        "not sound, and nothing was changed: {title}{what} ({} in all); `plat check {name}` shows the repair, \
         `plat check -y {name}` makes it",
        counted(count, "problem")
    )
}
