//! The buffer cache: which pages of the device are in the host's memory; the least recently used goes first.

use std::collections::{BTreeMap, HashMap};

/// Pages by number, with the tick of their last use.
pub(crate) struct Buffers {
    capacity: usize,
    tick: u64,
    used: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
}

impl Buffers {
    pub(crate) fn new(pages: u64) -> Self {
        let capacity = usize::try_from(pages).unwrap_or(usize::MAX).max(1);
        Buffers { capacity, tick: 0, used: HashMap::new(), order: BTreeMap::new() }
    }

    /// Returns true if a page is there, and counts it as used.
    pub(crate) fn has(&mut self, page: u64) -> bool {
        let there = self.used.contains_key(&page);
        if there {
            self.keep(page);
        }
        there
    }

    /// A page was read or written.
    pub(crate) fn keep(&mut self, page: u64) {
        self.tick += 1;
        if let Some(before) = self.used.insert(page, self.tick) {
            self.order.remove(&before);
        }
        self.order.insert(self.tick, page);
        if self.used.len() > self.capacity
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.used.remove(&oldest);
        }
    }

    /// Nothing is there any more.
    pub(crate) fn drop_all(&mut self) {
        self.used.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_page_goes() {
        let mut buffers = Buffers::new(2);
        buffers.keep(1);
        buffers.keep(2);
        assert!(buffers.has(1));
        buffers.keep(3);
        assert!(buffers.has(1) && buffers.has(3) && !buffers.has(2));
        buffers.drop_all();
        assert!(!buffers.has(1));
    }
}
