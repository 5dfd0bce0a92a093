//! Work on a mount with files that lie in it: its server does not wait for itself.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use plat_cli::bulk::Name;
use plat_cli::control::protocol::{Place, Reply, Request, Verb};
use testkit::scratch::Scratch;

use super::channel::{grant, said};
use super::{archive_of, contents, have, judge, many, on, volume, whole};
use crate::support::mounted::Mounted;
use crate::support::succeed;

#[test]
fn files_of_the_mount_itself_come_and_go() {
    let test = "files_of_the_mount_itself_come_and_go";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    many(&tree, 2, 10);
    let image = volume(&scratch, "-t ext4 -b 4096", "128M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let inside = |name: &str| mounted.path().join(name);
    fs::copy(archive_of(&scratch, &tree, "tree.tar"), inside("tree.tar")).unwrap();
    succeed(&mut on(&mounted, &["mkdir", "m:to", "m:again"]));
    succeed(on(&mounted, &["import", "m:to"]).arg(inside("tree.tar")));
    assert_eq!(whole(&inside("to")), 20);

    // Out into a file of the mount, by its name and as the standard output.
    succeed(on(&mounted, &["export", "m:to"]).arg(inside("out.tar")));
    let named = fs::read(inside("out.tar")).unwrap();
    let stdout = File::create(inside("stdout.tar")).unwrap();
    assert!(on(&mounted, &["export", "m:to", "-"]).stdout(stdout).status().unwrap().success());
    assert!(fs::read(inside("stdout.tar")).unwrap() == named);
    succeed(on(&mounted, &["import", "m:again"]).arg(inside("out.tar")));
    assert_eq!(whole(&inside("again")), 20);

    // A single file keeps what it has.
    let source = inside("source");
    fs::write(&source, contents("source")).unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o640)).unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    File::open(&source).unwrap().set_modified(old).unwrap();
    succeed(&mut on(&mounted, &["put", "m:to", source.to_str().unwrap(), "copy"]));
    let facts = fs::metadata(inside("to/copy")).unwrap();
    assert_eq!((facts.mode() & 0o777, facts.mtime()), (0o640, 1_000_000));
    assert_eq!(fs::read(inside("to/copy")).unwrap(), contents("source"));
    judge(mounted, &image);
}

/// Killed while it waits for its own answer, a server would never end: it takes no file of its mount from anybody.
#[test]
fn the_server_takes_no_file_of_its_mount() {
    let test = "the_server_takes_no_file_of_its_mount";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4 -b 4096", "64M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    fs::write(mounted.path().join("file"), "contents").unwrap();
    let directory = File::open(mounted.path()).unwrap();
    for verb in [Verb::Import, Verb::Export, Verb::Put, Verb::Snapshot, Verb::Tune] {
        let file = File::options().read(true).write(true).open(mounted.path().join("file")).unwrap();
        let grant = grant(&directory);
        let name = if verb == Verb::Put { Name::new(b"new") } else { None };
        let place = Place { token: grant.token, name, shown: "new".into() };
        let request = Request { verb, flags: 0, places: vec![place], numbers: Vec::new() };
        let said = said(&grant.address, &request.encode(), &[&directory, &file]);
        let is_refused = |why: &str| why.contains("can't wait for itself");
        assert!(matches!(&said, Some(Reply::Failed(_, why)) if is_refused(&why.words)), "{verb:?}: {said:?}");
    }
    drop(directory);
    judge(mounted, &image);
}
