//! The requests of a client, one after the other, with simple replies.
//!
//! A client that is slow keeps no more than a piece of its request in memory. It is waited for: a virtual machine may
//! stand still for hours.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use super::{Export, exactly};

const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;

/// What is written is stable before the reply.
const FUA: u16 = 1;
/// Zeros take room.
const NO_HOLE: u16 = 2;

const EPERM: u32 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;

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
        let mut magic = [0; 4];
        match stream.read_exact(&mut magic) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            done => done?,
        }
        // Nothing is known of where the next request begins.
        if u32::from_be_bytes(magic) != REQUEST {
            return Ok(None);
        }
        Ok(Some(Request {
            flags: u16::from_be_bytes(exactly(stream)?),
            verb: u16::from_be_bytes(exactly(stream)?),
            cookie: exactly(stream)?,
            offset: u64::from_be_bytes(exactly(stream)?),
            len: u32::from_be_bytes(exactly(stream)?),
        }))
    }
}

/// Serves a client until it goes.
pub(super) fn serve(mut stream: &UnixStream, export: &Export) -> io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(request) = Request::read(&mut stream)? {
        match request.verb {
            DISCONNECT => return Ok(()),
            // What can't be kept must not be taken for requests.
            WRITE if request.len > LEN_MAX => return Ok(()),
            WRITE => write(stream, &request, export, &mut buffer)?,
            READ => read(stream, &request, export, &mut buffer)?,
            _ => answer(stream, &request, allowed(&request, export).and_then(|()| other(&request, export)))?,
        }
    }
    Ok(())
}

/// Refuses what the export does not allow, or does not have.
fn allowed(request: &Request, export: &Export) -> Result<(), u32> {
    let Request { flags, verb, offset, len, .. } = *request;
    let changes = matches!(verb, WRITE | TRIM | WRITE_ZEROES);
    if changes && !export.writable {
        return Err(EPERM);
    }
    if flags & !(FUA | NO_HOLE) != 0 || (verb == READ && len > LEN_MAX) {
        return Err(EINVAL);
    }
    let is_inside = offset.checked_add(len.into()).is_some_and(|end| end <= export.device.size());
    match verb {
        FLUSH => Ok(()),
        _ if is_inside => Ok(()),
        _ => Err(if changes { ENOSPC } else { EINVAL }),
    }
}

/// The pieces of a request, as offset and length.
fn pieces(request: &Request) -> impl Iterator<Item = (u64, usize)> + use<> {
    let (offset, len) = (request.offset, request.len);
    (0..len).step_by(PIECE as usize).map(move |at| {
        let piece = (len - at).min(PIECE);
        (offset.saturating_add(at.into()), piece as usize)
    })
}

fn read(mut stream: &UnixStream, request: &Request, export: &Export, buffer: &mut Vec<u8>) -> io::Result<()> {
    let mut answered = allowed(request, export);
    if answered.is_err() || request.len == 0 {
        return answer(stream, request, answered);
    }
    for (at, (offset, len)) in pieces(request).enumerate() {
        buffer.resize(len, 0);
        let done = export.device.read_at(offset, buffer);
        if at == 0 {
            answered = done.map_err(|error| code(&error));
            answer(stream, request, answered)?;
            if answered.is_err() {
                return Ok(());
            }
        } else {
            done?;
        }
        stream.write_all(buffer)?;
    }
    Ok(())
}

fn write(
    mut stream: &UnixStream,
    request: &Request,
    export: &Export,
    buffer: &mut Vec<u8>,
) -> io::Result<()> {
    let mut done = allowed(request, export);
    for (offset, len) in pieces(request) {
        buffer.resize(len, 0);
        stream.read_exact(buffer)?;
        done = done.and_then(|()| export.device.write_at(offset, buffer).map_err(|error| code(&error)));
    }
    answer(stream, request, done.and_then(|()| stable(request, export)))
}

/// What moves no bytes.
fn other(request: &Request, export: &Export) -> Result<(), u32> {
    let Request { verb, offset, len, .. } = *request;
    let device = &*export.device;
    let done = match verb {
        FLUSH if export.writable => device.flush(),
        FLUSH => Ok(()),
        TRIM => device.discard(offset, len.into()),
        WRITE_ZEROES => device.write_zeros(offset, len.into()),
        _ => return Err(EINVAL),
    };
    done.map_err(|error| code(&error))?;
    stable(request, export)
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

fn answer(mut stream: &UnixStream, request: &Request, done: Result<(), u32>) -> io::Result<()> {
    let mut head = REPLY.to_be_bytes().to_vec();
    head.extend(done.err().unwrap_or(0).to_be_bytes());
    head.extend(request.cookie);
    stream.write_all(&head)
}
