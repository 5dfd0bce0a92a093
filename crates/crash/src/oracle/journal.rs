//! Judging what recovery makes of a state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platfs::check::{self, Decision, Issue, Sink, check};
use platfs::device::Device;
use platfs::ondisk::inode::FileType;
use platfs::ondisk::units::InodeNumber;
use platfs::{OpenOptions, Volume};

use crate::calls::ATTRIBUTE;
use crate::model::{Model, Node, PIECE, Piece, bytes_of};
use crate::states::State;

/// What a name is found to lead to.
struct Thing {
    file_type: FileType,
    bytes: Vec<u8>,
    links: u32,
    inode: InodeNumber,
    attribute: Option<Vec<u8>>,
}

/// What is found on a recovered volume.
struct Found {
    names: BTreeMap<Vec<u8>, Thing>,
}

fn walk(volume: &Volume, directory: InodeNumber, path: &[u8], found: &mut Found) -> Result<(), String> {
    let told = |what: &str, error: platfs::Error| format!("{}: {what}: {error}", path.escape_ascii());
    for entry in volume.read_dir(directory).map_err(|error| told("listing", error))? {
        let entry = entry.map_err(|error| told("listing", error))?;
        if [&b"."[..], b"..", b"lost+found"].contains(&&entry.name[..]) {
            continue;
        }
        let below = [path, b"/", &entry.name].concat();
        let facts = volume.metadata(entry.inode).map_err(|error| told("an inode", error))?;
        let bytes = match facts.file_type {
            FileType::Regular => {
                let mut bytes = vec![0xEE; usize::try_from(facts.size).unwrap()];
                volume.read_at(entry.inode, 0, &mut bytes).map_err(|error| told("reading", error))?;
                bytes
            }
            FileType::Symlink => volume.read_link(entry.inode).map_err(|error| told("a link", error))?,
            _ => Vec::new(),
        };
        let attribute = volume.xattr(entry.inode, ATTRIBUTE).map_err(|error| told("an attribute", error))?;
        let (file_type, links, inode) = (facts.file_type, u32::from(facts.links), entry.inode);
        found.names.insert(below.clone(), Thing { file_type, bytes, links, inode, attribute });
        if facts.file_type == FileType::Directory {
            walk(volume, entry.inode, &below, found)?;
        }
    }
    Ok(())
}

/// What is asked of contents.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// They are as old as the names, or newer.
    InOrder,
    /// They may be as old as the last promise that is theirs, and sizes too.
    Late,
    /// They are of the same moment as the names.
    Exact,
    /// Only those that were promised and not touched since are anybody's concern; sizes are as the names are.
    Names,
}

/// The models of which the bytes of a file may be.
type Ages<'m> = dyn Fn(u32) -> &'m [Model] + 'm;

/// Whether the names, sizes, links and kinds are those of a model; sizes may be those of others.
fn is_tree(found: &Found, model: &Model, others: &Ages<'_>) -> bool {
    let has_size = |id: &u32, len: usize| {
        let size = |model: &Model| model.pieces(*id) * PIECE;
        size(model) == len || others(*id).iter().any(|other| size(other) == len)
    };
    let links = |id: u32| model.names.values().filter(|node| **node == Node::File(id)).count();
    found.names.len() == model.names.len()
        && model.names.iter().all(|(path, node)| match (found.names.get(path), node) {
            (Some(thing), Node::Directory) => thing.file_type == FileType::Directory,
            (Some(thing), Node::Link(target)) => {
                thing.file_type == FileType::Symlink && thing.bytes == *target
            }
            (Some(thing), Node::File(id)) => {
                thing.file_type == FileType::Regular
                    && has_size(id, thing.bytes.len())
                    && thing.links as usize == links(*id)
                    && model.files.get(id).is_some_and(|file| file.attribute == thing.attribute)
            }
            _ => false,
        })
}

/// What a piece of a file may hold: what it holds in the model, or what is written over it later, in place.
fn allowed(model: &Model, later: &[Model], id: u32, index: usize) -> BTreeSet<Piece> {
    let shifts = |model: &Model| model.files.get(&id).map_or(0, |contents| contents.shifts);
    let mut allowed = BTreeSet::new();
    for model in std::iter::once(model).chain(later) {
        allowed.extend(model.files.get(&id).map(|contents| contents.piece(index)));
    }
    if later.iter().any(|other| shifts(other) != shifts(model)) {
        allowed.extend(
            later.iter().filter_map(|model| model.files.get(&id)).flat_map(|file| file.pieces.clone()),
        );
    }
    if allowed.is_empty() {
        allowed.insert(Piece::default());
    }
    allowed
}

/// Whether each piece of each file is as it was then, or as one written over it since.
fn has_contents(found: &Found, model: &Model, later: &Ages<'_>, strict: bool) -> Result<(), String> {
    for (path, node) in &model.names {
        let Node::File(id) = node else { continue };
        for (index, bytes) in found.names[path].bytes.chunks(PIECE).enumerate() {
            let allowed = allowed(model, later(*id), *id, index);
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
fn owners(volume: &Volume, found: &Found) -> Result<(), String> {
    let geometry = &volume.format().geometry;
    let mut owned: BTreeMap<u64, InodeNumber> = BTreeMap::new();
    for number in found.names.values().map(|thing| thing.inode) {
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
        let group = platfs::ondisk::units::Group(group);
        let bitmap = volume.block_bitmap(group).map_err(|error| error.to_string())?;
        let first = geometry.cluster_start(platfs::ondisk::units::Cluster(
            u64::from(group.0) * u64::from(geometry.clusters_per_group()),
        ));
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

/// The first thing that a check finds wrong.
struct Complaint(Option<String>);

impl Sink for Complaint {
    fn issue(&mut self, issue: Issue) -> Decision {
        self.0.get_or_insert_with(|| format!("{issue:?}"));
        Decision::Leave
    }
}

/// What a check of a recovered volume says first.
pub fn complaints(device: Arc<dyn Device>) -> Option<String> {
    let mut complaint = Complaint(None);
    match check(device, &check::Options::default(), &mut complaint) {
        Ok(_) => complaint.0,
        Err(error) => Some(error.to_string()),
    }
}

/// Recovers a state by opening it for writing, and compares it with what was promised.
pub fn judge(
    device: Arc<dyn Device>,
    options: &OpenOptions,
    history: &[Model],
    state: &State<'_>,
    rule: Rule,
) -> Result<(), String> {
    let volume = Volume::open(device, options).map_err(|error| format!("opening: {error}"))?;
    let mut found = Found { names: BTreeMap::new() };
    walk(&volume, InodeNumber::ROOT, b"", &mut found)?;
    owners(&volume, &found)?;
    let at = |call: u64| usize::try_from(call).unwrap();
    let range = at(state.promised)..=at(state.begun);
    let mut why = format!(
        "the tree is none of those of calls {range:?}: {:?}",
        found.names.keys().map(|n| n.escape_ascii().to_string()).collect::<Vec<_>>()
    );
    let end = *range.end();
    let since = |id: u32| {
        let floor = state.files.get(&id).copied().unwrap_or(0).max(state.settled);
        &history[at(floor)..=end]
    };
    for call in range.clone() {
        let others = |id| if rule == Rule::Late { since(id) } else { &history[..0] };
        let later = |id| match rule {
            Rule::Late => since(id),
            Rule::Exact => &history[call..=call],
            // Between the last promise and the crash.
            Rule::Names => &history[range.clone()],
            Rule::InOrder => &history[call..=end],
        };
        if is_tree(&found, &history[call], &others) {
            match has_contents(&found, &history[call], &later, rule != Rule::Names) {
                Err(what) => why = format!("as of call {call}: {what}"),
                Ok(()) => return volume.close().map_err(|error| format!("closing: {error}")),
            }
        }
    }
    Err(why)
}
