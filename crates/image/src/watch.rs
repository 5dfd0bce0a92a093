//! Work that takes a while: what a caller sees of it, and how the caller ends it.
//!
//! One closure serves both. It is called with the [`Progress`] made, at the beginning of each stage and then
//! after each file and after at most 1 MiB of data; what it returns says whether the work goes on. Work that is
//! broken off ends with an error like any other, and leaves what errors leave.
//!
//! ```
//! use platfs_image::{Progress, Watch};
//! use std::ops::ControlFlow;
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicBool, Ordering};
//!
//! let stop = Arc::new(AtomicBool::new(false));
//! let asked = Arc::clone(&stop);
//! let watch = Watch::new(move |_: &Progress| match asked.load(Ordering::Relaxed) {
//!     true => ControlFlow::Break(()),
//!     false => ControlFlow::Continue(()),
//! });
//! # let _ = (watch, stop);
//! ```

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Stage of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// The source is read: files are entries met, bytes those unpacked or verified. No totals are known.
    Reading,
    /// The size is found, and whether all fits: files are those tried. Not all of them need be.
    Planning,
    /// Inodes and names are made.
    Names,
    /// Contents are copied.
    Data,
    /// Data that are still in memory are written.
    Finishing,
    /// The image is brought into another format, or described by what goes beside it: bytes are those read.
    Packing,
    /// An image is read, and an archive or directory written. No totals are known.
    Exporting,
}

/// Progress of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Stage of the work.
    pub stage: Stage,
    /// Files done in this stage, directories and all other kinds among them.
    pub files: u64,
    /// Bytes of contents done in this stage.
    pub bytes: u64,
    /// Files of the whole stage, if that is known.
    pub total_files: Option<u64>,
    /// Bytes of the whole stage, if that is known.
    pub total_bytes: Option<u64>,
}

/// The work was broken off by its [`Watch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled;

type Look = dyn Fn(&Progress) -> ControlFlow<()> + Send + Sync;

/// The closure that is shown all progress. The default sees nothing and never ends anything.
#[derive(Clone, Default)]
pub struct Watch(Option<Arc<Look>>);

impl Watch {
    /// Shows all progress to `look`, which returns [`ControlFlow::Break`] to end the work. It is called often, and
    /// the work waits for it.
    pub fn new(look: impl Fn(&Progress) -> ControlFlow<()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(look)))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.0.is_some()).finish()
    }
}

/// Counts one stage of the work.
#[derive(Debug)]
pub(crate) struct Meter {
    watch: Watch,
    now: Progress,
}

impl Meter {
    /// Before the first stage; nothing is shown yet.
    pub(crate) fn new(watch: Watch) -> Self {
        let now =
            Progress { stage: Stage::Planning, files: 0, bytes: 0, total_files: None, total_bytes: None };
        Self { watch, now }
    }

    /// Begins a stage.
    pub(crate) fn begin(
        &mut self,
        stage: Stage,
        total_files: Option<u64>,
        total_bytes: Option<u64>,
    ) -> Result<(), Cancelled> {
        self.now = Progress { stage, files: 0, bytes: 0, total_files, total_bytes };
        self.show()
    }

    /// One more file is done.
    pub(crate) fn file(&mut self) -> Result<(), Cancelled> {
        self.now.files += 1;
        self.show()
    }

    /// More bytes are done.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<(), Cancelled> {
        self.now.bytes = self.now.bytes.saturating_add(count as u64);
        self.show()
    }

    fn show(&self) -> Result<(), Cancelled> {
        match self.watch.0.as_ref().map(|look| look(&self.now)) {
            Some(ControlFlow::Break(())) => Err(Cancelled),
            _ => Ok(()),
        }
    }
}
