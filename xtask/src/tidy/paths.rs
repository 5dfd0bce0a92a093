//! The paths of a source that begin in its own crate: `crate::a::b`, `super::c`, and every branch of `use crate::{a, b::c}`.
//!
//! Owns: reading path trees. Excludes what the names mean ([`super::modules`]).

use super::source::{Code, in_name};

/// A path: where it begins, and its names from the root of the crate on.
pub(super) struct Path {
    pub(super) at: usize,
    pub(super) names: Vec<String>,
}

/// All paths that begin with `crate` or `super` in a file of the module `here`.
pub(super) fn own_paths(code: &Code, here: &[String]) -> Vec<Path> {
    let mut found = Vec::new();
    for word in ["crate", "super"] {
        for at in words(&code.text, word) {
            let (branches, _) = branches(code.text.as_bytes(), at);
            found.extend(branches.into_iter().filter_map(|names| {
                let names = from_root(here, &names)?;
                Some(Path { at, names })
            }));
        }
    }
    found.sort_by_key(|path| path.at);
    found
}

/// The trees of all `use` items, as they are written.
pub(super) fn uses(code: &Code) -> Vec<Vec<String>> {
    let text = code.text.as_bytes();
    words(&code.text, "use").flat_map(|at| branches(text, skip_space(text, at + 3)).0).collect()
}

/// Where a word stands alone.
pub(super) fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = text.as_bytes();
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        let after = bytes.get(at + word.len());
        !before.is_some_and(|byte| in_name(*byte) || *byte == b':')
            && !after.is_some_and(|byte| in_name(*byte))
    })
}

/// A path by names from the root of the crate on; `None` where `super` leads out of the file's module tree.
fn from_root(here: &[String], names: &[String]) -> Option<Vec<String>> {
    if names.first().is_some_and(|name| name == "crate") {
        return Some(names[1..].to_vec());
    }
    let up = names.iter().take_while(|name| *name == "super").count();
    let base = here.get(..here.len().checked_sub(up)?)?;
    Some([base, &names[up..]].concat())
}

/// All branches of the path tree that begins here, and where it ends.
fn branches(text: &[u8], at: usize) -> (Vec<Vec<String>>, usize) {
    let start = skip_space(text, at);
    if text.get(start) == Some(&b'{') {
        return braced(text, start + 1);
    }
    let end = start + text[start..].iter().take_while(|byte| in_name(**byte) || **byte == b'*').count();
    let name = String::from_utf8_lossy(&text[start..end]).into_owned();
    let separator = skip_space(text, end);
    let goes_on = text[separator..].starts_with(b"::") && text.get(separator + 2) != Some(&b'<');
    if name.is_empty() {
        return (Vec::new(), end);
    }
    if !goes_on {
        return (vec![vec![name]], end);
    }
    let (below, end) = branches(text, separator + 2);
    let with_name = |below: Vec<String>| [vec![name.clone()], below].concat();
    (below.into_iter().map(with_name).collect(), end)
}

/// The branches up to a closing brace.
fn braced(text: &[u8], start: usize) -> (Vec<Vec<String>>, usize) {
    let (mut all, mut at) = (Vec::new(), start);
    loop {
        let (more, end) = branches(text, at);
        all.extend(more);
        // `as name` and spaces.
        let stop = text[end..].iter().position(|byte| matches!(byte, b',' | b'}' | b';'));
        let Some(stop) = stop.map(|stop| end + stop) else { return (all, text.len()) };
        if text[stop] != b',' {
            return (all, stop + 1);
        }
        at = stop + 1;
    }
}

fn skip_space(text: &[u8], at: usize) -> usize {
    at + text.get(at..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}
