//! From a request to the service's verb, and from its answer to the kernel's bytes.
//!
//! Owns: which verb serves what, and the answers in cases where the verbs have no say. Both
//! transports of this crate go through here. Excludes how bytes come and go.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rustix::io::Errno;

use crate::flush_pages::PageFlusher;
use crate::service::{Cached, Entry, Listed, ReadFlags, Service, SetAttr, is_before_write};
use crate::wire::{self, Body, EntryValidity, Header, Malformed, Out, Request};

/// The bit of a mode that gives a file's group to who runs it.
const SET_GROUP_ID: u16 = 0o2000;
/// The names of attributes that hold access control lists begin so.
const ACCESS_LISTS: &[u8] = b"system.posix_acl_";
/// How the number of an `ioctl` begins that brings an argument and gets no answer: such a one changes attributes.
const BRINGS_ARGUMENT: u32 = 1;

/// Answers requests.
#[derive(Clone)]
pub(crate) struct Dispatcher {
    service: Arc<dyn Service>,
    gatherer: PageFlusher,
}

/// Result of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The kernel expects no answer.
    Silence,
    /// An error, or the length of the answer in bytes.
    Answer(Result<usize, Errno>),
    /// As `Answer`, after a message that the kernel's attributes of this node are old.
    Stale(u64, Result<usize, Errno>),
}

type Done = Result<usize, Errno>;

/// Writes an answer by a function.
fn put(out: Out<'_>, write: impl FnOnce(&mut Out<'_>)) -> Done {
    let mut out = out;
    write(&mut out);
    out.finish()
}

/// Returns true if a request changes attributes that the kernel does not ask for again by itself.
fn leaves_stale(request: &Request<'_>) -> bool {
    match request {
        Request::Control { command, .. } => command >> 30 == BRINGS_ARGUMENT,
        // The mode follows the list.
        Request::SetXattr { name, .. } | Request::RemoveXattr { name } => name.starts_with(ACCESS_LISTS),
        _ => false,
    }
}

/// Returns true if the kernel's attributes are old after a request that failed. Before contents can't be changed, set-user-id bits
/// may have gone. And the program that wrote bytes into the kernel's pages went on: the kernel asks before it takes the next.
fn tells_failure(request: &Request<'_>) -> bool {
    matches!(request, Request::Write { .. } | Request::Allocate { .. } | Request::Copy { .. })
}

fn nothing(done: Result<(), Errno>) -> Done {
    done.map(|()| 0)
}

/// A value of at most `size` bytes, or how long it is if that is 0.
fn sized(out: Out<'_>, size: u32, value: &[u8]) -> Done {
    match u32::try_from(value.len()) {
        Ok(len) if size == 0 => put(out, |out| wire::size_reply(out, len)),
        Ok(len) if len <= size => put(out, |out| out.bytes(value)),
        _ => Err(Errno::RANGE),
    }
}

impl Dispatcher {
    pub(crate) fn new(service: Arc<dyn Service>, gatherer: PageFlusher) -> Self {
        Dispatcher { service, gatherer }
    }

    /// Serves a request; its answer, without a header, is at the beginning of `out`. A verb that panics
    /// fails with `EIO`: the caller must not wait for ever.
    pub(crate) fn serve(&self, header: &Header, body: Body<'_>, out: &mut [u8]) -> Outcome {
        let request = match Request::decode(header.operation, body) {
            Ok(request) => request,
            Err(Malformed) => return Outcome::Answer(Err(Errno::INVAL)),
        };
        self.service.begin(header.caller);
        match request {
            Request::Forget { .. } | Request::ForgetMany(_) => {
                // Nobody waits for it; a count that is wrong after a panic only keeps memory.
                let _ = catch_unwind(AssertUnwindSafe(|| self.forget(header.node, request)));
                Outcome::Silence
            }
            // NOSYS makes the kernel stop asking: verbs are short, and run to their end.
            Request::Interrupt => Outcome::Answer(Err(Errno::NOSYS)),
            request => {
                let changed = if let Request::Copy { to, .. } = request { Some(to.node) } else { None };
                let tells_failure = tells_failure(&request);
                let mut known = if leaves_stale(&request) { Cached::Stale } else { Cached::Valid };
                let done = catch_unwind(AssertUnwindSafe(|| self.answer(header, request, out, &mut known)));
                let done = done.unwrap_or(Err(Errno::IO));
                if known == Cached::Stale && done.is_ok() || tells_failure && done.is_err() {
                    let node = if let Some(node) = changed { node } else { header.node };
                    Outcome::Stale(node, done)
                } else {
                    Outcome::Answer(done)
                }
            }
        }
    }

    fn forget(&self, node: u64, request: Request<'_>) {
        match request {
            Request::Forget { times } => self.service.forget(node, times),
            Request::ForgetMany(forgets) => {
                forgets.for_each(|(node, times)| self.service.forget(node, times))
            }
            _ => {}
        }
    }

    fn answer(&self, header: &Header, request: Request<'_>, buffer: &mut [u8], known: &mut Cached) -> Done {
        let (service, node) = (&*self.service, header.node);
        match request {
            Request::Read { offset, size, flags } => self.read(node, offset, flags, part(buffer, size)?),
            Request::List { position, size, with_entries } => {
                self.list(node, position, part(buffer, size)?, with_entries)
            }
            Request::Lookup { name } => match service.lookup(node, name) {
                // The others are about a handle, for which there is no such thing as absence.
                Err(Errno::NOENT) if name != b"." && name != b".." && service.keeps_names(node) => {
                    put(Out::new(buffer), wire::no_entry_reply)
                }
                found => self.entry(node, buffer, found),
            },
            Request::Create { name, new } => {
                self.entry(node, buffer, service.create(header.caller, node, name, &new))
            }
            Request::Link { node: of, name } => {
                self.entry(node, buffer, service.link(header.caller, of, node, name))
            }
            Request::CreateUnnamed { new } => {
                self.opened(node, buffer, service.create_unnamed(header.caller, node, &new))
            }
            Request::CreateOpen { name, new } => {
                self.opened(node, buffer, service.create_open(header.caller, node, name, &new))
            }
            Request::Open { access } => {
                let opened = service.open(node, access)?;
                *known = opened.known;
                put(Out::new(buffer), |out| wire::handle_reply(out, opened.handle))
            }
            Request::OpenDirectory => {
                service.open_directory(node)?;
                put(Out::new(buffer), wire::directory_reply)
            }
            Request::Write { offset, data, flags } => {
                *known = service.write(node, offset, data, flags)?;
                let count = u32::try_from(data.len()).map_err(|_| Errno::INVAL)?;
                put(Out::new(buffer), |out| wire::written_reply(out, count))
            }
            Request::Unlink { name } => nothing(service.unlink(node, name)),
            Request::RemoveDirectory { name } => nothing(service.remove_directory(node, name)),
            Request::Rename { name, to, new_name, replace } => {
                let replace = replace.ok_or(Errno::INVAL)?;
                nothing(service.rename(header.caller, (node, name), (to, new_name), replace))
            }
            Request::Sync { data_only } => {
                *known = service.sync(node, data_only)?;
                Ok(0)
            }
            Request::Allocate { mode, offset, len } => {
                *known = service.allocate(header.caller, node, mode, (offset, len))?;
                Ok(0)
            }
            Request::Copy { offset, to, len, long } => {
                // The older answer has 32 bits; less than asked for is always right.
                let len = if long { len } else { len.min(1 << 30) };
                let count;
                (count, *known) = service.copy(header.caller, (node, offset), to, len)?;
                put(Out::new(buffer), |out| match (long, u32::try_from(count)) {
                    (false, Ok(count)) => wire::written_reply(out, count),
                    _ => wire::copied_reply(out, count),
                })
            }
            request => self.answer_about_inode(header, request, Out::new(buffer)),
        }
    }

    /// A node by its name in a directory.
    fn entry(&self, parent: u64, buffer: &mut [u8], found: Result<Entry, Errno>) -> Done {
        let found = found?;
        let kept = self.kept(parent, &found);
        put(Out::new(buffer), |out| wire::entry_reply(out, &found, kept))
    }

    /// Returns the parts of an entry that the kernel may cache.
    fn kept(&self, parent: u64, entry: &Entry) -> EntryValidity {
        let (service, node) = (&self.service, entry.node);
        let name = service.keeps_names(parent) && !service.is_passing(node);
        EntryValidity { name, attributes: service.keeps_attributes(node) }
    }

    /// As [`Dispatcher::entry`], of a file that is open now.
    fn opened(&self, parent: u64, buffer: &mut [u8], made: Result<Entry, Errno>) -> Done {
        let made = made?;
        let kept = self.kept(parent, &made);
        put(Out::new(buffer), |out| {
            wire::entry_reply(out, &made, kept);
            wire::handle_reply(out, 0);
        })
    }

    fn answer_about_inode(&self, header: &Header, request: Request<'_>, out: Out<'_>) -> Done {
        let (service, node, caller) = (&*self.service, header.node, header.caller);
        match request {
            Request::Attributes { writes } => {
                if writes {
                    service.before_write(caller, node)?;
                }
                let found = service.attributes(node)?;
                let known = if service.keeps_attributes(node) { Cached::Valid } else { Cached::Stale };
                put(out, |out| wire::attributes_reply(out, &found, known))
            }
            Request::AttributesWithBirth => {
                let found = service.attributes(node)?;
                let kept = service.keeps_attributes(node);
                put(out, |out| wire::statx_reply(out, &found, kept))
            }
            Request::Rights { wanted } => nothing(service.rights(caller, node, wanted)),
            Request::SetAttr(change) => {
                let (changed, known) = service.change(caller, node, &change)?;
                put(out, |out| wire::attributes_reply(out, &changed, known))
            }
            Request::ReadLink => {
                let target = service.read_link(node)?;
                put(out, |out| out.bytes(&target))
            }
            Request::Xattr { name, size } if is_before_write(name, size) => {
                let len = service.has_capabilities(node, name)?;
                put(out, |out| wire::size_reply(out, u32::try_from(len).unwrap_or(u32::MAX)))
            }
            Request::Xattr { name, size } => sized(out, size, &service.xattr(node, name)?),
            Request::XattrNames { size } => {
                let names = service.xattr_names(caller, node)?;
                let ended = names.into_iter().flat_map(|name| name.into_iter().chain([0]));
                sized(out, size, &ended.collect::<Vec<u8>>())
            }
            Request::SetXattr { name, value, flags, drop_setgid } => {
                service.set_xattr(caller, node, name, value, flags)?;
                if drop_setgid { self.drop_setgid(header) } else { Ok(0) }
            }
            Request::RemoveXattr { name } => nothing(service.remove_xattr(caller, node, name)),
            request => self.answer_other(header, request, out),
        }
    }

    fn answer_other(&self, header: &Header, request: Request<'_>, out: Out<'_>) -> Done {
        let (service, node) = (&*self.service, header.node);
        match request {
            Request::Statistics => {
                let room = service.statistics(node)?;
                put(out, |out| wire::statistics_reply(out, &room))
            }
            Request::Seek { offset, what } => {
                // An offset below 0 comes as one that no file has.
                let what = what.ok_or(Errno::INVAL)?;
                i64::try_from(offset).map_err(|_| Errno::NXIO)?;
                let flush_pages = |range| self.gatherer.flush_pages(node, range);
                let found =
                    service.seek(node, offset, what, self.gatherer.works().then_some(&flush_pages))?;
                put(out, |out| wire::position_reply(out, found))
            }
            Request::Control { command, argument, room, restricted } => {
                let room = usize::try_from(room).map_err(|_| Errno::INVAL)?;
                if !restricted {
                    return Err(Errno::NOTTY);
                }
                let answer = service.control(header.caller, node, command, argument, room)?;
                let answer = answer.get(..answer.len().min(room)).unwrap_or_default();
                put(out, |out| wire::control_reply(out, answer))
            }
            Request::SyncAll | Request::Destroy => nothing(service.sync_all()),
            Request::Release { wrote } => {
                service.closed(node, wrote);
                Ok(0)
            }
            // Also for flushing, which has no state beside an inode's: NOSYS keeps the kernel from asking again.
            _ => Err(Errno::NOSYS),
        }
    }

    fn read(&self, node: u64, offset: u64, flags: ReadFlags, part: &mut [u8]) -> Done {
        let room = part.len();
        let count = self.service.read(node, offset, part, flags)?;
        if count <= room { Ok(count) } else { Err(Errno::IO) }
    }

    fn list(&self, node: u64, position: u64, buffer: &mut [u8], with_entries: bool) -> Done {
        let mut out = Out::new(buffer);
        let name = !with_entries || self.service.keeps_names(node);
        let mut take = |listed: &Listed<'_>| {
            let attributes = listed.entry.is_none_or(|entry| self.service.keeps_attributes(entry.node));
            wire::listing_entry(&mut out, listed, with_entries, EntryValidity { name, attributes })
        };
        self.service.list(node, position, with_entries, &mut take)?;
        out.finish()
    }

    /// The list of access control that was set leaves the caller no right to set this bit.
    fn drop_setgid(&self, header: &Header) -> Done {
        let permissions = self.service.attributes(header.node)?.permissions;
        if permissions & SET_GROUP_ID != 0 {
            let change = SetAttr { permissions: Some(permissions & !SET_GROUP_ID), ..SetAttr::default() };
            self.service.change(header.caller, header.node, &change)?;
        }
        Ok(0)
    }
}

/// The first `size` bytes of a buffer; the kernel knows how many it may ask for.
fn part(buffer: &mut [u8], size: u32) -> Result<&mut [u8], Errno> {
    usize::try_from(size).ok().and_then(|size| buffer.get_mut(..size)).ok_or(Errno::INVAL)
}
