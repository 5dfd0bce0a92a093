//! The log brought into the map: new leaves where something was written, then a manifest that names the new root.
//!
//! The leaves are in the store before the manifest is, so that one who opens the volume meanwhile finds the old map and
//! the whole log.

use platfs_device::invariant;
use platfs_device::units::bounded;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::packing::Small;
use super::{Core, Head, Slot};
use crate::error::{Error, Result};
use crate::extents::{Extents, Source};
use crate::format::Hash;
use crate::format::manifest::{Manifest, Segment};
use crate::format::map::{Extent, LEAF_SPAN, Leaf, Map, Target};
use crate::keys::Kind;
use crate::pushing::root;
use crate::renewal::{Replaced, is_same, replace};
use crate::view::Base;

/// Most times that a clean-up comes between.
const TRIES: usize = 16;

impl Core {
    /// Brings the log into the map, and says whether the volume stays open.
    pub(super) fn checkpoint(&self, head: &mut Head, stays_open: bool) -> Result<()> {
        if let Some(why) = &head.fenced {
            return Err(why.clone());
        }
        if head.since == 0 && !stays_open && !head.manifest.flags.open {
            return Ok(());
        }
        self.pack(head)?;
        let manifest = self.mapped(head, stays_open)?;
        let map = manifest.map;
        let mut state = self.state_mut();
        state.base = Arc::new(Base::new(Arc::clone(&self.store), self.size, map));
        // Only what waits for the store, and what is gathered meanwhile, is not in the map.
        let mut written = Extents::default();
        state.slots.retain(|_, slot| !matches!(slot, Slot::Stored(_)));
        for (own, slot) in &state.slots {
            match slot {
                Slot::Stored(_) => {}
                Slot::Gathered => state.batch.lay(&mut written, *own),
                Slot::Sent(batch) => batch.lay(&mut written, *own),
                Slot::Local(record) => record.lay(&mut written, *own),
            }
        }
        state.written = written;
        drop(state);
        head.manifest = manifest;
        head.tried = None;
        head.stable = Extents::default();
        head.targets = Vec::new();
        head.small = Small::default();
        head.since = 0;
        if !stays_open {
            head.fenced = Some(Error::Invalid("the volume is closed".into()));
        }
        Ok(())
    }

    /// A manifest in the store whose map has the whole log.
    fn mapped(&self, head: &mut Head, stays_open: bool) -> Result<Manifest> {
        let base = Arc::clone(&self.state().base);
        for _ in 0..TRIES {
            // Another try writes other names: those of the one before may be removed.
            let map = if head.stable.is_empty() { head.manifest.map } else { self.merged(&base, head)? };
            let mut manifest = head.manifest.clone();
            manifest.map = map;
            manifest.nonce = crate::random::number();
            manifest.flags.open = stays_open;
            manifest.holder = match stays_open {
                true => self.named(head),
                false => String::new(),
            };
            let (volume, epoch) = (manifest.id, manifest.epoch);
            let rest = Segment { volume, epoch, first: head.seq, end: u64::MAX, before: head.before };
            // What is closed has no log: a fork of it is one manifest more.
            manifest.segments = if stays_open { vec![rest] } else { Vec::new() };
            match replace(&self.store, (&head.manifest, &head.version), &manifest) {
                Ok(Replaced::Done(manifest, version)) => {
                    head.version = version;
                    return Ok(*manifest);
                }
                Ok(Replaced::Renewed(manifest, version)) => {
                    (head.manifest, head.version) = (*manifest, version);
                }
                Err(Error::Conflict(key)) => self.adopt(head, key)?,
                Err(error) => {
                    head.tried = Some(manifest);
                    return Err(error);
                }
            }
        }
        Err(Error::Unavailable("clean-ups come between all the time".into()))
    }

    /// Goes on from the manifest that is there now, if it is one of ours that took effect without an answer.
    fn adopt(&self, head: &mut Head, key: String) -> Result<()> {
        let (now, version) = self.store.manifest_or_trace(&head.manifest.id)?;
        if head.tried.as_ref().is_some_and(|tried| is_same(&now, tried)) {
            (head.manifest, head.version) = (now, version);
            return Ok(());
        }
        let fenced = Error::Fenced(key);
        head.fenced = Some(fenced.clone());
        Err(fenced)
    }

    /// The root of a new map: what was there, and over it what the log wrote.
    fn merged(&self, base: &Base, head: &Head) -> Result<Hash> {
        let mut names = base.names()?.to_vec();
        for number in touched(&head.stable) {
            let start = number * LEAF_SPAN;
            let len = LEAF_SPAN.min(self.size.saturating_sub(start));
            let pieces = head.stable.pieces(start, len);
            let is_empty = pieces.iter().all(|piece| piece.source == Some(Source::Zeros));
            let leaf = if is_empty { Leaf::default() } else { self.leaf(base, head, start, len)? };
            let name = match leaf.extents.is_empty() {
                true => [0; 32],
                false => self.own(&Map::Leaf(leaf))?,
            };
            let place = usize::try_from(number).ok().and_then(|at| names.get_mut(at));
            *invariant!(place, "what was written lies in the volume") = name;
        }
        root(names, |index| self.own(index))
    }

    /// Writes a map under a name of its own. A name that others can come to might be one that a clean-up removes now.
    fn own(&self, map: &Map) -> Result<Hash> {
        self.store.put_contents(Kind::Map, &map.encode_own(&crate::random::bytes()))
    }

    /// One leaf of it.
    fn leaf(&self, base: &Base, head: &Head, start: u64, len: u64) -> Result<Leaf> {
        let mut made = LeafBuilder::default();
        for piece in head.stable.pieces(start, len) {
            match piece.source {
                Some(Source::Zeros) => {}
                Some(Source::At { object, offset }) => {
                    let target =
                        *invariant!(head.targets.get(object as usize), "what was laid has its object");
                    made.add(piece.start, piece.len, target, offset);
                }
                None => {
                    for (start, len, place) in base.pieces(piece.start, piece.len)? {
                        place.into_iter().for_each(|(target, offset)| made.add(start, len, target, offset));
                    }
                }
            }
        }
        Ok(made.leaf)
    }
}

/// The numbers of the leaves that ranges lie in.
fn touched(ranges: &Extents) -> BTreeSet<u64> {
    let of =
        |piece: crate::extents::Piece| piece.start / LEAF_SPAN..=(piece.start + piece.len - 1) / LEAF_SPAN;
    ranges.iter().flat_map(of).collect()
}

/// A leaf that is made from front to back.
#[derive(Default)]
struct LeafBuilder {
    leaf: Leaf,
    known: HashMap<Target, u32>,
}

impl LeafBuilder {
    fn add(&mut self, start: u64, len: u64, target: Target, offset: u32) {
        let objects = &mut self.leaf.objects;
        let object = *self.known.entry(target).or_insert_with(|| {
            objects.push(target);
            bounded::<u32>(objects.len() - 1)
        });
        let len = bounded::<u32>(len);
        if let Some(last) = self.leaf.extents.last_mut()
            && last.object == object
            && last.start + u64::from(last.len) == start
            && last.offset.checked_add(last.len) == Some(offset)
        {
            last.len += len;
            return;
        }
        self.leaf.extents.push(Extent { start, len, object, offset });
    }
}
