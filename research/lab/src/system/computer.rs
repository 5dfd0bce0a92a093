//! The library on an image in real time, by any number of threads: `plat mount` without FUSE, with its delay of
//! bytes and the clock's work by its rules.

use std::fs::OpenOptions as FileOptions;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ondisk::inode::Timestamp;
use platfs::device::FileDevice;
use platfs::{OpenOptions, Volume};

use super::Library;
use super::library::Host;

/// How often the clock looks, and how often it makes all stable: as `plat mount` has them.
const EVERY: Duration = Duration::from_secs(5);
const STABLE: u64 = 6;

/// How long write-back waits for something to do before it looks whether it is to end.
const PATIENCE: Duration = Duration::from_millis(200);

/// This machine: it reads ahead and keeps files in memory by itself.
pub(crate) struct Computer;

impl Host for Computer {
    fn time(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        Timestamp { seconds, nanoseconds: since.subsec_nanos() }
    }

    fn spend(&self, time: u64) {
        std::thread::sleep(Duration::from_nanos(time));
    }

    fn ahead(&self) -> u64 {
        0
    }
}

impl Computer {
    /// How `plat mount` opens a volume.
    pub(crate) fn mounting() -> OpenOptions {
        let known = rustix::system::sysinfo();
        let memory = known.totalram.saturating_mul(u64::from(known.mem_unit));
        OpenOptions::new().delay(OpenOptions::suggested_delay(memory))
    }
}

impl Library<Computer> {
    /// Opens an image; for `options`, see [`Computer::mounting`].
    ///
    /// # Errors
    /// It can't be opened for writing.
    pub(crate) fn on_image(image: &Path, options: &OpenOptions) -> Result<Self, String> {
        let failure = |error: &dyn std::fmt::Display| format!("{}: {error}", image.display());
        let file = FileOptions::new().read(true).write(true).open(image).map_err(|error| failure(&error))?;
        let device = Arc::new(FileDevice::new(file).map_err(|error| failure(&error))?);
        let options = options.clone().write(true).now(Computer.time());
        let volume = Volume::open(device, &options).map_err(|error| failure(&error))?;
        Ok(Self::around(volume, Computer))
    }

    /// Runs something while old bytes are written back and the journal is committed, as a mount does.
    ///
    /// # Errors
    /// Those of the work; else the first of what was done beside it.
    pub(crate) fn kept<T>(&self, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let ended = (Mutex::new(false), Condvar::new());
        std::thread::scope(|scope| {
            let keeper = scope.spawn(|| self.keep(&ended));
            let ahead = scope.spawn(|| {
                while !waited(&ended, Duration::ZERO) {
                    self.volume().write_back_ahead(PATIENCE).map_err(|error| error.to_string())?;
                }
                Ok(())
            });
            let stop = Stop(&ended);
            let done = work();
            drop(stop);
            let beside = [keeper.join(), ahead.join()];
            let done = done?;
            for thread in beside {
                thread.unwrap_or_else(|_| Err("a thread that writes back panicked".into()))?;
            }
            Ok(done)
        })
    }

    /// The clock's work.
    fn keep(&self, ended: &(Mutex<bool>, Condvar)) -> Result<(), String> {
        let mut looks = 0u64;
        while !waited(ended, EVERY) {
            looks += 1;
            let now = self.host().time();
            let volume = self.volume().at_time(now);
            let done = if looks.is_multiple_of(STABLE) {
                volume.sync()
            } else {
                let before = Timestamp { seconds: now.seconds - 5, ..now };
                let written = volume.write_back(Some(before));
                if volume.keeps_order() { written.and_then(|()| volume.commit()) } else { written }
            };
            done.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Unmounts.
    ///
    /// # Errors
    /// Writes can't be made stable.
    pub(crate) fn close(self) -> Result<(), String> {
        self.into_volume().close().map_err(|error| error.to_string())
    }
}

/// Ends the threads, also where the work panics.
struct Stop<'s>(&'s (Mutex<bool>, Condvar));

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }
}

/// Waits; whether it was cut short by the end.
fn waited((ended, news): &(Mutex<bool>, Condvar), time: Duration) -> bool {
    let ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = news.wait_timeout_while(ended, time, |ended| !*ended);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Scale, Workload, in_real_time};
    use platfs::check::{Decision, Issue, Sink, check};
    use platfs::mkfs::{FsType, Options, Plan};

    struct Ears(Vec<String>);

    impl Sink for Ears {
        fn issue(&mut self, issue: Issue) -> Decision {
            self.0.push(format!("{issue:?}"));
            Decision::Leave
        }
    }

    /// Threads, delayed bytes, and the clock's threads on one volume: what is left is sound.
    #[test]
    fn workloads_run_by_many_threads_leave_a_sound_volume() {
        let path = std::env::temp_dir().join(format!("plat-lab-computer-{}", std::process::id()));
        let size = 160 << 20;
        std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        let device =
            || FileDevice::new(FileOptions::new().read(true).write(true).open(&path).unwrap()).unwrap();
        Plan::new(&Options::new(FsType::Ext4), size).unwrap().write(&device()).unwrap();
        let library = Library::on_image(&path, &Computer::mounting()).unwrap();
        let scale = Scale { seed: 1, quick: true, ..Scale::default() };
        let mut calls = 0;
        library
            .kept(|| {
                for name in ["append", "age"] {
                    for phase in (Workload::named(name)?.phases)(&scale)? {
                        let outcome = in_real_time(&library, phase)?;
                        calls += outcome.kinds.values().map(|timing| timing.calls).sum::<u64>();
                    }
                }
                Ok(())
            })
            .unwrap();
        assert!(calls > 5_000, "{calls}");
        library.close().unwrap();
        let mut ears = Ears(Vec::new());
        check(Arc::new(device()), &platfs::check::Options::default(), &mut ears).unwrap();
        assert_eq!(ears.0, Vec::<String>::new());
        std::fs::remove_file(&path).unwrap();
    }
}
