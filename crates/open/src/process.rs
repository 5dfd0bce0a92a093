//! Protection of the secrets that a process learns, if it is the command's own and not a program that uses this library.
//!
//! Owns: saying whose process this is, and keeping its memory from others. Excludes the cage, which is a server's.

use std::sync::OnceLock;

use rustix::process::{DumpableBehavior, Resource, Rlimit};

static OWN: OnceLock<()> = OnceLock::new();

/// Says that this process is the command's own, and not that of a test or another program around it: it may be hidden and
/// caged.
pub fn begin() {
    // A build that counts what tests run writes that down at its end, wherever it was told.
    if !(cfg!(debug_assertions) && std::env::var_os("LLVM_PROFILE_FILE").is_some()) {
        let _ = OWN.set(());
    }
}

/// Tells if this process is the command's own.
#[must_use]
pub fn is_own() -> bool {
    OWN.get().is_some()
}

/// Has no memory of this process go into a file: it may hold keys, and what an image holds. A smaller limit is always
/// granted.
pub fn leave_no_core() {
    let _ = rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
}

/// Keeps other programs of the same user from looking into this process, which is about to learn a secret: they neither
/// read its memory nor its environment, and don't trace it. Its files in `/proc` are root's from now on, so that of itself it
/// reads those that all may read, and nothing else. Only of the command's own process.
pub fn hide() {
    if !is_own() {
        return;
    }
    leave_no_core();
    // No kernel that is supported refuses it.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
