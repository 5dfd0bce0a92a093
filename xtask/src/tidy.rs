//! The rules of the source tree, each with its remedy in the message. Reads files only; runs as a test, too.

mod book;
mod by_path;
mod citations;
mod ladder;
mod modules;
mod packages;
mod parameters;
mod paths;
mod rights;
mod rungs;
mod source;
#[cfg(test)]
mod tests;
mod words;

use citations::Cited;
use modules::{Modules, Unit, without_tests};
use rungs::LADDERS;
use std::fs;
use std::path::{Path, PathBuf};

/// A crate, and the workspace crates that it may use outside of its tests.
const ARROWS: [(&str, &[&str]); 19] = [
    ("crates/host", &[]),
    ("crates/ondisk", &[]),
    ("crates/device", &["ondisk"]),
    ("crates/check", &["ondisk", "platfs_device"]),
    ("crates/forensics", &["ondisk", "platfs_device"]),
    ("crates/placement", &["ondisk"]),
    ("crates/fs", &["ondisk", "placement", "platfs_device", "platfs_check"]),
    ("crates/fuse", &[]),
    ("crates/chart", &[]),
    ("crates/image", &["ondisk", "platfs", "platfs_host", "platfs_reshape"]),
    ("crates/reshape", &["ondisk", "platfs_device", "platfs_check", "platfs"]),
    (
        "crates/serve",
        &[
            "ondisk",
            "platfs",
            "platfs_forensics",
            "platfs_host",
            "platfs_image",
            "platfs_open",
            "platfs_reshape",
            "fuse",
        ],
    ),
    ("crates/open", &["ondisk", "platfs", "platfs_forensics", "platfs_host", "platfs_image", "platfs_store"]),
    (
        "crates/cli",
        &[
            "ondisk",
            "platfs",
            "platfs_forensics",
            "platfs_host",
            "platfs_image",
            "platfs_open",
            "platfs_reshape",
            "platfs_serve",
            "platfs_store",
            "fuse",
            "chart",
        ],
    ),
    ("crates/store", &["platfs_device", "platfs_host"]),
    ("research/crash", &["platfs", "platfs_reshape", "testkit"]),
    ("research/lab", &["ondisk", "placement", "platfs", "platfs_image", "chart", "crash"]),
    ("crates/testkit", &[]),
    ("xtask", &["testkit"]),
];

/// The workspace's libraries, as `Cargo.toml` and `use` name them.
const OURS: [&str; 16] = [
    "platfs_host",
    "ondisk",
    "placement",
    "platfs",
    "platfs_device",
    "platfs_check",
    "platfs_forensics",
    "platfs_image",
    "platfs_open",
    "platfs_reshape",
    "platfs_serve",
    "platfs_store",
    "fuse",
    "chart",
    "crash",
    "testkit",
];

/// Names that say nothing, and what to say instead.
const BANNED: [(&str, &str); 9] = [
    ("mod utils", "name the module after what it owns"),
    ("mod helpers", "name the module after what it owns"),
    ("mod common", "name the module after what it owns"),
    ("Manager", "name what it does"),
    ("Helper", "name what it does"),
    ("fn get_", "drop the prefix: a getter is called like the thing"),
    ("TODO", "do it, or leave it out"),
    ("FIXME", "fix it"),
    ("XXX", "say what is wrong, or fix it"),
];

/// Longest file, in lines: far beyond the 400 that are the aim, for tables and single deep algorithms.
const LONGEST_FILE: usize = 900;

/// All that is wrong in the tree at `root`, one line each.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for (crate_path, allowed) in ARROWS {
        manifest_arrows(root, crate_path, allowed, &mut found);
    }
    for file in sources(root) {
        let Ok(bytes) = fs::read(&file) else {
            found.push(format!("{}: cannot be read", file.display()));
            continue;
        };
        let shown = shown(root, &file);
        check_file(&shown, &bytes, &mut found);
    }
    book::check(root, &mut found);
    openings(root, &mut found);
    let cited = cited(root);
    if let Some(document) = document(root, "docs/invariants.md", &mut found) {
        citations::check_invariants(&document, &cited, citations::UNCITED, &mut found);
    }
    if let Some(document) = document(root, "docs/spec.md", &mut found) {
        citations::check_sections(&document, &cited, &mut found);
    }
    for path in crates(root) {
        packages::check(root, &path, &mut found);
    }
    ladders(root, &mut found);
    found
}

/// Counts the openings of doc comments in each tree.
fn openings(root: &Path, found: &mut Vec<String>) {
    let trees = crates(root).into_iter().chain(["bindings", "examples", "fuzz"].map(String::from));
    let text = |file: &PathBuf| fs::read_to_string(file).unwrap_or_default();
    let count =
        |tree: &str| files(vec![root.join(tree)]).iter().map(|file| words::openings(&text(file))).sum();
    let counts: Vec<(String, usize)> = trees.map(|tree| (tree.clone(), count(&tree))).collect();
    words::check_openings(&counts, found);
}

/// The rules that look at a crate as a whole.
fn ladders(root: &Path, found: &mut Vec<String>) {
    for path in crates(root).iter().filter(|path| !LADDERS.iter().any(|ladder| ladder.path == *path)) {
        found.push(format!(
            "{path}: has no ladder in xtask/src/tidy/rungs.rs; `cargo xtask figures` prints it"
        ));
    }
    let (mut exceptions, mut tuples) = (0, Vec::new());
    for ladder in LADDERS {
        let units = units(root, ladder.path);
        tuples.extend(tuple_parameters(&units));
        ladder::check(ladder, &Modules::of(&units), found);
        units.iter().for_each(|unit| rights::check(&unit.shown, &unit.code, found));
        exceptions +=
            units.iter().map(|unit| by_path::exceptions(&unit.shown, &unit.code, found)).sum::<usize>();
        let long = long_lists(&units);
        if long.len() > ladder.long_lists {
            found.push(format!(
                "{}: {} functions with more than five parameters, at most {}; make a type of what belongs together:\n  {}",
                ladder.path,
                long.len(),
                ladder.long_lists,
                long.join("\n  ")
            ));
        }
    }
    for tree in by_path::BINDINGS {
        let units = units(root, tree);
        exceptions +=
            units.iter().map(|unit| by_path::exceptions(&unit.shown, &unit.code, found)).sum::<usize>();
    }
    by_path::check(exceptions, found);
    parameters::check_tuples(&tuples, found);
}

/// Bounds of the tables that are wider than the code needs, so that something could grow back.
pub(crate) fn slack(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for ladder in LADDERS {
        let units = units(root, ladder.path);
        let modules = Modules::of(&units);
        ladder::slack(ladder, &modules, &mut found);
        let long = long_lists(&units).len();
        if long < ladder.long_lists {
            found.push(format!("{}: long_lists is {}, {long} will do", ladder.path, ladder.long_lists));
        }
    }
    citations::slack(&cited(root), &mut found);
    found
}

fn document(root: &Path, name: &str, found: &mut Vec<String>) -> Option<String> {
    let text = fs::read_to_string(root.join(name));
    text.map_err(|error| found.push(format!("{name}: {error}"))).ok()
}

/// Collects the citations of all sources, tests included; but the rules themselves name what is not there.
fn cited(root: &Path) -> Cited {
    let mut cited = Cited::default();
    for file in sources(root).iter().filter(|file| !file.starts_with(root.join("xtask"))) {
        cited.add(&fs::read_to_string(file).unwrap_or_default());
    }
    cited
}

/// Figures that the rules count, crate by crate, and the rungs as the code has them.
pub(crate) fn figures(root: &Path) -> String {
    let mut out = String::new();
    for path in crates(root) {
        let units = units(root, &path);
        let modules = Modules::of(&units);
        let knots: Vec<String> = modules.knots().iter().map(|knot| knot.join(" ")).collect();
        let lines = |unit: &Unit| unit.code.text.lines().filter(|line| !line.trim().is_empty()).count();
        out += &format!(
            "{path}: {} lines of code, {} modules, {} functions with more than five parameters\n",
            units.iter().map(lines).sum::<usize>(),
            modules.names.len(),
            long_lists(&units).len()
        );
        for rung in modules.rungs() {
            out += &format!("            {}\n", rung.join(" "));
        }
        for knot in knots {
            out += &format!("        knot: {knot}\n");
        }
    }
    out
}

/// Functions with too many parameters, with their places.
fn long_lists(units: &[Unit]) -> Vec<String> {
    let of = |unit: &Unit| {
        let shown = unit.shown.clone();
        let lists = parameters::long_lists(&unit.code).into_iter();
        lists.map(move |(line, name, count)| format!("{shown}:{line}: {name} has {count}"))
    };
    units.iter().flat_map(of).collect()
}

/// Parameters that are tuples taken apart, with their places.
fn tuple_parameters(units: &[Unit]) -> Vec<String> {
    let of = |unit: &Unit| {
        let shown = unit.shown.clone();
        let tuples = parameters::tuples(&unit.code).into_iter();
        tuples.map(move |(line, name)| format!("{shown}:{line}: {name}"))
    };
    units.iter().flat_map(of).collect()
}

/// The directories of all crates of the workspace.
fn crates(root: &Path) -> Vec<String> {
    let inside = |top: &str| {
        let entries = fs::read_dir(root.join(top)).into_iter().flatten().flatten();
        let with_manifest = entries.filter(|entry| entry.path().join("Cargo.toml").is_file());
        with_manifest
            .map(|entry| format!("{top}/{}", entry.file_name().to_string_lossy()))
            .collect::<Vec<_>>()
    };
    let mut paths = [inside("crates"), inside("research"), vec!["xtask".into()]].concat();
    paths.sort();
    paths
}

/// The files of a crate, tests left out.
fn units(root: &Path, path: &str) -> Vec<Unit> {
    let source = root.join(path).join("src");
    let unit = |file: &PathBuf| {
        let inside = file.strip_prefix(&source).ok()?.to_string_lossy().into_owned();
        Some(Unit::new(&shown(root, file), &inside, &fs::read_to_string(file).ok()?))
    };
    without_tests(files(vec![source.clone()]).iter().filter_map(unit).collect())
}

fn shown(root: &Path, file: &Path) -> String {
    file.strip_prefix(root).unwrap_or(file).to_string_lossy().into_owned()
}

/// Every rule that looks at one file.
fn check_file(shown: &str, bytes: &[u8], found: &mut Vec<String>) {
    let text = String::from_utf8_lossy(bytes);
    ascii(shown, &text, found);
    let lines = text.lines().count();
    if lines > LONGEST_FILE {
        found.push(format!("{shown}: {lines} lines; split it where a second reason to change appears"));
    }
    // The rules themselves name what they forbid.
    if shown.starts_with("xtask/src/tidy") {
        return;
    }
    banned(shown, &text, found);
    words::check_names(shown, &text, found);
    let in_tests = shown.contains("/tests") || shown.contains("/benches") || shown.contains("/examples");
    if !in_tests {
        source_arrows(shown, &text, found);
        door(shown, &text, found);
    }
    if !in_tests && shown.contains("/src/") && !text.starts_with("//!") {
        found.push(format!(
            "{shown}: opens without `//!`; say what the module owns and what it leaves to others"
        ));
    }
}

fn ascii(shown: &str, text: &str, found: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        if let Some(c) = line.chars().find(|c| !c.is_ascii()) {
            found.push(format!("{shown}:{}: {:?} is not ASCII; escape it", number + 1, c));
        }
    }
}

fn banned(shown: &str, text: &str, found: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        for (name, remedy) in BANNED {
            if contains_word(line, name) {
                found.push(format!("{shown}:{}: `{name}`; {remedy}", number + 1));
            }
        }
    }
}

/// Returns true if `line` has `word` with no letter before it; what follows may go on when the word is a prefix (`fn get_`) or a suffix (`LockManager`).
fn contains_word(line: &str, word: &str) -> bool {
    let suffix = word.chars().next().is_some_and(char::is_uppercase) && word.chars().any(char::is_lowercase);
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let open_left = suffix || !before.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let open_right = word.ends_with('_') || !after.is_some_and(|c| c.is_alphanumeric() || c == '_');
        open_left && open_right
    })
}

/// The `[dependencies]` of a crate name no workspace crate beyond `allowed`.
fn manifest_arrows(root: &Path, crate_path: &str, allowed: &[&str], found: &mut Vec<String>) {
    let manifest = root.join(crate_path).join("Cargo.toml");
    let Ok(text) = fs::read_to_string(&manifest) else {
        found.push(format!("{}: cannot be read", manifest.display()));
        return;
    };
    let mut section = "";
    for line in text.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let name = line.split(['.', ' ', '=']).next().unwrap_or("").replace('-', "_");
        if section == "[dependencies]" && OURS.contains(&&*name) && !allowed.contains(&&*name) {
            found.push(format!(
                "{crate_path}/Cargo.toml: depends on {name}; arrows go cli -> fs -> placement -> ondisk"
            ));
        }
    }
}

/// `use` and paths of a source file name no workspace crate beyond what its crate may use; of `ondisk`, `placement` takes `units` only.
fn source_arrows(shown: &str, text: &str, found: &mut Vec<String>) {
    let Some((crate_path, allowed)) = ARROWS.iter().find(|(path, _)| shown.starts_with(&format!("{path}/")))
    else {
        return;
    };
    for (number, line) in code_lines(text) {
        for name in OURS.iter().filter(|name| names_crate(line, name)) {
            if !allowed.contains(name) && !crate_path.ends_with(name) {
                found.push(format!(
                    "{shown}:{number}: uses {name}; arrows go cli -> fs -> placement -> ondisk"
                ));
            }
        }
        let takes_more = line.match_indices("ondisk::").any(|(at, whole)| {
            !["units", "invariant"].iter().any(|taken| line[at + whole.len()..].starts_with(taken))
        });
        if *crate_path == "crates/placement" && takes_more {
            found.push(format!(
                "{shown}:{number}: placement knows integers only; take `ondisk::units` and `ondisk::invariant` and nothing else"
            ));
        }
    }
}

fn names_crate(line: &str, name: &str) -> bool {
    line.match_indices(&format!("{name}::")).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
    })
}

/// Only the door makes a device of a file that exists, so that no command writes to what is in use.
fn door(shown: &str, text: &str, found: &mut Vec<String>) {
    const MAKERS: [&str; 4] = [
        "crates/open/src/door/",
        "crates/open/src/image/mod.rs",
        "crates/image/src/named.rs",
        "crates/image/src/output.rs",
    ];
    const BOUND: [&str; 4] =
        ["crates/cli/src/", "crates/image/src/", "crates/open/src/", "crates/serve/src/"];
    const REPLACERS: [&str; 2] = ["::replacing(", ".overwrite("];
    let is_bound = BOUND.iter().any(|path| shown.starts_with(path));
    if !is_bound || MAKERS.iter().any(|maker| shown.starts_with(maker)) {
        return;
    }
    for (number, line) in code_lines(text) {
        if line.contains("FileDevice::new") || line.contains("open_file(&") || line.contains("spec.open(") {
            found.push(format!(
                "{shown}:{number}: opens an image by itself; use `image::open_read`, `door::open_write` or `door`"
            ));
        }
        if (shown.starts_with("crates/cli/") || shown.starts_with("crates/serve/"))
            && REPLACERS.iter().any(|word| line.contains(word))
        {
            found.push(format!(
                "{shown}:{number}: may replace an image in use; use `door::output` or `door::build_file`"
            ));
        }
    }
}

/// Numbered lines of code up to the tests at the end of a file, without comments.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().take_while(|(_, line)| !line.starts_with("mod tests {"));
    lines.map(|(index, line)| (index + 1, line)).filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Every Rust source of the workspace, in a stable order.
fn sources(root: &Path) -> Vec<PathBuf> {
    files(["crates", "research", "xtask", "fuzz"].iter().map(|name| root.join(name)).collect())
}

/// Every Rust source below these directories, in a stable order.
fn files(mut pending: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("target") {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}
