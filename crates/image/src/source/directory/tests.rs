use super::*;
use crate::source::catalogue::{Catalogue, NodeKind};
use crate::source::filter::Excludes;
use crate::source::options::SourceOptions;
use crate::source::reading::Reading;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use testkit::again;

fn catalogue(root: &Path, options: SourceOptions) -> Result<Catalogue, SourceError> {
    let mut reading = Reading::new(&options)?;
    let mut builder = CatalogueBuilder::new(options).unwrap();
    let directory = Directory::open(root).map_err(|error| SourceError::host("open", root, error))?;
    read(&mut reading, &mut builder, root, directory)?;
    Ok(builder.finish())
}

#[test]
fn a_tree_arrives_whole() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    fs::create_dir_all(path("d/e")).unwrap();
    fs::write(path("d/f"), b"hello").unwrap();
    fs::set_permissions(path("d/f"), fs::Permissions::from_mode(0o4711)).unwrap();
    fs::hard_link(path("d/f"), path("g")).unwrap();
    symlink("d/f", path("s")).unwrap();
    fs::write(path("empty"), b"").unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .unwrap();
    let tagged = rustix::fs::setxattr(path("g"), "user.tag", b"v", rustix::fs::XattrFlags::empty()).is_ok();

    let catalogue = catalogue(root.path(), SourceOptions::default()).unwrap();
    let find = |path: &str| catalogue.find(path.as_bytes()).unwrap();
    let node = find("g");
    assert_eq!(node, find("d/f"));
    let meta = catalogue.metadata(node);
    assert_eq!((meta.kind, meta.mode, meta.links, meta.size), (NodeKind::File, 0o4711, 2, 5));
    assert_eq!(catalogue.xattrs(node).len(), usize::from(tagged));
    assert_eq!(catalogue.target(find("s")), b"d/f");
    assert_eq!(catalogue.metadata(find("fifo")).kind, NodeKind::Fifo);
    assert_eq!(catalogue.metadata(find("d")).links, 3);
    let mut buf = [1; 9];
    assert_eq!(catalogue.reader().read_file(node, 1, &mut buf).unwrap(), 4);
    assert_eq!(buf, *b"ello\x01\x01\x01\x01\x01");
}

#[test]
fn holes_stay_holes() {
    let root = tempfile::tempdir().unwrap();
    let file = fs::File::create(root.path().join("f")).unwrap();
    file.set_len(1 << 20).unwrap();
    file.write_all_at(b"end", (1 << 20) - 3).unwrap();
    let catalogue = catalogue(root.path(), SourceOptions::default()).unwrap();
    let node = catalogue.find(b"f").unwrap();
    let data: u64 = catalogue.extents(node).map(|extent| extent.len).sum();
    assert!(data < 1 << 18, "{data}");
    let mut buf = vec![1; 2 << 20];
    assert_eq!(catalogue.reader().read_file(node, 0, &mut buf).unwrap(), 1 << 20);
    assert!(buf[..(1 << 20) - 3].iter().all(|&b| b == 0));
    assert_eq!(buf[(1 << 20) - 3..1 << 20], *b"end");
}

#[test]
fn what_is_left_out_is_not_entered() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("skip/deep")).unwrap();
    fs::write(root.path().join("kept"), b"").unwrap();
    let options = SourceOptions { exclude: Excludes::new(&["/skip"]).unwrap(), ..SourceOptions::default() };
    let catalogue = catalogue(root.path(), options).unwrap();
    assert_eq!(catalogue.summary().names, 1);
}

#[test]
fn failures_name_the_file() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("gone"), b"data").unwrap();
    let before = catalogue(root.path(), SourceOptions::default()).unwrap();
    let node = before.find(b"gone").unwrap();
    fs::remove_file(root.path().join("gone")).unwrap();
    let error = before.reader().read_file(node, 0, &mut [0; 4]).unwrap_err().to_string();
    assert!(error.contains("gone") && error.contains("No such file"), "{error}");
    symlink("/etc/passwd", root.path().join("gone")).unwrap();
    assert!(before.reader().read_file(node, 0, &mut [0; 4]).is_err());
    fs::remove_file(root.path().join("gone")).unwrap();
    fs::write(root.path().join("gone"), b"x").unwrap();
    let error = before.reader().read_file(node, 0, &mut [0; 4]).unwrap_err().to_string();
    assert!(error.contains("shorter"), "{error}");
    assert!(catalogue(&root.path().join("none"), SourceOptions::default()).is_err());
}

#[test]
fn deep_trees_are_walked_and_read() {
    let root = tempfile::tempdir().unwrap();
    let deep = root.path().join(vec!["d"; 300].join("/"));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("f"), b"deep").unwrap();
    fs::write(root.path().join("d/near"), b"near").unwrap();
    let catalogue = catalogue(root.path(), SourceOptions::default()).unwrap();
    let mut reader = catalogue.reader();
    for step in catalogue.walk().filter(|step| matches!(step.name, b"f" | b"near")) {
        let mut buf = [0; 4];
        reader.read_file(step.node, 0, &mut buf).unwrap();
        assert_eq!(&buf, if step.name == b"f" { b"deep" } else { b"near" });
    }
}

#[test]
fn a_source_that_is_renamed_is_read_on() {
    let top = tempfile::tempdir().unwrap();
    let (own, others) = (top.path().join("own"), top.path().join("others"));
    for (path, bytes) in [(&own, b"mine"), (&others, b"them")] {
        fs::create_dir_all(path.join("d")).unwrap();
        fs::write(path.join("d/f"), bytes).unwrap();
    }
    let catalogue = catalogue(&own, SourceOptions::default()).unwrap();
    fs::rename(&own, top.path().join("away")).unwrap();
    symlink(&others, &own).unwrap();
    let mut buf = [0; 4];
    catalogue.reader().read_file(catalogue.find(b"d/f").unwrap(), 0, &mut buf).unwrap();
    assert_eq!(&buf, b"mine");
}

/// A tree in use: zeros stand for what is lost, and it is told.
#[test]
fn what_is_lost_meanwhile_is_told() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    for name in ["gone", "longer", "replaced", "shorter"] {
        fs::write(path(name), b"data").unwrap();
    }
    let catalogue = catalogue(root.path(), SourceOptions::default().in_use(true)).unwrap();
    fs::remove_file(path("gone")).unwrap();
    fs::write(path("longer"), b"data and more").unwrap();
    fs::remove_file(path("replaced")).unwrap();
    symlink("/etc/passwd", path("replaced")).unwrap();
    fs::write(path("shorter"), b"da").unwrap();
    let mut reader = catalogue.reader();
    let mut read = |name: &[u8]| {
        let mut bytes = [1; 4];
        assert_eq!(reader.read_file(catalogue.find(name).unwrap(), 0, &mut bytes).unwrap(), 4);
        bytes
    };
    assert_eq!([read(b"gone"), read(b"replaced")], [[0; 4]; 2]);
    assert_eq!((&read(b"longer"), &read(b"shorter")), (b"data", b"da\0\0"));
    let mut told: Vec<String> = catalogue.lost().iter().map(ToString::to_string).collect();
    told.sort();
    assert_eq!(told.len(), 3, "{told:?}");
    let says = |at: usize, name: &str, word: &str| told[at].contains(name) && told[at].contains(word);
    assert!(says(0, "gone", "vanished") && says(1, "replaced", "vanished"), "{told:?}");
    assert!(says(2, "shorter", "became shorter"), "{told:?}");
}

const LIMITED: &str = "PLATFS_HAS_ROOM_FOR_FEW_THREADS";

/// Lists a directory with room for some of the threads that it wants, and for none, if the test below says so.
#[test]
fn worker() {
    let Some(root) = std::env::var_os(LIMITED) else { return };
    let options = || SourceOptions::default().threads(16.try_into().unwrap());
    let listed = |mebibytes: u64| {
        again::leave_memory(mebibytes << 20);
        catalogue(Path::new(&root), options())
    };
    // A thread has two MiB for its calls, which are kept for the next one.
    assert!(matches!(listed(1), Err(SourceError::Host { action: "start a thread for", .. })));
    assert_eq!(listed(7).unwrap().summary().names, 60);
    std::process::exit(77);
}

/// Threads that could be made once waited for ever for those that could not.
#[test]
fn fewer_threads_than_are_wanted_list_all_of_a_directory() {
    let root = tempfile::tempdir().unwrap();
    for number in 0..30 {
        fs::create_dir(root.path().join(format!("d{number}"))).unwrap();
        fs::write(root.path().join(format!("d{number}/f")), "f").unwrap();
    }
    let mut limited = again::test("source::directory::tests::worker", LIMITED, root.path());
    assert_eq!(again::ended(&mut limited).code(), Some(77));
}
