//! The 512-byte header block: where each field lies, which dialect it speaks, its checksum.
//!
//! Three dialects share the first 257 bytes. What follows differs:
//!
//! | dialect | magic | after byte 345 |
//! | --- | --- | --- |
//! | v7 | none | nothing |
//! | ustar, PAX | `ustar\0` `00` | 155 bytes of path prefix |
//! | GNU | `ustar  \0` | times, sparse map |
//! | star | `ustar\0` `00`, `tar\0` at the end | 131 bytes of prefix, times |

use super::number;
use std::ops::Range;

/// The unit of an archive, in bytes.
pub const BLOCK: usize = 512;
/// [`BLOCK`] as a distance in an archive.
pub const BLOCK_BYTES: u64 = 512;

/// Places of the fields, after POSIX `ustar` and the GNU tar manual.
pub mod field {
    use super::Range;
    /// The path, or its last part.
    pub const NAME: Range<usize> = 0..100;
    /// Permission bits.
    pub const MODE: Range<usize> = 100..108;
    /// Owner.
    pub const UID: Range<usize> = 108..116;
    /// Group.
    pub const GID: Range<usize> = 116..124;
    /// Bytes of data that follow.
    pub const SIZE: Range<usize> = 124..136;
    /// Modification time in seconds.
    pub const MTIME: Range<usize> = 136..148;
    /// The sum of all bytes of the header, this field taken as blanks.
    pub const CHECKSUM: Range<usize> = 148..156;
    /// The kind of entry.
    pub const TYPE: usize = 156;
    /// The target of a link.
    pub const LINK: Range<usize> = 157..257;
    /// Magic and version.
    pub const MAGIC: Range<usize> = 257..265;
    /// The owner's name.
    pub const USER: Range<usize> = 265..297;
    /// The group's name.
    pub const GROUP: Range<usize> = 297..329;
    /// Major device number.
    pub const MAJOR: Range<usize> = 329..337;
    /// Minor device number.
    pub const MINOR: Range<usize> = 337..345;
    /// ustar: what stands before the name, without the slash between.
    pub const PREFIX: Range<usize> = 345..500;
    /// star: the same, shorter.
    pub const STAR_PREFIX: Range<usize> = 345..476;
    /// star: access time.
    pub const STAR_ATIME: Range<usize> = 476..488;
    /// star: time of inode change.
    pub const STAR_CTIME: Range<usize> = 488..500;
    /// star: `tar\0`.
    pub const STAR_MAGIC: Range<usize> = 508..512;
    /// GNU: access time.
    pub const GNU_ATIME: Range<usize> = 345..357;
    /// GNU: time of inode change.
    pub const GNU_CTIME: Range<usize> = 357..369;
    /// GNU: four pairs of offset and length, 12 bytes each number.
    pub const GNU_SPARSE: Range<usize> = 386..482;
    /// GNU: non-zero if a block with more of the map follows.
    pub const GNU_EXTENDED: usize = 482;
    /// GNU: the length of a sparse file with its holes.
    pub const GNU_REAL_SIZE: Range<usize> = 483..495;
    /// GNU, in a block of its own: twenty-one more pairs.
    pub const EXTENSION_SPARSE: Range<usize> = 0..504;
    /// GNU, in a block of its own: non-zero if yet another follows.
    pub const EXTENSION_EXTENDED: usize = 504;
}

/// The magic and version of POSIX headers.
pub const USTAR_MAGIC: &[u8; 8] = b"ustar\x0000";
/// The magic of GNU headers.
pub const GNU_MAGIC: &[u8; 8] = b"ustar  \0";

/// The kind of program that wrote a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Before 1988: no magic.
    V7,
    /// POSIX, with or without PAX records before it.
    Ustar,
    /// GNU tar before PAX.
    Gnu,
    /// Schilling's star.
    Star,
}

/// A header block, any bytes.
#[derive(Clone, Copy)]
pub struct Header<'a>(pub &'a [u8; BLOCK]);

impl<'a> Header<'a> {
    /// The bytes of a field.
    #[must_use]
    pub fn bytes(self, place: Range<usize>) -> &'a [u8] {
        // The places above lie inside the block; an empty slice for any other is harmless.
        self.0.get(place).unwrap_or_default()
    }

    /// A text field up to its NUL, or whole.
    #[must_use]
    pub fn text(self, place: Range<usize>) -> &'a [u8] {
        let bytes = self.bytes(place);
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        bytes.get(..end).unwrap_or_default()
    }

    /// A numeric field; `None` if it is no number.
    #[must_use]
    pub fn number(self, place: Range<usize>) -> Option<i64> {
        number::parse(self.bytes(place))
    }

    /// The kind of entry, as the format's letter.
    #[must_use]
    pub fn type_flag(self) -> u8 {
        self.0[field::TYPE]
    }

    /// Returns true if every byte is zero: such a block marks the end.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0.iter().all(|&b| b == 0)
    }

    /// The kind of program that wrote it.
    #[must_use]
    pub fn dialect(self) -> Dialect {
        let magic = self.bytes(field::MAGIC);
        if magic == GNU_MAGIC {
            Dialect::Gnu
        } else if !magic.starts_with(b"ustar") {
            Dialect::V7
        } else if self.bytes(field::STAR_MAGIC) == b"tar\0" {
            Dialect::Star
        } else {
            Dialect::Ustar
        }
    }

    /// Returns true if the checksum holds. Some old writers summed signed bytes: both are accepted, as by all readers.
    #[must_use]
    pub fn checksum_holds(self) -> bool {
        let stored = self.number(field::CHECKSUM);
        stored == Some(i64::from(self.sum())) || stored == Some(self.signed_sum())
    }

    fn sum(self) -> u32 {
        let all: u32 = self.0.iter().map(|&b| u32::from(b)).sum();
        let own: u32 = self.bytes(field::CHECKSUM).iter().map(|&b| u32::from(b)).sum();
        all - own + 8 * u32::from(b' ')
    }

    fn signed_sum(self) -> i64 {
        let high = self.0.iter().filter(|&&b| b >= 0x80).count();
        let own = self.bytes(field::CHECKSUM).iter().filter(|&&b| b >= 0x80).count();
        // A byte of 0x80 or more counts 256 less when taken as signed; at most 512 bytes.
        i64::from(self.sum()) - 256 * i64::try_from(high - own).unwrap_or(0)
    }

    /// The path from the fixed fields.
    #[must_use]
    pub fn path(self) -> Vec<u8> {
        let prefix = match self.dialect() {
            Dialect::Ustar => self.text(field::PREFIX),
            Dialect::Star => self.text(field::STAR_PREFIX),
            Dialect::V7 | Dialect::Gnu => b"",
        };
        let name = self.text(field::NAME);
        if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
    }
}

/// Puts the checksum of `block` into its place: six octal digits, NUL, blank.
pub fn seal(block: &mut [u8; BLOCK]) {
    let sum = Header(block).sum();
    field_mut(block, field::CHECKSUM).copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// Bytes of a field, whose place is a constant inside of the header ([`field`]).
pub(super) fn field_mut(block: &mut [u8; BLOCK], place: Range<usize>) -> &mut [u8] {
    &mut block[place]
}

/// Rounds a data size up to whole blocks; `None` on overflow.
#[must_use]
pub fn padded(size: u64) -> Option<u64> {
    size.checked_next_multiple_of(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(byte: u8) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        block[..3].copy_from_slice(&[b'f', byte, b'o']);
        block
    }

    #[test]
    fn sealed_headers_hold_and_changed_ones_do_not() {
        let mut header = block(b'o');
        seal(&mut header);
        assert!(Header(&header).checksum_holds());
        header[200] ^= 1;
        assert!(!Header(&header).checksum_holds());
        assert!(!Header(&[0xff; BLOCK]).checksum_holds());
    }

    #[test]
    fn a_signed_sum_is_accepted() {
        let mut header = block(0xe9);
        let signed = i64::from(b'f') - 23 + i64::from(b'o') + 8 * 32;
        header[field::CHECKSUM].copy_from_slice(format!("{signed:06o}\0 ").as_bytes());
        assert!(Header(&header).checksum_holds());
    }

    #[test]
    fn prefix_belongs_to_posix_only() {
        let mut header = block(b'o');
        header[field::PREFIX][..3].copy_from_slice(b"dir");
        assert_eq!(Header(&header).path(), b"foo");
        header[field::MAGIC].copy_from_slice(USTAR_MAGIC);
        assert_eq!(Header(&header).path(), b"dir/foo");
        header[field::STAR_MAGIC].copy_from_slice(b"tar\0");
        assert_eq!(Header(&header).dialect(), Dialect::Star);
        header[field::MAGIC].copy_from_slice(GNU_MAGIC);
        assert_eq!(Header(&header).path(), b"foo");
    }

    #[test]
    fn names_may_fill_their_field() {
        let header = [b'a'; BLOCK];
        assert_eq!(Header(&header).text(field::NAME).len(), 100);
    }
}
