//! Members of an archive: names, kinds and lengths, in order, contents left out.
//!
//! Excludes the tar format, which is `platfs_image`'s; attributes and devices, which are passed over.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use platfs_image::archive::{Entry, EntryKind, Input, Reader};

/// Longest path: that of Linux. Each directory above a member is kept by its path.
const PATH: usize = 4096;

/// Kind of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemberKind {
    Directory,
    /// Its length.
    File(u64),
    /// Its target.
    Symlink(String),
    /// The other name of the file.
    Link(String),
}

/// A member of an archive, by its path without a slash in front or behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) path: String,
    pub(crate) what: MemberKind,
}

/// An archive in a file of a length.
struct Archive(File, u64);

impl Input for Archive {
    fn size(&self) -> u64 {
        self.1
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }
}

/// The members of an archive, directories above them included, each path once.
///
/// # Errors
/// Parts that can't be read, and where the archive is damaged.
pub(crate) fn members(path: &Path) -> Result<Vec<Member>, String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| named(&error))?;
    let size = file.metadata().map_err(|error| named(&error))?.len();
    read(Archive(file, size)).map_err(|error| named(&error))
}

fn read(archive: impl Input) -> Result<Vec<Member>, String> {
    let (mut found, mut known) = (Vec::new(), BTreeSet::new());
    let mut reader = Reader::new(archive);
    while let Some(entry) = reader.next_entry().map_err(|error| error.to_string())? {
        let path = plain(&String::from_utf8_lossy(&entry.path));
        if let (Some(what), Some(path)) = (what(&entry), path) {
            if path.len() > PATH {
                return Err(format!("a path of {} bytes; {PATH} are the most", path.len()));
            }
            add(&mut found, &mut known, path, what);
        }
    }
    Ok(found)
}

fn what(entry: &Entry) -> Option<MemberKind> {
    let target = || String::from_utf8_lossy(&entry.target).into_owned();
    match entry.kind {
        EntryKind::Directory => Some(MemberKind::Directory),
        EntryKind::File => Some(MemberKind::File(entry.size)),
        EntryKind::HardLink => Some(MemberKind::Link(plain(&target())?)),
        EntryKind::Symlink => Some(MemberKind::Symlink(target())),
        EntryKind::CharDevice | EntryKind::BlockDevice | EntryKind::Fifo => None,
    }
}

/// A later member of the same path is the same file written again; here it is passed over.
fn add(found: &mut Vec<Member>, known: &mut BTreeSet<String>, path: String, what: MemberKind) {
    let above = path.match_indices('/').map(|(at, _)| &path[..at]);
    for directory in above {
        if known.insert(directory.into()) {
            found.push(Member { path: directory.into(), what: MemberKind::Directory });
        }
    }
    let linked = !matches!(&what, MemberKind::Link(to) if !known.contains(to));
    if linked && known.insert(path.clone()) {
        found.push(Member { path, what });
    }
}

/// The path without anything that leads nowhere; none for the top and for paths that lead outside.
fn plain(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    (!parts.is_empty() && !parts.contains(&"..")).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: usize = 512;

    /// A header with a right sum, and contents behind it.
    fn member(name: &str, kind: u8, size: &str, link: &str, contents: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; RECORD];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        bytes[124..124 + size.len()].copy_from_slice(size.as_bytes());
        bytes[156] = kind;
        bytes[157..157 + link.len()].copy_from_slice(link.as_bytes());
        bytes[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>() + 8 * 32;
        bytes[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        bytes.extend(contents);
        bytes.resize(bytes.len().next_multiple_of(RECORD), 0);
        bytes
    }

    fn read(archive: &[u8]) -> Result<Vec<Member>, String> {
        super::read(archive)
    }

    #[test]
    fn members_come_with_their_directories_and_long_names() {
        let archive = [
            member("./", b'5', "0", "", b""),
            member("a/b/file", b'0', "5", "", b"hello"),
            member("././@LongLink", b'L', "7", "", b"a/long\0"),
            member("cut", b'2', "0", "target", b""),
            member("pax", b'x', "33", "", b"15 path=a/paxy\n12 size=600\n"),
            member("cut", b'0', "0", "", &[1; 600]),
            member("a/c", b'1', "0", "./a/b/file", b""),
            member("a/d", b'1', "0", "nowhere", b""),
            member("../out", b'0', "0", "", b""),
            member("dev", b'3', "0", "", b""),
            vec![0; 1024],
        ];
        let found: Vec<_> = read(&archive.concat()).unwrap().into_iter().map(|m| (m.path, m.what)).collect();
        let expected = [
            ("a", MemberKind::Directory),
            ("a/b", MemberKind::Directory),
            ("a/b/file", MemberKind::File(5)),
            ("a/long", MemberKind::Symlink("target".into())),
            ("a/paxy", MemberKind::File(600)),
            ("a/c", MemberKind::Link("a/b/file".into())),
        ];
        assert_eq!(found, expected.map(|(path, what)| (path.to_string(), what)));
    }

    #[test]
    fn damaged_archives_give_errors_or_end() {
        let archive =
            [member("file", b'0', "5", "", b"hello"), member("x", b'x', "17", "", b"15 path=a/paxy\n")]
                .concat();
        for at in 0..archive.len() {
            for value in [0, 0x80, 0xff] {
                let mut damaged = archive.clone();
                damaged[at] = value;
                let _ = read(&damaged);
            }
            let _ = read(&archive[..at]);
        }
        assert!(read(&[7; 512]).is_err());
        assert!(read(&archive[..500]).is_err());
    }

    #[test]
    fn deep_paths_are_refused_before_all_above_them_are_kept() {
        for depth in [3_000, 300_000] {
            let path = "a/".repeat(depth);
            let archive = [
                member("././@LongLink", b'L', &format!("{:o}", path.len()), "", path.as_bytes()),
                member("cut", b'0', "0", "", b""),
            ];
            assert!(read(&archive.concat()).is_err(), "{depth}");
        }
    }
}
