//! Differences between the kernel's ext4 and a mount through FUSE that may be, each with its reason.
//!
//! Most are of the kernel's own making: requests that it does not make, and facts that it does not pass on.

/// A difference with a reason.
#[derive(Clone, Copy)]
pub struct Excuse {
    /// The case it is in.
    pub case: &'static str,
    /// A part of the line of one side.
    pub line: &'static str,
    /// A part of the line of the other side.
    pub other: &'static str,
    /// Calls that it is about; none: all of them.
    pub calls: &'static [&'static str],
    /// Why it is so.
    #[allow(dead_code, reason = "for people")]
    pub reason: &'static str,
}

impl Excuse {
    /// Says if it explains these two lines.
    pub fn covers(&self, case: &str, left: Option<&String>, right: Option<&String>) -> bool {
        let has = |line: Option<&String>, part: &str| line.is_some_and(|line| line.contains(part));
        let other = |line: Option<&String>| self.other.is_empty() || has(line, self.other);
        let begins = |line: &String| self.calls.iter().any(|call| line.trim_start().starts_with(call));
        let is_call = |line: Option<&String>| self.calls.is_empty() || line.is_some_and(begins);
        case.starts_with(self.case)
            && is_call(left)
            && is_call(right)
            && [(left, right), (right, left)].into_iter().any(|(one, two)| has(one, self.line) && other(two))
    }
}

const NO_FLAGS: &str =
    "the kernel does not know the flags of inodes behind FUSE: access(2) and fcntl(2) are not asked of us";
const NO_BLOCK_YET: &str =
    "in files with block pointers the kernel's driver finds no data that has no block yet; here it is found";
const NO_MOVING: &str = "the kernel's FUSE passes on no COLLAPSE_RANGE and INSERT_RANGE";
const LATE: &str = "the kernel keeps the bytes of a write: what is wrong with it is found when they are written back, \
                    and reported by fsync, close or syncfs";
const OWN_TIMES: &str =
    "the kernel keeps the times of files that it has pages of, without clamping them to what is stored";
const CACHED_READS: &str = "what is read from the kernel's pages does not come to us: a file counts as read when it is opened for reading";
const NO_CALLER: &str = "the kernel does not report that the caller may not keep the bits: of set-group-id \
                         without the right of the group to run, which lends nothing";

const fn excuse(case: &'static str, line: &'static str, reason: &'static str) -> Excuse {
    Excuse { case, line, other: "", calls: &[], reason }
}

/// Excuses two errors of one call in random sequences of rights: one on either side.
const fn errors(
    calls: &'static [&'static str],
    line: &'static str,
    other: &'static str,
    reason: &'static str,
) -> Excuse {
    Excuse { case: "rights-", line, other, calls, reason }
}

/// Those of all mounts.
pub const EXCUSES: &[Excuse] = &[
    excuse("attributes-flags_set_and_shown", "a -> ", CACHED_READS),
    excuse("attributes-append_only_files", "without append", NO_FLAGS),
    excuse("attributes-immutable_files", "Access(WRITE_OK)", NO_FLAGS),
    excuse("ranges-modes_on_flagged_files", "COLLAPSE_RANGE", NO_MOVING),
    excuse("ranges-modes_on_flagged_files", "INSERT_RANGE", NO_MOVING),
    excuse("times-statx_attributes", "", NO_FLAGS),
    excuse(
        "attributes-flags_that_can_not_be_set",
        "2000000",
        "direct access (dax) is nothing that we could do",
    ),
    excuse("ranges-collapse", "", NO_MOVING),
    excuse("ranges-insert", "", NO_MOVING),
    excuse("ranges-ranges_of_many_extents", "", NO_MOVING),
    excuse("ranges-space_of_each_mode", "", NO_MOVING),
    excuse("times-rules_of_ranges", "COLLAPSE_RANGE", NO_MOVING),
    excuse("times-rules_of_ranges", "INSERT_RANGE", NO_MOVING),
    excuse("times-rules_of_ranges", "a -> ", NO_MOVING),
    excuse("contents-seeks", "35184372088832", "the kernel allows every offset behind FUSE"),
    excuse(
        "ranges-allocated_reads_as_zeros",
        "seek",
        "the kernel takes pages that were read for data; allocated space is none",
    ),
    excuse("contents-data_is_found_before_it_is_written", "-> ENXIO", NO_BLOCK_YET),
    excuse("contents-seeks_to_data_and_holes", "-> ENXIO", NO_BLOCK_YET),
    excuse("times-rules_of_reading", "a--", CACHED_READS),
    excuse(
        "times-rules_of_contents",
        "-mc",
        "a truncation to the same size by name is none, as by descriptor",
    ),
    excuse("modes-chown_clears_bits", "2745", NO_CALLER),
    excuse("modes-fallocate_clears_bits", "767", NO_CALLER),
    excuse("modes-truncate_clears_bits", "767", NO_CALLER),
    excuse("modes-write_clears_bits", "767", NO_CALLER),
];

/// Those of a mount with the kernel's cache of what is written.
pub const CACHE_EXCUSES: &[Excuse] = &[
    excuse("contents-far_offsets", "", LATE),
    excuse("contents-bytes_survive_syncs", "EFBIG", LATE),
    excuse("contents-bytes_survive_syncs", "the same", LATE),
    excuse("status-syncs", "syncfs", LATE),
    excuse("removing-room_comes_back", "syncfs", LATE),
    excuse("times-rules_of_attributes", "a -> ", OWN_TIMES),
    excuse("times-set_before_1970_and_after_2038", "", OWN_TIMES),
    excuse("times-set_beyond_what_is_kept", "", OWN_TIMES),
];

const SAME_AS_A_WRITE: &str = "a change of owner that names nobody is sent as the kernel sends it before others write, so nobody is refused";

/// Those of random sequences of rights.
pub const RIGHTS_EXCUSES: &[Excuse] = &[excuse("rights-", " None None -> ", SAME_AS_A_WRITE)];

/// Calls that take a name away.
const NAMES: &[&str] = &["unlink ", "rmdir ", "rename "];
const TYPE_FIRST: &str = "the kernel looks at the types of names before it asks";
const SOURCE_FIRST: &str =
    "the kernel looks for the source of a rename before it asks for rights on the target's directory";

/// More of random sequences of rights, where the mount checks permissions itself.
pub const OWN_RIGHTS_EXCUSES: &[Excuse] = &[
    errors(NAMES, "-> EISDIR", "-> EACCES", TYPE_FIRST),
    errors(NAMES, "-> EISDIR", "-> EPERM", TYPE_FIRST),
    errors(NAMES, "-> ENOTDIR", "-> EACCES", TYPE_FIRST),
    errors(NAMES, "-> ENOTDIR", "-> EPERM", TYPE_FIRST),
    errors(&["rename "], "-> ENOENT", "-> EACCES", SOURCE_FIRST),
];

const CACHED_NAMES: &str =
    "the kernel passes names that it had in its cache before their directory was closed to others";
const NOBODY_ELSE: &str = "only programs of root come in";
const PRIVILEGES: &str = "the kernel has capabilities removed before it asks whether the owner may change, where it does not check that itself";

/// Those of a mount that checks permissions itself.
pub const OWN_EXCUSES: &[Excuse] = &[
    excuse("modes-access_by_users", "access d/b", CACHED_NAMES),
    excuse("modes-permission_of_directories", "lstat d/a", CACHED_NAMES),
    excuse("modes-permission_of_directories", "open d/a", CACHED_NAMES),
    excuse("modes-permission_of_directories", "access d/a", CACHED_NAMES),
    excuse("modes-permission_of_directories", "chmod d/a", CACHED_NAMES),
    excuse("modes-permission_of_directories", "readlink d/a", CACHED_NAMES),
    excuse("status-sources_of_programs", "run by another", NOBODY_ELSE),
    excuse("attributes-privileges_of_files", "listxattr a", PRIVILEGES),
];

const NO_ATTRIBUTES: &str = "attributes, and with them access control lists, are left out";
const NOT_ASKED: &str =
    "the kernel asks nothing before a write to a file that was open before it became immutable";

/// Those of a mount without extended attributes.
pub const NO_ATTRIBUTES_EXCUSES: &[Excuse] = &[
    excuse("attributes-", "EOPNOTSUPP", NO_ATTRIBUTES),
    excuse("attributes-same_values_on_many_files", "", NO_ATTRIBUTES),
    excuse("attributes-lists", "", NO_ATTRIBUTES),
    excuse("attributes-default_lists", "", NO_ATTRIBUTES),
    excuse("attributes-immutable_files", "write of", NOT_ASKED),
    excuse("times-rules_of_attributes", "EOPNOTSUPP", NO_ATTRIBUTES),
    excuse("times-rules_of_what_fails", "EOPNOTSUPP", NO_ATTRIBUTES),
];
