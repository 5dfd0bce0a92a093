//! The bytes of an older image into a new file, which reads as zeros.
//!
//! From file to file the system copies: what it has in memory goes there once, and where files can share blocks nothing
//! goes at all. Holes stay holes. From other devices what is zero becomes a hole.

use std::io;

use platfs::device::Device;

/// Bytes read at once.
const PIECE: usize = 1 << 20;
/// Bytes that are left out if all of them are zero.
const STEP: usize = 64 << 10;

/// Copies the first `bytes` bytes.
pub(super) fn copy(from: &dyn Device, to: &dyn Device, bytes: u64) -> io::Result<()> {
    let mut at = by_system::copy(from, to, bytes);
    let mut buffer = vec![0; if at < bytes { PIECE } else { 0 }];
    while at < bytes {
        let len = usize::try_from(bytes - at).unwrap_or(PIECE).min(PIECE);
        let piece = buffer.get_mut(..len).unwrap_or_default();
        from.read_at(at, piece)?;
        copy_piece(to, at, piece)?;
        at += len as u64;
    }
    Ok(())
}

/// Writes neighbouring steps that are not zero at once.
fn copy_piece(to: &dyn Device, at: u64, piece: &[u8]) -> io::Result<()> {
    let is_zero = |from: usize| {
        let step = piece.get(from..piece.len().min(from + STEP)).unwrap_or_default();
        step.iter().all(|byte| *byte == 0)
    };
    let mut from = 0;
    while from < piece.len() {
        let mut end = from;
        while end < piece.len() && !is_zero(end) {
            end += STEP;
        }
        let data = piece.get(from..end.min(piece.len())).unwrap_or_default();
        if !data.is_empty() {
            to.write_at(at + from as u64, data)?;
        }
        from = end + STEP;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
mod by_system {
    use std::fs::File;
    use std::io;

    use ondisk::units::saturated;
    use platfs::device::Device;
    use rustix::fs::{SeekFrom, copy_file_range, seek};
    use rustix::io::Errno;

    /// Copies as far as the system can, and returns where that ends. The caller copies the rest, and meets the error if
    /// there was one.
    pub(super) fn copy(from: &dyn Device, to: &dyn Device, bytes: u64) -> u64 {
        let (Some(from), Some(to)) = (from.lies_in(), to.lies_in()) else { return 0 };
        // Behind its end a file has neither data nor holes. Devices say that they have no length.
        let len = from.0.metadata().map_or(0, |facts| facts.len());
        if len.saturating_sub(from.1) < bytes {
            return 0;
        }
        let mut at = 0;
        while at < bytes {
            match stretch(from.0, from.1, to.0, to.1, at..bytes) {
                Ok(end) if end > at => at = end,
                _ => break,
            }
        }
        at
    }

    /// Copies from a byte to the next hole, or skips one.
    fn stretch(
        from: &File,
        begin: u64,
        to: &File,
        target: u64,
        range: std::ops::Range<u64>,
    ) -> io::Result<u64> {
        let end = begin + range.end;
        let data = match seek(from, SeekFrom::Data(begin + range.start)) {
            Ok(data) if data < end => data,
            // No data from there on.
            Ok(_) | Err(Errno::NXIO) => return Ok(range.end),
            Err(error) => return Err(error.into()),
        };
        let hole = seek(from, SeekFrom::Hole(data))?.min(end);
        let mut at = data;
        while at < hole {
            let len = saturated::<usize>(hole - at);
            let (mut source, mut place) = (at, target + (at - begin));
            match copy_file_range(from, Some(&mut source), to, Some(&mut place), len) {
                // What was copied stays copied.
                Ok(0) | Err(_) => break,
                Ok(done) => at += done as u64,
            }
        }
        Ok(at - begin)
    }
}

/// Elsewhere the bytes go through this process.
#[cfg(not(target_os = "linux"))]
mod by_system {
    use platfs::device::Device;

    pub(super) fn copy(_: &dyn Device, _: &dyn Device, _: u64) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use platfs::device::{Device, FileDevice, MemoryDevice, Window};

    use super::{PIECE, STEP, copy};

    const SIZE: usize = 3 * PIECE + 1000;

    /// Data at the beginning, in the middle and up to the end, with nothing between them.
    fn fill(device: &dyn Device) {
        for (at, len) in [(5, 70_000), (PIECE + 3 * STEP - 7, 20), (SIZE - 500, 500)] {
            let data: Vec<u8> = (1..=250).cycle().take(len).collect();
            device.write_at(at as u64, &data).unwrap();
        }
    }

    fn read(device: &dyn Device) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    }

    fn file(bytes: usize) -> (File, FileDevice) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes as u64).unwrap();
        (file.try_clone().unwrap(), FileDevice::new(file).unwrap())
    }

    #[test]
    fn files_parts_of_files_and_other_devices_are_copied_alike() {
        let memory = MemoryDevice::new(SIZE as u64);
        fill(&memory);
        let expected = read(&memory);
        let (_, whole) = file(SIZE);
        fill(&whole);
        let (_, disk) = file(SIZE + 2 * PIECE);
        disk.write_at(0, &[9; 4096]).unwrap();
        let part = Window::new(Arc::new(disk), 4096, SIZE as u64).unwrap();
        fill(&part);
        for from in [&memory as &dyn Device, &whole, &part] {
            let (kept, to) = file(SIZE);
            copy(from, &to, SIZE as u64).unwrap();
            assert_eq!(read(&to), expected);
            let allocated = std::os::unix::fs::MetadataExt::blocks(&kept.metadata().unwrap()) * 512;
            assert!(allocated < SIZE as u64 / 2, "{allocated} bytes: holes were filled");
        }
    }

    #[test]
    fn what_ends_too_early_is_an_error() {
        let (_, short) = file(PIECE);
        let (_, to) = file(SIZE);
        let error = copy(&short, &to, SIZE as u64).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    }
}
