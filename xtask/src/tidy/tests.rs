use super::citations::{Cited, check_invariants, check_sections};
use super::modules::{Modules, Unit, without_tests};
use super::rungs::Ladder;
use super::{check, check_file, ladder, long_lists, packages, slack, tuple_parameters, words};
use std::path::Path;

fn findings(file: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    check_file(file, text.as_bytes(), &mut found);
    found
}

#[test]
fn the_tree_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let found = check(root);
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn the_bounds_are_tight() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let found = slack(root);
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn each_rule_is_findings() {
    let cases = [
        ("crates/placement/src/engine.rs", "//! x\nuse ondisk::inode::Inode;\n", "units"),
        ("crates/ondisk/src/group.rs", "//! x\nuse placement::Engine;\n", "arrows"),
        ("crates/cli/src/ls.rs", "//! x\nfn f() { placement::x() }\n", "arrows"),
        ("crates/cli/src/ls.rs", "//! x\n// caf\u{e9}\n", "ASCII"),
        ("crates/cli/src/ls.rs", "//! x\nstruct BlockManager;\n", "Manager"),
        ("crates/cli/src/ls.rs", "//! x\nfn get_block() {}\n", "getter"),
        ("crates/cli/src/ls.rs", "//! x\nuse fuse::Seat;\n", "ServerThread"),
        ("crates/cli/src/ls.rs", "use std::io;\n", "//!"),
        ("crates/cli/src/ls.rs", "//! x\nfn f() { FileDevice::new(file) }\n", "open_write"),
        ("crates/cli/src/ls.rs", "//! x\nfn f() { builder.overwrite(true) }\n", "build_file"),
        ("crates/image/src/ls.rs", "//! x\nfn f() { FileDevice::new(file) }\n", "open_write"),
        ("crates/cli/src/ls.rs", &format!("//! x\n{}", "\n".repeat(1000)), "lines"),
    ];
    for (file, text, expected) in cases {
        let found = findings(file, text);
        assert_eq!(found.len(), 1, "{file}: {found:?}");
        assert!(found[0].contains(expected), "{found:?}");
    }
}

#[test]
fn what_is_allowed_is_not_findings() {
    let cases = [
        ("crates/fs/src/ops/names.rs", "//! x\nuse placement::Engine;\n"),
        ("crates/placement/src/engine.rs", "//! x\nuse ondisk::units::Block;\n"),
        ("crates/fs/tests/all.rs", "use testkit::fsck::assert_clean;\n"),
        ("crates/cli/src/ls.rs", "//! x\nfn target_path() {}\n"),
        ("crates/cli/src/ls.rs", "//! x\n/// A Seat.\nstruct SeatCount;\n"),
        ("crates/open/src/door/mod.rs", "//! x\nfn f() { FileDevice::new(file) }\n"),
    ];
    for (file, text) in cases {
        assert_eq!(findings(file, text), Vec::<String>::new(), "{file}");
    }
}

const SMALL: Ladder = Ladder {
    path: "crates/fs",
    rungs: "
        ops
        file dir
        map
        cache txn
        device
    ",
    knots: &[("cache txn", "they are one thing")],
    long_lists: 0,
};

/// A crate with these files, tests left out.
fn small(files: &[(&str, &str)]) -> Vec<Unit> {
    let rest = ["ops", "file", "dir", "map", "cache", "txn", "device"].map(|name| format!("{name}/rest.rs"));
    let rest = rest.iter().map(|name| Unit::new(name, name, ""));
    without_tests(rest.chain(files.iter().map(|(name, text)| Unit::new(name, name, text))).collect())
}

/// Findings of the ladder for a crate with these files.
fn climbs(files: &[(&str, &str)]) -> Vec<String> {
    let mut found = Vec::new();
    ladder::check(&SMALL, &Modules::of(&small(files)), &mut found);
    found
}

#[test]
fn each_way_to_climb_is_findings() {
    let cases = [
        ("map/mod.rs", "//! x\nuse crate::ops::verbs;\n", "map/mod.rs:2: map calls up to ops"),
        ("cache.rs", "//! x\nfn f() { crate::map::begin() }\n", "cache.rs:2: cache calls up to map"),
        (
            "cache.rs",
            "use crate::{\n    device::{self, Device},\n    file::File as F,\n};\n",
            "cache calls up to file",
        ),
        ("map/tree/leaf.rs", "use super::super::super::dir::Dir;\n", "map calls up to dir"),
        ("map.rs", "use super::dir;\n", "map calls up to dir"),
        ("map.rs", "fn f() -> &'static str { crate :: ops :: name() }\n", "map calls up to ops"),
        ("file.rs", "use crate::dir::Dir;\n", "file calls across to dir"),
        ("file.rs", "#[cfg(not(test))]\nuse crate::dir::Dir;\n", "file calls across to dir"),
        ("new.rs", "//! x\n", "`new` has no rung"),
    ];
    for (file, text, expected) in cases {
        let found = climbs(&[(file, text)]);
        assert_eq!(found.len(), 1, "{file}: {found:?}");
        assert!(found[0].contains(expected), "{found:?}");
    }
    // What the root re-exports is of the module that has it.
    let root = ("lib.rs", "mod ops;\npub use ops::{verbs::Verb, Other as Name};\n");
    let found = climbs(&[root, ("device.rs", "use crate::Verb;\n")]);
    assert!(found.len() == 1 && found[0].contains("device calls up to ops"), "{found:?}");
}

#[test]
fn no_climb_is_told_where_there_is_none() {
    let cases = [
        ("ops/names.rs", "use crate::{map::Map, cache};\nuse super::super::dir;\n"),
        ("cache.rs", "use crate::txn::Txn;\n"),
        ("map.rs", "// see crate::ops::names\n/* crate::ops */\nconst A: &str = \"crate::ops::x\";\n"),
        ("map.rs", "const A: &[u8] = br#\"crate::ops::\"#;\nconst B: char = '\"';\n// crate::ops::x\"\n"),
        ("map.rs", "fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::ops::Verb;\n}\n"),
        ("map.rs", "#[cfg(all(test, not(shuttle)))]\nuse crate::ops::{Verb, Other};\n"),
        ("map/mod.rs", "use super::map::Map;\nuse crate::device::x::<crate::device::Y>;\n"),
    ];
    for (file, text) in cases {
        assert_eq!(climbs(&[(file, text)]), Vec::<String>::new(), "{file}: {text}");
    }
    let declared = ("map/mod.rs", "#[cfg(test)]\nmod trial;\n");
    assert_eq!(climbs(&[declared, ("map/trial/odd.rs", "use crate::ops::Verb;\n")]), Vec::<String>::new());
}

#[test]
fn circles_are_found_and_put_on_one_rung() {
    let modules = Modules::of(&small(&[
        ("ops.rs", "use crate::{file, dir};\n"),
        ("file.rs", "use crate::map;\n"),
        ("map.rs", "use crate::{dir, device};\n"),
        ("dir.rs", "use crate::file;\n"),
        ("cache.rs", "use crate::device;\n"),
    ]));
    assert_eq!(modules.knots(), [["dir", "file", "map"]]);
    let rungs: Vec<String> = modules.rungs().iter().map(|rung| rung.join(" ")).collect();
    assert_eq!(rungs, ["ops", "cache dir file map", "device txn"]);
    let mut found = Vec::new();
    ladder::slack(&SMALL, &modules, &mut found);
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn parameters_that_are_tuples_are_counted() {
    let text = "fn plain(&self, a: (u8, u8), b: impl Fn(u8, (u8, u8)) -> u8) {}
fn one(f: impl Fn(u8) -> u8, (a, b): (u8, &str), [c, d]: [u8; 2]) { f((1, 2)) }
fn two<F: Fn((u8, u8))>(
    &self,
    (a, mut b): (F, Vec<(u8, u8)>),
    c: u8, ((d, e), f): ((u8, u8), u8)) {}
";
    let found = tuple_parameters(&[Unit::new("a.rs", "a.rs", text)]);
    assert_eq!(found, ["a.rs:2: one", "a.rs:3: two", "a.rs:3: two"]);
}

#[test]
fn long_lists_of_parameters_are_counted() {
    let text = "fn five(&self, a: u8, b: [u8; 2], c: (u8, u8), d: Vec<(u8, u8)>,) {}
fn six<F: Fn(u8, u8) -> u8>(
    a: F, b: impl Fn(u8) -> Option<u8>, c: &'static str, d: u8, e: u8,
    // not g: u8
    f: HashMap<u8, u8>) {}
struct S { f: fn(u8, u8, u8, u8, u8, u8) }
#[cfg(test)]
fn tests(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8) {}
";
    assert_eq!(long_lists(&[Unit::new("a.rs", "a.rs", text)]), ["a.rs:2: six has 6"]);
}

#[test]
fn invariants_and_citations_fit_each_other() {
    let of = |document: &str, source: &str| {
        let (mut cited, mut found) = (Cited::default(), Vec::new());
        cited.add(source);
        check_invariants(document, &cited, &[], &mut found);
        found
    };
    let document = "- **I901** a rule, see I902.\n- **I902** another\n";
    assert_eq!(of(document, "// kept so (I901, I902)"), Vec::<String>::new());
    let found = of(document, "let XI901 = I902; // I9012x");
    assert!(found.len() == 1 && found[0].contains("no code cites I901"), "{found:?}");
    let found = of(document, "// I901 I902 I903");
    assert!(found.len() == 1 && found[0].contains("cites I903"), "{found:?}");
}

#[test]
fn sections_and_citations_fit_each_other() {
    let of = |source: &str| {
        let (mut cited, mut found) = (Cited::default(), Vec::new());
        cited.add(source);
        check_sections(
            "# Bytes\n\n## sb: superblock\n\n## ea-inode: values\n\n## Other\n",
            &cited,
            &mut found,
        );
        found
    };
    assert_eq!(of("// spec: sb, ea-inode: why, and how\n"), Vec::<String>::new());
    assert_eq!(
        of("//! ends so (spec:\n//! ea-inode).\n    // spec: sb: a reason, too\n"),
        Vec::<String>::new()
    );
    let found = of("fn open(spec: sb) {}\n// spec: ea-inode\n");
    assert!(found.len() == 1 && found[0].contains("no code cites `spec: sb`"), "{found:?}");
    let found = of("// spec: sb, ea-inode\n// spec: gone\n");
    assert!(found.len() == 1 && found[0].contains("`spec: gone`"), "{found:?}");
}

#[test]
fn what_a_package_lacks_is_findings() {
    let whole = "description = \"x\"\nrepository.workspace = true\nkeywords = []\ncategories = []\nrust-version = \"1\"\n\
                 [package.metadata.docs.rs]\n";
    let of = |manifest: &str| {
        let mut found = Vec::new();
        packages::keys("crates/x", manifest, &mut found);
        found.len()
    };
    assert_eq!((of(whole), of(&whole.replace("keywords", "words"))), (0, 1));
    let included = |text: &str, depth| {
        let mut found = Vec::new();
        packages::includes("a.rs", text, depth, &mut found);
        found.len()
    };
    assert_eq!(included("#[doc = include_str!(\"../README.md\")]", 1), 0);
    assert_eq!(included("x(include_str!(\"../../docs/a.md\"))", 1), 1);
}

#[test]
fn doc_comments_that_do_not_say_the_thing_itself_are_counted() {
    let text = "//! What it is.\n/// Whether it is.\n    /// The same.\n/// Whatever.\n// What.\n/// Returns what is.\n";
    assert_eq!(words::openings(text), 3);
    assert_eq!(words::openings("/// Why.\n/// Who reads.\n/// How much.\n/// Which one.\n/// However.\n"), 4);
    let mut found = Vec::new();
    words::check_openings(&[("unbounded".into(), 0)], &mut found);
    assert!(found.is_empty(), "{found:?}");
    words::check_openings(&[("unbounded".into(), 1)], &mut found);
    assert!(found.len() == 1 && found[0].contains("at most 0"), "{found:?}");
}
