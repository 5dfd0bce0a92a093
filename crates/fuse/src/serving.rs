//! The threads of a mount that is served.
//!
//! Owns: starting them, waiting for them, and the way to what forgotten nodes still hold. Excludes what they do.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::attach::Transport;
use crate::server_threads::{Scheduling, ServerThread};

/// The open device.
pub(crate) type Device = Arc<OwnedFd>;

/// Threads that serve.
pub(crate) struct Serving {
    /// Transport that requests come over.
    pub(crate) transport: Transport,
    /// The threads, and what the scheduler does with them.
    pub(crate) scheduling: Scheduling,
    pub(crate) catch_up: CatchUp,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// A way to have all nodes forgotten that the kernel has given back. Over rings that can come late, and files without
/// names hold their room until then.
#[derive(Clone, Default)]
pub struct CatchUp(Option<Arc<dyn Fn() + Send + Sync>>);

impl CatchUp {
    pub(crate) fn by(work: impl Fn() + Send + Sync + 'static) -> Self {
        CatchUp(Some(Arc::new(work)))
    }

    /// Calls [`crate::Service::forget`] for them, if there are any. No lock may be held that this needs.
    pub fn now(&self) {
        if let Some(work) = &self.0 {
            work();
        }
    }
}

impl Serving {
    pub(crate) fn new() -> Self {
        Serving {
            transport: Transport::Device,
            scheduling: Scheduling::default(),
            catch_up: CatchUp::default(),
            threads: Vec::new(),
        }
    }

    /// Adds a thread that serves.
    pub(crate) fn spawn(
        &mut self,
        name: &str,
        run: impl FnOnce(&Arc<ServerThread>) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let scheduling = self.scheduling.clone();
        self.spawn_beside(name, move || run(&scheduling.register()))
    }

    /// Adds a thread that is waited for and serves nothing.
    pub(crate) fn spawn_beside(
        &mut self,
        name: &str,
        run: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(run)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Waits until all have ended.
    pub(crate) fn wait(self) -> io::Result<()> {
        let mut done = Ok(());
        for thread in self.threads {
            let ended = thread.join().map_err(|_panic| io::Error::other("a serving thread panicked"));
            done = done.and(ended.unwrap_or_else(Err));
        }
        done
    }
}
