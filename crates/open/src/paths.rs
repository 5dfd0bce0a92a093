//! Paths of an image as text: patterns, and names as they are printed.
//!
//! Owns: matching names, and reading what [`platfs_image::text::Shown`] prints. Excludes paths of the host, which its shell expands.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use ondisk::inode::FileType;
use platfs::{Error, Volume};

/// A name in a directory.
#[must_use]
pub fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.is_empty() || directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat()
}

/// Most bytes of the paths that one pattern becomes, with what each takes beside. A pattern that matches more is refused: a
/// part of what it means would be worse.
const MOST: usize = 256 << 20;
/// Bytes of a path in memory beside its own.
const EACH: usize = 48;

/// Tells if a path is a pattern.
fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| b"*?[".contains(byte))
}

/// The paths that are meant: as they are, if they lead to something; as they were printed; or as patterns, in order. What
/// means nothing stays as it is.
///
/// # Errors
/// A pattern with its failure: a directory can't be read to its end, or too much matches.
pub fn expanded(volume: &Volume, paths: &[OsString]) -> Result<Vec<OsString>, (OsString, Error)> {
    let mut out = Vec::with_capacity(paths.len());
    for path in paths {
        let bytes = path.as_bytes();
        let is_plain = !matches!(volume.resolve_link(bytes), Err(Error::NotFound));
        let typed = unescaped(bytes).filter(|typed| !is_plain && volume.resolve_link(typed).is_ok());
        let found = match typed {
            Some(typed) => vec![typed],
            None if is_plain || !is_pattern(bytes) => Vec::new(),
            None => matching(volume, bytes, MOST).map_err(|error| (path.clone(), error))?,
        };
        match found.is_empty() {
            true => out.push(path.clone()),
            false => out.extend(found.into_iter().map(OsString::from_vec)),
        }
    }
    Ok(out)
}

fn matching(volume: &Volume, pattern: &[u8], most: usize) -> platfs::Result<Vec<Vec<u8>>> {
    let start = if pattern.starts_with(b"/") { b"/".to_vec() } else { Vec::new() };
    let mut found = vec![start];
    for part in pattern.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        if !is_pattern(part) {
            let longer = found.into_iter().map(|path| joined(&path, part));
            found = longer.filter(|path| volume.resolve_link(path).is_ok()).collect();
            continue;
        }
        let (mut next, mut bytes) = (Vec::new(), 0);
        for path in &found {
            let entries = match volume.resolve(path).and_then(|inode| volume.read_dir(inode)) {
                Ok(entries) => entries,
                // No directory, or a link that leads nowhere: nothing in it matches.
                Err(Error::NotDirectory | Error::NotFound | Error::SymlinkLoop) => continue,
                Err(error) => return Err(error),
            };
            let begin = next.len();
            for entry in entries {
                let name = entry?.name;
                if name == b"." || name == b".." || !is_match(part, &name) {
                    continue;
                }
                let path = joined(path, &name);
                bytes += EACH + path.len();
                if bytes > most {
                    return Err(Error::Invalid("more paths match than are taken at once (256 MiB)".into()));
                }
                next.push(path);
            }
            next.get_mut(begin..).unwrap_or_default().sort_unstable();
        }
        found = next;
    }
    if pattern.ends_with(b"/") {
        let is_directory = |path: &Vec<u8>| {
            let facts = volume.resolve(path).and_then(|inode| volume.metadata(inode));
            facts.is_ok_and(|facts| facts.file_type == FileType::Directory)
        };
        found.retain(is_directory);
        found.iter_mut().for_each(|path| path.push(b'/'));
    }
    Ok(found)
}

/// Tells if a name matches a pattern of `*`, `?`, `[..]` and other bytes. A dot in front is matched by a dot only.
fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    if name.starts_with(b".") && !pattern.starts_with(b".") {
        return false;
    }
    let (mut at, mut on) = (0, 0);
    // Where the last star stands, and how far it reaches: it takes one byte more where the rest does not match.
    let mut star: Option<(usize, usize)> = None;
    while on < name.len() {
        match step(pattern.get(at..).unwrap_or_default(), name.get(on).copied().unwrap_or_default()) {
            Step::Star => {
                star = Some((at + 1, on));
                at += 1;
            }
            Step::Byte(len) => {
                at += len;
                on += 1;
            }
            Step::No => {
                let Some((behind, reached)) = star else { return false };
                star = Some((behind, reached + 1));
                (at, on) = (behind, reached + 1);
            }
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

enum Step {
    Star,
    /// The byte matches so many bytes of the pattern.
    Byte(usize),
    No,
}

fn step(pattern: &[u8], byte: u8) -> Step {
    match pattern {
        [b'*', ..] => Step::Star,
        [b'?', ..] => Step::Byte(1),
        [b'[', rest @ ..] => match class(rest) {
            Some((members, len)) if members(byte) => Step::Byte(len + 1),
            Some(_) => Step::No,
            None if byte == b'[' => Step::Byte(1),
            None => Step::No,
        },
        [first, ..] if *first == byte => Step::Byte(1),
        _ => Step::No,
    }
}

/// The set of bytes behind `[`, and its length with the `]`; nothing if there is none.
fn class(rest: &[u8]) -> Option<(impl Fn(u8) -> bool, usize)> {
    let not = usize::from(rest.first().is_some_and(|byte| b"!^".contains(byte)));
    // A bracket in front is a member.
    let end = rest.iter().enumerate().position(|(at, byte)| *byte == b']' && at > not)?;
    let members = rest.get(not..end).unwrap_or_default().to_vec();
    let is_member = move |byte: u8| {
        let mut left = &members[..];
        let mut found = false;
        while let [first, tail @ ..] = left {
            left = match tail {
                [b'-', last, behind @ ..] => {
                    found |= (*first..=*last).contains(&byte);
                    behind
                }
                _ => {
                    found |= *first == byte;
                    tail
                }
            };
        }
        found != (not == 1)
    };
    Some((is_member, end + 1))
}

/// The bytes of a name as it is printed; nothing if it has no such marks, or wrong ones.
#[must_use]
pub fn unescaped(shown: &[u8]) -> Option<Vec<u8>> {
    if !shown.contains(&b'\\') {
        return None;
    }
    let mut out = Vec::with_capacity(shown.len());
    let mut left = shown;
    while let [first, tail @ ..] = left {
        if *first != b'\\' {
            out.push(*first);
            left = tail;
            continue;
        }
        let (bytes, behind) = mark(tail)?;
        out.extend(bytes);
        left = behind;
    }
    Some(out)
}

/// The bytes that a mark behind a backslash stands for, and the rest.
fn mark(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let hex = |digits: &[u8]| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    match text {
        [b'\\', rest @ ..] => Some((b"\\".to_vec(), rest)),
        [b'n', rest @ ..] => Some((b"\n".to_vec(), rest)),
        [b't', rest @ ..] => Some((b"\t".to_vec(), rest)),
        [b'r', rest @ ..] => Some((b"\r".to_vec(), rest)),
        [b'x', high, low, rest @ ..] => Some((vec![u8::try_from(hex(&[*high, *low])?).ok()?], rest)),
        [b'u', b'{', rest @ ..] => {
            let end = rest.iter().position(|byte| *byte == b'}')?;
            let letter = char::from_u32(hex(rest.get(..end)?)?)?;
            Some((letter.to_string().into_bytes(), rest.get(end + 1..)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platfs_image::text::Shown;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name) in [
            ("*", "a"),
            ("a*", "a"),
            ("*a*b", "xaxbab"),
            ("?b", "ab"),
            ("[a-c]x", "bx"),
            ("[!a]", "b"),
            ("[]]", "]"),
            ("[", "["),
            (".*", ".x"),
            ("*.log", "a.log"),
            ("[a-]", "-"),
            ("**", "abc"),
        ] {
            assert!(is_match(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("*", ".a"),
            ("a*b", "abc"),
            ("?", ""),
            ("?", "ab"),
            ("[a-c]", "d"),
            ("[!a]", "a"),
            ("[", "a"),
            ("a", "b"),
        ] {
            assert!(!is_match(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        // No pattern takes long: each star is tried from one place on only.
        assert!(!is_match(
            &b"*a".repeat(100),
            &b"a".repeat(5000).iter().chain(b"b").copied().collect::<Vec<_>>()
        ));
    }

    #[test]
    fn a_pattern_means_all_that_it_matches_or_nothing() {
        let image = platfs::Image::in_memory(8 << 20).unwrap();
        for name in ["a2", "a1", "b"] {
            image.write(name, b"x").unwrap();
        }
        let found = |pattern: &str, most| matching(image.volume(), pattern.as_bytes(), most);
        assert_eq!(found("a*", MOST).unwrap(), [b"a1".to_vec(), b"a2".to_vec()]);
        assert!(found("a*", 2 * (EACH + 2) - 1).is_err());
        assert_eq!(found("*/", MOST).unwrap(), [b"lost+found/".to_vec()]);
    }

    #[test]
    fn what_is_printed_can_be_typed() {
        for name in [&b"\xff\x00a"[..], b"a\nb\x1b[2J\\x41", "\u{202e}\u{7f}".as_bytes(), b"\\", b"\t\r\n"] {
            let shown = Shown(name).to_string();
            assert_eq!(unescaped(shown.as_bytes()).as_deref(), Some(name), "{shown}");
        }
        for wrong in ["plain", "\\", "\\q", "\\x4", "\\xzz", "\\u{41", "\\u{110000}", "\\u{}"] {
            assert_eq!(unescaped(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
