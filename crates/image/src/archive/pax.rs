//! PAX records: `LENGTH KEY=VALUE\n`, where the length counts the whole record, itself included.
//!
//! [`records`] splits a header's data, [`Overrides`] remembers what the records say about the next
//! entry, [`push`] writes one. Keys understood: those of POSIX (`path`, `linkpath`, `size`, `uid`, `gid`,
//! `mtime`, `atime`, `ctime`), `SCHILY.xattr.*`, `SCHILY.acl.access|default`, `SCHILY.devmajor|devminor`,
//! `LIBARCHIVE.xattr.*`, `LIBARCHIVE.creationtime`, `RHT.security.selinux`, `GNU.sparse.*`. Names of
//! owners are not used: numbers are what a file system keeps. Other keys are ignored, as POSIX asks.

use super::entry::{Timestamp, Xattr};
use super::limits;
use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Fault of a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PaxError {
    /// The length is missing, no number, or reaches past the header's data.
    #[error("a PAX record's length is wrong")]
    Length,
    /// No `=`, or no newline at the end.
    #[error("a PAX record is not `KEY=VALUE` and a newline")]
    Shape,
    /// A number or time that is none, or is out of range.
    #[error("the PAX record {key} has no valid value")]
    Value {
        /// The record's key.
        key: String,
    },
    /// An attribute larger than Linux allows.
    #[error("the extended attribute {key} is larger than Linux allows (name 255, value 65536 bytes)")]
    XattrSize {
        /// The record's key.
        key: String,
    },
    /// More attributes than Linux lists.
    #[error("a file has more extended attributes than Linux lists (their names have 65536 bytes)")]
    XattrList,
    /// More runs than [`limits::SPARSE_RUNS`].
    #[error("a sparse file has more than {} data runs", limits::SPARSE_RUNS)]
    SparseRuns,
}

/// A sparse file's description in PAX records, versions 0.0, 0.1 and 1.0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SparseRecords {
    /// `GNU.sparse.major`: 1 says that the map stands before the data.
    pub major: Option<u64>,
    /// `GNU.sparse.size` or `GNU.sparse.realsize`: the length with holes.
    pub real_size: Option<u64>,
    /// `GNU.sparse.name`: the file's path; the header's own is made up.
    pub name: Option<Vec<u8>>,
    /// `GNU.sparse.map`, or the pairs of version 0.0: offset, length, offset, ...
    pub map: Vec<u64>,
}

/// Fields that records set for the next entry; `None` leaves the header's field in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `path`.
    pub path: Option<Vec<u8>>,
    /// `linkpath`.
    pub target: Option<Vec<u8>>,
    /// `size`.
    pub size: Option<u64>,
    /// `uid`.
    pub uid: Option<u64>,
    /// `gid`.
    pub gid: Option<u64>,
    /// `mtime`.
    pub modified: Option<Timestamp>,
    /// `atime`.
    pub accessed: Option<Timestamp>,
    /// `ctime`.
    pub changed: Option<Timestamp>,
    /// `LIBARCHIVE.creationtime`.
    pub created: Option<Timestamp>,
    /// `SCHILY.devmajor`.
    pub major: Option<u64>,
    /// `SCHILY.devminor`.
    pub minor: Option<u64>,
    /// Extended attributes, each name once.
    pub xattrs: Vec<Xattr>,
    /// `SCHILY.acl.access`.
    pub acl_access: Option<Vec<u8>>,
    /// `SCHILY.acl.default`.
    pub acl_default: Option<Vec<u8>>,
    /// `GNU.sparse.*`.
    pub sparse: SparseRecords,
}

/// One record: its key and its value.
pub type Record<'a> = (&'a [u8], &'a [u8]);

/// Splits the data of an extended header. The iterator ends after its first error.
///
/// # Errors
/// [`PaxError::Length`] and [`PaxError::Shape`].
pub fn records(data: &[u8]) -> impl Iterator<Item = Result<Record<'_>, PaxError>> {
    let mut rest = data;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        match split_record(rest) {
            Ok((record, after)) => {
                rest = after;
                Some(Ok(record))
            }
            Err(error) => {
                rest = &[];
                Some(Err(error))
            }
        }
    })
}

fn split_record(data: &[u8]) -> Result<(Record<'_>, &[u8]), PaxError> {
    let blank = data.iter().take(20).position(|&b| b == b' ').ok_or(PaxError::Length)?;
    let digits = data.get(..blank).ok_or(PaxError::Length)?;
    let len = decimal(digits).and_then(|len| usize::try_from(len).ok()).ok_or(PaxError::Length)?;
    let body = data.get(blank + 1..len).ok_or(PaxError::Length)?;
    let rest = data.get(len..).ok_or(PaxError::Length)?;
    let (&newline, body) = body.split_last().ok_or(PaxError::Shape)?;
    let equals = body.iter().position(|&b| b == b'=').ok_or(PaxError::Shape)?;
    match (newline, body.get(..equals), body.get(equals + 1..)) {
        (b'\n', Some(key), Some(value)) => Ok(((key, value), rest)),
        _ => Err(PaxError::Shape),
    }
}

/// Reads an unsigned decimal number: digits only, at least one.
#[must_use]
pub fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |value, &byte| match byte {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

/// Reads a time: decimal seconds with optional sign and fraction. Digits past the ninth are cut, rounding down.
#[must_use]
pub fn parse_time(text: &[u8]) -> Option<Timestamp> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut parts = text.splitn(2, |&b| b == b'.');
    let seconds = i64::try_from(decimal(parts.next()?)?).ok()?;
    let fraction = parts.next().unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |place: usize| fraction.get(place).map_or(0, |&b| u32::from(b - b'0'));
    let nanos = (0..9).fold(0, |nanos, place| nanos * 10 + digit(place));
    if !negative {
        return Some(Timestamp { seconds, nanoseconds: nanos });
    }
    let cut = fraction.iter().skip(9).any(|&b| b != b'0');
    let below = nanos + u32::from(cut);
    Some(match below {
        0 => Timestamp { seconds: -seconds, nanoseconds: 0 },
        _ => Timestamp { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - below },
    })
}

/// Writes a time as [`parse_time`] reads it, without useless zeros.
#[must_use]
pub fn format_time(time: Timestamp) -> String {
    let nanos = time.nanoseconds.min(999_999_999);
    let (sign, seconds, nanos) = match (time.seconds < 0, nanos) {
        (false, _) | (true, 0) => ("", i128::from(time.seconds), nanos),
        // -1.5 s is stored as -2 s and half a second.
        (true, _) => ("-", -i128::from(time.seconds) - 1, 1_000_000_000 - nanos),
    };
    if nanos == 0 {
        return format!("{sign}{seconds}");
    }
    let text = format!("{sign}{seconds}.{nanos:09}");
    text.trim_end_matches('0').to_owned()
}

/// Appends the record `key=value` to `out`.
pub fn push(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    // Blank, equals sign, newline.
    let body = key.len() + value.len() + 3;
    let mut len = body + digits(body);
    if body + digits(len) != len {
        len = body + digits(len);
    }
    out.extend_from_slice(len.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn digits(number: usize) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

impl Overrides {
    /// Takes in the data of an extended header. A record with an empty value withdraws an earlier one.
    ///
    /// # Errors
    /// Any [`PaxError`]; what was taken in before stays.
    pub fn apply(&mut self, data: &[u8]) -> Result<(), PaxError> {
        let mut first_pair = true;
        for record in records(data) {
            let (key, value) = record?;
            if key == b"GNU.sparse.offset" && std::mem::take(&mut first_pair) {
                self.sparse.map.clear();
            }
            self.apply_record(key, value)?;
        }
        Ok(())
    }

    /// Bytes that a copy of this has beside its own size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let texts = [&self.path, &self.target, &self.acl_access, &self.acl_default, &self.sparse.name];
        let texts = texts.into_iter().flatten().map(Vec::len).sum::<usize>();
        let xattr = |xattr: &Xattr| size_of::<Xattr>() + xattr.name.len() + xattr.value.len();
        texts + self.xattrs.iter().map(xattr).sum::<usize>() + size_of_val(&*self.sparse.map)
    }

    fn apply_record(&mut self, key: &[u8], value: &[u8]) -> Result<(), PaxError> {
        match key {
            b"path" => self.path = text(value),
            b"linkpath" => self.target = text(value),
            b"size" => self.size = number(key, value)?,
            b"uid" => self.uid = number(key, value)?,
            b"gid" => self.gid = number(key, value)?,
            b"mtime" => self.modified = time(key, value)?,
            b"atime" => self.accessed = time(key, value)?,
            b"ctime" => self.changed = time(key, value)?,
            b"LIBARCHIVE.creationtime" => self.created = time(key, value)?,
            b"SCHILY.devmajor" => self.major = number(key, value)?,
            b"SCHILY.devminor" => self.minor = number(key, value)?,
            b"SCHILY.acl.access" => self.acl_access = text(value),
            b"SCHILY.acl.default" => self.acl_default = text(value),
            b"RHT.security.selinux" => self.set_label(key, value)?,
            _ => self.apply_prefixed(key, value)?,
        }
        Ok(())
    }

    fn apply_prefixed(&mut self, key: &[u8], value: &[u8]) -> Result<(), PaxError> {
        if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
            self.set_xattr(key, unescape_name(name), value.to_vec())
        } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
            let name = percent_decode(name);
            // A SCHILY record of the same name carries the value without a detour.
            if self.xattrs.iter().any(|held| *held.name == *name) {
                return Ok(());
            }
            let value = BASE64.decode(value).map_err(|_| value_error(key))?;
            self.set_xattr(key, name, value)
        } else if let Some(name) = key.strip_prefix(b"GNU.sparse.") {
            self.apply_sparse(key, name, value)
        } else {
            Ok(())
        }
    }

    fn apply_sparse(&mut self, key: &[u8], name: &[u8], value: &[u8]) -> Result<(), PaxError> {
        match name {
            b"major" => self.sparse.major = number(key, value)?,
            b"size" | b"realsize" => self.sparse.real_size = number(key, value)?,
            b"name" => self.sparse.name = text(value),
            b"offset" | b"numbytes" => {
                // Version 0.0 repeats the two keys in turn; a break in the turn is no map.
                let expects_offset = self.sparse.map.len().is_multiple_of(2);
                if expects_offset != (name == b"offset") {
                    return Err(value_error(key));
                }
                self.push_map(key, value)?;
            }
            b"map" => {
                self.sparse.map.clear();
                for part in value.split(|&b| b == b',').filter(|_| !value.is_empty()) {
                    self.push_map(key, part)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn push_map(&mut self, key: &[u8], value: &[u8]) -> Result<(), PaxError> {
        if self.sparse.map.len() >= 2 * limits::SPARSE_RUNS {
            return Err(PaxError::SparseRuns);
        }
        self.sparse.map.push(decimal(value).ok_or_else(|| value_error(key))?);
        Ok(())
    }

    /// GNU tar cuts the NUL that Linux keeps at the end of a label.
    fn set_label(&mut self, key: &[u8], value: &[u8]) -> Result<(), PaxError> {
        if self.xattrs.iter().any(|held| *held.name == *b"security.selinux") {
            return Ok(());
        }
        let mut label = value.to_vec();
        label.push(0);
        self.set_xattr(key, b"security.selinux".to_vec(), label)
    }

    fn set_xattr(&mut self, key: &[u8], name: Vec<u8>, value: Vec<u8>) -> Result<(), PaxError> {
        let sized = name.len() <= limits::XATTR_NAME_BYTES && value.len() <= limits::XATTR_VALUE_BYTES;
        if !sized {
            return Err(PaxError::XattrSize { key: lossy(key) });
        }
        if name.is_empty() || name.contains(&0) {
            return Err(value_error(key));
        }
        let (name, value) = (name.into_boxed_slice(), value.into_boxed_slice());
        match self.xattrs.iter_mut().find(|held| held.name == name) {
            Some(held) => held.value = value,
            None => {
                self.xattrs.push(Xattr { name, value });
                let listed = self.xattrs.iter().map(|held| held.name.len() + 1).sum::<usize>();
                if listed > limits::XATTR_LIST_BYTES {
                    return Err(PaxError::XattrList);
                }
            }
        }
        Ok(())
    }
}

/// libarchive writes base64 without padding; others pad.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Escapes an attribute's name for a key: GNU tar writes `%` and `=` as `%25` and `%3D`.
#[must_use]
pub fn escape_name(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'%' => out.extend_from_slice(b"%25"),
            b'=' => out.extend_from_slice(b"%3D"),
            _ => out.push(byte),
        }
    }
    out
}

/// Undoes [`escape_name`], and only that: other writers escape nothing.
fn unescape_name(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, after)) = rest.split_first() {
        let (decoded, next) = match rest.get(..3) {
            Some(b"%25") => (b'%', rest.get(3..)),
            Some(b"%3D") => (b'=', rest.get(3..)),
            _ => (byte, Some(after)),
        };
        out.push(decoded);
        rest = next.unwrap_or_default();
    }
    out
}

fn percent_decode(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = after.get(..2).filter(|_| byte == b'%').and_then(hex_byte);
        out.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    out
}

fn hex_byte(pair: &[u8]) -> Option<u8> {
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    Some(digit(*pair.first()?)? * 16 + digit(*pair.get(1)?)?)
}

fn text(value: &[u8]) -> Option<Vec<u8>> {
    if value.is_empty() { None } else { Some(value.to_vec()) }
}

fn number(key: &[u8], value: &[u8]) -> Result<Option<u64>, PaxError> {
    if value.is_empty() {
        return Ok(None);
    }
    decimal(value).map(Some).ok_or_else(|| value_error(key))
}

fn time(key: &[u8], value: &[u8]) -> Result<Option<Timestamp>, PaxError> {
    if value.is_empty() {
        return Ok(None);
    }
    parse_time(value).map(Some).ok_or_else(|| value_error(key))
}

fn value_error(key: &[u8]) -> PaxError {
    PaxError::Value { key: lossy(key) }
}

fn lossy(key: &[u8]) -> String {
    key.escape_ascii().take(80).map(char::from).collect()
}

#[cfg(test)]
mod tests;
