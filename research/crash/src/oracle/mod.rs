//! Judging what recovery makes of a state: what is found there, and what a check says of it.
//!
//! With a journal the volume is as of one call (`journal`); with soft updates each name and each record is there or not
//! by itself (`phased`).

pub(crate) mod journal;
pub(crate) mod phased;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platfs::check::{self, Decision, Issue, Sink, check};
use platfs::device::Device;
use platfs::ondisk::inode::FileType;
use platfs::{InodeNumber, Volume};

use crate::model::{ATTRIBUTE, Contents, LIST, Model, Piece};

/// Inode that a name leads to.
pub(crate) struct NamedInode {
    pub(crate) file_type: FileType,
    pub(crate) bytes: Vec<u8>,
    pub(crate) links: u32,
    pub(crate) inode: InodeNumber,
    /// The directory in which the name stands.
    pub(crate) directory: InodeNumber,
    pub(crate) attribute: Option<Vec<u8>>,
    pub(crate) has_list: bool,
}

impl NamedInode {
    /// Returns true if its attributes are those of a model's file.
    pub(crate) fn has_attributes_of(&self, file: &Contents) -> bool {
        (&self.attribute, self.has_list) == (&file.attribute, file.has_list)
    }
}

/// All names of a volume but `lost+found` itself.
pub(crate) type Tree = BTreeMap<Vec<u8>, NamedInode>;

/// No file of a run is larger, and no path longer: what is comes of damage.
const LARGEST: u64 = 16 << 20;
const LONGEST: usize = 4096;

pub(crate) fn tree(volume: &Volume) -> Result<Tree, String> {
    let mut tree = Tree::new();
    walk(volume, InodeNumber::ROOT, b"", &mut tree)?;
    tree.remove(&b"/lost+found"[..]);
    Ok(tree)
}

fn walk(volume: &Volume, directory: InodeNumber, path: &[u8], tree: &mut Tree) -> Result<(), String> {
    let context = |what: &str, error: platfs::Error| format!("{}: {what}: {error}", path.escape_ascii());
    for entry in volume.read_dir(directory).map_err(|error| context("listing", error))? {
        let entry = entry.map_err(|error| context("listing", error))?;
        let below = [path, b"/", &entry.name].concat();
        let facts = volume.metadata(entry.inode).map_err(|error| context("an inode", error))?;
        if below.len() > LONGEST || facts.size > LARGEST {
            return Err(format!("{}: a path too long, or {} bytes", path.escape_ascii(), facts.size));
        }
        let bytes = match facts.file_type {
            FileType::Regular => {
                let mut bytes = vec![0xEE; usize::try_from(facts.size).unwrap()];
                volume.read_at(entry.inode, 0, &mut bytes).map_err(|error| context("reading", error))?;
                bytes
            }
            FileType::Symlink => volume.read_link(entry.inode).map_err(|error| context("a link", error))?,
            _ => Vec::new(),
        };
        let value =
            |name| volume.inode(entry.inode).xattr(name).map_err(|error| context("an attribute", error));
        let (attribute, has_list) = (value(ATTRIBUTE)?, value(LIST)?.is_some());
        let (file_type, links, inode) = (facts.file_type, u32::from(facts.links), entry.inode);
        tree.insert(
            below.clone(),
            NamedInode { file_type, bytes, links, inode, directory, attribute, has_list },
        );
        if facts.file_type == FileType::Directory {
            walk(volume, entry.inode, &below, tree)?;
        }
    }
    Ok(())
}

/// Contents that a piece of a file may have: its contents in one of some models, the first of them the oldest. Where pieces
/// moved meanwhile, what was written to a block in place may show at its place before.
pub(crate) fn allowed<'m>(
    models: impl Iterator<Item = &'m Model> + Clone,
    id: u32,
    index: usize,
) -> BTreeSet<Piece> {
    let all = models.map(|model| model.files.get(&id));
    let shifts = |file: Option<&Contents>| file.map_or(0, |contents| contents.shifts);
    let before = all.clone().next().map_or(0, shifts);
    let mut allowed: BTreeSet<Piece> =
        all.clone().map(|file| file.map_or_else(Piece::default, |contents| contents.piece(index))).collect();
    if all.clone().any(|file| shifts(file) != before) {
        allowed.extend(all.skip(1).flatten().flat_map(|contents| contents.pieces.iter().copied()));
    }
    allowed
}

/// The first thing that a check finds and that may not be.
struct Complaint<F>(F, Option<String>);

impl<F: Fn(&Issue) -> bool> Sink for Complaint<F> {
    fn issue(&mut self, issue: Issue) -> Decision {
        if !self.0(&issue) {
            let Issue { kind, place, found, expected, .. } = issue;
            self.1.get_or_insert_with(|| format!("{} {place:?}: {found}, not {expected}", kind.id));
        }
        Decision::Leave
    }
}

/// Checks a volume for issues other than those that may be.
pub(crate) fn check_finds(device: Arc<dyn Device>, may_be: impl Fn(&Issue) -> bool) -> Result<(), String> {
    let mut sink = Complaint(may_be, None);
    check(device, &check::Options::default(), &mut sink).map_err(|error| format!("check: {error}"))?;
    sink.1.map_or(Ok(()), |what| Err(format!("check: {what}")))
}

/// Checks that a check finds nothing.
pub(crate) fn is_clean(device: Arc<dyn Device>) -> Result<(), String> {
    check_finds(device, |_| false)
}
