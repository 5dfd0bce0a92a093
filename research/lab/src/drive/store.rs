//! The bytes of a model device: pages that are all zero take no memory, so that contents of files,
//! which workloads write as zeros, cost none.

use std::collections::HashMap;

pub(crate) const PAGE: u64 = 4096;
const PAGE_BYTES: usize = 4096;

/// Sparse pages.
#[derive(Default)]
pub(crate) struct Store(HashMap<u64, Box<[u8; PAGE_BYTES]>>);

/// The pieces of a range within one page each: page, place in it, length.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut at = offset;
    let mut left = len;
    std::iter::from_fn(move || {
        let place = usize::try_from(at % PAGE).unwrap_or(0);
        let step = left.min(PAGE_BYTES - place);
        let piece = (at / PAGE, place, step);
        at += step as u64;
        left -= step;
        (step > 0).then_some(piece)
    })
}

impl Store {
    pub(crate) fn read(&self, offset: u64, mut buffer: &mut [u8]) {
        for (page, place, len) in pieces(offset, buffer.len()) {
            let (part, rest) = std::mem::take(&mut buffer).split_at_mut(len);
            match self.0.get(&page) {
                Some(bytes) => part.copy_from_slice(&bytes[place..place + len]),
                None => part.fill(0),
            }
            buffer = rest;
        }
    }

    pub(crate) fn write(&mut self, offset: u64, mut data: &[u8]) {
        for (page, place, len) in pieces(offset, data.len()) {
            let (part, rest) = data.split_at(len);
            data = rest;
            if part.iter().all(|byte| *byte == 0) {
                self.clear(page, place, len);
            } else {
                let bytes = self.0.entry(page).or_insert_with(|| Box::new([0; PAGE_BYTES]));
                bytes[place..place + len].copy_from_slice(part);
            }
        }
    }

    pub(crate) fn write_zeros(&mut self, offset: u64, len: u64) {
        let (first, last) = (offset.div_ceil(PAGE), (offset + len) / PAGE);
        if first >= last {
            return self.write(offset, &vec![0; usize::try_from(len).unwrap_or(0)]);
        }
        if last - first < self.0.len() as u64 {
            (first..last).for_each(|page| drop(self.0.remove(&page)));
        } else {
            self.0.retain(|page, _| !(first..last).contains(page));
        }
        let head = usize::try_from(first * PAGE - offset).unwrap_or(0);
        let tail = usize::try_from(offset + len - last * PAGE).unwrap_or(0);
        self.write(offset, &[0; PAGE_BYTES][..head]);
        self.write(last * PAGE, &[0; PAGE_BYTES][..tail]);
    }

    fn clear(&mut self, page: u64, place: usize, len: usize) {
        if len == PAGE_BYTES {
            self.0.remove(&page);
        } else if let Some(bytes) = self.0.get_mut(&page) {
            bytes[place..place + len].fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_zeros_take_nothing() {
        let (mut store, mut plain) = (Store::default(), vec![0u8; 64 << 10]);
        let mut numbers = crate::numbers::Numbers::new(3);
        for step in 0..2000 {
            let offset = numbers.index(60_000);
            let len = 1 + numbers.index(4000);
            let value = u8::try_from(step % 3).unwrap();
            if numbers.chance(0.2) {
                store.write_zeros(offset as u64, len as u64);
                plain[offset..offset + len].fill(0);
            } else {
                store.write(offset as u64, &vec![value; len]);
                plain[offset..offset + len].fill(value);
            }
        }
        let mut found = vec![1; plain.len()];
        store.read(0, &mut found);
        assert!(found == plain);
        store.write_zeros(0, 64 << 10);
        assert!(store.0.is_empty());
    }
}
