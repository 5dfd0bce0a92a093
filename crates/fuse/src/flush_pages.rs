//! Asking the kernel for what it still holds of a file.
//!
//! With the writeback cache the kernel keeps written bytes in its pages, and asks where holes are without handing them
//! over. So the answer first needs these bytes. The message that drops pages from the kernel's cache makes it write
//! the dirty ones, and returns when that is done.
//!
//! Owns: the message, and how many threads may wait for it. Another thread must serve the writes meanwhile. Excludes
//! which bytes are needed.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;

use crate::wire;

/// Asks the kernel to write the dirty pages of a file.
#[derive(Clone)]
pub(crate) struct PageFlusher(Arc<Inner>);

struct Inner {
    device: Arc<OwnedFd>,
    /// Threads that may wait at the same time.
    most: usize,
    waiting: AtomicUsize,
}

impl PageFlusher {
    /// `most` threads may wait at the same time. Whatever they wait for, there must be another one that serves it.
    pub(crate) fn new(device: &Arc<OwnedFd>, most: usize) -> Self {
        PageFlusher(Arc::new(Inner { device: Arc::clone(device), most, waiting: AtomicUsize::new(0) }))
    }

    /// Returns true if anything can be asked for.
    pub(crate) fn works(&self) -> bool {
        self.0.most > 0
    }

    /// Has the kernel write what is dirty in a range of a file, by other requests, before it returns. Clean pages of
    /// the range leave its cache.
    ///
    /// # Errors
    /// `EINVAL` where too many threads wait already: `lseek` then says that holes can't be looked for.
    pub(crate) fn flush_pages(&self, node: u64, range: Range<u64>) -> Result<(), Errno> {
        let _turn = WaitSlot::take(&self.0).ok_or(Errno::INVAL)?;
        loop {
            match rustix::io::write(&self.0.device, &wire::drop_pages(node, range.clone())) {
                Err(Errno::INTR) => {}
                // If the kernel does not know the node any more, it has no pages of it.
                _ => return Ok(()),
            }
        }
    }
}

/// One of the threads that wait.
struct WaitSlot<'a>(&'a AtomicUsize);

impl<'a> WaitSlot<'a> {
    fn take(inner: &'a Inner) -> Option<Self> {
        let more = |waiting: usize| (waiting < inner.most).then_some(waiting + 1);
        inner.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(WaitSlot(&inner.waiting))
    }
}

impl Drop for WaitSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
