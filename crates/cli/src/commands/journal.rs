//! `plat journal`: what lies in the journal of an image, read as it stands on the device.

use std::ffi::OsString;

use clap::Args;
use ondisk::inode::Timestamp;
use ondisk::journal::fast_commit::NameChange;
use ondisk::units::Block;
use platfs_forensics::RawImage;
use platfs_forensics::log::{Copy, FastCommits, Journal as Log, Record, RecordKind, State, Transaction};
use serde_json::{Map, Value, json};

use super::cage;
use super::json as output;
use super::parts::Named;
use crate::console::{Console, Failure};
use crate::reading;
use crate::sandbox::Plan;
use crate::text::{self, Shown, put_bytes};

/// Arguments of `plat journal`.
#[derive(Args, Debug)]
pub struct Journal {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`.
    image: OsString,
    /// The blocks of each transaction, too, and whose they are now.
    #[arg(short = 'l', long)]
    blocks: bool,
    /// Only the copies and revocations of this block.
    #[arg(short, long, value_name = "N", conflicts_with = "blocks")]
    block: Option<u64>,
    /// The bytes of each copy of the block, in hexadecimal.
    #[arg(short = 'x', long, requires = "block")]
    hex: bool,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

/// Views to show, and the data that they need.
struct Shows<'a> {
    ground: &'a RawImage,
    log: &'a Log,
    /// Owners of the blocks, where they are asked for.
    named: Option<Named>,
    /// The block that is asked about.
    only: Option<Block>,
    hex: bool,
}

impl Journal {
    pub(super) fn cage(&self) -> Option<Plan> {
        cage::reading(&[&self.image], &[], None)
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let (ground, name) = reading::bare_ground(&self.image, console)?;
        let failed = |error: platfs_forensics::Error| {
            Failure::about(&name, reading::no_superblock(&**ground.device(), &name, &error.into()))
        };
        let Some(log) = Log::read(&ground).map_err(failed)? else {
            return Err(Failure::about(&name, "has no journal"));
        };
        let named = if self.blocks || self.block.is_some() {
            Some(owners(&ground, &log, self.block.map(Block)).map_err(failed)?)
        } else {
            None
        };
        let shows = Shows { ground: &ground, log: &log, named, only: self.block.map(Block), hex: self.hex };
        if self.json {
            output::print(console.out, shows.object().map_err(failed)?)?;
        } else {
            shows.text(console, failed)?;
        }
        let problems = shows.named.iter().flat_map(Named::problems);
        problems.into_iter().for_each(|problem| console.warn(format!("{name}: {problem}")));
        Ok(())
    }
}

/// Owners of all blocks of which there are copies, or of one.
fn owners(ground: &RawImage, log: &Log, only: Option<Block>) -> platfs_forensics::Result<Named> {
    let last = ground.geometry().blocks;
    let blocks: Vec<Block> = match only {
        Some(block) => vec![block],
        // A damaged journal may hold copies of anything.
        None => {
            let copies = log.transactions.iter().flat_map(|one| &one.copies);
            copies.map(|copy| copy.block).filter(|block| block.0 < last).collect()
        }
    };
    Named::of(ground, &blocks)
}

fn state(state: State) -> (&'static str, &'static str) {
    match state {
        State::Waiting => ("waiting", "waits for replay"),
        State::Checkpointed => ("checkpointed", "is on the volume"),
        State::Cut => ("cut", "does not count"),
    }
}

fn committed(transaction: &Transaction) -> Option<String> {
    let time = transaction.time?;
    let seconds = i64::try_from(time.seconds).unwrap_or(i64::MAX).min(Timestamp::LATEST_EXTRA);
    Some(text::time(Timestamp { seconds, nanoseconds: time.nanoseconds.min(999_999_999) }))
}

impl Shows<'_> {
    fn copies<'t>(&self, transaction: &'t Transaction) -> Vec<&'t Copy> {
        let wanted = |copy: &&Copy| self.only.is_none_or(|only| copy.block == only);
        transaction.copies.iter().filter(wanted).collect()
    }

    fn revoked(&self, transaction: &Transaction) -> Vec<u64> {
        let wanted = |block: &u64| self.only.is_none_or(|only| *block == only.0);
        transaction.revoked.iter().copied().filter(wanted).collect()
    }

    fn words(&self, block: Block) -> String {
        let per_block = self.ground.geometry().inodes_per_block();
        let words = self.named.as_ref().map(|named| named.words(block, per_block)).unwrap_or_default();
        let free = self.named.as_ref().is_some_and(|named| named.in_use(block) == Some(false));
        match words.is_empty() {
            false => format!(": {}", words.join("; ")),
            true if free => ": free now".to_owned(),
            true => String::new(),
        }
    }

    fn text(
        &self,
        console: &mut Console<'_>,
        failed: impl Fn(platfs_forensics::Error) -> Failure,
    ) -> Result<(), Failure> {
        let raw = self.log.superblock();
        if self.only.is_none() {
            let (blocks, size) = (raw.s_maxlen.get(), raw.s_blocksize.get());
            writeln!(console.out, "Journal:  {blocks} blocks of {size} bytes")?;
            writeln!(
                console.out,
                "Log:      blocks {} to {}",
                raw.s_first.get(),
                raw.log_end().saturating_sub(1)
            )?;
            writeln!(console.out, "Features: {}", raw.feature_names().join(" "))?;
            let (start, sequence) = (raw.s_start.get(), raw.s_sequence.get());
            match raw.is_clean() {
                true => writeln!(console.out, "State:    clean; the next transaction is {sequence}")?,
                false => {
                    writeln!(console.out, "State:    begins at block {start} with transaction {sequence}")?
                }
            }
        }
        for transaction in &self.log.transactions {
            self.transaction(console, transaction, &failed)?;
        }
        match &self.log.fast {
            Some(fast) if self.only.is_none() => self.fast(console, fast),
            _ => Ok(()),
        }
    }

    fn transaction(
        &self,
        console: &mut Console<'_>,
        transaction: &Transaction,
        failed: impl Fn(platfs_forensics::Error) -> Failure,
    ) -> Result<(), Failure> {
        let (copies, revoked) = (self.copies(transaction), self.revoked(transaction));
        if self.only.is_some() && copies.is_empty() && revoked.is_empty() {
            return Ok(());
        }
        let when = committed(transaction).unwrap_or_else(|| "not committed".to_owned());
        let Transaction { sequence, first, .. } = transaction;
        let (_, state) = state(transaction.state);
        let lost = if transaction.beginning_lost { ", its beginning is lost" } else { "" };
        write!(console.out, "transaction {sequence} {state}: {when}, from block {first}{lost}; ")?;
        writeln!(console.out, "{} copies, {} revoked", copies.len(), revoked.len())?;
        for problem in &transaction.problems {
            writeln!(console.out, "  wrong: {problem}")?;
        }
        if self.named.is_none() {
            return Ok(());
        }
        for copy in copies {
            let (wrong, words) =
                (if copy.right == Some(false) { " (wrong)" } else { "" }, self.words(copy.block));
            writeln!(console.out, "  block {} in {}{wrong}{words}", copy.block, copy.at)?;
            if self.hex {
                let bytes = self.log.contents(copy).map_err(&failed)?;
                dump(console, &bytes)?;
            }
        }
        for block in revoked {
            writeln!(console.out, "  revoked {block}")?;
        }
        Ok(())
    }

    fn fast(&self, console: &mut Console<'_>, fast: &FastCommits) -> Result<(), Failure> {
        let Some(transaction) = fast.transaction else { return Ok(()) };
        let state = if fast.waiting { "wait for replay" } else { "do not count" };
        writeln!(console.out, "{} fast commits after transaction {transaction} {state}", fast.commits)?;
        if self.named.is_some() {
            for record in &fast.records {
                writeln!(console.out, "  {}", record_in_words(record))?;
            }
        }
        Ok(())
    }

    fn object(&self) -> platfs_forensics::Result<Map<String, Value>> {
        let raw = self.log.superblock();
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
        put("block_size", raw.s_blocksize.get().into());
        put("blocks", raw.s_maxlen.get().into());
        put("first", raw.s_first.get().into());
        put("end", raw.log_end().into());
        put("features", raw.feature_names().into());
        put("clean", raw.is_clean().into());
        put("start", raw.s_start.get().into());
        put("sequence", raw.s_sequence.get().into());
        let mut all = Vec::new();
        for transaction in &self.log.transactions {
            let (copies, revoked) = (self.copies(transaction), self.revoked(transaction));
            if self.only.is_none() || !copies.is_empty() || !revoked.is_empty() {
                all.push(self.transaction_object(transaction, &copies, revoked)?);
            }
        }
        put("transactions", all.into());
        if let Some(fast) = self.log.fast.as_ref().filter(|_| self.only.is_none()) {
            let records = fast.records.iter().map(|record| Value::Object(record_object(record)));
            let (transaction, records) = (fast.transaction, Value::Array(records.collect()));
            put(
                "fast_commits",
                json!({
                    "transaction": transaction,
                    "commits": fast.commits,
                    "waiting": fast.waiting,
                    "records": records,
                }),
            );
        }
        Ok(object)
    }

    fn transaction_object(
        &self,
        transaction: &Transaction,
        copies: &[&Copy],
        revoked: Vec<u64>,
    ) -> platfs_forensics::Result<Value> {
        let mut all = Vec::new();
        for copy in copies {
            let mut object = Map::new();
            let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
            put("block", copy.block.0.into());
            put("at", copy.at.into());
            put("escaped", copy.escaped.into());
            put("right", copy.right.into());
            if let Some(named) = &self.named {
                put("owners", named.owners(copy.block));
            }
            if self.hex {
                put("hex", text::hex(&self.log.contents(copy)?).into());
            }
            all.push(Value::Object(object));
        }
        Ok(json!({
            "sequence": transaction.sequence,
            "state": state(transaction.state).0,
            "committed": committed(transaction),
            "first": transaction.first,
            "end": transaction.end,
            "beginning_lost": transaction.beginning_lost,
            "copies": all,
            "revoked": revoked,
            "problems": transaction.problems,
        }))
    }
}

/// Bytes in lines of sixteen; lines that repeat the one before are left out, as hexdump(1) does.
fn dump(console: &mut Console<'_>, bytes: &[u8]) -> Result<(), Failure> {
    let (mut last, mut starred) = (None, false);
    for (index, line) in bytes.chunks(16).enumerate() {
        if last == Some(line) {
            if !std::mem::replace(&mut starred, true) {
                writeln!(console.out, "    *")?;
            }
            continue;
        }
        (last, starred) = (Some(line), false);
        let letters: String =
            line.iter().map(|byte| if (32..127).contains(byte) { char::from(*byte) } else { '.' }).collect();
        writeln!(console.out, "    {:05x}  {}  {letters}", index * 16, text::hex(line))?;
    }
    Ok(())
}

fn change_name(change: NameChange) -> &'static str {
    match change {
        NameChange::Create => "create",
        NameChange::Link => "link",
        NameChange::Unlink => "unlink",
    }
}

fn record_in_words(record: &Record) -> String {
    match &record.kind {
        RecordKind::AddRange { inode, extent } => format!(
            "inode {inode}: file blocks from {} at block {}, {} of them",
            extent.logical, extent.start, extent.count
        ),
        RecordKind::DeleteRange { inode, first, count } => {
            format!("inode {inode}: {count} file blocks from {first} are a hole")
        }
        RecordKind::Name { change, parent, inode, name } => {
            format!("{} in inode {parent}: {} is inode {inode}", change_name(*change), Shown(name))
        }
        RecordKind::Inode(inode) => format!("inode {inode}: its record"),
        RecordKind::Tail(transaction) => format!("end, after transaction {transaction}"),
        RecordKind::Head(transaction) => format!("beginning, after transaction {transaction}"),
    }
}

fn record_object(record: &Record) -> Map<String, Value> {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("at", record.at.into());
    match &record.kind {
        RecordKind::AddRange { inode, extent } => {
            put("kind", "add-range".into());
            put("inode", (*inode).into());
            put("file_block", extent.logical.0.into());
            put("disk_block", extent.start.0.into());
            put("count", extent.count.into());
            put("unwritten", extent.unwritten.into());
        }
        RecordKind::DeleteRange { inode, first, count } => {
            put("kind", "delete-range".into());
            put("inode", (*inode).into());
            put("file_block", (*first).into());
            put("count", (*count).into());
        }
        RecordKind::Name { change, parent, inode, name } => {
            put("kind", change_name(*change).into());
            put("parent", (*parent).into());
            put("inode", (*inode).into());
            put_bytes(&mut object, "name", name);
        }
        RecordKind::Inode(inode) => {
            put("kind", "inode".into());
            put("inode", (*inode).into());
        }
        RecordKind::Tail(transaction) => {
            put("kind", "tail".into());
            put("transaction", (*transaction).into());
        }
        RecordKind::Head(transaction) => {
            put("kind", "head".into());
            put("transaction", (*transaction).into());
        }
    }
    object
}
