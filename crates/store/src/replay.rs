//! Replay of a volume's log over its map: the dense prefix of its objects.
//!
//! Owns: following a chain from object to object, and sealing it. Excludes epochs of our own, and writing maps.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::format::Hash;
use crate::format::log::Header;
use crate::format::manifest::{Manifest, Segment};
use crate::keys::{key_of_log, key_of_manifest};
use crate::store::Store;
use crate::view::{Reader, View};

/// Most objects of a log that an opening follows; a checkpoint comes long before.
const OBJECTS_MAX: usize = 1 << 16;
/// Most ranges that they may leave in memory, some 60 bytes each; a checkpoint comes long before.
const RANGES_MAX: usize = 1 << 20;

/// End of a log.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// The segments, each with its end.
    pub(crate) segments: Vec<Segment>,
    /// The hash of the last header.
    pub(crate) before: Hash,
    /// Local logs of those who wrote the objects, and the last record of each that is in one.
    pub(crate) local: HashMap<u64, u64>,
}

/// Lays the log of a manifest over a view. With `seal` no writer of an earlier epoch can add to it any more.
pub(crate) fn replay(
    store: &Store,
    manifest: &Manifest,
    view: &mut View,
    reader: &Reader,
    seal: bool,
) -> Result<End> {
    let mut end = End { segments: Vec::new(), before: [0; 32], local: HashMap::new() };
    let mut count = 0;
    for segment in &manifest.segments {
        if segment.before != [0; 32] {
            end.before = segment.before;
        }
        let mut seq = segment.first;
        while seq < segment.end {
            count += 1;
            if count > OBJECTS_MAX || view.log.len() > RANGES_MAX {
                let problem = format!("its log has more than {OBJECTS_MAX} objects or {RANGES_MAX} ranges");
                return Err(Error::damaged(key_of_manifest(&manifest.id), problem));
            }
            let place = (&segment.volume, segment.epoch, seq);
            let found = match store.log_header(place, manifest.size) {
                Err(Error::Missing(_)) if segment.end == u64::MAX && seal => {
                    sealed(store, segment, seq, end.before)?
                }
                // What comes behind an epoch without a seal was not there when this was looked for.
                Err(Error::Missing(_)) if segment.end == u64::MAX => {
                    end.segments.push(Segment { end: seq, ..segment.clone() });
                    return Ok(end);
                }
                Err(Error::Missing(key)) => return Err(Error::damaged(key, "is missing")),
                found => Some(found?),
            };
            // Somebody was faster: what is there now counts.
            let Some((header, hash)) = found else { continue };
            if header.before != end.before {
                let key = key_of_log(place.0, place.1, place.2);
                return Err(Error::damaged(key, "does not follow the object before it"));
            }
            end.before = hash;
            let is_seal = header.is_seal;
            if !is_seal {
                if header.local > 0 {
                    let last = end.local.entry(header.nonce).or_default();
                    *last = header.local.max(*last);
                }
                view.apply(&header, hash);
                reader.remember(hash, header);
            }
            seq += 1;
            if is_seal {
                break;
            }
        }
        end.segments.push(Segment { end: seq, ..segment.clone() });
    }
    Ok(end)
}

/// Puts a seal where the next object of an epoch would be.
fn sealed(store: &Store, segment: &Segment, seq: u64, before: Hash) -> Result<Option<(Header, Hash)>> {
    let header = Header {
        volume: segment.volume,
        epoch: segment.epoch,
        seq,
        before,
        nonce: crate::random::number(),
        is_seal: true,
        local: 0,
        extents: Vec::new(),
        data_len: 0,
        units: Vec::new(),
    };
    let (bytes, hash) = header.encode(&[]);
    match store.objects().create(&key_of_log(&segment.volume, segment.epoch, seq), &bytes) {
        Ok(_) => Ok(Some((header, hash))),
        Err(Error::Exists(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
