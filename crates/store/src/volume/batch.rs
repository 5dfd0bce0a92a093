//! What was written since the last object of the log: bytes and extents, within the bounds of one object.

use crate::extents::{Extents, Source};
use crate::format::log::{DATA_MAX, EXTENTS_MAX, Header, UNIT, Written};
use crate::format::manifest::Manifest;
use crate::format::{Hash, hash};

/// A batch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    data: Vec<u8>,
    extents: Vec<Written>,
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    pub(super) fn data_len(&self) -> u32 {
        narrow(self.data.len())
    }

    /// Says that bytes are zeros; whether there was room for that.
    pub(super) fn zeros(&mut self, start: u64, len: u64) -> bool {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
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
        self.data.extend_from_slice(data.get(..count).unwrap_or_default());
        match self.extents.last_mut() {
            Some(last)
                if last.start + u64::from(last.len) == start
                    && last.offset.is_some_and(|first| first + last.len == offset) =>
            {
                last.len += narrow(count);
            }
            _ => self.extents.push(Written { start, len: narrow(count), offset: Some(offset) }),
        }
        (offset, count as u64)
    }

    fn room(&self) -> bool {
        self.extents.len() < EXTENTS_MAX
    }

    /// Writes over bytes that are in it already.
    pub(super) fn overwrite(&mut self, offset: u32, data: &[u8]) {
        let at = offset as usize;
        if let Some(to) = self.data.get_mut(at..at.saturating_add(data.len())) {
            to.copy_from_slice(data);
        }
    }

    pub(super) fn read(&self, offset: u32, buffer: &mut [u8]) {
        let at = offset as usize;
        if let Some(from) = self.data.get(at..at.saturating_add(buffer.len())) {
            buffer.copy_from_slice(from);
        }
    }

    /// Lays what it wrote over other ranges, as the object with that number.
    pub(super) fn lay(&self, over: &mut Extents, object: u32) {
        for extent in &self.extents {
            let source = extent.offset.map_or(Source::Zeros, |offset| Source::At { object, offset });
            over.insert(extent.start, extent.len.into(), source);
        }
    }

    /// The object that it becomes, and the hash of its header.
    pub(super) fn object(&self, manifest: &Manifest, seq: u64, before: Hash) -> (Vec<u8>, Hash) {
        Header {
            volume: manifest.id,
            epoch: manifest.epoch,
            seq,
            before,
            nonce: crate::random::number(),
            is_seal: false,
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
            extents: self.extents.clone(),
            data_len: self.data_len(),
            units: self.data.chunks(UNIT).map(hash).collect(),
        })
    }
}
