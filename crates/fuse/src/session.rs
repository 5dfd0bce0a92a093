//! A file system while it is served.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::attach::{InProcess, Mounter, Options, Transport};
use crate::notify::Notifier;
use crate::server_threads::Scheduling;
use crate::service::Service;
use crate::serving::{CatchUp, Serving};
use crate::{by_device, by_ring};

/// A file system that is mounted and being served.
pub struct Session {
    directory: PathBuf,
    /// Until it is waited for.
    serving: Option<Serving>,
    notifier: Arc<Notifier>,
    mounter: Arc<dyn Mounter>,
}

impl Session {
    /// Mounts on a directory, given as [`crate::mount_point`] finds it, and begins to serve.
    ///
    /// # Errors
    /// The message of the kernel or of fusermount3. Then nothing is mounted.
    pub fn start(service: Arc<dyn Service>, directory: &Path, options: &Options) -> io::Result<Self> {
        Self::start_by(Arc::new(InProcess), service, directory, options)
    }

    /// As [`Session::start`], where somebody else mounts.
    ///
    /// # Errors
    /// As [`Session::start`].
    pub fn start_by(
        mounter: Arc<dyn Mounter>,
        service: Arc<dyn Service>,
        directory: &Path,
        options: &Options,
    ) -> io::Result<Self> {
        let connection = mounter.mount(directory, options)?;
        let copy = connection.try_clone();
        let serving = copy.and_then(|copy| {
            let serving = match options.transport {
                Transport::Device => by_device::serve(service, connection, options),
                Transport::Auto | Transport::Ring => by_ring::serve(service, connection, options),
            };
            Ok((serving?, Arc::new(Notifier::new(copy))))
        });
        match serving {
            Ok((serving, notifier)) => {
                let serving = Some(serving);
                Ok(Session { directory: directory.to_owned(), serving, notifier, mounter })
            }
            Err(error) => {
                // That it can't be served is the news; if it can't be unmounted either, the end of
                // this process leaves it dead.
                let _ = mounter.unmount(directory, true);
                Err(error)
            }
        }
    }

    /// Where it is mounted.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The way to tell the kernel what changes beside it.
    #[must_use]
    pub fn notifier(&self) -> Arc<Notifier> {
        Arc::clone(&self.notifier)
    }

    /// How requests come; never `Auto`.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.serving.as_ref().map_or(Transport::Device, |serving| serving.transport)
    }

    /// The threads that serve, and what the scheduler does with them.
    #[must_use]
    pub fn scheduling(&self) -> Scheduling {
        self.serving.as_ref().map_or_else(Scheduling::default, |serving| serving.scheduling.clone())
    }

    /// The way to what files without names still hold.
    #[must_use]
    pub fn catch_up(&self) -> CatchUp {
        self.serving.as_ref().map_or_else(CatchUp::default, |serving| serving.catch_up.clone())
    }

    /// Serves until the file system is unmounted, by whomever.
    ///
    /// # Errors
    /// The connection to the kernel broke.
    pub fn wait(mut self) -> io::Result<()> {
        self.serving.take().map_or(Ok(()), Serving::wait)
    }
}

impl Drop for Session {
    /// A session that nobody waits for did not come about: it leaves no mount behind that would be dead.
    fn drop(&mut self) {
        if self.serving.is_some() {
            let _ = self.mounter.unmount(&self.directory, true);
        }
    }
}
