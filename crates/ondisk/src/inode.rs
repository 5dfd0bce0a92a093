//! Inode records: type, owner, times, flags, block count.
//!
//! Source: the ext4 data structure documentation of Linux ("Inode Table"). A record is kept as its
//! raw bytes, so that fields and in-inode attributes this module does not name survive a rewrite.
//! The maps and inline contents in `i_block`, and the attributes behind the record, are decoded by
//! their own modules.

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::corrupt::{Corrupt, Place};
use crate::units::{Block, BlockSize, InodeNumber, high_u16, high_u32, join_u32, join_u64, low_u16, low_u32};

/// Bytes of the record on every volume.
pub const OLD_SIZE: usize = 128;
/// Offset of `i_block` in the record.
pub const I_BLOCK_OFFSET: usize = 0x28;
/// Bytes of `i_block`.
pub const I_BLOCK_LEN: usize = 60;
/// Most links that an inode counts where the volume knows extents (`EXT4_LINK_MAX`); a directory with more
/// states 1 there.
pub const LINKS_MAX: u16 = 65_000;

/// The first 128 bytes, byte for byte.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "kernel field names; the spec is the document")]
pub struct RawInode {
    pub i_mode: U16,
    pub i_uid: U16,
    pub i_size_lo: U32,
    pub i_atime: U32,
    pub i_ctime: U32,
    pub i_mtime: U32,
    pub i_dtime: U32,
    pub i_gid: U16,
    pub i_links_count: U16,
    pub i_blocks_lo: U32,
    pub i_flags: U32,
    pub i_version_lo: U32,
    pub i_block: [u8; I_BLOCK_LEN],
    pub i_generation: U32,
    pub i_file_acl_lo: U32,
    pub i_size_high: U32,
    pub i_obso_faddr: U32,
    pub i_blocks_high: U16,
    pub i_file_acl_high: U16,
    pub i_uid_high: U16,
    pub i_gid_high: U16,
    pub i_checksum_lo: U16,
    pub i_reserved: U16,
}

/// The fields behind byte 128, present as far as `i_extra_isize` reaches.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "kernel field names; the spec is the document")]
pub struct RawInodeExtra {
    pub i_extra_isize: U16,
    pub i_checksum_hi: U16,
    pub i_ctime_extra: U32,
    pub i_mtime_extra: U32,
    pub i_atime_extra: U32,
    pub i_crtime: U32,
    pub i_crtime_extra: U32,
    pub i_version_hi: U32,
    pub i_projid: U32,
}

/// Bytes of [`RawInodeExtra`]: the `i_extra_isize` that this code gives new inodes.
pub const EXTRA_SIZE: u16 = 32;

/// Bytes of a record that each change of a file's contents may change: times, version and checksum. Those behind byte
/// 128 are there as far as the extra fields reach.
const LIKE_TIMES: [(usize, usize); 5] =
    [(0x08, 0x14), (0x24, 0x28), (0x7C, 0x7E), (0x82, 0x90), (0x98, 0x9C)];

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(RawInode, i_atime) == 0x08 && offset_of!(RawInode, i_dtime) == 0x14);
    assert!(offset_of!(RawInode, i_version_lo) == 0x24);
    assert!(offset_of!(RawInodeExtra, i_checksum_hi) == 0x02 && offset_of!(RawInodeExtra, i_crtime) == 0x10);
    assert!(offset_of!(RawInodeExtra, i_version_hi) == 0x18);
    assert!(size_of::<RawInode>() == OLD_SIZE);
    assert!(offset_of!(RawInode, i_block) == I_BLOCK_OFFSET);
    assert!(offset_of!(RawInode, i_generation) == 0x64);
    assert!(offset_of!(RawInode, i_checksum_lo) == 0x7C);
    assert!(size_of::<RawInodeExtra>() == EXTRA_SIZE as usize);
    assert!(offset_of!(RawInodeExtra, i_crtime) == 0x10);
    assert!(offset_of!(RawInodeExtra, i_projid) == 0x1C);
};

bitflags! {
    /// `i_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct InodeFlags: u32 {
        /// Secure deletion (not implemented anywhere).
        const SECRM = 0x1;
        /// Undelete (not implemented anywhere).
        const UNRM = 0x2;
        /// Compressed (not implemented anywhere).
        const COMPR = 0x4;
        /// Synchronous updates.
        const SYNC = 0x8;
        /// Can't be changed.
        const IMMUTABLE = 0x10;
        /// Can only be appended to.
        const APPEND = 0x20;
        /// Not dumped by dump(8).
        const NODUMP = 0x40;
        /// Access times are not kept.
        const NOATIME = 0x80;
        /// Encrypted contents.
        const ENCRYPT = 0x800;
        /// Directory with a hashed index.
        const INDEX = 0x1000;
        /// AFS magic directory.
        const IMAGIC = 0x2000;
        /// Data is always journaled.
        const JOURNAL_DATA = 0x4000;
        /// Tail merging is off.
        const NOTAIL = 0x8000;
        /// Directory changes are synchronous.
        const DIRSYNC = 0x1_0000;
        /// Top of directory hierarchies.
        const TOPDIR = 0x2_0000;
        /// The block count is in blocks, not sectors.
        const HUGE_FILE = 0x4_0000;
        /// Mapped by extents.
        const EXTENTS = 0x8_0000;
        /// Protected by verity.
        const VERITY = 0x10_0000;
        /// Holds a large attribute value.
        const EA_INODE = 0x20_0000;
        /// Direct access.
        const DAX = 0x200_0000;
        /// Contents are in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// Children inherit the project.
        const PROJINHERIT = 0x2000_0000;
        /// Names ignore case.
        const CASEFOLD = 0x4000_0000;
        /// Bits without a name stay as they are.
        const _ = !0;
    }
}

/// Type of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileType {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

/// File type, `i_mode` bits, directory entry code: source as for the module.
const TYPES: [(FileType, u16, u8); 7] = [
    (FileType::Regular, 0x8000, 1),
    (FileType::Directory, 0x4000, 2),
    (FileType::CharDevice, 0x2000, 3),
    (FileType::BlockDevice, 0x6000, 4),
    (FileType::Fifo, 0x1000, 5),
    (FileType::Socket, 0xC000, 6),
    (FileType::Symlink, 0xA000, 7),
];

impl FileType {
    /// From the upper four bits of `i_mode`; `None` for values without a meaning.
    #[must_use]
    pub fn from_mode(mode: u16) -> Option<Self> {
        TYPES.iter().find(|(_, bits, _)| *bits == mode & 0xF000).map(|(file_type, ..)| *file_type)
    }

    /// From the type code in directory entries; `None` for 0 (unknown) and values without a meaning.
    #[must_use]
    pub fn from_entry_code(code: u8) -> Option<Self> {
        TYPES.iter().find(|(.., entry)| *entry == code).map(|(file_type, ..)| *file_type)
    }

    fn row(self) -> (u16, u8) {
        TYPES
            .iter()
            .find(|(file_type, ..)| *file_type == self)
            .map_or((0, 0), |(_, bits, code)| (*bits, *code))
    }

    /// The upper four bits of `i_mode`.
    #[must_use]
    pub fn mode_bits(self) -> u16 {
        self.row().0
    }

    /// The type code in directory entries.
    #[must_use]
    pub fn entry_code(self) -> u8 {
        self.row().1
    }
}

/// A point in time: seconds since 1970 (negative before) and nanoseconds (0 to 999,999,999).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds after the second.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// Earliest second an inode with extra fields can hold (1901-12-13).
    pub const EARLIEST: i64 = i32::MIN as i64;
    /// Latest second an inode with extra fields can hold (2446-05-10).
    pub const LATEST_EXTRA: i64 = i32::MAX as i64 + (3 << 32);
    /// Latest second a 128-byte inode can hold (2038-01-19).
    pub const LATEST_OLD: i64 = i32::MAX as i64;

    /// Seconds for fields without a sign: a time before 1970 is 0 there.
    #[must_use]
    pub fn since_1970(self) -> u64 {
        u64::try_from(self.seconds).unwrap_or(0)
    }

    /// A time of whole seconds.
    #[must_use]
    pub fn from_seconds(seconds: i64) -> Self {
        Timestamp { seconds, nanoseconds: 0 }
    }

    /// From the 32-bit seconds and, where present, the extra word: two epoch bits that add
    /// multiples of 2^32 seconds, and thirty bits of nanoseconds.
    fn decode(low: u32, extra: Option<u32>) -> Self {
        // spec: inode
        let signed = i64::from(low.cast_signed());
        let Some(extra) = extra else { return Timestamp { seconds: signed, nanoseconds: 0 } };
        let seconds = signed + (i64::from(extra & 3) << 32);
        // Thirty bits can hold over a thousand million: such damage must not reach arithmetic.
        Timestamp { seconds, nanoseconds: (extra >> 2).min(999_999_999) }
    }

    /// Clamps to what the record can hold, as Linux does, and encodes. The first and the last second have no nanoseconds.
    fn encode(self, has_extra: bool) -> (u32, u32) {
        let latest = if has_extra { Self::LATEST_EXTRA } else { Self::LATEST_OLD };
        let seconds = self.seconds.clamp(Self::EARLIEST, latest);
        let low = low_u32(seconds.cast_unsigned());
        let epoch = low_u32(((seconds - i64::from(low.cast_signed())) >> 32).cast_unsigned()) & 3;
        let is_edge = seconds == Self::EARLIEST || seconds == latest;
        let nanoseconds = if is_edge { 0 } else { self.nanoseconds.min(999_999_999) };
        (low, epoch | nanoseconds << 2)
    }
}

/// A time of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeField {
    /// Last access.
    Access,
    /// Last change of the inode.
    Change,
    /// Last modification of the contents.
    Modify,
    /// Creation; only in records with extra fields.
    Create,
}

/// An inode record: its number and all its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inode {
    number: InodeNumber,
    bytes: Vec<u8>,
    /// Block numbers of its volume have 32 bits.
    is_narrow: bool,
}

impl Inode {
    /// Takes the bytes of a record as read from a table.
    ///
    /// # Errors
    /// Fewer than 128 bytes, or an `i_extra_isize` that leaves the record or is not a multiple of 4.
    pub fn parse(number: InodeNumber, bytes: &[u8]) -> Result<Self, Corrupt> {
        // spec: inode
        let inode = Inode { number, bytes: bytes.to_vec(), is_narrow: false };
        if bytes.len() < OLD_SIZE {
            return Err(Corrupt::new(Place::Inode(number), "record is shorter than 128 bytes"));
        }
        let extra = usize::from(inode.stated_extra_size());
        if extra % 4 != 0 || OLD_SIZE + extra > bytes.len() {
            return Err(Corrupt::new(
                Place::Inode(number),
                format!("extra size {extra} does not fit the record"),
            ));
        }
        Ok(inode)
    }

    /// Takes the bytes of a record without looking at them, for a checker: the extra size may
    /// leave the record, and extra fields read as far as both reach. Shorter records are filled with
    /// zeros to 128 bytes.
    #[must_use]
    pub fn unjudged(number: InodeNumber, bytes: &[u8]) -> Self {
        let mut inode = Inode { number, bytes: Vec::with_capacity(bytes.len()), is_narrow: false };
        inode.refill(number, bytes);
        inode
    }

    /// Becomes another record, as by [`Inode::unjudged`], in the same memory.
    pub fn refill(&mut self, number: InodeNumber, bytes: &[u8]) {
        self.number = number;
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() < OLD_SIZE {
            self.bytes.resize(OLD_SIZE, 0);
        }
    }

    /// Reads the record as on a volume whose block numbers have 32 bits, without `64bit`: the upper half of the block of
    /// attributes is not one then, and stays as it is. The Hurd keeps modes in it.
    #[must_use]
    pub fn narrowed(mut self, is_narrow: bool) -> Self {
        self.is_narrow = is_narrow;
        self
    }

    /// A record of zeros with `size` bytes (the volume's inode size) and extra fields where they fit.
    #[must_use]
    pub fn blank(number: InodeNumber, size: u16) -> Self {
        let mut inode = Inode { number, bytes: vec![0; usize::from(size).max(OLD_SIZE)], is_narrow: false };
        if size >= 128 + EXTRA_SIZE {
            inode.edit_extra(|extra| extra.i_extra_isize.set(EXTRA_SIZE));
        }
        inode
    }

    /// The number of this inode.
    #[must_use]
    pub fn number(&self) -> InodeNumber {
        self.number
    }

    /// All bytes of the record.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All bytes of the record, for modules that own other parts of it (maps, attributes,
    /// checksums).
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The raw first 128 bytes.
    #[must_use]
    pub fn raw(&self) -> &RawInode {
        #[expect(clippy::expect_used, reason = "parse and blank leave at least 128 bytes")]
        RawInode::ref_from_prefix(&self.bytes).expect("128 bytes").0
    }

    /// The raw first 128 bytes, to change.
    pub fn raw_mut(&mut self) -> &mut RawInode {
        #[expect(clippy::expect_used, reason = "parse and blank leave at least 128 bytes")]
        RawInode::mut_from_prefix(&mut self.bytes).expect("128 bytes").0
    }

    fn stated_extra_size(&self) -> u16 {
        match self.bytes.get(OLD_SIZE..OLD_SIZE + 2) {
            Some(&[low, high]) => u16::from_le_bytes([low, high]),
            _ => 0,
        }
    }

    /// Bytes of extra fields in use behind byte 128; 0 in 128-byte records.
    #[must_use]
    pub fn extra_size(&self) -> u16 {
        self.stated_extra_size()
    }

    /// Offset of the in-inode attributes: behind the extra fields; `None` in 128-byte records.
    #[must_use]
    pub fn attributes_offset(&self) -> Option<usize> {
        (self.bytes.len() > OLD_SIZE).then(|| OLD_SIZE + usize::from(self.stated_extra_size()))
    }

    /// The extra fields, those behind `i_extra_isize` reading as zero.
    #[must_use]
    pub fn extra(&self) -> RawInodeExtra {
        let mut whole = [0; EXTRA_SIZE as usize];
        let stated = usize::from(self.stated_extra_size());
        let len = whole.len().min(stated).min(self.bytes.len() - OLD_SIZE);
        if let (Some(to), Some(from)) = (whole.get_mut(..len), self.bytes.get(OLD_SIZE..OLD_SIZE + len)) {
            to.copy_from_slice(from);
        }
        zerocopy::transmute!(whole)
    }

    /// Changes extra fields. Those behind `i_extra_isize` (as it is afterwards) are not stored.
    pub fn edit_extra(&mut self, change: impl FnOnce(&mut RawInodeExtra)) {
        let mut extra = self.extra();
        change(&mut extra);
        let stated = usize::from(extra.i_extra_isize.get()).min(self.bytes.len() - OLD_SIZE);
        let len = stated.min(usize::from(EXTRA_SIZE));
        if let (Some(to), Some(from)) =
            (self.bytes.get_mut(OLD_SIZE..OLD_SIZE + len), extra.as_bytes().get(..len))
        {
            to.copy_from_slice(from);
        }
    }

    /// True if the extra fields reach up to byte `end` behind byte 128.
    fn has_extra(&self, end: u16) -> bool {
        self.stated_extra_size() >= end
    }

    /// The type; `None` for a mode without a meaning (also an inode never used).
    #[must_use]
    pub fn file_type(&self) -> Option<FileType> {
        FileType::from_mode(self.raw().i_mode.get())
    }

    /// Type and permission bits.
    #[must_use]
    pub fn mode(&self) -> u16 {
        self.raw().i_mode.get()
    }

    /// The flags.
    #[must_use]
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.raw().i_flags.get())
    }

    /// Stores the flags.
    pub fn set_flags(&mut self, flags: InodeFlags) {
        self.raw_mut().i_flags.set(flags.bits());
    }

    /// Owner.
    #[must_use]
    pub fn uid(&self) -> u32 {
        join_u32(self.raw().i_uid_high.get(), self.raw().i_uid.get())
    }

    /// Group owner.
    #[must_use]
    pub fn gid(&self) -> u32 {
        join_u32(self.raw().i_gid_high.get(), self.raw().i_gid.get())
    }

    /// Stores owner and group.
    pub fn set_owner(&mut self, uid: u32, gid: u32) {
        let raw = self.raw_mut();
        raw.i_uid.set(low_u16(uid));
        raw.i_uid_high.set(high_u16(uid));
        raw.i_gid.set(low_u16(gid));
        raw.i_gid_high.set(high_u16(gid));
    }

    /// Size of the contents in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        join_u64(self.raw().i_size_high.get(), self.raw().i_size_lo.get())
    }

    /// Stores the size of the contents.
    pub fn set_size(&mut self, size: u64) {
        self.raw_mut().i_size_lo.set(low_u32(size));
        self.raw_mut().i_size_high.set(high_u32(size));
    }

    /// Names that refer to the inode.
    #[must_use]
    pub fn links(&self) -> u16 {
        self.raw().i_links_count.get()
    }

    /// Generation: changes when the number is used again.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.raw().i_generation.get()
    }

    /// The block of external attributes; zero for none.
    #[must_use]
    pub fn attribute_block(&self) -> Block {
        let high = if self.is_narrow { 0 } else { self.raw().i_file_acl_high.get() };
        Block(join_u64(u32::from(high), self.raw().i_file_acl_lo.get()))
    }

    /// Stores the block of external attributes.
    pub fn set_attribute_block(&mut self, block: Block) {
        self.raw_mut().i_file_acl_lo.set(low_u32(block.0));
        if !self.is_narrow {
            self.raw_mut().i_file_acl_high.set(low_u16(high_u32(block.0)));
        }
    }

    /// Space charged to the inode in 512-byte sectors; the field counts blocks instead under the
    /// `HUGE_FILE` flag.
    #[must_use]
    pub fn sectors(&self, block_size: BlockSize) -> u64 {
        let stored = join_u64(u32::from(self.raw().i_blocks_high.get()), self.raw().i_blocks_lo.get());
        if self.flags().contains(InodeFlags::HUGE_FILE) { stored << (block_size.log2() - 9) } else { stored }
    }

    /// Stores the space charged to the inode, switching to blocks where sectors do not fit into 48
    /// bits (only legal with the `huge_file` feature).
    pub fn set_sectors(&mut self, sectors: u64, block_size: BlockSize) {
        let huge = sectors >= 1 << 48;
        let mut flags = self.flags();
        flags.set(InodeFlags::HUGE_FILE, huge);
        self.set_flags(flags);
        let stored = if huge { sectors >> (block_size.log2() - 9) } else { sectors };
        self.raw_mut().i_blocks_lo.set(low_u32(stored));
        self.raw_mut().i_blocks_high.set(low_u16(high_u32(stored)));
    }

    /// A word of the extra fields that ends before byte `end` behind byte 128; zero if they do not reach that far.
    fn extra_word(&self, end: u16) -> u32 {
        let start = OLD_SIZE + usize::from(end) - 4;
        match self.bytes.get(start..).and_then(|rest| rest.first_chunk()) {
            Some(word) if self.has_extra(end) => u32::from_le_bytes(*word),
            // A record that ends in the word, or fields that do.
            _ => self
                .extra()
                .as_bytes()
                .get(usize::from(end) - 4..)
                .map_or(0, |rest| rest.first_chunk().map_or(0, |word| u32::from_le_bytes(*word))),
        }
    }

    /// One of the times; creation is `None` where the record has no room for it.
    #[must_use]
    pub fn time(&self, field: TimeField) -> Option<Timestamp> {
        let raw = self.raw();
        let (low, end) = match field {
            TimeField::Change => (raw.i_ctime.get(), 8),
            TimeField::Modify => (raw.i_mtime.get(), 12),
            TimeField::Access => (raw.i_atime.get(), 16),
            TimeField::Create if self.has_extra(20) => (self.extra_word(20), 24),
            TimeField::Create => return None,
        };
        Some(Timestamp::decode(low, self.has_extra(end).then(|| self.extra_word(end))))
    }

    /// True if another state of this record, as the table has it, differs in more than the times of access, change and
    /// modification, the version and the checksum. Records of different sizes differ.
    #[must_use]
    pub fn differs_beyond_times(&self, record: &[u8]) -> bool {
        let fields_end = OLD_SIZE + usize::from(self.stated_extra_size());
        let mut from = 0;
        for (start, end) in LIKE_TIMES {
            if end > OLD_SIZE && end > fields_end {
                break;
            }
            if self.bytes.get(from..start) != record.get(from..start) {
                return true;
            }
            from = end;
        }
        self.bytes.len() != record.len() || self.bytes.get(from..) != record.get(from..)
    }

    /// Stores one of the times as precisely as the record allows.
    pub fn set_time(&mut self, field: TimeField, time: Timestamp) {
        let end = match field {
            TimeField::Change => 8,
            TimeField::Modify => 12,
            TimeField::Access => 16,
            TimeField::Create => 24,
        };
        let (low, word) = time.encode(self.has_extra(end));
        match field {
            TimeField::Change => self.raw_mut().i_ctime.set(low),
            TimeField::Modify => self.raw_mut().i_mtime.set(low),
            TimeField::Access => self.raw_mut().i_atime.set(low),
            TimeField::Create => {}
        }
        self.edit_extra(|extra| match field {
            TimeField::Change => extra.i_ctime_extra.set(word),
            TimeField::Modify => extra.i_mtime_extra.set(word),
            TimeField::Access => extra.i_atime_extra.set(word),
            TimeField::Create => {
                extra.i_crtime.set(low);
                extra.i_crtime_extra.set(word);
            }
        });
    }

    /// Project id; zero where the record has no room for it.
    #[must_use]
    pub fn project(&self) -> u32 {
        self.extra_word(32)
    }

    /// Device number of a device inode as (major, minor): the old 16-bit form in the first word
    /// of `i_block`, or the new 32-bit one in the second.
    #[must_use]
    pub fn device(&self) -> (u32, u32) {
        let block = &self.raw().i_block;
        let word = |at: usize| match block.get(at..at + 4) {
            Some(&[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]),
            _ => 0,
        };
        match (word(0), word(4)) {
            (0, new) => (new >> 8 & 0xFFF, new & 0xFF | new >> 12 & 0xF_FF00),
            (old, _) => (old >> 8 & 0xFF, old & 0xFF),
        }
    }

    /// Stores a device number; 12 bits of major and 20 of minor are kept.
    pub fn set_device(&mut self, major: u32, minor: u32) {
        let (old, new) = if major < 256 && minor < 256 {
            (major << 8 | minor, 0)
        } else {
            (0, minor & 0xFF | (major & 0xFFF) << 8 | (minor & 0xF_FF00) << 12)
        };
        let block = &mut self.raw_mut().i_block;
        *block = [0; I_BLOCK_LEN];
        for (to, from) in block.iter_mut().zip(old.to_le_bytes().into_iter().chain(new.to_le_bytes())) {
            *to = from;
        }
    }

    /// True if the contents are mapped to blocks, in extents or block pointers: not for devices and
    /// pipes, inline contents, and symbolic links that fit the inode.
    #[must_use]
    pub fn has_map(&self) -> bool {
        match self.file_type() {
            _ if self.flags().contains(InodeFlags::INLINE_DATA) => false,
            Some(FileType::Regular | FileType::Directory) => true,
            Some(FileType::Symlink) => !self.is_fast_symlink(),
            _ => false,
        }
    }

    /// True if this is a symbolic link whose target stands in `i_block`: every one of less than 60
    /// bytes, as long as neither extents nor inline data are in the way. The block count, by which
    /// Linux judges on volumes without `ea_inode`, is no evidence: it includes attribute blocks
    /// (clusters with `bigalloc`) and values in other inodes.
    #[must_use]
    pub fn is_fast_symlink(&self) -> bool {
        // spec: symlink
        self.file_type() == Some(FileType::Symlink)
            && self.size() < I_BLOCK_LEN as u64
            && !self.flags().intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blank(size: u16) -> Inode {
        Inode::blank(InodeNumber::constant(12), size)
    }

    #[test]
    fn times_survive_1901_to_2446_with_nanoseconds() {
        for seconds in [
            Timestamp::EARLIEST + 1,
            -1,
            0,
            i64::from(i32::MAX),
            1 << 31,
            1 << 32,
            Timestamp::LATEST_EXTRA - 1,
        ] {
            for field in [TimeField::Access, TimeField::Change, TimeField::Modify, TimeField::Create] {
                let time = Timestamp { seconds, nanoseconds: 999_999_999 };
                let mut inode = blank(256);
                inode.set_time(field, time);
                assert_eq!(inode.time(field), Some(time));
            }
        }
    }

    #[test]
    fn the_first_and_the_last_second_have_no_nanoseconds() {
        let edges = [Timestamp::EARLIEST, Timestamp::LATEST_EXTRA];
        for (wanted, edge) in [i64::MIN, edges[0], edges[1], i64::MAX].into_iter().zip([0, 0, 1, 1]) {
            let mut inode = blank(256);
            inode.set_time(TimeField::Modify, Timestamp { seconds: wanted, nanoseconds: 5 });
            assert_eq!(inode.time(TimeField::Modify), Some(Timestamp::from_seconds(edges[edge])));
        }
    }

    #[test]
    fn times_version_and_checksum_make_no_other_inode() {
        for size in [128, 256] {
            let was = blank(size);
            let mut is = was.clone();
            for field in [TimeField::Access, TimeField::Change, TimeField::Modify] {
                is.set_time(field, Timestamp { seconds: 77, nanoseconds: 9 });
            }
            is.raw_mut().i_version_lo.set(3);
            is.raw_mut().i_checksum_lo.set(5);
            is.edit_extra(|extra| {
                extra.i_checksum_hi.set(6);
                extra.i_version_hi.set(7);
            });
            assert!(!is.differs_beyond_times(was.bytes()));
            assert!(is.differs_beyond_times(&was.bytes()[..127]));
            let first = if size == 128 { 0x7E } else { 0x9C };
            for at in (0..0x08).chain(0x14..0x24).chain(0x28..0x7C).chain(first..usize::from(size)) {
                let mut other = is.clone();
                other.bytes[at] ^= 1;
                assert!(other.differs_beyond_times(was.bytes()), "byte {at:#x} of {size}");
            }
            let mut short = is.clone();
            short.edit_extra(|extra| extra.i_extra_isize.set(4));
            let before = short.clone();
            if size == 256 {
                // Behind the extra fields stand attributes.
                short.bytes[0x88] ^= 1;
                assert!(short.differs_beyond_times(before.bytes()));
            }
        }
    }

    #[test]
    fn old_inodes_clamp_times_and_have_no_creation() {
        let mut inode = blank(128);
        inode.set_time(TimeField::Modify, Timestamp { seconds: 1 << 33, nanoseconds: 5 });
        let expected = Timestamp { seconds: Timestamp::LATEST_OLD, nanoseconds: 0 };
        assert_eq!(inode.time(TimeField::Modify), Some(expected));
        assert_eq!(inode.time(TimeField::Create), None);
    }

    #[test]
    fn devices_use_the_old_form_only_when_it_fits() {
        for (major, minor) in [(8, 1), (255, 255), (256, 0), (8, 0xF_FFFF), (0xFFF, 77)] {
            let mut inode = blank(256);
            inode.set_device(major, minor);
            assert_eq!(inode.device(), (major, minor));
        }
    }

    #[test]
    fn sectors_turn_into_blocks_when_huge() {
        let block_size = BlockSize::from_bytes(4096).unwrap();
        let mut inode = blank(256);
        inode.set_sectors(8, block_size);
        assert_eq!(inode.sectors(block_size), 8);
        inode.set_sectors(1 << 50, block_size);
        assert!(inode.flags().contains(InodeFlags::HUGE_FILE));
        assert_eq!(inode.sectors(block_size), 1 << 50);
    }

    #[test]
    fn words_of_extra_fields_are_those_of_the_fields_whatever_the_sizes() {
        for size in [128, 130, 140, 155, 160, 256] {
            for stated in 0..40 {
                let mut bytes: Vec<u8> = (0..=255_u8).cycle().take(size).map(|at| at ^ 0x5A).collect();
                bytes.iter_mut().skip(128).zip([stated, 0]).for_each(|(to, from)| *to = from);
                let inode = Inode::unjudged(InodeNumber::ROOT, &bytes);
                let whole = inode.extra();
                let words = [
                    (8, whole.i_ctime_extra),
                    (12, whole.i_mtime_extra),
                    (16, whole.i_atime_extra),
                    (20, whole.i_crtime),
                    (24, whole.i_crtime_extra),
                    (32, whole.i_projid),
                ];
                for (end, word) in words {
                    assert_eq!(inode.extra_word(end), word.get(), "{size} {stated} {end}");
                }
            }
        }
    }

    #[test]
    fn an_extra_size_outside_the_record_is_refused() {
        let mut bytes = vec![0; 256];
        bytes[128] = 132;
        assert!(Inode::parse(InodeNumber::ROOT, &bytes).is_err());
        bytes[128] = 128;
        assert!(Inode::parse(InodeNumber::ROOT, &bytes).is_ok());
        bytes[128] = 30;
        assert!(Inode::parse(InodeNumber::ROOT, &bytes).is_err());
    }
}
