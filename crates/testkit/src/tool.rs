//! Running the reference tools, and saying loudly what cannot run on this machine.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::{env, io};

/// Says on standard error, past the capture of the test harness, that `test` does not run because of `reason`.
///
/// # Panics
/// When `PLATFS_NO_SKIP` is set: then a machine is meant to have everything, and a skipped test is a failed one.
pub fn skip(test: &str, reason: &str) {
    // A lost message is better than a failed test.
    let _ = writeln!(io::stderr(), "SKIPPED: {test} - {reason}");
    assert!(
        env::var_os("PLATFS_NO_SKIP").is_none(),
        "{test} was skipped ({reason}) though PLATFS_NO_SKIP is set"
    );
}

/// Skips with a message and says `false` unless all `tools` are installed.
pub fn have_tools(test: &str, tools: &[&str]) -> bool {
    for tool in tools {
        if find(tool).is_none() {
            skip(test, &format!("{tool} is not installed (make setup)"));
            return false;
        }
    }
    true
}

/// Skips with a message and says `false` unless this process is root.
pub fn have_root(test: &str) -> bool {
    let root = is_root();
    if !root {
        skip(test, "needs root");
    }
    root
}

/// Returns true if this process is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The path of an installed tool, looked for in `PATH` and the directories of system tools.
pub fn find(tool: &str) -> Option<std::path::PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(Into::into);
    env::split_paths(&path).chain(system).map(|dir| dir.join(tool)).find(|file| file.is_file())
}

/// A command for an installed tool, with messages in English and reproducible behaviour where the tool offers it.
///
/// # Panics
/// When the tool is not installed.
pub fn command(tool: &str) -> Command {
    let path = find(tool).unwrap_or_else(|| panic!("{tool} is not installed"));
    let mut command = Command::new(path);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// Runs `command` and returns what it printed.
///
/// # Panics
/// When it cannot be started, or its exit code is not 0.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Runs an installed tool and returns its standard output as text, with what is not UTF-8 replaced.
///
/// # Panics
/// As [`command`] and [`run`].
pub fn text<S: AsRef<OsStr>>(tool: &str, arguments: &[S]) -> String {
    let output = run(command(tool).args(arguments));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Asks debugfs one question about `image` and returns its answer.
///
/// # Panics
/// As [`command`] and [`run`].
pub fn debugfs(image: &Path, request: &str) -> String {
    let output = run(command("debugfs").args(["-R", request]).arg(image));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Has debugfs change `image`.
///
/// # Panics
/// As [`command`] and [`run`].
pub fn debugfs_write(image: &Path, request: &str) {
    run(command("debugfs").args(["-w", "-R", request]).arg(image));
}

/// One line of `dumpe2fs -h`: the text after `field:`, or nothing when there is no such line.
///
/// # Panics
/// As [`command`] and [`run`].
pub fn dumpe2fs_field(image: &Path, field: &str) -> Option<String> {
    let text = text("dumpe2fs", &[OsStr::new("-h"), image.as_os_str()]);
    text.lines().find_map(|line| Some(line.strip_prefix(field)?.strip_prefix(':')?.trim().to_owned()))
}
