//! A device that remembers the calls on it, to find out what a crash at any moment could leave.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Device, Protection};

/// One thing that was asked of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Bytes were written at an offset. Until the next flush they may reach the storage or not.
    Write {
        /// Where.
        offset: u64,
        /// Bytes.
        data: Arc<[u8]>,
    },
    /// Everything before is stable.
    Flush,
    /// A word of the caller ([`Recorder::mark`]).
    Mark(u64),
}

/// Passes everything on to another device and remembers it, in order.
pub struct Recorder {
    inner: Arc<dyn Device>,
    events: Mutex<Vec<Event>>,
}

impl Recorder {
    /// Records all requests to a device from now on.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Recorder { inner, events: Mutex::default() }
    }

    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a number between what is written before and after.
    pub fn mark(&self, number: u64) {
        self.events().push(Event::Mark(number));
    }

    /// All that happened since the last time.
    #[must_use]
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events())
    }

    /// Flushes among what happened since it was last taken.
    #[must_use]
    pub fn flushes(&self) -> usize {
        self.events().iter().filter(|event| **event == Event::Flush).count()
    }
}

impl Device for Recorder {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn lengthen(&self, to: Option<u64>) -> io::Result<u64> {
        self.inner.lengthen(to)
    }

    fn shorten(&self, to: u64) -> io::Result<()> {
        self.inner.shorten(to)
    }

    fn protection(&self) -> Protection {
        self.inner.protection()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut events = self.events();
        self.inner.write_at(offset, data)?;
        events.push(Event::Write { offset, data: Arc::from(data) });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut events = self.events();
        self.inner.flush()?;
        events.push(Event::Flush);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn what_was_asked_is_reported_in_order() {
        let recorder = Recorder::new(Arc::new(MemoryDevice::new(100)));
        recorder.write_at(3, b"abc").unwrap();
        recorder.flush().unwrap();
        recorder.mark(7);
        recorder.write_zeros(5, 2).unwrap();
        assert!(recorder.write_at(99, b"abc").is_err());
        assert_eq!(recorder.flushes(), 1);
        let write = |offset, data: &[u8]| Event::Write { offset, data: Arc::from(data) };
        let expected = [write(3, b"abc"), Event::Flush, Event::Mark(7), write(5, &[0, 0])];
        assert_eq!(recorder.take(), expected);
        let mut bytes = [0; 3];
        recorder.read_at(3, &mut bytes).unwrap();
        assert_eq!(&bytes, b"ab\0");
    }
}
