//! Putting blocks into a log that was brought in already, as its next transaction.
//!
//! Fast commits turn into many blocks that only fit each other together. Once they are a transaction, the number
//! of the running one is another, and the fast commits of before do not count any more: one or the other does at any
//! moment, so that replay can be cut short anywhere (I38).

use std::collections::BTreeMap;

use ondisk::journal::log::{CommitTime, Tag, TransactionCrc, escape};

use super::location::Log;
use super::scan::End;
use crate::{Device, Error, Result};

fn failed(source: std::io::Error) -> Error {
    Error::io("writing fast commits to the log", source)
}

/// Makes blocks stable as one transaction behind the end of a log, of which all before is in its place and stable.
///
/// # Errors
/// The device's failure; more blocks than a log can hold at once.
pub(super) fn deposit(
    device: &dyn Device,
    log: &Log,
    end: End,
    blocks: &BTreeMap<u64, Box<[u8]>>,
) -> Result<()> {
    let need = blocks.len() + blocks.len().div_ceil(log.format.tags_max()) + 1;
    if need >= log.length() as usize {
        return Err(Error::Unsupported(format!(
            "fast commits change {} blocks, for which the log of {} has no room; `plat check -y` brings them in",
            blocks.len(),
            log.length()
        )));
    }
    let mut superblock = log.superblock;
    superblock.s_start.set(end.at);
    superblock.s_sequence.set(end.sequence);
    superblock.seal();
    device.write_at(log.offset(0)?, zerocopy::IntoBytes::as_bytes(&superblock)).map_err(failed)?;
    device.flush().map_err(failed)?;
    let mut writing =
        LogWriter { device, log, sequence: end.sequence, at: end.at, crc: TransactionCrc::default() };
    writing.body(&blocks.iter().map(|(block, bytes)| (*block, &**bytes)).collect::<Vec<_>>())?;
    device.flush().map_err(failed)?;
    writing.commit()?;
    device.flush().map_err(failed)
}

struct LogWriter<'l> {
    device: &'l dyn Device,
    log: &'l Log,
    sequence: u32,
    at: u32,
    crc: TransactionCrc,
}

impl LogWriter<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let offset = self.log.offset(self.at)?;
        self.at = self.log.next(self.at);
        self.device.write_at(offset, bytes).map_err(failed)
    }

    fn body(&mut self, blocks: &[(u64, &[u8])]) -> Result<()> {
        let format = self.log.format;
        for chunk in blocks.chunks(format.tags_max()) {
            let mut copies = Vec::with_capacity(chunk.len());
            for (block, bytes) in chunk {
                let mut copy = bytes.to_vec();
                let escaped = escape(&mut copy);
                let checksum = format.tag_checksum(self.sequence, &copy);
                copies.push((Tag { block: *block, escaped, checksum }, copy));
            }
            let tags: Vec<Tag> = copies.iter().map(|(tag, _)| *tag).collect();
            let mut descriptor = vec![0; format.block_len()];
            format.write_descriptor(self.sequence, &tags, &mut descriptor);
            for bytes in std::iter::once(&descriptor).chain(copies.iter().map(|(_, copy)| copy)) {
                self.crc.add(bytes);
                self.put(bytes)?;
            }
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        let mut block = vec![0; self.log.format.block_len()];
        self.log.format.write_commit(self.sequence, CommitTime::default(), self.crc.value(), &mut block);
        self.put(&block)
    }
}
