//! Limits of quota.

use ondisk::quota::parts::Record;

use crate::charges::Whose;
use crate::error::{Error, Result};

/// Amounts that an id asks for within its limits.
#[derive(Clone, Copy, Default)]
pub(crate) struct LimitRequest {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
    /// Bytes that the id has reserved already.
    pub(crate) reserved: u64,
}

impl LimitRequest {
    /// Refuses what exceeds a hard limit, or a soft one whose grace is over.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`].
    pub(crate) fn refuse_excess(&self, (kind, id): Whose, record: &Record, now: i64) -> Result<()> {
        let now = u64::try_from(now).unwrap_or(0);
        let limits = record.limits;
        let over =
            |wanted: u64, is: u64, limit: u64| wanted > 0 && limit > 0 && is.saturating_add(wanted) > limit;
        let bytes = record.usage.bytes.saturating_add(self.reserved);
        let refuse = |what: &'static str| Err(Error::QuotaExceeded { kind, id, what });
        let is_late = |until: u64| until != 0 && now >= until;
        if over(self.bytes, bytes, limits.hard_bytes) {
            return refuse("blocks");
        }
        if over(self.bytes, bytes, limits.soft_bytes) && is_late(record.bytes_until) {
            return refuse("blocks, its grace is over");
        }
        if over(self.inodes, record.usage.inodes, limits.hard_inodes) {
            return refuse("inodes");
        }
        if over(self.inodes, record.usage.inodes, limits.soft_inodes) && is_late(record.inodes_until) {
            return refuse("inodes, its grace is over");
        }
        Ok(())
    }
}
