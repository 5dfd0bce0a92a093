//! A test that runs once more in a process of its own, where a limit may hold that would end the other tests.
//!
//! Owns: starting it, waiting for its end, and the limit of its memory. Excludes its work: the test that is started looks
//! for the variable that it gets here, and does nothing without it.

use std::ffi::OsStr;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A command that runs one test of this program, by its whole name, with a variable.
///
/// # Panics
/// The program has no name.
pub fn test(name: &str, variable: &str, value: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program has a name"));
    command.args(["--exact", name, "--nocapture"]).env(variable, value);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Runs a command to its end.
///
/// # Panics
/// It can't be started, or has not ended after half a minute. Then it is killed.
pub fn ended(command: &mut Command) -> ExitStatus {
    let mut child = command.spawn().expect("a command that can be started");
    for _ in 0..300 {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        thread::sleep(Duration::from_millis(100));
    }
    let _ = child.kill();
    let _ = child.wait();
    panic!("{command:?} does not end");
}

/// Leaves this process so many bytes of memory beside those that it has.
///
/// # Panics
/// There is no `/proc`, or the limit can't be set.
pub fn leave_memory(bytes: u64) {
    let status = fs::read_to_string("/proc/self/status").expect("`/proc`");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB"));
    let size: u64 = size.and_then(|size| size.parse().ok()).expect("a size in kB");
    let limit = Rlimit { current: Some((size << 10) + bytes), maximum: getrlimit(Resource::As).maximum };
    setrlimit(Resource::As, limit).expect("a limit that can be set");
}
