//! POSIX ACLs: the text of PAX records, and the encoding that Linux keeps in attributes.
//!
//! Text is what star, GNU tar and libarchive write: `user::rwx,user:1000:r-x,mask::r-x,...`, entries parted
//! by commas or newlines, kinds in full or by first letter, a number instead of a name, or (star) after it:
//! `user:lisa:r-x:1000`. The encoding is Linux's version 2 (`linux/posix_acl_xattr.h`): a 32-bit
//! version, then 8 bytes per entry: tag and permissions of 16 bits, identifier of 32, little-endian.
//! Conversions lose nothing: text with numbers gives the same attribute again.

/// The attribute that holds the access ACL.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute that holds a directory's default ACL.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;

/// The subject of an entry; the order is the one ACLs are stored in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tag {
    UserObj = 0x01,
    User = 0x02,
    GroupObj = 0x04,
    Group = 0x08,
    Mask = 0x10,
    Other = 0x20,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AclEntry {
    tag: Tag,
    id: u32,
    perm: u16,
}

/// An access control list: entries by tag and number, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<AclEntry>);

/// Fault of an ACL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    /// Text that is no entry.
    #[error("{0:?} is no ACL entry")]
    Entry(String),
    /// A name without a number.
    #[error(
        "the ACL names {0:?}, whose number neither an entry nor etc/passwd and etc/group of the archive, or of what it goes \
        over, say"
    )]
    Name(String),
    /// Bytes that are not version 2 of Linux's encoding.
    #[error("an ACL attribute is not in the encoding of Linux (version 2)")]
    Encoding,
    /// Not exactly one owner, group and other entry, a mask missing, or an entry twice.
    #[error("an ACL lacks an owner, group, other or mask entry, or has one twice")]
    Incomplete,
}

/// Gives the number of a user's or group's name; the second argument is true for groups.
pub type Resolve<'a> = dyn Fn(&[u8], bool) -> Option<u32> + 'a;

impl Acl {
    /// Reads text.
    ///
    /// # Errors
    /// All of [`AclError`] but `Encoding`.
    pub fn parse_text(text: &[u8], resolve: &Resolve<'_>) -> Result<Self, AclError> {
        let mut entries = Vec::new();
        for line in text.split(|&b| b == b',' || b == b'\n') {
            let line = line.split(|&b| b == b'#').next().unwrap_or_default().trim_ascii();
            if !line.is_empty() {
                entries.push(parse_entry(line, resolve)?);
            }
        }
        Self::checked(entries)
    }

    /// Reads an attribute's value.
    ///
    /// # Errors
    /// [`AclError::Encoding`], [`AclError::Incomplete`].
    pub fn decode(value: &[u8]) -> Result<Self, AclError> {
        let (version, rest) = value.split_first_chunk::<4>().ok_or(AclError::Encoding)?;
        let (chunks, tail) = rest.as_chunks::<8>();
        if u32::from_le_bytes(*version) != VERSION || !tail.is_empty() {
            return Err(AclError::Encoding);
        }
        let entries = chunks.iter().map(decode_entry).collect::<Option<_>>();
        Self::checked(entries.ok_or(AclError::Encoding)?)
    }

    /// Writes an attribute's value.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            out.extend_from_slice(&(entry.tag as u16).to_le_bytes());
            out.extend_from_slice(&entry.perm.to_le_bytes());
            out.extend_from_slice(&entry.id.to_le_bytes());
        }
        out
    }

    /// Writes text, with numbers.
    #[must_use]
    pub fn to_text(&self) -> String {
        let lines: Vec<String> = self.0.iter().map(entry_text).collect();
        lines.join(",")
    }

    /// Returns true if permission bits alone say the same.
    #[must_use]
    pub fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    /// The permission bits an access ACL implies: owner, mask or else group, other.
    #[must_use]
    pub fn permissions(&self) -> u16 {
        let of = |tag| self.0.iter().find(|e| e.tag == tag).map(|e| e.perm);
        let group = of(Tag::Mask).or_else(|| of(Tag::GroupObj)).unwrap_or(0);
        of(Tag::UserObj).unwrap_or(0) << 6 | group << 3 | of(Tag::Other).unwrap_or(0)
    }

    /// Changes the numbers of named users and groups. Two that become one number keep the permissions of
    /// the first.
    #[must_use]
    pub fn map_ids(&self, user: impl Fn(u32) -> u32, group: impl Fn(u32) -> u32) -> Self {
        let mut entries = self.0.clone();
        for entry in &mut entries {
            match entry.tag {
                Tag::User => entry.id = user(entry.id),
                Tag::Group => entry.id = group(entry.id),
                _ => {}
            }
        }
        entries.sort_by_key(|e| (e.tag, e.id));
        entries.dedup_by_key(|e| (e.tag, e.id));
        Self(entries)
    }

    /// Sorts, and applies the rules of `acl_valid(3)`.
    fn checked(mut entries: Vec<AclEntry>) -> Result<Self, AclError> {
        entries.sort_unstable();
        let count = |tag| entries.iter().filter(|e| e.tag == tag).count();
        let named = count(Tag::User) + count(Tag::Group);
        let single = [Tag::UserObj, Tag::GroupObj, Tag::Other].iter().all(|&tag| count(tag) == 1);
        let masked = count(Tag::Mask) == 1 || (named == 0 && count(Tag::Mask) == 0);
        let twice = entries.is_sorted_by(|a, b| (a.tag, a.id) < (b.tag, b.id));
        if single && masked && twice { Ok(Self(entries)) } else { Err(AclError::Incomplete) }
    }
}

fn decode_entry(bytes: &[u8; 8]) -> Option<AclEntry> {
    let [tag_low, tag_high, perm_low, perm_high, id @ ..] = *bytes;
    let tag = match u16::from_le_bytes([tag_low, tag_high]) {
        0x01 => Tag::UserObj,
        0x02 => Tag::User,
        0x04 => Tag::GroupObj,
        0x08 => Tag::Group,
        0x10 => Tag::Mask,
        0x20 => Tag::Other,
        _ => return None,
    };
    let perm = u16::from_le_bytes([perm_low, perm_high]);
    let id = if matches!(tag, Tag::User | Tag::Group) { u32::from_le_bytes(id) } else { NO_ID };
    (perm <= 7).then_some(AclEntry { tag, id, perm })
}

fn parse_entry(line: &[u8], resolve: &Resolve<'_>) -> Result<AclEntry, AclError> {
    let bad = || AclError::Entry(line.escape_ascii().to_string());
    let parts: Vec<&[u8]> = line.split(|&b| b == b':').map(<[u8]>::trim_ascii).collect();
    // Solaris and some readers leave the empty name of mask and other out.
    let (kind, name, perm, number) = match parts.as_slice() {
        [kind @ (b"mask" | b"m" | b"other" | b"o"), perm] => (*kind, &b""[..], *perm, None),
        [kind, name, perm] => (*kind, *name, *perm, None),
        [kind, name, perm, number] => (*kind, *name, *perm, Some(*number)),
        _ => return Err(bad()),
    };
    let tag = match (kind, name.is_empty()) {
        (b"user" | b"u", true) => Tag::UserObj,
        (b"user" | b"u", false) => Tag::User,
        (b"group" | b"g", true) => Tag::GroupObj,
        (b"group" | b"g", false) => Tag::Group,
        (b"mask" | b"m", true) => Tag::Mask,
        (b"other" | b"o", true) => Tag::Other,
        _ => return Err(bad()),
    };
    let perm = parse_permissions(perm).ok_or_else(bad)?;
    let id = match tag {
        Tag::User | Tag::Group => identifier(name, number, tag == Tag::Group, resolve)?,
        _ => NO_ID,
    };
    Ok(AclEntry { tag, id, perm })
}

fn identifier(
    name: &[u8],
    number: Option<&[u8]>,
    group: bool,
    resolve: &Resolve<'_>,
) -> Result<u32, AclError> {
    let decimal = |text| super::pax::decimal(text).and_then(|id| u32::try_from(id).ok());
    number
        .and_then(decimal)
        .or_else(|| decimal(name))
        .or_else(|| resolve(name, group))
        .ok_or_else(|| AclError::Name(name.escape_ascii().to_string()))
}

fn parse_permissions(text: &[u8]) -> Option<u16> {
    text.iter().try_fold(0, |bits, byte| match byte {
        b'r' => Some(bits | 4),
        b'w' => Some(bits | 2),
        b'x' => Some(bits | 1),
        b'-' => Some(bits),
        _ => None,
    })
}

fn entry_text(entry: &AclEntry) -> String {
    let bit = |mask: u16, letter| if entry.perm & mask == 0 { '-' } else { letter };
    let perm: String = [bit(4, 'r'), bit(2, 'w'), bit(1, 'x')].iter().collect();
    match entry.tag {
        Tag::UserObj => format!("user::{perm}"),
        Tag::User => format!("user:{}:{perm}", entry.id),
        Tag::GroupObj => format!("group::{perm}"),
        Tag::Group => format!("group:{}:{perm}", entry.id),
        Tag::Mask => format!("mask::{perm}"),
        Tag::Other => format!("other::{perm}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Result<Acl, AclError> {
        Acl::parse_text(text.as_bytes(), &|name, group| (name == b"lisa" && !group).then_some(7))
    }

    #[test]
    fn dialects_of_text_agree() {
        let plain = text("user::rwx,user:7:r-x,group::r-x,mask::r-x,other::r--").unwrap();
        for other in [
            "user::rwx\nuser:lisa:r-x\ngroup::r-x\nmask::r-x\nother::r--\n",
            "u::rwx,u:unknown:rx:7,g::r-x,m:r-x,o:r--",
            "other::r--,mask::r-x,group::r-x, user:7:r-x #effective:r-x,user::rwx",
        ] {
            assert_eq!(text(other).as_ref(), Ok(&plain), "{other}");
        }
        assert_eq!(plain.to_text(), "user::rwx,user:7:r-x,group::r-x,mask::r-x,other::r--");
        assert_eq!(plain.permissions(), 0o754);
        assert!(!plain.is_minimal());
    }

    #[test]
    fn the_encoding_is_that_of_linux() {
        let acl = text("user::rwx,user:7:r-x,group::r-x,mask::r-x,other::r--").unwrap();
        let bytes = acl.encode();
        assert_eq!(bytes[..12], [2, 0, 0, 0, 1, 0, 7, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(bytes[12..20], [2, 0, 5, 0, 7, 0, 0, 0]);
        assert_eq!(Acl::decode(&bytes), Ok(acl));
    }

    #[test]
    fn what_is_no_acl_is_refused() {
        assert_eq!(text("user::rwx,group::r-x"), Err(AclError::Incomplete));
        assert_eq!(text("user::rwx,user:7:r--,group::r-x,other::---"), Err(AclError::Incomplete));
        assert_eq!(text("user::rwx,user::rwx,group::r-x,other::---"), Err(AclError::Incomplete));
        assert_eq!(
            text("user::rwx,user:7:---,user:7:r--,group::r--,mask::r--,other::---"),
            Err(AclError::Incomplete)
        );
        assert!(matches!(text("user:bart:rwx"), Err(AclError::Name(_))));
        assert!(matches!(text("user::rwz"), Err(AclError::Entry(_))));
        assert!(matches!(text("default:user::rwx:::"), Err(AclError::Entry(_))));
        assert_eq!(Acl::decode(b"\x02\0\0"), Err(AclError::Encoding));
        assert_eq!(Acl::decode(b"\x01\0\0\0"), Err(AclError::Encoding));
        assert_eq!(Acl::decode(b"\x02\0\0\0\x03\0\0\0\0\0\0\0"), Err(AclError::Encoding));
        assert_eq!(Acl::decode(b"\x02\0\0\0"), Err(AclError::Incomplete));
    }

    #[test]
    fn mapped_numbers_stay_sorted() {
        let acl =
            text("user::rwx,user:1:r--,user:2:-w-,group::---,group:3:--x,mask::rwx,other::---").unwrap();
        let mapped = acl.map_ids(|id| 10 - id, |id| id + 1);
        let expected = "user::rwx,user:8:-w-,user:9:r--,group::---,group:4:--x,mask::rwx,other::---";
        assert_eq!(mapped.to_text(), expected);
        assert_eq!(Acl::decode(&mapped.encode()), Ok(mapped));
    }
}
