//! Tables of devices, as genext2fs and buildroot's makedevs read them: files that a tree gets without being root, and
//! owners and permission bits of those that it has.
//!
//! A line is `NAME TYPE MODE UID GID MAJOR MINOR START INC COUNT`; `-` stands for what is not used. Types: `d` a
//! directory, made if it is not there; `f` a regular file, which must be there; `F` the same, if it is there; `r` a
//! directory with all below it; `c`, `b`, `p`, `s` a device, pipe or socket, made in any case. With a COUNT above 1 the
//! files NAME`START` to NAME`START+COUNT-1` are made, with minor numbers from MINOR on in steps of INC, as makedevs does it
//! (genext2fs stops before number COUNT, whatever START is).
//!
//! Excluded: attributes (`|xattr`), which are refused. Names of owners are those of the tree's own tables.

use std::collections::HashMap;
use std::path::Path;

use super::attributes::Ids;
use super::catalogue::{Catalogue, CatalogueBuilder, CatalogueError, NewNode, NodeId, NodeKind};
use super::error::SourceError;
use super::filter::Owner;
use super::owners;
use crate::archive::Device;
use ondisk::units::saturated;

/// Longer tables are not read.
const MOST_BYTES: u64 = 16 << 20;
/// Files that a table can make.
const MOST_FILES: u64 = 1 << 20;
/// Numbers in a line, as makedevs takes them.
const MOST: u32 = 0xF_FFFF;

/// A table of devices.
#[derive(Clone, Debug)]
pub struct DeviceTable {
    name: String,
    lines: Vec<Line>,
}

/// Kind of file that a line describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
    OptionalFile,
    Tree,
    Char,
    Block,
    Fifo,
    Socket,
}

#[derive(Clone, Debug)]
struct Line {
    number: usize,
    path: String,
    kind: Kind,
    /// `None`: as it is.
    mode: Option<u16>,
    owner: String,
    /// Major, minor, start, increment, count.
    numbers: [u32; 5],
}

/// A file that a line is about.
pub(super) struct DeviceFile {
    line: usize,
    node: NodeId,
}

impl DeviceTable {
    /// Reads a table.
    ///
    /// # Errors
    /// [`SourceError::Host`], [`SourceError::Line`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SourceError> {
        let path = path.as_ref();
        let text = super::lines::read(path, MOST_BYTES)?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Takes the text of a table; `name` is how messages call it.
    ///
    /// # Errors
    /// [`SourceError::Line`].
    pub fn parse(name: &str, text: &str) -> Result<Self, SourceError> {
        let mut lines = Vec::new();
        let mut files = 0_u64;
        for (number, line) in super::lines::of(text) {
            let wrong = |problem: String| SourceError::line(name, number, problem);
            let line = Line::parse(number, line).map_err(wrong)?;
            files += u64::from(line.numbers[4]);
            if files > MOST_FILES {
                return Err(wrong(format!("the table makes more than {MOST_FILES} files")));
            }
            lines.push(line);
        }
        Ok(DeviceTable { name: name.to_owned(), lines })
    }

    /// Puts the files into a tree that are not there, and finds the others.
    pub(super) fn place(&self, builder: &mut CatalogueBuilder) -> Result<Vec<DeviceFile>, SourceError> {
        let mut placed = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            let mut add = |node| placed.push(DeviceFile { line: at, node });
            line.place(builder, &mut add).map_err(|problem| self.wrong(line, problem))?;
        }
        Ok(placed)
    }

    /// Gives them owners and permission bits, in the order of the lines.
    pub(super) fn apply(
        &self,
        placed: &[DeviceFile],
        catalogue: &mut Catalogue,
        prefix: Option<&Path>,
    ) -> Result<(), SourceError> {
        let mut known: HashMap<&str, Ids> = HashMap::new();
        for DeviceFile { line, node } in placed {
            let Some(line) = self.lines.get(*line) else { continue };
            let ids = match known.get(&*line.owner) {
                Some(ids) => *ids,
                None => {
                    let owner: Owner =
                        line.owner.parse().map_err(|error| self.wrong(line, format!("{error}")))?;
                    let ids = owners::resolve(&owner, catalogue, prefix)?;
                    known.insert(&line.owner, ids);
                    ids
                }
            };
            let nodes = if line.kind == Kind::Tree { below(catalogue, *node) } else { vec![*node] };
            for node in nodes {
                catalogue.own(node, ids);
                let mode = line.mode.filter(|_| catalogue.metadata(node).kind != NodeKind::Symlink);
                if let Some(mode) = mode {
                    catalogue.permit(node, mode);
                }
            }
        }
        Ok(())
    }

    fn wrong(&self, line: &Line, problem: String) -> SourceError {
        SourceError::line(&self.name, line.number, problem)
    }
}

/// A file and all below it.
fn below(catalogue: &Catalogue, top: NodeId) -> Vec<NodeId> {
    let mut all = vec![top];
    let mut at = 0;
    while let Some(node) = all.get(at).copied() {
        all.extend(catalogue.children(node).map(|(_, child)| child));
        at += 1;
    }
    all
}

impl Line {
    fn parse(number: usize, line: &str) -> Result<Self, String> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if line.starts_with('|') {
            return Err("attributes are not read from tables of devices".into());
        }
        let field = |at: usize| fields.get(at).copied().filter(|field| *field != "-");
        let (Some(path), Some(kind)) = (field(0), field(1)) else {
            return Err("a name and a type are needed".into());
        };
        if fields.len() > 10 {
            return Err("it has more than ten columns".into());
        }
        let mut numbers = [0; 5];
        for (slot, at) in numbers.iter_mut().zip(5..) {
            let Some(text) = field(at) else { continue };
            let parsed = text.parse().ok().filter(|number| *number <= MOST);
            *slot = parsed.ok_or_else(|| format!("{text:?} is no number up to {MOST}"))?;
        }
        let mode = field(2).unwrap_or("755");
        let mode = match mode {
            "-1" => None,
            _ => Some(octal(mode).ok_or_else(|| format!("{mode:?} is no mode: octal digits, or -1"))?),
        };
        let (kind, owner) = (kind_of(kind)?, [3, 4].map(|at| field(at).unwrap_or("0")).join(":"));
        owner.parse::<Owner>().map_err(|error| error.to_string())?;
        Ok(Line { number, path: path.to_owned(), kind, mode, owner, numbers })
    }

    fn place(&self, builder: &mut CatalogueBuilder, add: &mut impl FnMut(NodeId)) -> Result<(), String> {
        let wrong = |error: CatalogueError| error.to_string();
        let path = self.path.as_bytes();
        let found = builder.find(path).map_err(wrong)?;
        let kind = found.and_then(|id| builder.kind(id));
        let mode = self.mode.unwrap_or(0o755);
        match (self.kind, found, kind) {
            (Kind::Directory, Some(id), Some(NodeKind::Directory))
            | (Kind::File | Kind::OptionalFile, Some(id), Some(NodeKind::File))
            | (Kind::Tree, Some(id), Some(_)) => add(id),
            (Kind::Directory, ..) => add(builder.put_plain(path, mode, NewNode::Directory).map_err(wrong)?),
            (Kind::OptionalFile, ..) => {}
            (Kind::File, ..) => return Err(format!("the tree has no regular file {}", self.path)),
            (Kind::Tree, ..) => return Err(format!("the tree has no {}", self.path)),
            (Kind::Char | Kind::Block | Kind::Fifo | Kind::Socket, ..) => {
                for (name, device) in self.files() {
                    add(builder.put_plain(name.as_bytes(), mode, self.special(device)).map_err(wrong)?);
                }
            }
        }
        Ok(())
    }

    /// Names and numbers of the files that a line makes.
    fn files(&self) -> impl Iterator<Item = (String, Device)> {
        let [major, minor, start, increment, count] = self.numbers;
        (0..count.max(1)).map(move |step| {
            // At most 2^20 steps of at most 2^20.
            let minor = u64::from(minor) + u64::from(step) * u64::from(increment);
            let device = Device { major, minor: saturated::<u32>(minor) };
            let name = match count {
                0 | 1 => self.path.clone(),
                _ => format!("{}{}", self.path, u64::from(start) + u64::from(step)),
            };
            (name, device)
        })
    }

    fn special(&self, device: Device) -> NewNode<'static> {
        match self.kind {
            Kind::Char => NewNode::CharDevice(device),
            Kind::Block => NewNode::BlockDevice(device),
            Kind::Socket => NewNode::Socket,
            _ => NewNode::Fifo,
        }
    }
}

fn octal(text: &str) -> Option<u16> {
    u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777)
}

fn kind_of(text: &str) -> Result<Kind, String> {
    Ok(match text {
        "d" => Kind::Directory,
        "f" => Kind::File,
        "F" => Kind::OptionalFile,
        "r" => Kind::Tree,
        "c" => Kind::Char,
        "b" => Kind::Block,
        "p" => Kind::Fifo,
        "s" => Kind::Socket,
        _ => return Err(format!("{text:?} is no type: d, f, F, r, c, b, p or s")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_makedevs() {
        let text = "# table\n\n/dev/hda\tb 640 0 0 3 1 1 1 15\n/dev/uio b 640 0 0 252 1 6 2 5\n/dev/null c 666 0 0 1 3 - - -\n";
        let table = DeviceTable::parse("table", text).unwrap();
        let files: Vec<Vec<(String, Device)>> =
            table.lines.iter().map(|line| line.files().collect()).collect();
        assert_eq!((files[0].len(), &*files[0][14].0, files[0][14].1.minor), (15, "/dev/hda15", 15));
        assert_eq!((files[1].len(), &*files[1][4].0, files[1][4].1.minor), (5, "/dev/uio10", 9));
        assert_eq!(files[2], [("/dev/null".to_owned(), Device { major: 1, minor: 3 })]);
    }

    #[test]
    fn wrong_lines_are_named() {
        for line in [
            "/dev/x",
            "/x q 644 0 0",
            "/x c 9 0 0",
            "/x c 644 0 0 x",
            "/x c 644 0 0 1048576",
            "|xattr cap_chown+ep",
            "/x c 644 0 0 1 1 1 1 1 1",
            "/x c 644 : 0",
        ] {
            let error = DeviceTable::parse("table", &format!("# fine\n{line}\n")).unwrap_err().to_string();
            assert!(error.starts_with("table: line 2: "), "{error}");
        }
        let many = "/x c 644 0 0 1 1 0 1 1000000\n".repeat(2);
        assert!(DeviceTable::parse("table", &many).is_err());
    }
}
