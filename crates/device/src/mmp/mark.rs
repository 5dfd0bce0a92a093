//! Where the mark of a volume lies, and reading and writing it past all caches.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ondisk::features::Incompat;
use ondisk::geometry::Geometry;
use ondisk::invariant;
use ondisk::mmp::{
    MMP_CHECK, MMP_CLEAN, MMP_DEFAULT_INTERVAL, MMP_MAX_INTERVAL, MMP_MIN_CHECK_INTERVAL, MMP_SEQ_MAX, RawMmp,
};
use ondisk::seal::Sealer;
use ondisk::superblock::RawSuperblock;
use ondisk::units::Block;
use zerocopy::IntoBytes;

use super::host::Host;
use crate::Device;

/// Bytes of a block that its checksum is over, with it.
pub(super) type Bytes = [u8; size_of::<RawMmp>()];

/// Where the mark lies, and how it is sealed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct MmpBlock {
    pub(super) block: Block,
    /// The byte at which the block begins.
    pub(super) offset: u64,
    /// Bytes of a block.
    len: usize,
    sealer: Sealer,
    /// Seconds between updates.
    interval: u16,
}

/// Kind of a renewed sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NextSequence {
    /// Another one.
    Random,
    /// The next one.
    Following,
    /// That of a check.
    Check,
    /// Not in use.
    Clean,
}

impl MmpBlock {
    /// The place that a superblock names, if the volume has multiple mount protection and a place for it.
    pub(super) fn from_superblock(raw: &RawSuperblock) -> Option<Self> {
        if !raw.features().incompat.contains(Incompat::MMP) {
            return None;
        }
        let geometry = Geometry::from_superblock(raw).ok()?;
        let block = Block(raw.s_mmp_block.get());
        let interval = match raw.s_mmp_update_interval.get() {
            0 => MMP_DEFAULT_INTERVAL,
            seconds => seconds.min(MMP_MAX_INTERVAL),
        };
        let is_possible = block.0 > u64::from(geometry.first_data_block) && geometry.contains(block, 1);
        is_possible.then(|| MmpBlock {
            block,
            offset: geometry.byte_offset(block),
            len: geometry.block_size.bytes_usize(),
            sealer: Sealer::from_superblock(raw),
            interval,
        })
    }

    /// The block, if these are the bytes of one.
    pub(super) fn parse(&self, bytes: &[u8]) -> Option<RawMmp> {
        let raw = RawMmp::parse(self.block, bytes).ok()?;
        let mut sealed = raw;
        self.sealer.seal_mmp(sealed.as_mut_bytes());
        (sealed.as_bytes() == raw.as_bytes()).then_some(raw)
    }

    /// Returns the time between two renewals.
    pub(super) fn between(&self) -> Duration {
        Duration::from_secs(u64::from(self.interval))
    }

    /// Seconds that others give this host to renew the mark.
    pub(super) fn patience(&self) -> u16 {
        self.interval.saturating_mul(2).clamp(MMP_MIN_CHECK_INTERVAL, MMP_MAX_INTERVAL)
    }

    /// Returns the time to wait for the host that wrote `seen`, as Linux does.
    pub(super) fn wait(&self, seen: &RawMmp) -> Duration {
        let theirs = seen.mmp_check_interval.get().min(MMP_MAX_INTERVAL);
        let seconds = u64::from(self.interval.max(theirs).max(MMP_MIN_CHECK_INTERVAL));
        Duration::from_secs((seconds * 2 + 1).min(seconds + 60))
    }

    /// The block as this host writes it after `before`.
    pub(super) fn next(&self, before: &RawMmp, next: NextSequence, host: &dyn Host) -> RawMmp {
        let mut raw = *before;
        let (node, device) = host.names();
        raw.set_names(&node, &device);
        raw.mmp_time.set(host.now());
        raw.mmp_check_interval.set(self.patience());
        raw.mmp_seq.set(match next {
            NextSequence::Random => 1 + host.random() % MMP_SEQ_MAX,
            NextSequence::Following if before.mmp_seq.get() >= MMP_SEQ_MAX => 1,
            NextSequence::Following => before.mmp_seq.get() + 1,
            NextSequence::Check => MMP_CHECK,
            NextSequence::Clean => MMP_CLEAN,
        });
        self.sealer.seal_mmp(raw.as_mut_bytes());
        raw
    }
}

/// Reads and writes the block of a place: what another host wrote is seen, and what is written is stable.
pub(super) struct Access {
    device: Arc<dyn Device>,
    #[cfg(target_os = "linux")]
    direct: Option<direct::Direct>,
}

impl Access {
    pub(super) fn new(device: Arc<dyn Device>) -> Self {
        Access {
            #[cfg(target_os = "linux")]
            direct: direct::Direct::open(&*device),
            device,
        }
    }

    pub(super) fn read(&self, place: &MmpBlock) -> io::Result<Bytes> {
        let mut bytes = [0; size_of::<RawMmp>()];
        #[cfg(target_os = "linux")]
        {
            let done = self.direct.as_ref().and_then(|direct| direct.read(place.offset, place.len));
            if let Some(head) = done.as_ref().and_then(|done| done.get(..size_of::<RawMmp>())) {
                bytes.copy_from_slice(head);
                return Ok(bytes);
            }
            direct::forget(&*self.device, place.offset, place.len as u64);
        }
        self.device.read_at(place.offset, &mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn write(&self, place: &MmpBlock, raw: &RawMmp) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        if let Some(direct) = &self.direct {
            // The rest of the block is nobody's.
            let mut whole = vec![0; place.len];
            let head = whole.get_mut(..size_of::<RawMmp>());
            invariant!(head, "the smallest block holds the structure").copy_from_slice(raw.as_bytes());
            if direct.write(place.offset, &whole) {
                return Ok(());
            }
        }
        self.device.write_at(place.offset, raw.as_bytes())?;
        self.device.flush()
    }

    /// Drops what this machine remembers of the device, which another host may have changed since.
    pub(super) fn forget_all(&self) {
        #[cfg(target_os = "linux")]
        direct::forget(&*self.device, 0, self.device.size());
    }
}

/// Reading and writing without the system's cache, which doesn't see what other hosts write.
#[cfg(target_os = "linux")]
mod direct {
    use std::fs::{File, OpenOptions};
    use std::num::NonZeroU64;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{FileExt, OpenOptionsExt};

    use rustix::fs::{Advice, OFlags, fadvise};

    use crate::Device;

    /// Pages of the cache: a smaller piece would share one with bytes that others write through the cache.
    const PAGE: usize = 4096;

    /// A second opening of the file or block device that a device lies in.
    pub(super) struct Direct {
        file: File,
        base: u64,
    }

    /// Where in `room` a page begins.
    fn aligned(room: &[u8]) -> usize {
        room.as_ptr().align_offset(PAGE)
    }

    impl Direct {
        #[expect(clippy::disallowed_methods, reason = "an open file, opened once more")]
        pub(super) fn open(device: &dyn Device) -> Option<Self> {
            let (file, base) = device.lies_in()?;
            let again = format!("/proc/self/fd/{}", file.as_raw_fd());
            let flags = (OFlags::DIRECT | OFlags::DSYNC).bits().cast_signed();
            let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(again).ok()?;
            Some(Direct { file, base })
        }

        fn place(&self, offset: u64, len: usize) -> Option<u64> {
            let at = self.base.checked_add(offset)?;
            (at.is_multiple_of(PAGE as u64) && len.is_multiple_of(PAGE)).then_some(at)
        }

        /// The bytes, where the file can be read so.
        pub(super) fn read(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
            let at = self.place(offset, len)?;
            let mut room = vec![0; len + PAGE];
            let start = aligned(&room);
            let bytes = room.get_mut(start..start + len)?;
            self.file.read_exact_at(bytes, at).ok()?;
            Some(bytes.to_vec())
        }

        /// True if the bytes are stable: not where the file can't be written so.
        pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> bool {
            let Some(at) = self.place(offset, bytes.len()) else { return false };
            let mut room = vec![0; bytes.len() + PAGE];
            let start = aligned(&room);
            let Some(piece) = room.get_mut(start..start + bytes.len()) else { return false };
            piece.copy_from_slice(bytes);
            self.file.write_all_at(piece, at).is_ok()
        }
    }

    /// Has the system drop what it remembers of a range, as far as it is not changed.
    pub(super) fn forget(device: &dyn Device, offset: u64, len: u64) {
        if let Some((file, base)) = device.lies_in() {
            // A hint: what can't be dropped is what this machine changed itself.
            let _ = fadvise(file, base.saturating_add(offset), NonZeroU64::new(len), Advice::DontNeed);
        }
    }
}
