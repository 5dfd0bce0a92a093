//! The volumes that the last clean-up saw, and which of them were removed.
//!
//! | key | what |
//! | --- | --- |
//! | `gc/volumes` | a random number, and all volumes: a manifest is never removed, so all of them are there |
//!
//! Lists don't read what was removed. A clean-up reads this before it looks at any volume, and replaces only what it has
//! read; whoever makes a volume of a removed one's name writes it in between. So no volume that is there is taken for one
//! that was removed. Excludes what a clean-up makes of it: see `census`.

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::format::{VolumeId, hex, unhex};
use crate::objects::{REPLACED_MAX, Version};
use crate::store::Store;

const VOLUMES: &str = "gc/volumes";
/// Mark behind a volume that was removed.
const REMOVED: &str = " removed";
/// Most times that others come between.
const TRIES: usize = 64;

/// Volumes that there are and were.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct KnownVolumes {
    /// All that there are.
    pub(crate) all: BTreeSet<VolumeId>,
    /// Those of them that were removed.
    pub(crate) removed: BTreeSet<VolumeId>,
}

/// Reads the list of volumes of the last clean-up, and its version.
pub(crate) fn read(store: &Store) -> Result<(KnownVolumes, Option<Version>)> {
    let object = match store.objects().get(VOLUMES, REPLACED_MAX) {
        Err(Error::Missing(_)) => return Ok((KnownVolumes::default(), None)),
        object => object?,
    };
    let text = String::from_utf8_lossy(&object.bytes);
    let mut known = KnownVolumes::default();
    for line in text.lines().filter(|line| unhex::<8>(line).is_none()) {
        let (id, is_removed) = line.strip_suffix(REMOVED).map_or((line, false), |id| (id, true));
        let id = unhex(id).ok_or_else(|| Error::damaged(VOLUMES, "a line is no volume"))?;
        known.all.insert(id);
        if is_removed {
            known.removed.insert(id);
        }
    }
    Ok((known, Some(object.version)))
}

/// Writes down what a clean-up saw that had read `old` before. What was written meanwhile says which volumes are there again.
pub(crate) fn write_down(
    store: &Store,
    old: (&KnownVolumes, &Option<Version>),
    mut new: KnownVolumes,
) -> Result<()> {
    if *old.0 == new {
        return Ok(());
    }
    let mut version = old.1.clone();
    for _ in 0..TRIES {
        match write(store, &new, version.as_ref()) {
            Err(Error::Conflict(_) | Error::Exists(_)) => {}
            done => return done,
        }
        let (now, there) = read(store)?;
        new.removed.retain(|id| now.removed.contains(id));
        version = there;
    }
    Err(Error::Conflict(VOLUMES.to_owned()))
}

/// Says that a removed volume's name has one again, which is written or claimed already: no list passes it over.
pub(crate) fn returned(store: &Store, id: &VolumeId) -> Result<()> {
    for _ in 0..TRIES {
        let (mut now, version) = read(store)?;
        now.removed.remove(id);
        match write(store, &now, version.as_ref()) {
            Err(Error::Conflict(_) | Error::Exists(_)) => {}
            done => return done,
        }
    }
    Err(Error::Conflict(VOLUMES.to_owned()))
}

fn write(store: &Store, new: &KnownVolumes, version: Option<&Version>) -> Result<()> {
    let mut text = format!("{:016x}\n", crate::random::number());
    for id in &new.all {
        text.push_str(&hex(id));
        text.push_str(if new.removed.contains(id) { REMOVED } else { "" });
        text.push('\n');
    }
    match version {
        Some(version) => store.objects().replace(VOLUMES, text.as_bytes(), version)?,
        None => store.objects().create(VOLUMES, text.as_bytes())?,
    };
    Ok(())
}
