//! An io_uring of one thread, with memory that the kernel puts requests into: the only place of this
//! crate where the compiler can't prove what is safe.
//!
//! Owns: the mappings shared with the kernel, and at any time the side that may touch a slot's memory. Excludes what is in that
//! memory. The rules that all of it rests on:
//!
//! - A slot is the kernel's from [`Ring::register`] or [`Ring::commit`] on, and ours from its completion
//!   on. Only [`Ring::slot`] gives out its memory, and only while it is ours.
//! - Memory of slots is unmapped only when no slot is the kernel's; otherwise it stays for ever.
//! - A ring never leaves the thread that made it: raw pointers keep it from being sent.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::io_uring::{
    IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringEnterFlags, IoringFeatureFlags, IoringSetupFlags,
    io_uring_enter, io_uring_params, io_uring_setup,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::serving::Device;

/// Bytes of a slot in front of its payload: the header of the request and of its answer, the operation's
/// own fields, and those of the ring.
pub(super) const HEADER_LEN: usize = 288;
/// Bytes that the header is given: a page.
const HEADER_ROOM: usize = 4096;
/// Where in that page the kernel finds the addresses of header and payload.
const ADDRESSES_AT: usize = 2048;
/// Commands of the device.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// `IORING_OP_URING_CMD`.
const URING_COMMAND: u8 = 46;

/// An entry of the submission queue.
#[repr(C)]
#[derive(Clone, Copy)]
struct Submission {
    operation: u8,
    flags: u8,
    priority: u16,
    descriptor: i32,
    command: u32,
    unused: u32,
    address: u64,
    len: u32,
    command_flags: u32,
    user_data: u64,
    unused2: [u32; 2],
    entry_flags: u64,
    commit: u64,
    queue: u16,
    unused3: [u8; 62],
}

const _: () = assert!(size_of::<Submission>() == 128);

/// An entry of the completion queue.
#[repr(C)]
#[derive(Clone, Copy)]
struct Completion {
    user_data: u64,
    result: i32,
    flags: u32,
}

const _: () = assert!(size_of::<Completion>() == 16);

/// Two addresses with lengths, as `readv` takes them.
#[repr(C)]
struct Addresses {
    header: *mut u8,
    header_len: usize,
    payload: *mut u8,
    payload_len: usize,
}

/// Memory from `mmap`.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn of_ring(ring: &OwnedFd, len: usize, offset: u64) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at a place of the kernel's choice overlaps nothing.
        let start = unsafe { mmap(ptr::null_mut(), len, protection, flags, ring, offset) }?;
        Self::new(start.cast(), len)
    }

    fn anonymous(len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice overlaps nothing.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), len, protection, MapFlags::PRIVATE) }?;
        Self::new(start.cast(), len)
    }

    fn new(start: *mut u8, len: usize) -> io::Result<Self> {
        NonNull::new(start)
            .map(|start| Mapping { start, len })
            .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// The place of a `T` inside, checked for room and alignment.
    fn place<T>(&self, offset: usize) -> io::Result<NonNull<T>> {
        let fits = offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.len);
        if !fits || !offset.is_multiple_of(align_of::<T>()) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: `offset` is within this mapping, as was just checked.
        Ok(unsafe { self.start.add(offset) }.cast())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is this value's own mapping, and its owner drops it only when neither the kernel
        // nor a reference uses it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

struct SlotState {
    queue: u16,
    ours: bool,
}

/// Where the parts of a slot are.
struct SlotPointers {
    header: NonNull<[u8; HEADER_LEN]>,
    addresses: NonNull<Addresses>,
    payload: NonNull<u8>,
}

/// The memory of a slot while it is ours.
pub(super) struct Slot<'a> {
    pub(super) header: &'a mut [u8; HEADER_LEN],
    pub(super) payload: &'a mut [u8],
}

/// A ring.
pub(super) struct Ring {
    ring: OwnedFd,
    device: Device,
    queues: Mapping,
    entries: Mapping,
    /// `None` only while it is dropped.
    memory: Option<Mapping>,
    payload_len: usize,
    slots: Vec<SlotState>,
    params: io_uring_params,
    waiting: u32,
}

impl Ring {
    /// Makes a ring with a slot for each of the queues named; several may be on the same queue.
    pub(super) fn new(device: Device, queues: &[u16], payload_len: usize) -> io::Result<Self> {
        let payload_len = payload_len.next_multiple_of(HEADER_ROOM);
        let wanted = u32::try_from(queues.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut params = io_uring_params::default();
        params.flags = IoringSetupFlags::SQE128
            | IoringSetupFlags::SINGLE_ISSUER
            | IoringSetupFlags::DEFER_TASKRUN
            | IoringSetupFlags::NO_SQARRAY;
        // SAFETY: no queue of another ring is named.
        let ring = unsafe { io_uring_setup(wanted.next_power_of_two(), &mut params) }?;
        if !params.features.contains(IoringFeatureFlags::SINGLE_MMAP) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let len = params.cq_off.cqes as usize + params.cq_entries as usize * size_of::<Completion>();
        let mapped = Mapping::of_ring(&ring, len, IORING_OFF_SQ_RING)?;
        let entries_len = params.sq_entries as usize * size_of::<Submission>();
        let entries = Mapping::of_ring(&ring, entries_len, IORING_OFF_SQES)?;
        let memory = Mapping::anonymous(queues.len() * (HEADER_ROOM + payload_len))?;
        let slots = queues.iter().map(|queue| SlotState { queue: *queue, ours: true }).collect();
        let memory = Some(memory);
        let made =
            Ring { ring, device, queues: mapped, entries, memory, payload_len, slots, params, waiting: 0 };
        for index in [made.params.sq_off.tail, made.params.cq_off.head, made.params.cq_off.tail] {
            made.queues.place::<AtomicU32>(index as usize)?;
        }
        Ok(made)
    }

    /// How many slots there are.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// A number that is shared with the kernel.
    fn shared(&self, offset: u32) -> io::Result<&AtomicU32> {
        let place = self.queues.place::<AtomicU32>(offset as usize)?;
        // SAFETY: the place is in a mapping that lives as long as `self`, is aligned, and both sides
        // access it atomically only.
        Ok(unsafe { place.as_ref() })
    }

    fn memory_of(&self, slot: usize) -> io::Result<SlotPointers> {
        let memory = self.memory.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let start = slot.checked_mul(HEADER_ROOM + self.payload_len).ok_or(io::ErrorKind::InvalidInput)?;
        memory.place::<u8>(start + HEADER_ROOM + self.payload_len - 1)?;
        Ok(SlotPointers {
            header: memory.place(start)?,
            addresses: memory.place(start + ADDRESSES_AT)?,
            payload: memory.place(start + HEADER_ROOM)?,
        })
    }

    /// A slot's memory, if it is ours.
    pub(super) fn slot(&mut self, slot: usize) -> Option<Slot<'_>> {
        if !self.slots.get(slot)?.ours {
            return None;
        }
        let SlotPointers { mut header, payload, .. } = self.memory_of(slot).ok()?;
        // SAFETY: both are inside of the slot's part of the mapping and do not overlap; the kernel does
        // not touch a slot that is ours; and the borrow of `self` keeps it ours, mapped and unshared.
        unsafe {
            Some(Slot {
                header: header.as_mut(),
                payload: NonNull::slice_from_raw_parts(payload, self.payload_len).as_mut(),
            })
        }
    }

    /// Gives a slot to the kernel for its first request.
    pub(super) fn register(&mut self, slot: usize) -> io::Result<()> {
        let SlotPointers { header, addresses, payload } = self.memory_of(slot)?;
        if !self.slots.get(slot).is_some_and(|state| state.ours) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let value = Addresses {
            header: header.as_ptr().cast(),
            header_len: HEADER_LEN,
            payload: payload.as_ptr(),
            payload_len: self.payload_len,
        };
        // SAFETY: the place is in the slot's part of the mapping, aligned, and the slot is ours.
        unsafe { addresses.write(value) };
        self.submit(slot, REGISTER, 0, addresses.as_ptr() as u64, 2)
    }

    /// Gives a slot with an answer in it to the kernel, for the next request.
    pub(super) fn commit(&mut self, slot: usize, commit: u64) -> io::Result<()> {
        if !self.slots.get(slot).is_some_and(|state| state.ours) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        self.submit(slot, COMMIT_AND_FETCH, commit, 0, 0)
    }

    fn submit(&mut self, slot: usize, command: u32, commit: u64, address: u64, len: u32) -> io::Result<()> {
        if self.waiting >= self.params.sq_entries {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let state = self.slots.get_mut(slot).ok_or(io::ErrorKind::InvalidInput)?;
        let submission = Submission {
            operation: URING_COMMAND,
            flags: 0,
            priority: 0,
            descriptor: self.device.as_raw_fd(),
            command,
            unused: 0,
            address,
            len,
            command_flags: 0,
            user_data: slot as u64,
            unused2: [0; 2],
            entry_flags: 0,
            commit,
            queue: state.queue,
            unused3: [0; 62],
        };
        state.ours = false;
        let tail = self.shared(self.params.sq_off.tail)?;
        // Only this thread moves it.
        let index = tail.load(Ordering::Relaxed);
        let at = (index & (self.params.sq_entries - 1)) as usize * size_of::<Submission>();
        let place = self.entries.place::<Submission>(at)?;
        // SAFETY: the place is in the mapping and aligned, and the kernel has taken what was there before:
        // fewer entries wait than there are.
        unsafe { place.write(submission) };
        tail.store(index.wrapping_add(1), Ordering::Release);
        self.waiting += 1;
        Ok(())
    }

    /// Hands over what was registered and committed, and waits until at least one slot is ours again.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        // SAFETY: no argument beside the numbers; the memory that the submitted entries name is mapped for
        // as long as any slot is the kernel's, see `drop`; and `device` is open as long as `self`.
        let done = unsafe { io_uring_enter(&self.ring, self.waiting, 1, IoringEnterFlags::GETEVENTS) };
        match done {
            Ok(taken) => {
                self.waiting = self.waiting.saturating_sub(taken);
                Ok(())
            }
            Err(Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The next slot that came back, with what the kernel says of it: below 0 an error, and no request.
    pub(super) fn completed(&mut self) -> io::Result<Option<(usize, i32)>> {
        let head = self.shared(self.params.cq_off.head)?;
        let index = head.load(Ordering::Relaxed);
        if index == self.shared(self.params.cq_off.tail)?.load(Ordering::Acquire) {
            return Ok(None);
        }
        let at = (index & (self.params.cq_entries - 1)) as usize * size_of::<Completion>();
        let place = self.queues.place::<Completion>(self.params.cq_off.cqes as usize + at)?;
        // SAFETY: the place is in the mapping and aligned, and the kernel wrote it before it moved the
        // tail beyond; it does not write there again before the head is moved.
        let Completion { user_data, result, .. } = unsafe { place.read() };
        head.store(index.wrapping_add(1), Ordering::Release);
        let slot = usize::try_from(user_data).map_err(|_| io::ErrorKind::InvalidData)?;
        self.slots.get_mut(slot).ok_or(io::ErrorKind::InvalidData)?.ours = true;
        Ok(Some((slot, result)))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // What the kernel may still write to must not become anything else.
        if self.slots.iter().any(|state| !state.ours) {
            std::mem::forget(self.memory.take());
        }
    }
}
