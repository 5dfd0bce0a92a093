//! Encrypted inodes say by what in an attribute.

use ondisk::inode::InodeFlags;
use ondisk::xattr::{self, Entry, NameIndex, Value};

use super::record::Examination;
use crate::kinds::inodes::ENCRYPTION_CONTEXT;
use crate::reporter::Finding;

/// Name of the attribute, behind its kind.
const NAME: &[u8] = b"c";

/// Returns true if a value may be a context: versions 1 and 2 have their sizes, later ones are not judged.
fn is_context(value: &[u8]) -> bool {
    match value.first() {
        None | Some(0) => false,
        Some(1) => value.len() == 28,
        Some(2) => value.len() == 40,
        Some(_) => true,
    }
}

fn context<'a>(entries: &[Entry<'a>]) -> Option<&'a [u8]> {
    let entry = entries.iter().find(|entry| entry.index == NameIndex::ENCRYPTION && entry.name == NAME)?;
    match entry.value {
        Value::Here(value) => Some(value),
        Value::Inode { .. } => None,
    }
}

impl Examination<'_, '_, '_, '_> {
    /// The flag for encryption goes with a context.
    pub(super) fn encryption(&mut self) {
        if !self.has(InodeFlags::ENCRYPT) {
            return;
        }
        let found = self.encryption_context();
        if found == Some(true) {
            return;
        }
        self.pass.facts.policies.forget(self.inode().number());
        if self.tell(&ENCRYPTION_CONTEXT, |_| {
            let found = if found.is_none() { "there is no context" } else { "the context makes no sense" };
            Finding::unplaced(format!("marked as encrypted, but {found}"), "the flag is cleared")
        }) {
            self.drop_flags(InodeFlags::ENCRYPT);
        }
    }

    /// Judges the context; `None` where there is none.
    fn encryption_context(&self) -> Option<bool> {
        let here = xattr::in_inode(self.inode()).unwrap_or_default();
        if let Some(value) = context(&here) {
            return Some(self.note_context(value));
        }
        let block = self.attribute_block();
        let bytes = (block.0 != 0).then(|| self.subject().block(block).ok()).flatten()?;
        let (_, entries) = xattr::in_block(block, &bytes).ok()?;
        context(&entries).map(|value| self.note_context(value))
    }

    /// Returns true if a context makes sense, and makes it known to the pass over names.
    fn note_context(&self, value: &[u8]) -> bool {
        let right = is_context(value);
        if right {
            self.pass.facts.policies.note(self.inode().number(), value);
        }
        right
    }
}
