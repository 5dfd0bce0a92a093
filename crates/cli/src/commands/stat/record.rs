//! Record of an inode byte for byte, where it lies, and which blocks its file takes; and the index of a
//! directory.

use ondisk::dirhash::HashVersion;
use ondisk::inode::Inode;
use ondisk::units::InodeNumber;
use platfs_forensics::htree::{self, Holds, Named, Node, Tree};
use platfs_forensics::owners::{self, Part};
use platfs_forensics::{RawImage, Result};
use serde_json::{Map, Value, json};

use crate::console::{Console, Failure};
use crate::text::{self, Shown, put_bytes};

/// Parts to show beside the usual.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub(super) blocks: bool,
    pub(super) raw: bool,
    pub(super) index: bool,
}

impl Parts {
    pub(super) fn any(self) -> bool {
        self.blocks || self.raw || self.index
    }
}

/// Facts of one inode by its bytes.
pub(super) struct Record {
    inode: Inode,
    /// First byte of the record on the volume.
    offset: u64,
    block_size: u64,
    is_right: bool,
    /// Blocks of the map, and that of the attributes.
    map: Vec<u64>,
    attributes: Vec<u64>,
    /// Runs of data: first file block, first block, count.
    data: Vec<(u64, u64, u64)>,
    problem: Option<String>,
    index: Option<Tree>,
}

impl Record {
    pub(super) fn of(ground: &RawImage, number: InodeNumber, parts: Parts) -> Result<Record> {
        let inode = ground.inode(number)?;
        let mut record = Record {
            offset: ground.place_of(number)?,
            block_size: ground.geometry().block_size.bytes().into(),
            is_right: ground.sealer().inode_is_right(&inode),
            map: Vec::new(),
            attributes: Vec::new(),
            data: Vec::new(),
            problem: None,
            index: if parts.index { htree::read(ground, &inode)? } else { None },
            inode,
        };
        let mut found = Vec::new();
        if parts.blocks {
            record.problem =
                owners::of_inode(ground, &record.inode, &mut found).err().map(|error| error.to_string());
        }
        for one in found {
            match one.part {
                Part::Map(_) => record.map.push(one.start.0),
                Part::Attributes(_) => record.attributes.push(one.start.0),
                Part::Data { file_block, .. } => record.data.push((file_block, one.start.0, one.count)),
                _ => {}
            }
        }
        Ok(record)
    }

    pub(super) fn text(&self, console: &mut Console<'_>, parts: Parts) -> std::result::Result<(), Failure> {
        let (block, inside) = (self.offset / self.block_size, self.offset % self.block_size);
        let state = if self.is_right { "" } else { ", its checksum is wrong" };
        let (number, size) = (self.inode.number(), self.inode.bytes().len());
        writeln!(
            console.out,
            "Record: inode {number} in block {block} at byte {inside}, {size} bytes{state}"
        )?;
        if let Some(deleted) = self.deleted() {
            writeln!(console.out, "Deleted: {deleted}")?;
        }
        if parts.raw {
            for (index, line) in self.inode.bytes().chunks(16).enumerate() {
                writeln!(console.out, "  {:04x}  {}", index * 16, text::hex(line))?;
            }
        }
        if parts.blocks {
            let list = |blocks: &[u64]| blocks.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
            writeln!(console.out, "Map blocks: {}", list(&self.map))?;
            let data = self.data.iter().map(|(_, start, count)| match count {
                1 => start.to_string(),
                _ => format!("{start}-{}", start + count - 1),
            });
            writeln!(console.out, "Data blocks: {}", data.collect::<Vec<_>>().join(" "))?;
            if let Some(problem) = &self.problem {
                writeln!(console.out, "Not followed to the end: {problem}")?;
            }
        }
        match &self.index {
            Some(tree) => index_text(console, tree),
            None if parts.index => Ok(writeln!(console.out, "Index: none")?),
            None => Ok(()),
        }
    }

    /// When it was deleted. With few seconds the field is the next inode of the orphan list.
    fn deleted(&self) -> Option<String> {
        let seconds = self.inode.raw().i_dtime.get();
        let is_gone = self.inode.links() == 0 && seconds != 0;
        is_gone.then(|| text::whole_seconds(seconds.into()))
    }

    pub(super) fn object(&self, parts: Parts) -> Map<String, Value> {
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
        put("inode", self.inode.number().get().into());
        put("block", (self.offset / self.block_size).into());
        put("offset", (self.offset % self.block_size).into());
        put("size", self.inode.bytes().len().into());
        put("checksum_right", self.is_right.into());
        put("deleted", self.deleted().into());
        if parts.raw {
            put("hex", text::hex(self.inode.bytes()).into());
        }
        if parts.blocks {
            put("map_blocks", self.map.clone().into());
            put("attribute_blocks", self.attributes.clone().into());
            let data = self.data.iter().map(|(file_block, disk_block, count)| {
                json!({ "file_block": file_block, "disk_block": disk_block, "count": count })
            });
            put("data_blocks", Value::Array(data.collect()));
            put("problem", self.problem.clone().into());
        }
        if parts.index {
            put("index", self.index.as_ref().map(index_object).into());
        }
        object
    }
}

fn version(version: HashVersion) -> &'static str {
    match version {
        HashVersion::Legacy => "legacy",
        HashVersion::HalfMd4 => "half_md4",
        HashVersion::Tea => "tea",
    }
}

fn index_text(console: &mut Console<'_>, tree: &Tree) -> std::result::Result<(), Failure> {
    let signs = if tree.unsigned { "unsigned" } else { "signed" };
    writeln!(
        console.out,
        "Index: hash {} ({signs} letters), {} levels",
        version(tree.root.version),
        tree.root.levels
    )?;
    for node in &tree.nodes {
        let Node { depth, file_block, block, holds } = node;
        let indent = "  ".repeat(usize::from(*depth) + 1);
        match holds {
            Holds::Index { limit, entries } => {
                writeln!(
                    console.out,
                    "{indent}block {file_block} (on {block}): {} of {limit} entries",
                    entries.len()
                )?;
                for entry in entries {
                    writeln!(console.out, "{indent}  {:#010x} block {}", entry.hash, entry.block)?;
                }
            }
            Holds::Names(names) => {
                writeln!(console.out, "{indent}block {file_block} (on {block}): {} names", names.len())?;
                for Named { name, inode, hash } in names {
                    let hash = hash
                        .map_or(String::new(), |hash| format!("{:#010x}-{:08x} ", hash.major, hash.minor));
                    writeln!(console.out, "{indent}  {hash}{inode} {}", Shown(name))?;
                }
            }
        }
    }
    for problem in &tree.problems {
        writeln!(console.out, "  wrong: {problem}")?;
    }
    Ok(())
}

fn index_object(tree: &Tree) -> Value {
    let nodes = tree.nodes.iter().map(|node| {
        let mut object = Map::new();
        object.insert("depth".to_owned(), node.depth.into());
        object.insert("file_block".to_owned(), node.file_block.0.into());
        object.insert("block".to_owned(), node.block.0.into());
        match &node.holds {
            Holds::Index { limit, entries } => {
                object.insert("limit".to_owned(), (*limit).into());
                let entries =
                    entries.iter().map(|entry| json!({ "hash": entry.hash, "file_block": entry.block.0 }));
                object.insert("entries".to_owned(), Value::Array(entries.collect()));
            }
            Holds::Names(names) => {
                let names = names.iter().map(|named| {
                    let mut object = Map::new();
                    put_bytes(&mut object, "name", &named.name);
                    object.insert("inode".to_owned(), named.inode.into());
                    object.insert("hash".to_owned(), named.hash.map(|hash| hash.major).into());
                    object.insert("minor_hash".to_owned(), named.hash.map(|hash| hash.minor).into());
                    Value::Object(object)
                });
                object.insert("names".to_owned(), Value::Array(names.collect()));
            }
        }
        Value::Object(object)
    });
    json!({
        "hash": version(tree.root.version),
        "unsigned": tree.unsigned,
        "levels": tree.root.levels,
        "nodes": nodes.collect::<Vec<_>>(),
        "problems": tree.problems,
    })
}
