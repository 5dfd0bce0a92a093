//! The block of multiple mount protection (`mmp`): which machine uses the volume now.
//!
//! Source: the ext4 data structure documentation of Linux ("Multiple Mount Protection"). Its
//! checksum stands in [`crate::seal`].

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::corrupt::{Corrupt, Place};
use crate::units::Block;

/// `mmp_magic`.
pub const MMP_MAGIC: u32 = 0x004D_4D50;
/// `mmp_seq` of a volume that is not in use.
pub const MMP_CLEAN: u32 = 0xFF4D_4D50;
/// `mmp_seq` of a volume that a check works on.
pub const MMP_CHECK: u32 = 0xE24D_4D50;
/// The largest `mmp_seq` of a volume that is in use; above it stand marks.
pub const MMP_SEQ_MAX: u32 = 0xE24D_4D4F;
/// Least seconds that others give a host to renew its mark.
pub const MMP_MIN_CHECK_INTERVAL: u16 = 5;
/// Seconds between updates where nothing else is asked for.
pub const MMP_DEFAULT_INTERVAL: u16 = 5;
/// Most seconds between updates.
pub const MMP_MAX_INTERVAL: u16 = 300;

/// The block's first 1,024 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "kernel field names; the spec is the document")]
pub struct RawMmp {
    pub mmp_magic: U32,
    pub mmp_seq: U32,
    pub mmp_time: U64,
    pub mmp_nodename: [u8; 64],
    pub mmp_bdevname: [u8; 32],
    pub mmp_check_interval: U16,
    pub mmp_pad1: U16,
    pub mmp_pad2: [U32; 226],
    pub mmp_checksum: U32,
}

const _: () = {
    assert!(size_of::<RawMmp>() == 1024);
    assert!(std::mem::offset_of!(RawMmp, mmp_checksum) == 0x3FC);
};

/// Meaning of a block's sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MmpUse {
    /// The volume is not in use.
    Clean,
    /// A host has it mounted, or had when it stopped.
    Mounted,
    /// A check works on it, or did when it stopped.
    Check,
    /// A mark that this code does not know.
    Unknown,
}

/// The bytes of a name, up to the first zero.
fn name(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Copies as much of a name as fits, leaving at least one zero byte behind it.
fn set_name(field: &mut [u8], name: &[u8]) {
    let len = name.len().min(field.len().saturating_sub(1));
    let names = name.iter().take(len).chain(std::iter::repeat(&0));
    for (to, from) in field.iter_mut().zip(names) {
        *to = *from;
    }
}

impl RawMmp {
    /// The block of a volume that is not in use, written by `node` at `time` (seconds since 1970).
    #[must_use]
    pub fn clean(time: u64, interval: u16, node: &[u8], device: &[u8]) -> Self {
        let mut raw = <Self as zerocopy::FromZeros>::new_zeroed();
        raw.mmp_magic.set(MMP_MAGIC);
        raw.mmp_seq.set(MMP_CLEAN);
        raw.mmp_time.set(time);
        raw.mmp_check_interval.set(interval);
        raw.set_names(node, device);
        raw
    }

    /// Says which host has the volume, and by which device.
    pub fn set_names(&mut self, node: &[u8], device: &[u8]) {
        set_name(&mut self.mmp_nodename, node);
        set_name(&mut self.mmp_bdevname, device);
    }

    /// The host that wrote the block.
    #[must_use]
    pub fn node(&self) -> &[u8] {
        name(&self.mmp_nodename)
    }

    /// The device by which that host has the volume.
    #[must_use]
    pub fn device(&self) -> &[u8] {
        name(&self.mmp_bdevname)
    }

    /// Reads the block at `place` of the volume.
    ///
    /// # Errors
    /// Too few bytes or a wrong magic.
    pub fn parse(place: Block, bytes: &[u8]) -> Result<Self, Corrupt> {
        // spec: mmp
        match RawMmp::read_from_prefix(bytes) {
            Ok((raw, _)) if raw.mmp_magic.get() == MMP_MAGIC => Ok(raw),
            _ => Err(Corrupt::new(Place::Block(place), "is no block of multiple mount protection")),
        }
    }

    /// Returns the meaning of the sequence.
    #[must_use]
    pub fn usage(&self) -> MmpUse {
        // spec: mmp
        match self.mmp_seq.get() {
            MMP_CLEAN => MmpUse::Clean,
            MMP_CHECK => MmpUse::Check,
            seq if seq <= MMP_SEQ_MAX => MmpUse::Mounted,
            _ => MmpUse::Unknown,
        }
    }

    /// True if the volume is not in use, as far as the block says.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.mmp_seq.get() == MMP_CLEAN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_cuts_long_names() {
        let raw = RawMmp::clean(5, 6, &[b'n'; 100], b"img");
        let read = RawMmp::parse(Block(9), raw.as_bytes()).unwrap();
        assert!(read.is_clean());
        assert_eq!(read.mmp_nodename[63], 0);
        assert_eq!(&read.mmp_bdevname[..4], b"img\0");
        let error = RawMmp::parse(Block(9), &[0; 1024]).unwrap_err();
        assert!(error.to_string().starts_with("block 9: "), "{error}");
    }
}
