//! Foundation of both the code that writes ext2/3/4 volumes and the check that judges them.
//!
//! Owns: the [`Device`] that a volume lives on and its kinds; the [partitions] of a disk; reading the superblock; the log of a journal and its
//! [replay](journal); a walk along a file's [map]. Excludes: everything that changes a volume, but for the replay of
//! what was already committed.
//!
//! ```no_run
//! use std::fs::File;
//! use std::sync::Arc;
//!
//! use platfs_device::journal::{self, NoWriter};
//! use platfs_device::{Device, FileDevice, read_superblock};
//!
//! let device: Arc<dyn Device> = Arc::new(FileDevice::new(File::open("disk.img")?)?);
//! // As a mount would see it: what waits in the journal is laid over the device, which is only read.
//! let (device, recovery) = journal::replayed(device, &NoWriter)?;
//! println!("{recovery}; {} blocks", read_superblock(&*device)?.blocks_count());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![forbid(unsafe_code)]

mod error;
mod file;
mod groups;
pub mod journal;
mod lookalike;
pub mod map;
mod memory;
pub mod mmp;
mod overlay;
pub mod partitions;
mod record;
mod search;
mod snapshot;
mod superblock;
mod window;
mod write_behind;

use std::fs::File;
use std::io;

use ondisk::units::saturated;

pub use error::{Error, Result};
pub use ondisk::{invariant, invariant_or, units};

pub use file::FileDevice;
pub use lookalike::{backup_superblock, is_blank, is_image_or_blank, lookalike};
pub use memory::MemoryDevice;
pub use overlay::Overlay;
pub use record::{Event, Recorder};
pub use search::{FoundVolume, search};
pub use snapshot::{Snapshot, SnapshotDevice};
pub use superblock::{read_superblock, refuse_unreadable};
pub use window::Window;
pub use write_behind::WriteBehind;

/// Other hosts that can write a device meanwhile, as far as multiple mount protection goes ([`mmp`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    /// Any that reach it.
    Open,
    /// None: it is this process's own, or its volume bears the mark of this host.
    Alone,
    /// Another has taken it: nothing is written any more.
    Lost,
}

/// Storage addressed by byte offset.
///
/// Contract (I1, I2, I3): reads see all earlier writes of the same process. A write may reach stable storage at
/// any time and in any order until [`flush`](Device::flush) returns; what was written before a
/// flush that succeeded is stable. Accesses behind [`size`](Device::size) fail.
pub trait Device: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Fills `buffer` from `offset`; a short read is an error.
    ///
    /// # Errors
    /// Whatever the storage says; `UnexpectedEof` behind the end.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// Whatever the storage says; `WriteZero` behind the end.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes everything written so far stable.
    ///
    /// # Errors
    /// Whatever the storage says; data written since the last flush may then be lost.
    fn flush(&self) -> io::Result<()>;

    /// Gives up the bytes of a range; they read as anything then.
    ///
    /// # Errors
    /// Whatever the storage says; its bytes may be as before.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let _ = (offset, len);
        Ok(())
    }

    /// Bytes that a discard frees at least, where it begins and ends at multiples of them.
    ///
    /// # Errors
    /// `Unsupported`: the storage keeps what it has.
    fn discard_unit(&self) -> io::Result<u64> {
        Ok(1)
    }

    /// Has the device end at a byte, if it ends before it and can grow; without one, where its storage ends by now. Gives
    /// its size then. What is new of a file reads as zeros.
    ///
    /// # Errors
    /// Whatever the storage says.
    fn lengthen(&self, to: Option<u64>) -> io::Result<u64> {
        let _ = to;
        Ok(self.size())
    }

    /// Has the device end at a byte, if it is a file of its own that ends behind it; others keep their size. What lay behind
    /// is gone.
    ///
    /// # Errors
    /// Whatever the storage says.
    fn shorten(&self, to: u64) -> io::Result<()> {
        let _ = to;
        Ok(())
    }

    /// The first byte from `offset` on that may be something else than zero: what lies before it reads as zeros, and need
    /// not be read. Storage that does not know gives `offset`.
    fn data_from(&self, offset: u64) -> u64 {
        offset
    }

    /// The first byte behind `offset`, which holds data, where a hole may begin; the size of the device if none is known.
    /// Asked in turn with [`data_from`](Device::data_from), it gives what holds nothing in time by the number of holes.
    fn hole_from(&self, offset: u64) -> u64 {
        let _ = offset;
        self.size()
    }

    /// Makes a range read as zeros by a word to the storage: no zeros are moved. Storage behind the range is given up,
    /// unless `keeps` has it stay, so that later writes find room.
    ///
    /// # Errors
    /// `Unsupported`: the storage can't, and nothing changed. Else whatever it says.
    fn zero_fast(&self, offset: u64, len: u64, keeps: bool) -> io::Result<()> {
        let _ = (offset, len, keeps);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The file whose bytes these are, and where in it they begin: for copies that the system makes by itself.
    fn lies_in(&self) -> Option<(&File, u64)> {
        None
    }

    /// Says which other hosts can write it. A device on top of another says what that one says.
    fn protection(&self) -> Protection {
        Protection::Open
    }

    /// Makes a range read as zeros, without storage behind it where possible.
    ///
    /// # Errors
    /// Whatever the storage says.
    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        let zeros = [0; 64 * 1024];
        let mut done = 0;
        while done < len {
            let step = saturated::<usize>(len - done).min(zeros.len());
            self.write_at(offset + done, &zeros[..step])?;
            done += step as u64;
        }
        Ok(())
    }
}

/// `UnexpectedEof` or `WriteZero` unless the range lies inside `size`.
fn check_range(size: u64, offset: u64, len: usize, kind: io::ErrorKind) -> io::Result<()> {
    match offset.checked_add(len as u64) {
        Some(end) if end <= size => Ok(()),
        _ => Err(io::Error::new(kind, format!("{len} bytes at {offset} are behind the end ({size})"))),
    }
}
