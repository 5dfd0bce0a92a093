//! A database: every transaction appends to a log that is made stable; changed pages are written in place at
//! checkpoints, in random places, made stable, and the log begins again under its old blocks. Each client is a database.

use std::collections::BTreeSet;

use super::Scale;
use crate::numbers::Numbers;
use crate::system::{Op, Phase, Stream};

pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("clients", "databases, all at once"),
    ("size", "bytes of the table of each"),
    ("transactions", "of each"),
    ("checkpoint", "transactions between checkpoints"),
];

/// Bytes of a page, pages that a transaction changes, and bytes that it reads.
const PAGE: u64 = 8192;
const CHANGED: u32 = 4;
const LOG: u64 = 16 << 20;

pub(super) fn phases(scale: &Scale) -> Result<Vec<Phase>, String> {
    let clients = scale.number("clients", 4, 2)?.max(1);
    let size = scale.number("size", 512 << 20, 4 << 20)?.max(PAGE);
    let transactions = scale.number("transactions", 5_000, 100)?;
    let checkpoint = scale.number("checkpoint", 1_000, 30)?.max(1);
    let load = (0..clients).map(|client| load(client, size)).collect();
    let run = (0..clients).map(|client| -> Stream {
        let mut database = Database {
            pages: size / PAGE,
            numbers: Numbers::new(scale.seed.wrapping_mul(1024).wrapping_add(client)),
            changed: BTreeSet::new(),
            end: 0,
        };
        let path = |what: &str| format!("db.{client}/{what}").into();
        let open = [
            Op::Open { slot: 0, path: path("table"), create: false },
            Op::Open { slot: 1, path: path("log"), create: false },
        ];
        let calls = (1..=transactions).flat_map(move |number| database.transaction(number % checkpoint == 0));
        Box::new(open.into_iter().chain(calls).chain([Op::Close(0), Op::Close(1)]))
    });
    Ok(vec![Phase::new("load", load), Phase::new("transactions", run.collect())])
}

/// A table is loaded in order; a log has all its blocks from the start.
fn load(client: u64, size: u64) -> Stream {
    let path = |what: &str| -> Box<str> { format!("db.{client}{what}").into() };
    let begin = [Op::MakeDirectory(path("")), Op::Open { slot: 0, path: path("/table"), create: true }];
    let pieces = (0..size.div_ceil(1 << 20)).map(move |at| {
        let offset = at << 20;
        Op::Write { slot: 0, offset, len: (size - offset).min(1 << 20) }
    });
    let end = [
        Op::Sync { slot: 0, data_only: false },
        Op::Close(0),
        Op::Open { slot: 0, path: path("/log"), create: true },
        Op::Reserve { slot: 0, offset: 0, len: LOG },
        Op::Sync { slot: 0, data_only: false },
        Op::Close(0),
    ];
    Box::new(begin.into_iter().chain(pieces).chain(end))
}

struct Database {
    pages: u64,
    numbers: Numbers,
    changed: BTreeSet<u64>,
    /// Where the log goes on.
    end: u64,
}

impl Database {
    fn transaction(&mut self, checkpoint: bool) -> Vec<Op> {
        let mut calls = Vec::new();
        for _ in 0..CHANGED {
            // Four in five changes fall on a fifth of the pages.
            let pages = if self.numbers.chance(0.8) { self.pages.div_ceil(5) } else { self.pages };
            let page = self.numbers.below(pages);
            if self.changed.insert(page) {
                calls.push(Op::Read { slot: 0, offset: page * PAGE, len: PAGE });
            }
        }
        let len = PAGE * u64::from(self.numbers.between(1, 3));
        if self.end + len > LOG {
            self.end = 0;
        }
        calls.push(Op::Write { slot: 1, offset: self.end, len });
        calls.push(Op::Sync { slot: 1, data_only: true });
        self.end += len;
        if checkpoint {
            let pages = std::mem::take(&mut self.changed);
            calls.extend(pages.into_iter().map(|page| Op::Write { slot: 0, offset: page * PAGE, len: PAGE }));
            calls.push(Op::Sync { slot: 0, data_only: false });
            self.end = 0;
        }
        calls
    }
}
