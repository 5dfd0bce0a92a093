//! A regular file or block device as a device, by positioned reads and writes.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Device, Protection, check_range};
use ondisk::units::saturated;

/// A regular file or block device.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    size: AtomicU64,
    flushes: bool,
    unshared: bool,
    /// Its lock ends with it.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "locks are Linux's"))]
    locked: bool,
}

impl FileDevice {
    /// Takes an open file; its size is that of the device until [`Device::lengthen`].
    ///
    /// # Errors
    /// If the size can't be determined.
    pub fn new(mut file: File) -> io::Result<Self> {
        // Seeking, unlike metadata, also gives the size of block devices.
        let size = file.seek(SeekFrom::End(0))?;
        Ok(FileDevice { file, size: AtomicU64::new(size), flushes: true, unshared: false, locked: false })
    }

    /// As [`FileDevice::new`], of a file that no other program has locked (flock, on Linux). The lock ends with the
    /// device.
    ///
    /// # Errors
    /// `ResourceBusy`: another program has locked it. As [`FileDevice::new`].
    pub fn locked(file: File) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        lock(&file)?;
        let mut device = Self::new(file)?;
        device.locked = true;
        Ok(device)
    }

    /// Flushing does nothing: for files that are still being made, where waiting for the disk would be wasted.
    #[must_use]
    pub fn without_flush(mut self) -> Self {
        self.flushes = false;
        self
    }

    /// Says that no other host reaches the file: the mark of a volume in it is not taken ([`mmp`](crate::mmp)).
    #[must_use]
    pub fn unshared(mut self) -> Self {
        self.unshared = true;
        self
    }
}

#[cfg(target_os = "linux")]
impl FileDevice {
    /// Changes the room of a range inside the device.
    fn fallocate(&self, what: rustix::fs::FallocateFlags, offset: u64, len: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        let checked = saturated::<usize>(len);
        check_range(self.size(), offset, checked, io::ErrorKind::WriteZero)?;
        let flags = what | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, offset, len) {
            // Of a block device the kernel drops its pages first, and keeps those that are not written yet.
            Err(rustix::io::Errno::BUSY) => {
                self.file.sync_data()?;
                Ok(fallocate(&self.file, flags, offset, len)?)
            }
            done => Ok(done?),
        }
    }
}

#[cfg(target_os = "linux")]
impl Drop for FileDevice {
    fn drop(&mut self) {
        // A process that another thread is just starting has a copy of the descriptor until it runs its program. The lock would
        // stay with that copy if only this one were closed.
        if self.locked {
            let _ = rustix::fs::flock(&self.file, rustix::fs::FlockOperation::Unlock);
        }
    }
}

#[cfg(target_os = "linux")]
fn lock(file: &File) -> io::Result<()> {
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::Errno;
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {
            Err(io::Error::new(io::ErrorKind::ResourceBusy, "in use by another program"))
        }
        // Where the file system has no locks, no other program can have one.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOLCK) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(unix)]
mod positioned {
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt;

    pub(super) fn read(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        file.read_exact_at(buffer, offset)
    }

    pub(super) fn write(file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
        file.write_all_at(data, offset)
    }
}

#[cfg(windows)]
mod positioned {
    use std::fs::File;
    use std::io;
    use std::os::windows::fs::FileExt;

    pub(super) fn read(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        super::pieces::read(offset, buffer, |piece, at| file.seek_read(piece, at))
    }

    pub(super) fn write(file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
        super::pieces::write(offset, data, |piece, at| file.seek_write(piece, at))
    }
}

/// Systems whose files have no positioned reads, as a browser: volumes live on other devices there.
#[cfg(not(any(unix, windows)))]
mod positioned {
    use std::fs::File;
    use std::io;

    pub(super) fn read(_: &File, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn write(_: &File, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Whole reads and writes of calls that may do less than they were asked for. A call that does nothing ends them.
#[cfg(any(windows, test))]
mod pieces {
    use std::io::{self, ErrorKind};

    pub(super) fn read(
        mut offset: u64,
        mut buffer: &mut [u8],
        mut call: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
    ) -> io::Result<()> {
        while !buffer.is_empty() {
            match call(buffer, offset) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(done) => {
                    offset += done as u64;
                    buffer = buffer.get_mut(done..).unwrap_or_default();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn write(
        mut offset: u64,
        mut data: &[u8],
        mut call: impl FnMut(&[u8], u64) -> io::Result<usize>,
    ) -> io::Result<()> {
        while !data.is_empty() {
            match call(data, offset) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(done) => {
                    offset += done as u64;
                    data = data.get(done..).unwrap_or_default();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Reads a number about the queue of a block device; a partition has that of its disk.
#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "what the kernel shows of a device")]
fn queue_of(device: u64, what: &str) -> Option<u64> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let own = format!("/sys/dev/block/{major}:{minor}");
    let read = |queue: String| std::fs::read_to_string(format!("{queue}/queue/{what}")).ok();
    let text = read(own.clone()).or_else(|| read(format!("{own}/..")))?;
    text.trim().parse().ok()
}

impl Device for FileDevice {
    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn protection(&self) -> Protection {
        if self.unshared { Protection::Alone } else { Protection::Open }
    }

    fn lengthen(&self, to: Option<u64>) -> io::Result<u64> {
        let end = || (&self.file).seek(SeekFrom::End(0));
        let mut size = end()?;
        if let Some(to) = to.filter(|to| *to > size)
            && self.file.metadata()?.is_file()
        {
            self.file.set_len(to)?;
            size = end()?;
        }
        // A device that shrank while it is in use keeps its size here: what lies behind the end fails by itself.
        Ok(self.size.fetch_max(size, Ordering::AcqRel).max(size))
    }

    #[cfg(target_os = "linux")]
    fn data_from(&self, offset: u64) -> u64 {
        match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(data) => data.max(offset),
            // No data up to the end.
            Err(rustix::io::Errno::NXIO) => self.size().max(offset),
            Err(_) => offset,
        }
    }

    #[cfg(target_os = "linux")]
    fn hole_from(&self, offset: u64) -> u64 {
        match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Hole(offset)) {
            Ok(hole) => hole.clamp(offset, self.size().max(offset)),
            Err(_) => self.size(),
        }
    }

    /// Files get a hole or unwritten extents. Block devices are asked only for what they may give up: where zeros keep
    /// their room the kernel may have to write them.
    #[cfg(target_os = "linux")]
    fn zero_fast(&self, offset: u64, len: u64, keeps: bool) -> io::Result<()> {
        use rustix::fs::FallocateFlags;
        if len == 0 {
            return Ok(());
        }
        let is_file = self.file.metadata()?.is_file();
        if !is_file && (keeps || self.discard_unit().is_err()) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.fallocate(
            if keeps { FallocateFlags::ZERO_RANGE } else { FallocateFlags::PUNCH_HOLE },
            offset,
            len,
        )
    }

    fn shorten(&self, to: u64) -> io::Result<()> {
        if self.size() <= to || !self.file.metadata()?.is_file() {
            return Ok(());
        }
        self.size.store(to, Ordering::Release);
        self.file.set_len(to)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        check_range(self.size(), offset, buffer.len(), io::ErrorKind::UnexpectedEof)?;
        positioned::read(&self.file, offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        check_range(self.size(), offset, data.len(), io::ErrorKind::WriteZero)?;
        positioned::write(&self.file, offset, data)
    }

    /// Files get holes, block devices forget; others keep what they have.
    #[cfg(target_os = "linux")]
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fallocate(rustix::fs::FallocateFlags::PUNCH_HOLE, offset, len)
    }

    #[cfg(target_os = "linux")]
    fn discard_unit(&self) -> io::Result<u64> {
        use std::os::unix::fs::{FileTypeExt, MetadataExt};
        let facts = self.file.metadata()?;
        if !facts.file_type().is_block_device() {
            return Ok(facts.blksize());
        }
        match queue_of(facts.rdev(), "discard_granularity") {
            Some(0) => Err(io::ErrorKind::Unsupported.into()),
            unit => Ok(unit.unwrap_or(1)),
        }
    }

    fn lies_in(&self) -> Option<(&File, u64)> {
        Some((&self.file, 0))
    }

    fn flush(&self) -> io::Result<()> {
        if self.flushes { self.file.sync_data() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::pieces;
    use std::io::{self, ErrorKind};

    #[cfg(target_os = "linux")]
    #[test]
    fn holes_of_files_and_windows_are_known() {
        use super::FileDevice;
        use crate::{Device, Window};

        let path = std::env::temp_dir().join(format!("platfs-holes-{}", std::process::id()));
        let options = std::fs::File::options().read(true).write(true).create_new(true).open(&path);
        let file = options.unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(64 << 20).unwrap();
        let device = std::sync::Arc::new(FileDevice::new(file).unwrap());
        device.write_at(32 << 20, b"data").unwrap();
        let data = device.data_from(1 << 20);
        // A file system that keeps no holes says that all is data.
        if data > 1 << 20 {
            assert_eq!(
                (data, device.data_from(data), device.data_from(48 << 20)),
                (32 << 20, data, 64 << 20)
            );
            let window = Window::new(device, 8 << 20, 16 << 20).unwrap();
            assert_eq!((window.data_from(5), window.data_from(16 << 20)), (16 << 20, 16 << 20));
        }
    }

    /// A process that is just being started has a copy of each descriptor of this one.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_lock_ends_with_its_device_whoever_has_a_copy_of_the_descriptor() {
        use super::FileDevice;

        let path = std::env::temp_dir().join(format!("platfs-locked-{}", std::process::id()));
        let first = std::fs::File::create_new(&path).unwrap();
        let second = || std::fs::File::open(&path).unwrap();
        let copy = first.try_clone().unwrap();
        let device = FileDevice::locked(first).unwrap();
        assert_eq!(FileDevice::locked(second()).unwrap_err().kind(), ErrorKind::ResourceBusy);
        drop(device);
        FileDevice::locked(second()).unwrap();
        drop(copy);
        std::fs::remove_file(&path).unwrap();
    }

    /// A file whose calls do three bytes at most, are interrupted now and then, and end at byte 8.
    fn call(turn: &mut u32, len: usize, at: u64) -> io::Result<usize> {
        *turn += 1;
        if turn.is_multiple_of(3) {
            return Err(ErrorKind::Interrupted.into());
        }
        Ok(len.min(3).min(8 - usize::try_from(at).unwrap()))
    }

    #[test]
    fn pieces_go_on_and_end_where_nothing_is_done() {
        let (mut turn, mut seen) = (0, Vec::new());
        pieces::write(0, b"abcdefgh", |data, at| {
            let done = call(&mut turn, data.len(), at)?;
            seen.extend_from_slice(&data[..done]);
            Ok(done)
        })
        .unwrap();
        assert_eq!(seen, b"abcdefgh");
        let full = pieces::write(5, b"abcd", |data, at| call(&mut turn, data.len(), at)).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::WriteZero);
        let mut buffer = [0; 4];
        pieces::read(2, &mut buffer, |piece, at| {
            let done = call(&mut turn, piece.len(), at)?;
            piece[..done].fill(7);
            Ok(done)
        })
        .unwrap();
        assert_eq!(buffer, [7; 4]);
        let ended = pieces::read(6, &mut buffer, |piece, at| call(&mut turn, piece.len(), at)).unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::UnexpectedEof);
    }
}
