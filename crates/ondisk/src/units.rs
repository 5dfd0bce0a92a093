//! One newtype per address space, and every conversion between them.
//!
//! Nothing here does arithmetic between different spaces by accident: a file block can't be
//! passed where a disk block is meant. Conversions that need the geometry stand in
//! [`crate::geometry`].

use std::fmt;
use std::num::NonZeroU32;

use crate::invariant_or;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($raw:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $raw);

        impl $name {
            /// Adds a count of the same unit; `None` on overflow.
            #[must_use]
            pub fn checked_add(self, count: $raw) -> Option<Self> {
                self.0.checked_add(count).map(Self)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

unit!(
    /// A block of the volume, counted from its first byte.
    Block(u64), "b"
);
unit!(
    /// An allocation cluster of the volume: bit `n` of the joined block bitmaps. Cluster 0 begins
    /// at the volume's first data block. Without `bigalloc` a cluster is one block.
    Cluster(u64), "c"
);
unit!(
    /// A block of a file, counted from the file's first byte.
    FileBlock(u32), "f"
);
unit!(
    /// A block group.
    Group(u32), "g"
);

/// An inode number; the format counts from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeNumber(pub NonZeroU32);

impl InodeNumber {
    /// The root directory.
    pub const ROOT: InodeNumber = InodeNumber::constant(2);
    /// The inode kept for the blocks into which the descriptors can grow.
    pub const RESIZE: InodeNumber = InodeNumber::constant(7);
    /// The inode kept for the journal.
    pub const JOURNAL: InodeNumber = InodeNumber::constant(8);
    /// First inode that is not reserved on volumes of revision 0.
    pub const FIRST_OLD: InodeNumber = InodeNumber::constant(11);

    /// A number known at compile time.
    ///
    /// # Panics
    /// On zero, at compile time when used in a constant.
    #[must_use]
    pub const fn constant(number: u32) -> Self {
        match NonZeroU32::new(number) {
            Some(number) => InodeNumber(number),
            None => panic!("inode numbers count from 1"),
        }
    }

    /// The inode with this number; `None` for zero.
    #[must_use]
    pub fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(InodeNumber)
    }

    /// The number as stored on disk.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0.get()
    }

    /// Position counted from zero, as the inode bitmaps and tables count.
    #[must_use]
    pub fn index(self) -> u32 {
        self.0.get() - 1
    }
}

impl fmt::Debug for InodeNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "i{}", self.0)
    }
}

impl fmt::Display for InodeNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A run of consecutive blocks of the volume, never empty by convention of its makers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockRun {
    /// First block.
    pub start: Block,
    /// Number of blocks.
    pub count: u32,
}

/// A run of consecutive clusters of the volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClusterRun {
    /// First cluster.
    pub start: Cluster,
    /// Number of clusters.
    pub count: u32,
}

impl ClusterRun {
    /// One past the last cluster. Runs are made from checked geometry, so this can't overflow.
    #[must_use]
    pub fn end(self) -> u64 {
        self.start.0 + u64::from(self.count)
    }
}

/// Block size of a volume: a power of two from 1 KiB to 64 KiB, legal by construction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockSize(u8);

impl BlockSize {
    /// From the base-2 logarithm of the size in bytes, 10 to 16; `None` outside.
    #[must_use]
    pub fn from_log2(log2: u32) -> Option<Self> {
        u8::try_from(log2).ok().filter(|l| (10..=16).contains(l)).map(BlockSize)
    }

    /// From a size in bytes; `None` unless a power of two from 1 KiB to 64 KiB.
    #[must_use]
    pub fn from_bytes(bytes: u64) -> Option<Self> {
        if bytes.is_power_of_two() { Self::from_log2(bytes.trailing_zeros()) } else { None }
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        1 << self.0
    }

    /// Size in bytes, for indexing memory.
    #[must_use]
    pub fn bytes_usize(self) -> usize {
        1 << self.0
    }

    /// Base-2 logarithm of the size in bytes.
    #[must_use]
    pub fn log2(self) -> u32 {
        u32::from(self.0)
    }

    /// Number of blocks that hold `bytes`.
    #[must_use]
    pub fn blocks_for(self, bytes: u64) -> u64 {
        bytes.div_ceil(u64::from(self.bytes()))
    }
}

/// The low half of a 64-bit field that the format stores in two.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "taking the low half is the purpose")]
pub fn low_u32(value: u64) -> u32 {
    value as u32
}

/// The high half of a 64-bit field that the format stores in two.
#[must_use]
pub fn high_u32(value: u64) -> u32 {
    low_u32(value >> 32)
}

/// Joins the two halves of a 64-bit field.
#[must_use]
#[inline]
pub fn join_u64(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The low half of a 32-bit field that the format stores in two.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "taking the low half is the purpose")]
pub fn low_u16(value: u32) -> u16 {
    value as u16
}

/// The high half of a 32-bit field that the format stores in two.
#[must_use]
pub fn high_u16(value: u32) -> u16 {
    low_u16(value >> 16)
}

/// Joins the two halves of a 32-bit field.
#[must_use]
pub fn join_u32(high: u16, low: u16) -> u32 {
    u32::from(high) << 16 | u32::from(low)
}

/// Unsigned numbers that others are narrowed to.
pub trait Unsigned: private::Sealed + Copy {
    /// The largest one.
    const LARGEST: Self;
}

mod private {
    pub trait Sealed {}
}

macro_rules! unsigned {
    ($($number:ty),*) => {
        $(
            impl private::Sealed for $number {}

            impl Unsigned for $number {
                const LARGEST: Self = <$number>::MAX;
            }
        )*
    };
}

unsigned!(u8, u16, u32, u64, usize);

/// Narrows a number that is a limit, a length or a place: the largest one stands for all that are larger.
///
/// That is right where a larger number would change nothing: it is cut to what a buffer holds, or nothing lies there.
/// Negative numbers are not among them.
#[must_use]
#[inline]
pub fn saturated<T: Unsigned>(number: impl TryInto<T>) -> T {
    number.try_into().unwrap_or(T::LARGEST)
}

/// Narrows a number that its bounds keep in the smaller type.
///
/// One that does not fit is a broken invariant, so bytes of an image must not lead to it.
///
/// # Panics
/// In debug builds, if it does not fit. Otherwise it becomes the largest one.
#[must_use]
#[inline]
#[track_caller]
pub fn bounded<T: Unsigned>(number: impl TryInto<T>) -> T {
    invariant_or!(number.try_into(), T::LARGEST, "a number fits, as its bounds say")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_cut_to_the_largest_number() {
        assert_eq!((saturated::<u32>(7_u64), saturated::<u16>(1_u64 << 40)), (7, u16::MAX));
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic = "a number fits")]
    fn a_number_outside_of_its_bounds_is_a_defect() {
        assert_eq!((bounded::<u8>(255_u64), bounded::<u8>(256_u64)), (255, 255));
    }
}
