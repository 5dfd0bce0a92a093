//! Promise of a journal's recovery: the volume as of one call.

use std::collections::BTreeMap;

use platfs::ondisk::inode::FileType;
use platfs::ondisk::units::{Cluster, Group};
use platfs::{InodeNumber, Volume};

use super::{Tree, allowed};
use crate::model::{Model, Node, PIECE, VolumeState, bytes_of};
use crate::order::Rule;
use crate::run::Run;
use crate::states::State;

/// The models of which the bytes of a file may be.
type Ages<'m> = dyn Fn(u32) -> &'m [Model] + 'm;

/// Compares names, sizes, links and kinds with those of a model; sizes may be those of others. The bytes of a file that
/// is not `current` are promised as of later.
fn is_tree(found: &Tree, model: &Model, others: &Ages<'_>, current: &dyn Fn(u32) -> bool) -> bool {
    let has_size = |id: &u32, len: usize| {
        let size = |model: &Model| model.pieces(*id) * PIECE;
        current(*id) && size(model) == len || others(*id).iter().any(|other| size(other) == len)
    };
    let links = |id: u32| model.names.values().filter(|node| **node == Node::File(id)).count();
    found.len() == model.names.len()
        && model.names.iter().all(|(path, node)| match (found.get(path), node) {
            (Some(thing), Node::Directory(_)) => thing.file_type == FileType::Directory,
            (Some(thing), Node::Link(target)) => {
                thing.file_type == FileType::Symlink && thing.bytes == *target
            }
            (Some(thing), Node::File(id)) => {
                thing.file_type == FileType::Regular
                    && has_size(id, thing.bytes.len())
                    && usize::try_from(thing.links) == Ok(links(*id))
                    && model.files.get(id).is_some_and(|file| thing.has_attributes_of(file))
            }
            _ => false,
        })
}

/// Compares each piece of each file with its contents then, or with one written over it since.
fn has_contents(
    found: &Tree,
    model: &Model,
    first: &Ages<'_>,
    later: &Ages<'_>,
    strict: bool,
) -> Result<(), String> {
    for (path, node) in &model.names {
        let Node::File(id) = node else { continue };
        for (index, bytes) in found[path].bytes.chunks(PIECE).enumerate() {
            let allowed = allowed(first(*id).iter().chain(later(*id)), *id, index);
            let anything = !strict && allowed.len() > 1;
            if !anything && !allowed.iter().any(|piece| bytes == bytes_of(*id, *piece)) {
                let head = &bytes[..16];
                return Err(format!(
                    "{}, file {id}, piece {index}: {head:x?}, allowed {allowed:?}",
                    path.escape_ascii()
                ));
            }
        }
    }
    Ok(())
}

/// No block has two owners, and none is free.
fn owners(volume: &Volume, found: &Tree) -> Result<(), String> {
    let geometry = &volume.format().geometry;
    let mut owned: BTreeMap<u64, InodeNumber> = BTreeMap::new();
    for number in found.values().map(|thing| thing.inode) {
        for segment in volume.map(number).map_err(|error| error.to_string())? {
            let segment = segment.map_err(|error| error.to_string())?;
            let (platfs::State::Mapped(start) | platfs::State::Unwritten(start)) = segment.state else {
                continue;
            };
            for block in start.0..start.0 + segment.count {
                let before = owned.insert(block, number);
                if before.is_some_and(|before| before != number) {
                    return Err(format!("block {block} belongs to {before:?} and {number:?}"));
                }
            }
        }
    }
    for group in 0..geometry.groups {
        let group = Group(group);
        let bitmap = volume.block_bitmap(group).map_err(|error| error.to_string())?;
        let first =
            geometry.cluster_start(Cluster(u64::from(group.0) * u64::from(geometry.clusters_per_group())));
        let end = first.0 + (u64::from(geometry.group_clusters(group)) << geometry.cluster_log2);
        for block in owned.range(first.0..end).map(|(block, _)| *block) {
            let bit = usize::try_from((block - first.0) >> geometry.cluster_log2).unwrap();
            if bitmap[bit / 8] >> (bit % 8) & 1 == 0 {
                return Err(format!("block {block} is in use and free"));
            }
        }
    }
    Ok(())
}

/// Compares what is found with what was promised.
pub(crate) fn judge(volume: &Volume, mut found: Tree, run: &Run, state: &State<'_>) -> Result<(), String> {
    found.retain(|path, _| !path.starts_with(b"/lost+found/"));
    owners(volume, &found)?;
    let whole = VolumeState::of(volume)?;
    let (history, rule) = (&run.history, run.workload.order.rule(run.workload.delay > 0));
    let at = |call: u64| usize::try_from(call).unwrap();
    let (first, last) = (at(state.promised), at(state.begun));
    let since = |id: u32| &history[at(state.floor(id))..=last];
    let names = found.keys().map(|name| name.escape_ascii().to_string()).collect::<Vec<_>>();
    let mut why = format!("the tree is none of those of calls {first} to {last}: {names:?}, {whole:?}");
    for call in first..=last {
        let others = |id| if rule == Rule::Late { since(id) } else { &history[..0] };
        let later = |id| match rule {
            Rule::Late => since(id),
            Rule::Exact => &history[call..=call],
            // Between the last promise and the crash.
            Rule::Names => &history[first..=last],
            Rule::InOrder => &history[call..=last],
        };
        let current = |id| rule != Rule::Late || at(state.floor(id)) <= call;
        if history[call].whole == whole && is_tree(&found, &history[call], &others, &current) {
            let first = |id| if current(id) { &history[call..=call] } else { &history[..0] };
            match has_contents(&found, &history[call], &first, &later, rule != Rule::Names) {
                Err(what) => why = format!("as of call {call}: {what}"),
                Ok(()) => return Ok(()),
            }
        }
    }
    Err(why)
}
