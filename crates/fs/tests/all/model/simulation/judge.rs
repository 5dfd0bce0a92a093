//! Comparing a volume with the model: through the library, and through the kernel.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use platfs::check::{Decision, Issue, Options, Sink};
use platfs::device::Device;
use platfs::ondisk::inode::FileType;
use platfs::{Seek, Volume};

use super::model::{Content, Id, Model, Node, ROOT};

/// Asserts that the library shows the whole model.
pub fn compare(volume: &Volume, model: &Model) {
    let links = model.links();
    for (id, node) in &model.nodes {
        let found = volume.metadata(node.inode).unwrap_or_else(|e| panic!("inode {}: {e}", node.inode));
        let expected = links.get(id).copied().unwrap_or(0);
        assert_eq!(found.links, expected, "links of inode {}", node.inode);
        if *id != ROOT {
            assert_eq!(found.permissions, node.permissions, "permissions of inode {}", node.inode);
            assert_eq!((found.uid, found.gid), node.owner, "owner of inode {}", node.inode);
        }
        let xattrs: BTreeMap<_, _> = volume.inode(node.inode).xattrs().unwrap().into_iter().collect();
        assert_eq!(xattrs, node.xattrs, "attributes of inode {}", node.inode);
        content(volume, model, node, &found);
    }
}

fn content(volume: &Volume, model: &Model, node: &Node, found: &platfs::Metadata) {
    match &node.content {
        Content::File(bytes) => {
            assert_eq!(found.size, bytes.len() as u64, "size of inode {}", node.inode);
            file(volume, node, bytes);
        }
        Content::Directory(names) => {
            assert_eq!(found.file_type, FileType::Directory);
            let listed = volume.read_dir(node.inode).unwrap().map(|entry| entry.unwrap());
            let mut listed: BTreeMap<_, _> = listed.map(|entry| (entry.name, entry.inode)).collect();
            listed.remove(&b"lost+found"[..]);
            let expected: BTreeMap<_, _> =
                names.iter().map(|(name, child)| (name.clone(), model.node(*child).inode)).collect();
            assert_eq!(listed, expected, "names in inode {}", node.inode);
            for (name, child) in names {
                assert_eq!(volume.lookup(node.inode, name).unwrap(), model.node(*child).inode);
            }
            let parent = model.node(node.parent).inode;
            assert_eq!(volume.lookup(node.inode, b"..").unwrap(), parent, "`..` of inode {}", node.inode);
        }
        Content::Link(target) => assert_eq!(&volume.read_link(node.inode).unwrap(), target),
        Content::Fifo => assert_eq!(found.file_type, FileType::Fifo),
    }
}

/// Asserts the bytes of a file, and that what counts as a hole is zero.
pub fn file(volume: &Volume, node: &Node, bytes: &[u8]) {
    let mut read = vec![1; bytes.len() + 10];
    let count = volume.read_at(node.inode, 0, &mut read).unwrap();
    read.truncate(count);
    if read != bytes {
        let at = read.iter().zip(bytes).position(|(a, b)| a != b);
        panic!(
            "inode {}: {} bytes read, {} expected, first difference at {at:?}",
            node.inode,
            count,
            bytes.len()
        );
    }
    let mut at = 0;
    while let Some(hole) = volume.seek(node.inode, at, Seek::Hole).unwrap() {
        let end = volume.seek(node.inode, hole, Seek::Data).unwrap().unwrap_or(bytes.len() as u64);
        let hole_bytes = &bytes[hole as usize..end as usize];
        assert!(hole_bytes.iter().all(|byte| *byte == 0), "inode {}: data in the hole at {hole}", node.inode);
        at = end;
    }
}

/// Asserts that the kernel shows the whole model in a mounted tree.
pub fn compare_mounted(model: &Model, root: &Path) {
    let mut seen: BTreeMap<Id, u64> = BTreeMap::new();
    mounted(model, ROOT, root, &mut seen);
}

fn mounted(model: &Model, id: Id, path: &Path, seen: &mut BTreeMap<Id, u64>) {
    let node = model.node(id);
    let shown = path.display();
    let facts = std::fs::symlink_metadata(path).unwrap_or_else(|e| panic!("{shown}: {e}"));
    if id != ROOT {
        assert_eq!(facts.mode() & 0o7777, u32::from(node.permissions), "{shown}");
        assert_eq!((facts.uid(), facts.gid()), node.owner, "{shown}");
    }
    assert_eq!(*seen.entry(id).or_insert(facts.ino()), facts.ino(), "{shown}: one file by all names");
    match &node.content {
        Content::File(bytes) => {
            let read = std::fs::read(path).unwrap_or_else(|e| panic!("{shown}: {e}"));
            assert!(&read == bytes, "{shown}: contents");
        }
        Content::Directory(names) => {
            let listed = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
            let mut listed: Vec<Vec<u8>> = listed.map(|name| name.as_bytes().to_vec()).collect();
            listed.retain(|name| name != b"lost+found");
            listed.sort();
            assert_eq!(listed, names.keys().cloned().collect::<Vec<_>>(), "{shown}: names");
            for (name, child) in names {
                mounted(model, *child, &path.join(std::ffi::OsStr::from_bytes(name)), seen);
            }
        }
        Content::Link(target) => {
            assert_eq!(std::fs::read_link(path).unwrap().as_os_str().as_bytes(), target, "{shown}");
        }
        Content::Fifo => {}
    }
}

/// Asserts that the check, which shares no code with what writes, finds nothing but issues of some kinds.
pub fn check(device: &Arc<dyn Device>, besides: &[&str], step: u64) {
    let mut listener = Listener { besides, first: None };
    let checked = platfs::check::check(Arc::clone(device), &Options::default(), &mut listener);
    checked.unwrap_or_else(|error| panic!("step {step}: the check: {error}"));
    assert!(listener.first.is_none(), "step {step}: the check: {:?}", listener.first);
}

struct Listener<'k> {
    besides: &'k [&'k str],
    first: Option<Issue>,
}

impl Sink for Listener<'_> {
    fn issue(&mut self, issue: Issue) -> Decision {
        if !self.besides.contains(&issue.kind.id) {
            self.first.get_or_insert(issue);
        }
        Decision::Leave
    }
}
