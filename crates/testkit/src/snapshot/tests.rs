use super::{Rules, Snapshot, differences};
use crate::scratch::Scratch;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

fn small_tree(root: &Path) {
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/file"), b"hello").unwrap();
    fs::hard_link(root.join("a/file"), root.join("a/b/other")).unwrap();
    symlink("file", root.join("a/link")).unwrap();
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.set_len(3 << 20).unwrap();
    sparse.write_at(b"x", 1 << 20).unwrap();
}

fn rules() -> Rules {
    Rules { times: false, ..Rules::default() }
}

#[test]
fn equal_trees_have_no_differences() {
    let scratch = Scratch::new("snapshot");
    small_tree(&scratch.join("left"));
    small_tree(&scratch.join("right"));
    let left = Snapshot::of(&scratch.join("left")).unwrap();
    let right = Snapshot::of(&scratch.join("right")).unwrap();
    assert_eq!(differences(&left, &right, &rules()), Vec::<String>::new());
    assert_eq!(left.entries[b"a/file".as_slice()].link_of.as_deref(), Some(b"a/b/other".as_slice()));
    assert_eq!(left.entries[b"a/b/other".as_slice()].link_of, None);
}

#[test]
fn each_change_is_reported() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 6] = [
        ("content", |root| fs::write(root.join("a/file"), b"hellO").unwrap()),
        ("missing", |root| fs::remove_file(root.join("a/link")).unwrap()),
        ("not expected", |root| fs::write(root.join("new"), b"").unwrap()),
        ("mode", |root| {
            fs::set_permissions(root.join("sparse"), fs::Permissions::from_mode(0o4711)).unwrap()
        }),
        ("size", |root| File::options().write(true).open(root.join("sparse")).unwrap().set_len(5).unwrap()),
        ("data ranges", |root| {
            File::options().write(true).open(root.join("sparse")).unwrap().write_at(&[0], 0).unwrap();
        }),
    ];
    for (word, change) in changes {
        let scratch = Scratch::new("snapshot");
        small_tree(scratch.path());
        let before = Snapshot::of(scratch.path()).unwrap();
        change(scratch.path());
        let after = Snapshot::of(scratch.path()).unwrap();
        let found = differences(&before, &after, &rules());
        assert!(found.iter().any(|line| line.contains(word)), "{word}: {found:?}");
    }
}

#[test]
fn zeros_and_holes_have_the_same_content_and_size_tells_the_rest() {
    let scratch = Scratch::new("snapshot");
    fs::write(scratch.join("zeros"), vec![0; 10_000]).unwrap();
    File::create(scratch.join("hole")).unwrap().set_len(10_000).unwrap();
    let tree = Snapshot::of(scratch.path()).unwrap();
    let entry = |name: &str| &tree.entries[name.as_bytes()];
    assert_eq!(entry("zeros").digest, entry("hole").digest);
    assert_ne!(entry("zeros").data, entry("hole").data);
}
