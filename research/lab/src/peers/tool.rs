//! Programs of the system: found, run, and what they said when they failed. None is given a terminal to ask at.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The path of an installed program, looked for in `PATH` and where system tools are.
pub(crate) fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(tool)).find(|file| file.is_file())
}

/// Returns true if this process may mount.
pub(crate) fn can_mount() -> bool {
    use rustix::thread::{CapabilitySet, capabilities};
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// A command for an installed program, with messages in English.
///
/// # Errors
/// It is not installed.
pub(crate) fn command(tool: &str) -> Result<Command, String> {
    let path = find(tool).ok_or_else(|| format!("{tool} is not installed"))?;
    let mut command = Command::new(path);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    Ok(command)
}

/// Runs a program and returns what it printed.
///
/// # Errors
/// It is not installed, can't be started or fails; with what it said.
pub(crate) fn run<A: AsRef<OsStr>>(
    tool: &str,
    arguments: impl IntoIterator<Item = A>,
) -> Result<String, String> {
    output(command(tool)?, tool, arguments)
}

/// Runs a program in a directory.
///
/// # Errors
/// See [`run`].
pub(crate) fn run_in<A: AsRef<OsStr>>(
    directory: &Path,
    tool: &str,
    arguments: impl IntoIterator<Item = A>,
) -> Result<String, String> {
    let mut command = command(tool)?;
    command.current_dir(directory);
    output(command, tool, arguments)
}

fn output<A: AsRef<OsStr>>(
    mut command: Command,
    tool: &str,
    arguments: impl IntoIterator<Item = A>,
) -> Result<String, String> {
    let output = command.args(arguments).output().map_err(|error| format!("{tool}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
    Err(format!("{tool}: {}: {}", output.status, last.trim()))
}

/// Returns true if something is mounted there: the path is one without links.
pub(crate) fn is_mounted(directory: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // Spaces and the like are written in octal there; what ends in this name is ours all the same.
    let own: Vec<_> = directory.iter().rev().take(2).map(OsStr::to_string_lossy).collect();
    let end = format!("/{}", own.iter().rev().map(AsRef::as_ref).collect::<Vec<&str>>().join("/"));
    table.lines().filter_map(|line| line.split(' ').nth(4)).any(|point| point.ends_with(&end))
}
