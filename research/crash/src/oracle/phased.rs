//! Promises of soft updates after a crash, before and after recovery: each name and each record is there or not by
//! itself, and before recovery there is nothing but too much in use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platfs::check::Issue;
use platfs::device::Device;
use platfs::ondisk::inode::FileType;
use platfs::{InodeNumber, Volume};

use super::{NamedInode, Tree, allowed, check_finds};
use crate::model::{Model, Node, PIECE, ROOT, VolumeState, bytes_of};
use crate::run::Run;
use crate::states::State;

/// The issues that a check may report: too much in use, no name, too many links, checksums of bitmaps.
const ALLOWED: &[&str] = &[
    "volume-state",
    "block-bitmap",
    "block-bitmap-checksum",
    "inode-bitmap",
    "inode-bitmap-checksum",
    "group-free-blocks",
    "group-free-inodes",
    "group-directories",
    "free-blocks",
    "free-inodes",
    "group-unused-inodes",
    "directory-unconnected",
    "inode-unattached",
    "inode-unattached-empty",
    "inode-links",
    "xattr-references",
    // A directory on its way to another has both names for a moment.
    "directory-twice",
    "directory-parent",
    // Quota files are counted again, and made again with the limits that they have (I39).
    "quota-usage",
    "quota-file",
    // One that is not named yet, or no more.
    "inode-vacant",
];

fn may_be(issue: &Issue) -> bool {
    let too_few = match issue.kind.id {
        // Found is what is stated.
        "inode-links" => issue.found.parse::<u32>().unwrap_or(0) < issue.expected.parse().unwrap_or(u32::MAX),
        "block-bitmap" | "inode-bitmap" => issue.found.contains("in use and marked free"),
        _ => false,
    };
    // A mount after the crash checks first, and must not refuse.
    !too_few && !issue.endangers_others() && ALLOWED.contains(&issue.kind.id)
}

/// Checks that a state shows no damage before recovery.
pub(crate) fn before_recovery(device: Arc<dyn Device>) -> Result<(), String> {
    check_finds(device, may_be).map_err(|what| format!("before recovery: {what}"))
}

/// Promises of a state, and what may be there beside.
struct Promises<'r> {
    run: &'r Run,
    state: &'r State<'r>,
    /// The models as of which names may be.
    models: &'r [Model],
    /// Where each directory is in each of them.
    places: Vec<BTreeMap<u32, &'r [u8]>>,
}

/// Compares what is found with what was promised.
pub(crate) fn judge(tree: &Tree, run: &Run, state: &State<'_>) -> Result<(), String> {
    let mut directories = BTreeSet::new();
    for (path, found) in tree.iter().filter(|(_, found)| found.file_type == FileType::Directory) {
        if !directories.insert(found.inode) {
            return Err(format!("{} is the second name of a directory", path.escape_ascii()));
        }
    }
    for (path, found) in tree.iter().filter(|(_, found)| found.file_type == FileType::Regular) {
        if names_of(tree, found.inode) != found.links {
            return Err(format!("{}: {} links", path.escape_ascii(), found.links));
        }
    }
    judge_in_use(tree, run, state)
}

/// Compares the volume's own fields with some call's, each part by itself.
pub(crate) fn whole(volume: &Volume, run: &Run, state: &State<'_>) -> Result<(), String> {
    let at = |call: u64| usize::try_from(call).unwrap();
    let models = &run.history[at(state.promised)..=at(state.begun)];
    let found = VolumeState::of(volume)?;
    let has = |is: &dyn Fn(&VolumeState) -> bool| models.iter().any(|model| is(&model.whole));
    let right = has(&|whole| whole.label == found.label)
        && has(&|whole| whole.counted == found.counted)
        && has(&|whole| whole.limit == found.limit)
        && has(&|whole| whole.blocks == found.blocks);
    if right { Ok(()) } else { Err(format!("{found:?} is none of those calls'")) }
}

/// Names of an inode. What a directory with two names holds is seen twice.
fn names_of(tree: &Tree, inode: InodeNumber) -> u32 {
    let same = tree.iter().filter(|(_, found)| found.inode == inode);
    let names: BTreeSet<_> = same.map(|(path, found)| (found.directory, name(path))).collect();
    u32::try_from(names.len()).unwrap()
}

/// The last name of a path, with the slash before it.
fn name(path: &[u8]) -> &[u8] {
    &path[path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)..]
}

/// Judges a volume before all is reclaimed: counts may be too high, and directories have two names.
pub(crate) fn judge_in_use(tree: &Tree, run: &Run, state: &State<'_>) -> Result<(), String> {
    let at = |call: u64| usize::try_from(call).unwrap();
    let models = &run.history[at(state.promised)..=at(state.begun)];
    let places = models.iter().map(|model| model.directories().map(|(path, id)| (id, path)).collect());
    let promises = Promises { run, state, models, places: places.collect() };
    promises.names(tree)?;
    promises.nothing_lost(tree)
}

impl Promises<'_> {
    /// Checks that every name leads to what it may lead to.
    fn names(&self, tree: &Tree) -> Result<(), String> {
        // Which directories of the models each may be. A path stands before those below it.
        let mut ids = BTreeMap::from([(InodeNumber::ROOT, BTreeSet::from([ROOT]))]);
        for (path, found) in tree.iter().filter(|(path, _)| !path.starts_with(b"/lost+found")) {
            let context = |what| format!("{} ({:?}): {what}", path.escape_ascii(), found.inode);
            let directories = ids.get(&found.directory).cloned().unwrap_or_default();
            let may_be = self.may_be(&directories, name(path), found).map_err(context)?;
            ids.entry(found.inode).or_default().extend(may_be);
            if found.file_type == FileType::Regular && names_of(tree, found.inode) > found.links {
                return Err(context(format!("{} links", found.links)));
            }
        }
        Ok(())
    }

    /// Judges a name in one of some directories by what it leads to; returns the directories that it may be in. No
    /// order is kept between a name and those of the directories above it: it is one in its directory.
    fn may_be(
        &self,
        directories: &BTreeSet<u32>,
        name: &[u8],
        found: &NamedInode,
    ) -> Result<BTreeSet<u32>, String> {
        let (mut why, mut is_right, mut ids) =
            ("is no name of these calls".to_owned(), false, BTreeSet::new());
        let mut seen: Vec<&Node> = Vec::new();
        for (model, places) in self.models.iter().zip(&self.places) {
            let above = directories.iter().filter_map(|id| places.get(id));
            let nodes = above.filter_map(|above| model.names.get(&[above, name].concat()));
            for node in nodes {
                if seen.contains(&node) {
                    continue;
                }
                seen.push(node);
                match self.is_node(node, found) {
                    Ok(()) => {
                        is_right = true;
                        ids.extend(if let Node::Directory(id) = node { Some(*id) } else { None });
                    }
                    Err(Some(what)) => why = what,
                    Err(None) => {}
                }
            }
        }
        if is_right { Ok(ids) } else { Err(why) }
    }

    /// Compares a found node with a model's; the error says what is wrong if it is nearly that.
    fn is_node(&self, node: &Node, found: &NamedInode) -> Result<(), Option<String>> {
        let is_it = |id: &u32| self.run.inodes.get(id) == Some(&found.inode);
        match (node, found.file_type) {
            (Node::Directory(id), FileType::Directory) if is_it(id) => Ok(()),
            (Node::Link(target), FileType::Symlink) if *target == found.bytes => Ok(()),
            (Node::File(id), FileType::Regular) if is_it(id) => {
                self.may_hold(*id, &found.bytes).and_then(|()| self.may_have(*id, found)).map_err(Some)
            }
            _ => Err(None),
        }
    }

    fn may_have(&self, id: u32, found: &NamedInode) -> Result<(), String> {
        let is = |model: &Model| model.files.get(&id).is_some_and(|file| found.has_attributes_of(file));
        if self.models.iter().any(is) { Ok(()) } else { Err(format!("file {id}: attributes")) }
    }

    fn may_hold(&self, id: u32, bytes: &[u8]) -> Result<(), String> {
        let [first, last] =
            [self.state.floor(id), self.state.begun].map(|call| usize::try_from(call).unwrap());
        let models = &self.run.history[first..=last];
        // A size comes with the bytes.
        if !models.iter().any(|model| model.pieces(id) * PIECE == bytes.len()) {
            return Err(format!("file {id}: {} bytes", bytes.len()));
        }
        for (index, bytes) in bytes.chunks(PIECE).enumerate() {
            let allowed = allowed(models.iter(), id, index);
            if !allowed.iter().any(|piece| bytes == bytes_of(id, *piece)) {
                return Err(format!("file {id}, piece {index}: {:x?}, allowed {allowed:?}", &bytes[..16]));
            }
        }
        Ok(())
    }

    /// Checks that names that were there all the time still are, and files that had any.
    fn nothing_lost(&self, tree: &Tree) -> Result<(), String> {
        for path in self.models[0].names.keys() {
            let stays = self.models.iter().all(|model| model.names.contains_key(path));
            if stays && !tree.contains_key(path) {
                return Err(format!("{} is lost", path.escape_ascii()));
            }
        }
        let inodes: BTreeSet<_> = tree.values().map(|found| found.inode).collect();
        let named = |model: &Model| model.file_names().map(|(_, id)| id).collect::<BTreeSet<_>>();
        let always = self.models.iter().map(named).reduce(|all, named| &all & &named).unwrap_or_default();
        match always.iter().find(|id| !inodes.contains(&self.run.inodes[id])) {
            Some(id) => Err(format!("file {id} (inode {}) has lost all its names", self.run.inodes[id])),
            None => Ok(()),
        }
    }
}
