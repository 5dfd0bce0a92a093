//! Model of a volume: a tree in memory, and the effect of each verb on it.

use std::collections::BTreeMap;

use platfs::ondisk::units::InodeNumber;

pub type Id = usize;
pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    File(Vec<u8>),
    Directory(BTreeMap<Vec<u8>, Id>),
    Link(Vec<u8>),
    Fifo,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub inode: InodeNumber,
    pub content: Content,
    pub permissions: u16,
    pub owner: (u32, u32),
    pub xattrs: Xattrs,
    pub parent: Id,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub nodes: BTreeMap<Id, Node>,
    pub next: Id,
}

pub const ROOT: Id = 0;

impl Model {
    pub fn new() -> Self {
        let root = Node {
            inode: InodeNumber::ROOT,
            content: Content::Directory(BTreeMap::new()),
            permissions: 0o755,
            owner: (0, 0),
            xattrs: Xattrs::new(),
            parent: ROOT,
        };
        Model { nodes: BTreeMap::from([(ROOT, root)]), next: 1 }
    }

    pub fn node(&self, id: Id) -> &Node {
        &self.nodes[&id]
    }

    pub fn node_mut(&mut self, id: Id) -> &mut Node {
        self.nodes.get_mut(&id).unwrap()
    }

    pub fn names(&self, directory: Id) -> &BTreeMap<Vec<u8>, Id> {
        match &self.node(directory).content {
            Content::Directory(names) => names,
            other => panic!("not a directory: {other:?}"),
        }
    }

    pub fn names_mut(&mut self, directory: Id) -> &mut BTreeMap<Vec<u8>, Id> {
        match &mut self.node_mut(directory).content {
            Content::Directory(names) => names,
            other => panic!("not a directory: {other:?}"),
        }
    }

    pub fn bytes_mut(&mut self, id: Id) -> &mut Vec<u8> {
        match &mut self.node_mut(id).content {
            Content::File(bytes) => bytes,
            other => panic!("not a file: {other:?}"),
        }
    }

    pub fn is_directory(&self, id: Id) -> bool {
        matches!(self.node(id).content, Content::Directory(_))
    }

    pub fn all(&self, wanted: impl Fn(&Content) -> bool) -> Vec<Id> {
        self.nodes.iter().filter(|(_, node)| wanted(&node.content)).map(|(id, _)| *id).collect()
    }

    pub fn add(&mut self, parent: Id, name: &[u8], node: Node) -> Id {
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, node);
        self.names_mut(parent).insert(name.to_vec(), id);
        id
    }

    /// How often each node is named, and how many directories each directory holds.
    pub fn links(&self) -> BTreeMap<Id, u16> {
        let mut links: BTreeMap<Id, u16> = BTreeMap::new();
        *links.entry(ROOT).or_default() = 3; // `.`, `..` and lost+found
        for (id, node) in &self.nodes {
            let Content::Directory(names) = &node.content else { continue };
            for child in names.values() {
                if self.is_directory(*child) {
                    *links.entry(*child).or_default() += 2;
                    *links.entry(*id).or_default() += 1;
                } else {
                    *links.entry(*child).or_default() += 1;
                }
            }
        }
        links
    }

    /// Forgets a node that has no name left, unless it is still held.
    pub fn drop_if_unnamed(&mut self, id: Id, held: bool) {
        if !self.links().contains_key(&id) && !held {
            self.nodes.remove(&id);
        }
    }

    pub fn is_below(&self, mut id: Id, top: Id) -> bool {
        loop {
            if id == top {
                return true;
            }
            if id == ROOT {
                return false;
            }
            id = self.node(id).parent;
        }
    }
}
