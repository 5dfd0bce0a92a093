//! What is left out of a source, whose its files become, and which times are allowed.
//!
//! Exclude patterns: `*` and `?` match within a name, `**` across names, `[a-z]` and `[!a-z]` one byte of a
//! set, `\` takes the next character as it is. A pattern without a slash is compared with every name;
//! one with a slash with the whole path from the source's root (a slash in front is not needed). A
//! slash at the end is ignored. What matches is left out with all that is below it.

use super::catalogue::{Ids, Stamps};
use crate::archive::acl::{self, Acl};
use crate::archive::{Timestamp, Xattr};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::ffi::OsStr;
use std::fmt;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A wrong option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A pattern that is none.
    #[error("--exclude: the pattern {pattern:?} is wrong: {reason}")]
    Pattern {
        /// As given.
        pattern: String,
        /// Why.
        reason: String,
    },
    /// A mapping or owner that is none.
    #[error("{0:?} is not of the form {1}")]
    Form(String, &'static str),
    /// Two ranges say different things of one number.
    #[error("{option}: the ranges {first} and {second} overlap: both say what some numbers become")]
    Overlap {
        /// Of which option.
        option: &'static str,
        /// The one.
        first: IdRange,
        /// The other.
        second: IdRange,
    },
    /// An option for images, and the source is none.
    #[error(
        "{option}: {source_name} is no image (OCI layout or docker-save archive) of which there could be several"
    )]
    NoImage {
        /// The option.
        option: &'static str,
        /// The source, as given.
        source_name: String,
    },
    /// A name of an owner that the source does not tell.
    #[error("--owner: {name}: the source has no {file} that names it; a number always works")]
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
    #[error("--prefix: {0:?} must be a path without `..`, its names at most 255 bytes long")]
    Prefix(PathBuf),
}

/// A range of owners' numbers that moves as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    from: u32,
    to: u32,
    count: u32,
}

impl IdRange {
    /// Reads `FROM:TO:COUNT`: the numbers from FROM on, COUNT of them, become those from TO on.
    ///
    /// # Errors
    /// [`FilterError::Form`] if it is none, or a range passes 2^32.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let wrong = || FilterError::Form(text.to_owned(), "FROM:TO:COUNT");
        let numbers: Option<Vec<u32>> = text.split(':').map(|part| part.parse().ok()).collect();
        let Some([from, to, count]) =
            numbers.as_deref().and_then(|n| n.first_chunk::<3>().filter(|_| n.len() == 3)).copied()
        else {
            return Err(wrong());
        };
        let last = count.checked_sub(1).ok_or_else(wrong)?;
        from.checked_add(last).and(to.checked_add(last)).ok_or_else(wrong)?;
        Ok(Self { from, to, count })
    }

    /// Whether both hold some number.
    fn overlaps(self, other: Self) -> bool {
        let last = |range: Self| range.from.saturating_add(range.count.saturating_sub(1));
        self.from <= last(other) && other.from <= last(self)
    }

    /// The number `id` becomes, if it is in the range.
    fn map(self, id: u32) -> Option<u32> {
        let place = id.checked_sub(self.from)?;
        if place < self.count { self.to.checked_add(place) } else { None }
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

/// Reads `USER:GROUP`, each a number or a name: what begins with a digit is a number.
///
/// # Errors
/// [`FilterError::Form`].
pub fn parse_named_owner(text: &str) -> Result<(OwnerId, OwnerId), FilterError> {
    let one = |text: &str| match text.bytes().next() {
        None => None,
        Some(b'0'..=b'9') => text.parse().ok().map(OwnerId::Number),
        Some(b'-' | b'+') => None,
        Some(_) if text.contains(':') => None,
        Some(_) => Some(OwnerId::Name(text.to_owned())),
    };
    let parts = text.split_once(':').and_then(|(user, group)| Some((one(user)?, one(group)?)));
    parts.ok_or_else(|| FilterError::Form(text.to_owned(), "USER:GROUP"))
}

/// Checks `OS/ARCHITECTURE[/VARIANT]`.
///
/// # Errors
/// [`FilterError::Platform`].
pub fn parse_platform(text: &str) -> Result<String, FilterError> {
    let parts: Vec<&str> = text.split('/').collect();
    let whole = (2..=3).contains(&parts.len()) && parts.iter().all(|part| !part.is_empty());
    if whole { Ok(text.to_owned()) } else { Err(FilterError::Platform(text.to_owned())) }
}

/// Reads `UID:GID`.
///
/// # Errors
/// [`FilterError::Form`].
pub fn parse_owner(text: &str) -> Result<(u32, u32), FilterError> {
    let parts = text.split_once(':').and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    parts.ok_or_else(|| FilterError::Form(text.to_owned(), "UID:GID"))
}

/// How a source is read. The default takes everything as it is.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What is left out.
    pub exclude: Excludes,
    /// The owner of everything, whatever the source says. Named entries of ACLs stay.
    pub owner: Option<(u32, u32)>,
    /// Where users' numbers move, those of ACLs too; others stay.
    pub map_uid: Vec<IdRange>,
    /// The same for groups.
    pub map_gid: Vec<IdRange>,
    /// The directory of the image under which everything is put.
    pub prefix: Option<PathBuf>,
    /// No time may be later: what `SOURCE_DATE_EPOCH` says, in seconds.
    pub latest: Option<i64>,
    /// The platform of an OCI image: `linux/arm64`, `linux/arm/v7`. Else that of the host.
    pub platform: Option<String>,
    /// Which image of several: a tag or reference name.
    pub image: Option<String>,
    /// Threads that list a directory of the host; as many as help if not given.
    pub jobs: Option<NonZeroUsize>,
    /// Where spools are made; the directory of the output is a good place. Else the system's.
    pub spool: Option<PathBuf>,
}

impl Options {
    /// Applies the owner and the mappings.
    pub(super) fn map_ids(&self, ids: Ids) -> Ids {
        match self.owner {
            Some((uid, gid)) => Ids { uid, gid },
            None => Ids { uid: map(&self.map_uid, ids.uid), gid: map(&self.map_gid, ids.gid) },
        }
    }

    /// Refuses ranges that contradict each other. Several numbers may well become one.
    pub(super) fn check_ranges(&self) -> Result<(), FilterError> {
        for (option, ranges) in [("--map-uid", &self.map_uid), ("--map-gid", &self.map_gid)] {
            for (at, first) in ranges.iter().enumerate() {
                let others = ranges.iter().skip(at + 1);
                if let Some(second) = others.into_iter().find(|second| first.overlaps(**second)) {
                    return Err(FilterError::Overlap { option, first: *first, second: *second });
                }
            }
        }
        Ok(())
    }

    /// Refuses options for images, once the source turned out to be none.
    pub(super) fn refuse_image_options(&self, source_name: &str) -> Result<(), FilterError> {
        let given = [("--platform", self.platform.is_some()), ("--tag", self.image.is_some())];
        match given.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(FilterError::NoImage { option, source_name: source_name.to_owned() }),
            None => Ok(()),
        }
    }

    /// Whether ACLs must be rewritten.
    pub(super) fn maps_ids(&self) -> bool {
        !self.map_uid.is_empty() || !self.map_gid.is_empty()
    }

    /// Applies the mappings to an ACL attribute; others stay as they are.
    pub(super) fn map_xattr(&self, xattr: &mut Xattr) {
        let is_acl = matches!(&*xattr.name, acl::ACCESS | acl::DEFAULT);
        if let Some(acl) = is_acl.then(|| Acl::decode(&xattr.value).ok()).flatten() {
            let mapped = acl.map_ids(|id| map(&self.map_uid, id), |id| map(&self.map_gid, id));
            xattr.value = mapped.encode().into();
        }
    }

    /// Brings times down to the latest allowed.
    pub(super) fn clamp(&self, stamps: Stamps) -> Stamps {
        let Some(latest) = self.latest.map(Timestamp::from_seconds) else {
            return stamps;
        };
        Stamps {
            modified: stamps.modified.min(latest),
            accessed: stamps.accessed.min(latest),
            changed: stamps.changed.min(latest),
            created: stamps.created.min(latest),
        }
    }
}

fn map(ranges: &[IdRange], id: u32) -> u32 {
    ranges.iter().find_map(|range| range.map(id)).unwrap_or(id)
}

/// Patterns of what is left out.
#[derive(Clone, Debug, Default)]
pub struct Excludes {
    names: GlobSet,
    paths: GlobSet,
}

impl Excludes {
    /// Compiles patterns; see the module's description.
    ///
    /// # Errors
    /// [`FilterError::Pattern`].
    pub fn new<S: AsRef<str>>(patterns: &[S]) -> Result<Self, FilterError> {
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

    /// Whether nothing is left out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.paths.is_empty()
    }

    /// Whether the file at `path` (from the source's root, no slash in front) with the last name `name` is
    /// left out by itself. What is below a directory that is left out must not be asked for.
    #[must_use]
    pub fn matches(&self, path: &[u8], name: &[u8]) -> bool {
        let as_path = |bytes| Path::new(OsStr::from_bytes(bytes));
        self.names.is_match(as_path(name)) || self.paths.is_match(as_path(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let range = IdRange::parse("100000:0:65536").unwrap();
        assert_eq!(range.map(100_000), Some(0));
        assert_eq!(range.map(165_535), Some(65_535));
        assert_eq!((range.map(165_536), range.map(99_999)), (None, None));
        assert!(IdRange::parse("4294967295:0:1").is_ok());
        for wrong in ["", "1:2", "1:2:3:4", "1:2:0", "4294967295:0:2", "0:4294967295:2", "a:b:c"] {
            assert!(IdRange::parse(wrong).is_err(), "{wrong}");
        }
        let ranges = |texts: &[&str]| Options {
            map_uid: texts.iter().map(|text| IdRange::parse(text).unwrap()).collect(),
            ..Options::default()
        };
        assert!(ranges(&["0:5:10", "10:5:10"]).check_ranges().is_ok());
        let refused = ranges(&["0:100:10", "50:0:1", "9:0:1"]).check_ranges().unwrap_err();
        assert_eq!(
            refused.to_string(),
            "--map-uid: the ranges 0:100:10 and 9:0:1 overlap: both say what some numbers become"
        );
        assert_eq!(parse_named_owner("root:20"), Ok((OwnerId::Name("root".into()), OwnerId::Number(20))));
        for wrong in ["root", ":", "1:", "-1:0", "1x:0", "a:b:c", "4294967296:0"] {
            assert!(parse_named_owner(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "linux", "linux/", "/arm64", "a/b/c/d"] {
            assert!(parse_platform(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_owner("1:2"), Ok((1, 2)));
        assert!(parse_owner("1").is_err());
    }
}
