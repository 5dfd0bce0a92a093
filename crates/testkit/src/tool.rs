//! Running the reference tools, and saying loudly what cannot run on this machine.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::{env, fs, io};

/// Prints on standard error, past the capture of the test harness, that `test` does not run because of `reason`.
/// `scripts/test.sh` counts these lines and names the tests at its end.
///
/// # Panics
/// When `PLATFS_NO_SKIP` is set: then a machine is meant to have everything, and a skipped test is a failed one.
pub fn skip(test: &str, reason: &str) {
    skip_allowed(test, reason);
    assert!(
        env::var_os("PLATFS_NO_SKIP").is_none(),
        "{test} was skipped ({reason}) though PLATFS_NO_SKIP is set"
    );
}

/// Prints what [`skip`] does, and is no failure on a machine that is meant to have everything.
pub fn skip_allowed(test: &str, reason: &str) {
    let line = format!("SKIPPED: {test} - {reason}\n");
    // A lost message is better than a failed test.
    let _ = io::stderr().write_all(line.as_bytes());
    // Messages of tests that run side by side are mixed on standard error, so `scripts/test.sh` names a file of its own.
    if let Some(path) = env::var_os("PLATFS_SKIPPED") {
        let file = fs::File::options().append(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
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

/// Skips with a message and says `false` unless this process has the capabilities of root.
pub fn have_root(test: &str) -> bool {
    let root = administers();
    if !root {
        skip(test, "needs root");
    }
    root
}

/// Returns true if this process may mount, make devices, and act for other users, as root may.
pub fn administers() -> bool {
    use rustix::thread::CapabilitySet;
    let wanted =
        [CapabilitySet::SYS_ADMIN, CapabilitySet::CHOWN, CapabilitySet::MKNOD, CapabilitySet::SETUID];
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| wanted.into_iter().all(|one| sets.effective.contains(one)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::again;
    use crate::scratch::Scratch;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    const SKIPS: &str = "PLATFS_TEST_SKIPS";

    /// Skips as a test of another machine would. No test of its own: the other one starts it.
    #[test]
    fn worker() {
        if env::var_os(SKIPS).is_some() {
            assert!(!have_tools("first", &["no-such-tool"]));
            skip_allowed("second", "needs root");
            skip_allowed("third", "needs root");
            skip_allowed("third", "needs root");
        }
    }

    /// `make test` ends with what did not run, although the test harness calls a skipped test passed.
    #[test]
    fn skipped_tests_are_counted_and_named_at_the_end() {
        let scratch = Scratch::new("skipped");
        let cargo = scratch.join("cargo");
        let this = again::test("tool::tests::worker", SKIPS, "1");
        let words: Vec<_> = this.get_args().map(|word| word.to_str().unwrap()).collect();
        let program = this.get_program().to_str().unwrap();
        let script = format!(
            "#!/bin/sh\n{program} {}\n\
             echo 'test result: FAILED. 7 passed; 1 failed; 2 ignored; 0 measured'\nexit 101\n",
            words.join(" ")
        );
        fs::write(&cargo, script).unwrap();
        fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let mut run = command("bash");
        run.arg(project.join("scripts/test.sh")).env("CARGO", &cargo).env(SKIPS, "1");
        let output = run.env_remove("PLATFS_NO_SKIP").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let end = text.rsplit_once("\n\n").unwrap().1;
        assert_eq!(
            end,
            "8 tests passed, 1 failed; 2 long ones were left to `make long`\n\
             SKIPPED: 1, no-such-tool is not installed (make setup): first\n\
             SKIPPED: 2, needs root: second, third\n\
             3 tests were SKIPPED in all or in part\n"
        );
        assert_eq!(output.status.code(), Some(101));
    }
}
