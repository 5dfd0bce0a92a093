//! Long looks at a volume, which report while they run: the check, and the search for names.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use ondisk::units::InodeNumber;
use platfs::Walk;
use platfs::check::{Decision, Issue, Options, Progress, Severity, Sink, check as examine, kinds};
use platfs::device::Device;
use platfs_forensics::words;
use serde_json::{Value, json};

use crate::browse::entry;
use crate::session::{Answer, Events, Open, inode, text};

/// Memory for what a check has to know.
const MEMORY: u64 = 512 << 20;
/// Most issues of a kind that are handed over; all are counted.
const ISSUES: u64 = 200;
/// Most names that a search gives; of the name itself, as many again.
const FOUND: u64 = 2_000;
/// Directories between two reports of a search.
const STEP: u64 = 64;

/// Hands issues and progress over.
struct Listener<'e> {
    events: &'e mut dyn Events,
    counts: HashMap<&'static str, u64>,
    /// Those of which something was handed over.
    inodes: BTreeSet<InodeNumber>,
}

impl Sink for Listener<'_> {
    fn issue(&mut self, issue: Issue) -> Decision {
        let count = self.counts.entry(issue.kind.id).or_default();
        *count += 1;
        if *count <= ISSUES {
            let place = &issue.place;
            self.inodes.extend(place.inode);
            let event = json!({ "issue": {
                "kind": issue.kind.id,
                "group": place.group.map(|group| group.0),
                "inode": place.inode.map(InodeNumber::get),
                "block": place.block.map(|block| block.0),
                "file_block": place.file_block.map(|block| block.0),
                "name": place.name.as_deref().map(words::lossy),
                "found": issue.found,
                "expected": issue.expected,
                "repair": issue.repair,
            } });
            self.events.event(&event.to_string());
        }
        Decision::Leave
    }

    fn progress(&mut self, progress: Progress) {
        let Progress { pass, done, of } = progress;
        self.events.event(&json!({ "pass": pass, "done": done, "of": of }).to_string());
    }
}

/// Checks a volume; nothing is repaired.
pub(crate) fn check(device: &Arc<dyn Device>, events: &mut dyn Events) -> Answer {
    let mut listener = Listener { events, counts: HashMap::new(), inodes: BTreeSet::new() };
    let options = Options { memory: MEMORY, ..Options::default() };
    let outcome = examine(Arc::clone(device), &options, &mut listener);
    let outcome = outcome.map_err(|error| format!("the check ended early: {error}"))?;
    let summary = outcome.summary;
    let inodes: Vec<InodeNumber> = listener.inodes.into_iter().collect();
    let paths = inodes.iter().zip(outcome.paths(&inodes));
    let paths = paths.filter_map(|(inode, path)| Some((inode.to_string(), words::lossy(&path?).into())));
    let found = kinds().filter_map(|kind| {
        let count = listener.counts.get(kind.id)?;
        let severe = kind.severity >= Severity::Damage;
        Some(json!({ "kind": kind.id, "count": count, "severity": kind.severity.name(), "severe": severe,
                "weight": kind.severity.weight(), "safe": kind.safe, "title": kind.title,
                "means": kind.means, "risk": kind.risk }))
    });
    Ok(json!({
        "paths": Value::Object(paths.collect()),
        "kinds": found.collect::<Vec<_>>(),
        "issues": summary.issues,
        "inodes": summary.inodes,
        "inodes_used": summary.inodes_used,
        "blocks": summary.blocks,
        "blocks_used": summary.blocks_used,
        "files": summary.files,
        "directories": summary.directories,
        "fragmented": summary.fragmented,
    }))
}

/// Decides for every repair, and tells how far the check is.
struct Mender<'e>(&'e mut dyn Events);

impl Sink for Mender<'_> {
    fn issue(&mut self, _: Issue) -> Decision {
        Decision::Repair
    }

    fn progress(&mut self, Progress { pass, done, of }: Progress) {
        self.0.event(&json!({ "pass": pass, "done": done, "of": of }).to_string());
    }
}

/// A volume as the repair of all that a check finds leaves it, in memory.
pub(crate) fn repaired(device: &Arc<dyn Device>, events: &mut dyn Events) -> Result<Arc<dyn Device>, String> {
    let options = Options { memory: MEMORY, ..Options::default() };
    let outcome = examine(Arc::clone(device), &options, &mut Mender(events));
    Ok(outcome.map_err(|error| format!("it can't be repaired: {error}"))?.repaired)
}

/// Names below a directory that hold a text, upper and lower case alike. Each is reported with its directories; those that
/// are the text itself say so, and others do not keep them from being found.
pub(crate) fn search(open: &Open, question: &Value, events: &mut dyn Events) -> Answer {
    let wanted = text(question, "text")?.to_lowercase();
    let mut search =
        Search { open, wanted, events, found: 0, exact: 0, names: 0, directories: 0, problems: 0 };
    let more = search.below(inode(question)?)?;
    Ok(
        json!({ "found": search.found + search.exact, "names": search.names, "problems": search.problems, "more": more }),
    )
}

struct Search<'s> {
    open: &'s Open,
    wanted: String,
    events: &'s mut dyn Events,
    found: u64,
    exact: u64,
    names: u64,
    directories: u64,
    problems: u64,
}

impl Search<'_> {
    /// Searches below a directory; returns true if there may be more than was reported.
    fn below(&mut self, top: InodeNumber) -> Result<bool, String> {
        let (mut walk, mut more) = (Walk::new(&self.open.volume), false);
        // The inodes of the directories that the walk is in, for the page to go there.
        let mut way = vec![top];
        walk.enter(b"", top).map_err(|error| error.to_string())?;
        while walk.depth() > 0 {
            let Some(next) = walk.next_entry().cloned() else {
                walk.leave();
                way.pop();
                continue;
            };
            self.names += 1;
            let name = words::lossy(&next.name).to_lowercase();
            let is_exact = name == self.wanted;
            if is_exact || name.contains(&self.wanted) {
                if is_exact && self.exact >= FOUND {
                    return Ok(true);
                }
                match is_exact || self.found < FOUND {
                    true => self.report(walk.path(), &way, entry(self.open, &next), is_exact),
                    false => more = true,
                }
            }
            if !walk.is_directory(&next).unwrap_or(false) {
                continue;
            }
            match walk.enter(&next.name, next.inode) {
                Ok(complaint) => {
                    way.push(next.inode);
                    self.problems += u64::from(complaint.is_some());
                    self.step();
                }
                Err(_) => self.problems += 1,
            }
        }
        Ok(more)
    }

    fn report(&mut self, path: &[u8], way: &[InodeNumber], entry: Value, is_exact: bool) {
        *(if is_exact { &mut self.exact } else { &mut self.found }) += 1;
        let way: Vec<u32> = way.iter().map(|inode| inode.get()).collect();
        // Names hold no slash, so that the page can take the path apart again.
        let event =
            json!({ "match": { "path": words::lossy(path), "way": way, "entry": entry, "exact": is_exact } });
        self.events.event(&event.to_string());
    }

    fn step(&mut self) {
        self.directories += 1;
        if self.directories.is_multiple_of(STEP) {
            let event = json!({ "pass": "names", "done": self.names, "of": 0 });
            self.events.event(&event.to_string());
        }
    }
}
