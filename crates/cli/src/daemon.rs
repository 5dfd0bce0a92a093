//! Going into the background.
//!
//! A process does not fork here: it runs itself a second time with `--background`, waits until that one has mounted, and
//! leaves. Until then the second one ends with the first. Only the beginning of a new process is sure to have no threads and no locks.
//!
//! Owns: what a process in the background, and the one outside of its cage, take along from their caller. Each
//! takes what it works with, and no more: of the environment the variables that it needs, of the descriptors those that its
//! arguments name. A script's lock or pipe is the script's, and what it keeps in its environment is nobody's business for
//! as long as a mount lasts.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};

use platfs_host::system;
use platfs_serve::mount::outside::OUTSIDE;
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;

/// glibc keeps freed memory, in as many arenas as there are threads, so a server that once used much keeps
/// it for good. These settings make glibc give back what it can; other allocators ignore them. Without the
/// pad, glibc takes no room beside a small block in which bytes of files would lie among small blocks that
/// stay (with 192 MiB of delayed data, 73 MiB after an untar in place of 141). Nothing here uses restartable sequences,
/// which the kernel sees to at each of the two task switches that a request takes.
const SETTINGS: [(&str, &str); 5] = [
    ("GLIBC_TUNABLES", "glibc.pthread.rseq=0"),
    ("MALLOC_ARENA_MAX", "2"),
    ("MALLOC_TRIM_THRESHOLD_", "1048576"),
    ("MALLOC_MMAP_THRESHOLD_", "16384"),
    ("MALLOC_TOP_PAD_", "0"),
];

/// The variables that the process in the background keeps, by name, or by beginning where that ends in `_`: where
/// programs, files and the user's own settings lie; language and time; the loader's and the allocator's.
const KEPT: [&str; 18] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "XDG_",
    "LANG",
    "LANGUAGE",
    "LC_",
    "TZ",
    "LD_",
    "MALLOC_",
    "GLIBC_",
    "RUST_BACKTRACE",
    "LLVM_PROFILE_FILE",
    "SOURCE_DATE_EPOCH",
    "PLAT_",
    "PLATFS_",
];
/// The variables of a volume of a store: stores with their keys, and the way to them.
const OF_STORES: [&str; 12] = [
    "AWS_",
    "GOOGLE_",
    "AZURE_",
    "SSL_",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
];
/// Directories in which a descriptor has a name.
const DESCRIPTORS: [&[u8]; 2] = [b"/dev/fd/", b"/proc/self/fd/"];
/// The argument by which a process learns that it is the one in the background.
pub const BACKGROUND: &str = "--background";

/// Line that the process in the background writes once the mount stands.
const READY: &[u8] = b"mounted\n";

/// Runs this program with other arguments and this standard input, does something meanwhile, and waits until it has
/// mounted. What it complains of before comes out here. `of_store`: the image is a volume of a store.
///
/// # Errors
/// It can't be run. That it ended before it had mounted is `Ok(Some(how))`.
pub fn launch(
    arguments: &[OsString],
    of_store: bool,
    input: Stdio,
    meanwhile: &dyn Fn(),
) -> io::Result<Option<ExitStatus>> {
    let mut child = Command::new("/proc/self/exe")
        .arg0("plat")
        .args(arguments)
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| is_kept(name, of_store)))
        .envs(SETTINGS.iter().filter(|(name, _)| std::env::var_os(name).is_none()).copied())
        .stdin(input)
        .stdout(Stdio::piped())
        .spawn()?;
    meanwhile();
    let mut answer = Vec::new();
    if let Some(output) = &mut child.stdout {
        output.take(READY.len() as u64).read_to_end(&mut answer)?;
    }
    if answer == READY { Ok(None) } else { child.wait().map(Some) }
}

fn is_kept(name: &OsStr, of_store: bool) -> bool {
    let name = name.as_bytes();
    let of_store = if of_store { &OF_STORES[..] } else { &[] };
    KEPT.iter().chain(of_store).any(|kept| {
        if kept.ends_with('_') { name.starts_with(kept.as_bytes()) } else { name == kept.as_bytes() }
    })
}

/// Closes what the caller had open, in a process in the background and in the one outside of its cage; has the first end
/// with its caller until its mount stands. Nothing else may be opened before.
pub fn begin(arguments: &[OsString]) {
    let is_meant = |word: &OsString| word == BACKGROUND || word == OUTSIDE;
    if arguments.get(1..3).is_none_or(|first| first[0] != "mount" || !is_meant(&first[1])) {
        return;
    }
    // Until the mount stands, this process ends with the command that waits for it: nobody else could stop it while it waits
    // for its image.
    if arguments[2] == BACKGROUND {
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
    }
    let Ok(open) = system::names("/proc/self/fd") else { return };
    let numbers = open.iter().filter_map(|name| name.to_str()?.parse().ok());
    let open: Vec<RawFd> = numbers.collect();
    let named: Vec<RawFd> =
        arguments.iter().flat_map(|argument| descriptors_in(argument.as_bytes())).collect();
    for descriptor in open.into_iter().filter(|number| *number > 2 && !named.contains(number)) {
        // That of the directory is closed already.
        let _ = nix::unistd::close(descriptor);
    }
}

/// The descriptors that an argument names: as a file, or in an option.
fn descriptors_in(argument: &[u8]) -> Vec<RawFd> {
    let number = |at: usize| {
        let rest = argument.get(at..)?;
        let prefix = DESCRIPTORS.iter().find(|prefix| rest.starts_with(prefix))?;
        let digits = rest.get(prefix.len()..)?;
        let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
        std::str::from_utf8(digits.get(..end)?).ok()?.parse().ok()
    };
    (0..argument.len()).filter_map(number).collect()
}

/// Leaves the terminal and the directory that this was started in, and reports to [`launch`] that the mount
/// stands. Standard input, output and error lead nowhere from then on.
///
/// # Errors
/// Whatever the system says; before the mount is announced.
pub fn detach() -> io::Result<()> {
    rustix::process::setsid()?;
    system::work_at_the_root()?;
    // What it makes is for nobody else, and its memory, which may hold keys, goes into no file.
    rustix::process::umask(Mode::from_raw_mode(0o077));
    platfs_open::process::leave_no_core();
    let nowhere = system::open("/dev/null", OFlags::RDWR)?;
    rustix::process::set_parent_process_death_signal(None)?;
    let mut output = io::stdout();
    output.write_all(READY)?;
    output.flush()?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_found_in_arguments() {
        let found = |text: &str| descriptors_in(text.as_bytes());
        assert_eq!(found("/dev/fd/7"), [7]);
        assert_eq!(found("key=/proc/self/fd/12,log=/dev/fd/3"), [12, 3]);
        assert!(found("/dev/fd/x").is_empty() && found("/dev/fd/").is_empty() && found("7").is_empty());
        assert!(found("/dev/fd/99999999999999").is_empty());
    }

    #[test]
    fn secrets_of_others_are_not_kept() {
        for name in ["PATH", "LC_ALL", "AWS_SECRET_ACCESS_KEY", "https_proxy", "PLAT_CACHE"] {
            assert!(is_kept(OsStr::new(name), true), "{name}");
        }
        for name in ["GITHUB_TOKEN", "USER_PASSWORD", "HTTP_TOKEN", "SSH_AUTH_SOCK", "BASH_FUNC_x%%"] {
            assert!(!is_kept(OsStr::new(name), true), "{name}");
        }
        assert!(!is_kept(OsStr::new("AWS_SECRET_ACCESS_KEY"), false), "no store is used");
    }
}
