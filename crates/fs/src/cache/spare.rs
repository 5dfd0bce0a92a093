//! Memory of blocks that were replaced, for the next that are changed.
//!
//! Owns: a few such blocks. Each change of a block makes a copy of it, and the one before is dropped with the end of the
//! change: without this every change would ask the allocator for a block and give one back.

use std::sync::{Arc, Mutex};

use crate::locks::lock;

/// Most blocks that are kept: more than one change replaces, mostly.
const MOST: usize = 16;

#[derive(Default)]
pub(super) struct Spare(Mutex<Vec<Arc<[u8]>>>);

impl Spare {
    /// Keeps a block's memory, unless somebody still looks at it.
    pub(super) fn put_back(&self, mut bytes: Arc<[u8]>) {
        if Arc::get_mut(&mut bytes).is_none() {
            return;
        }
        let mut kept = lock(&self.0);
        if kept.len() < MOST {
            kept.push(bytes);
        }
    }

    /// A copy of bytes.
    pub(super) fn copy(&self, bytes: &Arc<[u8]>) -> Arc<[u8]> {
        let spare = lock(&self.0).pop();
        if let Some(mut spare) = spare
            && let Some(room) = Arc::get_mut(&mut spare).filter(|room| room.len() == bytes.len())
        {
            room.copy_from_slice(bytes);
            return spare;
        }
        Arc::from(&bytes[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_block_is_used_again_when_nobody_looks_at_it() {
        let spare = Spare::default();
        let (old, other): (Arc<[u8]>, Arc<[u8]>) = (Arc::from([1; 64]), Arc::from([2; 64]));
        spare.put_back(Arc::clone(&old));
        assert!(lock(&spare.0).is_empty());
        let place = old.as_ptr();
        spare.put_back(old);
        let copy = spare.copy(&other);
        assert_eq!((copy.as_ptr(), &copy[..]), (place, &other[..]));
        spare.put_back(copy);
        assert_eq!(&spare.copy(&Arc::from([3; 32]))[..], [3; 32]);
    }
}
