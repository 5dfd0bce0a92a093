//! What may be found after a crash: before recovery, and after it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platfs::check::{self, Decision, Issue, Sink};
use platfs::device::Device;
use platfs::ondisk::inode::FileType;
use platfs::{InodeNumber, OpenOptions, Volume};
use testkit::scratch::Scratch;
use testkit::{fsck, tool};

use crate::deep::Places;
use crate::states::State;
use crate::workload::{Contents, Model, Node, PIECE, piece};

/// What a check may tell of: too much in use, no name, too many links, checksums of bitmaps.
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
];

#[derive(Default)]
struct Strict(Option<String>);

impl Sink for Strict {
    fn issue(&mut self, issue: Issue) -> Decision {
        let too_few = match issue.kind.id {
            // Found is what is stated.
            "inode-links" => {
                issue.found.parse::<u32>().unwrap_or(0) < issue.expected.parse().unwrap_or(u32::MAX)
            }
            "block-bitmap" | "inode-bitmap" => issue.found.contains("in use and marked free"),
            _ => false,
        };
        if too_few || !ALLOWED.contains(&issue.kind.id) {
            self.0.get_or_insert(format!(
                "{} {:?}: {}, not {}",
                issue.kind.id, issue.place, issue.found, issue.expected
            ));
        }
        Decision::Leave
    }
}

/// Whether a state shows no damage, as it is.
pub fn before_recovery(device: Arc<dyn Device>) -> Result<(), String> {
    let mut sink = Strict::default();
    check::check(device, &check::Options::default(), &mut sink).map_err(|error| format!("check: {error}"))?;
    sink.0.map_or(Ok(()), |what| Err(format!("before recovery: {what}")))
}

/// What was promised of a state, and what may be there beside.
pub struct Promises<'r> {
    pub history: &'r [Model],
    pub inodes: &'r BTreeMap<u32, InodeNumber>,
    /// The attribute of each file, call by call, if any is set.
    pub values: &'r [BTreeMap<u32, u8>],
    /// Which inode each directory is, call by call, if any is moved.
    pub directories: &'r [Places],
    pub promised: usize,
    pub begun: usize,
}

struct Found {
    file_type: FileType,
    bytes: Vec<u8>,
    links: u16,
    inode: InodeNumber,
    directory: InodeNumber,
    value: Option<Vec<u8>>,
}

type Tree = BTreeMap<Vec<u8>, Found>;

fn walk(volume: &Volume, directory: InodeNumber, path: &[u8], tree: &mut Tree) -> Result<(), String> {
    let told = |what: &str, error: platfs::Error| format!("{}: {what}: {error}", path.escape_ascii());
    for entry in volume.read_dir(directory).map_err(|error| told("listing", error))? {
        let entry = entry.map_err(|error| told("listing", error))?;
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
        let value = volume.xattr(entry.inode, b"user.v").map_err(|error| told("an attribute", error))?;
        let found = Found {
            file_type: facts.file_type,
            bytes,
            links: facts.links,
            inode: entry.inode,
            directory,
            value,
        };
        tree.insert(below.clone(), found);
        if facts.file_type == FileType::Directory {
            walk(volume, entry.inode, &below, tree)?;
        }
    }
    Ok(())
}

impl Promises<'_> {
    fn models(&self) -> &[Model] {
        &self.history[self.promised..=self.begun]
    }

    /// Whether a name may lead to what it leads to.
    fn may_be(&self, path: &[u8], found: &Found) -> Result<(), String> {
        // No order is kept between a name and those of the directories above it: it is one in its directory.
        let name = &path[path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)..];
        let node_in = |call: usize| match self.directories.get(call) {
            None => self.history[call].names.get(path),
            Some(places) => {
                let (above, _) = places.iter().find(|(_, number)| **number == found.directory)?;
                self.history[call].names.get(&[above, name].concat())
            }
        };
        let nodes: Vec<_> = (self.promised..=self.begun).filter_map(node_in).collect();
        let mut why = "is no name of these calls".to_owned();
        for node in nodes {
            match (node, found.file_type) {
                (Node::Directory, FileType::Directory) => return Ok(()),
                (Node::Link(target), FileType::Symlink) if *target == found.bytes => return Ok(()),
                (Node::File(id), FileType::Regular) if self.inodes.get(id) == Some(&found.inode) => {
                    match self.may_hold(*id, &found.bytes).and_then(|()| self.may_have(*id, found)) {
                        Ok(()) => return Ok(()),
                        Err(what) => why = what,
                    }
                }
                _ => {}
            }
        }
        Err(format!("{} ({:?}): {why}", path.escape_ascii(), found.inode))
    }

    fn may_have(&self, id: u32, found: &Found) -> Result<(), String> {
        let all = self.values.get(self.promised..=self.begun).unwrap_or_default();
        let is = |value: &BTreeMap<u32, u8>| value.get(&id).map(|value| vec![*value; 300]) == found.value;
        if self.values.is_empty() || all.iter().any(is) {
            Ok(())
        } else {
            Err(format!("file {id}: attribute"))
        }
    }

    fn may_hold(&self, id: u32, bytes: &[u8]) -> Result<(), String> {
        let none = Contents::default();
        let all: Vec<_> = self.models().iter().map(|model| model.files.get(&id).unwrap_or(&none)).collect();
        if !all.iter().any(|contents| contents.0.len() * PIECE == bytes.len()) {
            return Err(format!("file {id}: {} bytes", bytes.len()));
        }
        for (index, bytes) in bytes.chunks(PIECE).enumerate() {
            let allowed: BTreeSet<u32> =
                all.iter().map(|contents| contents.0.get(index).copied().unwrap_or(0)).collect();
            if !allowed.iter().any(|version| bytes == piece(id, *version, index)) {
                return Err(format!("file {id}, piece {index}: {:x?}, allowed {allowed:?}", &bytes[..16]));
            }
        }
        Ok(())
    }

    /// Compares a tree with what was promised.
    fn judge(&self, tree: &Tree) -> Result<(), String> {
        for (path, found) in tree.iter().filter(|(path, _)| !path.starts_with(b"/lost+found")) {
            self.may_be(path, found)?;
            let names = tree.values().filter(|other| other.inode == found.inode).count();
            if found.file_type == FileType::Regular && usize::from(found.links) != names {
                return Err(format!("{}: {} links", path.escape_ascii(), found.links));
            }
        }
        let models = self.models();
        for path in models[0].names.keys() {
            let stays = models.iter().all(|model| model.names.contains_key(path));
            if stays && !tree.contains_key(path) {
                return Err(format!("{} is lost", path.escape_ascii()));
            }
        }
        for id in models[0]
            .names
            .values()
            .filter_map(|node| if let Node::File(id) = node { Some(*id) } else { None })
        {
            let is_named = |model: &Model| model.names.values().any(|node| *node == Node::File(id));
            if models.iter().all(is_named) && !tree.values().any(|found| found.inode == self.inodes[&id]) {
                return Err(format!("file {id} (inode {}) has lost all its names", self.inodes[&id]));
            }
        }
        Ok(())
    }
}

/// Recovers a state by opening it, compares it with what was promised, and checks it.
pub fn recovered(
    device: Arc<dyn Device>,
    options: &OpenOptions,
    promises: &Promises<'_>,
) -> Result<(), String> {
    let volume = Volume::open(Arc::clone(&device), options).map_err(|error| format!("opening: {error}"))?;
    let mut tree = Tree::new();
    walk(&volume, InodeNumber::ROOT, b"", &mut tree)?;
    promises.judge(&tree)?;
    volume.close().map_err(|error| format!("closing: {error}"))?;
    is_clean(device).map_err(|what| format!("after recovery: {what}"))
}

/// Whether a check finds nothing at all.
pub fn is_clean(device: Arc<dyn Device>) -> Result<(), String> {
    let mut sink = Clean::default();
    check::check(device, &check::Options::default(), &mut sink).map_err(|error| format!("check: {error}"))?;
    sink.0.map_or(Ok(()), Err)
}

#[derive(Default)]
struct Clean(Option<String>);

impl Sink for Clean {
    fn issue(&mut self, issue: Issue) -> Decision {
        self.0.get_or_insert(format!(
            "{} {:?}: {}, not {}",
            issue.kind.id, issue.place, issue.found, issue.expected
        ));
        Decision::Leave
    }
}

/// Lines of e2fsck that tell of nothing but too much in use, no name, too many links, checksums of bitmaps.
fn is_harmless(line: &str) -> bool {
    const BEGIN: &[&str] = &[
        "e2fsck ",
        "Pass ",
        "Block bitmap differences:",
        "Inode bitmap differences:",
        "Free blocks count wrong",
        "Free inodes count wrong",
        "Directories count wrong",
        "Padding at end",
        "Unattached inode",
        "Unattached zero-length inode",
        "Unconnected directory inode",
        "Fix? no",
        "Connect to /lost+found? no",
        "Clear? no",
        "IGNORED.",
        "Warning!",
        "Error writing",
        "ext2fs_",
        "state.img was not cleanly unmounted",
    ];
    line.trim().is_empty() || BEGIN.iter().any(|begin| line.trim_start().starts_with(begin))
}

/// The first line of `e2fsck -fn` that tells of damage.
fn damage(said: &str) -> Option<String> {
    let wrong = |line: &&str| {
        if let Some(bits) = line.split_once("bitmap differences:").map(|(_, bits)| bits) {
            // A bit that has to be set is one that is in use and was called free.
            return bits.contains('+');
        }
        if line.starts_with("Inode ") && line.contains("ref count is") {
            let numbers: Vec<u32> =
                line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
            return numbers.len() < 3 || numbers[1] < numbers[2];
        }
        let is_of_nameless = line.contains("should be <The NULL inode> (0)") || line.contains("(was in ");
        // A directory on its way to another has both names, and one `..`.
        let is_on_its_way = line.contains("is a link to directory") || line.starts_with("'..' in ");
        let is_sum = line.contains(" files (") || line.contains("WARNING: Filesystem still has errors");
        let is_checksum = line.contains("bitmap") && line.contains("checksum");
        let is_references = line.contains("reference count");
        !(is_harmless(line) || is_of_nameless || is_sum || is_on_its_way || is_checksum || is_references)
    };
    said.lines().find(wrong).map(str::to_owned)
}

/// Lets e2fsck judge a state, and repair it.
pub fn e2fsck(state: &State<'_>, scratch: &Scratch, promises: &Promises<'_>) -> Result<(), String> {
    let image = scratch.join("state.img");
    let device = state.again();
    let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    std::fs::write(&image, bytes).unwrap();
    let run = |how: &str| tool::command("e2fsck").arg(how).arg(&image).output().unwrap();
    let said = run("-fn");
    let said = String::from_utf8_lossy(&said.stdout);
    if let Some(line) = damage(&said) {
        return Err(format!("e2fsck: {line}\n{said}"));
    }
    let done = run("-fy");
    if done.status.code().is_none_or(|code| code > 1) {
        return Err(format!("e2fsck -fy: {}", String::from_utf8_lossy(&done.stdout)));
    }
    let again = fsck::complaints(&image);
    if !again.is_empty() {
        return Err(format!("e2fsck, again: {again}"));
    }
    let device = platfs::device::MemoryDevice::from_bytes(&std::fs::read(&image).unwrap());
    let volume = Volume::open(Arc::new(device), &OpenOptions::new()).map_err(|error| error.to_string())?;
    let mut tree = Tree::new();
    walk(&volume, InodeNumber::ROOT, b"", &mut tree)?;
    promises.judge(&tree).map_err(|what| format!("after e2fsck -fy: {what}"))
}
