//! Going into the background.
//!
//! A process does not fork here: it runs itself a second time with `--background`, waits until that one
//! has mounted, and leaves. Only the beginning of a new process is sure to have no threads and no locks.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};

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

/// What the process in the background writes once the mount stands.
const READY: &[u8] = b"mounted\n";

/// Runs this program with other arguments, and waits until it has mounted. What it complains of before
/// comes out here.
///
/// # Errors
/// It can't be run. That it ended before it had mounted is `Ok(Some(how))`.
pub fn launch(arguments: &[OsString]) -> io::Result<Option<ExitStatus>> {
    let mut child = Command::new("/proc/self/exe")
        .arg0("plat")
        .args(arguments)
        .envs(SETTINGS.iter().filter(|(name, _)| std::env::var_os(name).is_none()).copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut answer = Vec::new();
    if let Some(output) = &mut child.stdout {
        output.take(READY.len() as u64).read_to_end(&mut answer)?;
    }
    if answer == READY { Ok(None) } else { child.wait().map(Some) }
}

/// Leaves the terminal and the directory that this was started in, and reports to [`launch`] that the mount
/// stands. Standard input, output and error lead nowhere from then on.
///
/// # Errors
/// Whatever the system says; before the mount is announced.
pub fn detach() -> io::Result<()> {
    rustix::process::setsid()?;
    std::env::set_current_dir("/")?;
    let nowhere = File::options().read(true).write(true).open("/dev/null")?;
    let mut output = io::stdout();
    output.write_all(READY)?;
    output.flush()?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    Ok(())
}
