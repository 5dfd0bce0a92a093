//! The glance at a volume that is marked clean: at what a mount needs, before a check is spared.
//!
//! Owns: which passes that takes. They read the superblock, descriptors, the block of multiple mount protection, the
//! journal's inode and superblock, the resize inode and the root directory's inode, and nothing that grows with the number
//! of files. Excludes the marks that ask for a check (journal, state, times): those who pass a volume over know them.

use std::sync::Arc;

use ondisk::inode::{FileType, Timestamp};
use ondisk::units::InodeNumber;

use super::facts::Facts;
use super::issue::{Decision, Issue, Progress, Sink};
use super::reporter::Report;
use super::staged::Staged;
use super::subject::Subject;
use super::{Options, contents, descriptors, log, opening, protection, resize};
use platfs_device::journal::NoWriter;
use platfs_device::{Device, Result};

/// Remembers the first issue, and repairs nothing.
#[derive(Default)]
struct FirstIssue(Option<String>);

impl Sink for FirstIssue {
    fn issue(&mut self, issue: Issue) -> Decision {
        self.0.get_or_insert_with(|| issue.kind.title.to_owned());
        Decision::Leave
    }

    fn progress(&mut self, _progress: Progress) {}
}

/// Reason to check a volume although it is marked clean, in a few words; `None` if nothing that a mount needs
/// is wrong. The device is only read.
///
/// # Errors
/// As [`super::check`].
pub fn glance(device: Arc<dyn Device>, options: &Options) -> Result<Option<String>> {
    // Without a time no time is in the future: a clock that is wrong is no reason to check a volume.
    let options = &Options { now: Timestamp::default(), ..options.clone() };
    let staged = Arc::new(Staged::new(device, options.memory));
    let mut first = FirstIssue::default();
    let mut report = Report::new(&mut first);
    let mut subject = opening::open(&staged, options, &NoWriter, &mut report)?;
    let facts = Facts::new(&subject, options);
    descriptors::glance(&mut subject, &facts, &mut report);
    facts.all_kept()?;
    if report.summary.issues == 0 {
        protection::judge(&subject, &facts, &mut report);
        resize::check(&mut subject, &facts, &mut report)?;
        log::check(&mut subject, &facts, &mut report)?;
    }
    Ok(first.0.or_else(|| root(&subject).err()))
}

/// The root directory's inode: Linux mounts no volume without it.
fn root(subject: &Subject) -> std::result::Result<(), String> {
    let wrong = |problem: &str| Err(format!("its root directory can't be used: {problem}"));
    match contents::inode(subject, InodeNumber::ROOT.get()) {
        Err(problem) => wrong(&problem),
        Ok(inode) if inode.file_type() != Some(FileType::Directory) => wrong("it is no directory"),
        Ok(inode) if inode.links() == 0 => wrong("it is not in use"),
        Ok(inode) if !subject.sealer.inode_is_right(&inode) => wrong("its checksum is wrong"),
        Ok(_) => Ok(()),
    }
}
