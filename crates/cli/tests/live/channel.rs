//! The channel itself, used by programs that are not ours.

use std::fs::{self, File};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use plat_cli::control::protocol::{GRANT_LEN, Grant, Place, Reply, Request, TICKET, Verb, flag};
use rustix::fd::OwnedFd;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use testkit::random::Random;
use testkit::scratch::Scratch;

use super::support::mounted::Mounted;
use super::support::succeed;
use super::{have, judge, on, volume};

pub(super) fn connect(address: &[u8]) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(address).unwrap()).unwrap();
    socket
}

/// What comes back for some bytes, with open files; nothing if the server hangs up.
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
    let place = Place { token: grant.token, name: name.into(), shown: name.into() };
    Request { verb: Verb::Remove, flags: flag::RECURSIVE, places: vec![place], numbers: Vec::new() }
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
        Some(Reply::Failed(_, why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(refused(b"x").contains("can't be understood"));
    let valid = removal(&grant(&directory), "d").encode();
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
        // The name and what messages show may come out as something that does not exist; the ticket is not ours.
        message[12] ^= 1;
        refused(&message);
    }
    refused(&vec![7; 60_000]);
    // Names that are no names.
    for name in ["", ".", "..", "a/b", "d/f", &"n".repeat(255)] {
        refused(&removal(&grant(&directory), name).encode());
    }
    // A file that is missing, and one that is none of the kind.
    let mut import = removal(&grant(&directory), "");
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
    let ticket = grant(&held);
    fs::remove_dir(mounted.path().join("gone")).unwrap();
    let gone = removal(&ticket, "d").encode();
    let why = said(&address, &gone, &[&held]);
    assert!(matches!(&why, Some(Reply::Failed(_, why)) if why.contains("removed")), "{why:?}");
    // Another directory than that of the ticket.
    let ticket = removal(&grant(&directory), "d").encode();
    let why = said(&address, &ticket, &[&File::open("/proc").unwrap()]);
    assert!(matches!(&why, Some(Reply::Failed(_, why)) if why.contains("not that of the ticket")), "{why:?}");
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
