//! Judging what recovery makes of a state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platfs::check::{self, Decision, Issue, Sink, check};
use platfs::device::Device;
use platfs::ondisk::inode::FileType;
use platfs::ondisk::units::InodeNumber;
use platfs::{OpenOptions, State, Volume};

use super::workload::{Contents, Model, Node, PIECE, piece};

/// What is found on a recovered volume.
struct Found {
    names: BTreeMap<Vec<u8>, (FileType, Vec<u8>, u32, InodeNumber)>,
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
        found.names.insert(below.clone(), (facts.file_type, bytes, u32::from(facts.links), entry.inode));
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
    /// They may be as old as the last promise, and sizes too.
    Late,
    /// They are of the same moment as the names.
    Exact,
    /// They are nobody's concern; sizes are as the names are.
    Names,
}

/// Whether the names, sizes, links and kinds are those of a model; sizes may be those of others.
fn is_tree(found: &Found, model: &Model, others: &[Model]) -> bool {
    let has_size = |id: &u32, len: usize| {
        let size = |model: &Model| model.files.get(id).map_or(0, |contents| contents.0.len() * PIECE);
        size(model) == len || others.iter().any(|other| size(other) == len)
    };
    let links = |id: u32| model.names.values().filter(|node| **node == Node::File(id)).count();
    found.names.len() == model.names.len()
        && model.names.iter().all(|(path, node)| match (found.names.get(path), node) {
            (Some((FileType::Directory, ..)), Node::Directory) => true,
            (Some((FileType::Symlink, target, ..)), Node::Link(expected)) => target == expected,
            (Some((FileType::Regular, bytes, count, _)), Node::File(id)) => {
                has_size(id, bytes.len()) && *count as usize == links(*id)
            }
            _ => false,
        })
}

/// Whether each piece of each file is as it was then, or as one written over it since.
fn has_contents(found: &Found, model: &Model, later: &[Model]) -> Result<(), String> {
    let none = Contents::default();
    for (path, node) in &model.names {
        let Node::File(id) = node else { continue };
        let (_, bytes, ..) = &found.names[path];
        for (index, bytes) in bytes.chunks(PIECE).enumerate() {
            let version =
                |model: &Model| model.files.get(id).unwrap_or(&none).0.get(index).copied().unwrap_or(0);
            let mut allowed: BTreeSet<u32> = later.iter().map(version).collect();
            allowed.insert(version(model));
            if !allowed.iter().any(|version| bytes == piece(*id, *version, index)) {
                let head = &bytes[..16];
                return Err(format!(
                    "{}, file {id}, piece {index}: {head:x?}, allowed versions {allowed:?}",
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
    for (_, _, _, number) in found.names.values() {
        for segment in volume.map(*number).map_err(|error| error.to_string())? {
            let segment = segment.map_err(|error| error.to_string())?;
            let (State::Mapped(start) | State::Unwritten(start)) = segment.state else { continue };
            for block in start.0..start.0 + segment.count {
                let before = owned.insert(block, *number);
                if before.is_some_and(|before| before != *number) {
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
    promised: u64,
    begun: u64,
    rule: Rule,
) -> Result<(), String> {
    let volume = Volume::open(device, options).map_err(|error| format!("opening: {error}"))?;
    let mut found = Found { names: BTreeMap::new() };
    walk(&volume, InodeNumber::ROOT, b"", &mut found)?;
    owners(&volume, &found)?;
    let range = usize::try_from(promised).unwrap()..=usize::try_from(begun).unwrap();
    let mut why = format!(
        "the tree is none of those of calls {range:?}: {:?}",
        found.names.keys().map(|n| n.escape_ascii().to_string()).collect::<Vec<_>>()
    );
    let all = &history[range.clone()];
    for call in range.clone() {
        let (others, later) = match rule {
            Rule::Late => (all, all),
            Rule::Exact => (&all[..0], &history[call..=call]),
            _ => (&all[..0], &history[call..=*range.end()]),
        };
        if is_tree(&found, &history[call], others) {
            match has_contents(&found, &history[call], later) {
                Err(what) if rule != Rule::Names => why = format!("as of call {call}: {what}"),
                _ => return volume.close().map_err(|error| format!("closing: {error}")),
            }
        }
    }
    Err(why)
}
