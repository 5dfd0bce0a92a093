//! Small objects of the log packed into one: a volume that is open for long does not come to consist of an object for each
//! of its syncs.
//!
//! The data of small objects stay in memory, within the bounds of one object. Before the log is brought into the map, what
//! is still in use of them is written once more, as one object of the log. It is what the volume holds there anyway, so
//! that nothing is lost whatever becomes of it. Excludes objects of earlier openings: those are `compact`'s.

use platfs_device::invariant;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::batch::Batch;
use super::{Core, Head, Unsent};
use crate::error::Result;
use crate::extents::Source;
use crate::format::log::DATA_MAX;

/// Bytes of data from which an object is none of the small ones.
pub(crate) const SMALL: usize = 128 << 10;
/// Fewer small objects are left as they are.
pub(crate) const LEAST: usize = 8;

/// The small objects since the map, by their number.
#[derive(Default)]
pub(super) struct Small {
    batches: BTreeMap<u32, Arc<Batch>>,
    bytes: usize,
}

impl Small {
    pub(super) fn add(&mut self, object: u32, batch: &Arc<Batch>) {
        let len = batch.data_len() as usize;
        if (1..SMALL).contains(&len) && self.bytes + len <= DATA_MAX {
            self.batches.insert(object, Arc::clone(batch));
            self.bytes += len;
        }
    }

    /// True if the next small object may find no room.
    pub(super) fn is_full(&self) -> bool {
        self.bytes + SMALL > DATA_MAX
    }
}

impl Core {
    /// Packs what is in use of the small objects.
    pub(super) fn pack(&self, head: &mut Head) -> Result<()> {
        let small = std::mem::take(&mut head.small);
        let (mut batch, mut objects, mut buffer) = (Batch::default(), BTreeSet::new(), Vec::new());
        for piece in head.stable.iter() {
            let Some(Source::At { object, offset }) = piece.source else { continue };
            let Some(from) = small.batches.get(&object) else { continue };
            buffer.resize(invariant!(usize::try_from(piece.len), "a piece of an object fits memory"), 0);
            from.read(offset, &mut buffer);
            if batch.append(piece.start, &buffer).1 != piece.len {
                break;
            }
            objects.insert(object);
        }
        if objects.len() < LEAST {
            return Ok(());
        }
        let local = self.local.as_ref().map(|local| (local.token(), head.sent));
        let (bytes, header) = batch.object(&head.manifest, head.seq, head.before, local);
        self.send(head, Unsent { slots: Vec::new(), last: head.sent, batch: Arc::new(batch), bytes, header })
    }
}
