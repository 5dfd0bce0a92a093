//! A directory of its own for a test, removed when the test ends.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

/// A directory that vanishes with this value. Kept for inspection when `PLATFS_KEEP` is set.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes an empty directory below the system's temporary directory (`TMPDIR`), with `name` in its own name.
    ///
    /// # Panics
    /// When the directory cannot be made.
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("platfs-{name}-{}-{number}", process::id()));
        fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self { path }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path below the directory; nothing is made.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if env::var_os("PLATFS_KEEP").is_some() {
            eprintln!("kept: {}", self.path.display());
        } else if let Err(e) = fs::remove_dir_all(&self.path) {
            eprintln!("{}: not removed: {e}", self.path.display());
        }
    }
}

/// Where inputs that are expensive to make are kept between runs: `$XDG_CACHE_HOME/platfs`, `~/.cache/platfs`, or the temporary directory.
pub fn cache_dir() -> PathBuf {
    let base = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
        .unwrap_or_else(env::temp_dir);
    base.join("platfs")
}
