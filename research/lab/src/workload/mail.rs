//! A mail spool in maildirs: delivered under a temporary name, made stable, moved to `new`; read and moved to `cur`;
//! deleted when old. Each client is a mailbox.

use std::collections::VecDeque;

use super::Scale;
use crate::numbers::{Numbers, count};
use crate::system::{Op, Phase, Stream};

pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("clients", "mailboxes, all at once"),
    ("messages", "delivered to each"),
    ("keep", "messages that a mailbox keeps"),
];

/// Bytes of the largest message.
const LARGEST: u32 = 8 << 20;

pub(super) fn phases(scale: &Scale) -> Result<Vec<Phase>, String> {
    let clients = scale.number("clients", 32, 4)?.max(1);
    let messages = scale.number("messages", 2_000, 50)?;
    let keep = scale.number("keep", 500, 10)?;
    let seed = |client: u64| Numbers::new(scale.seed.wrapping_mul(4096).wrapping_add(client));
    let streams = (0..clients).map(|client| -> Stream {
        let mut mailbox = Mailbox { client, numbers: seed(client), read: VecDeque::new(), keep };
        Box::new((0..=messages).flat_map(move |message| mailbox.step(message)))
    });
    let sync: Stream = Box::new(std::iter::once(Op::SyncAll));
    Ok(vec![Phase::new("mail", streams.collect()), Phase::new("sync", vec![sync])])
}

struct Mailbox {
    client: u64,
    numbers: Numbers,
    /// Messages in `cur`, the oldest first.
    read: VecDeque<u64>,
    keep: u64,
}

impl Mailbox {
    fn path(&self, directory: &str, message: u64) -> Box<str> {
        format!("mail.{}/{directory}/{message}", self.client).into()
    }

    /// Its directories first, then a message each time.
    fn step(&mut self, message: u64) -> Vec<Op> {
        let directory = |name: &str| Op::MakeDirectory(format!("mail.{}{name}", self.client).into());
        if message == 0 {
            return ["", "/tmp", "/new", "/cur"].map(directory).into();
        }
        // Mail is small but for what is attached to it: a median of 4 KiB, a mean of about 30.
        let len = u64::from(count(self.numbers.lognormal(8.3, 2.0), LARGEST).max(200));
        let (tmp, new, cur) =
            (self.path("tmp", message), self.path("new", message), self.path("cur", message));
        let mut calls = vec![
            Op::Open { slot: 0, path: tmp.clone(), create: true },
            Op::Write { slot: 0, offset: 0, len },
            Op::Sync { slot: 0, data_only: false },
            Op::Close(0),
            Op::Rename(tmp, new.clone()),
        ];
        let fetched = [
            Op::List(format!("mail.{}/new", self.client).into()),
            Op::Open { slot: 0, path: new.clone(), create: false },
            Op::Read { slot: 0, offset: 0, len },
            Op::Close(0),
            Op::Rename(new, cur),
        ];
        calls.extend(fetched);
        self.read.push_back(message);
        if self.read.len() as u64 > self.keep {
            // Most of what is deleted is old; some goes unread.
            let at = if self.numbers.chance(0.3) { self.numbers.index(self.read.len()) } else { 0 };
            calls.extend(self.read.remove(at).map(|old| Op::Remove(self.path("cur", old))));
        }
        calls
    }
}
