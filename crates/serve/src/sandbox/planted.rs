//! Attempts of a program in a stranger's hands, for tests: they are in no release.
//!
//! With `PLATFS_TEST_PLANTED=FILE` a thread that a cage holds tries to reach that file, other files, programs, sockets and
//! processes, and says on standard error what it got: a line `planted: NAME: refused`, or `done`.

#![expect(clippy::disallowed_methods, reason = "what a test has a program in a stranger's hands try")]

use std::fs::File;
use std::io;
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use nix::sys::ptrace;
use nix::unistd::Pid;
use rustix::fs::{CWD, Mode};
use rustix::process::Signal;

type Attempt<'a> = (&'static str, Box<dyn Fn() -> bool + 'a>);

/// Tries all of it on a thread of its own, and waits for that.
pub(super) fn run() {
    let Some(file) = std::env::var_os("PLATFS_TEST_PLANTED") else { return };
    let tried = std::thread::spawn(move || {
        let lines = attempts(Path::new(&file)).into_iter().map(|(name, attempt)| {
            format!("planted: {name}: {}\n", if attempt() { "done" } else { "refused" })
        });
        let text: String = lines.collect();
        let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
    });
    let _ = tried.join();
}

/// The process that started this one: by `/proc`, since the call is not among those that are left.
fn parent() -> Option<rustix::process::Pid> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let number = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    rustix::process::Pid::from_raw(number.trim().parse().ok()?)
}

fn attempts(file: &Path) -> Vec<Attempt<'_>> {
    let parent = parent();
    let new = || file.with_extension("new");
    let get = |path: &str| File::open(path).is_ok();
    let to_parent = move || {
        parent.map_or(Err(rustix::io::Errno::SRCH), |it| rustix::process::kill_process(it, Signal::CONT))
    };
    let trace = move || {
        parent.is_some_and(|it| {
            ptrace::seize(Pid::from_raw(it.as_raw_nonzero().get()), ptrace::Options::empty()).is_ok()
        })
    };
    let directory = || file.with_extension("directory");
    let mount = move || {
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", directory(), "tmpfs", flags, None)?;
        rustix::mount::unmount(directory(), rustix::mount::UnmountFlags::empty())
    };
    let moved = || file.with_extension("moved");
    let rename = move || std::fs::rename(file, moved()).and_then(|()| std::fs::rename(moved(), file));
    vec![
        ("read a file", Box::new(move || File::open(file).is_ok())),
        ("change a mode", Box::new(move || rustix::fs::chmod(file, Mode::RWXU).is_ok())),
        ("change an owner", Box::new(move || rustix::fs::chown(file, None, None).is_ok())),
        ("write a file", Box::new(move || File::options().write(true).open(file).is_ok())),
        (
            "cut a file off",
            Box::new(move || {
                rustix::fs::open(file, rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::TRUNC, Mode::empty())
                    .is_ok()
            }),
        ),
        ("make a file", Box::new(move || File::create(new()).is_ok())),
        ("rename a file", Box::new(move || rename().is_ok())),
        ("remove a file", Box::new(move || std::fs::remove_file(file).is_ok())),
        ("make a directory", Box::new(move || rustix::fs::mkdirat(CWD, directory(), Mode::RWXU).is_ok())),
        ("read the users", Box::new(move || get("/etc/passwd"))),
        (
            "read the memory of another",
            Box::new(move || parent.is_some_and(|it| get(&format!("/proc/{}/mem", it.as_raw_nonzero())))),
        ),
        (
            "set the kernel",
            Box::new(|| File::options().write(true).open("/proc/sys/kernel/core_pattern").is_ok()),
        ),
        ("run a program", Box::new(|| Command::new("/bin/true").status().is_ok())),
        (
            "connect to a host",
            Box::new(|| TcpStream::connect("127.0.0.1:9").map_or_else(is_no_refusal, |_| true)),
        ),
        ("send to a host", Box::new(|| UdpSocket::bind("127.0.0.1:0").is_ok())),
        (
            "connect to a program",
            Box::new(|| UnixStream::connect("/planted").map_or_else(is_no_refusal, |_| true)),
        ),
        ("signal another", Box::new(move || to_parent().is_ok())),
        ("trace another", Box::new(trace)),
        ("mount", Box::new(move || mount().is_ok())),
    ]
}

/// Returns true if a connection failed since nobody answers.
fn is_no_refusal(error: io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::PermissionDenied)
}
