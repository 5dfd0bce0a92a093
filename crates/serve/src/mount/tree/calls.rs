//! The call of a program that waits for an answer, as `/proc` shows it: where a `write` goes, and how long it is.
//!
//! The kernel asks before it takes a write into its pages, but does not say of how many bytes. Its caller waits meanwhile,
//! and `/proc/THREAD/syscall` shows number and arguments of the call. Owns: reading that. Excludes what follows from it.
//!
//! Not seen are calls of other threads than the caller's (io_uring, loop devices), those that hand over lists of writes
//! (`io_submit`), callers that this process may not look at, and files of another file system that lies on this one.

use std::time::Duration;

use fuse::Caller;
use platfs_host::{path, system};
use rustix::fs::{FileType, OFlags, StatxFlags};
use serde::{Deserialize, Serialize};

use crate::mount::outside;

/// Most bytes that one call writes.
const MOST: u64 = 0x7fff_f000;
/// Most pieces of memory that one call writes.
const PIECES_MOST: u64 = 1024;
/// Looks at a thread that does not wait yet: for half a minute at least. It will wait, as it has asked. On a
/// machine with much to do a thread of low priority can be kept from that for seconds.
const TRIES: u32 = 30_000;
/// The flag of open files whose writes go to the end.
const APPEND: u64 = 0o2000;

/// A call that reached a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::mount) enum Call {
    /// Writes `len` bytes; `None` is the end of the file.
    Writes { offset: Option<u64>, len: u64 },
    /// Changes nothing.
    Reads,
    /// Not known.
    Hidden,
}

/// Kinds of calls, by what their arguments mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Reads,
    /// File, memory, length.
    Write,
    WriteAt,
    /// File, pieces of memory, their number.
    WriteVector,
    WriteVectorAt,
    /// Target, source, offset, length.
    SendFile,
    /// Source, its offset, target, its offset, length.
    Splice,
}

#[cfg(target_arch = "x86_64")]
fn kind(number: u64) -> Option<Kind> {
    Some(match number {
        0 | 8 | 17 | 19 | 295 | 327 => Kind::Reads,
        1 => Kind::Write,
        18 => Kind::WriteAt,
        20 => Kind::WriteVector,
        296 | 328 => Kind::WriteVectorAt,
        40 => Kind::SendFile,
        275 | 326 => Kind::Splice,
        _ => return None,
    })
}

#[cfg(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "loongarch64"))]
fn kind(number: u64) -> Option<Kind> {
    Some(match number {
        62 | 63 | 65 | 67 | 69 | 286 => Kind::Reads,
        64 => Kind::Write,
        68 => Kind::WriteAt,
        66 => Kind::WriteVector,
        70 | 287 => Kind::WriteVectorAt,
        71 => Kind::SendFile,
        76 | 285 => Kind::Splice,
        _ => return None,
    })
}

#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64",
    target_arch = "loongarch64"
)))]
fn kind(_: u64) -> Option<Kind> {
    None
}

/// The call that a caller waits in, which reached a file with this inode number on this device.
pub(super) fn of(caller: Caller, file: (u64, u64)) -> Call {
    match outside::this() {
        Some(outside) => outside.call(caller.uid, caller.pid, file.1),
        None => seen(caller.pid, file),
    }
}

/// The call of a thread, as this process sees it. Calls on other files are not told.
pub(in crate::mount) fn seen(thread: u32, (device, inode): (u64, u64)) -> Call {
    let found = || {
        let (number, arguments) = parse(&waiting(&format!("/proc/{thread}/syscall"))?)?;
        Waiting { thread, device, inode, arguments }.means(kind(number)?)
    };
    found().unwrap_or(Call::Hidden)
}

/// Line of `/proc/THREAD/syscall` once the thread waits: it asked, but may not sleep yet.
fn waiting(name: &str) -> Option<String> {
    for tried in 0..TRIES {
        let text = system::text(name).ok()?;
        if text.trim() != "running" {
            return Some(text);
        }
        match tried {
            0..10 => std::thread::yield_now(),
            10..1000 => std::thread::sleep(Duration::from_micros(100)),
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    None
}

/// Number and arguments of a call: one decimal number, six with `0x` in front. A thread that is not in a call says `-1`
/// or `running`.
fn parse(text: &str) -> Option<(u64, [u64; 6])> {
    let mut words = text.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some((number, arguments))
}

/// An open file of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct OpenFile {
    position: u64,
    appends: bool,
}

impl OpenFile {
    /// Of `/proc/THREAD/fdinfo/N`.
    fn parse(text: &str) -> Option<Self> {
        let word = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let flags = u64::from_str_radix(word("flags:")?, 8).ok()?;
        Some(OpenFile { position: word("pos:")?.parse().ok()?, appends: flags & APPEND != 0 })
    }
}

struct Waiting {
    thread: u32,
    device: u64,
    inode: u64,
    arguments: [u64; 6],
}

/// Facts of an open file as the kernel knows them: nobody is asked, who might be this process.
struct Facts {
    device: u64,
    inode: u64,
    /// Of a regular file.
    size: Option<u64>,
}

impl Waiting {
    fn means(&self, kind: Kind) -> Option<Call> {
        let [first, second, third, fourth, fifth, _] = self.arguments;
        match kind {
            Kind::Reads => self.is_of_mount(first).then_some(Call::Reads),
            Kind::Write => self.writes(first, None, third),
            Kind::WriteAt => self.writes(first, Some(fourth), third),
            Kind::WriteVector => self.writes(first, None, self.length(first, second, third)?),
            // That of the file is asked for by -1.
            Kind::WriteVectorAt => {
                let offset = Some(fourth).filter(|offset| *offset != u64::MAX);
                self.writes(first, offset, self.length(first, second, third)?)
            }
            Kind::SendFile => self.moves(first, None, second, fourth),
            Kind::Splice if fourth == 0 => self.moves(third, None, first, fifth),
            Kind::Splice => self.moves(third, Some(fourth), first, fifth),
        }
    }

    fn writes(&self, file: u64, offset: Option<u64>, len: u64) -> Option<Call> {
        if !self.is_meant(file) {
            return None;
        }
        let name = self.of_file("fdinfo", file);
        let file = OpenFile::parse(&system::text(name).ok()?)?;
        let offset = if file.appends { None } else { Some(offset.unwrap_or(file.position)) };
        Some(Call::Writes { offset, len: len.min(MOST) })
    }

    /// Of bytes that come from another file, which may be shorter than is asked for. The offset is the address of one.
    fn moves(&self, target: u64, offset: Option<u64>, source: u64, len: u64) -> Option<Call> {
        if !self.is_meant(target) {
            // It is the source that is asked for.
            return self.is_of_mount(source).then_some(Call::Reads);
        }
        let offset = match offset {
            Some(address) => Some(self.memory(address, 8)?.first()?.to_owned()),
            None => None,
        };
        let there = self.facts(source).and_then(|facts| facts.size).unwrap_or(u64::MAX);
        self.writes(target, offset, len.min(there))
    }

    /// A line of `/proc/PID/fdinfo` of an open file.
    fn of_file(&self, what: &str, file: u64) -> String {
        // The kernel takes the lower half for the number.
        format!("/proc/{}/{what}/{}", self.thread, file & u64::from(u32::MAX))
    }

    fn facts(&self, file: u64) -> Option<Facts> {
        let wanted = StatxFlags::SIZE | StatxFlags::TYPE | StatxFlags::INO;
        let name = self.of_file("fd", file);
        let found = path::parts(name, path::UNASKED, wanted).ok()?;
        let is_regular = FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile;
        Some(Facts {
            device: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            size: is_regular.then_some(found.stx_size),
        })
    }

    fn is_of_mount(&self, file: u64) -> bool {
        self.facts(file).is_some_and(|facts| facts.device == self.device)
    }

    /// True if this open file is the one that is asked for.
    fn is_meant(&self, file: u64) -> bool {
        self.facts(file).is_some_and(|facts| (facts.device, facts.inode) == (self.device, self.inode))
    }

    /// Bytes in pieces of memory for a file, of which the caller has a list: pairs of an address and a length.
    fn length(&self, file: u64, list: u64, pieces: u64) -> Option<u64> {
        if pieces > PIECES_MOST || !self.is_meant(file) {
            return None;
        }
        let words = self.memory(list, pieces.checked_mul(16)?)?;
        Some(words.iter().skip(1).step_by(2).fold(0, |sum: u64, len| sum.saturating_add(*len)))
    }

    /// Words of the caller's memory.
    fn memory(&self, address: u64, len: u64) -> Option<Vec<u64>> {
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        let name = format!("/proc/{}/mem", self.thread);
        let memory = system::open(name, OFlags::RDONLY).ok()?;
        let read = rustix::io::pread(&memory, &mut bytes, address).ok()?;
        if read < bytes.len() {
            return None;
        }
        let words = bytes.chunks_exact(8);
        Some(words.map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_files_are_read_as_the_kernel_writes_them() {
        let line = "1 0x3 0x7f12 0x100000 0x0 0x0 0xff 0x7ffd 0x7f00\n";
        assert_eq!(parse(line), Some((1, [3, 0x7f12, 0x10_0000, 0, 0, 0xff])));
        for other in ["running\n", "-1 0x7ffd 0x7f00\n", "", "1 0x3", "1 3 4 5 6 7 8"] {
            assert_eq!(parse(other), None, "{other}");
        }
        let text = "pos:\t4096\nflags:\t0102001\nmnt_id:\t29\nino:\t12\n";
        assert_eq!(OpenFile::parse(text), Some(OpenFile { position: 4096, appends: true }));
        let text = "pos:\t0\nflags:\t0100002\n";
        assert_eq!(OpenFile::parse(text), Some(OpenFile::default()));
        assert_eq!(OpenFile::parse("pos:\tmany\nflags:\t0\n"), None);
    }

    /// A thread that waits in a call, and one that looks at it.
    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn a_waiting_call_shows_where_it_writes() {
        use std::io::{IoSlice, Write};

        let (mut read, mut write) = std::io::pipe().unwrap();
        let facts = rustix::fs::fstat(&write).unwrap();
        let file = (facts.st_dev, facts.st_ino);
        let written = std::thread::scope(|scope| {
            let (sender, receiver) = std::sync::mpsc::channel();
            scope.spawn(move || {
                sender.send(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()).unwrap();
                // Longer than a pipe holds: it waits.
                let pieces = [IoSlice::new(&[1; 300_000]), IoSlice::new(&[2; 21])];
                assert_eq!(write.write_vectored(&pieces).unwrap(), 300_021);
            });
            let thread = receiver.recv().unwrap();
            let looks = (0..2000).map(|_| {
                std::thread::sleep(Duration::from_millis(1));
                seen(thread, file)
            });
            let found = looks.into_iter().find(|call| *call != Call::Hidden);
            // Of the same call on another file, or another device, nothing is said.
            for other in [(file.0, file.1 + 1), (file.0 + 1, file.1)] {
                assert_eq!(seen(thread, other), Call::Hidden);
            }
            std::io::copy(&mut read, &mut std::io::sink()).unwrap();
            found
        });
        assert_eq!(written, Some(Call::Writes { offset: Some(0), len: 300_021 }));
    }
}
