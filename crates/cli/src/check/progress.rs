//! How far a check is: a bar on a terminal, or lines for a program that asked for them (`-C`).

use std::fs::File;
use std::io::Write;

use platfs::check::Progress;
use platfs_host::system;
use rustix::fs::OFlags;

use crate::progress::{self, Step};

/// Passes as fsck(8) numbers them, by what of ours each is.
const NUMBERED: [(&str, u32); 9] = [
    ("opening", 1),
    ("descriptors", 1),
    ("inodes", 1),
    ("shared", 1),
    ("directories", 2),
    ("connect", 3),
    ("links", 4),
    ("space", 5),
    ("quota", 5),
];

/// Shows progress.
pub struct Meter {
    bar: bool,
    lines: Option<(File, String)>,
}

impl Meter {
    /// Shows nothing.
    #[must_use]
    pub fn silent() -> Self {
        Meter { bar: false, lines: None }
    }

    /// A bar, where there is a terminal for it.
    #[must_use]
    pub fn bar() -> Self {
        Meter { bar: true, lines: None }
    }

    /// Lines `PASS DONE OF NAME` to an open file descriptor, as e2fsck writes them.
    ///
    /// # Errors
    /// The descriptor can't be written to.
    pub fn to_descriptor(descriptor: u32, name: &str) -> std::io::Result<Self> {
        let file = system::open(format!("/dev/fd/{descriptor}"), OFlags::WRONLY | OFlags::APPEND)?;
        Ok(Meter { bar: false, lines: Some((file, name.to_owned())) })
    }

    /// Shows how far the check is.
    pub fn show(&mut self, progress: Progress) {
        if let Some((file, name)) = &mut self.lines {
            let number =
                NUMBERED.iter().find(|(pass, _)| *pass == progress.pass).map_or(1, |(_, number)| *number);
            let written = writeln!(file, "{number} {} {} {name}", progress.done, progress.of);
            // The progress has no reader any more: the check goes on.
            if written.is_err() {
                self.lines = None;
            }
        }
        if self.bar {
            let part = Some((progress.done, progress.of));
            progress::show(Step { what: progress.pass, part, ..Step::default() });
        }
    }
}
