//! Directories used last, with a value each: a map that forgets the oldest.
//!
//! Owns no meaning. Forgetting may cost locality, never correctness.

use std::collections::BTreeMap;

/// Directories remembered at once: more than are filled side by side, and a few pages of memory.
pub(super) const REMEMBERED: usize = 256;

/// Values by directory, at most [`REMEMBERED`]; the one used longest ago goes first.
pub(super) struct Recent<T> {
    values: BTreeMap<u32, (u64, T)>,
    order: BTreeMap<u64, u32>,
    clock: u64,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Recent { values: BTreeMap::new(), order: BTreeMap::new(), clock: 0 }
    }
}

impl<T: Default> Recent<T> {
    /// Returns a directory's value without counting that as a use.
    pub(super) fn peek(&self, directory: u32) -> Option<&T> {
        self.values.get(&directory).map(|(_, value)| value)
    }

    /// The value of a directory, and what was forgotten to make room for it.
    pub(super) fn touch(&mut self, directory: u32) -> (&mut T, Option<T>) {
        let mut forgotten = None;
        let known = self.values.get(&directory).map(|(stamp, _)| *stamp);
        // One file after the other is made in the same directory: it is the newest already.
        if known == Some(self.clock) {
            return (&mut self.values.entry(directory).or_default().1, None);
        }
        self.clock += 1;
        if let Some(stamp) = known {
            self.order.remove(&stamp);
        } else if self.values.len() >= REMEMBERED
            && let Some((_, oldest)) = self.order.pop_first()
        {
            forgotten = self.values.remove(&oldest).map(|(_, value)| value);
        }
        self.order.insert(self.clock, directory);
        let entry = self.values.entry(directory).or_default();
        entry.0 = self.clock;
        (&mut entry.1, forgotten)
    }

    /// Forgets a directory.
    pub(super) fn remove(&mut self, directory: u32) -> Option<T> {
        let (stamp, value) = self.values.remove(&directory)?;
        self.order.remove(&stamp);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_and_use_keeps() {
        let mut recent = Recent::<u32>::default();
        for directory in 0..256 {
            *recent.touch(directory).0 = directory;
        }
        assert_eq!(recent.touch(0), (&mut 0, None));
        assert_eq!(recent.touch(256).1, Some(1));
        assert_eq!(recent.peek(0), Some(&0));
        assert_eq!(recent.remove(2), Some(2));
        assert_eq!(recent.touch(257).1, None);
        assert_eq!(recent.values.len(), recent.order.len());
    }
}
