//! The numbers of `docs/invariants.md`, and the code that cites them.
//!
//! Owns: the rule that each number occurs in the code, and that no other does. [`UNCITED`] lists those that don't yet; it only
//! shrinks.

use super::source::in_name;
use std::collections::BTreeSet;

/// Invariants that no line of code cites yet.
pub(super) const UNCITED: &[u16] = &[1, 2, 3, 4, 5, 6, 7, 12, 14, 15, 16, 19, 37, 38];

/// What citations and document don't agree on. `cited` is what [`citations`] found in all sources.
pub(super) fn check(document: &str, cited: &BTreeSet<u16>, uncited: &[u16], found: &mut Vec<String>) {
    let defined = defined(document);
    for number in defined.iter().filter(|number| !cited.contains(number) && !uncited.contains(number)) {
        found.push(format!("docs/invariants.md: no code cites I{number}; cite it where it is kept"));
    }
    for number in cited.iter().filter(|number| !defined.contains(number)) {
        found.push(format!("docs/invariants.md: the code cites I{number}, which is not there"));
    }
}

/// Numbers that are cited by now.
pub(super) fn slack(cited: &BTreeSet<u16>, found: &mut Vec<String>) {
    for number in UNCITED.iter().filter(|number| cited.contains(number)) {
        found.push(format!("I{number} is cited now; take it out of UNCITED in xtask/src/tidy/invariants.rs"));
    }
}

/// The numbers that the document defines: `**I1**`.
fn defined(document: &str) -> BTreeSet<u16> {
    document.match_indices("**I").filter_map(|(at, _)| number(&document.as_bytes()[at + 3..])).collect()
}

/// The numbers that a source cites, in comments as a rule: `I1`, `(I18, I20)`.
pub(super) fn citations(source: &str) -> impl Iterator<Item = u16> + '_ {
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
