//! Negotiation of client and server: the fixed newstyle one, of one export whatever its name.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::contexts::{self, Asked};
use super::{Export, Terms, exactly};

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
const STRUCTURED_REPLY: u32 = 8;
const LIST_META_CONTEXT: u32 = 9;
const SET_META_CONTEXT: u32 = 10;

const ACK: u32 = 1;
const SERVER: u32 = 2;
const INFORMATION: u32 = 3;
const META_CONTEXT: u32 = 4;
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
const SEND_DF: u16 = 1 << 7;
const CAN_MULTI_CONN: u16 = 1 << 8;
const SEND_CACHE: u16 = 1 << 10;
const SEND_FAST_ZERO: u16 = 1 << 11;

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

/// Agrees with a client within `most`. Returns the terms if the client goes on to requests, for which there is no limit of
/// time.
pub(super) fn agree(stream: &UnixStream, export: &Export, most: Duration) -> io::Result<Option<Terms>> {
    let mut timed = Timed { stream, end: Instant::now() + most };
    let terms = talk(&mut timed, export)?;
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    Ok(terms)
}

/// Where a client is behind one of its options.
enum Next {
    Options,
    Requests,
    End,
}

fn talk(stream: &mut Timed<'_>, export: &Export) -> io::Result<Option<Terms>> {
    let mut hello = Vec::with_capacity(18);
    hello.extend(MAGIC.to_be_bytes());
    hello.extend(OPTIONS.to_be_bytes());
    hello.extend((FIXED | NO_ZEROES).to_be_bytes());
    stream.write_all(&hello)?;
    let flags = u32::from_be_bytes(exactly(stream)?);
    if flags & !u32::from(FIXED | NO_ZEROES) != 0 {
        return Ok(None);
    }
    let mut talk = Talk { stream, export, pads: flags & u32::from(NO_ZEROES) == 0, terms: Terms::default() };
    for _ in 0..OPTIONS_MAX {
        match talk.option()? {
            Next::Options => {}
            Next::Requests => return Ok(Some(talk.terms)),
            Next::End => return Ok(None),
        }
    }
    Ok(None)
}

struct Talk<'t, 's> {
    stream: &'t mut Timed<'s>,
    export: &'t Export,
    /// Zeros follow the facts of an export that is asked for the old way.
    pads: bool,
    terms: Terms,
}

impl Talk<'_, '_> {
    fn option(&mut self) -> io::Result<Next> {
        if u64::from_be_bytes(exactly(self.stream)?) != OPTIONS {
            return Ok(Next::End);
        }
        let option = u32::from_be_bytes(exactly(self.stream)?);
        let len = u32::from_be_bytes(exactly(self.stream)?);
        if len > OPTION_MAX {
            io::copy(&mut Read::by_ref(self.stream).take(len.into()), &mut io::sink())?;
            self.reply(option, TOO_BIG, &[])?;
            return Ok(Next::Options);
        }
        let mut data = vec![0; len as usize];
        self.stream.read_exact(&mut data)?;
        self.answer(option, &data)
    }

    fn answer(&mut self, option: u32, data: &[u8]) -> io::Result<Next> {
        match option {
            EXPORT_NAME => {
                let mut facts = self.facts().to_vec();
                if self.pads {
                    facts.extend([0; 124]);
                }
                self.stream.write_all(&facts)?;
                return Ok(Next::Requests);
            }
            ABORT => {
                self.reply(option, ACK, &[])?;
                return Ok(Next::End);
            }
            LIST if data.is_empty() => {
                self.reply(option, SERVER, &0_u32.to_be_bytes())?;
                self.reply(option, ACK, &[])?;
            }
            GO | INFO if is_asked_well(data) => {
                self.inform(option)?;
                if option == GO {
                    return Ok(Next::Requests);
                }
            }
            STRUCTURED_REPLY if data.is_empty() => {
                self.terms.structured = true;
                self.reply(option, ACK, &[])?;
            }
            LIST_META_CONTEXT | SET_META_CONTEXT => self.contexts(option, data)?,
            LIST | GO | INFO | STRUCTURED_REPLY => self.reply(option, INVALID, &[])?,
            _ => self.reply(option, UNSUPPORTED, &[])?,
        }
        Ok(Next::Options)
    }

    /// Names the contexts of block status that are asked for, and agrees on them if they are to be set.
    fn contexts(&mut self, option: u32, data: &[u8]) -> io::Result<()> {
        let sets = option == SET_META_CONTEXT;
        if sets {
            self.terms.allocation = false;
        }
        let asked = contexts::asked(data, sets).filter(|_| self.terms.structured);
        let Some(asked) = asked else { return self.reply(option, INVALID, &[]) };
        if asked == Asked::Allocation {
            self.terms.allocation |= sets;
            // A number counts only where the context is set.
            let number = if sets { contexts::ALLOCATION } else { 0 };
            let context = [&number.to_be_bytes()[..], contexts::NAME].concat();
            self.reply(option, META_CONTEXT, &context)?;
        }
        self.reply(option, ACK, &[])
    }

    /// Size and flags of the export.
    fn facts(&self) -> [u8; 10] {
        let write = SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO;
        let flags = HAS_FLAGS
            | CAN_MULTI_CONN
            | SEND_CACHE
            | if self.terms.structured { SEND_DF } else { 0 }
            | if self.export.writable { write } else { READ_ONLY };
        let mut out = [0; 10];
        out[..8].copy_from_slice(&self.export.device.size().to_be_bytes());
        out[8..].copy_from_slice(&flags.to_be_bytes());
        out
    }

    fn inform(&mut self, option: u32) -> io::Result<()> {
        let mut about = INFO_EXPORT.to_be_bytes().to_vec();
        about.extend(self.facts());
        self.reply(option, INFORMATION, &about)?;
        let mut sizes = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
        for size in [1, 4096, super::requests::PIECE] {
            sizes.extend(size.to_be_bytes());
        }
        self.reply(option, INFORMATION, &sizes)?;
        self.reply(option, ACK, &[])
    }

    fn reply(&mut self, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
        let mut out = REPLY.to_be_bytes().to_vec();
        out.extend(option.to_be_bytes());
        out.extend(kind.to_be_bytes());
        out.extend(u32::try_from(data.len()).unwrap_or(0).to_be_bytes());
        out.extend(data);
        self.stream.write_all(&out)
    }
}

/// A name, and a list of what is asked.
fn is_asked_well(data: &[u8]) -> bool {
    let Some((len, rest)) = data.split_first_chunk::<4>() else { return false };
    let Some(rest) = rest.get(u32::from_be_bytes(*len) as usize..) else { return false };
    let Some((count, rest)) = rest.split_first_chunk::<2>() else { return false };
    rest.len() == usize::from(u16::from_be_bytes(*count)) * 2
}
