//! Recognises gzip, zstd and xz by content, undoes them, and spools what cannot be read at any place.
//!
//! Compressed archives and streams are written once, decompressed, into a file without a name that vanishes
//! with its last user: memory stays bounded (one window of the decoder and one buffer), and data can then
//! be read at known places like those of a plain archive. Runs of zeros stay holes of the spool.

use super::error::SourceError;
use super::foreign;
use super::input::Section;
use super::reading::Reading;
use crate::archive::header::{self, Header};
#[cfg(feature = "archives")]
use flate2::bufread::GzDecoder;
use ondisk::units::saturated;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

#[cfg(feature = "archives")]
/// Memory that an xz file may demand for its dictionary: `xz -9` needs 64 MiB, the format allows 4 GiB.
const XZ_MEMORY_KIB: u32 = 256 << 10;
#[cfg(feature = "archives")]
/// The largest window of a zstd frame, as a power of two: `zstd --ultra --long=27` needs 2^27.
const ZSTD_WINDOW_LOG: u32 = 27;
/// The buffer between decoder and spool. Pieces of zeros of this size become holes.
const PIECE: usize = 64 << 10;

/// Format of packed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Not at all.
    Plain,
    /// gzip (RFC 1952), one or more members.
    Gzip,
    /// Zstandard (RFC 8878), one or more frames.
    Zstd,
    /// xz, one or more streams.
    Xz,
}

impl Format {
    /// Recognises a format by the first bytes; six are enough.
    pub(crate) fn detect(start: &[u8]) -> Self {
        match start {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            // A skippable frame may come first.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            _ => Self::Plain,
        }
    }

    /// The format's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
        }
    }

    /// A stream of the unpacked bytes of `packed`.
    ///
    /// # Errors
    /// Those of the decoder's start.
    #[cfg(feature = "archives")]
    pub(crate) fn unpack<'r>(self, packed: impl Read + 'r) -> io::Result<Box<dyn Read + 'r>> {
        let packed = io::BufReader::with_capacity(PIECE, packed);
        Ok(match self {
            Self::Plain => Box::new(packed),
            Self::Gzip => Box::new(Members { member: Some(GzDecoder::new(packed)) }),
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(packed)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG)?;
                Box::new(decoder)
            }
            Self::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(packed, true, XZ_MEMORY_KIB)),
        })
    }

    /// A stream of the bytes of `packed`, which this build can't unpack.
    ///
    /// # Errors
    /// They are packed.
    #[cfg(not(feature = "archives"))]
    pub(crate) fn unpack<'r>(self, packed: impl Read + 'r) -> io::Result<Box<dyn Read + 'r>> {
        match self {
            Self::Plain => Ok(Box::new(io::BufReader::with_capacity(PIECE, packed))),
            _ => Err(io::Error::new(io::ErrorKind::Unsupported, "this build was made without archives")),
        }
    }
}

/// Makes an archive readable at any place: a plain one is taken as it lies, a packed one spooled.
///
/// # Errors
/// [`SourceError::Compression`] if it cannot be unpacked, [`SourceError::Host`] if the spool cannot be written.
pub(crate) fn unpacked(reading: &mut Reading, packed: Section, name: &str) -> Result<Section, SourceError> {
    reading.bounds.take_file(&packed);
    let mut start = [0; 6];
    let len = saturated::<usize>(packed.bytes()).min(start.len());
    let start = start.get_mut(..len).unwrap_or_default();
    let read = crate::archive::Input::read_exact_at(&packed, 0, start);
    read.map_err(|error| SourceError::host("read", name, error))?;
    match Format::detect(start) {
        Format::Plain => Ok(packed),
        format => spool_from(reading, packed.stream(), &Cell::new(0), format, name),
    }
}

/// True if the file, unpacked, begins as an archive does.
pub(crate) fn begins_archive(section: &Section) -> bool {
    let start = start_of(section);
    let mut block = [0; header::BLOCK];
    let unpacked = Format::detect(&start).unpack(section.stream());
    let has_block = unpacked.is_ok_and(|mut bytes| fill(&mut bytes, &mut block).is_ok());
    has_block && Header(&block).checksum_holds() || foreign::is_other_archive(&start)
}

/// True if the file begins as an archive does, or as something packed; nothing is unpacked.
pub(crate) fn may_begin_archive(section: &Section) -> bool {
    let start = start_of(section);
    Format::detect(&start) != Format::Plain || is_tar(&start) || foreign::is_other_archive(&start)
}

/// The first bytes of a file, enough to tell its kind; none if it can't be read.
fn start_of(section: &Section) -> Vec<u8> {
    let mut start = vec![0; 2 * PIECE];
    let len = fill(&mut section.stream(), &mut start).unwrap_or(0);
    start.truncate(len);
    start
}

/// Unpacks a stream, recognised by its first bytes, into a spool.
///
/// # Errors
/// As [`unpacked`].
pub(crate) fn spool_stream(
    reading: &mut Reading,
    stream: impl Read,
    name: &str,
) -> Result<Section, SourceError> {
    let taken = Cell::new(0);
    let mut stream = Counted { stream, taken: &taken };
    let mut start = Vec::new();
    let read = stream.by_ref().take(6).read_to_end(&mut start);
    read.map_err(|error| SourceError::host("read", name, error))?;
    let format = Format::detect(&start);
    spool_from(reading, start.as_slice().chain(stream), &taken, format, name)
}

/// Takes all bytes of a stream into a spool.
///
/// # Errors
/// A stream that can't be read, a spool that can't be written.
pub(crate) fn spool_as_it_is(
    reading: &mut Reading,
    mut stream: impl Read,
    name: &str,
) -> Result<Section, SourceError> {
    let mut spool = Spool::new(&reading.spool)?;
    let mut piece = vec![0; PIECE];
    loop {
        let len = fill(&mut stream, &mut piece).map_err(|error| SourceError::host("read", name, error))?;
        spool.write_all(piece.get(..len).unwrap_or_default()).map_err(|error| spool.failed(error))?;
        reading.meter.bytes(len)?;
        if len < piece.len() {
            return spool.finish();
        }
    }
}

/// Unpacks into a spool. `taken` counts what was read of a stream; a file is counted already.
fn spool_from(
    reading: &mut Reading,
    packed: impl Read,
    taken: &Cell<u64>,
    format: Format,
    name: &str,
) -> Result<Section, SourceError> {
    let broken = |error| SourceError::Compression { archive: name.to_owned(), format: format.name(), error };
    let mut spool = Spool::new(&reading.spool)?;
    let mut stream = format.unpack(packed).map_err(broken)?;
    let mut piece = vec![0; PIECE];
    let mut first = true;
    loop {
        let len = match fill_counting(&mut stream, &mut piece) {
            (len, Ok(())) => len,
            (len, Err(error)) => {
                reading.cut(name, broken(error))?;
                len
            }
        };
        if std::mem::take(&mut first) && len == PIECE && !is_tar(&piece) {
            return Err(match foreign::name_in(&piece) {
                Some(is) => SourceError::Foreign { archive: name.to_owned(), is },
                None => SourceError::NoArchive { stream: name.to_owned() },
            });
        }
        spool.write_all(piece.get(..len).unwrap_or_default()).map_err(|error| spool.failed(error))?;
        reading.bounds.take(taken.take());
        reading.bounds.unpack(len, name)?;
        reading.meter.bytes(len)?;
        if len < piece.len() {
            return spool.finish();
        }
    }
}

/// The members of a gzip file, one behind the other. Zeros behind the last are the padding of a tape or a device, as for
/// gzip itself.
#[cfg(feature = "archives")]
struct Members<R> {
    member: Option<GzDecoder<R>>,
}

#[cfg(feature = "archives")]
impl<R: io::BufRead> Read for Members<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let len = member.read(buf)?;
            if len > 0 || buf.is_empty() {
                return Ok(len);
            }
            let rest = self.member.take().map(GzDecoder::into_inner);
            self.member = rest.map(next_member).transpose()?.flatten();
        }
        Ok(0)
    }
}

/// The member that follows, if one does.
#[cfg(feature = "archives")]
fn next_member<R: io::BufRead>(mut rest: R) -> io::Result<Option<GzDecoder<R>>> {
    let mut padding = false;
    loop {
        let bytes = rest.fill_buf()?;
        let (len, zeros) = (bytes.len(), bytes.iter().take_while(|byte| **byte == 0).count());
        if len == 0 {
            return Ok(None);
        }
        rest.consume(zeros);
        padding |= zeros > 0;
        match zeros < len {
            true if padding => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "bytes behind its end that are no zeros",
                ));
            }
            true => return Ok(Some(GzDecoder::new(rest))),
            false => {}
        }
    }
}

/// A stream of which the bytes are counted that were taken from it.
struct Counted<'c, R> {
    stream: R,
    taken: &'c Cell<u64>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.stream.read(buf)?;
        self.taken.set(self.taken.get() + len as u64);
        Ok(len)
    }
}

/// True if these bytes begin a tar archive. A stream that does not may have no end, and is not read to find that out.
fn is_tar(start: &[u8]) -> bool {
    start.first_chunk().is_some_and(|block| Header(block).checksum_holds())
}

/// Reads until `buf` is full or the stream ends.
fn fill(stream: &mut dyn Read, buf: &mut [u8]) -> io::Result<usize> {
    let (filled, done) = fill_counting(stream, buf);
    done.map(|()| filled)
}

/// Fills `buf` as far as the stream goes: the bytes that came, also before an error.
fn fill_counting(stream: &mut dyn Read, buf: &mut [u8]) -> (usize, io::Result<()>) {
    let mut filled = 0;
    while let Some(rest) = buf.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match stream.read(rest) {
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (filled, Err(error)),
        }
    }
    (filled, Ok(()))
}

/// A file without a name, written from front to back.
pub(super) struct Spool {
    file: File,
    place: PathBuf,
    len: u64,
}

impl Spool {
    pub(super) fn new(place: &Path) -> Result<Self, SourceError> {
        let file = tempfile::tempfile_in(place)
            .map_err(|error| SourceError::host("make a spool in", place, error))?;
        Ok(Self { file, place: place.to_owned(), len: 0 })
    }

    pub(super) fn failed(&self, error: io::Error) -> SourceError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                SourceError::Spool { place: self.place.clone(), error }
            }
            _ => SourceError::host("write a spool in", &self.place, error),
        }
    }

    /// Gives the spool its length, which a hole at its end has not yet done.
    pub(super) fn finish(self) -> Result<Section, SourceError> {
        self.file.set_len(self.len).map_err(|error| self.failed(error))?;
        Ok(Section::spooled(self.file, self.len))
    }
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.iter().any(|&b| b != 0) {
            self.file.write_all_at(bytes, self.len)?;
        }
        self.len += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
