//! What client and server agree on first: the fixed newstyle negotiation, of one export whatever its name.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::{Export, exactly};

const MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTIONS: u64 = 0x4948_4156_454f_5054;
const REPLY: u64 = 0x0003_e889_0455_65a9;
/// Fixed newstyle, and no zeros behind an export: of the server and of the client.
const FIXED: u16 = 1;
const NO_ZEROES: u16 = 2;

const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const LIST: u32 = 3;
const INFO: u32 = 6;
const GO: u32 = 7;

const ACK: u32 = 1;
const SERVER: u32 = 2;
const INFORMATION: u32 = 3;
const UNSUPPORTED: u32 = (1 << 31) + 1;
const INVALID: u32 = (1 << 31) + 3;
const TOO_BIG: u32 = (1 << 31) + 9;

const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

const HAS_FLAGS: u16 = 1;
const READ_ONLY: u16 = 1 << 1;
const SEND_FLUSH: u16 = 1 << 2;
const SEND_FUA: u16 = 1 << 3;
const SEND_TRIM: u16 = 1 << 5;
const SEND_WRITE_ZEROES: u16 = 1 << 6;
const CAN_MULTI_CONN: u16 = 1 << 8;

/// Most bytes of an option: a name of 4,096 bytes and what is asked about it.
const OPTION_MAX: u32 = 16 << 10;
/// Most options of a client.
const OPTIONS_MAX: usize = 256;

/// A client that has to be done at a given time: one that says little and slowly would keep a connection from others.
struct Timed<'s> {
    stream: &'s UnixStream,
    end: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buf)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Agrees with a client within `most`; whether it goes on to requests, for which there is no limit of time.
pub(super) fn agree(stream: &UnixStream, export: &Export, most: Duration) -> io::Result<bool> {
    let mut timed = Timed { stream, end: Instant::now() + most };
    let goes_on = talk(&mut timed, export)?;
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    Ok(goes_on)
}

fn talk(stream: &mut Timed<'_>, export: &Export) -> io::Result<bool> {
    let mut hello = Vec::with_capacity(18);
    hello.extend(MAGIC.to_be_bytes());
    hello.extend(OPTIONS.to_be_bytes());
    hello.extend((FIXED | NO_ZEROES).to_be_bytes());
    stream.write_all(&hello)?;
    let flags = u32::from_be_bytes(exactly(stream)?);
    if flags & !u32::from(FIXED | NO_ZEROES) != 0 {
        return Ok(false);
    }
    for _ in 0..OPTIONS_MAX {
        if u64::from_be_bytes(exactly(stream)?) != OPTIONS {
            return Ok(false);
        }
        let option = u32::from_be_bytes(exactly(stream)?);
        let len = u32::from_be_bytes(exactly(stream)?);
        if len > OPTION_MAX {
            io::copy(&mut Read::by_ref(stream).take(len.into()), &mut io::sink())?;
            reply(stream, option, TOO_BIG, &[])?;
            continue;
        }
        let mut data = vec![0; len as usize];
        stream.read_exact(&mut data)?;
        match option {
            EXPORT_NAME => {
                let mut facts = facts(export).to_vec();
                if flags & u32::from(NO_ZEROES) == 0 {
                    facts.extend([0; 124]);
                }
                stream.write_all(&facts)?;
                return Ok(true);
            }
            ABORT => {
                reply(stream, option, ACK, &[])?;
                return Ok(false);
            }
            LIST if data.is_empty() => {
                reply(stream, option, SERVER, &0_u32.to_be_bytes())?;
                reply(stream, option, ACK, &[])?;
            }
            GO | INFO if is_asked_well(&data) => {
                inform(stream, option, export)?;
                if option == GO {
                    return Ok(true);
                }
            }
            LIST | GO | INFO => reply(stream, option, INVALID, &[])?,
            _ => reply(stream, option, UNSUPPORTED, &[])?,
        }
    }
    Ok(false)
}

/// Size and flags of the export.
fn facts(export: &Export) -> [u8; 10] {
    let write = SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES;
    let flags = HAS_FLAGS | CAN_MULTI_CONN | if export.writable { write } else { READ_ONLY };
    let mut out = [0; 10];
    out[..8].copy_from_slice(&export.device.size().to_be_bytes());
    out[8..].copy_from_slice(&flags.to_be_bytes());
    out
}

/// A name, and a list of what is asked.
fn is_asked_well(data: &[u8]) -> bool {
    let Some((len, rest)) = data.split_first_chunk::<4>() else { return false };
    let Some(rest) = rest.get(u32::from_be_bytes(*len) as usize..) else { return false };
    let Some((count, rest)) = rest.split_first_chunk::<2>() else { return false };
    rest.len() == usize::from(u16::from_be_bytes(*count)) * 2
}

fn inform(stream: &mut Timed<'_>, option: u32, export: &Export) -> io::Result<()> {
    let mut about = INFO_EXPORT.to_be_bytes().to_vec();
    about.extend(facts(export));
    reply(stream, option, INFORMATION, &about)?;
    let mut sizes = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
    for size in [1, 4096, super::requests::PIECE] {
        sizes.extend(size.to_be_bytes());
    }
    reply(stream, option, INFORMATION, &sizes)?;
    reply(stream, option, ACK, &[])
}

fn reply(stream: &mut Timed<'_>, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut out = REPLY.to_be_bytes().to_vec();
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend(u32::try_from(data.len()).unwrap_or(0).to_be_bytes());
    out.extend(data);
    stream.write_all(&out)
}
