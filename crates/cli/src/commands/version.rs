//! `plat version`: the version and the parts of this build.

use clap::Args;
use serde_json::json;

use crate::VERSION;
use crate::console::{Console, Failure};

/// Parts that a build may leave out, and whether this one has them.
const PARTS: [(&str, bool); 6] = [
    ("archives", cfg!(feature = "archives")),
    ("mount", cfg!(feature = "mount")),
    ("store", cfg!(feature = "store")),
    ("s3", cfg!(feature = "s3")),
    ("gs", cfg!(feature = "gs")),
    ("az", cfg!(feature = "az")),
];

/// Arguments of `plat version`.
#[derive(Args, Debug)]
pub struct Version {}

impl Version {
    pub(super) fn run(console: &mut Console<'_>) -> Result<(), Failure> {
        let parts = |has: bool| -> Vec<&str> {
            PARTS.iter().filter(|(_, built)| *built == has).map(|(name, _)| *name).collect()
        };
        if console.is_json() {
            let facts = json!({ "version": VERSION, "with": parts(true), "without": parts(false) });
            return Ok(super::json::print(console.out, facts)?);
        }
        let named = |has: bool| match parts(has) {
            names if names.is_empty() => "nothing".to_owned(),
            names => names.join(", "),
        };
        writeln!(console.out, "plat {VERSION}")?;
        Ok(writeln!(console.out, "built with {}; without {}", named(true), named(false))?)
    }
}
