//! A user without rights who does what he can to servers: system calls with odd arguments on a mount, odd bytes on its
//! channel and on an NBD socket. Servers live on, answer others, take no memory without bound, and leave a sound volume.
//!
//! Seconds each; with `PLATFS_SECONDS=1200 cargo test -p platfs-cli --test all live::strangers -- --ignored --nocapture
//! --test-threads=1` twenty minutes each. `PLATFS_SEED` begins elsewhere.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plat_cli::bulk::Name;
use plat_cli::control::protocol::{Place, Request, Verb};
use rustix::fs::{
    self as calls, Access, AtFlags, CWD, FallocateFlags, FileType, Gid, IFlags, Mode, OFlags, RenameFlags,
    SeekFrom, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::net::SendFlags;
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::tool;

use super::channel::{connect, grant};
use super::{have, judge, on, volume};
use crate::support::mounted::Mounted;
use crate::support::{plat, succeed};

/// Variable with a worker's task and place.
const WORK: &str = "PLATFS_STRANGER_WORK";
const PLACE: &str = "PLATFS_STRANGER_PLACE";
const SECONDS: &str = "PLATFS_SECONDS";
/// Growth that a server is allowed, in KiB.
const GROWTH_KIB: u64 = 256 << 10;
const NOBODY: &str = "65534";

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Memory of a process, in KiB: as it is, and the most that it was.
fn memory(process: u32) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let of = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().trim_end_matches("kB").trim().parse().ok()
    };
    (of("VmRSS:").unwrap_or(0), of("VmHWM:").unwrap_or(0))
}

/// Starts a worker without rights.
fn stranger(work: &str, place: &Path, seed: u64, seconds: u64) -> Child {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["live::strangers::worker", "--exact", "--ignored", "--nocapture"]);
    command.env(WORK, work).env(PLACE, place).env("PLATFS_SEED", seed.to_string());
    command.env(SECONDS, seconds.to_string()).stdin(Stdio::null()).stdout(Stdio::inherit());
    command.spawn().unwrap()
}

/// Lets strangers at a server of that process, and judges it by its memory meanwhile.
fn beside(process: u32, (work, place): (&str, &Path), seconds: u64) {
    let seed = number("PLATFS_SEED").unwrap_or(1);
    println!("{work}: PLATFS_SEED={seed}, {seconds} s");
    let before = memory(process).0;
    let mut workers: Vec<Child> = (0..2).map(|at| stranger(work, place, seed + at, seconds)).collect();
    let begun = Instant::now();
    let patience = Duration::from_secs(seconds + 120);
    for worker in &mut workers {
        while worker.try_wait().unwrap().is_none() {
            if begun.elapsed() > patience {
                worker.kill().unwrap();
                panic!("{work}: a call does not come back");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(worker.wait().unwrap().success(), "{work}: the worker failed");
    }
    let (after, most) = memory(process);
    println!("{work}: {before} KiB before, {after} after, {most} at most");
    assert!(most > 0, "{work}: the server has ended");
    assert!(most.saturating_sub(before) < GROWTH_KIB, "{work}: grew by {} KiB", most - before);
}

#[test]
#[ignore = "the other tests start it"]
fn worker() {
    let (Ok(work), Some(place)) = (std::env::var(WORK), std::env::var_os(PLACE)) else { return };
    let place = PathBuf::from(place);
    let random = Random(number("PLATFS_SEED").unwrap_or(1));
    let end = Instant::now() + Duration::from_secs(number(SECONDS).unwrap_or(1));
    let done = match &*work {
        "calls" => Calls { random, held: Vec::new() }.run(&place, end),
        "channel" => on_channel(random, &place, end),
        _ => on_nbd(random, &place, end),
    };
    println!("{work}: {done} done");
    assert!(done > 0);
}

/// Calls on files of the current directory.
struct Calls {
    random: Random,
    held: Vec<OwnedFd>,
}

impl Calls {
    fn run(mut self, place: &Path, end: Instant) -> u64 {
        std::env::set_current_dir(place).unwrap();
        rustix::process::umask(Mode::empty());
        let mut done = 0;
        while Instant::now() < end {
            // Errors are what is expected.
            let _ = match self.random.below(4) {
                0 => self.on_name(),
                1 => self.on_two_names(),
                _ => self.on_open(),
            };
            done += 1;
            if self.random.one_in(2000) {
                self.held.clear();
                let _ = fs::remove_dir_all("d");
            }
        }
        done
    }

    fn bits(&mut self) -> u32 {
        u32::try_from(self.random.next() >> 32).unwrap_or(0)
    }

    fn name(&mut self) -> OsString {
        let names = ["a", "b", "d", "d/a", "d/b", "d/d", "d/d/a", ".", "..", "d/..", "s", "", "/", "a/", "p"];
        match self.random.below(20) {
            0 => {
                let len = self.random.below(300);
                OsString::from_vec(self.random.bytes(len).into_iter().map(|byte| byte.max(1)).collect())
            }
            1 => "x".repeat(usize::try_from(self.random.below(5000)).unwrap()).into(),
            _ => self.random.pick(&names).copied().unwrap_or("a").into(),
        }
    }

    fn place(&mut self) -> u64 {
        let edges = [0, 1, 4095, 4096, 1 << 20, 1 << 32, (1 << 44) - 1, 1 << 44, i64::MAX as u64, u64::MAX];
        let edge = self.random.pick(&edges).copied().unwrap_or(0);
        edge.wrapping_add(self.random.below(3)).wrapping_sub(1)
    }

    fn attribute(&mut self) -> &'static str {
        let names = [
            "user.a",
            "user.",
            "trusted.a",
            "security.capability",
            "system.posix_acl_access",
            "system.posix_acl_default",
            "system.data",
            "other",
        ];
        self.random.pick(&names).copied().unwrap_or("user.a")
    }

    fn on_name(&mut self) -> rustix::io::Result<()> {
        let (name, bits, at) = (self.name(), self.bits(), self.place());
        let mode = Mode::from_raw_mode(bits & 0o7777);
        match self.random.below(14) {
            0..=2 => {
                let mut flags = OFlags::from_bits_retain(bits) | OFlags::NONBLOCK;
                flags.set(OFlags::CREATE, self.random.one_in(2));
                let opened = calls::open(name, flags, mode)?;
                if self.held.len() > 40 {
                    let at = usize::try_from(self.random.below(40)).unwrap();
                    self.held.swap_remove(at);
                }
                self.held.push(opened);
                Ok(())
            }
            3 => calls::mkdir(name, mode),
            4 => calls::unlink(name),
            5 => calls::chmod(name, mode),
            6 => {
                let ids = [0, 1, 65_534, u32::MAX - 1];
                let (uid, gid) = (self.random.pick(&ids).copied(), self.random.pick(&ids).copied());
                calls::chown(name, uid.map(Uid::from_raw), gid.map(Gid::from_raw))
            }
            7 => {
                let most = if self.random.one_in(10) { 70_000 } else { 60 };
                let len = self.random.below(most);
                let value = self.random.bytes(len);
                calls::setxattr(name, self.attribute(), &value, XattrFlags::from_bits_truncate(bits))
            }
            8 => {
                let mut room = vec![0; usize::try_from(self.random.below(70_000)).unwrap()];
                calls::getxattr(&name, self.attribute(), &mut room[..])?;
                calls::listxattr(name, &mut room[..]).map(drop)
            }
            9 => calls::removexattr(name, self.attribute()),
            10 => {
                let time = Timespec { tv_sec: at.cast_signed(), tv_nsec: i64::from(bits % 1_000_000_000) };
                let times = Timestamps { last_access: time, last_modification: time };
                calls::utimensat(CWD, name, &times, AtFlags::SYMLINK_NOFOLLOW)
            }
            11 => {
                let kinds =
                    [FileType::Fifo, FileType::Socket, FileType::RegularFile, FileType::CharacterDevice];
                let kind = self.random.pick(&kinds).copied().unwrap_or(FileType::Fifo);
                calls::mknodat(CWD, name, kind, mode, at)
            }
            12 => {
                calls::accessat(CWD, name, Access::from_bits_truncate(bits.cast_signed()), AtFlags::empty())
            }
            _ => {
                let flags = AtFlags::from_bits_truncate(bits);
                calls::statx(CWD, &name, flags, calls::StatxFlags::from_bits_truncate(bits))?;
                calls::statfs(name).map(drop)
            }
        }
    }

    fn on_two_names(&mut self) -> rustix::io::Result<()> {
        let (from, to, bits) = (self.name(), self.name(), self.bits());
        match self.random.below(5) {
            0 => calls::link(from, to),
            1 => calls::symlink(from, to),
            2 => calls::rename(from, to),
            3 => calls::renameat_with(CWD, from, CWD, to, RenameFlags::from_bits_retain(bits % 8)),
            _ => calls::unlinkat(CWD, to, AtFlags::REMOVEDIR),
        }
    }

    fn on_open(&mut self) -> rustix::io::Result<()> {
        let (at, len, bits) = (self.place(), self.place(), self.bits());
        let few = usize::try_from(self.random.below(20_000)).unwrap();
        let which = self.random.below(13);
        let (Some(file), Some(other)) = (self.random.pick(&self.held), self.random.pick(&self.held)) else {
            return self.on_name();
        };
        match which {
            0 | 1 => rustix::io::pwrite(file, &vec![7; few], at % (1 << 24)).map(drop),
            2 => rustix::io::pwrite(file, b"far", at).map(drop),
            3 => rustix::io::pread(file, &mut vec![0; few][..], at).map(drop),
            4 => calls::ftruncate(file, at),
            5 => calls::fallocate(
                file,
                FallocateFlags::from_bits_retain(bits % 128),
                at % (1 << 26),
                len % (1 << 22),
            ),
            6 => calls::fallocate(file, FallocateFlags::from_bits_retain(bits), at, len),
            7 => {
                let (mut from, mut to) = (at % (1 << 24), len % (1 << 24));
                calls::copy_file_range(file, Some(&mut from), other, Some(&mut to), few).map(drop)
            }
            8 => {
                let to = if bits % 2 == 0 { SeekFrom::Data(at) } else { SeekFrom::Hole(at) };
                calls::seek(file, to).map(drop)
            }
            9 => calls::ioctl_setflags(file, IFlags::from_bits_retain(bits)),
            10 => calls::fchmod(file, Mode::from_raw_mode(bits & 0o7777)),
            11 => {
                let mut list = calls::Dir::read_from(file.as_fd())?;
                list.by_ref().take(few % 50).try_for_each(|entry| entry.map(drop))
            }
            _ => calls::fdatasync(file),
        }
    }
}

/// Messages on the channel of a mount, most of them nearly right.
fn on_channel(mut random: Random, place: &Path, end: Instant) -> u64 {
    let directory = File::open(place).unwrap();
    let address = grant(&directory).address;
    let mut kept: Vec<OwnedFd> = Vec::new();
    let mut done = 0;
    while Instant::now() < end {
        let grant = grant(&directory);
        let place = Place { token: grant.token, name: Name::new(b"a"), shown: b"a".to_vec() };
        let request = Request { verb: Verb::Remove, flags: 0, places: vec![place], numbers: Vec::new() };
        let mut message = request.encode();
        for _ in 0..random.below(6) {
            let at = usize::try_from(random.below(message.len() as u64)).unwrap();
            message[at] = random.bytes(1)[0];
        }
        if random.one_in(4) {
            let len = random.below(40_000);
            message = random.bytes(len);
        }
        let socket = connect(&address);
        for _ in 0..=random.below(3) {
            let _ = rustix::net::send(&socket, &message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
        done += 1;
        // Some stay, and say no more.
        match random.one_in(3) {
            true if kept.len() < 100 => kept.push(socket),
            true => kept.clear(),
            false => {}
        }
        // One process more would leave others without a turn.
        if done % 50 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    done
}

/// Clients of a device that talk well for a while.
fn on_nbd(mut random: Random, socket: &Path, end: Instant) -> u64 {
    let mut kept: Vec<UnixStream> = Vec::new();
    let mut done = 0;
    while Instant::now() < end {
        let Ok(mut stream) = UnixStream::connect(socket) else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        stream.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
        let _ = speak(&mut random, &mut stream);
        done += 1;
        match random.one_in(3) {
            true if kept.len() < 20 => kept.push(stream),
            true => kept.clear(),
            false => {}
        }
    }
    done
}

fn speak(random: &mut Random, stream: &mut UnixStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_millis(500)))?;
    stream.read_exact(&mut [0; 18])?;
    // Answers that do not come are not waited for.
    stream.set_read_timeout(Some(Duration::from_millis(2)))?;
    stream.write_all(&[0, 0, 0, 3])?;
    for _ in 0..random.below(4) {
        let len = random.below(100);
        let claimed = if random.one_in(3) { random.next() } else { len };
        let option = u32::try_from(random.below(12)).unwrap_or(0).to_be_bytes();
        let claimed = u32::try_from(claimed & 0xffff_ffff).unwrap_or(0).to_be_bytes();
        stream.write_all(&[&b"IHAVEOPT"[..], &option, &claimed, &random.bytes(len)].concat())?;
    }
    // The way on to requests.
    stream.write_all(&[&b"IHAVEOPT"[..], &[0, 0, 0, 7, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0]].concat())?;
    let mut answers = vec![0; 1 << 16];
    let _ = stream.read(&mut answers);
    for _ in 0..random.below(30) {
        let (verb, flags) =
            (u16::try_from(random.below(8)).unwrap_or(0), u16::try_from(random.below(4)).unwrap_or(0));
        let offset = if random.one_in(4) { random.next() } else { random.below(60 << 20) };
        let most = if random.one_in(4) { u64::from(u32::MAX) } else { 40_000 };
        let len = random.below(most);
        let len = u32::try_from(len).unwrap_or(0);
        let head =
            [&0x2560_9513_u32.to_be_bytes()[..], &flags.to_be_bytes(), &verb.to_be_bytes(), b"cookie42"];
        stream.write_all(&[&head.concat()[..], &offset.to_be_bytes(), &len.to_be_bytes()].concat())?;
        if verb == 1 {
            let sent = random.below(u64::from(len).min(200_000) + 1);
            stream.write_all(&random.bytes(sent))?;
        }
        let _ = stream.read(&mut answers);
    }
    let len = random.below(100);
    stream.write_all(&random.bytes(len))
}

/// A mount whose directory others may write.
fn open_mount(scratch: &Scratch) -> (Mounted, PathBuf) {
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let image = volume(scratch, "-t ext4 -b 4096", "256M");
    let mounted = Mounted::new(&image, &["-o", "rw,allow_other"]).unwrap();
    let place = mounted.path().join("place");
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).unwrap();
    (mounted, image)
}

fn calls_on_a_mount(test: &str, seconds: u64) {
    if !have(test) || !tool::have_tools(test, &["setpriv"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let (mounted, image) = open_mount(&scratch);
    let place = mounted.path().join("place");
    beside(mounted.process(), ("calls", &place), seconds);
    // In an hour they fill the volume.
    fs::remove_dir_all(place).unwrap();
    succeed(&mut on(&mounted, &["mkdir", "m:still"]));
    judge(mounted, &image);
}

fn bytes_on_the_channel(test: &str, seconds: u64) {
    if !have(test) || !tool::have_tools(test, &["setpriv"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let (mounted, image) = open_mount(&scratch);
    beside(mounted.process(), ("channel", &mounted.path().join("place")), seconds);
    succeed(&mut on(&mounted, &["mkdir", "m:still"]));
    judge(mounted, &image);
}

fn bytes_on_nbd(test: &str, seconds: u64) {
    if !have(test) || !tool::have_tools(test, &["setpriv"]) {
        return;
    }
    let scratch = Scratch::new(test);
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let image = volume(&scratch, "-t ext4 -b 4096", "64M");
    let socket = scratch.join("socket");
    let mut command = plat(&["serve", "--nbd"]);
    let mut server = command.arg(&socket).arg(&image).stdout(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while !socket.exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    beside(server.id(), ("nbd", &socket), seconds);
    let mut hello = [0; 8];
    UnixStream::connect(&socket).unwrap().read_exact(&mut hello).unwrap();
    assert_eq!(&hello, b"NBDMAGIC");
    let id = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert!(server.wait().unwrap().code().is_some());
    assert!(!socket.exists());
}

#[test]
fn odd_calls_of_a_stranger_are_answered() {
    calls_on_a_mount("odd_calls_of_a_stranger", 5);
}

#[test]
fn odd_bytes_of_a_stranger_on_the_channel_are_answered() {
    bytes_on_the_channel("odd_bytes_of_a_stranger_on_the_channel", 3);
}

#[test]
fn odd_bytes_of_a_stranger_on_nbd_are_answered() {
    bytes_on_nbd("odd_bytes_of_a_stranger_on_nbd", 3);
}

#[test]
#[ignore = "long run: as long as PLATFS_SECONDS says"]
fn calls_for_long() {
    calls_on_a_mount("strangers_calls", number(SECONDS).unwrap_or(60));
}

#[test]
#[ignore = "long run: as long as PLATFS_SECONDS says"]
fn channel_for_long() {
    bytes_on_the_channel("strangers_channel", number(SECONDS).unwrap_or(60));
}

#[test]
#[ignore = "long run: as long as PLATFS_SECONDS says"]
fn nbd_for_long() {
    bytes_on_nbd("strangers_nbd", number(SECONDS).unwrap_or(60));
}
