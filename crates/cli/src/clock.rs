//! The time that changes get: that of the host, or `SOURCE_DATE_EPOCH`, with which the same commands give the same bytes.
//!
//! Owns the variable. Excludes whatever asks how late it is now: judging a volume, mounts, waiting.

use ondisk::inode::Timestamp;

use crate::console::Failure;

/// `SOURCE_DATE_EPOCH` in seconds since 1970, where it is set.
///
/// # Errors
/// One that is no number: a usage error.
pub fn source_date_epoch() -> Result<Option<u64>, Failure> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") else { return Ok(None) };
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    let usage = || Failure::Usage("SOURCE_DATE_EPOCH is not a number of seconds since 1970".into());
    seconds.map(Some).ok_or_else(usage)
}

/// The time of `SOURCE_DATE_EPOCH`, if it is set and a number.
#[must_use]
pub fn epoch() -> Option<Timestamp> {
    let seconds = source_date_epoch().ok().flatten()?;
    Some(Timestamp { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanoseconds: 0 })
}

/// The time that a change gets.
#[must_use]
pub fn now() -> Timestamp {
    epoch().unwrap_or_else(platfs_image::clock::now)
}

/// The time in whole seconds since 1970.
///
/// # Errors
/// As [`source_date_epoch`].
pub fn seconds() -> Result<u64, Failure> {
    let clock = || u64::try_from(platfs_image::clock::now().seconds).unwrap_or(0);
    Ok(source_date_epoch()?.unwrap_or_else(clock))
}
