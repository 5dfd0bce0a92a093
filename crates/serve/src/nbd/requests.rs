//! The requests of a client, one after the other. Contents come behind a simple reply, or in chunks to clients that have
//! agreed on that.
//!
//! A client that is slow keeps no more than a piece of its request in memory. It is waited for: a virtual machine may
//! stand still for hours.

use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::os::unix::net::UnixStream;

use platfs::device::Device;

use super::replies::Reply;
use super::{Export, Terms, contexts, exactly, status};

const REQUEST: u32 = 0x2560_9513;
/// Bytes of a request before what it brings.
const HEAD: usize = 28;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const CACHE: u16 = 5;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;

/// Flag of a write that is stable before the reply.
const FUA: u16 = 1;
/// Zeros take room.
const NO_HOLE: u16 = 2;
/// Contents come in one chunk.
const DF: u16 = 4;
/// One extent is enough.
const REQ_ONE: u16 = 8;
/// Zeros that would have to be written are not wanted.
const FAST_ZERO: u16 = 16;

const EPERM: u32 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const EOVERFLOW: u32 = 75;
const ENOTSUP: u32 = 95;

/// Most bytes of one request: what clients expect that don't ask.
const LEN_MAX: u32 = 32 << 20;
/// Bytes that are moved at once, and the longest request of clients that ask: of a longer one, a failure behind its first
/// piece ends the connection, since the protocol has the answer before the data.
pub(super) const PIECE: u32 = 1 << 20;

struct Request {
    flags: u16,
    verb: u16,
    cookie: [u8; 8],
    offset: u64,
    len: u32,
}

impl Request {
    fn read(stream: &mut &UnixStream) -> io::Result<Option<Self>> {
        let mut head = [0; HEAD];
        match stream.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            done => done?,
        }
        let mut head = &head[..];
        // Nothing is known of where the next request begins.
        if u32::from_be_bytes(exactly(&mut head)?) != REQUEST {
            return Ok(None);
        }
        Ok(Some(Request {
            flags: u16::from_be_bytes(exactly(&mut head)?),
            verb: u16::from_be_bytes(exactly(&mut head)?),
            cookie: exactly(&mut head)?,
            offset: u64::from_be_bytes(exactly(&mut head)?),
            len: u32::from_be_bytes(exactly(&mut head)?),
        }))
    }
}

/// Serves a client until it goes.
pub(super) fn serve(mut stream: &UnixStream, export: &Export, terms: Terms) -> io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(request) = Request::read(&mut stream)? {
        let reply = Reply { stream, cookie: request.cookie };
        let is_allowed = allowed(&request, export, terms);
        match request.verb {
            DISCONNECT => return Ok(()),
            // What can't be kept must not be taken for requests.
            WRITE if request.len > LEN_MAX => return Ok(()),
            WRITE => write(reply, &request, export, &mut buffer)?,
            READ if terms.structured => match is_allowed {
                Ok(()) => read_in_chunks(reply, &request, export, &mut buffer)?,
                Err(code) => reply.error(code)?,
            },
            READ => read(reply, &request, export, &mut buffer)?,
            BLOCK_STATUS => match is_allowed {
                Ok(()) => block_status(reply, &request, export)?,
                Err(code) if terms.structured => reply.error(code)?,
                Err(code) => reply.simple(Err(code))?,
            },
            _ => reply.simple(is_allowed.and_then(|()| other(&request, export)))?,
        }
    }
    Ok(())
}

/// Refuses what the export does not allow, or does not have, and what was not agreed on.
fn allowed(request: &Request, export: &Export, terms: Terms) -> Result<(), u32> {
    let Request { flags, verb, offset, len, .. } = *request;
    let changes = matches!(verb, WRITE | TRIM | WRITE_ZEROES);
    if changes && !export.writable {
        return Err(EPERM);
    }
    let known = match verb {
        READ if terms.structured => FUA | DF,
        WRITE_ZEROES => FUA | NO_HOLE | FAST_ZERO,
        BLOCK_STATUS => FUA | REQ_ONE,
        _ => FUA,
    };
    let asks_for_nothing = verb == BLOCK_STATUS && (len == 0 || !terms.allocation);
    if flags & !known != 0 || (verb == READ && len > LEN_MAX) || asks_for_nothing {
        return Err(EINVAL);
    }
    if verb == READ && flags & DF != 0 && len > PIECE {
        return Err(EOVERFLOW);
    }
    let is_inside = offset.checked_add(len.into()).is_some_and(|end| end <= export.device.size());
    match verb {
        FLUSH => Ok(()),
        _ if is_inside => Ok(()),
        _ => Err(if changes { ENOSPC } else { EINVAL }),
    }
}

/// The pieces of a request, as offset and length.
fn pieces(request: &Request) -> impl Iterator<Item = (u64, u32)> + use<> {
    let (offset, len) = (request.offset, request.len);
    (0..len).step_by(PIECE as usize).map(move |at| (offset.saturating_add(at.into()), (len - at).min(PIECE)))
}

fn read(reply: Reply<'_>, request: &Request, export: &Export, buffer: &mut Vec<u8>) -> io::Result<()> {
    let mut answered = allowed(request, export, Terms::default());
    if answered.is_err() || request.len == 0 {
        return reply.simple(answered);
    }
    for (at, (offset, len)) in pieces(request).enumerate() {
        buffer.resize(len as usize, 0);
        let done = export.device.read_at(offset, buffer);
        if at == 0 {
            answered = done.map_err(|error| code(&error));
            reply.simple(answered)?;
            if answered.is_err() {
                return Ok(());
            }
        } else {
            done?;
        }
        (&*reply.stream).write_all(buffer)?;
    }
    Ok(())
}

/// Reads in a chunk for each piece; a failure ends the answer where it is, and not the connection.
fn read_in_chunks(
    reply: Reply<'_>,
    request: &Request,
    export: &Export,
    buffer: &mut Vec<u8>,
) -> io::Result<()> {
    let end = request.offset.saturating_add(request.len.into());
    for (offset, len) in pieces(request) {
        let stop = offset.saturating_add(len.into());
        if request.flags & DF == 0 && export.device.data_from(offset) >= stop {
            reply.hole(offset, len, stop == end)?;
            continue;
        }
        buffer.resize(len as usize, 0);
        match export.device.read_at(offset, buffer) {
            Ok(()) => reply.data(offset, buffer, stop == end)?,
            Err(error) => return reply.error_at(code(&error), offset),
        }
    }
    if request.len == 0 { reply.none() } else { Ok(()) }
}

fn block_status(reply: Reply<'_>, request: &Request, export: &Export) -> io::Result<()> {
    let most = if request.flags & REQ_ONE != 0 { 1 } else { status::MOST };
    reply.status(contexts::ALLOCATION, &status::extents(export, request.offset, request.len, most))
}

fn write(reply: Reply<'_>, request: &Request, export: &Export, buffer: &mut Vec<u8>) -> io::Result<()> {
    let mut done = allowed(request, export, Terms::default());
    for (offset, len) in pieces(request) {
        buffer.resize(len as usize, 0);
        (&*reply.stream).read_exact(buffer)?;
        done = done.and_then(|()| export.device.write_at(offset, buffer).map_err(|error| code(&error)));
    }
    reply.simple(done.and_then(|()| stable(request, export)))
}

/// Serves a request that moves no bytes.
fn other(request: &Request, export: &Export) -> Result<(), u32> {
    let Request { verb, offset, len, .. } = *request;
    let device = &*export.device;
    let done = match verb {
        FLUSH if export.writable => device.flush(),
        FLUSH => Ok(()),
        TRIM | WRITE_ZEROES | CACHE if len == 0 => Ok(()),
        TRIM => hinted(device.discard(offset, len.into())),
        WRITE_ZEROES => return zero(request, device).and_then(|()| stable(request, export)),
        CACHE => {
            prefetch(device, offset, len);
            Ok(())
        }
        _ => return Err(EINVAL),
    };
    done.map_err(|error| code(&error))?;
    stable(request, export)
}

/// Zeros a range, by a word to the storage if that can be.
fn zero(request: &Request, device: &dyn Device) -> Result<(), u32> {
    let Request { flags, offset, len, .. } = *request;
    match device.zero_fast(offset, len.into(), flags & NO_HOLE != 0) {
        Err(error) if is_not_done(&error) => {}
        done => return done.map_err(|error| code(&error)),
    }
    if flags & FAST_ZERO != 0 {
        return Err(ENOTSUP);
    }
    device.write_zeros(offset, len.into()).map_err(|error| code(&error))
}

/// Tells if storage does not do that at all, or not with that range: a block device takes whole sectors only.
fn is_not_done(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput)
}

/// The answer to a hint: storage that keeps what it has does no harm.
fn hinted(done: io::Result<()>) -> io::Result<()> {
    done.or_else(|error| if is_not_done(&error) { Ok(()) } else { Err(error) })
}

/// Has the system read what a client will read soon. Where that can't be, nothing is lost.
fn prefetch(device: &dyn Device, offset: u64, len: u32) {
    let Some((file, start)) = device.lies_in() else { return };
    let (at, len) = (start.saturating_add(offset), NonZeroU64::new(len.into()));
    let _ = rustix::fs::fadvise(file, at, len, rustix::fs::Advice::WillNeed);
}

/// Makes a change stable if that was asked for with it.
fn stable(request: &Request, export: &Export) -> Result<(), u32> {
    match request.flags & FUA != 0 && export.writable {
        true => export.device.flush().map_err(|error| code(&error)),
        false => Ok(()),
    }
}

fn code(error: &io::Error) -> u32 {
    match error.kind() {
        io::ErrorKind::StorageFull => ENOSPC,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => EPERM,
        _ => EIO,
    }
}
