//! Answers to requests: simple ones, and chunks of structured ones.
//!
//! Owns: their bytes. Excludes which of them a request gets.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;

const SIMPLE: u32 = 0x6744_6698;
const CHUNK: u32 = 0x668e_33ef;

/// No chunk follows for this request.
const DONE: u16 = 1;

/// Bytes that are copied rather than sent apart.
const SHORT: usize = 4096;

const NONE: u16 = 0;
const OFFSET_DATA: u16 = 1;
const OFFSET_HOLE: u16 = 2;
const BLOCK_STATUS: u16 = 5;
const ERROR: u16 = (1 << 15) + 1;
const ERROR_OFFSET: u16 = (1 << 15) + 2;

/// Where the answers to one request go.
#[derive(Clone, Copy)]
pub(super) struct Reply<'s> {
    pub(super) stream: &'s UnixStream,
    pub(super) cookie: [u8; 8],
}

impl Reply<'_> {
    /// An answer without contents, or the beginning of one with them.
    pub(super) fn simple(mut self, done: Result<(), u32>) -> io::Result<()> {
        let mut head = SIMPLE.to_be_bytes().to_vec();
        head.extend(done.err().unwrap_or(0).to_be_bytes());
        head.extend(self.cookie);
        self.stream.write_all(&head)
    }

    fn chunk(mut self, flags: u16, kind: u16, parts: [&[u8]; 2]) -> io::Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let mut head = CHUNK.to_be_bytes().to_vec();
        head.extend(flags.to_be_bytes());
        head.extend(kind.to_be_bytes());
        head.extend(self.cookie);
        head.extend(u32::try_from(len).map_err(io::Error::other)?.to_be_bytes());
        head.extend(parts[0]);
        // What is short goes in one call: each one may wake the client.
        if len <= SHORT {
            head.extend(parts[1]);
            return self.stream.write_all(&head);
        }
        self.stream.write_all(&head)?;
        self.stream.write_all(parts[1])
    }

    /// The end of an answer that says nothing more.
    pub(super) fn none(self) -> io::Result<()> {
        self.chunk(DONE, NONE, [&[], &[]])
    }

    /// Contents.
    pub(super) fn data(self, offset: u64, bytes: &[u8], is_last: bool) -> io::Result<()> {
        self.chunk(if is_last { DONE } else { 0 }, OFFSET_DATA, [&offset.to_be_bytes(), bytes])
    }

    /// Contents that are zeros.
    pub(super) fn hole(self, offset: u64, len: u32, is_last: bool) -> io::Result<()> {
        let flags = if is_last { DONE } else { 0 };
        self.chunk(flags, OFFSET_HOLE, [&offset.to_be_bytes(), &len.to_be_bytes()])
    }

    /// The end of an answer that failed as a whole.
    pub(super) fn error(self, code: u32) -> io::Result<()> {
        self.chunk(DONE, ERROR, [&code.to_be_bytes(), &[0; 2]])
    }

    /// The end of an answer that failed at a byte.
    pub(super) fn error_at(self, code: u32, offset: u64) -> io::Result<()> {
        let code = [&code.to_be_bytes()[..], &[0; 2]].concat();
        self.chunk(DONE, ERROR_OFFSET, [&code, &offset.to_be_bytes()])
    }

    /// The state of a context's extents, as length and flags.
    pub(super) fn status(self, context: u32, extents: &[(u32, u32)]) -> io::Result<()> {
        let bytes: Vec<u8> = extents
            .iter()
            .flat_map(|(len, flags)| [len.to_be_bytes(), flags.to_be_bytes()])
            .flatten()
            .collect();
        self.chunk(DONE, BLOCK_STATUS, [&context.to_be_bytes(), &bytes])
    }
}
