//! The channel itself, used by programs that are not ours.

use std::fs::{self, File};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use plat_cli::bulk::{Act, Acts, Name};
use plat_cli::control::Needs;
use plat_cli::control::protocol::{GRANT_LEN, Grant, Place, Reply, Request, TICKET, Verb, flag};
use plat_cli::control::proving::prove;
use rustix::fd::OwnedFd;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::tool;

use super::{have, judge, on, volume};
use crate::support::mounted::Mounted;
use crate::support::{fail, succeed};

pub(super) fn connect(address: &[u8]) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(address).unwrap()).unwrap();
    socket
}

/// Sends some bytes with open files, and returns the reply; nothing if the server hangs up.
pub(super) fn said(address: &[u8], message: &[u8], files: &[&File]) -> Option<Reply> {
    let socket = connect(address);
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    rustix::net::sendmsg(&socket, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL).ok()?;
    let mut buffer = vec![0; 1 << 16];
    let (_, len) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty()).ok()?;
    if len == 0 { None } else { Some(Reply::decode(&buffer[..len]).unwrap()) }
}

pub(super) fn grant(directory: &File) -> Grant {
    Grant::decode(&fuse::ask::<TICKET, GRANT_LEN>(directory).unwrap()).unwrap()
}

fn removal(grant: &Grant, name: &str) -> Request {
    let place = Place { token: grant.token, name: Name::new(name.as_bytes()), shown: name.into() };
    Request { verb: Verb::Remove, flags: flag::RECURSIVE, places: vec![place], numbers: Vec::new() }
}

/// A ticket for a directory in which this thread has shown what it may do.
fn proved(directory: &File, verb: Verb) -> Grant {
    let grant = grant(directory);
    prove(directory, &grant.proof_name(), Needs::of(verb, 0, 0)).unwrap();
    grant
}

fn why(said: Option<Reply>) -> String {
    match said {
        Some(Reply::Failed(_, why)) => why.words,
        other => panic!("{other:?}"),
    }
}

#[test]
fn odd_input_is_refused_and_the_mount_lives_on() {
    let test = "odd_input_is_refused_and_the_mount_lives_on";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4 -b 4096", "64M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    fs::create_dir(mounted.path().join("d")).unwrap();
    fs::write(mounted.path().join("d/f"), "x").unwrap();
    let directory = File::open(mounted.path()).unwrap();
    let address = grant(&directory).address;
    let refused = |message: &[u8]| match said(&address, message, &[&directory]) {
        Some(Reply::Failed(_, why)) => why.words,
        other => panic!("{other:?}"),
    };
    assert!(refused(b"x").contains("can't be understood"));
    let valid = removal(&proved(&directory, Verb::Remove), "d").encode();
    let mut newer = valid.clone();
    newer[0] = 200;
    assert!(refused(&newer).contains("version 200"));
    let mut random = Random(7);
    for _ in 0..300 {
        let mut message = valid.clone();
        for _ in 0..1 + random.below(4) {
            let at = usize::try_from(random.below(valid.len() as u64)).unwrap();
            message[at] = u8::try_from(random.below(256)).unwrap();
        }
        // The name and what messages show may come out as something that does not exist. The ticket is not ours, whatever
        // was changed of it: tickets are random, and a change taken back made one in some hundred runs valid.
        message[12] = valid[12] ^ 1;
        refused(&message);
    }
    refused(&vec![7; 60_000]);
    // Names that are no names.
    for name in ["d/f", ".//f", "../d", "d\0f"] {
        let mut message = removal(&proved(&directory, Verb::Remove), "NAM").encode();
        let at = message.windows(3).position(|part| part == b"NAM").unwrap();
        message[at..at + 3].copy_from_slice(&name.as_bytes()[..3]);
        assert!(refused(&message).contains("no name that a file can have"), "{name}");
    }
    assert!(refused(&removal(&proved(&directory, Verb::Remove), "").encode()).contains("no name"));
    // A file that is missing, and one that is none of the kind.
    let mut import = removal(&proved(&directory, Verb::Import), "");
    import.verb = Verb::Import;
    assert!(refused(&import.encode()).contains("without its file"));
    assert!(mounted.path().join("d/f").exists());
    // A ticket is good once.
    assert!(
        matches!(said(&address, &valid, &[&directory]), Some(Reply::Finished(done, _)) if done.files == 1)
    );
    assert!(refused(&valid).contains("ticket is not valid"));
    // One for a directory that is gone.
    fs::create_dir(mounted.path().join("gone")).unwrap();
    let held = File::open(mounted.path().join("gone")).unwrap();
    let ticket = proved(&held, Verb::Remove);
    fs::remove_dir(mounted.path().join("gone")).unwrap();
    let gone = removal(&ticket, "d").encode();
    let why = said(&address, &gone, &[&held]);
    assert!(matches!(&why, Some(Reply::Failed(_, why)) if why.words.contains("removed")), "{why:?}");
    // Another directory than that of the ticket.
    let ticket = removal(&proved(&directory, Verb::Remove), "d").encode();
    let why = said(&address, &ticket, &[&File::open("/proc").unwrap()]);
    assert!(
        matches!(&why, Some(Reply::Failed(_, why)) if why.words.contains("not that of the ticket")),
        "{why:?}"
    );
    drop((held, directory));
    succeed(&mut on(&mounted, &["mkdir", "m:still"]));
    judge(mounted, &image);
}

#[test]
fn who_says_nothing_is_not_waited_for() {
    let test = "who_says_nothing_is_not_waited_for";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4 -b 4096", "64M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let directory = File::open(mounted.path()).unwrap();
    let address = grant(&directory).address;
    drop(directory);
    // As many as are served at once, and more.
    let silent: Vec<OwnedFd> = (0..20).map(|_| connect(&address)).collect();
    let begun = Instant::now();
    loop {
        fs::create_dir_all(mounted.path().join("d")).unwrap();
        if on(&mounted, &["rm", "-r", "m:d"]).output().unwrap().status.success() {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "nobody is served");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(!mounted.path().join("d").exists());
    // An unmount does not wait for them either.
    let more: Vec<OwnedFd> = (0..3).map(|_| connect(&address)).collect();
    let begun = Instant::now();
    judge(mounted, &image);
    assert!(begun.elapsed() < Duration::from_secs(30));
    drop((silent, more));
}

#[test]
fn what_a_program_has_not_shown_is_not_done() {
    let test = "what_a_program_has_not_shown_is_not_done";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    for options in ["rw,own_permissions", "rw,allow_other"] {
        let image = volume(&scratch, "-t ext4 -b 4096", "64M");
        let mounted = Mounted::new(&image, &["-o", options]).unwrap();
        fs::create_dir(mounted.path().join("d")).unwrap();
        fs::write(mounted.path().join("d/f"), "x").unwrap();
        let (root, directory) =
            (File::open(mounted.path()).unwrap(), File::open(mounted.path().join("d")).unwrap());
        // Nothing, what does not count for it, and what another thread or another directory shows.
        let nothing = grant(&directory);
        let other = grant(&directory);
        prove(&directory, &other.proof_name(), Needs::of(Verb::Import, 0, 0)).unwrap();
        let theirs = grant(&directory);
        let shown = std::thread::scope(|scope| {
            let by_other = || prove(&directory, &theirs.proof_name(), Needs::of(Verb::Remove, 0, 0));
            scope.spawn(by_other).join().unwrap()
        });
        assert_eq!(shown.unwrap_err().kind(), std::io::ErrorKind::NotFound);
        let elsewhere = grant(&directory);
        let shown = prove(&root, &elsewhere.proof_name(), Needs::of(Verb::Remove, 0, 0));
        assert_eq!(shown.unwrap_err().kind(), std::io::ErrorKind::NotFound);
        for grant in [nothing, other, theirs, elsewhere] {
            let said = why(said(&grant.address, &removal(&grant, "f").encode(), &[&directory]));
            assert!(said.contains("permission denied") && mounted.path().join("d/f").exists(), "{said}");
        }
        // What can't be done without anything is not begun.
        for verb in [Verb::Put, Verb::Snapshot, Verb::Defrag, Verb::Convert, Verb::Tune, Verb::Resize] {
            let grant = grant(&root);
            let name = if verb == Verb::Put { Name::new(b"new") } else { None };
            let places = vec![Place { token: grant.token, name, shown: b"m".to_vec() }];
            let numbers = match verb {
                Verb::Defrag => vec![0; 2],
                Verb::Resize => vec![0; 1],
                _ => Vec::new(),
            };
            let request = Request { verb, flags: 0, places, numbers };
            let source = File::open("/dev/null").unwrap();
            let said = why(said(&grant.address, &request.encode(), &[&root, &source]));
            assert_eq!(said, "m: permission denied", "{verb:?}");
        }
        // A proof is nobody's file: it is in no listing, gone with its ticket, and its name is one like others.
        let grant = proved(&root, Verb::Remove);
        let proof = mounted.path().join(grant.proof_name());
        assert!(fs::metadata(&proof).unwrap().is_dir());
        let listed =
            |path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        assert!(!listed(mounted.path()).contains(&grant.proof_name().into()));
        assert!(matches!(
            said(&grant.address, &removal(&grant, "d").encode(), &[&root]),
            Some(Reply::Finished(..))
        ));
        assert!(!proof.exists());
        fs::write(&proof, "a file").unwrap();
        assert!(listed(mounted.path()).contains(&grant.proof_name().into()));
        drop((root, directory));
        judge(mounted, &image);
    }
}

/// An archive with one thing in it needs that the kernel lets the program make such things.
#[test]
fn each_kind_of_file_needs_its_own_leave() {
    let test = "each_kind_of_file_needs_its_own_leave";
    if !have(test) {
        return;
    }
    let kinds = [
        (Act::MakeFile, "touch f"),
        (Act::WriteFile, "touch f"),
        (Act::MakeDirectory, "mkdir d"),
        (Act::MakeSymlink, "ln -s nowhere l"),
        (Act::MakeFifo, "mkfifo p"),
        (Act::MakeCharDevice, "mknod c c 1 3"),
        (Act::MakeBlockDevice, "mknod b b 7 0"),
        (Act::Link, "mkdir d; touch f; ln f d/g"),
        (Act::SetId, "touch f; chmod 6755 f"),
    ];
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4 -b 4096", "64M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    for (number, (act, makes)) in kinds.into_iter().enumerate() {
        let (tree, place) = (scratch.join(format!("{number}")), mounted.path().join(format!("{number}")));
        fs::create_dir(&tree).unwrap();
        fs::create_dir(&place).unwrap();
        tool::run(tool::command("sh").arg("-c").arg(makes).current_dir(&tree));
        let archive = super::archive_of(&scratch, &tree, &format!("{number}.tar"));
        let directory = File::open(&place).unwrap();
        let imported = |acts: Acts| {
            let grant = grant(&directory);
            prove(&directory, &grant.proof_name(), Needs { all: acts, some: Acts::NONE }).unwrap();
            let mut request = removal(&grant, "");
            (request.verb, request.flags) = (Verb::Import, 0);
            said(&grant.address, &request.encode(), &[&directory, &File::open(&archive).unwrap()])
        };
        let others: Vec<Act> = Acts::MAKING.each().filter(|other| *other != act).collect();
        let without = imported(Acts::of(&others));
        let names = || fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        let special = |path: &std::path::PathBuf| fs::metadata(path).unwrap().mode() & 0o6000;
        match act {
            Act::SetId => {
                assert!(matches!(without, Some(Reply::Finished(..))), "{without:?}");
                assert_eq!(names().iter().map(special).collect::<Vec<_>>(), [0]);
                fs::remove_file(place.join("f")).unwrap();
            }
            act => {
                assert!(why(without).contains("permission denied"), "{act:?}");
                assert!(names().len() <= 2 * usize::from(act == Act::Link), "{act:?}: {:?}", names());
                for path in names() {
                    if path.is_dir() {
                        fs::remove_dir_all(path).unwrap()
                    } else {
                        fs::remove_file(path).unwrap()
                    }
                }
            }
        }
        let with = imported(Acts::MAKING);
        assert!(matches!(with, Some(Reply::Finished(..))), "{act:?}: {with:?}");
        assert_eq!(names().len(), 1 + usize::from(act == Act::Link));
        if act == Act::SetId {
            assert_eq!(names().iter().map(special).collect::<Vec<_>>(), [0o6000]);
        }
    }
    judge(mounted, &image);
}

/// Refused as the kernel's own calls would be; with the reason, and without any change.
#[test]
fn other_mounts_are_seen_where_they_lie() {
    let test = "other_mounts_are_seen_where_they_lie";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4 -b 4096", "64M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let at = |name: &str| mounted.path().join(name);
    for name in ["a/b/c d", "a/e", "to", "tree"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    for name in ["a/b/c d/hidden", "a/e/f", "covered", "twin", "tree/f"] {
        fs::write(at(name), name).unwrap();
    }
    let view = scratch.join("view");
    fs::create_dir(&view).unwrap();
    let over = [
        Over::new(&["-t", "tmpfs", "none"], &at("a/b/c d")),
        Over::new(&["--bind", "/dev/null"], &at("covered")),
        Over::new(&["--bind", mounted.path().to_str().unwrap()], &view),
    ];
    let archive = super::archive_of(&scratch, &at("tree"), "tree.tar");
    let refused = |words: &[&str], why: &str| {
        let said = fail(on(&mounted, words).current_dir(scratch.path()));
        let is_named =
            said.contains("another mount lies on") && said.contains(mounted.path().to_str().unwrap());
        assert!(said.contains(why) && is_named, "{words:?}: {said}");
    };
    let (busy, other) = ("Device or resource busy", "Invalid cross-device link");
    for place in ["m:a", "m:a/b", "m:covered"] {
        refused(&["rm", "-r", place], busy);
    }
    for place in ["m:a", "m:a/b", "m:covered"] {
        refused(&["cp", "-r", place, "m:to"], other);
    }
    refused(&["put", "-f", "m:", archive.to_str().unwrap(), "covered"], busy);
    refused(&["cp", "-f", "m:twin", "m:covered"], other);
    refused(&["export", "m:a", "out.tar"], other);
    refused(&["import", "m:a", archive.to_str().unwrap()], other);
    refused(&["defrag", "m:a"], other);
    refused(&["convert", "--to", "ext3", "m:", "a"], other);
    // By another way the names are as busy, and what can only be read there can be read.
    let through = |name: &str| view.join(name);
    assert_eq!(rustix::fs::rmdir(through("a/b/c d")).unwrap_err(), rustix::io::Errno::BUSY);
    let said = fail(on(&mounted, &["rm", "-r"]).arg(through("a")));
    assert!(said.contains(busy), "{said}");
    succeed(on(&mounted, &["cp", "-r"]).arg(through("a")).arg(through("to/seen")));
    assert!(through("to/seen/b/c d/hidden").exists() && through("a/b/c d/hidden").exists());
    // What lies beside them is nobody's business.
    succeed(&mut on(&mounted, &["cp", "-r", "m:a/e", "m:to"]));
    succeed(&mut on(&mounted, &["rm", "-r", "m:a/e", "m:twin"]));
    assert!(at("to/e/f").exists() && !at("a/e").exists());
    drop(over);
    succeed(&mut on(&mounted, &["rm", "-r", "m:a", "m:covered"]));
    judge(mounted, &image);
}

/// Leave that is shown through one view of a mount does not count for another.
#[test]
fn the_view_that_comes_with_a_request_counts() {
    let test = "the_view_that_comes_with_a_request_counts";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4 -b 4096", "64M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    fs::create_dir(mounted.path().join("d")).unwrap();
    let (view, gone) = (scratch.join("view"), scratch.join("gone"));
    for place in [&view, &gone] {
        fs::create_dir(place).unwrap();
    }
    let over = Over::new(&["--bind", mounted.path().to_str().unwrap()], &view);
    let other = Over::new(&["--bind", mounted.path().to_str().unwrap()], &gone);
    tool::run(tool::command("mount").args(["-o", "remount,bind,ro"]).arg(&view));
    let directory = File::open(mounted.path()).unwrap();
    let (read_only, detached) = (File::open(&view).unwrap(), File::open(&gone).unwrap());
    drop(other);
    let removed = |through: &File| {
        let grant = proved(&directory, Verb::Remove);
        said(&grant.address, &removal(&grant, "d").encode(), &[through])
    };
    let said = why(removed(&read_only));
    assert!(said.contains("Read-only file system"), "{said}");
    let said = why(removed(&detached));
    assert!(said.contains("none that the program sees"), "{said}");
    assert!(mounted.path().join("d").exists());
    assert!(matches!(removed(&directory), Some(Reply::Finished(..))));
    drop((directory, read_only, detached, over));
    judge(mounted, &image);
}

/// A mount on a path, as long as it lives.
struct Over(std::path::PathBuf);

impl Over {
    fn new(words: &[&str], path: &std::path::Path) -> Self {
        tool::run(tool::command("mount").args(words).arg(path));
        Over(path.to_owned())
    }
}

impl Drop for Over {
    fn drop(&mut self) {
        let _ = tool::command("umount").arg("-l").arg(&self.0).output();
    }
}
