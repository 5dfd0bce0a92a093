//! Facts of one inode for output: as JSON with the names of `docs/json.md`, and as a line of `ls -l`.

use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::{Metadata, Volume};
use serde_json::{Map, Value, json};

use crate::text::{self, Shown};

/// Fields of an inode that `ls` and `tree` show in JSON, without names.
pub(super) fn brief(facts: &Metadata) -> Map<String, Value> {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("inode", facts.inode.get().into());
    put("type", text::type_name(facts.file_type).into());
    put("mode", format!("{:04o}", facts.permissions).into());
    put("uid", facts.uid.into());
    put("gid", facts.gid.into());
    put("links", facts.links.into());
    put("size", facts.size.into());
    put("modified", text::time(facts.times.modify).into());
    if let Some((major, minor)) = facts.device {
        put("device", json!({ "major": major, "minor": minor }));
    }
    object
}

/// Mode to time as `ls -l` shows them: identities as numbers, times in UTC to the second; `human` sizes have units.
pub(super) fn long(facts: &Metadata, human: bool) -> String {
    let size = match facts.device {
        Some((major, minor)) => format!("{major}, {minor}"),
        None if human => crate::size::human(facts.size),
        None => facts.size.to_string(),
    };
    let time = text::time(facts.times.modify);
    let time = time.split_once('.').map_or(&time[..], |(time, _)| time);
    format!(
        "{} {:>3} {:>5} {:>5} {size:>10} {}Z",
        text::mode(facts.file_type, facts.permissions),
        facts.links,
        facts.uid,
        facts.gid,
        time,
    )
}

/// The target of a symbolic link; nothing for all else.
pub(super) fn target(
    volume: &Volume,
    file_type: FileType,
    inode: InodeNumber,
) -> platfs::Result<Option<Vec<u8>>> {
    if file_type == FileType::Symlink { volume.read_link(inode).map(Some) } else { Ok(None) }
}

/// ` -> target`, or nothing.
pub(super) fn arrow(target: Option<&[u8]>) -> String {
    target.map(|target| format!(" -> {}", Shown(target))).unwrap_or_default()
}
