//! Files that are no archive, but what people take for a source of files: images of file systems and disks.
//!
//! Owns their names, for errors. Excludes reading them.

use super::error::SourceError;
use super::input::Section;
use crate::archive::Input;
use crate::archive::header::{BLOCK, Header};
use ondisk::units::{bounded, saturated};

/// An archive without entries has this many bytes at most: zeros, as many as a tape record may have.
const EMPTY_MAX: u64 = 1 << 20;

/// Where the formats have their magic bytes, and their names.
type Magic = (usize, &'static [u8], &'static str);
const VOLUMES: [Magic; 11] = [
    (1080, b"\x53\xef", "an ext2, ext3 or ext4 volume"),
    (65_600, b"_BHRfS_M", "a btrfs volume"),
    (0, b"XFSB", "an XFS volume"),
    (1024, b"\xe2\xe1\xf5\xe0", "an EROFS volume"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS volume"),
    (32_769, b"CD001", "an ISO 9660 image"),
    (0, b"hsqs", "a squashfs volume"),
    (4096, b"gDla", "an Android image with several partitions (super)"),
    (512, b"EFI PART", "a disk with partitions"),
    (0, b"QFI\xfb", "a qcow2 disk image"),
    (0, b"\x3a\xff\x26\xed", "an Android sparse image"),
];
const ARCHIVES: [Magic; 15] = [
    (0, b"BZh", "packed with bzip2: `bunzip2` unpacks it"),
    (0, b"\x04\x22\x4d\x18", "packed with lz4: `lz4 -d` unpacks it"),
    (0, b"\x02\x21\x4c\x18", "packed with lz4 (the old format of Linux): `lz4 -d` unpacks it"),
    (0, b"LZIP", "packed with lzip: `lzip -d` unpacks it"),
    (0, b"\x5d\0\0", "packed with lzma: `xz -d --format=lzma` unpacks it"),
    (0, b"\x1f\x9d", "packed with compress: `gzip -d` unpacks it"),
    (0, b"\x89LZO\0\r\n\x1a\n", "packed with lzop: `lzop -d` unpacks it"),
    (0, b"070701", CPIO),
    (0, b"070702", CPIO),
    (0, b"070707", CPIO),
    (0, b"\xc7\x71", CPIO),
    (0, b"PK\x03\x04", "a zip archive: `bsdtar -cf - @FILE` makes a tar archive of it"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive: `bsdtar -cf - @FILE` makes a tar archive of it"),
    (
        0,
        b"!<arch>\n",
        "an ar archive (as .deb): `dpkg-deb --fsys-tarfile` gives the tar archive in a package",
    ),
    (0, b"\xed\xab\xee\xdb", "an RPM package: `rpm2archive` makes a tar archive of it"),
];
const CPIO: &str = "a cpio archive: `bsdtar -cf - @FILE` makes a tar archive of it";
/// Bytes from the beginning that tell all of them.
const START: usize = 65_608;

/// The name of the kind of file that begins so, if it is one of these.
pub(super) fn name_in(start: &[u8]) -> Option<&'static str> {
    one_of(&VOLUMES, start).or_else(|| one_of(&ARCHIVES, start))
}

/// True if these bytes begin an archive of a kind that is not read.
pub(super) fn is_other_archive(start: &[u8]) -> bool {
    one_of(&ARCHIVES, start).is_some()
}

fn one_of(kinds: &[Magic], start: &[u8]) -> Option<&'static str> {
    let has = |at: usize, magic: &[u8]| start.get(at..at + magic.len()) == Some(magic);
    kinds.iter().find(|(at, magic, _)| has(*at, magic)).map(|(_, _, name)| *name)
}

/// The name of the kind of file, if it is one of these.
fn name_of(section: &Section) -> Option<&'static str> {
    let len = usize::try_from(section.bytes()).unwrap_or(START).min(START);
    let mut start = vec![0; len];
    section.read_exact_at(0, &mut start).ok()?;
    name_in(&start)
}

/// Refuses what does not begin as an archive does, if its name is known, and what begins as the end of one, unless nothing
/// else is in it.
pub(super) fn refuse(section: &Section, name: &str) -> Result<(), SourceError> {
    let mut start = [0; 2 * BLOCK];
    let len = start.len().min(saturated::<usize>(section.bytes()));
    let start = start.get_mut(..len).unwrap_or_default();
    section.read_exact_at(0, start).map_err(|error| SourceError::host("read", name, error))?;
    let is_end = start.iter().all(|byte| *byte == 0);
    let first = start.first_chunk().map(Header);
    if !is_end && first.is_some_and(|first| first.is_zero() || first.checksum_holds()) {
        return Ok(());
    }
    let is = match name_of(section) {
        Some(is) => is,
        None if !is_end || section.bytes() <= EMPTY_MAX && is_zero(section, name)? => return Ok(()),
        None => "no archive: it begins with zeros and has no entry",
    };
    Err(SourceError::Foreign { archive: name.to_owned(), is })
}

fn is_zero(section: &Section, name: &str) -> Result<bool, SourceError> {
    let mut bytes = vec![0; bounded::<usize>(section.bytes())];
    let read = section.read_exact_at(0, &mut bytes);
    read.map_err(|error| SourceError::host("read", name, error))?;
    Ok(bytes.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: Vec<u8>) -> String {
        refuse(&Section::of_bytes(bytes), "x").map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn volumes_and_disks_are_named_and_empty_archives_taken() {
        let mut volume = vec![0; 1 << 20];
        volume[1080..1082].copy_from_slice(b"\x53\xef");
        assert!(refused(volume).contains("x: is an ext2, ext3 or ext4 volume"));
        let mut disk = vec![0x33; 2048];
        disk[512..520].copy_from_slice(b"EFI PART");
        assert!(refused(disk).contains("a disk with partitions"));
        for zeros in [512, 1024, 10_240, 1 << 20] {
            assert_eq!(refused(vec![0; zeros]), "");
        }
        for (start, word) in [(&b"BZh91AY"[..], "bunzip2"), (b"070701", "bsdtar"), (b"PK\x03\x04", "zip")] {
            let said = refused([start, &[7; 600]].concat());
            assert!(said.contains(word), "{said}");
        }
        assert!(refused(vec![0; 3 << 20]).contains("no entry"));
        assert!(refused([vec![0; 4096], vec![1; 512]].concat()).contains("no entry"));
        // The reader says what is wrong with others.
        assert_eq!(refused(b"text".to_vec()), "");
    }
}
