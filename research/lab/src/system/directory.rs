//! A mounted directory, whatever is mounted there.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{FallocateFlags, OFlags};

use super::{Client, Op, Slot, System};

/// Largest single read or write.
const PIECE: u64 = 1 << 20;

/// Alignment of memory for direct calls.
const ALIGNED: usize = 4096;

/// A directory in which workloads run.
pub(crate) struct Directory {
    root: PathBuf,
}

impl Directory {
    pub(crate) fn new(root: impl Into<PathBuf>) -> Self {
        Directory { root: root.into() }
    }
}

impl System for Directory {
    fn client(&self) -> Box<dyn Client + '_> {
        let piece = usize::try_from(PIECE).unwrap_or(0);
        // Touched, so that it is in memory: a kernel that can't copy from it at once gives up the block that it took for
        // the write, and takes another one (6.18, `generic_perform_write`).
        let mut zeros = std::hint::black_box(vec![0; piece]);
        zeros.fill(0);
        Box::new(Program { root: &self.root, open: Vec::new(), zeros, buffer: vec![0; piece] })
    }
}

struct Program<'d> {
    root: &'d PathBuf,
    open: Vec<Option<File>>,
    zeros: Vec<u8>,
    buffer: Vec<u8>,
}

/// The pieces of a range.
pub(super) fn pieces(offset: u64, len: u64, piece: u64) -> impl Iterator<Item = (u64, usize)> {
    let end = offset.saturating_add(len);
    let mut at = offset;
    std::iter::from_fn(move || {
        let step = (end - at).min(piece);
        let found = (at, usize::try_from(step).unwrap_or(0));
        at += step;
        (step > 0).then_some(found)
    })
}

impl Program<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn file(&self, slot: Slot) -> std::io::Result<&File> {
        let file = self.open.get(slot as usize).and_then(Option::as_ref);
        file.ok_or_else(|| std::io::Error::other("no file is open in this slot"))
    }

    fn keep(&mut self, slot: Slot, file: Option<File>) {
        let slot = slot as usize;
        if self.open.len() <= slot {
            self.open.resize_with(slot + 1, || None);
        }
        self.open[slot] = file;
    }

    fn read(&mut self, slot: Slot, offset: u64, len: u64) -> std::io::Result<u64> {
        let mut done = 0;
        for (at, step) in pieces(offset, len, PIECE) {
            let file = self.open.get(slot as usize).and_then(Option::as_ref);
            let file = file.ok_or_else(|| std::io::Error::other("no file is open in this slot"))?;
            let read = file.read_at(&mut self.buffer[..step], at)?;
            done += read as u64;
            if read < step {
                break;
            }
        }
        Ok(done)
    }

    /// Through a handle of its own: others of the file go on through the host's memory.
    fn direct(&mut self, slot: Slot, offset: u64, len: u64, write: bool) -> std::io::Result<u64> {
        let file = self.file(slot)?;
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
        let flags = OFlags::DIRECT | OFlags::RDWR | OFlags::CLOEXEC;
        let direct = File::from(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?);
        let piece = usize::try_from(PIECE).unwrap_or(0);
        // Memory for direct calls begins at a multiple of the page.
        let mut memory = vec![0; piece + ALIGNED];
        let start = memory.as_ptr().align_offset(ALIGNED).min(ALIGNED);
        for (at, step) in pieces(offset, len, PIECE) {
            let bytes = &mut memory[start..start + step];
            if write {
                direct.write_all_at(bytes, at)?;
            } else {
                direct.read_at(bytes, at)?;
            }
        }
        Ok(len)
    }

    fn call(&mut self, op: &Op) -> std::io::Result<u64> {
        match op {
            Op::MakeDirectory(path) => fs::create_dir(self.path(path))?,
            Op::Open { slot, path, create } => {
                let mut how = OpenOptions::new();
                how.read(true).write(true).create(*create).truncate(*create);
                let file = how.open(self.path(path))?;
                self.keep(*slot, Some(file));
            }
            Op::Write { slot, offset, len } => {
                for (at, step) in pieces(*offset, *len, PIECE) {
                    self.file(*slot)?.write_all_at(&self.zeros[..step], at)?;
                }
                return Ok(*len);
            }
            Op::Read { slot, offset, len } => return self.read(*slot, *offset, *len),
            Op::Direct { slot, offset, len, write } => return self.direct(*slot, *offset, *len, *write),
            Op::Sync { slot, data_only: true } => self.file(*slot)?.sync_data()?,
            Op::Sync { slot, .. } => self.file(*slot)?.sync_all()?,
            Op::Truncate { slot, len } => self.file(*slot)?.set_len(*len)?,
            Op::Reserve { slot, offset, len } => {
                rustix::fs::fallocate(self.file(*slot)?, FallocateFlags::empty(), *offset, *len)?;
            }
            Op::Punch { slot, offset, len } => {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(self.file(*slot)?, how, *offset, *len)?;
            }
            Op::Close(slot) => self.keep(*slot, None),
            Op::Remove(path) => fs::remove_file(self.path(path))?,
            Op::RemoveDirectory(path) => fs::remove_dir(self.path(path))?,
            Op::Rename(from, to) => fs::rename(self.path(from), self.path(to))?,
            Op::Link(from, to) => fs::hard_link(self.path(from), self.path(to))?,
            Op::Symlink { target, path } => symlink(&**target, self.path(path))?,
            Op::Status(path) => {
                fs::symlink_metadata(self.path(path))?;
            }
            Op::Look(path) => match fs::symlink_metadata(self.path(path)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            },
            // Root alone may; what is in memory stays there otherwise, which a run without root is measured with.
            Op::DropCaches => drop(fs::write("/proc/sys/vm/drop_caches", "3")),
            Op::List(path) => {
                for entry in fs::read_dir(self.path(path))? {
                    entry?;
                }
            }
            Op::SyncAll => rustix::fs::syncfs(File::open(self.root)?)?,
            Op::Think(time) => std::thread::sleep(Duration::from_nanos(*time)),
        }
        Ok(0)
    }
}

impl Client for Program<'_> {
    fn perform(&mut self, op: &Op) -> Result<u64, String> {
        self.call(op).map_err(|error| format!("{op:?} in {}: {error}", self.root.display()))
    }
}
