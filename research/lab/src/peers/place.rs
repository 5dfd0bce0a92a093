//! Where a peer works: a directory with an image and a mount point, and guards that leave nothing behind: no mount,
//! no loop device, no file, no process. Not on errors, not on panics, and not when this process is killed: a
//! process of its own, which learns of the end by a pipe that is closed, takes away what is there then.

use std::ffi::OsString;
use std::fs::{File, create_dir};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::tool;

/// Script that runs when the pipe is closed. A mount point is known by the name of its directory, which no
/// other program uses; nothing is removed but what is made here. The loop device goes with its mount.
const SWEEP: &str = r#"
trap '' INT TERM HUP
cat >/dev/null
mounted() { grep -qF "/${1##*/}/mount " /proc/self/mountinfo; }
n=0
while mounted "$1" && [ $n -lt 100 ]; do
    umount "$1/mount" 2>/dev/null || fusermount3 -u "$1/mount" 2>/dev/null || sleep 0.1
    n=$((n + 1))
done
mounted "$1" && umount -l "$1/mount"
rm -f "$1"/image "$1"/copy "$1"/log
rmdir "$1/mount" "$1"
"#;

/// How long unmounting may take: what was written goes to the disk first.
const UNMOUNTING: Duration = Duration::from_secs(300);
/// How long a file system of a process may take to appear.
const APPEARING: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);

/// A directory of its own; gone with this value, or with this process.
pub(crate) struct WorkDir {
    root: PathBuf,
    sweeper: Child,
}

impl WorkDir {
    /// Makes one in `dir`.
    ///
    /// # Errors
    /// It can't be made; there is no shell.
    pub(crate) fn new(dir: &Path) -> Result<WorkDir, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = dir.canonicalize().map_err(|error| format!("{}: {error}", dir.display()))?;
        let root = dir.join(format!("plat-lab-peers.{}.{number}", std::process::id()));
        let failure = |error: std::io::Error| format!("{}: {error}", root.display());
        let mut sweep = tool::command("sh")?;
        sweep.args(["-c", SWEEP, "sweep"]).arg(&root).stdin(Stdio::piped()).stderr(Stdio::null());
        create_dir(&root).map_err(failure)?;
        // Signals from the terminal are for this process alone.
        let sweeper = sweep.process_group(0).spawn().map_err(failure)?;
        let place = WorkDir { root, sweeper };
        create_dir(place.mount_point()).map_err(|error| format!("{}: {error}", place.root.display()))?;
        Ok(place)
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.root.join("image")
    }

    /// Another image beside it.
    pub(crate) fn copy(&self) -> PathBuf {
        self.root.join("copy")
    }

    pub(crate) fn mount_point(&self) -> PathBuf {
        self.root.join("mount")
    }

    /// Path of the messages of a process that serves a file system.
    fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    /// Makes an empty image: one hole.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn empty_image(&self, size: u64) -> Result<(), String> {
        let made = File::create(self.image()).and_then(|file| file.set_len(size));
        made.map_err(|error| format!("{}: {error}", self.image().display()))
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        drop(self.sweeper.stdin.take());
        // It ends by itself; an error could not be reported to anything.
        let _ = self.sweeper.wait();
    }
}

/// A file system that is mounted on a place; unmounted with this value.
pub(crate) struct Mounted<'p> {
    place: &'p WorkDir,
    /// The process that serves it, for those that are served by one.
    server: Option<Child>,
    ended: bool,
}

impl<'p> Mounted<'p> {
    /// Mounts the image by the kernel, on a loop device that goes with the mount.
    ///
    /// # Errors
    /// The message of mount(8).
    pub(crate) fn kernel(place: &'p WorkDir, fs_type: &str, options: &str) -> Result<Self, String> {
        let comma = if options.is_empty() { "" } else { "," };
        let options = format!("loop{comma}{options}");
        let words = ["-t", fs_type, "-o", &options].map(OsString::from);
        let paths = [place.image().into_os_string(), place.mount_point().into_os_string()];
        tool::run("mount", words.into_iter().chain(paths))?;
        Ok(Mounted { place, server: None, ended: false })
    }

    /// Mounts the image by a process of its own that stays in the foreground: its program and arguments, to
    /// which the image and the mount point are added.
    ///
    /// # Errors
    /// The process ends before the file system appears, or nothing appears.
    pub(crate) fn served(place: &'p WorkDir, program: &Path, arguments: &[&str]) -> Result<Self, String> {
        let shown = program.display();
        let log = File::create(place.log()).map_err(|error| format!("{}: {error}", place.log().display()))?;
        let mut command = std::process::Command::new(program);
        command.args(arguments).arg(place.image()).arg(place.mount_point()).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        let server = command.spawn().map_err(|error| format!("{shown}: {error}"))?;
        let mut mounted = Mounted { place, server: Some(server), ended: false };
        let begun = Instant::now();
        while !tool::is_mounted(&place.mount_point()) {
            let ended = mounted.server.as_mut().and_then(|server| server.try_wait().ok().flatten());
            if ended.is_some() || begun.elapsed() > APPEARING {
                let said = std::fs::read_to_string(place.log()).unwrap_or_default();
                let last =
                    said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message").to_owned();
                let state = ended.map_or_else(|| "nothing appears".into(), |status| status.to_string());
                return Err(format!("{shown}: {state}: {last}"));
            }
            sleep(LOOK);
        }
        Ok(mounted)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.place.mount_point()
    }

    /// The loop device below it, for the kernel's statistics of it.
    pub(crate) fn device(&self) -> Option<String> {
        let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let point = self.path();
        let line = table.lines().find(|line| line.split(' ').nth(4) == point.to_str())?;
        let source = line.split(" - ").nth(1)?.split(' ').nth(1)?;
        Some(source.rsplit('/').next()?.to_owned())
    }

    /// Unmounts, and waits until all is in the image.
    ///
    /// # Errors
    /// It can't be unmounted, or the process that served it failed.
    pub(crate) fn end(mut self) -> Result<(), String> {
        self.unmount()
    }

    fn unmount(&mut self) -> Result<(), String> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        let (begun, point) = (Instant::now(), self.path());
        while tool::is_mounted(&point) {
            // Whatever looks at new mounts (indexers, monitors) may hold it for a moment.
            if let Err(error) = tool::run("umount", [&point])
                && begun.elapsed() > UNMOUNTING
            {
                return Err(error);
            }
            sleep(LOOK);
        }
        match self.server.take() {
            Some(server) => served_to_the_end(server, begun),
            None => Ok(()),
        }
    }
}

/// Waits for a server whose file system is gone; a server that stays is ended.
fn served_to_the_end(mut server: Child, begun: Instant) -> Result<(), String> {
    loop {
        match server.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("the process that served the mount: {status}")),
            Ok(None) if begun.elapsed() < UNMOUNTING => sleep(LOOK),
            Ok(None) | Err(_) => {
                let _ = server.kill();
                let _ = server.wait();
                return Err("the process that served the mount did not end".into());
            }
        }
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // A server that never mounted anything has nothing to write.
        if let Some(server) = self.server.as_mut().filter(|_| !tool::is_mounted(&self.place.mount_point())) {
            let _ = server.kill();
        }
        if let Err(error) = self.unmount() {
            eprintln!("plat-lab: {}: {error}", self.path().display());
        }
    }
}
