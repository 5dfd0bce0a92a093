//! Bytes of several files that are written together: few large writes in place of many small ones.
//!
//! Owns: their order on the device. Excludes: which bytes, and when they have to be there.

use std::io;
use std::ops::Range;
use std::sync::Mutex;

use crate::device::Device;
use crate::locks::lock;

/// Bytes written at once where they come from several pieces.
const AT_ONCE: usize = 1 << 20;

/// Most bytes of memory that are kept for the next that are gathered.
const KEPT: usize = 4 << 20;

/// Bytes that wait, each with its place. Pieces must not overlap.
#[derive(Default)]
pub(crate) struct WriteBatch {
    bytes: Vec<u8>,
    /// Where a piece begins on the device, and which bytes it has.
    pieces: Vec<(u64, Range<usize>)>,
    /// Room for neighbours that are written together.
    joined: Vec<u8>,
}

impl WriteBatch {
    /// One more piece.
    pub(crate) fn add(&mut self, offset: u64, data: &[u8]) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(data);
        let end = self.bytes.len();
        match self.pieces.last_mut() {
            Some((place, piece)) if *place + piece.len() as u64 == offset => piece.end = end,
            _ => self.pieces.push((offset, begin..end)),
        }
    }

    /// Writes all of them, and is empty then.
    ///
    /// # Errors
    /// The device's failure; some may have been written.
    pub(crate) fn write(&mut self, device: &dyn Device) -> io::Result<()> {
        let written = self.write_in_order(device);
        self.bytes.clear();
        self.pieces.clear();
        self.joined.clear();
        written
    }

    fn write_in_order(&mut self, device: &dyn Device) -> io::Result<()> {
        let WriteBatch { bytes, pieces, joined } = self;
        pieces.sort_unstable_by_key(|(place, _)| *place);
        let mut begin = 0;
        for (at, (place, piece)) in pieces.iter().enumerate() {
            let piece = bytes.get(piece.clone()).unwrap_or_default();
            let end = place + piece.len() as u64;
            let stands_alone = pieces.get(at + 1).is_none_or(|(next, _)| *next != end);
            let follows = begin + joined.len() as u64 == *place && joined.len() + piece.len() <= AT_ONCE;
            if !follows || joined.is_empty() {
                write_joined(device, begin, joined)?;
                begin = *place;
                if stands_alone {
                    // As it is, without a copy.
                    device.write_at(begin, piece)?;
                    continue;
                }
            }
            joined.extend_from_slice(piece);
        }
        write_joined(device, begin, joined)
    }
}

/// Memory of what was gathered, for the next: new memory would cost a page fault for each page of it.
#[derive(Default)]
pub(crate) struct SpareBatch(Mutex<Option<WriteBatch>>);

impl SpareBatch {
    pub(crate) fn take(&self) -> WriteBatch {
        lock(&self.0).take().unwrap_or_default()
    }

    /// Keeps what has been written, unless it is large.
    pub(crate) fn put_back(&self, gathered: WriteBatch) {
        if gathered.bytes.capacity() + gathered.joined.capacity() <= KEPT {
            *lock(&self.0) = Some(gathered);
        }
    }
}

fn write_joined(device: &dyn Device, begin: u64, joined: &mut Vec<u8>) -> io::Result<()> {
    if joined.is_empty() {
        return Ok(());
    }
    device.write_at(begin, joined)?;
    joined.clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::device::MemoryDevice;

    /// Notes its writes.
    struct Noting(MemoryDevice, Arc<Mutex<Vec<(u64, usize)>>>);

    impl Device for Noting {
        fn size(&self) -> u64 {
            self.0.size()
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            self.0.read_at(offset, buffer)
        }

        fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.1.lock().unwrap().push((offset, data.len()));
            self.0.write_at(offset, data)
        }

        fn flush(&self) -> io::Result<()> {
            self.0.flush()
        }
    }

    #[test]
    fn neighbours_are_written_together_in_any_order() {
        let writes = Arc::new(Mutex::new(Vec::new()));
        let device = Noting(MemoryDevice::new(8 << 20), Arc::clone(&writes));
        let mut gathered = WriteBatch::default();
        for (place, byte, len) in
            [(8192, 3, 4096), (0, 1, 100), (100, 2, 3996), (4096, 4, 4096), (1 << 20, 5, 10)]
        {
            gathered.add(place, &vec![byte; len]);
        }
        gathered.add(2 << 20, &vec![6; 3 << 20]);
        gathered.write(&device).unwrap();
        assert_eq!(*writes.lock().unwrap(), [(0, 12_288), (1 << 20, 10), (2 << 20, 3 << 20)]);
        let mut found = vec![0; 12_288];
        device.read_at(0, &mut found).unwrap();
        let expected = [vec![1; 100], vec![2; 3996], vec![4; 4096], vec![3; 4096]].concat();
        assert!(found == expected);
        gathered.write(&device).unwrap();
        assert_eq!(writes.lock().unwrap().len(), 3, "nothing waits any more");
        let emptied = SpareBatch::default();
        emptied.put_back(gathered);
        assert!(emptied.take().bytes.is_empty() && emptied.take().bytes.capacity() == 0, "it is given once");
    }
}
