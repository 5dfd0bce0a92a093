//! Patterns, ranges of numbers and owners: the values of options, read from text and judged.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A wrong option of a source. [`FilterError::option`] names it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// A pattern that is none.
    #[error("the pattern {pattern:?} is wrong: {reason}")]
    Pattern {
        /// As given.
        pattern: String,
        /// Reason.
        reason: String,
    },
    /// A mapping or owner that is none.
    #[error("{0:?} is not of the form {1}")]
    Form(String, &'static str),
    /// Two ranges say different things of one number.
    #[error("the ranges {first} and {second} overlap: both say what some numbers become")]
    Overlap {
        /// Of which option.
        option: &'static str,
        /// The one.
        first: IdRange,
        /// The other.
        second: IdRange,
    },
    /// An option for images, and the source is none.
    #[error("{source_name} is no image (OCI layout or docker-save archive) of which there could be several")]
    NoImage {
        /// The option.
        option: &'static str,
        /// The source, as given.
        source_name: String,
    },
    /// A name of an owner that the source does not define.
    #[error("{name}: the source has no {file} that names it; a number always works")]
    NoOwner {
        /// The name.
        name: String,
        /// Where it was looked for.
        file: &'static str,
    },
    /// A platform that is none.
    #[error("{0:?} is no platform: OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT, such as linux/arm64")]
    Platform(String),
    /// The prefix leads upwards or is no path.
    #[error("{0:?} must be a path without `..`, its names at most 255 bytes long")]
    Prefix(PathBuf),
}

impl FilterError {
    /// The option that is wrong, by its name in [`super::SourceOptions`]; none for text that was not given to an
    /// option yet.
    #[must_use]
    pub fn option(&self) -> Option<&'static str> {
        match self {
            Self::Pattern { .. } => Some("exclude"),
            Self::Form(..) => None,
            Self::Overlap { option, .. } | Self::NoImage { option, .. } => Some(option),
            Self::NoOwner { .. } => Some("owner"),
            Self::Platform(_) => Some("platform"),
            Self::Prefix(_) => Some("prefix"),
        }
    }
}

/// A range of owners' numbers that moves as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    from: u32,
    to: u32,
    count: u32,
}

impl IdRange {
    /// The numbers from `from` on, `count` of them, become those from `to` on.
    ///
    /// # Errors
    /// [`FilterError::Form`] if there are none, or a range passes 2^32.
    pub fn new(from: u32, to: u32, count: u32) -> Result<Self, FilterError> {
        let last = count.checked_sub(1);
        let inside = last.and_then(|last| from.checked_add(last).and(to.checked_add(last)));
        inside.map(|_| Self { from, to, count }).ok_or_else(|| Self { from, to, count }.wrong())
    }

    fn wrong(self) -> FilterError {
        FilterError::Form(self.to_string(), RANGE)
    }

    /// Returns true if both hold some number.
    pub(super) fn overlaps(self, other: Self) -> bool {
        let last = |range: Self| range.from.saturating_add(range.count.saturating_sub(1));
        self.from <= last(other) && other.from <= last(self)
    }

    /// The number `id` becomes, if it is in the range.
    fn map(self, id: u32) -> Option<u32> {
        let place = id.checked_sub(self.from)?;
        if place < self.count { self.to.checked_add(place) } else { None }
    }
}

/// Form of a range.
const RANGE: &str = "FROM:TO:COUNT";

impl FromStr for IdRange {
    type Err = FilterError;

    /// Reads `FROM:TO:COUNT`.
    fn from_str(text: &str) -> Result<Self, FilterError> {
        let wrong = || FilterError::Form(text.to_owned(), RANGE);
        let numbers: Option<Vec<u32>> = text.split(':').map(|part| part.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[from, to, count]) => Self::new(from, to, count).map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for IdRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.from, self.to, self.count)
    }
}

/// A user or group, by number or by the name that it has in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerId {
    /// A number.
    Number(u32),
    /// A name.
    Name(String),
}

/// The owner and group of everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub user: OwnerId,
    /// The group.
    pub group: OwnerId,
}

impl Owner {
    /// An owner by numbers.
    #[must_use]
    pub fn numbers(uid: u32, gid: u32) -> Self {
        Self { user: OwnerId::Number(uid), group: OwnerId::Number(gid) }
    }
}

impl FromStr for Owner {
    type Err = FilterError;

    /// Reads `USER:GROUP`, each a number or a name: what begins with a digit is a number.
    fn from_str(text: &str) -> Result<Self, FilterError> {
        let one = |text: &str| match text.bytes().next() {
            None => None,
            Some(b'0'..=b'9') => text.parse().ok().map(OwnerId::Number),
            Some(b'-' | b'+') => None,
            Some(_) if text.contains(':') => None,
            Some(_) => Some(OwnerId::Name(text.to_owned())),
        };
        let parts = text.split_once(':').and_then(|(user, group)| Some((one(user)?, one(group)?)));
        let owner = parts.map(|(user, group)| Self { user, group });
        owner.ok_or_else(|| FilterError::Form(text.to_owned(), "USER:GROUP"))
    }
}

/// Checks `OS/ARCHITECTURE[/VARIANT]`.
///
/// # Errors
/// [`FilterError::Platform`].
pub(super) fn check_platform(text: &str) -> Result<String, FilterError> {
    let parts: Vec<&str> = text.split('/').collect();
    let whole = (2..=3).contains(&parts.len()) && parts.iter().all(|part| !part.is_empty());
    if whole { Ok(text.to_owned()) } else { Err(FilterError::Platform(text.to_owned())) }
}

/// Maps a number.
pub(super) fn map(ranges: &[IdRange], id: u32) -> u32 {
    ranges.iter().find_map(|range| range.map(id)).unwrap_or(id)
}

/// True if ranges were given, and none holds the number.
pub(super) fn is_outside(ranges: &[IdRange], id: u32) -> bool {
    !ranges.is_empty() && ranges.iter().all(|range| range.map(id).is_none())
}

/// Patterns of what is left out; see [`super::SourceOptions::exclude`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Excludes {
    names: GlobSet,
    paths: GlobSet,
}

impl Excludes {
    /// Compiles patterns; see the type's description.
    ///
    /// # Errors
    /// [`FilterError::Pattern`].
    pub(crate) fn new<S: AsRef<str>>(patterns: &[S]) -> Result<Self, FilterError> {
        let (mut names, mut paths) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for pattern in patterns.iter().map(AsRef::as_ref) {
            let wrong = |reason: String| FilterError::Pattern { pattern: pattern.to_owned(), reason };
            let trimmed = pattern.trim_start_matches("./").trim_end_matches('/');
            let set = if trimmed.contains('/') { &mut paths } else { &mut names };
            let trimmed = trimmed.trim_start_matches('/');
            if trimmed.is_empty() {
                return Err(wrong("it names nothing".to_owned()));
            }
            let glob = GlobBuilder::new(trimmed).literal_separator(true).backslash_escape(true).build();
            set.add(glob.map_err(|error| wrong(error.kind().to_string()))?);
        }
        let build = |set: GlobSetBuilder| {
            let wrong = |error: globset::Error| FilterError::Pattern {
                pattern: error.glob().unwrap_or_default().to_owned(),
                reason: error.kind().to_string(),
            };
            set.build().map_err(wrong)
        };
        Ok(Self { names: build(names)?, paths: build(paths)? })
    }

    /// Returns true if nothing is left out.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.paths.is_empty()
    }

    /// Returns true if the file at `path` (from the source's root, no slash in front) with the last name `name` is
    /// left out by itself. What is below a directory that is left out must not be asked for.
    pub(crate) fn matches(&self, path: &[u8], name: &[u8]) -> bool {
        let as_path = |bytes| Path::new(OsStr::from_bytes(bytes));
        self.names.is_match(as_path(name)) || self.paths.is_match(as_path(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceOptions;

    #[test]
    fn patterns_follow_the_description() {
        let excludes = Excludes::new(&["*.o", "/dev/*", "a/**/z", "sub/dir/", "[!x]y", "lit\\*"]).unwrap();
        let out = |path: &str| {
            let name = path.rsplit('/').next().unwrap();
            excludes.matches(path.as_bytes(), name.as_bytes())
        };
        for path in ["x.o", "deep/down/y.o", "dev/null", "a/z", "a/b/c/z", "sub/dir", "zy", "lit*"] {
            assert!(out(path), "{path}");
        }
        for path in ["x.oo", "dev", "dev/a/b", "b/a/z", "other/sub/dir", "xy", "lits"] {
            assert!(!out(path), "{path}");
        }
        assert!(Excludes::new(&["*"]).unwrap().matches(b"\xff/\xfe", b"\xfe"));
        assert!(Excludes::default().is_empty());
        assert!(matches!(Excludes::new(&["["]), Err(FilterError::Pattern { .. })));
        assert!(matches!(Excludes::new(&["/"]), Err(FilterError::Pattern { .. })));
    }

    #[test]
    fn ranges_move_and_do_not_wrap() {
        let range = IdRange::from_str("100000:0:65536").unwrap();
        assert_eq!(range.map(100_000), Some(0));
        assert_eq!(range.map(165_535), Some(65_535));
        assert_eq!((range.map(165_536), range.map(99_999)), (None, None));
        assert!(IdRange::from_str("4294967295:0:1").is_ok());
        for wrong in ["", "1:2", "1:2:3:4", "1:2:0", "4294967295:0:2", "0:4294967295:2", "a:b:c"] {
            assert!(IdRange::from_str(wrong).is_err(), "{wrong}");
        }
        let ranges = |texts: &[&str]| SourceOptions {
            map_uid: texts.iter().map(|text| IdRange::from_str(text).unwrap()).collect(),
            ..SourceOptions::default()
        };
        assert!(ranges(&["0:5:10", "10:5:10"]).check_ranges().is_ok());
        let refused = ranges(&["0:100:10", "50:0:1", "9:0:1"]).check_ranges().unwrap_err();
        assert_eq!(refused.option(), Some("map_uid"));
        assert_eq!(
            refused.to_string(),
            "the ranges 0:100:10 and 9:0:1 overlap: both say what some numbers become"
        );
        let owner = Owner { user: OwnerId::Name("root".into()), group: OwnerId::Number(20) };
        assert_eq!("root:20".parse(), Ok(owner));
        for wrong in ["root", ":", "1:", "-1:0", "1x:0", "a:b:c", "4294967296:0"] {
            assert!(wrong.parse::<Owner>().is_err(), "{wrong}");
        }
        for wrong in ["", "linux", "linux/", "/arm64", "a/b/c/d"] {
            assert!(check_platform(wrong).is_err(), "{wrong}");
        }
    }
}
