//! Panics of the command.
//!
//! Owns: the message of a panic where memory is limited. Excludes the end of the work, which the caller of a thread sees to.

use std::io::{self, Write};

use rustix::process::{Resource, getrlimit};

/// Where the address space is limited, a panic prints its message alone, without the calls that led to it. To print the
/// calls takes memory, under a lock of the standard library that a failing allocation takes, too: a thread that panics for
/// lack of memory (a new one without room for its second stack, say) would wait for itself for ever, and the process with
/// it. To be called before there are threads.
pub(crate) fn without_calls() {
    if getrlimit(Resource::As).current.is_none() {
        return;
    }
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        // Nobody may read them.
        let _ = writeln!(io::stderr(), "thread '{name}' {panic}");
    }));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Stdio;

    use testkit::again;

    use super::*;

    /// Panics without any memory left, if the test below says so, and leaves a byte before.
    #[test]
    fn worker() {
        let Some(path) = std::env::var_os(PANICS) else { return };
        let mut mark = fs::File::create(path).unwrap();
        without_calls();
        // The library knows now how panics are printed: the first one asks the environment, which takes memory too.
        let _ = std::thread::spawn(|| panic!("one before")).join();
        let done = std::thread::Builder::new().spawn(move || {
            let mut taken: Vec<Vec<u8>> = Vec::with_capacity(1 << 20);
            for len in (4..24).rev().map(|bits| 1 << bits) {
                let mut some = Vec::new();
                while some.try_reserve_exact(len).is_ok() && taken.len() < taken.capacity() {
                    taken.push(std::mem::take(&mut some));
                }
            }
            mark.write_all(b"x").unwrap();
            panic!("no memory is left");
        });
        drop(done.unwrap().join());
    }

    const PANICS: &str = "PLATFS_PANICS_WITHOUT_MEMORY";

    /// It waited for itself for ever.
    #[test]
    fn a_thread_that_panics_without_memory_comes_to_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let mark = directory.path().join("mark");
        let worker = again::test("panics::tests::worker", PANICS, &mark);
        let mut limited = std::process::Command::new("sh");
        limited
            .args(["-c", "ulimit -v 400000; exec \"$@\"", "sh"])
            .arg(worker.get_program())
            .args(worker.get_args());
        limited.env(PANICS, &mark).env("RUST_BACKTRACE", "1").stderr(Stdio::null()).stdout(Stdio::null());
        // After a minute the harness in the child would speak of it, and end for lack of memory.
        again::ended(&mut limited);
        assert_eq!(fs::read(mark).unwrap(), b"x", "it did not come to its panic");
    }
}
