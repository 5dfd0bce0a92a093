//! Comparisons of a user with root.
//!
//! Owns: the rule that rights are asked of capabilities, and the place where user 0 means something else. A service of
//! root's without capabilities is an ordinary user.

use super::source::Code;

/// Comparisons with root.
const FORMS: [&str; 11] = [
    "uid == 0",
    "uid != 0",
    "uid > 0",
    "uid() == 0",
    "uid() != 0",
    "uid().as_raw() == 0",
    "uid().as_raw() != 0",
    "user == 0",
    "user != 0",
    "is_root()",
    "Uid::ROOT",
];

/// Files with such comparisons, how many, and what they are about.
const KNOWN: [(&str, usize, &str); 1] =
    [("crates/serve/src/mount/tree/callers.rs", 1, "access(2) counts capabilities of real user 0 alone")];

/// Complains of comparisons that are not known, and of entries of the list that are wider than the code.
pub(super) fn check(shown: &str, code: &Code, found: &mut Vec<String>) {
    if shown.starts_with("xtask/") {
        return;
    }
    let lines: Vec<usize> =
        FORMS.iter().flat_map(|form| code.text.match_indices(form)).map(|(at, _)| code.line(at)).collect();
    let known = KNOWN.iter().find(|(path, ..)| *path == shown).map_or(0, |(_, count, _)| *count);
    if lines.len() != known {
        found.push(format!(
            "{shown}: compares a user with root in lines {lines:?}, {known} such places are known in \
             xtask/src/tidy/rights.rs; ask for a capability (`Powers`)"
        ));
    }
}
