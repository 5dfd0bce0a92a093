//! Gathers neighbouring writes into large ones and carries them out on a second thread.
//!
//! An image is built from many small files laid out one behind the other: written one by one they
//! cost a call each, and the copying into the page cache would wait for the reading of the source.
//! Reads first wait for everything written; so this pays only where reads are rare.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::{Device, Protection};

/// Bytes gathered into one write: large enough that the cost per call vanishes, small enough to
/// stay in the second-level cache.
const GATHER: usize = 1 << 20;
/// Full buffers waiting for the writing thread; bounds the memory.
const WAITING: usize = 4;

enum Task {
    Write {
        offset: u64,
        data: Vec<u8>,
    },
    /// Answer when everything before is written.
    Barrier(SyncSender<()>),
}

struct WriteBatch {
    offset: u64,
    data: Vec<u8>,
    spare: Vec<Vec<u8>>,
}

/// A device that writes behind the caller's back.
///
/// A failed write is reported by the next [`Device::flush`], once, as operating systems do; writes
/// that follow it are dropped.
pub struct WriteBehind {
    inner: Arc<dyn Device>,
    batch: Mutex<WriteBatch>,
    tasks: Option<SyncSender<Task>>,
    returned: Mutex<Receiver<Vec<u8>>>,
    failure: Arc<Mutex<Option<io::Error>>>,
    writer: Option<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WriteBehind {
    /// Starts the writing thread.
    ///
    /// # Errors
    /// If the thread can't be started.
    pub fn new(inner: Arc<dyn Device>) -> io::Result<Self> {
        let (tasks, queue) = sync_channel(WAITING);
        let (give_back, returned) = sync_channel(2 * WAITING);
        let failure = Arc::new(Mutex::new(None));
        let (device, failed) = (Arc::clone(&inner), Arc::clone(&failure));
        let writer = std::thread::Builder::new()
            .name("write-behind".into())
            .spawn(move || write_all(&queue, &give_back, &*device, &failed))?;
        Ok(WriteBehind {
            inner,
            batch: Mutex::new(WriteBatch { offset: 0, data: Vec::new(), spare: Vec::new() }),
            tasks: Some(tasks),
            returned: Mutex::new(returned),
            failure,
            writer: Some(writer),
        })
    }

    fn send(&self, task: Task) -> io::Result<()> {
        let gone = || io::Error::other("the writing thread has ended");
        self.tasks.as_ref().ok_or_else(gone)?.send(task).map_err(|_| gone())
    }

    fn submit(&self, batch: &mut WriteBatch) -> io::Result<()> {
        if batch.data.is_empty() {
            return Ok(());
        }
        batch.spare.extend(lock(&self.returned).try_iter());
        let fresh = batch.spare.pop().unwrap_or_else(|| Vec::with_capacity(GATHER));
        let data = std::mem::replace(&mut batch.data, fresh);
        self.send(Task::Write { offset: batch.offset, data })
    }

    /// Waits until everything written so far has reached the device below.
    fn drain(&self) -> io::Result<()> {
        self.submit(&mut lock(&self.batch))?;
        let (done, wait) = sync_channel(1);
        self.send(Task::Barrier(done))?;
        wait.recv().map_err(|_| io::Error::other("the writing thread has ended"))
    }
}

fn write_all(
    queue: &Receiver<Task>,
    give_back: &SyncSender<Vec<u8>>,
    device: &dyn Device,
    failed: &Mutex<Option<io::Error>>,
) {
    for task in queue {
        match task {
            Task::Write { offset, mut data } => {
                if lock(failed).is_none()
                    && let Err(error) = device.write_at(offset, &data)
                {
                    *lock(failed) = Some(error);
                }
                data.clear();
                // A full channel only means that enough spare buffers are waiting.
                let _ = give_back.try_send(data);
            }
            Task::Barrier(done) => {
                // The caller may have gone.
                let _ = done.send(());
            }
        }
    }
}

impl Device for WriteBehind {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn protection(&self) -> Protection {
        self.inner.protection()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.drain()?;
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, mut offset: u64, mut data: &[u8]) -> io::Result<()> {
        super::check_range(self.size(), offset, data.len(), io::ErrorKind::WriteZero)?;
        let mut batch = lock(&self.batch);
        if batch.offset + batch.data.len() as u64 != offset {
            self.submit(&mut batch)?;
        }
        while !data.is_empty() {
            if batch.data.is_empty() {
                batch.offset = offset;
            }
            let (now, later) = data.split_at(data.len().min(GATHER - batch.data.len()));
            batch.data.extend_from_slice(now);
            offset += now.len() as u64;
            data = later;
            if batch.data.len() == GATHER {
                self.submit(&mut batch)?;
            }
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.drain()?;
        match lock(&self.failure).take() {
            Some(error) => Err(error),
            None => self.inner.flush(),
        }
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        self.drain()?;
        self.inner.write_zeros(offset, len)
    }
}

impl Drop for WriteBehind {
    fn drop(&mut self) {
        // Nothing is promised without a flush, but what was written is not thrown away.
        let _ = self.drain();
        self.tasks = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn scattered_and_large_writes_arrive_and_reads_see_them() {
        let memory = Arc::new(MemoryDevice::new(8 << 20));
        let device = WriteBehind::new(memory.clone()).unwrap();
        let large: Vec<u8> = (0..3_000_000_u32).map(|i| i.to_le_bytes()[1]).collect();
        device.write_at(5, b"abc").unwrap();
        device.write_at(8, b"def").unwrap();
        device.write_at(100, &large).unwrap();
        let mut back = vec![0; 6];
        device.read_at(5, &mut back).unwrap();
        assert_eq!(back, b"abcdef");
        device.flush().unwrap();
        let mut back = vec![0; large.len()];
        memory.read_at(100, &mut back).unwrap();
        assert_eq!(back, large);
    }

    struct Broken;

    impl Device for Broken {
        fn size(&self) -> u64 {
            1 << 20
        }
        fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            Ok(())
        }
        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Err(io::Error::other("broken"))
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_failed_write_is_reported_by_flush() {
        let device = WriteBehind::new(Arc::new(Broken)).unwrap();
        device.write_at(0, &[1]).unwrap();
        assert_eq!(device.flush().unwrap_err().to_string(), "broken");
    }
}
