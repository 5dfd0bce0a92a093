use super::*;
use crate::facts::Kind;
use crate::reach::{inside, named, target_of};
use std::os::unix::fs::symlink;

/// Notes what it gets.
#[derive(Default)]
struct Notes(Vec<String>);

impl Visitor for Notes {
    type Failure = String;

    fn failed(&mut self, path: &Path, error: io::Error) -> Result<(), String> {
        Err(format!("{}: {error}", path.display()))
    }

    fn visit(&mut self, entry: &Entry<'_>, opened: &Opened) -> Result<(), String> {
        let what = match opened {
            Opened::File(_) => format!("{} bytes", entry.facts.size),
            Opened::Directory(_) => "[".to_owned(),
            Opened::Link(target) => format!("-> {}", target.display()),
            Opened::Other => entry.facts.kind.noun().to_owned(),
        };
        self.0.push(format!("{} {}{what}", entry.depth, entry.name.display()));
        Ok(())
    }

    fn leave(&mut self, entry: &Entry<'_>) -> Result<(), String> {
        self.0.push(format!("{} {}]", entry.depth, entry.name.display()));
        Ok(())
    }
}

fn notes(path: &Path) -> Vec<String> {
    let mut notes = Notes::default();
    walk(path, named(path).unwrap(), &mut notes).unwrap();
    notes.0
}

#[test]
fn entries_come_once_in_order_and_links_are_entries() {
    let top = tempfile::tempdir().unwrap();
    let root = top.path().join("t");
    std::fs::create_dir_all(root.join("b/c")).unwrap();
    std::fs::write(root.join("b/f"), "four").unwrap();
    std::fs::write(root.join("a"), "").unwrap();
    symlink("b", root.join("link")).unwrap();
    Directory::open(&root).unwrap().make_node("pipe", Kind::Fifo, (0, 0)).unwrap();
    let expected = ["0 t[", "1 a0 bytes", "1 b[", "2 c[", "2 c]", "2 f4 bytes", "1 b]"];
    let rest = ["1 link-> b", "1 pipea named pipe", "0 t]"];
    assert_eq!(notes(&root), [&expected[..], &rest[..]].concat());
    assert_eq!(notes(&root.join("link")), ["0 link-> b"]);
    assert_eq!(notes(&root.join("link/"))[0], "0 link[");
    assert_eq!(notes(&root.join("link/."))[0], "0 link[");
    assert_eq!(notes(&root.join("a")), ["0 a0 bytes"]);
    assert!(matches!(target_of(&root.join("link")).unwrap().1, Opened::Directory(_)));
    assert!(matches!(target_of(&root.join("pipe")).unwrap().1, Opened::Other));
    assert_eq!(named(&root.join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn links_inside_a_root_stay_inside() {
    let top = tempfile::tempdir().unwrap();
    let root = top.path().join("root");
    std::fs::create_dir_all(root.join("etc/d")).unwrap();
    std::fs::write(root.join("etc/passwd"), "inside").unwrap();
    std::fs::write(top.path().join("secret"), "outside").unwrap();
    for (target, name) in [("/etc/passwd", "absolute"), ("../secret", "up"), ("/etc", "directory")] {
        symlink(target, root.join(name)).unwrap();
    }
    let root = Directory::open(&root).unwrap();
    let size = |path: &str| inside(&root, Path::new(path)).map(|(facts, _)| facts.size);
    assert_eq!(size("absolute").unwrap(), 6);
    assert_eq!(size("/etc/passwd").unwrap(), 6);
    assert_eq!(size("directory/passwd").unwrap(), 6);
    assert_eq!(size("up").unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(matches!(inside(&root, Path::new(".")).unwrap().1, Opened::Directory(_)));
    assert!(matches!(inside(&root, Path::new("directory/d")).unwrap().1, Opened::Directory(_)));
}

#[test]
fn deep_trees_end_with_an_error() {
    let top = tempfile::tempdir().unwrap();
    let mut way = Descent::new(Directory::open(top.path()).unwrap());
    for _ in 0..=DEPTH_MAX {
        way.make("d").unwrap();
    }
    let mut notes = Notes::default();
    let said = walk(top.path(), named(top.path()).unwrap(), &mut notes).unwrap_err();
    assert!(said.ends_with("d: lies too deep"), "{said}");
    assert_eq!(notes.0.len(), DEPTH_MAX + 1);
}
