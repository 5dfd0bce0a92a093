//! The requests of a client, one after the other, with simple replies.

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

/// Most bytes of one request: what the protocol's clients expect.
pub(super) const LEN_MAX: u32 = 32 << 20;

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
        if request.verb == DISCONNECT {
            return Ok(());
        }
        let moves = matches!(request.verb, READ | WRITE);
        if moves && request.len > LEN_MAX {
            if request.verb == WRITE {
                // What can't be kept must not be taken for requests.
                return Ok(());
            }
            answer(stream, &request, EINVAL, &[])?;
            continue;
        }
        if moves {
            buffer.resize(request.len as usize, 0);
        }
        if request.verb == WRITE {
            stream.read_exact(&mut buffer)?;
        }
        let done = carried_out(&request, export, &mut buffer);
        let code = done.err().unwrap_or(0);
        let data = if request.verb == READ && code == 0 { &buffer[..] } else { &[] };
        answer(stream, &request, code, data)?;
    }
    Ok(())
}

fn carried_out(request: &Request, export: &Export, buffer: &mut [u8]) -> Result<(), u32> {
    let Request { flags, verb, offset, len, .. } = *request;
    let changes = matches!(verb, WRITE | TRIM | WRITE_ZEROES);
    if changes && !export.writable {
        return Err(EPERM);
    }
    if flags & !(FUA | NO_HOLE) != 0 {
        return Err(EINVAL);
    }
    let device = &*export.device;
    let is_inside = offset.checked_add(len.into()).is_some_and(|end| end <= device.size());
    if verb != FLUSH && !is_inside {
        return Err(if changes { ENOSPC } else { EINVAL });
    }
    let done = match verb {
        READ => device.read_at(offset, buffer),
        WRITE => device.write_at(offset, buffer),
        FLUSH if export.writable => device.flush(),
        FLUSH => Ok(()),
        TRIM => device.discard(offset, len.into()),
        WRITE_ZEROES => device.write_zeros(offset, len.into()),
        _ => return Err(EINVAL),
    };
    let done = done.and_then(|()| if changes && flags & FUA != 0 { device.flush() } else { Ok(()) });
    done.map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull => ENOSPC,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => EPERM,
        _ => EIO,
    })
}

fn answer(mut stream: &UnixStream, request: &Request, code: u32, data: &[u8]) -> io::Result<()> {
    let mut head = REPLY.to_be_bytes().to_vec();
    head.extend(code.to_be_bytes());
    head.extend(request.cookie);
    stream.write_all(&head)?;
    stream.write_all(data)
}
