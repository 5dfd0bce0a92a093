//! Answers to the kernel.

use std::ops::Range;

use rustix::io::Errno;

use super::OUT_HEADER_LEN;
use crate::service::{Attributes, Cached, Entry, FileType, Listed, Statistics, Time};

/// How long the kernel may cache an answer, in seconds. Nobody else changes what is served, and each
/// change goes through the kernel. So it may keep answers for ever: this is the largest round number
/// that no kernel turns into less.
const KEEP: u64 = 10 * 365 * 24 * 60 * 60;
/// Bytes of an entry, and of the head of a name in a listing.
const ENTRY_LEN: usize = 128;
const LISTED_LEN: usize = 24;

/// Where an answer is written. What does not fit is left out, and [`Out::finish`] says so.
#[derive(Debug)]
pub(crate) struct Out<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Out<'a> {
    pub(crate) fn new(buffer: &'a mut [u8]) -> Self {
        Out { buffer, len: 0 }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let end = self.len.saturating_add(bytes.len());
        if let Some(place) = self.buffer.get_mut(self.len..end) {
            place.copy_from_slice(bytes);
        }
        self.len = end;
    }

    pub(crate) fn zeros(&mut self, count: usize) {
        let end = self.len.saturating_add(count);
        if let Some(place) = self.buffer.get_mut(self.len..end) {
            place.fill(0);
        }
        self.len = end;
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_ne_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_ne_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_ne_bytes());
    }

    /// How many bytes there are.
    pub(crate) fn finish(self) -> Result<usize, Errno> {
        if self.len <= self.buffer.len() { Ok(self.len) } else { Err(Errno::RANGE) }
    }
}

/// The header of an answer of `done` bytes, or of an error.
pub(crate) fn out_header(unique: u64, done: Result<usize, Errno>) -> [u8; OUT_HEADER_LEN] {
    let mut header = [0; OUT_HEADER_LEN];
    let (len, error) = match done {
        Ok(len) => (len.saturating_add(OUT_HEADER_LEN), 0),
        Err(error) => (OUT_HEADER_LEN, -error.raw_os_error()),
    };
    let mut out = Out::new(&mut header);
    out.u32(u32::try_from(len).unwrap_or(u32::MAX));
    out.bytes(&error.to_ne_bytes());
    out.u64(unique);
    header
}

fn type_bits(file_type: FileType) -> u32 {
    match file_type {
        FileType::Fifo => 0o1,
        FileType::CharDevice => 0o2,
        FileType::Directory => 0o4,
        FileType::BlockDevice => 0o6,
        FileType::Regular => 0o10,
        FileType::Symlink => 0o12,
        FileType::Socket => 0o14,
    }
}

fn mode(of: &Attributes) -> u32 {
    type_bits(of.file_type) << 12 | u32::from(of.permissions & 0o7777)
}

/// The number of a device in the kernel's form of 32 bits: 12 of major between 8 and 12 of minor.
fn device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

fn attributes(out: &mut Out<'_>, of: &Attributes) {
    let times = [of.access, of.modify, of.change];
    for number in [of.inode, of.size, of.sectors] {
        out.u64(number);
    }
    for time in times {
        out.u64(time.seconds.cast_unsigned());
    }
    for time in times {
        out.u32(time.nanoseconds);
    }
    for number in [mode(of), of.links, of.uid, of.gid, device(of.device), of.block_size, 0] {
        out.u32(number);
    }
}

/// Parts of an entry that the kernel may cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryValidity {
    /// That the name means it.
    pub(crate) name: bool,
    pub(crate) attributes: bool,
}

fn keep(kept: bool) -> u64 {
    if kept { KEEP } else { 0 }
}

/// A node and what is known of it.
pub(crate) fn entry_reply(out: &mut Out<'_>, entry: &Entry, kept: EntryValidity) {
    let (name, attributes_kept) = (keep(kept.name), keep(kept.attributes));
    for number in [entry.node, u64::from(entry.generation), name, attributes_kept, 0] {
        out.u64(number);
    }
    attributes(out, &entry.attributes);
}

/// That there is no such name, which is worth keeping too: node 0 says so.
pub(crate) fn no_entry_reply(out: &mut Out<'_>) {
    for number in [0, 0, KEEP] {
        out.u64(number);
    }
    out.zeros(ENTRY_LEN - 24);
}

/// A handle of an open file.
pub(crate) fn handle_reply(out: &mut Out<'_>, handle: u64) {
    // Bit 1: the kernel's pages of it stay.
    out.u64(handle);
    out.u32(1 << 1);
    out.u32(0);
}

/// A handle of an open directory.
pub(crate) fn directory_reply(out: &mut Out<'_>) {
    // Bits 1 and 3: the kernel keeps the listing.
    out.u64(0);
    out.u32(1 << 1 | 1 << 3);
    out.u32(0);
}

/// Writes the answer to `stat`. An answer that makes attributes known can't say that they are not; but it can have expired.
pub(crate) fn attributes_reply(out: &mut Out<'_>, of: &Attributes, known: Cached) {
    out.u64(keep(known == Cached::Valid));
    out.u64(0);
    attributes(out, of);
}

/// Writes the answer to `statx`.
pub(crate) fn statx_reply(out: &mut Out<'_>, of: &Attributes, kept: bool) {
    /// Fields of `stat`, and the time of creation.
    const BASIC: u32 = 0x7ff;
    const BIRTH: u32 = 0x800;
    out.u64(keep(kept));
    out.zeros(4 + 4 + 16);
    out.u32(if of.birth.is_some() { BASIC | BIRTH } else { BASIC });
    out.u32(of.block_size);
    out.u64(0);
    for number in [of.links, of.uid, of.gid] {
        out.u32(number);
    }
    out.u16(u16::try_from(mode(of)).unwrap_or_default());
    out.u16(0);
    for number in [of.inode, of.size, of.sectors, 0] {
        out.u64(number);
    }
    for Time { seconds, nanoseconds } in [of.access, of.birth.unwrap_or_default(), of.change, of.modify] {
        out.u64(seconds.cast_unsigned());
        out.u32(nanoseconds);
        out.u32(0);
    }
    for number in [of.device.0, of.device.1, 0, 0] {
        out.u32(number);
    }
    out.zeros(112);
}

/// Adds a name to a listing; `false` if it has no room for it.
pub(crate) fn listing_entry(
    out: &mut Out<'_>,
    listed: &Listed<'_>,
    with_entries: bool,
    kept: EntryValidity,
) -> bool {
    let head = if with_entries { ENTRY_LEN + LISTED_LEN } else { LISTED_LEN };
    let len = head + listed.name.len();
    let padding = len.next_multiple_of(8) - len;
    if out.buffer.len().saturating_sub(out.len) < len + padding {
        return false;
    }
    match (&listed.entry, with_entries) {
        (Some(entry), true) => entry_reply(out, entry, kept),
        // A name is listed even if its node can't be described.
        (None, true) => out.zeros(ENTRY_LEN),
        (_, false) => {}
    }
    out.u64(listed.inode);
    out.u64(listed.next);
    out.u32(u32::try_from(listed.name.len()).unwrap_or(u32::MAX));
    out.u32(type_bits(listed.file_type));
    out.bytes(listed.name);
    out.zeros(padding);
    true
}

/// The room there is.
pub(crate) fn statistics_reply(out: &mut Out<'_>, room: &Statistics) {
    for number in [room.blocks, room.free, room.available, room.inodes, room.free_inodes] {
        out.u64(number);
    }
    for number in [room.block_size, room.name_max, room.block_size] {
        out.u32(number);
    }
    out.zeros(28);
}

/// How many bytes an attribute or the names of all would take.
pub(crate) fn size_reply(out: &mut Out<'_>, size: u32) {
    out.u32(size);
    out.u32(0);
}

/// How many bytes were written, or copied by the older form.
pub(crate) fn written_reply(out: &mut Out<'_>, count: u32) {
    out.u32(count);
    out.u32(0);
}

/// How many bytes were copied.
pub(crate) fn copied_reply(out: &mut Out<'_>, count: u64) {
    out.u64(count);
}

/// Where what was looked for is.
pub(crate) fn position_reply(out: &mut Out<'_>, position: u64) {
    out.u64(position);
}

/// Writes the answer to an `ioctl`.
pub(crate) fn control_reply(out: &mut Out<'_>, answer: &[u8]) {
    out.zeros(16);
    out.bytes(answer);
}

/// A message that makes the kernel ask for the attributes of a node again; no request precedes it.
pub(crate) fn invalidate_attributes(node: u64) -> [u8; OUT_HEADER_LEN + 24] {
    // An offset below 0: none of the contents.
    invalidate(node, -1, 0)
}

/// A message that makes the kernel write what is dirty in a range of a file and forget its pages of it, and ask for the
/// attributes again.
pub(crate) fn drop_pages(node: u64, range: Range<u64>) -> [u8; OUT_HEADER_LEN + 24] {
    let start = i64::try_from(range.start).unwrap_or(i64::MAX);
    // A length of 0 is up to the end of all files.
    let len = i64::try_from(range.end).map_or(0, |end| end.saturating_sub(start).max(1));
    invalidate(node, start, len)
}

/// Makes the message that drops a node's attributes and all of its contents from the kernel's cache.
pub(crate) fn invalidate_contents(node: u64) -> [u8; OUT_HEADER_LEN + 24] {
    invalidate(node, 0, 0)
}

/// A message that makes the kernel look up a name of a directory again.
pub(crate) fn invalidate_name(parent: u64, name: &[u8]) -> Vec<u8> {
    let mut message = vec![0; OUT_HEADER_LEN + 16 + name.len() + 1];
    let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut out = Out::new(&mut message);
    out.u32(len);
    out.u32(3);
    out.u64(0);
    out.u64(parent);
    out.u32(u32::try_from(name.len()).unwrap_or(u32::MAX));
    out.u32(0);
    out.bytes(name);
    message
}

fn invalidate(node: u64, offset: i64, len: i64) -> [u8; OUT_HEADER_LEN + 24] {
    let mut message = [0; OUT_HEADER_LEN + 24];
    let mut out = Out::new(&mut message);
    out.u32(40);
    out.u32(2);
    out.u64(0);
    out.u64(node);
    out.bytes(&offset.to_ne_bytes());
    out.bytes(&len.to_ne_bytes());
    message
}
