use super::*;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

fn count(directory: &Path) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

#[test]
fn a_file_appears_only_when_finished_and_replaces_the_old_one() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let target = directory.join("disk.img");
    let output = Output::replacing(&target, 100, Privacy::Ordinary).unwrap();
    output.file().unwrap().write_all(b"new").unwrap();
    drop(output);
    assert_eq!(count(directory), 0);
    std::fs::write(&target, b"old").unwrap();
    let output = Output::replacing(&target, 3, Privacy::Ordinary).unwrap();
    output.file().unwrap().write_all(b"new").unwrap();
    assert_eq!(std::fs::read(&target).unwrap(), b"old");
    output.finish().unwrap();
    assert_eq!(std::fs::read(&target).unwrap(), b"new");
    assert_eq!(count(directory), 1);
}

#[test]
fn a_name_that_is_taken_meanwhile_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("disk.img");
    for named in [false, true] {
        let mut output = Output::new(&target, 3, Privacy::Ordinary).unwrap();
        if named {
            let name = random::name(UNFINISHED).unwrap();
            output.file = output.directory.create(&name, 0o600).unwrap();
            output.temporary = Some(name);
        }
        std::fs::write(&target, b"old").unwrap();
        assert_eq!(output.finish().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&target).unwrap(), b"old");
        assert_eq!(count(directory.path()), 1);
        std::fs::remove_file(&target).unwrap();
    }
}

#[test]
fn a_copy_is_as_private_as_its_source_and_as_what_it_replaces() {
    let directory = tempfile::tempdir().unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    let made = |name: &str, privacy| {
        let path = directory.path().join(name);
        Output::new(&path, 0, privacy).unwrap().finish().unwrap();
        mode(&path)
    };
    assert_eq!(made("private", Privacy::Private), 0o600);
    assert_eq!(made("as", Privacy::As(0o640)) & !0o640, 0);
    assert_eq!(made("read-only", Privacy::As(0o400)), 0o600);
    let old = directory.path().join("old");
    std::fs::write(&old, b"old").unwrap();
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o600)).unwrap();
    Output::replacing(&old, 0, Privacy::Ordinary).unwrap().finish().unwrap();
    assert_eq!(mode(&old), 0o600);
}

#[test]
fn a_link_is_followed_to_what_is_not_there_yet() {
    let directory = tempfile::tempdir().unwrap();
    symlink("there", directory.path().join("link")).unwrap();
    let output = Output::replacing(&directory.path().join("link"), 1, Privacy::Ordinary).unwrap();
    output.finish().unwrap();
    assert!(directory.path().join("link").is_symlink());
    assert_eq!(std::fs::read(directory.path().join("there")).unwrap(), [0]);
    symlink("circle", directory.path().join("circle")).unwrap();
    assert!(Output::new(&directory.path().join("circle"), 1, Privacy::Ordinary).is_err());
}

#[test]
fn a_strangers_link_is_refused_where_all_may_write() {
    let own = rustix::process::geteuid().as_raw();
    let facts = |mode, uid| Facts { mode, uid, ..Directory::open(".").unwrap().facts().unwrap() };
    let (stranger, third) = (own.wrapping_add(1), own.wrapping_add(2));
    assert!(trusted(&facts(0o1777, third), &facts(0o777, stranger)).is_err());
    assert!(trusted(&facts(0o1777, stranger), &facts(0o777, stranger)).is_ok());
    assert!(trusted(&facts(0o1777, third), &facts(0o777, own)).is_ok());
    assert!(trusted(&facts(0o0755, third), &facts(0o777, stranger)).is_ok());
}

#[test]
fn a_directory_appears_whole_or_not_at_all() {
    let above = tempfile::tempdir().unwrap();
    let target = above.path().join("out");
    let new = NewDirectory::new(&target).unwrap();
    let deep = (0..200).try_fold(new.directory().try_clone().unwrap(), |here, _| here.make_directory("d"));
    deep.unwrap().create("file", 0o600).unwrap();
    new.directory().symlink(b"/", "root").unwrap();
    drop(new);
    assert_eq!(count(above.path()), 0);
    let new = NewDirectory::new(&target).unwrap();
    new.directory().create("file", 0o600).unwrap();
    new.finish().unwrap();
    assert!(target.join("file").is_file());
    let again = NewDirectory::new(&target).unwrap();
    assert!(again.finish().is_err());
    assert_eq!(count(above.path()), 1);
}

#[test]
fn what_took_the_place_of_an_unfinished_directory_is_not_removed() {
    let above = tempfile::tempdir().unwrap();
    let new = NewDirectory::new(&above.path().join("out")).unwrap();
    let name = new.temporary.clone().unwrap();
    std::fs::rename(above.path().join(&name), above.path().join("elsewhere")).unwrap();
    std::fs::create_dir(above.path().join(&name)).unwrap();
    std::fs::write(above.path().join(&name).join("file"), b"kept").unwrap();
    drop(new);
    assert!(above.path().join(&name).join("file").exists());
}

#[test]
fn a_log_is_private_and_goes_on_at_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    std::fs::write(&path, b"first\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    private_log(&path, false).unwrap().write_all(b"second\n").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"first\nsecond\n");
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    private_log(&path, true).unwrap().write_all(b"third\n").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"third\n");
    let directory = Directory::open(directory.path()).unwrap();
    directory.make_node("socket", Kind::Socket, (0, 0)).unwrap();
    assert!(private_log(&path.with_file_name("socket"), false).is_err());
}

#[test]
fn an_own_file_is_no_strangers_where_all_may_write() {
    let above = tempfile::tempdir().unwrap();
    let path = above.path().join("file");
    std::fs::write(&path, b"x").unwrap();
    std::fs::set_permissions(above.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    let place = OutputLocation::of(&path).unwrap();
    assert_eq!(place.open_own().unwrap().1.size, 1);
    if std::os::unix::fs::chown(&path, Some(1001), None).is_ok() {
        let said = place.open_own().unwrap_err().to_string();
        assert!(said.contains("belongs to user 1001"), "{said}");
        std::fs::set_permissions(above.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(place.open_own().is_ok());
    }
    place.remove().unwrap();
    assert!(!place.is_taken());
}

#[test]
fn a_strangers_pipe_is_no_log() {
    let above = tempfile::tempdir().unwrap();
    let path = above.path().join("log");
    Directory::open(above.path()).unwrap().make_node("log", Kind::Fifo, (0, 0)).unwrap();
    std::fs::set_permissions(above.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    if std::os::unix::fs::chown(&path, Some(1001), None).is_ok() {
        // It would wait for a reader.
        let said = private_log(&path, false).unwrap_err().to_string();
        assert!(said.contains("is a named pipe of user 1001"), "{said}");
    }
}
