//! The kernel's view of an image, or fuse2fs's, as a guard that unmounts and detaches.

use crate::scratch::Scratch;
use crate::tool;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// A mounted image: unmounted, and its loop device detached, when this value goes.
#[derive(Debug)]
pub struct Mounted {
    directory: PathBuf,
    unmount: &'static [&'static str],
    // Dropped after the fields above, and after `drop` has unmounted.
    _scratch: Scratch,
}

impl Mounted {
    /// Mounts `image` on a loop device, read-only, by the kernel's ext4 driver.
    ///
    /// # Errors
    /// The message of mount(8): no root, no loop device, or a format that this kernel cannot mount.
    pub fn read_only(image: &Path) -> Result<Self, String> {
        Self::kernel(image, "loop,ro")
    }

    /// Mounts `image` on a loop device for reading and writing.
    ///
    /// # Errors
    /// As [`Mounted::read_only`].
    pub fn read_write(image: &Path) -> Result<Self, String> {
        Self::kernel(image, "loop,rw,acl,user_xattr")
    }

    /// Mounts `image` with options for mount(8), among them `loop`.
    ///
    /// # Errors
    /// As [`Mounted::read_only`].
    pub fn kernel(image: &Path, options: &str) -> Result<Self, String> {
        if !tool::administers() {
            return Err("needs root".into());
        }
        let scratch = Scratch::new("mount");
        let directory = scratch.join("m");
        std::fs::create_dir(&directory).map_err(|e| e.to_string())?;
        let mut mount = tool::command("mount");
        attempt(mount.args(["-t", "ext4", "-o", options]).arg(image).arg(&directory))?;
        Ok(Self { directory, unmount: &["umount"], _scratch: scratch })
    }

    /// Mounts `image` read-only by fuse2fs: it takes block sizes above the page size, and features that this kernel lacks.
    ///
    /// # Errors
    /// The message of fuse2fs, or that it is not installed.
    pub fn fuse2fs(image: &Path) -> Result<Self, String> {
        if tool::find("fuse2fs").is_none() {
            return Err("fuse2fs is not installed".into());
        }
        let scratch = Scratch::new("fuse2fs");
        let directory = scratch.join("m");
        std::fs::create_dir(&directory).map_err(|e| e.to_string())?;
        attempt(tool::command("fuse2fs").args(["-o", "ro"]).arg(image).arg(&directory))?;
        Ok(Self { directory, unmount: &["fusermount", "-u"], _scratch: scratch })
    }

    /// Where the root of the volume is.
    pub fn path(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let (program, arguments) = self.unmount.split_first().unwrap_or((&"umount", &[]));
        // Whatever looks at new mounts (indexers, monitors) may hold it for a moment.
        for _ in 0..50 {
            if attempt(tool::command(program).args(arguments).arg(&self.directory)).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
        let forced = attempt(tool::command("umount").arg("-l").arg(&self.directory));
        eprintln!("{}: stayed busy; detached: {forced:?}", self.directory.display());
    }
}

fn attempt(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}: {}", output.status, said.trim()))
}

/// Skips with a message and says `false` unless the kernel can mount ext4 images on loop devices here.
pub fn have_loop_mount(test: &str) -> bool {
    if !tool::have_tools(test, &["mke2fs", "mount", "umount"]) || !tool::have_root(test) {
        return false;
    }
    let scratch = Scratch::new("probe");
    let image = scratch.join("probe.img");
    tool::run(tool::command("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&image).arg("1M"));
    match Mounted::read_only(&image) {
        Ok(_mounted) => true,
        Err(reason) => {
            tool::skip(test, &format!("no loop mount here: {reason}"));
            false
        }
    }
}

/// The number of extents of each regular file below `root`, as filefrag counts them, in no particular order.
///
/// # Panics
/// When find or filefrag fails.
pub fn extent_counts(root: &Path) -> Vec<(String, u32)> {
    let filefrag = tool::find("filefrag").unwrap_or_else(|| panic!("filefrag is not installed"));
    let mut find = tool::command("find");
    find.arg(root).args(["-xdev", "-type", "f", "-exec"]).arg(filefrag).args(["{}", "+"]);
    let output = tool::run(&mut find);
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .filter_map(|line| {
            // A name with a newline gives a line without a count before the one that has it.
            let (name, rest) = line.rsplit_once(": ")?;
            let count = rest.strip_suffix(" extents found").or_else(|| rest.strip_suffix(" extent found"))?;
            Some((name.to_owned(), count.parse().ok()?))
        })
        .collect()
}
