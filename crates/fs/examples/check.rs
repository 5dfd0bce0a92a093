//! Checks an image, prints what is wrong with it, and writes nothing.
//!
//! `cargo run -p platfs --example check -- disk.img`

use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use platfs::check::{Decision, Issue, Options, Sink, Summary, check};
use platfs::device::FileDevice;

/// Receives each issue. The check makes the repair that it answers with in memory only, so that later passes report
/// causes and not their consequences. The image stays as it is until `Outcome::repaired.apply()` is called.
#[derive(Default)]
pub struct Listener {
    /// A line for each issue.
    pub lines: Vec<String>,
}

impl Sink for Listener {
    fn issue(&mut self, issue: Issue) -> Decision {
        self.lines.push(format!("{}: {}", issue.kind.id, issue.found));
        Decision::Repair
    }
}

/// Checks the image in a file.
///
/// # Errors
/// There is nothing to check: no superblock, an unknown feature.
pub fn examine(path: &Path, listener: &mut Listener) -> Result<Summary, Box<dyn Error>> {
    let device = Arc::new(FileDevice::new(File::open(path)?)?);
    let outcome = check(device, &Options::default(), listener)?;
    Ok(outcome.summary)
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: check IMAGE")?;
    let mut listener = Listener::default();
    let summary = examine(Path::new(&path), &mut listener)?;
    listener.lines.iter().for_each(|line| println!("{line}"));
    println!("{} issues, {} files in {} directories", summary.issues, summary.files, summary.directories);
    Ok(())
}
