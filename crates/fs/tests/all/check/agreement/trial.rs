//! One image: damage, both verdicts, the repair, and what it kept.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use platfs::check::{Decision, Issue, Options, Outcome, Sink, Staged, check};
use platfs::device::{Device, MemoryDevice};
use platfs::ondisk::inode::Timestamp;
use platfs::{Format, InodeNumber, OpenOptions, Volume};
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::{fsck, sparse, tool};

use super::mutate::Mutant;
use crate::check::inventory::{Inventory, Kept};
use crate::check::plant::{Image, base, bases};

/// Longest that a check of one image may take: a hang, not slowness.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longer than any file of a base.
const LONGEST: u64 = 1 << 30;

/// Result of comparing one image.
pub enum Finding {
    /// e2fsck has nothing to say of it.
    Sound,
    /// There was something to repair, and it was.
    Repaired,
    /// e2fsck complains, and we do not.
    Missed { they: String },
    /// We complain, and e2fsck does not.
    Invented { we: String },
    /// e2fsck complains of what we repaired.
    NotPleased { they: String, we: String },
    /// We complain of what we repaired.
    NotSettled { again: String, we: String },
    /// A file without damage has other contents, or is gone.
    Lost { inode: String, we: String },
    /// We could not check it; `alone` if e2fsck could.
    Refused { why: String, alone: bool },
    /// We panicked, or hung.
    Broken { how: String },
    /// e2fsck took too long to be asked.
    Slow,
}

impl Finding {
    /// True if it is nothing to complain of.
    pub(super) fn is_pleasing(&self) -> bool {
        matches!(self, Finding::Sound | Finding::Repaired | Finding::Missed { .. })
    }
}

/// A base with all that is known of it.
pub(super) struct Ready {
    pub(super) device: Arc<MemoryDevice>,
    format: Format,
    pub(super) inventory: Arc<Inventory>,
    contents: HashMap<InodeNumber, u64>,
    empty: HashSet<InodeNumber>,
    pub(super) file: PathBuf,
}

/// Where one thread works.
pub struct Bench {
    scratch: Scratch,
    ready: HashMap<&'static str, Arc<Ready>>,
    loud: bool,
}

/// Receives issues; keeps what there is to report of them.
#[derive(Default)]
pub(super) struct Ears {
    pub(super) ids: Vec<&'static str>,
    /// Of these, those without a repair.
    pub(super) stay: Vec<&'static str>,
    told: Vec<String>,
    loud: bool,
    /// Of how many issues one is left as it is, and which; 0: none.
    leaves: (u64, u64),
    /// Issues so far.
    told_of: u64,
}

impl Sink for Ears {
    fn issue(&mut self, issue: Issue) -> Decision {
        if self.ids.last() != Some(&issue.kind.id) && self.ids.len() < 1000 {
            self.ids.push(issue.kind.id);
        }
        if issue.repair.is_empty() && !self.stay.contains(&issue.kind.id) {
            self.stay.push(issue.kind.id);
        }
        if self.loud {
            self.told.push(format!(
                "  {} {:?}\n     found {}; expected {}; repair {}",
                issue.kind.id, issue.place, issue.found, issue.expected, issue.repair
            ));
        }
        let (each, which) = self.leaves;
        let stays = each > 0 && self.told_of % each == which;
        self.told_of += 1;
        if stays { Decision::Leave } else { Decision::Repair }
    }
}

impl Ears {
    /// Leaves issue number `which` of each `each` as it is.
    pub(super) fn leaving(each: u64, which: u64) -> Self {
        Ears { leaves: (each, which), ..Ears::default() }
    }

    fn summary(&self) -> String {
        let mut ids = self.ids.clone();
        ids.sort_unstable();
        ids.dedup();
        let more = ids.len() > 4;
        ids.truncate(4);
        format!("{}{}", ids.join(" "), if more { " ..." } else { "" })
    }
}

/// Checks a volume and repairs everything.
pub(super) fn examine(device: Arc<dyn Device>, loud: bool) -> Result<(Ears, Outcome), Finding> {
    listen(device, Ears { loud, ..Ears::default() })
}

/// Checks a volume and repairs nothing: that nothing is changed then, but for what waits in the journal.
fn leave(device: Arc<dyn Device>, loud: bool) -> Option<Finding> {
    let (ears, outcome) = listen(device, Ears::leaving(1, 0)).ok()?;
    let changed = !outcome.repaired.is_unchanged() && !ears.ids.contains(&"journal-needs-replay");
    if changed && loud {
        outcome
            .repaired
            .each_change(|change| {
                let bytes = change.old.iter().zip(change.new).enumerate();
                let differ: Vec<_> = bytes.filter(|(_, (old, new))| old != new).collect();
                println!("changed at {}: {differ:?}", change.offset);
                Ok(())
            })
            .unwrap();
    }
    changed.then(|| Finding::Broken { how: format!("changed what nobody decided for ({})", ears.summary()) })
}

pub(super) fn listen(device: Arc<dyn Device>, mut ears: Ears) -> Result<(Ears, Outcome), Finding> {
    let options = Options {
        // Of the same time as e2fsck's: superblocks written after it are wrong.
        now: Timestamp::from_seconds(testkit::clock::seconds()),
        memory: 256 << 20,
        threads: 1,
        ..Options::default()
    };
    let begun = Instant::now();
    let checked = catch_unwind(AssertUnwindSafe(|| check(device, &options, &mut ears)));
    let checked = checked.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Finding::Broken { how: format!("panic: {}", pattern(&text.unwrap_or_default())) }
    })?;
    if begun.elapsed() > PATIENCE {
        return Err(Finding::Broken { how: "hangs".into() });
    }
    let refused = |error: platfs::Error| Finding::Refused { why: pattern(&error.to_string()), alone: true };
    Ok((ears, checked.map_err(refused)?))
}

/// Text with its numbers, quoted names and lists replaced, so that alike complaints are one.
fn pattern(text: &str) -> String {
    let text =
        text.split_once("differences:").map_or(text.to_owned(), |(what, _)| format!("{what}differences"));
    let mut out = String::new();
    let mut quoted = false;
    for c in text.chars() {
        let c = if c.is_ascii_digit() { '#' } else { c };
        quoted ^= c == '\'';
        let again = c == '#' && out.ends_with('#');
        if !again && !c.is_control() && (!quoted || c == '\'') {
            out.push(c);
        }
    }
    let end = (0..=out.len().min(110)).rev().find(|at| out.is_char_boundary(*at));
    out.truncate(end.unwrap_or(0));
    out
}

/// The first complaint of e2fsck.
fn first_complaint(said: &str, file: &Path) -> String {
    let name = file.display().to_string();
    let line = said.lines().filter(|line| !line.is_empty() && !line.starts_with("e2fsck 1."));
    let mut line = line.filter(|line| !line.starts_with("Pass ") && !line.starts_with("exit status"));
    pattern(&line.next().unwrap_or(said).replace(&name, "IMAGE"))
}

impl Ready {
    fn of(name: &'static str, scratch: &Scratch) -> Self {
        let mut image = Image::of(name);
        let inventory = Arc::new(Inventory::of(&mut image));
        let volume = image.volume();
        let contents = inventory.files.iter();
        let contents =
            contents.map(|kept| (kept.inode, contents_of(&volume, kept.inode).expect("a base is readable")));
        let contents = contents.collect();
        let empty = inventory.files.iter().map(|kept| kept.inode);
        let empty = empty.filter(|inode| volume.metadata(*inode).unwrap().size == 0).collect();
        let file = scratch.join(name);
        sparse::write(&file, &*base(name)).unwrap();
        let device = Arc::new(MemoryDevice::from_bytes(&image.bytes));
        Ready { device, format: image.format, inventory, contents, empty, file }
    }

    /// Writes the pieces that changes touched from the base.
    fn restore(&self, file: &File, staged: &Staged) {
        for offset in staged.offsets() {
            let mut bytes = vec![0; 1024.min((staged.size() - offset) as usize)];
            self.device.read_at(offset, &mut bytes).unwrap();
            file.write_all_at(&bytes, offset).unwrap();
        }
    }

    /// Output of e2fsck on the base with changes over it.
    pub(super) fn complaints<const N: usize>(&self, layers: [&Staged; N]) -> String {
        let file = File::options().write(true).open(&self.file).unwrap();
        layers.iter().for_each(|layer| put(&file, layer));
        let said = fsck::complaints(&self.file);
        layers.iter().for_each(|layer| self.restore(&file, layer));
        said
    }

    /// Files whose contents do not depend on damaged bytes. Where descriptors or the superblock are
    /// damaged, no file is sure to be found: those volumes are not looked at.
    fn untouched<'r>(&'r self, damaged: &'r [Range<u64>]) -> impl Iterator<Item = &'r Kept> {
        let first = 1024..1024 + 1024;
        let descriptors: Vec<Range<u64>> = self
            .inventory
            .structures
            .iter()
            .filter(|of| of.class == "descriptor")
            .map(|of| of.at..of.at + of.len)
            .collect();
        let overlap = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        let volume = damaged
            .iter()
            .any(|hit| overlap(hit, &first) || descriptors.iter().any(|range| overlap(hit, range)));
        let files = self.inventory.files.iter().filter(move |_| !volume);
        files.filter(move |kept| !kept.needs.iter().any(|need| damaged.iter().any(|hit| overlap(hit, need))))
    }
}

/// A hash of the contents of a file or symbolic link.
pub(super) fn contents_of(volume: &Volume, inode: InodeNumber) -> platfs::Result<u64> {
    let facts = volume.metadata(inode)?;
    let mut hasher = DefaultHasher::new();
    if facts.file_type == platfs::ondisk::inode::FileType::Symlink {
        volume.read_link(inode)?.hash(&mut hasher);
    } else {
        // A damaged size may claim terabytes, mostly holes. Such a file equals no file of a base, whatever is in it.
        if facts.size > LONGEST {
            return Err(platfs::Error::io("reading", std::io::ErrorKind::FileTooLarge.into()));
        }
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut volume.open_file(inode)?, &mut bytes)
            .map_err(|error| platfs::Error::io("reading", error))?;
        bytes.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

impl Bench {
    pub fn new(loud: bool) -> Self {
        Bench { scratch: Scratch::new("agreement"), ready: HashMap::new(), loud }
    }

    fn ready(&mut self, name: &'static str) -> Arc<Ready> {
        let scratch = &self.scratch;
        Arc::clone(self.ready.entry(name).or_insert_with(|| Arc::new(Ready::of(name, scratch))))
    }

    /// Image `number`.
    pub(super) fn mutant(&mut self, number: u64) -> (Arc<Ready>, Mutant) {
        let names: Vec<&'static str> = bases().collect();
        let ready = self.ready(names[number as usize % names.len()]);
        let mut random = Random(number.wrapping_mul(0x1234_5678_9ABC_DEF1));
        let base = Arc::clone(&ready.device) as Arc<dyn Device>;
        let mutant = Mutant::new(base, ready.format.clone(), Arc::clone(&ready.inventory), &mut random);
        (ready, mutant)
    }

    /// Damages, judges and repairs image `number`.
    pub fn look(&mut self, number: u64) -> Vec<Finding> {
        let (ready, mutant) = self.mutant(number);
        if self.loud {
            println!("image {number}, from {}:", ready.file.display());
            mutant.story.iter().for_each(|line| println!("  {line}"));
        }
        let file = File::options().write(true).open(&ready.file).unwrap();
        put(&file, &mutant.device);
        let findings = self.judge(&ready, &mutant, &file);
        ready.restore(&file, &mutant.device);
        if let Some(repaired) = &findings.1 {
            ready.restore(&file, repaired);
        }
        findings.0
    }

    fn judge(&self, ready: &Ready, mutant: &Mutant, file: &File) -> (Vec<Finding>, Option<Arc<Staged>>) {
        let they = asked(&ready.file);
        if self.loud {
            println!("e2fsck: {}", they.as_deref().unwrap_or("takes too long"));
        }
        let mut findings: Vec<_> =
            leave(Arc::clone(&mutant.device) as Arc<dyn Device>, self.loud).into_iter().collect();
        let checked = examine(Arc::clone(&mutant.device) as Arc<dyn Device>, self.loud);
        let we_object = checked.as_ref().map_or(true, |(ears, _)| !ears.ids.is_empty());
        let we = checked.as_ref().map_or(String::new(), |(ears, _)| ears.summary());
        match &they {
            None => findings.push(Finding::Slow),
            Some(said) if said.is_empty() => {
                findings.push(Finding::Sound);
                if we_object && checked.is_ok() {
                    findings.push(Finding::Invented { we: we.clone() });
                }
            }
            Some(said) if !we_object => {
                findings.push(Finding::Missed { they: first_complaint(said, &ready.file) })
            }
            Some(_) => {}
        }
        match checked {
            Err(Finding::Refused { why, .. }) => {
                let alone = they.is_some_and(|said| !is_refusal(&said));
                findings.push(Finding::Refused { why, alone });
                (findings, None)
            }
            Err(finding) => {
                findings.push(finding);
                (findings, None)
            }
            Ok((ears, outcome)) => {
                if self.loud {
                    println!("we:\n{}", ears.told.join("\n"));
                }
                if we_object {
                    self.judge_repair(ready, mutant, file, &outcome, &ears, &mut findings);
                }
                (findings, Some(outcome.repaired))
            }
        }
    }

    fn judge_repair(
        &self,
        ready: &Ready,
        mutant: &Mutant,
        file: &File,
        outcome: &Outcome,
        ears: &Ears,
        findings: &mut Vec<Finding>,
    ) {
        let we = &*ears.summary();
        findings.push(Finding::Repaired);
        put(file, &outcome.repaired);
        match asked(&ready.file) {
            None => findings.push(Finding::Slow),
            Some(said) if said.is_empty() => {}
            Some(said) => {
                if self.loud {
                    println!("e2fsck after the repair: {said}");
                }
                findings
                    .push(Finding::NotPleased { they: first_complaint(&said, &ready.file), we: we.into() });
            }
        }
        match examine(Arc::clone(&outcome.repaired) as Arc<dyn Device>, self.loud) {
            // What can't be repaired is reported again.
            Ok((again, _)) if again.ids.iter().all(|id| ears.stay.contains(id)) => {}
            Ok((again, _)) => {
                if self.loud {
                    println!("we after the repair:\n{}", again.told.join("\n"));
                }
                findings.push(Finding::NotSettled { again: again.summary(), we: we.into() });
            }
            Err(Finding::Refused { why, .. }) => {
                findings.push(Finding::NotSettled { again: why, we: we.into() });
            }
            Err(finding) => findings.push(finding),
        }
        let lost = lost(ready, mutant, &outcome.repaired);
        if let Some((what, inode)) = lost {
            if self.loud {
                println!("lost: inode {inode}: {what}");
            }
            findings.push(Finding::Lost { inode: pattern(&what), we: we.into() });
        }
    }
}

/// The first file without damage that is not what it was.
pub(super) fn lost(ready: &Ready, mutant: &Mutant, repaired: &Arc<Staged>) -> Option<(String, InodeNumber)> {
    let mut untouched = ready.untouched(&mutant.damaged).peekable();
    let first = untouched.peek()?.inode;
    let volume = match Volume::open(Arc::clone(repaired) as Arc<dyn Device>, &OpenOptions::new()) {
        Ok(volume) => volume,
        Err(error) => return Some((format!("opening: {error}"), first)),
    };
    // One without contents loses none with its last name; a new directory may have its inode then.
    let is_file = |file_type| file_type != platfs::ondisk::inode::FileType::Directory;
    let has_contents = |kept: &&Kept| {
        volume.metadata(kept.inode).is_ok_and(|facts| facts.size > 0 && is_file(facts.file_type))
    };
    let mut untouched = untouched.filter(|kept| !ready.empty.contains(&kept.inode) || has_contents(kept));
    untouched.find_map(|kept| {
        let links = volume.metadata(kept.inode).map(|facts| facts.links);
        match contents_of(&volume, kept.inode) {
            Ok(hash) if hash == ready.contents[&kept.inode] && links.is_ok_and(|links| links > 0) => None,
            Ok(_) => Some(("other contents, or no links".into(), kept.inode)),
            Err(error) => Some((error.to_string(), kept.inode)),
        }
    })
}

/// Writes what is staged into the file.
fn put(file: &File, staged: &Staged) {
    for (offset, bytes) in staged.changes().unwrap() {
        let len = 1024.min((staged.size() - offset) as usize);
        file.write_all_at(&bytes[..len], offset).unwrap();
    }
}

/// True if e2fsck could not check the volume at all (8 among the bits of its exit code).
fn is_refusal(said: &str) -> bool {
    let code = said.lines().next().and_then(|line| line.rsplit(' ').next()?.parse::<u32>().ok());
    code.is_some_and(|code| code & 8 != 0)
}

/// Output of e2fsck; `None` if that takes too long.
fn asked(file: &Path) -> Option<String> {
    let mut command = tool::command("timeout");
    let seconds = PATIENCE.as_secs().to_string();
    let output =
        command.arg(seconds).arg(tool::find("e2fsck").unwrap()).arg("-fn").arg(file).output().unwrap();
    (output.status.code() != Some(124)).then(|| fsck::judged(&output, file))
}
