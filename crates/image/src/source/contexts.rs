//! Labels of SELinux: which file gets which, after a table of patterns in the format of `file_contexts`.
//!
//! A line is `PATTERN [TYPE] LABEL`. Patterns are regular expressions for whole paths; a type (`--`, `-d`, `-c`, `-b`,
//! `-l`, `-p`, `-s`) restricts one to files of a kind; the label `<<none>>` gives none. As in libselinux a pattern without
//! any operator comes before all others, and of the others the last that matches counts. The value ends with a NUL, as
//! setfiles writes it.
//!
//! Expressions are those of the crate `regex`: no backreferences, nothing that looks ahead or behind.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::path::Path;

use regex::bytes::{Regex, RegexBuilder};

use super::catalogue::{Catalogue, NodeId, NodeKind};
use super::error::SourceError;
use super::lines;
use crate::archive::Xattr;

/// Longer tables are not read.
const MOST_BYTES: u64 = 64 << 20;
/// Most bytes of a compiled expression.
const MOST_COMPILED: usize = 4 << 20;
/// Expressions that are kept compiled.
const MOST_KEPT: usize = 16 << 10;
const NAME: &[u8] = b"security.selinux";
const OPERATORS: &[u8] = b".^$?*+|[({";

/// A table of labels.
#[derive(Clone, Debug)]
pub struct FileContexts {
    name: String,
    /// Those without operators, by path.
    exact: HashMap<Vec<u8>, Vec<Spec>>,
    patterns: Vec<Spec>,
}

/// One line.
#[derive(Clone, Debug)]
struct Spec {
    number: usize,
    kind: Option<NodeKind>,
    /// `None`: no label.
    label: Option<Box<[u8]>>,
    /// Bytes that every matching path begins with.
    stem: Vec<u8>,
    pattern: String,
}

impl FileContexts {
    /// Reads a table.
    ///
    /// # Errors
    /// [`SourceError::Host`], [`SourceError::Line`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SourceError> {
        let path = path.as_ref();
        Self::parse(&path.display().to_string(), &lines::read(path, MOST_BYTES)?)
    }

    /// Takes the text of a table; `name` is how messages call it.
    ///
    /// # Errors
    /// [`SourceError::Line`].
    pub fn parse(name: &str, text: &str) -> Result<Self, SourceError> {
        let mut contexts =
            FileContexts { name: name.to_owned(), exact: HashMap::new(), patterns: Vec::new() };
        for (number, line) in lines::of(text) {
            let wrong = |problem: String| SourceError::line(name, number, problem);
            let (pattern, kind, label) = columns(line).map_err(wrong)?;
            let label = (label != "<<none>>").then(|| [label.as_bytes(), b"\0"].concat().into());
            let (stem, is_exact) = stem(pattern.as_bytes());
            let spec = Spec { number, kind, label, stem, pattern: pattern.to_owned() };
            // All are tried here, so that a wrong one is found whatever the tree holds.
            spec.compiled().map_err(wrong)?;
            match is_exact {
                true => contexts.exact.entry(spec.stem.clone()).or_default().push(spec),
                false => contexts.patterns.push(spec),
            }
        }
        Ok(contexts)
    }

    /// The name of the table in messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Labels a tree that will be mounted at `mount_point`; says whether any path matched.
    pub(super) fn apply(&self, catalogue: &mut Catalogue, mount_point: &[u8]) -> Result<bool, SourceError> {
        let mut labels =
            Labels { contexts: self, compiled: vec![OnceCell::new(); self.patterns.len()], kept: 0 };
        let mut wanted: Vec<(NodeId, &[u8])> = Vec::new();
        let root = (catalogue.root(), [b"/", mount_point].concat());
        let mut todo = vec![root];
        let mut met = vec![false; catalogue.nodes()];
        while let Some((node, path)) = todo.pop() {
            // Of several names the first counts.
            if std::mem::replace(&mut met[node.index()], true) {
                continue;
            }
            if let Some(label) = labels.of(&path, catalogue.metadata(node).kind)? {
                wanted.push((node, label));
            }
            let above = if path == b"/" { &b""[..] } else { &path };
            let below: Vec<_> =
                catalogue.children(node).map(|(name, child)| (child, [above, b"/", name].concat())).collect();
            todo.extend(below.into_iter().rev());
        }
        let any = !wanted.is_empty();
        let mut sets: HashMap<(u32, &[u8]), u32> = HashMap::new();
        for (node, label) in wanted {
            let had = catalogue.xattr_set(node);
            let set = *sets.entry((had, label)).or_insert_with(|| {
                catalogue.with_xattr(had, &Xattr { name: NAME.into(), value: label.into() })
            });
            catalogue.set_xattr_set(node, set);
        }
        Ok(any)
    }
}

/// Finds labels; expressions are compiled when the first path comes that they may match.
struct Labels<'c> {
    contexts: &'c FileContexts,
    compiled: Vec<OnceCell<Regex>>,
    kept: usize,
}

impl<'c> Labels<'c> {
    fn of(&mut self, path: &[u8], kind: NodeKind) -> Result<Option<&'c [u8]>, SourceError> {
        let contexts = self.contexts;
        let fits = |spec: &&Spec| spec.kind.is_none_or(|wanted| wanted == kind);
        let exact = contexts.exact.get(path).and_then(|specs| specs.iter().rev().find(fits));
        if let Some(spec) = exact {
            return Ok(spec.label.as_deref());
        }
        for (at, spec) in contexts.patterns.iter().enumerate().rev() {
            if fits(&spec) && path.starts_with(&spec.stem) && self.matches(at, spec, path)? {
                return Ok(spec.label.as_deref());
            }
        }
        Ok(None)
    }

    fn matches(&mut self, at: usize, spec: &Spec, path: &[u8]) -> Result<bool, SourceError> {
        if let Some(known) = self.compiled.get(at).and_then(OnceCell::get) {
            return Ok(known.is_match(path));
        }
        let wrong = |problem| SourceError::line(&self.contexts.name, spec.number, problem);
        let regex = spec.compiled().map_err(wrong)?;
        let matches = regex.is_match(path);
        if self.kept < MOST_KEPT
            && let Some(slot) = self.compiled.get(at)
        {
            self.kept += 1;
            // It was empty just now.
            let _ = slot.set(regex);
        }
        Ok(matches)
    }
}

impl Spec {
    fn compiled(&self) -> Result<Regex, String> {
        let whole = format!("(?s-u)^(?:{})$", self.pattern);
        RegexBuilder::new(&whole).size_limit(MOST_COMPILED).build().map_err(|error| {
            let error = error.to_string();
            let last = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
            format!("{:?} is no regular expression: {last}", self.pattern)
        })
    }
}

fn columns(line: &str) -> Result<(&str, Option<NodeKind>, &str), String> {
    let columns: Vec<&str> = line.split_whitespace().collect();
    match columns[..] {
        [pattern, label] => Ok((pattern, None, label)),
        [pattern, kind, label] => Ok((pattern, Some(kind_of(kind)?), label)),
        _ => Err("two or three columns are needed: PATTERN [TYPE] LABEL".into()),
    }
}

fn kind_of(text: &str) -> Result<NodeKind, String> {
    Ok(match text {
        "--" => NodeKind::File,
        "-d" => NodeKind::Directory,
        "-c" => NodeKind::CharDevice,
        "-b" => NodeKind::BlockDevice,
        "-l" => NodeKind::Symlink,
        "-p" => NodeKind::Fifo,
        "-s" => NodeKind::Socket,
        _ => return Err(format!("{text:?} is no type: --, -d, -c, -b, -l, -p or -s")),
    })
}

/// Returns the bytes that every match of a pattern begins with, and true if that is all: a pattern without operators.
fn stem(pattern: &[u8]) -> (Vec<u8>, bool) {
    let mut stem = Vec::new();
    let mut at = 0;
    while let Some(byte) = pattern.get(at).copied() {
        let escaped = pattern.get(at + 1).copied().filter(|_| byte == b'\\');
        match escaped {
            // What is escaped stands for itself, unless it is a letter or digit: a class.
            Some(next) if !next.is_ascii_alphanumeric() => stem.push(next),
            Some(_) => return (stem, false),
            None if OPERATORS.contains(&byte) => {
                // Either side of a bar may match, and what may be left out is no beginning.
                if byte == b'|' || pattern.contains(&b'|') && depth_0_bar(pattern) {
                    return (Vec::new(), false);
                }
                if matches!(byte, b'?' | b'*' | b'{') {
                    stem.pop();
                }
                return (stem, false);
            }
            None => stem.push(byte),
        }
        at += if escaped.is_some() { 2 } else { 1 };
    }
    (stem, true)
}

/// Returns true if a bar stands outside of all brackets, or might.
fn depth_0_bar(pattern: &[u8]) -> bool {
    let mut depth = 0_i32;
    let mut bytes = pattern.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'(' => depth += 1,
            b')' => depth -= 1,
            // Brackets inside a class are none: nothing is known then.
            b'[' => return true,
            b'|' if depth == 0 => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stem_is_what_every_match_begins_with() {
        let of = |pattern: &str| {
            let (stem, exact) = stem(pattern.as_bytes());
            (String::from_utf8(stem).unwrap(), exact)
        };
        let is = |stem: &str, exact| (stem.to_owned(), exact);
        assert_eq!(of("/etc/shadow"), is("/etc/shadow", true));
        assert_eq!(of("/etc/ld\\.so\\.cache"), is("/etc/ld.so.cache", true));
        assert_eq!(of("/etc(/.*)?"), is("/etc", false));
        assert_eq!(of("/lib64?/x"), is("/lib6", false));
        assert_eq!(of("/a|/b"), is("", false));
        assert_eq!(of("/x(a|b)/y"), is("/x", false));
        assert_eq!(of("/x(a)|/y"), is("", false));
        assert_eq!(of("/a\\d"), is("/a", false));
    }

    #[test]
    fn the_last_that_matches_counts_and_exact_paths_first() {
        let table = "/.*  system_u:object_r:default_t:s0\n/etc/passwd -- u:r:passwd:s0\n/etc(/.*)? u:r:etc:s0\n\
                     /etc/[a-z]+ -d u:r:etcdir:s0\n/etc/none <<none>>\n";
        let contexts = FileContexts::parse("fc", table).unwrap();
        let mut labels =
            Labels { contexts: &contexts, compiled: vec![OnceCell::new(); contexts.patterns.len()], kept: 0 };
        let mut of = |path: &str, kind| {
            let label = labels.of(path.as_bytes(), kind).unwrap();
            label.map(|label| String::from_utf8(label.to_vec()).unwrap()).unwrap_or_default()
        };
        assert_eq!(of("/etc/passwd", NodeKind::File), "u:r:passwd:s0\0");
        assert_eq!(of("/etc/passwd", NodeKind::Symlink), "u:r:etc:s0\0");
        assert_eq!(of("/etc/default", NodeKind::Directory), "u:r:etcdir:s0\0");
        assert_eq!(of("/etc/none", NodeKind::File), "");
        assert_eq!(of("/usr", NodeKind::Directory), "system_u:object_r:default_t:s0\0");
    }

    #[test]
    fn wrong_lines_are_named() {
        for line in
            ["/x", "/x -q u:r:t", "/x( u:r:t", "/x -- u:r:t more", "/x(?=y) u:r:t", "(a{999}){999} u:r:t"]
        {
            let error = FileContexts::parse("fc", &format!("/ u:r:t\n{line}\n")).unwrap_err().to_string();
            assert!(error.starts_with("fc: line 2: "), "{error}");
        }
    }
}
