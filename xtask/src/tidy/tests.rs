use super::{check, check_file};
use std::path::Path;

fn told(file: &str, text: &str) -> Vec<String> {
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
fn each_rule_is_told() {
    let cases = [
        ("crates/fs/src/map/mod.rs", "//! x\nuse crate::ops::verbs;\n", "calls up"),
        ("crates/fs/src/cache.rs", "//! x\nfn f() { crate::txn::begin() }\n", "calls up"),
        ("crates/placement/src/engine.rs", "//! x\nuse ondisk::inode::Inode;\n", "units"),
        ("crates/ondisk/src/group.rs", "//! x\nuse placement::Engine;\n", "arrows"),
        ("crates/cli/src/ls.rs", "//! x\nfn f() { placement::x() }\n", "arrows"),
        ("crates/cli/src/ls.rs", "//! x\n// caf\u{e9}\n", "ASCII"),
        ("crates/cli/src/ls.rs", "//! x\nstruct BlockManager;\n", "Manager"),
        ("crates/cli/src/ls.rs", "//! x\nfn get_block() {}\n", "getter"),
        ("crates/cli/src/ls.rs", "use std::io;\n", "//!"),
        ("crates/cli/src/ls.rs", "//! x\nfn f() { FileDevice::new(file) }\n", "open_write"),
        ("crates/cli/src/ls.rs", "//! x\nfn f() { builder.overwrite(true) }\n", "build_file"),
        ("crates/image/src/ls.rs", "//! x\nfn f() { FileDevice::new(file) }\n", "open_write"),
        ("crates/cli/src/ls.rs", &format!("//! x\n{}", "\n".repeat(1000)), "lines"),
    ];
    for (file, text, expected) in cases {
        let found = told(file, text);
        assert_eq!(found.len(), 1, "{file}: {found:?}");
        assert!(found[0].contains(expected), "{found:?}");
    }
}

#[test]
fn what_is_allowed_is_not_told() {
    let cases = [
        ("crates/fs/src/ops/names.rs", "//! x\nuse crate::map::Map;\nuse placement::Engine;\n"),
        ("crates/fs/src/dir/htree.rs", "//! x\nuse crate::file::File;\nuse crate::device::Device;\n"),
        ("crates/placement/src/engine.rs", "//! x\nuse ondisk::units::Block;\n"),
        ("crates/fs/src/map.rs", "//! x\n// see crate::ops::names\n"),
        ("crates/fs/tests/all.rs", "use testkit::fsck::assert_clean;\n"),
        ("crates/cli/src/ls.rs", "//! x\nfn target_path() {}\n"),
        ("crates/cli/src/door/mod.rs", "//! x\nfn f() { FileDevice::new(file) }\n"),
    ];
    for (file, text) in cases {
        assert_eq!(told(file, text), Vec::<String>::new(), "{file}");
    }
}
