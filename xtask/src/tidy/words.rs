//! Words of comments and names: how a doc comment begins, and names that were replaced by the field's terms.
//!
//! Owns: counting doc comments that say "what", "who" or "why" in place of the thing itself, the bound of each tree, and the
//! list of retired names. Excludes everything that a reader has to judge.

use super::source::Code;

/// First words of a doc comment that promise an explanation in place of the thing. A verb or a noun says it shorter.
const OPENINGS: [&str; 7] = ["What", "Whether", "The same", "Which", "Who", "How", "Why"];

/// Most lines of documentation with such an opening, by trees; trees that are not listed have none. A number only falls.
/// The command has help texts with them.
const BOUNDS: &[(&[&str], usize)] = &[
    (&["crates/cli"], 67),
    (&["crates/serve"], 58),
    (&["crates/fs"], 48),
    (&["research/lab", "research/crash"], 40),
    (&["crates/fuse"], 28),
    (&["bindings"], 11),
    (&["crates/open", "crates/testkit"], 11),
];

/// Names that were metaphors or single words for many things, and the term that took their place.
pub(super) const RETIRED: &[(&str, &str)] = &[
    ("Debt", "UnreservedWrites"),
    ("Dress", "CopiedAttributes"),
    ("Gatherer", "PageFlusher"),
    ("Grown", "Versioned"),
    ("Keeping", "SnapshotDevice"),
    ("Mute", "NullSink"),
    ("Promptness", "SyncPolicy"),
    ("Relief", "WritebackUrgency"),
    ("Reseeded", "SeedRepair"),
    ("Seat", "ServerThread"),
    ("Sight", "Snapshot"),
    ("Strays", "OrphanedGrants"),
    ("Sureness", "Confidence"),
    ("Towards", "RelocationGoal"),
    ("Turns", "SchedStats"),
    ("Voice", "Reporter"),
    ("bury", "orphan_or_delete"),
    ("doom", "mark_deleting"),
    ("giving_way", "idle_scheduling"),
    ("in_need", "low_space"),
    ("known_as", "logical"),
    ("settlements", "free_generation"),
    ("take_lent", "borrow_block"),
    ("witness", "needs_recovery"),
];

/// Lines of documentation in a file that begin with one of [`OPENINGS`].
pub(super) fn openings(text: &str) -> usize {
    let begins = |line: &&str| {
        let line = line.trim_start();
        let said = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! ")).unwrap_or_default();
        OPENINGS.iter().any(|word| {
            let rest = said.strip_prefix(word);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        })
    };
    text.lines().filter(begins).count()
}

/// Compares the counts of trees with their bounds.
pub(super) fn check_openings(counts: &[(String, usize)], found: &mut Vec<String>) {
    let bound = |tree: &str| BOUNDS.iter().position(|(trees, _)| trees.contains(&tree));
    for (index, (trees, most)) in BOUNDS.iter().enumerate() {
        let own = counts.iter().filter(|(tree, _)| bound(tree) == Some(index));
        compare(&trees.join(" "), own.map(|(_, count)| count).sum(), *most, found);
    }
    for (tree, count) in counts.iter().filter(|(tree, _)| bound(tree).is_none()) {
        compare(tree, *count, 0, found);
    }
}

fn compare(trees: &str, count: usize, most: usize, found: &mut Vec<String>) {
    if count > most {
        found.push(format!(
            "{trees}: {count} doc lines begin with one of {OPENINGS:?}, at most {most}; begin with a verb or a noun \
             (\"Returns ..\", \"Number of ..\", \"True if ..\")"
        ));
    }
}

/// Finds retired names in the code of a file, comments and strings left out.
pub(super) fn check_names(shown: &str, text: &str, found: &mut Vec<String>) {
    // Most files have none of them, and need not be cut into code and comments.
    if !RETIRED.iter().any(|(name, _)| text.contains(name)) {
        return;
    }
    let code = Code::of(text);
    for (number, line) in code.text.lines().enumerate() {
        for (name, term) in RETIRED.iter().filter(|(name, _)| has_word(line, name)) {
            found.push(format!("{shown}:{}: `{name}` was retired; use {term}", number + 1));
        }
    }
}

fn has_word(line: &str, word: &str) -> bool {
    let is_name = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        !is_name(line[..at].chars().next_back()) && !is_name(line[at + word.len()..].chars().next())
    })
}
