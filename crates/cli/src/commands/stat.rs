//! `plat stat`: everything an inode says, and where its contents lie.

mod format;
mod record;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use ondisk::acl::Acl;
use ondisk::inode::{FileType, InodeFlags};
use ondisk::units::InodeNumber;
use platfs::{Error, Metadata};
use platfs_forensics::RawImage;
use serde_json::{Map, Value};

use super::cage;
use super::facts;
use super::json::Array;
use super::runs::{self, Runs};
use crate::console::{Console, Failure};
use crate::keys::KeyArgs;
use crate::reading::{self, OpenImage};
use crate::sandbox::Plan;
use crate::text::{self, Shown, put_bytes};
use record::{Parts, Record};

/// Arguments of `plat stat`.
#[derive(Args, Debug)]
pub struct Stat {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`.
    image: OsString,
    #[command(flatten)]
    keys: KeyArgs,
    /// Files in the image, or inodes by their numbers: `<12>`. A symbolic link is shown itself.
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// What a symbolic link leads to, instead of the link.
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Where the record lies, and every block that the file takes.
    #[arg(short, long)]
    blocks: bool,
    /// Where the record lies, and its bytes in hexadecimal.
    #[arg(short, long)]
    raw: bool,
    /// The index of a directory: its blocks, and the names in each with their hashes.
    #[arg(short = 'x', long)]
    index: bool,
    /// A line for each file, with the letters of stat(1): %n name, %a permissions, %u and %g owner as numbers, %s size, %F
    /// type, %y time, ... Types and times are as elsewhere in plat.
    #[arg(short = 'c', long, value_name = "FORMAT", conflicts_with_all = ["blocks", "raw", "index", "json"])]
    format: Option<String>,
    /// A JSON array with one object per path.
    #[arg(long)]
    json: bool,
}

/// The inode that `<12>` names, as in debugfs.
fn by_number(path: &[u8]) -> Option<InodeNumber> {
    let digits = path.strip_prefix(b"<")?.strip_suffix(b">")?;
    std::str::from_utf8(digits).ok()?.parse().ok().and_then(InodeNumber::new)
}

impl Stat {
    pub(super) fn cage(&self) -> Option<Plan> {
        cage::reading(&[&self.image], &self.keys.files(), None)
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let image = OpenImage::open_with(&self.image, &self.keys, console)?;
        let parts = Parts { blocks: self.blocks, raw: self.raw, index: self.index };
        // Its complaints would be those of the image.
        let mut silence = (Vec::new(), Vec::new());
        let mut quiet = Console::new(&mut silence.0, &mut silence.1);
        let ground = parts.any().then(|| reading::ground(&self.image, &mut quiet)).transpose()?;
        let shown = Showing { image: &image, ground: ground.map(|(ground, _)| ground), parts };
        let mut array = Array::default();
        for path in &image.matching(&self.paths)? {
            let done = match by_number(path.as_bytes()) {
                Some(inode) => Ok(inode),
                None => image.find(path, self.dereference),
            };
            if let Some(format) = &self.format {
                if let Err(failure) =
                    done.and_then(|inode| formatted(console, &image, (path.as_bytes(), inode), format))
                {
                    console.complain(failure)?;
                }
                continue;
            }
            let array = self.json.then_some(&mut array);
            if let Err(failure) = done.and_then(|inode| shown.one(console, path.as_bytes(), inode, array)) {
                console.complain(failure)?;
            }
        }
        if self.json {
            array.end(console.out)?;
        }
        Ok(())
    }
}

/// A file in the caller's form.
fn formatted(
    console: &mut Console<'_>,
    image: &OpenImage,
    (path, inode): (&[u8], InodeNumber),
    format: &str,
) -> Result<(), Failure> {
    let facts = image.volume.metadata(inode).map_err(|error| image.failure(path, &error))?;
    let block_size = image.volume.format().geometry.block_size.bytes();
    let line = format::line(format, path, &facts, block_size).map_err(Failure::Usage)?;
    Ok(writeln!(console.out, "{line}")?)
}

/// Inodes to show, with their volume.
struct Showing<'a> {
    image: &'a OpenImage,
    /// The bytes, where they are asked for.
    ground: Option<RawImage>,
    parts: Parts,
}

impl Showing<'_> {
    /// One inode; of a free one the record, where it is asked for.
    fn one(
        &self,
        console: &mut Console<'_>,
        path: &[u8],
        inode: InodeNumber,
        array: Option<&mut Array>,
    ) -> Result<(), Failure> {
        let record = self.ground.as_ref().map(|ground| Record::of(ground, inode, self.parts)).transpose();
        let record = record.map_err(|error| self.image.failure(path, &error.into()))?;
        let mut object = Map::new();
        match self.image.volume.metadata(inode).map_err(|error| self.image.failure(path, &error)) {
            Ok(facts) => {
                let one = One { image: self.image, path, facts };
                match array {
                    Some(_) => one.json(console, &mut object)?,
                    None => one.text(console)?,
                }
            }
            Err(failure) if record.is_none() => return Err(failure),
            Err(failure) => {
                put_bytes(&mut object, "path", path);
                console.complain(failure)?;
            }
        }
        match (array, record) {
            (Some(array), record) => {
                if let Some(record) = record {
                    object.insert("record".to_owned(), Value::Object(record.object(self.parts)));
                }
                Ok(array.push(console.out, object)?)
            }
            (None, Some(record)) => record.text(console, self.parts),
            (None, None) => Ok(()),
        }
    }
}

struct One<'a> {
    image: &'a OpenImage,
    path: &'a [u8],
    facts: Metadata,
}

/// Where the contents of an inode are.
fn layout(facts: &Metadata) -> &'static str {
    match facts.file_type {
        _ if facts.flags.contains(InodeFlags::INLINE_DATA) => "inline",
        FileType::Regular | FileType::Directory | FileType::Symlink => {
            if facts.flags.contains(InodeFlags::EXTENTS) {
                "extents"
            } else if facts.file_type == FileType::Symlink && facts.size < 60 {
                "inline"
            } else {
                "blocks"
            }
        }
        _ => "none",
    }
}

impl One<'_> {
    fn failure(&self, error: &Error) -> Failure {
        self.image.failure(self.path, error)
    }

    /// A part that could not be read is reported; the rest is shown all the same.
    fn or_complain<T>(
        &self,
        console: &mut Console<'_>,
        part: platfs::Result<T>,
    ) -> Result<Option<T>, Failure> {
        match part {
            Ok(part) => Ok(Some(part)),
            Err(error) => {
                console.complain(self.failure(&error))?;
                Ok(None)
            }
        }
    }

    fn target(&self, console: &mut Console<'_>) -> Result<Option<Vec<u8>>, Failure> {
        let target = facts::target(&self.image.volume, self.facts.file_type, self.facts.inode);
        Ok(self.or_complain(console, target)?.flatten())
    }

    fn text(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let facts = &self.facts;
        let target = self.target(console)?;
        let out = &mut *console.out;
        writeln!(out, "  Path: {}{}", Shown(self.path), facts::arrow(target.as_deref()))?;
        write!(out, "  Type: {}", text::type_name(facts.file_type))?;
        if let Some((major, minor)) = facts.device {
            write!(out, " {major}:{minor}")?;
        }
        let mode = text::mode(facts.file_type, facts.permissions);
        writeln!(out, "\n Inode: {}  Generation: {:#010x}", facts.inode, facts.generation)?;
        writeln!(out, "  Mode: {:04o} ({mode})  Links: {}", facts.permissions, facts.links)?;
        writeln!(out, " Owner: {}:{}  Project: {}", facts.uid, facts.gid, facts.project)?;
        writeln!(out, "  Size: {} bytes  Charged: {} sectors of 512 bytes", facts.size, facts.sectors)?;
        let times = &facts.times;
        for (name, time) in [("Access", times.access), ("Modify", times.modify), ("Change", times.change)] {
            writeln!(out, "{name}: {}", text::time(time))?;
        }
        if let Some(created) = times.create {
            writeln!(out, " Birth: {}", text::time(created))?;
        }
        let names = text::flag_names(facts.flags).join(" ");
        writeln!(out, " Flags: {} {:#x} {names}", text::flag_letters(facts.flags), facts.flags.bits())?;
        self.attributes_text(console)?;
        self.map_text(console)
    }

    fn attributes_text(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        if let Some(block) = self.facts.attribute_block {
            writeln!(console.out, "Attribute block: {block}")?;
        }
        let attributes = self.or_complain(console, self.image.volume.inode(self.facts.inode).xattrs())?;
        for (name, value) in attributes.unwrap_or_default() {
            let value = acl_of(&name, &value).unwrap_or_else(|| quoted(&value));
            writeln!(console.out, "Attribute: {} = {value}", Shown(&name))?;
        }
        Ok(())
    }

    fn map_text(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        writeln!(console.out, "Layout: {}", layout(&self.facts))?;
        let Some(runs) = self.or_complain(console, Runs::of(&self.image.volume, self.facts.inode))? else {
            return Ok(());
        };
        for (index, run) in runs.enumerate() {
            let Some(run) = self.or_complain(console, run)? else { return Ok(()) };
            if index == 0 {
                writeln!(console.out, "{}", runs::HEADING)?;
            }
            writeln!(console.out, "{}", runs::line(&run))?;
        }
        Ok(())
    }

    fn json(&self, console: &mut Console<'_>, object: &mut Map<String, Value>) -> Result<(), Failure> {
        let facts = &self.facts;
        put_bytes(object, "path", self.path);
        object.append(&mut facts::brief(facts));
        if let Some(target) = self.target(console)? {
            put_bytes(object, "target", &target);
        }
        let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
        put("generation", facts.generation.into());
        put("project", facts.project.into());
        put("sectors", facts.sectors.into());
        put("accessed", text::time(facts.times.access).into());
        put("changed", text::time(facts.times.change).into());
        put("created", facts.times.create.map(text::time).into());
        put("flags", text::flag_names(facts.flags).into());
        put("attribute_block", facts.attribute_block.map(|block| block.0).into());
        put("layout", layout(facts).into());
        let attributes =
            self.or_complain(console, self.image.volume.inode(facts.inode).xattrs())?.unwrap_or_default();
        put("attributes", attributes.iter().map(attribute).collect::<Vec<_>>().into());
        put("runs", self.runs(console)?.into());
        Ok(())
    }

    fn runs(&self, console: &mut Console<'_>) -> Result<Vec<Value>, Failure> {
        let Some(runs) = self.or_complain(console, Runs::of(&self.image.volume, self.facts.inode))? else {
            return Ok(Vec::new());
        };
        let mut all = Vec::new();
        for run in runs {
            let Some(run) = self.or_complain(console, run)? else { break };
            all.push(runs::object(&run));
        }
        Ok(all)
    }
}

/// An access control list as text, if the attribute is one.
fn acl_of(name: &[u8], value: &[u8]) -> Option<String> {
    let is_acl = matches!(name, b"system.posix_acl_access" | b"system.posix_acl_default");
    let list = if is_acl { Acl::from_xattr(value).ok() } else { None };
    list.map(|list| text::acl(&list))
}

/// A value as text in quotes, or in hexadecimal if it is none.
fn quoted(value: &[u8]) -> String {
    // Many tools store the NUL that ends a text in C.
    let text = value.strip_suffix(&[0]).unwrap_or(value);
    match std::str::from_utf8(text) {
        Ok(text) if !text.chars().any(char::is_control) => {
            let end = if text.len() < value.len() { "\\0" } else { "" };
            format!("\"{}{end}\"", Shown(text.as_bytes()))
        }
        _ => format!("0x{}", text::hex(value)),
    }
}

fn attribute((name, value): &(Vec<u8>, Vec<u8>)) -> Value {
    let mut object = Map::new();
    put_bytes(&mut object, "name", name);
    put_bytes(&mut object, "value", value);
    if let Some(acl) = acl_of(name, value) {
        object.insert("acl".to_owned(), acl.into());
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_text_where_they_are() {
        assert_eq!(quoted(b"plain"), "\"plain\"");
        assert_eq!(quoted(b"unconfined\0"), "\"unconfined\\0\"");
        assert_eq!(quoted(b"\x01\xff"), "0x01ff");
    }
}
