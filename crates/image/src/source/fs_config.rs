//! Owners, permission bits and capabilities by a table of paths, as Android's `fs_config` has them (`mkfs -C` of
//! make_ext4fs, e2fsdroid).
//!
//! A line is `PATH UID GID MODE [capabilities=NUMBER]`. Paths are those on the device, without the slash in front: they
//! begin with the place where the volume will be mounted. The root directory of the device has an empty path or `/`. Each
//! file needs a line, but `lost+found`, which mkfs makes.

use std::collections::HashMap;
use std::path::Path;

use super::attributes::Ids;
use super::capability;
use super::catalogue::{Catalogue, NodeId, NodeKind};
use super::error::SourceError;
use crate::archive::Xattr;
use ondisk::units::bounded;

/// Longer tables are not read.
const MOST_BYTES: u64 = 64 << 20;

/// A table of owners, permission bits and capabilities.
#[derive(Clone, Debug)]
pub struct FsConfig {
    name: String,
    lines: HashMap<Vec<u8>, Line>,
}

/// A line of the table: what a file gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    ids: Ids,
    mode: u16,
    capabilities: u64,
}

impl FsConfig {
    /// Reads a table.
    ///
    /// # Errors
    /// [`SourceError::Host`], [`SourceError::Line`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SourceError> {
        let path = path.as_ref();
        Self::parse(&path.display().to_string(), &super::lines::read(path, MOST_BYTES)?)
    }

    /// Takes the text of a table; `name` is how messages call it.
    ///
    /// # Errors
    /// [`SourceError::Line`].
    pub fn parse(name: &str, text: &str) -> Result<Self, SourceError> {
        let mut lines = HashMap::new();
        for (line, number) in text.lines().zip(1..) {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let (path, line) = parse(line).map_err(|problem| SourceError::line(name, number, problem))?;
            lines.insert(path, line);
        }
        Ok(FsConfig { name: name.to_owned(), lines })
    }

    /// Applies the table to a tree that will be mounted at `mount_point`.
    pub(super) fn apply(&self, catalogue: &mut Catalogue, mount_point: &[u8]) -> Result<(), SourceError> {
        let mut todo = vec![(catalogue.root(), mount_point.to_vec())];
        let mut met = vec![false; catalogue.nodes()];
        let mut sets = HashMap::new();
        while let Some((node, path)) = todo.pop() {
            let below: Vec<_> =
                catalogue.children(node).map(|(name, child)| (child, join(&path, name))).collect();
            todo.extend(below.into_iter().rev());
            // Of several names the first counts.
            if std::mem::replace(&mut met[node.index()], true) {
                continue;
            }
            match self.line(&path, node == catalogue.root()) {
                Some(line) => line.give(catalogue, node, &mut sets),
                None if path == join(mount_point, b"lost+found") => {}
                None => {
                    let path = path.escape_ascii().to_string();
                    let problem = format!(
                        "no line says owner and mode of {path:?}; paths begin with what --mount-point names"
                    );
                    return Err(SourceError::Table { table: self.name.clone(), problem });
                }
            }
        }
        Ok(())
    }

    fn line(&self, path: &[u8], is_root: bool) -> Option<Line> {
        let root = self.lines.get(&b""[..]).filter(|_| is_root);
        self.lines.get(path).or(root).copied()
    }
}

fn join(above: &[u8], name: &[u8]) -> Vec<u8> {
    if above.is_empty() { name.to_vec() } else { [above, name].join(&b'/') }
}

impl Line {
    fn give(self, catalogue: &mut Catalogue, node: NodeId, sets: &mut HashMap<(u32, u64), u32>) {
        catalogue.own(node, self.ids);
        let kind = catalogue.metadata(node).kind;
        if kind != NodeKind::Symlink {
            catalogue.permit(node, self.mode);
        }
        if self.capabilities == 0 || kind != NodeKind::File {
            return;
        }
        let had = catalogue.xattr_set(node);
        let set = *sets.entry((had, self.capabilities)).or_insert_with(|| {
            let value = capability::effective(self.capabilities).into();
            catalogue.with_xattr(had, &Xattr { name: capability::NAME.into(), value })
        });
        catalogue.set_xattr_set(node, set);
    }
}

fn parse(line: &str) -> Result<(Vec<u8>, Line), String> {
    let is_root = line.starts_with(char::is_whitespace);
    let mut words = line.split_whitespace();
    let path = if is_root { "" } else { words.next().unwrap_or_default() };
    let mut number = |what: &str, radix: u32, most: u32| {
        let word = words
            .next()
            .ok_or_else(|| format!("{what} is missing: PATH UID GID MODE [capabilities=NUMBER]"))?;
        let parsed = u32::from_str_radix(word, radix).ok().filter(|number| *number <= most);
        parsed.ok_or_else(|| format!("{word:?} is no {what}"))
    };
    let ids = Ids { uid: number("user", 10, u32::MAX)?, gid: number("group", 10, u32::MAX)? };
    let mode = bounded::<u16>(number("mode", 8, 0o7777)?);
    let mut capabilities = 0;
    for word in words {
        let value = word.strip_prefix("capabilities=").ok_or_else(|| format!("{word:?} is unknown"))?;
        let parsed = match value.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => value.parse(),
        };
        capabilities = parsed.map_err(|_| format!("{value:?} is no set of capabilities"))?;
    }
    Ok((path.trim_matches('/').as_bytes().to_vec(), Line { ids, mode, capabilities }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_android() {
        let line = |uid, gid, mode, capabilities| Line { ids: Ids { uid, gid }, mode, capabilities };
        for (text, path, expected) in [
            ("vendor/bin/sh 0 2000 0755", "vendor/bin/sh", line(0, 2000, 0o755, 0)),
            (" 0 0 755", "", line(0, 0, 0o755, 0)),
            ("/ 0 0 0755 capabilities=0x0", "", line(0, 0, 0o755, 0)),
            ("/a 1 2 04750 capabilities=0xffffffff1", "a", line(1, 2, 0o4750, 0xf_ffff_fff1)),
            ("a 1 2 644 capabilities=16", "a", line(1, 2, 0o644, 16)),
        ] {
            assert_eq!(parse(text), Ok((path.as_bytes().to_vec(), expected)), "{text}");
        }
        for wrong in [
            "a",
            "a 0 0",
            "a x 0 644",
            "a 0 0 844",
            "a 0 0 17777",
            "a 0 0 644 x=1",
            "a 0 0 644 capabilities=x",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let said = FsConfig::parse("t", "a 0 0 644\n\n# no\nb\n").unwrap_err().to_string();
        assert!(said.starts_with("t: line 4: "), "{said}");
    }
}
