//! Log of a mount: on standard error in the foreground, to the system's log or a file
//! in the background.

use platfs_open::locks::locked;
use std::collections::HashSet;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Mutex;

/// Complaints that are remembered, so that each is logged once. A hostile image could make any number.
const REMEMBERED_MAX: usize = 4096;
/// `daemon.warning` and `daemon.info` of syslog(3).
const WARNING: u8 = 28;
const INFO: u8 = 30;

enum To {
    File(Mutex<File>),
    System(UnixDatagram),
    NullSink,
}

/// How much is logged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Detail {
    /// Complaints.
    #[default]
    Complaints,
    /// Beginning and end, with what was done between.
    Lifecycle,
    /// Every request.
    Requests,
}

impl Detail {
    /// By the number of `-v`.
    #[must_use]
    pub fn from_count(count: u8) -> Self {
        match count {
            0 => Detail::Complaints,
            1 => Detail::Lifecycle,
            _ => Detail::Requests,
        }
    }
}

/// A log.
pub struct Log {
    to: To,
    detail: Detail,
    complaints: Mutex<HashSet<String>>,
}

impl Log {
    fn new(to: To, detail: Detail) -> Self {
        Log { to, detail, complaints: Mutex::default() }
    }

    /// To nowhere.
    #[must_use]
    pub fn nowhere() -> Self {
        Self::new(To::NullSink, Detail::Complaints)
    }

    /// To standard error, by a descriptor of its own: the thread of the command holds the lock of the
    /// usual one, and other threads would wait for it for ever.
    ///
    /// # Errors
    /// There is none.
    pub fn to_stderr(detail: Detail) -> io::Result<Self> {
        let stderr = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3)?;
        Ok(Self::new(To::File(Mutex::new(File::from(stderr))), detail))
    }

    /// To the end of a file.
    ///
    /// # Errors
    /// The file can't be opened.
    pub fn to_file(path: &Path, detail: Detail) -> io::Result<Self> {
        let file = platfs_host::private_log(path, false)?;
        Ok(Self::new(To::File(Mutex::new(file)), detail))
    }

    /// To the system's log; nowhere where there is none.
    #[must_use]
    pub fn to_system(detail: Detail) -> Self {
        Self::new(platfs_host::system::log().map_or(To::NullSink, To::System), detail)
    }

    /// Returns true if this much is logged.
    #[must_use]
    pub fn covers(&self, detail: Detail) -> bool {
        self.detail >= detail
    }

    /// Logs something of the given detail.
    pub fn say(&self, detail: Detail, text: impl Display) {
        if self.covers(detail) {
            self.put(INFO, &text.to_string());
        }
    }

    /// Logs what is wrong, each text once.
    pub fn complain(&self, text: impl Display) {
        let text = text.to_string();
        let mut complaints = locked(&self.complaints);
        if complaints.len() >= REMEMBERED_MAX || !complaints.insert(text.clone()) {
            return;
        }
        if complaints.len() == REMEMBERED_MAX {
            self.put(WARNING, "4096 different complaints were logged: no more are");
        } else {
            self.put(WARNING, &text);
        }
    }

    /// A failure has nowhere to be reported.
    fn put(&self, priority: u8, text: &str) {
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        match &self.to {
            To::File(file) => {
                let mut file = locked(file);
                let _ = writeln!(file, "plat: {text}");
            }
            To::System(socket) => {
                let _ = socket.send(format!("<{priority}>plat[{}]: {text}", std::process::id()).as_bytes());
            }
            To::NullSink => {}
        }
    }
}
