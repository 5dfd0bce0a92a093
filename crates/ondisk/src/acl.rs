//! POSIX access control lists in the form of the disk and in that of Linux's system calls.
//!
//! ```text
//!  on disk:       version 1 (4 bytes), entries of tag (2), permissions (2) and, only for a named
//!                 user or group, identity (4)
//!  system calls:  version 2 (4 bytes), entries of tag (2), permissions (2), identity (4)
//! ```
//!
//! Sources: acl(5) for the rules of a valid list, the headers `posix_acl_xattr.h` (system calls) and
//! `acl.h` of ext4 (disk) for the two forms. Excludes what a list grants.

use std::fmt;

use crate::units::{high_u16, low_u16};

#[cfg(test)]
mod tests;

const DISK_VERSION: u32 = 1;
const SYSCALL_VERSION: u32 = 2;
const NO_IDENTITY: u32 = u32::MAX;

/// The user or group that an entry is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Subject {
    /// The owner.
    Owner,
    /// A named user, by user id.
    User(u32),
    /// The owning group.
    OwningGroup,
    /// A named group, by group id.
    Group(u32),
    /// Upper bound of all but the owner and the others.
    Mask,
    /// All other users.
    Others,
}

impl Subject {
    fn tag(self) -> u16 {
        match self {
            Subject::Owner => 0x01,
            Subject::User(_) => 0x02,
            Subject::OwningGroup => 0x04,
            Subject::Group(_) => 0x08,
            Subject::Mask => 0x10,
            Subject::Others => 0x20,
        }
    }

    fn identity(self) -> Option<u32> {
        match self {
            Subject::User(id) | Subject::Group(id) => Some(id),
            _ => None,
        }
    }
}

/// One entry of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AclEntry {
    /// The user or group that it is about.
    pub subject: Subject,
    /// Read 4, write 2, execute 1.
    pub permissions: u16,
}

/// Reason for which bytes are not a valid list.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct AclProblem(String);

impl fmt::Display for AclProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "POSIX ACL: {}", self.0)
    }
}

fn problem<T>(text: impl Into<String>) -> Result<T, AclProblem> {
    Err(AclProblem(text.into()))
}

/// An access control list whose entries are well-formed one by one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn word(&mut self) -> Result<u32, AclProblem> {
        let Some((word, rest)) = self.0.split_first_chunk::<4>() else {
            return problem(format!("ends in the middle of an entry, {} bytes too many", self.0.len()));
        };
        self.0 = rest;
        Ok(u32::from_le_bytes(*word))
    }

    fn version(&mut self, expected: u32) -> Result<(), AclProblem> {
        match self.word()? {
            version if version == expected => Ok(()),
            version => problem(format!("version {version} instead of {expected}")),
        }
    }
}

impl Acl {
    /// The entries in stored order.
    #[must_use]
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// Reads either form: `identity_always` says whether each entry has an identity.
    fn parse(bytes: &[u8], version: u32, identity_always: bool) -> Result<Self, AclProblem> {
        // spec: acl
        let mut reader = Reader(bytes);
        reader.version(version)?;
        let mut entries = Vec::new();
        while !reader.0.is_empty() {
            let head = reader.word()?;
            let (tag, permissions) = (low_u16(head), high_u16(head));
            let named = matches!(tag, 0x02 | 0x08);
            let identity = if named || identity_always { reader.word()? } else { NO_IDENTITY };
            let subject = match tag {
                0x01 => Subject::Owner,
                0x02 => Subject::User(identity),
                0x04 => Subject::OwningGroup,
                0x08 => Subject::Group(identity),
                0x10 => Subject::Mask,
                0x20 => Subject::Others,
                _ => return problem(format!("unknown tag {tag:#x}")),
            };
            if permissions > 7 {
                return problem(format!("permissions {permissions:#o} of tag {tag:#x}"));
            }
            if named && identity == NO_IDENTITY {
                return problem(format!("tag {tag:#x} names nobody"));
            }
            entries.push(AclEntry { subject, permissions });
        }
        Ok(Acl { entries })
    }

    /// From the value stored on disk.
    ///
    /// # Errors
    /// A wrong version, an unknown tag, impossible permissions, or a truncated entry.
    pub fn from_disk(bytes: &[u8]) -> Result<Self, AclProblem> {
        Self::parse(bytes, DISK_VERSION, false)
    }

    /// From the value of the attribute `system.posix_acl_access` or `system.posix_acl_default`.
    ///
    /// # Errors
    /// As [`Acl::from_disk`].
    pub fn from_xattr(bytes: &[u8]) -> Result<Self, AclProblem> {
        Self::parse(bytes, SYSCALL_VERSION, true)
    }

    /// Checks that the list as a whole is what Linux accepts: owner, named users, owning group,
    /// named groups, mask, others, in this order; the single ones once, the mask exactly once when
    /// a user or group is named. An empty list stands for none and is valid.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), AclProblem> {
        if self.entries.is_empty() {
            return Ok(());
        }
        let mut last = 0;
        for entry in &self.entries {
            let tag = entry.subject.tag();
            if tag < last || (tag == last && entry.subject.identity().is_none()) {
                return problem(format!("tag {tag:#x} after {last:#x}"));
            }
            last = tag;
        }
        let has = |tag: u16| self.entries.iter().any(|entry| entry.subject.tag() == tag);
        if let Some(missing) = [0x01, 0x04, 0x20].into_iter().find(|tag| !has(*tag)) {
            return problem(format!("no entry with tag {missing:#x}"));
        }
        if (has(0x02) || has(0x08)) && !has(0x10) {
            return problem("names users or groups without a mask");
        }
        Ok(())
    }

    fn has_mask(&self) -> bool {
        self.entries.iter().any(|entry| entry.subject == Subject::Mask)
    }

    /// The place in the mode of what an entry grants: the mask, where there is one, stands for the
    /// group.
    fn shift(&self, subject: Subject) -> Option<u16> {
        match subject {
            Subject::Owner => Some(6),
            Subject::Mask => Some(3),
            Subject::OwningGroup if !self.has_mask() => Some(3),
            Subject::Others => Some(0),
            _ => None,
        }
    }

    /// The nine permission bits that a list makes of a file's mode.
    #[must_use]
    pub fn mode(&self) -> u16 {
        let bits = |entry: &AclEntry| self.shift(entry.subject).map_or(0, |shift| entry.permissions << shift);
        self.entries.iter().map(bits).fold(0, |mode, bits| mode | bits)
    }

    /// True if a list says no more than a mode can.
    #[must_use]
    pub fn is_just_a_mode(&self) -> bool {
        self.entries.iter().all(|entry| entry.subject.identity().is_none() && entry.subject != Subject::Mask)
    }

    /// The list after the nine permission bits were set.
    #[must_use]
    pub fn with_mode(&self, mode: u16) -> Self {
        let set = |entry: &AclEntry| match self.shift(entry.subject) {
            Some(shift) => AclEntry { permissions: mode >> shift & 7, ..*entry },
            None => *entry,
        };
        Acl { entries: self.entries.iter().map(set).collect() }
    }

    /// The list of a file made in a directory with this default list, by a program that asked for a
    /// mode: it grants no more than both.
    #[must_use]
    pub fn inherited(&self, mode: u16) -> Self {
        let cut = |entry: &AclEntry| match self.shift(entry.subject) {
            Some(shift) => AclEntry { permissions: entry.permissions & (mode >> shift & 7), ..*entry },
            None => *entry,
        };
        Acl { entries: self.entries.iter().map(cut).collect() }
    }

    fn encode(&self, version: u32, identity_always: bool) -> Vec<u8> {
        let mut bytes = version.to_le_bytes().to_vec();
        for entry in &self.entries {
            bytes.extend(entry.subject.tag().to_le_bytes());
            bytes.extend(entry.permissions.to_le_bytes());
            match entry.subject.identity() {
                Some(id) => bytes.extend(id.to_le_bytes()),
                None if identity_always => bytes.extend(NO_IDENTITY.to_le_bytes()),
                None => {}
            }
        }
        bytes
    }

    /// The value to store on disk.
    #[must_use]
    pub fn to_disk(&self) -> Vec<u8> {
        self.encode(DISK_VERSION, false)
    }

    /// The value of the attribute as system calls and archives give it.
    #[must_use]
    pub fn to_xattr(&self) -> Vec<u8> {
        self.encode(SYSCALL_VERSION, true)
    }
}
