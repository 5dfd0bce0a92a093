//! The numbers of `docs/invariants.md` and the sections of `docs/spec.md`, and the code that cites them.
//!
//! Owns: the rule that each occurs in the code, and that the code cites no others. [`UNCITED`] lists the invariants that no code
//! cites yet; it only shrinks.

use super::source::in_name;
use std::collections::BTreeSet;

/// Citations of the code.
#[derive(Default)]
pub(super) struct Cited {
    /// Invariants by number.
    pub(super) invariants: BTreeSet<u16>,
    /// Sections of the list of supported bytes by name.
    pub(super) sections: BTreeSet<String>,
}

impl Cited {
    pub(super) fn add(&mut self, source: &str) {
        self.invariants.extend(citations(source));
        self.sections.extend(sections_cited(source));
    }
}

/// Finds where sections and citations don't agree.
pub(super) fn check_sections(document: &str, cited: &Cited, found: &mut Vec<String>) {
    let headings = document.lines().filter_map(|line| line.strip_prefix("## ")?.split_once(": "));
    let defined: BTreeSet<&str> = headings.map(|(name, _)| name).collect();
    for name in defined.iter().filter(|name| !cited.sections.contains(**name)) {
        found.push(format!(
            "docs/spec.md: no code cites `spec: {name}`; cite it where those bytes are decoded"
        ));
    }
    for name in cited.sections.iter().filter(|name| !defined.contains(name.as_str())) {
        found.push(format!("docs/spec.md: the code cites `spec: {name}`, which is no section"));
    }
}

/// The sections that comments cite: `spec: sb`, `spec: dir, inline: why`.
fn sections_cited(source: &str) -> impl Iterator<Item = String> + '_ {
    let comments = source.match_indices("spec:").filter(|(at, _)| {
        let line = source[..*at].rsplit('\n').next().unwrap_or_default();
        let begins = !source[..*at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        begins && line.contains("//")
    });
    comments.flat_map(|(at, word)| {
        // A name may stand on the next line of the comment.
        let rest =
            source[at + word.len()..].trim_start_matches(|c: char| c.is_whitespace() || "/!".contains(c));
        let names =
            rest.split(|c: char| !(c.is_ascii_lowercase() || "-, ".contains(c))).next().unwrap_or_default();
        let mut list = names.split(", ");
        let first = list.next().unwrap_or_default().split(' ').next().unwrap_or_default();
        let others = list.take_while(|name| !name.contains(' '));
        std::iter::once(first)
            .chain(others)
            .map(String::from)
            .filter(|name| !name.is_empty())
            .collect::<Vec<_>>()
    })
}

/// Invariants that no line of code cites yet.
pub(super) const UNCITED: &[u16] = &[];

/// Finds where citations and document don't agree. `cited` is what [`citations`] found in all sources.
pub(super) fn check_invariants(document: &str, cited: &Cited, uncited: &[u16], found: &mut Vec<String>) {
    let cited = &cited.invariants;
    let defined = defined(document);
    for number in defined.iter().filter(|number| !cited.contains(number) && !uncited.contains(number)) {
        found.push(format!("docs/invariants.md: no code cites I{number}; cite it where it is kept"));
    }
    for number in cited.iter().filter(|number| !defined.contains(number)) {
        found.push(format!("docs/invariants.md: the code cites I{number}, which is not there"));
    }
}

/// Numbers that are cited by now.
pub(super) fn slack(cited: &Cited, found: &mut Vec<String>) {
    for number in UNCITED.iter().filter(|number| cited.invariants.contains(number)) {
        found.push(format!("I{number} is cited now; take it out of UNCITED in xtask/src/tidy/citations.rs"));
    }
}

/// The numbers that the document defines: `**I1**`.
fn defined(document: &str) -> BTreeSet<u16> {
    document.match_indices("**I").filter_map(|(at, _)| number(&document.as_bytes()[at + 3..])).collect()
}

/// The numbers that a source cites, in comments as a rule: `I1`, `(I18, I20)`.
fn citations(source: &str) -> impl Iterator<Item = u16> + '_ {
    let bytes = source.as_bytes();
    source.match_indices('I').filter_map(move |(at, _)| {
        let begins = at == 0 || !in_name(bytes[at - 1]);
        number(&bytes[at + 1..]).filter(|_| begins)
    })
}

/// The number that stands here and ends with a byte that can't be of a name.
fn number(rest: &[u8]) -> Option<u16> {
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let ends = !rest.get(digits).is_some_and(|byte| in_name(*byte));
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok().filter(|_| ends)
}
