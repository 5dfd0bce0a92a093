//! Comparisons of a user with root.
//!
//! Owns: the rule that rights are asked of capabilities, and the places where user 0 means something else. A service of
//! root's without capabilities is an ordinary user.

use super::source::Code;

/// Comparisons with root.
const FORMS: [&str; 6] = ["uid == 0", "uid != 0", "uid() == 0", "uid() != 0", "user == 0", "is_root()"];

/// Files with such comparisons, how many, and what they are about.
const KNOWN: [(&str, usize, &str); 10] = [
    (
        "crates/serve/src/mount/tree/callers.rs",
        5,
        "whose credentials the kernel lends, and who sends requests at all",
    ),
    ("crates/serve/src/mount/tree/guard.rs", 2, "whether others than root's programs have come"),
    (
        "crates/fs/src/ops/reserve.rs",
        3,
        "the format's reserve is for a user; a write from pages has no program",
    ),
    ("crates/serve/src/control/server.rs", 1, "who may connect at all: root's tickets are judged like all"),
    ("crates/host/src/facts.rs", 1, "whose files are trusted: the user's own, and those of root"),
    ("research/lab/src/peers/peer.rs", 1, "what a measurement needs"),
    ("research/lab/src/peers/mbstats.rs", 1, "what a measurement needs"),
    ("crates/testkit/src/mount.rs", 1, "what a test needs"),
    ("crates/testkit/src/tool.rs", 3, "what a test needs"),
    ("crates/testkit/src/odd.rs", 1, "what a test needs"),
];

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
