//! The walk over the blocks of a log.

use ondisk::journal::BlockKind;
use ondisk::journal::log::{HEADER_LEN, Header, TransactionCrc, is_later};
use ondisk::units::Block;
use platfs_device::journal::Log;
use platfs_device::{Device, Error, Result};

use super::{Copy, State, Transaction, read};

/// All transactions that lie in a log, by their numbers.
pub(super) fn transactions(log: &Log, device: &dyn Device) -> Result<Vec<Transaction>> {
    let (at, left) = (oldest(log, device)?, log.length());
    let walk = Walk { log, device, at, left, open: None, crc: TransactionCrc::default(), done: Vec::new() };
    let mut done = walk.all()?;
    // Numbers go round; of two transactions one is the later, and equal numbers stay in the order of the ring.
    done.sort_by(|one, other| {
        match (is_later(one.sequence, other.sequence), one.sequence == other.sequence) {
            (_, true) => std::cmp::Ordering::Equal,
            (true, _) => std::cmp::Ordering::Greater,
            (false, _) => std::cmp::Ordering::Less,
        }
    });
    mark_waiting(log, &mut done);
    Ok(done)
}

/// Those that replay will bring in: complete ones that follow each other from the start that the superblock names.
fn mark_waiting(log: &Log, done: &mut [Transaction]) {
    let (mut at, mut sequence) = (log.superblock.s_start.get(), log.superblock.s_sequence.get());
    if log.superblock.is_clean() {
        return;
    }
    while let Some(next) = done
        .iter_mut()
        .find(|one| one.sequence == sequence && one.first == at && one.state == State::Checkpointed)
    {
        next.state = State::Waiting;
        (at, sequence) = (next.end, sequence.wrapping_add(1));
    }
}

fn header(log: &Log, device: &dyn Device, at: u32) -> Result<Option<Header>> {
    let mut bytes = [0; HEADER_LEN];
    let read = device.read_at(log.offset(at)?, &mut bytes);
    read.map_err(|source| Error::io(format!("reading block {at} of the journal"), source))?;
    Ok(Header::parse(&bytes))
}

/// The block behind the commit that was written last: what follows it is the oldest.
fn oldest(log: &Log, device: &dyn Device) -> Result<u32> {
    let first = log.superblock.s_first.get();
    let mut last: Option<(u32, u32)> = None;
    for at in first..log.superblock.log_end() {
        let Some(header) = header(log, device, at)?.filter(|header| header.kind == Some(BlockKind::Commit))
        else {
            continue;
        };
        if last.is_none_or(|(sequence, _)| is_later(header.sequence, sequence)) {
            last = Some((header.sequence, at));
        }
    }
    Ok(last.map_or(first, |(_, at)| log.next(at)))
}

/// Content in front of a block of the log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// The transaction that was written last: it may have taken blocks of the one that follows.
    Newest,
    /// Copies whose descriptor is gone.
    Copies,
    /// Space that was never used.
    Zeros,
    /// A block of a transaction.
    Own,
}

impl Before {
    /// Returns the state behind a block that belongs to no transaction. A lost copy of zeros tells nothing that could matter.
    fn behind(self, bytes: &[u8]) -> Before {
        let is_zero = bytes.iter().all(|byte| *byte == 0);
        if is_zero && self != Before::Copies { Before::Zeros } else { Before::Copies }
    }
}

struct Walk<'l> {
    log: &'l Log,
    device: &'l dyn Device,
    at: u32,
    left: u32,
    /// The transaction in progress.
    open: Option<Transaction>,
    crc: TransactionCrc,
    done: Vec<Transaction>,
}

impl Walk<'_> {
    fn step(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let at = self.at;
        self.at = self.log.next(at);
        Some(at)
    }

    fn all(mut self) -> Result<Vec<Transaction>> {
        let mut before = Before::Newest;
        while let Some(at) = self.step() {
            let bytes = read(self.log, self.device, at)?;
            let header = Header::parse(&bytes);
            let own = header.and_then(|header| Some((header.kind?, header.sequence)));
            let Some((kind, sequence)) = own.filter(|(kind, _)| {
                matches!(kind, BlockKind::Descriptor | BlockKind::Revoke | BlockKind::Commit)
            }) else {
                self.close();
                before = before.behind(&bytes);
                continue;
            };
            if self.open.as_ref().is_some_and(|open| open.sequence != sequence) {
                self.close();
            }
            let lost = matches!(std::mem::replace(&mut before, Before::Own), Before::Newest | Before::Copies);
            self.open.get_or_insert_with(|| begun(sequence, at, lost));
            match kind {
                BlockKind::Descriptor => self.descriptor(&bytes)?,
                BlockKind::Revoke => self.revocation(&bytes),
                _ => self.commit(&bytes),
            }
        }
        self.close();
        Ok(self.done)
    }

    fn problem(&mut self, problem: String) {
        if let Some(open) = &mut self.open {
            open.problems.push(problem);
        }
    }

    fn descriptor(&mut self, bytes: &[u8]) -> Result<()> {
        let format = self.log.format;
        if !format.tail_is_right(bytes) {
            self.problem("a checksum of a descriptor is wrong".to_owned());
        }
        self.crc.add(bytes);
        for tag in format.tags(bytes) {
            if self.left == 0 || header(self.log, self.device, self.at)?.is_some() {
                self.problem("a descriptor has more tags than copies follow".to_owned());
                return Ok(());
            }
            let Some(at) = self.step() else { break };
            let mut right = None;
            if format.seals_blocks() || format.seals_transactions() {
                let copy = read(self.log, self.device, at)?;
                self.crc.add(&copy);
                let sequence = self.open.as_ref().map_or(0, |open| open.sequence);
                right = format.seals_blocks().then(|| format.copy_is_right(&tag, sequence, &copy));
            }
            if right == Some(false) {
                self.problem(format!("the copy of block {} has a wrong checksum", tag.block));
            }
            if let Some(open) = &mut self.open {
                open.copies.push(Copy { block: Block(tag.block), at, escaped: tag.escaped, right });
            }
        }
        Ok(())
    }

    fn revocation(&mut self, bytes: &[u8]) {
        if !self.log.format.tail_is_right(bytes) {
            self.problem("a checksum of a revocation is wrong".to_owned());
        }
        match self.log.format.revoked(bytes) {
            Ok(revoked) => {
                if let Some(open) = &mut self.open {
                    open.revoked.extend(revoked);
                }
            }
            Err(error) => self.problem(error.to_string()),
        }
    }

    fn commit(&mut self, bytes: &[u8]) {
        let format = self.log.format;
        let lost = self.open.as_ref().is_some_and(|open| open.beginning_lost);
        // The sum of the first version covers all blocks, of which some may be lost.
        let right = format.commit_is_right(bytes, self.crc.value()) || format.seals_transactions() && lost;
        if !right {
            self.problem("the checksum of the commit is wrong".to_owned());
        }
        if let Some(open) = &mut self.open {
            open.time = Some(format.commit_time(bytes));
            if open.problems.is_empty() {
                open.state = State::Checkpointed;
            }
        }
        self.close();
    }

    fn close(&mut self) {
        self.crc = TransactionCrc::default();
        let end = self.at;
        if let Some(mut open) = self.open.take() {
            if open.time.is_none() {
                open.problems.push("it has no commit".to_owned());
            }
            open.end = end;
            self.done.push(open);
        }
    }
}

fn begun(sequence: u32, first: u32, beginning_lost: bool) -> Transaction {
    Transaction {
        sequence,
        state: State::Cut,
        time: None,
        first,
        end: first,
        beginning_lost,
        copies: Vec::new(),
        revoked: Vec::new(),
        problems: Vec::new(),
    }
}
