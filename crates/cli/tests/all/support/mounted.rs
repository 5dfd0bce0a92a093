//! A volume mounted by `plat mount`, as a guard that unmounts.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};
use testkit::scratch::Scratch;
use testkit::tool;

/// Longest that a mount may take to stand, or to end: far beyond what a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Skips with a message and says `false` where FUSE can't be used.
pub fn have_fuse(test: &str) -> bool {
    let works = Path::new("/dev/fuse").exists() && tool::find("fusermount3").is_some();
    if !works {
        tool::skip(test, "needs /dev/fuse and fusermount3");
    }
    works
}

/// Arguments for the transport that `PLATFS_TRANSPORT` names and the cage that `PLATFS_SANDBOX` wants, none for what is not
/// set.
pub fn transport() -> Vec<String> {
    let option = |variable: &str, name: &str| {
        std::env::var(variable).ok().map(|value| ["-o".to_owned(), format!("{name}={value}")])
    };
    let set = [option("PLATFS_TRANSPORT", "transport"), option("PLATFS_SANDBOX", "sandbox")];
    set.into_iter().flatten().flatten().collect()
}

/// The command. A suite in the background of a shell ignores SIGINT, and would have its programs ignore it.
fn server() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_plat")]);
    command
}

/// A mount in the foreground, its log gathered.
pub struct Mounted {
    child: Child,
    directory: PathBuf,
    log: Option<thread::JoinHandle<Vec<String>>>,
    _scratch: Scratch,
}

impl Mounted {
    /// Mounts `image` with these options beside `-f -v`, and waits until it stands.
    pub fn new(image: &Path, options: &[&str]) -> Result<Self, String> {
        Self::by(server(), Scratch::new("plat"), image, options)
    }

    /// Mounts for a user, who owns the image.
    #[allow(dead_code, reason = "not all tests mount for users")]
    pub fn by_user(user: u32, image: &Path, options: &[&str]) -> Result<Self, String> {
        let mut command = server();
        command.uid(user).gid(user);
        let scratch = Scratch::new("plat");
        chown(scratch.path(), Some(user), Some(user)).unwrap();
        Self::by(command, scratch, image, options)
    }

    /// Mounts with variables in the server's environment.
    #[allow(dead_code, reason = "few tests set any")]
    pub fn with_env(image: &Path, options: &[&str], variables: &[(&str, &str)]) -> Result<Self, String> {
        let mut command = server();
        command.envs(variables.iter().copied());
        Self::by(command, Scratch::new("plat"), image, options)
    }

    fn by(mut command: Command, scratch: Scratch, image: &Path, options: &[&str]) -> Result<Self, String> {
        let directory = scratch.join("m");
        fs::create_dir(&directory).unwrap();
        let owner = fs::metadata(scratch.path()).unwrap();
        chown(&directory, Some(owner.uid()), Some(owner.gid())).unwrap();
        command.arg("mount").args(transport()).args(options).args(["-f", "-v"]).arg(image).arg(&directory);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        for line in lines.by_ref().map_while(Result::ok) {
            said.push(line);
            if said.last().is_some_and(|line| line.contains(" mounted on ")) {
                let log =
                    thread::spawn(move || said.into_iter().chain(lines.map_while(Result::ok)).collect());
                return Ok(Mounted { child, directory, log: Some(log), _scratch: scratch });
            }
        }
        let status = child.wait().unwrap();
        Err(format!("{status}: {}", said.join("\n")))
    }

    /// Where the root of the volume is.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// The number of the process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends the process a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits until the process has ended; what it said, without advice about the machine.
    pub fn wait(&mut self) -> (ExitStatus, Vec<String>) {
        let begun = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => thread::sleep(Duration::from_millis(2)),
            }
            assert!(begun.elapsed() < PATIENCE, "the mount does not end");
        };
        let mut log = self.log.take().map(|log| log.join().unwrap()).unwrap_or_default();
        log.retain(|line| !is_advice(line));
        (status, log)
    }

    /// Waits until a mount whose server was killed answers that it has no server. What comes while the kernel
    /// takes the connection apart is cancelled or aborted.
    pub fn wait_until_dead(&self) {
        let begun = Instant::now();
        // The kernel always asks the server for this; a directory it may open by what it remembers.
        let error = || rustix::fs::statvfs(&self.directory).err();
        while error() != Some(rustix::io::Errno::NOTCONN) {
            assert!(begun.elapsed() < PATIENCE, "{:?}", error());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Takes the mount of a server that was killed away: what it had not stored is lost, and that is said.
    #[allow(dead_code, reason = "not all tests kill")]
    pub fn take_away(&self) {
        self.wait_until_dead();
        let mut umount = Command::new(env!("CARGO_BIN_EXE_plat"));
        let done = umount.arg("umount").arg(&self.directory).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let is_told = said.contains("had ended before: what was not synced is lost");
        assert!(done.status.code() == Some(1) && is_told, "{}: {said}", done.status);
    }

    /// Unmounts; the log.
    pub fn unmount(mut self) -> Vec<String> {
        unmount_with(tool::command("fusermount3").arg("-u").arg(&self.directory));
        let (status, log) = self.wait();
        assert!(status.success(), "{status}: {log:?}");
        log
    }
}

/// Returns true if a mount says this only because the kernel's `enable_uring` is off.
pub fn is_advice(line: &str) -> bool {
    line.starts_with("plat: warning: small files are faster over io_uring")
}

/// Runs a command that unmounts, until the mount is free. A child that another test is starting holds
/// copies of all our files until it becomes its program, so that it can be busy for a moment after
/// ours were closed.
pub fn unmount_with(command: &mut Command) {
    let begun = Instant::now();
    loop {
        let output = command.output().unwrap();
        if output.status.success() {
            return;
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let busy = said.to_lowercase().contains("busy");
        assert!(busy && begun.elapsed() < PATIENCE, "{command:?}: {said}");
        thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Also behind a server that has ended: killed, it leaves a dead mount.
        let _ = tool::command("fusermount3").arg("-uqz").arg(&self.directory).output();
        if self.log.is_some() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if let Some(log) = self.log.take().filter(|_| thread::panicking()) {
            log.join().unwrap_or_default().iter().for_each(|line| eprintln!("{line}"));
        }
    }
}

/// Prints where each thread of this process, and of all servers that it started, waits in the kernel.
pub fn tell_all_that_waits() {
    let mut processes = vec![std::process::id()];
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        processes.extend(children.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
    for process in processes {
        eprintln!("{}", waiting(process));
    }
}

/// Where each thread of a process waits in the kernel.
pub fn waiting(process: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    let lines = tasks.into_iter().flatten().flatten().map(|task| {
        let of = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        format!("{process} {} {}\n{}", task.file_name().display(), of("comm").trim(), of("stack"))
    });
    lines.collect()
}
