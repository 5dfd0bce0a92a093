//! Facts of a superblock, in words and as JSON: a label for people and a key for programs.
//!
//! Owns: the wording of fields, states and features. Excludes: reading them, which the caller does and says what went
//! wrong on the way; printing.

mod fields;
mod summary;

use ondisk::journal::RawJournalSuperblock;
use ondisk::mmp::RawMmp;
use ondisk::superblock::RawSuperblock;
use serde_json::Value;

pub use fields::{journal, mark, superblock};
pub use summary::summary;

/// One fact: its name in JSON, its label, and its value as text and as JSON.
#[derive(Clone, PartialEq, Debug)]
pub struct Fact {
    /// Its name in JSON.
    pub key: &'static str,
    /// Its label, where there is one that of dumpe2fs(8).
    pub label: &'static str,
    /// Its value as text. It may hold any character that the volume does.
    pub text: String,
    /// Its value in JSON.
    pub value: Value,
}

impl Fact {
    /// A fact whose text is its JSON value.
    #[must_use]
    pub fn new(key: &'static str, label: &'static str, value: impl Into<Value>) -> Self {
        let value = value.into();
        let text = match &value {
            Value::String(text) => text.clone(),
            Value::Null => "<none>".to_owned(),
            other => other.to_string(),
        };
        Fact { key, label, text, value }
    }

    /// Replaces the text.
    #[must_use]
    pub fn shown(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }
}

/// Facts that could be found out of a volume as a whole.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The superblock.
    pub raw: RawSuperblock,
    /// That of the journal, where it is in the volume and could be read.
    pub journal: Option<RawJournalSuperblock>,
    /// The block of multiple mount protection, where there is one.
    pub mark: Option<RawMmp>,
    /// Reasons for which the volume can't be read, and what is wrong with it.
    pub problems: Vec<String>,
}
