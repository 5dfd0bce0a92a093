//! A pass: blocks that more than one owner claims.
//!
//! Nothing is to do where no cluster was claimed twice. Otherwise all claims are gathered once more,
//! now with their owners; [`super::inodes::sharing`] decides which owner keeps what.

use ondisk::features::RoCompat;

use super::facts::Facts;
use super::inodes::sharing;
use super::log;
use super::reporter::Report;
use super::subject::Subject;
use platfs_device::Result;

/// Runs the pass.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn check(subject: &mut Subject, facts: &mut Facts, report: &mut Report<'_>) -> Result<()> {
    // Volumes that are never written may share on purpose.
    if facts.shared.iter().next().is_none() || subject.has_ro_compat(RoCompat::SHARED_BLOCKS) {
        return Ok(());
    }
    if sharing::resolve(subject, facts, report)? {
        log::give_up(subject, facts)?;
    }
    Ok(())
}
