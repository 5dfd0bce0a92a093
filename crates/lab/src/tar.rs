//! What an archive makes: the names, kinds and lengths of its members, in order, contents left out.
//!
//! Owns: headers of V7, ustar, GNU (long names and links, numbers in base 256) and pax (path, linkpath,
//! size). Excludes: contents, attributes, devices (passed over). Any bytes end or give an error.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

const RECORD: usize = 512;
/// Longest name, or header of pax, that is read.
const LONG: u64 = 1 << 20;
/// Longest path: that of Linux. Each directory above a member is kept by its path.
const PATH: usize = 4096;

/// What a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
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
    pub(crate) what: What,
}

/// What the headers before a member say of it.
#[derive(Default)]
struct Ahead {
    path: Option<String>,
    link: Option<String>,
    size: Option<u64>,
}

/// The members of an archive, directories above them included, each path once.
///
/// # Errors
/// What can't be read, and where the archive is damaged.
pub(crate) fn members(path: &Path) -> Result<Vec<Member>, String> {
    let told = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = BufReader::with_capacity(64 << 10, File::open(path).map_err(told)?);
    read(file).map_err(|error| format!("{}: {error}", path.display()))
}

fn read(mut file: impl Read + Seek) -> Result<Vec<Member>, String> {
    let (mut found, mut known) = (Vec::new(), BTreeSet::new());
    let mut ahead = Ahead::default();
    while let Some(header) = header(&mut file)? {
        let size = ahead.size.take().map_or_else(|| number(&header[124..136]), Ok)?;
        match header[156] {
            b'L' => ahead.path = Some(long(&mut file, size)?),
            b'K' => ahead.link = Some(long(&mut file, size)?),
            b'x' => pax(&long_bytes(&mut file, size)?, &mut ahead)?,
            kind => {
                let path = ahead.path.take().unwrap_or_else(|| name(&header));
                let link = ahead.link.take().unwrap_or_else(|| text(&header[157..257]));
                ahead = Ahead::default();
                let what = what(kind, &path, link, size);
                skip(&mut file, padded(size)?)?;
                if let (Some(what), Some(path)) = (what, plain(&path)) {
                    if path.len() > PATH {
                        return Err(format!("a path of {} bytes; {PATH} are the most", path.len()));
                    }
                    add(&mut found, &mut known, path, what);
                }
            }
        }
    }
    Ok(found)
}

fn what(kind: u8, path: &str, link: String, size: u64) -> Option<What> {
    match kind {
        b'0' | 0 | b'7' if path.ends_with('/') => Some(What::Directory),
        b'0' | 0 | b'7' => Some(What::File(size)),
        b'1' => Some(What::Link(plain(&link)?)),
        b'2' => Some(What::Symlink(link)),
        b'5' => Some(What::Directory),
        _ => None,
    }
}

/// A later member of the same path is the same file written again; here it is passed over.
fn add(found: &mut Vec<Member>, known: &mut BTreeSet<String>, path: String, what: What) {
    let above = path.match_indices('/').map(|(at, _)| &path[..at]);
    for directory in above {
        if known.insert(directory.into()) {
            found.push(Member { path: directory.into(), what: What::Directory });
        }
    }
    let linked = !matches!(&what, What::Link(to) if !known.contains(to));
    if linked && known.insert(path.clone()) {
        found.push(Member { path, what });
    }
}

/// The next header; none at the end, which two records of zeros or the end of the file make.
fn header(file: &mut impl Read) -> Result<Option<[u8; RECORD]>, String> {
    let mut bytes = Vec::with_capacity(RECORD);
    let record = u64::try_from(RECORD).unwrap_or(u64::MAX);
    file.by_ref().take(record).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let record: [u8; RECORD] = bytes.try_into().map_err(|_| "it ends within a header of a member")?;
    if record == [0; RECORD] {
        return Ok(None);
    }
    let sum = record
        .iter()
        .enumerate()
        .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u64::from(*byte) });
    if sum.sum::<u64>() == number(&record[148..156])? {
        Ok(Some(record))
    } else {
        Err("no header of a member".into())
    }
}

/// Octal digits, or a number in base 256.
fn number(field: &[u8]) -> Result<u64, String> {
    let overflow = || "a number that is too large".to_string();
    if let Some((first, rest)) = field.split_first()
        && first & 0x80 != 0
    {
        let add = |sum: u64, byte: &u8| sum.checked_mul(256).map(|sum| sum + u64::from(*byte));
        return rest.iter().try_fold(u64::from(first & 0x3f), add).ok_or_else(overflow);
    }
    let mut digits =
        field.iter().skip_while(|byte| **byte == b' ').take_while(|byte| (b'0'..=b'7').contains(*byte));
    let add = |sum: u64, digit: &u8| sum.checked_mul(8).map(|sum| sum + u64::from(digit - b'0'));
    digits.try_fold(0, add).ok_or_else(overflow)
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

fn name(header: &[u8; RECORD]) -> String {
    let name = text(&header[..100]);
    match text(&header[345..500]) {
        // Only ustar has a prefix; GNU keeps times there.
        prefix if &header[257..263] == b"ustar\0" && !prefix.is_empty() => format!("{prefix}/{name}"),
        _ => name,
    }
}

/// The path without anything that leads nowhere; none for the top and for paths that lead outside.
fn plain(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    (!parts.is_empty() && !parts.contains(&"..")).then(|| parts.join("/"))
}

fn padded(size: u64) -> Result<u64, String> {
    size.checked_next_multiple_of(512).ok_or_else(|| "a member that is too large".to_string())
}

fn skip(file: &mut impl Seek, bytes: u64) -> Result<(), String> {
    let bytes = i64::try_from(bytes).map_err(|_| "a member that is too large")?;
    file.seek_relative(bytes).map_err(|error| error.to_string())
}

fn long_bytes(file: &mut (impl Read + Seek), size: u64) -> Result<Vec<u8>, String> {
    if size > LONG {
        return Err(format!("a name of {size} bytes"));
    }
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    file.read_exact(&mut bytes).map_err(|error| error.to_string())?;
    skip(file, padded(size)? - size)?;
    Ok(bytes)
}

fn long(file: &mut (impl Read + Seek), size: u64) -> Result<String, String> {
    Ok(text(&long_bytes(file, size)?))
}

/// Records of pax: length in decimal, a space, name=value, a line feed.
fn pax(mut bytes: &[u8], ahead: &mut Ahead) -> Result<(), String> {
    let damaged = || "a damaged header of pax".to_string();
    while !bytes.is_empty() {
        let space = bytes.iter().position(|byte| *byte == b' ').ok_or_else(damaged)?;
        let len: usize = text(&bytes[..space]).parse().map_err(|_| damaged())?;
        let record = bytes.get(space + 1..len).ok_or_else(damaged)?;
        let record = text(record.strip_suffix(b"\n").ok_or_else(damaged)?);
        match record.split_once('=').ok_or_else(damaged)? {
            ("path", value) => ahead.path = Some(value.into()),
            ("linkpath", value) => ahead.link = Some(value.into()),
            ("size", value) => ahead.size = Some(value.parse().map_err(|_| damaged())?),
            _ => {}
        }
        bytes = &bytes[len..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// A header with a right sum, and contents behind it.
    fn member(name: &str, kind: u8, size: &str, link: &str, contents: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; RECORD];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        bytes[124..124 + size.len()].copy_from_slice(size.as_bytes());
        bytes[156] = kind;
        bytes[157..157 + link.len()].copy_from_slice(link.as_bytes());
        bytes[257..263].copy_from_slice(b"ustar\0");
        let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>() + 8 * 32;
        bytes[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        bytes.extend(contents);
        bytes.resize(bytes.len().next_multiple_of(RECORD), 0);
        bytes
    }

    #[test]
    fn members_come_with_their_directories_and_long_names() {
        let archive = [
            member("./", b'5', "0", "", b""),
            member("a/b/file", b'0', "5", "", b"hello"),
            member("././@LongLink", b'L', "6", "", b"a/long"),
            member("cut", b'2', "0", "target", b""),
            member("pax", b'x', "30", "", b"14 path=a/paxy\n16 size=0000600\n"[..30].as_ref()),
        ]
        .concat();
        let error = read(Cursor::new(&archive)).unwrap_err();
        assert_eq!(error, "a damaged header of pax");
        let pax = b"15 path=a/paxy\n12 size=600\n";
        let mut archive = archive[..archive.len() - 1024].to_vec();
        archive.extend(member("pax", b'x', "33", "", pax));
        archive.extend(member("cut", b'0', "0", "", &[1; 600]));
        archive.extend(member("a/c", b'1', "0", "./a/b/file", b""));
        archive.extend(member("a/d", b'1', "0", "nowhere", b""));
        archive.extend(member("../out", b'0', "0", "", b""));
        archive.extend(member("dev", b'3', "0", "", b""));
        archive.extend([0; 1024]);
        let found: Vec<_> =
            read(Cursor::new(&archive)).unwrap().into_iter().map(|m| (m.path, m.what)).collect();
        let expected = [
            ("a", What::Directory),
            ("a/b", What::Directory),
            ("a/b/file", What::File(5)),
            ("a/long", What::Symlink("target".into())),
            ("a/paxy", What::File(600)),
            ("a/c", What::Link("a/b/file".into())),
        ];
        assert_eq!(found, expected.map(|(path, what)| (path.to_string(), what)));
    }

    #[test]
    fn damaged_archives_give_errors_or_end() {
        let archive =
            [member("file", b'0', "5", "", b"hello"), member("x", b'x', "15", "", b"15 path=a/paxy\n")]
                .concat();
        for at in 0..archive.len() {
            for value in [0, 0x80, 0xff] {
                let mut damaged = archive.clone();
                damaged[at] = value;
                let _ = read(Cursor::new(&damaged));
            }
            let _ = read(Cursor::new(&archive[..at]));
        }
        assert!(read(Cursor::new(&[7; 512])).is_err());
        assert_eq!(read(Cursor::new(&archive[..500])).unwrap_err(), "it ends within a header of a member");
        assert!(number(&[0xff; 12]).is_err());
    }

    #[test]
    fn deep_paths_are_refused_before_all_above_them_are_kept() {
        let path = "a/".repeat(300_000);
        let archive = [
            member("././@LongLink", b'L', &format!("{:o}", path.len()), "", path.as_bytes()),
            member("cut", b'0', "0", "", b""),
        ];
        let error = read(Cursor::new(&archive.concat())).unwrap_err();
        assert_eq!(error, "a path of 599999 bytes; 4096 are the most");
    }
}
