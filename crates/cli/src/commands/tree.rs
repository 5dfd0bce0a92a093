//! `plat tree`: a directory and all below it, drawn.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::{DirEntry, Walk};
use serde_json::{Map, Value};

use super::cage;
use super::{facts, json};
use crate::console::{Console, Failure};
use crate::keys::KeyArgs;
use crate::reading::{OpenImage, absolute, joined};
use crate::sandbox::Plan;
use crate::text::{Shown, put_bytes, type_name};

/// Arguments of `plat tree`.
#[derive(Args, Debug)]
pub struct Tree {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`.
    image: OsString,
    #[command(flatten)]
    keys: KeyArgs,
    /// A directory in the image.
    #[arg(default_value = "/")]
    path: OsString,
    /// Names that begin with a dot, too.
    #[arg(short, long)]
    all: bool,
    /// Directories only.
    #[arg(short, long)]
    directories: bool,
    /// At most this many levels below the directory.
    #[arg(short = 'L', long, value_name = "LEVELS", value_parser = clap::value_parser!(u32).range(1..))]
    levels: Option<u32>,
    /// Lines of `|`, `-` and a back quote instead of box characters.
    #[arg(long)]
    ascii: bool,
    /// A JSON array of objects with path, type and depth, in the same order.
    #[arg(long)]
    json: bool,
}

/// Prefixes of a name: below a directory with more to come, below the last, the name itself
/// with more to come, and the last name.
const BOX: [&str; 4] = ["\u{2502}   ", "    ", "\u{251c}\u{2500}\u{2500} ", "\u{2514}\u{2500}\u{2500} "];
const ASCII: [&str; 4] = ["|   ", "    ", "|-- ", "`-- "];

impl Tree {
    pub(super) fn cage(&self) -> Option<Plan> {
        cage::reading(&[&self.image], &self.keys.files(), None)
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let image = OpenImage::open_with(&self.image, &self.keys, console)?;
        let root = image.find(&self.path, true)?;
        let path = absolute(self.path.as_bytes());
        let mut walk = Walk::new(&image.volume);
        let complaint = walk.enter(&path, root).map_err(|error| image.failure(&path, &error))?;
        let mut drawing = Drawing {
            tree: self,
            image: &image,
            array: json::Array::default(),
            counts: [1, 0],
            left: vec![],
        };
        if !self.json {
            writeln!(console.out, "{}", Shown(&path))?;
        }
        if let Some(error) = complaint {
            console.complain(image.failure(&path, &error))?;
        }
        drawing.left.push(drawing.shown(&walk));
        while walk.depth() > 0 {
            drawing.step(console, &mut walk)?;
        }
        drawing.end(console)
    }
}

/// A name, and what is shown of it.
struct Line<'a> {
    name: &'a [u8],
    inode: InodeNumber,
    path: &'a [u8],
    file_type: Option<FileType>,
    depth: usize,
}

struct Drawing<'a> {
    tree: &'a Tree,
    image: &'a OpenImage,
    array: json::Array,
    /// Directories and all else.
    counts: [u64; 2],
    /// For each directory on the path: names still to be shown.
    left: Vec<usize>,
}

impl Drawing<'_> {
    fn is_shown(&self, walk: &Walk<'_>, entry: &DirEntry) -> bool {
        (self.tree.all || !entry.name.starts_with(b"."))
            && (!self.tree.directories || walk.is_directory(entry).unwrap_or(false))
    }

    fn shown(&self, walk: &Walk<'_>) -> usize {
        walk.entries().iter().filter(|entry| self.is_shown(walk, entry)).count()
    }

    fn step(&mut self, console: &mut Console<'_>, walk: &mut Walk<'_>) -> Result<(), Failure> {
        let Some(entry) = walk.next_entry() else {
            walk.leave();
            self.left.pop();
            return Ok(());
        };
        let entry = entry.clone();
        if !self.is_shown(walk, &entry) {
            return Ok(());
        }
        if let Some(left) = self.left.last_mut() {
            *left = left.saturating_sub(1);
        }
        let path = joined(walk.path(), &entry.name);
        let file_type = match self.image.volume.entry_type(&entry) {
            Ok(file_type) => Some(file_type),
            Err(error) => {
                console.complain(self.image.failure(&path, &error))?;
                None
            }
        };
        let is_directory = file_type == Some(FileType::Directory);
        self.counts[usize::from(!is_directory)] += 1;
        self.print(
            console,
            &Line { name: &entry.name, inode: entry.inode, path: &path, file_type, depth: walk.depth() },
        )?;
        let deeper = self.tree.levels.is_none_or(|levels| walk.depth() < levels as usize);
        if is_directory && deeper {
            match walk.enter(&entry.name, entry.inode) {
                Ok(complaint) => {
                    self.left.push(self.shown(walk));
                    if let Some(error) = complaint {
                        console.complain(self.image.failure(&path, &error))?;
                    }
                }
                Err(error) => console.complain(self.image.failure(&path, &error))?,
            }
        }
        Ok(())
    }

    fn print(&mut self, console: &mut Console<'_>, line: &Line<'_>) -> Result<(), Failure> {
        let Line { name, inode, path, file_type, depth } = line;
        let target =
            file_type.and_then(|file_type| facts::target(&self.image.volume, file_type, *inode).transpose());
        let target = match target {
            Some(Err(error)) => {
                console.complain(self.image.failure(path, &error))?;
                None
            }
            Some(Ok(target)) => Some(target),
            None => None,
        };
        if self.tree.json {
            let mut object: Map<String, Value> = Map::new();
            put_bytes(&mut object, "path", path);
            object.insert("type".into(), file_type.map(type_name).into());
            object.insert("depth".into(), (*depth).into());
            if let Some(target) = target {
                put_bytes(&mut object, "target", &target);
            }
            return Ok(self.array.push(console.out, object)?);
        }
        let [more, none, branch, last] = if self.tree.ascii { ASCII } else { BOX };
        let (here, above) = self.left.split_last().unwrap_or((&0, &[]));
        for left in above {
            console.out.write_all(if *left > 0 { more } else { none }.as_bytes())?;
        }
        console.out.write_all(if *here > 0 { branch } else { last }.as_bytes())?;
        Ok(writeln!(console.out, "{}{}", Shown(name), facts::arrow(target.as_deref()))?)
    }

    fn end(self, console: &mut Console<'_>) -> Result<(), Failure> {
        if self.tree.json {
            return Ok(self.array.end(console.out)?);
        }
        let plural =
            |count: u64, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
        let [directories, files] = self.counts;
        let directories = plural(directories, "directory", "directories");
        if self.tree.directories {
            return Ok(writeln!(console.out, "\n{directories}")?);
        }
        Ok(writeln!(console.out, "\n{directories}, {}", plural(files, "file", "files"))?)
    }
}
