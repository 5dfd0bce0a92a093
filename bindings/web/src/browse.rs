//! Directories page by page, the facts of a file, and where its blocks lie.

use ondisk::acl::Acl;
use ondisk::inode::{FileType, InodeFlags};
use platfs::{DirEntry, InodeNumber, Metadata, Segment, State};
use platfs_forensics::words;
use serde_json::{Map, Value, json};

use crate::session::{Answer, Open, inode, number, text};

/// Names of the first answer, which is shown at once, and of each that follows from where the one before ended. Each looks
/// at all inodes of a large directory, so there are few.
const FIRST: usize = 2_000;
const NAMES: usize = 16_000;
/// Most stretches of a file that are shown.
const STRETCHES: usize = 20_000;
/// Most bytes of an attribute's value that are shown.
const VALUE: usize = 4_096;

/// Fields of an inode that a list shows.
fn brief(open: &Open, facts: &Metadata) -> Map<String, Value> {
    let link = (facts.file_type == FileType::Symlink).then(|| open.volume.read_link(facts.inode));
    let link =
        link.map(|target| target.map_or_else(|error| format!("({error})"), |target| words::lossy(&target)));
    let object = json!({
        "inode": facts.inode.get(),
        "type": words::type_name(facts.file_type),
        "mode": words::mode(facts.file_type, facts.permissions),
        "octal": format!("{:04o}", facts.permissions),
        "uid": facts.uid,
        "gid": facts.gid,
        "links": facts.links,
        "size": facts.size,
        "shown": words::human(facts.size),
        "modified": words::time(facts.times.modify),
        "target": link,
    });
    if let Value::Object(object) = object { object } else { Map::new() }
}

/// A name with the facts of its inode, or with what is wrong with that.
pub(crate) fn entry(open: &Open, entry: &DirEntry) -> Value {
    let mut object = match open.volume.metadata(entry.inode) {
        Ok(facts) => brief(open, &facts),
        Err(error) => Map::from_iter([
            ("inode".to_owned(), entry.inode.get().into()),
            ("type".to_owned(), "broken".into()),
            ("error".to_owned(), error.to_string().into()),
        ]),
    };
    object.insert("name".to_owned(), words::lossy(&entry.name).into());
    if std::str::from_utf8(&entry.name).is_err() {
        object.insert("name_hex".to_owned(), words::hex(&entry.name).into());
    }
    Value::Object(object)
}

/// The names of a directory from a position on. Positions have 64 bits, and travel as text.
pub(crate) fn list(open: &Open, question: &Value) -> Answer {
    let directory = inode(question)?;
    let first = text(question, "from")?.parse().map_err(|_| "`from` is no position")?;
    let (mut position, mut names, mut seen, mut problem, mut is_end) = (first, Vec::new(), 0, None, false);
    while seen < if first == 0 { FIRST } else { NAMES } && !is_end {
        match open.volume.read_dir_from(directory, position) {
            Ok(batch) => {
                is_end = batch.is_empty();
                seen += batch.len();
                position = batch.last().map_or(position, |(_, behind)| *behind);
                let batch = batch.into_iter().map(|(entry, _)| entry);
                names.extend(batch.filter(|one| one.name != b"." && one.name != b".."));
            }
            Err(error) if names.is_empty() && first == 0 => return Err(error.to_string()),
            Err(error) => (problem, is_end) = (Some(error.to_string()), true),
        }
    }
    // An indexed directory has its names in the order of hashes: each inode would be read from another piece of the disk.
    names.sort_unstable_by_key(|one| one.inode);
    let entries: Vec<Value> = names.iter().map(|one| entry(open, one)).collect();
    let next = (!is_end).then(|| position.to_string());
    Ok(json!({ "entries": entries, "next": next, "problem": problem }))
}

/// Everything about one inode but its blocks.
pub(crate) fn facts(open: &Open, question: &Value) -> Answer {
    let facts = open.volume.metadata(inode(question)?).map_err(|error| error.to_string())?;
    let mut object = brief(open, &facts);
    let attributes = open.volume.inode(facts.inode).xattrs();
    let locked = open.volume.inode(facts.inode).is_locked().unwrap_or(false);
    let rest = json!({
        "accessed": words::time(facts.times.access),
        "changed": words::time(facts.times.change),
        "created": facts.times.create.map(words::time),
        "flags": words::flag_names(facts.flags),
        "generation": facts.generation,
        "project": facts.project,
        "allocated": words::human(facts.sectors.saturating_mul(512)),
        "device": facts.device.map(|(major, minor)| format!("{major}:{minor}")),
        "locked": locked,
        "attributes": attributes.as_deref().unwrap_or_default().iter().map(attribute).collect::<Vec<_>>(),
        "problem": attributes.as_ref().err().map(ToString::to_string),
    });
    if let Value::Object(rest) = rest {
        object.extend(rest);
    }
    Ok(Value::Object(object))
}

/// An attribute, its value as words where there are some.
fn attribute((name, value): &(Vec<u8>, Vec<u8>)) -> Value {
    let is_acl = matches!(&**name, b"system.posix_acl_access" | b"system.posix_acl_default");
    let list = if is_acl { Acl::from_xattr(value).ok() } else { None };
    let shown = value.get(..VALUE.min(value.len())).unwrap_or_default();
    let plain = shown.strip_suffix(&[0]).unwrap_or(shown);
    let value = match (list, std::str::from_utf8(plain)) {
        (Some(list), _) => words::acl(&list),
        (None, Ok(text)) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => format!("0x{}", words::hex(shown)),
    };
    json!({ "name": words::lossy(name), "value": value })
}

/// The stretches of a file's map: first file block, blocks, state, first block of the volume.
pub(crate) fn extents(open: &Open, question: &Value) -> Answer {
    let facts = open.volume.metadata(inode(question)?).map_err(|error| error.to_string())?;
    let mut answer = json!({ "runs": [], "more": false, "problem": null, "inline": false });
    if facts.flags.contains(InodeFlags::INLINE_DATA) || facts.sectors == 0 {
        answer["inline"] = facts.flags.contains(InodeFlags::INLINE_DATA).into();
        return Ok(answer);
    }
    let map = open.volume.map(facts.inode).map_err(|error| error.to_string())?;
    let blocks = facts.size.div_ceil(open.volume.format().geometry.block_size.bytes().into());
    let (mut runs, mut pieces, mut last) = (Vec::new(), 0_u64, None);
    for segment in map {
        let Segment { logical, count, state } = match segment {
            Ok(segment) => segment,
            Err(error) => {
                answer["problem"] = error.to_string().into();
                break;
            }
        };
        let (word, start) = match state {
            State::Hole if u64::from(logical.0) >= blocks => continue,
            State::Hole => ("hole", None),
            State::Mapped(block) => ("data", Some(block.0)),
            State::Unwritten(block) => ("unwritten", Some(block.0)),
        };
        if runs.len() >= STRETCHES {
            answer["more"] = true.into();
            break;
        }
        if start.is_some() {
            pieces += u64::from(last != start);
            last = start.map(|start| start.saturating_add(count));
        }
        let count = if start.is_none() { count.min(blocks - u64::from(logical.0)) } else { count };
        runs.push(json!([logical.0, count, word, start]));
    }
    answer["runs"] = runs.into();
    answer["pieces"] = pieces.into();
    Ok(answer)
}

/// The inodes on the way to a path, links followed: for the page to go there.
pub(crate) fn places(open: &Open, path: &str) -> Answer {
    let mut way = Vec::new();
    let mut so_far = String::new();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        so_far.push('/');
        so_far.push_str(name);
        let found = open.volume.resolve(so_far.as_bytes());
        let facts = found.and_then(|inode: InodeNumber| open.volume.metadata(inode));
        let facts = facts.map_err(|error| format!("{so_far}: {error}"))?;
        way.push(json!({ "name": name, "inode": facts.inode.get(), "directory": facts.is_dir() }));
    }
    Ok(json!({ "way": way }))
}

/// A question about a range: where it begins and how many.
pub(crate) fn range(question: &Value) -> Result<(u64, u64), String> {
    Ok((number(question, "from")?, number(question, "count")?))
}
