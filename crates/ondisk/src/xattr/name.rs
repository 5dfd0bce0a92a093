//! Names of attributes: the index that stands for what a name begins with.

use std::fmt;

/// Longest name that system calls take, prefix included, in bytes (`XATTR_NAME_MAX`).
pub const NAME_MAX: usize = 255;

/// Prefix of an attribute's name, as stored in `e_name_index`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NameIndex(pub u8);

impl NameIndex {
    /// `user.`
    pub const USER: NameIndex = NameIndex(1);
    /// `system.posix_acl_access`, the whole name.
    pub const POSIX_ACL_ACCESS: NameIndex = NameIndex(2);
    /// `system.posix_acl_default`, the whole name.
    pub const POSIX_ACL_DEFAULT: NameIndex = NameIndex(3);
    /// `trusted.`
    pub const TRUSTED: NameIndex = NameIndex(4);
    /// `lustre.`
    pub const LUSTRE: NameIndex = NameIndex(5);
    /// `security.`
    pub const SECURITY: NameIndex = NameIndex(6);
    /// `system.`; only `system.data` (inline data) is in use.
    pub const SYSTEM: NameIndex = NameIndex(7);
    /// `system.richacl`, the whole name.
    pub const RICHACL: NameIndex = NameIndex(8);
    /// `encryption.`: the encryption context, not reachable by system calls.
    pub const ENCRYPTION: NameIndex = NameIndex(9);
    /// `gnu.`: attributes of the Hurd.
    pub const HURD: NameIndex = NameIndex(10);

    /// True if attributes of this kind hold a POSIX ACL.
    #[must_use]
    pub fn is_posix_acl(self) -> bool {
        matches!(self, NameIndex::POSIX_ACL_ACCESS | NameIndex::POSIX_ACL_DEFAULT)
    }

    fn row(self) -> Option<&'static Row> {
        ROWS.iter().find(|row| row.index == self)
    }
}

struct Row {
    index: NameIndex,
    text: &'static str,
    /// True if users of the library may set such attributes.
    settable: bool,
}

const fn row(index: NameIndex, text: &'static str, settable: bool) -> Row {
    Row { index, text, settable }
}

/// Texts with a final dot are prefixes, the others whole names; whole names come first, so that a
/// search by prefix meets them before `system.`.
const ROWS: [Row; 10] = [
    row(NameIndex::POSIX_ACL_ACCESS, "system.posix_acl_access", true),
    row(NameIndex::POSIX_ACL_DEFAULT, "system.posix_acl_default", true),
    row(NameIndex::RICHACL, "system.richacl", false),
    row(NameIndex::USER, "user.", true),
    row(NameIndex::TRUSTED, "trusted.", true),
    row(NameIndex::SECURITY, "security.", true),
    row(NameIndex::HURD, "gnu.", true),
    row(NameIndex::LUSTRE, "lustre.", false),
    row(NameIndex::SYSTEM, "system.", false),
    row(NameIndex::ENCRYPTION, "encryption.", false),
];

/// The whole name as system calls and archives give it; `unknown-INDEX.` before names whose index
/// has no meaning.
#[must_use]
pub fn full_name(index: NameIndex, name: &[u8]) -> Vec<u8> {
    let mut full = match index.row() {
        Some(row) => row.text.as_bytes().to_vec(),
        None => format!("unknown-{}.", index.0).into_bytes(),
    };
    if !name.is_empty() && !full.ends_with(b".") {
        full.push(b'.');
    }
    full.extend_from_slice(name);
    full
}

/// Reason for which an attribute can't have a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NameProblem {
    /// More than [`NAME_MAX`] bytes.
    TooLong(usize),
    /// Contains a NUL byte, or nothing follows the prefix.
    Malformed,
    /// The format has no index for what it begins with.
    UnknownPrefix,
    /// The attribute belongs to the file system itself.
    Reserved,
}

impl fmt::Display for NameProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameProblem::TooLong(len) => write!(f, "the name has {len} bytes, at most {NAME_MAX}"),
            NameProblem::Malformed => write!(f, "nothing follows the prefix, or a NUL byte does"),
            NameProblem::UnknownPrefix => {
                write!(
                    f,
                    "the format has no such prefix (user., trusted., security., system.posix_acl_*, gnu.)"
                )
            }
            NameProblem::Reserved => write!(f, "the attribute belongs to the file system"),
        }
    }
}

/// Splits a whole name into the stored index and the rest, for attributes that may be set.
///
/// # Errors
/// A name that breaks a rule, with the rule.
pub fn split_name(full: &[u8]) -> Result<(NameIndex, &[u8]), NameProblem> {
    if full.len() > NAME_MAX {
        return Err(NameProblem::TooLong(full.len()));
    }
    let matching = ROWS.iter().find_map(|row| {
        let rest = full.strip_prefix(row.text.as_bytes())?;
        (row.text.ends_with('.') || rest.is_empty()).then_some((row, rest))
    });
    let (row, rest) = matching.ok_or(NameProblem::UnknownPrefix)?;
    if !row.settable {
        return Err(NameProblem::Reserved);
    }
    if rest.contains(&0) || rest.is_empty() == row.text.ends_with('.') {
        return Err(NameProblem::Malformed);
    }
    Ok((row.index, rest))
}
