//! A file server: large files that get all their blocks at once, are written and read past the host's memory, and
//! are replaced whole, after days of the same.
//!
//! Sizes: every octave from the smallest to the largest is as likely as any other. Each client has files and
//! directories of its own, so that its calls are the same whatever the others do. The phases: `fill` makes files until a
//! share of the volume is in use, `churn` replaces as many, `service` is what is measured: a random file is cut to nothing
//! and removed, a new one laid out, a part of it written and a part of another read.

use std::collections::VecDeque;

use super::Scale;
use crate::numbers::{Numbers, count};
use crate::system::{Name, Op, Phase, Stream};

pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("volume", "bytes of the volume"),
    ("fill", "percent of it in use"),
    ("churn", "percent of the files that are replaced before the service"),
    ("clients", "clients at once"),
    ("calls", "files that each replaces in the service"),
    ("largest", "bytes of the largest file; the smallest has a 128th"),
    ("pause", "microseconds between a client's requests"),
];

/// Bytes of a direct read or write.
const PIECE: u64 = 64 << 10;
/// Directories of each client.
const DIRECTORIES: u64 = 64;
/// Reads and writes for each file that is replaced.
const REQUESTS: u32 = 4;

pub(super) fn phases(scale: &Scale) -> Result<Vec<Phase>, String> {
    let volume = scale.number("volume", 64 << 30, 1 << 30)?;
    let clients = scale.number("clients", 8, 4)?.max(1);
    let share = volume / 100 * scale.number("fill", 80, 70)?.min(90) / clients;
    let churn = scale.number("churn", 100, 100)?;
    let calls = scale.number("calls", 500, 20)?;
    let largest = scale.number("largest", 32 << 20, 8 << 20)?.clamp(PIECE * 128, 1 << 40);
    let pause = scale.number("pause", 300_000, 100_000)?.saturating_mul(1000);
    let mut phases = vec![Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    for client in 0..clients {
        let mut server = Server {
            client,
            largest,
            numbers: Numbers::new(scale.seed.wrapping_mul(64).wrapping_add(client)),
            files: Vec::new(),
            next: 0,
            calls: VecDeque::new(),
        };
        server.fill(share);
        phases[0].push(server.take());
        let replaced = server.files.len() as u64 * churn / 100;
        (0..replaced).for_each(|_| server.replace());
        phases[1].push(server.take());
        // What is in memory then is what the service needs.
        for part in [2, 3] {
            for _ in 0..if part == 2 { calls / 4 } else { calls } {
                server.replace();
                (0..REQUESTS).for_each(|_| server.request(pause));
            }
            phases[part].push(server.take());
        }
    }
    let names = ["fill", "churn", "warm", "service"];
    Ok(names.into_iter().zip(phases).map(|(name, clients)| Phase::new(name, clients)).collect())
}

struct Stored {
    path: Name,
    len: u64,
}

struct Server {
    client: u64,
    largest: u64,
    numbers: Numbers,
    files: Vec<Stored>,
    next: u64,
    calls: VecDeque<Op>,
}

impl Server {
    fn take(&mut self) -> Stream {
        Box::new(std::mem::take(&mut self.calls).into_iter())
    }

    fn directory(&self, number: u64) -> String {
        format!("service.{}.{number}", self.client)
    }

    fn fill(&mut self, share: u64) {
        for directory in 0..DIRECTORIES {
            self.calls.push_back(Op::MakeDirectory(self.directory(directory).into()));
        }
        let mut used = 0;
        while used < share {
            used += self.create();
            self.calls.push_back(Op::Close(0));
        }
    }

    /// A new file in slot 0, all its blocks at once; its length.
    fn create(&mut self) -> u64 {
        let pieces = u32::try_from(self.largest / PIECE).unwrap_or(u32::MAX);
        let least = f64::from(pieces) / 128.0;
        let len = PIECE * u64::from(count(self.numbers.log_uniform(least, f64::from(pieces)), pieces).max(1));
        let directory = self.numbers.below(DIRECTORIES);
        let path: Name = format!("{}/{}", self.directory(directory), self.next).into();
        self.next += 1;
        self.calls.push_back(Op::Open { slot: 0, path: path.clone(), create: true });
        self.calls.push_back(Op::Reserve { slot: 0, offset: 0, len });
        self.files.push(Stored { path, len });
        len
    }

    /// A random file goes, a new one comes.
    fn replace(&mut self) {
        let at = self.numbers.index(self.files.len());
        if at < self.files.len() {
            let Stored { path, .. } = self.files.swap_remove(at);
            self.calls.extend([
                Op::Open { slot: 0, path: path.clone(), create: false },
                Op::Truncate { slot: 0, len: 0 },
                Op::Close(0),
                Op::Remove(path),
            ]);
        }
        self.create();
        self.calls.push_back(Op::Close(0));
    }

    /// Writes a part of the newest file and reads one of any.
    fn request(&mut self, pause: u64) {
        let (newest, any) = (self.files.len().saturating_sub(1), self.numbers.index(self.files.len()));
        for (at, write) in [(newest, true), (any, false)] {
            let Some(Stored { path, len }) = self.files.get(at) else { continue };
            let offset = self.numbers.below(len / PIECE) * PIECE;
            self.calls.extend([
                Op::Think(pause),
                Op::Open { slot: 0, path: path.clone(), create: false },
                Op::Direct { slot: 0, offset, len: PIECE, write },
                Op::Close(0),
            ]);
        }
    }
}
