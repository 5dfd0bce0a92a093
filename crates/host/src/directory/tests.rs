use super::*;
use crate::Times;
use std::os::unix::fs::symlink;

#[test]
fn names_are_components_and_links_are_no_way() {
    let top = tempfile::tempdir().unwrap();
    std::fs::create_dir(top.path().join("below")).unwrap();
    symlink("below", top.path().join("link")).unwrap();
    symlink("/etc/passwd", top.path().join("file")).unwrap();
    let directory = Directory::open(top.path()).unwrap();
    for name in ["", ".", "..", "a/b", "/", "below/"] {
        assert_eq!(directory.enter(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name:?}");
        assert_eq!(
            directory.create(name, 0o600).unwrap_err().kind(),
            io::ErrorKind::InvalidInput,
            "{name:?}"
        );
    }
    assert!(directory.look(OsStr::from_bytes(b"a\0b")).is_err());
    assert_eq!(directory.enter("link").unwrap_err().raw_os_error(), Some(Errno::NOTDIR.raw_os_error()));
    assert_eq!(
        directory.open_file("file").unwrap_err().to_string(),
        "is a symbolic link, not a regular file"
    );
    assert_eq!(directory.look("file").unwrap().kind, Kind::Symlink);
    assert_eq!(directory.read_link("file").unwrap(), "/etc/passwd");
    assert!(directory.descend("below/..").is_err());
    assert!(directory.descend("/below").is_err());
    let below = directory.descend("./below").unwrap();
    assert_eq!(below.facts().unwrap().id, directory.look("below").unwrap().id);
}

#[test]
fn a_pipe_is_no_file_and_no_reason_to_wait() {
    let top = tempfile::tempdir().unwrap();
    let directory = Directory::open(top.path()).unwrap();
    directory.make_node("pipe", Kind::Fifo, (0, 0)).unwrap();
    for opened in [directory.open_file("pipe"), directory.open_to_write("pipe")] {
        assert_eq!(opened.unwrap_err().to_string(), "is a named pipe, not a regular file");
    }
}

#[test]
fn attributes_belong_to_what_was_opened() {
    let top = tempfile::tempdir().unwrap();
    let directory = Directory::open(top.path()).unwrap();
    directory.symlink(b"nowhere", "link").unwrap();
    directory.create("file", 0o600).unwrap();
    let times = Times { accessed: (1, 2), modified: (-3, 4) };
    for name in ["link", "file"] {
        let handle = directory.handle(name).unwrap();
        std::fs::rename(top.path().join(name), top.path().join("moved")).unwrap();
        symlink("moved", top.path().join(name)).unwrap();
        handle.set_times(&times).unwrap();
        if name == "file" {
            handle.set_mode(0o4711).unwrap();
            assert_eq!(directory.look("moved").unwrap().mode, 0o4711);
        }
        let moved = directory.look("moved").unwrap();
        assert_eq!((moved.modified, moved.id), ((-3, 4), handle.facts().unwrap().id));
        assert_ne!(directory.look(name).unwrap().modified, (-3, 4));
    }
}

#[test]
fn names_are_listed_from_the_start_each_time() {
    let top = tempfile::tempdir().unwrap();
    let directory = Directory::open(top.path()).unwrap();
    for name in ["a", "b"] {
        directory.create(name, 0o600).unwrap();
    }
    for _ in 0..2 {
        let mut names: Vec<_> = directory.entries().unwrap().map(Result::unwrap).collect();
        names.sort();
        assert_eq!(names, ["a", "b"]);
    }
}

#[test]
fn names_are_listed_each_time() {
    let top = tempfile::tempdir().unwrap();
    let mut directory = Directory::open(top.path()).unwrap();
    for name in ["a", "b"] {
        directory.create(name, 0o600).unwrap();
    }
    for _ in 0..2 {
        let mut names = directory.names().unwrap();
        names.sort();
        assert_eq!(names, ["a", "b"]);
    }
    // More than is read at once.
    let long = "n".repeat(200);
    (0..500).for_each(|number| drop(directory.create(format!("{long}{number}"), 0o600).unwrap()));
    assert_eq!(directory.names().unwrap().len(), 502);
}

#[test]
fn what_took_the_place_of_a_listed_file_is_not_read() {
    let top = tempfile::tempdir().unwrap();
    let directory = Directory::open(top.path()).unwrap();
    directory.create("file", 0o600).unwrap();
    assert!(directory.open_listed("file").is_ok());
    directory.make_node("pipe", Kind::Fifo, (0, 0)).unwrap();
    directory.symlink(b"file", "link").unwrap();
    directory.make_directory("below").unwrap();
    for name in ["pipe", "link", "below"] {
        assert!(
            directory.open_listed(name).unwrap_err().to_string().contains("not a regular file"),
            "{name}"
        );
    }
}

#[test]
fn attributes_longer_than_the_first_try_are_read() {
    let top = tempfile::tempdir().unwrap();
    let directory = Directory::open(top.path()).unwrap();
    let handle = Handle::from(directory.create("file", 0o600).unwrap());
    let values: Vec<(Vec<u8>, Vec<u8>)> = (0..9)
        .map(|number| (format!("user.{}{number}", "n".repeat(200)).into(), vec![number; 2000]))
        .collect();
    if values.iter().any(|(name, value)| handle.set_xattr(name, value).is_err()) {
        eprintln!("SKIPPED: this file system holds no such attributes");
        return;
    }
    for mut reader in [XattrReader::default(), XattrReader::without_paths()] {
        let mut read = directory.xattrs("file", Kind::File, &mut reader).unwrap();
        read.sort();
        assert!(read == values);
    }
}
