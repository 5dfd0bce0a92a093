//! Options of e2fsck beyond those of `plat check`, as fsck(8) and scripts pass them on: each is done, has nothing to
//! do here, or is refused with the reason.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args};

use crate::console::Failure;
use crate::text::Shown;

/// The options.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Optimise directories: refused.
    #[arg(short = 'D', hide = true)]
    optimise: bool,
    /// Look for bad blocks: refused.
    #[arg(short = 'c', hide = true, action = ArgAction::Count)]
    search: u8,
    /// Keep the list of bad blocks: it always stays.
    #[arg(short = 'k', hide = true)]
    keep: bool,
    /// Add to the list of bad blocks: refused.
    #[arg(short = 'l', hide = true, value_name = "FILE")]
    add: Option<OsString>,
    /// Set the list of bad blocks: refused.
    #[arg(short = 'L', hide = true, value_name = "FILE")]
    set: Option<OsString>,
    /// Print the time that the check took.
    #[arg(short = 't', hide = true, action = ArgAction::Count)]
    timing: u8,
    /// Extended options.
    #[arg(short = 'E', hide = true, value_name = "OPTIONS", value_delimiter = ',')]
    extended: Vec<String>,
    /// As --undo.
    #[arg(short = 'z', hide = true, value_name = "FILE", conflicts_with_all = ["undo", "look"])]
    undo_file: Option<PathBuf>,
    /// A journal on another device: refused.
    #[arg(short = 'j', hide = true, value_name = "DEVICE")]
    journal: Option<OsString>,
    /// Ask: so it is on a terminal.
    #[arg(short = 'r', hide = true, group = "mode")]
    ask: bool,
    /// Flush the device's buffers first: what is read is what others wrote anyway.
    #[arg(short = 'F', hide = true)]
    flush: bool,
}

/// Extended options that ask for what is done anyway, or only say how.
const IDLE: [&str; 8] = [
    "nodiscard",
    "no_optimize_extents",
    "fixes_only",
    "check_encoding",
    "readahead_kb",
    "inode_count_fullmap",
    "no_inode_count_fullmap",
    "ea_ver",
];

impl Options {
    /// Refuses what is not done here.
    ///
    /// # Errors
    /// The option and the reason.
    pub fn refuse(&self) -> Result<(), Failure> {
        let refused = [
            (self.optimise, "-D", "directories are rebuilt only where they are damaged"),
            (
                self.search > 0,
                "-c",
                "bad blocks are not searched for (badblocks(8) does); what can't be read of the volume itself is reported in any case",
            ),
            (self.add.is_some(), "-l", "the list of bad blocks is checked, and not changed"),
            (self.set.is_some(), "-L", "the list of bad blocks is checked, and not changed"),
            (self.journal.is_some(), "-j", "a journal on another device can't be replayed"),
        ];
        if let Some((_, option, why)) = refused.into_iter().find(|(given, ..)| *given) {
            return Err(Failure::Usage(format!("{option}: {why}")));
        }
        let name = |option: &&String| option.split('=').next().unwrap_or_default().to_owned();
        match self.extended.iter().find(|option| !IDLE.contains(&name(option).as_str())) {
            Some(option) => {
                let (option, idle) = (Shown(option.as_bytes()).to_string(), IDLE.join(", "));
                Err(Failure::Usage(format!("-E {option}: not done here; without effect are {idle}")))
            }
            None => Ok(()),
        }
    }

    /// Returns true if the time is to be printed.
    #[must_use]
    pub fn times(&self) -> bool {
        self.timing > 0
    }

    /// Where to keep the way back.
    #[must_use]
    pub fn undo(&self) -> Option<&PathBuf> {
        self.undo_file.as_ref()
    }
}
