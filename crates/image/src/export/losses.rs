//! Losses of an export: counted, with the first of each kind for the message.

use crate::text::Shown;
use std::collections::BTreeMap;

/// A kind of loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// Sockets, which archives have no way to hold.
    Socket,
    /// Device files, which need privilege to be made.
    Device,
    /// Extended attributes that the host refuses.
    Xattr,
    /// Encrypted files: names, contents and targets of links can't be read without the key.
    Encrypted,
    /// Owners, which need privilege to be set; set-user and set-group bits go with them.
    Owner,
}

impl Loss {
    fn text(self) -> &'static str {
        match self {
            Self::Socket => "sockets are left out, which archives cannot hold",
            Self::Device => "devices are left out, which need root to be made",
            Self::Xattr => "extended attributes are left out, which the host refuses",
            Self::Encrypted => {
                "encrypted files and directories are left out or empty, which need a key to be read"
            }
            Self::Owner => "files keep the owner who exports, others need root",
        }
    }
}

/// All losses of one export.
#[derive(Clone, Debug, Default)]
pub struct Losses(BTreeMap<Loss, (u64, Vec<u8>)>);

impl Losses {
    /// Notes one.
    pub fn note(&mut self, loss: Loss, path: &[u8]) {
        self.0.entry(loss).or_insert_with(|| (0, path.to_vec())).0 += 1;
    }

    /// Returns true if everything was kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The kinds, how many of each, and the path of the first.
    pub fn iter(&self) -> impl Iterator<Item = (Loss, u64, &[u8])> {
        self.0.iter().map(|(loss, (count, first))| (*loss, *count, first.as_slice()))
    }

    /// One line for each kind.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.0
            .iter()
            .map(|(loss, (count, first))| format!("{count} {} (first: {})", loss.text(), Shown(first)))
    }
}
