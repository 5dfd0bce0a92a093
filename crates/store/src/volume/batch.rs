//! Writes since the last object of the log: bytes and extents, within the bounds of one object.

use platfs_device::units::bounded;
use platfs_device::{invariant, invariant_or};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::extents::{Extents, Source};
use crate::format::log::{DATA_MAX, EXTENTS_MAX, Header, UNIT, Written};
use crate::format::manifest::Manifest;
use crate::format::{Hash, hash};
use crate::local::Record;

/// A batch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    data: Vec<u8>,
    extents: Vec<Written>,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Joins records of a local log, the last on top. Of several it is what is left of each: what was written again
    /// before it was sent travels once.
    pub(super) fn join(records: &[(u32, Arc<Record>)]) -> Result<Self> {
        if let [(_, only)] = records {
            let mut data = vec![0; only.data_len as usize];
            only.read(0, &mut data)?;
            return Ok(Batch { data, extents: only.extents.clone() });
        }
        let (mut all, mut batch, mut buffer) = (Extents::default(), Batch::default(), Vec::new());
        for (number, (_, record)) in (0..).zip(records) {
            record.lay(&mut all, number);
        }
        for piece in all.iter() {
            let Some(Source::At { object, offset }) = piece.source else {
                if !batch.zeros(piece.start, piece.len) {
                    return Err(Error::Invalid("more ranges in the local log than one object has".into()));
                }
                continue;
            };
            let (_, record) = invariant!(records.get(object as usize), "a piece is of one of the records");
            buffer.resize(invariant!(usize::try_from(piece.len), "a piece of a record fits memory"), 0);
            record.read(offset, &mut buffer)?;
            if batch.append(piece.start, &buffer).1 != piece.len {
                return Err(Error::Invalid("records of the local log that don't fit into one object".into()));
            }
        }
        Ok(batch)
    }

    /// Returns the writes, with their places in the data.
    pub(super) fn contents(&self) -> &[Written] {
        &self.extents
    }

    /// The record of a local log that it becomes, but for what the log adds, and its data.
    pub(super) fn record(&self, number: u64, stable: u64) -> (Header, &[u8]) {
        let header = Header {
            volume: [0; 16],
            epoch: 0,
            seq: number,
            before: [0; 32],
            nonce: 0,
            is_seal: false,
            local: stable,
            extents: self.extents.clone(),
            data_len: self.data_len(),
            units: Vec::new(),
        };
        (header, &self.data)
    }

    pub(super) fn data_len(&self) -> u32 {
        bounded::<u32>(self.data.len())
    }

    /// Says that bytes, fewer than 4 GiB, are zeros; returns true if there was room for that.
    pub(super) fn zeros(&mut self, start: u64, len: u64) -> bool {
        let len = bounded::<u32>(len);
        self.room() && {
            self.extents.push(Written { start, len, offset: None });
            true
        }
    }

    /// Takes as many bytes as fit: the offset of the first, and how many.
    pub(super) fn append(&mut self, start: u64, data: &[u8]) -> (u32, u64) {
        let offset = self.data_len();
        let count = (DATA_MAX - self.data.len()).min(data.len());
        if count == 0 || !self.room() {
            return (offset, 0);
        }
        let data = invariant_or!(data.get(..count), return (offset, 0), "a part of the data is in them");
        self.data.extend_from_slice(data);
        match self.extents.last_mut() {
            Some(last)
                if last.start + u64::from(last.len) == start
                    && last.offset.is_some_and(|first| first + last.len == offset) =>
            {
                last.len += bounded::<u32>(count);
            }
            _ => self.extents.push(Written { start, len: bounded::<u32>(count), offset: Some(offset) }),
        }
        (offset, count as u64)
    }

    fn room(&self) -> bool {
        self.extents.len() < EXTENTS_MAX
    }

    /// Writes over bytes that are in it already.
    pub(super) fn overwrite(&mut self, offset: u32, data: &[u8]) {
        let at = offset as usize;
        let to = self.data.get_mut(at..at.saturating_add(data.len()));
        invariant_or!(to, return, "what is written over lies in the batch").copy_from_slice(data);
    }

    pub(super) fn read(&self, offset: u32, buffer: &mut [u8]) {
        let at = offset as usize;
        let from = self.data.get(at..at.saturating_add(buffer.len()));
        buffer.copy_from_slice(invariant_or!(from, return, "what is read lies in the batch"));
    }

    /// Lays what it wrote over other ranges, as the object with that number.
    pub(super) fn lay(&self, over: &mut Extents, object: u32) {
        for extent in &self.extents {
            let source = extent.offset.map_or(Source::Zeros, |offset| Source::At { object, offset });
            over.insert(extent.start, extent.len.into(), source);
        }
    }

    /// The object that it becomes, and the hash of its header. Of a writer with a local log: its mark, and the last record
    /// that is in it.
    pub(super) fn object(
        &self,
        manifest: &Manifest,
        seq: u64,
        before: Hash,
        local: Option<(u64, u64)>,
    ) -> (Vec<u8>, Hash) {
        Header {
            volume: manifest.id,
            epoch: manifest.epoch,
            seq,
            before,
            nonce: local.map_or_else(crate::random::number, |(token, _)| token),
            is_seal: false,
            local: local.map_or(0, |(_, number)| number),
            extents: self.extents.clone(),
            data_len: self.data_len(),
            units: Vec::new(),
        }
        .encode(&self.data)
    }

    /// The header as far as readers of its data need it.
    pub(super) fn header(&self, manifest: &Manifest, seq: u64) -> Option<Header> {
        (!self.data.is_empty()).then(|| Header {
            volume: manifest.id,
            epoch: manifest.epoch,
            seq,
            before: [0; 32],
            nonce: 0,
            is_seal: false,
            local: 0,
            extents: self.extents.clone(),
            data_len: self.data_len(),
            units: self.data.chunks(UNIT).map(hash).collect(),
        })
    }
}
