//! Small files of a tree that is not finished: tables of owners, which later layers speak of.

use super::builder::CatalogueBuilder;
use super::node::{Content, NodeId, Origin};
use crate::archive::Input;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

impl CatalogueBuilder {
    /// The contents of a regular file in one piece, if they are at most `most` bytes and can be read.
    pub(in crate::source) fn peek(&self, id: NodeId, most: u64) -> Option<Vec<u8>> {
        let node = self.nodes.get(id.index())?;
        let Content::Whole { origin, offset } = node.content else { return None };
        if node.size > most {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(node.size).ok()?];
        match origin {
            Origin::Section(number) => {
                self.sections.get(number as usize)?.read_exact_at(offset, &mut bytes).ok()?;
            }
            Origin::Host(number) => self.read_host(number, offset, &mut bytes)?,
        }
        Some(bytes)
    }

    fn read_host(&self, number: u32, offset: u64, bytes: &mut [u8]) -> Option<()> {
        let file = *self.host_files.get(number as usize)?;
        let (mut above, mut at) = (Vec::new(), file.directory);
        let root = loop {
            let directory = self.host_directories.get(at as usize)?;
            // A source is its own parent; others come after theirs.
            if directory.parent >= at {
                break self.host_roots.iter().find(|root| root.number == at)?;
            }
            above.push(OsStr::from_bytes(self.name(directory.name)));
            at = directory.parent;
        };
        let mut here = root.directory.try_clone().ok()?;
        for name in above.into_iter().rev() {
            here = here.enter(name).ok()?;
        }
        let (opened, _) = here.open_file(OsStr::from_bytes(self.name(file.name))).ok()?;
        opened.read_exact_at(bytes, offset).ok()
    }
}
