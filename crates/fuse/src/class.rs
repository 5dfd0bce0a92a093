//! The class of the scheduler that a thread is in.
//!
//! Owns: the system call that changes it, for which there is no safe function. Excludes when it is changed.

#![allow(unsafe_code)]

use std::io;
use std::ptr;

use rustix::thread::Pid;

/// A class of the scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// That of nearly all threads (`SCHED_OTHER`), with the priority that the thread had before.
    Ordinary,
    /// Runs where no other thread wants to (`SCHED_IDLE`).
    Idle,
}

/// Puts a thread into a class.
pub(crate) fn set_class(thread: Pid, class: Class) -> io::Result<()> {
    let policy = match class {
        Class::Ordinary => libc::SCHED_OTHER,
        Class::Idle => libc::SCHED_IDLE,
    };
    // What the kernel calls `sched_param`: the priority, which only other classes have.
    let parameter: libc::c_int = 0;
    // The function of the C library is not used: that of musl does nothing.
    // SAFETY: the call reads one integer, which lives until it returns, and writes no memory.
    let done = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            libc::c_long::from(thread.as_raw_nonzero().get()),
            libc::c_long::from(policy),
            ptr::from_ref(&parameter),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
