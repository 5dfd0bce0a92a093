//! `plat check IMAGE`: what is wrong with a volume, the plan of its repair, and the repair.
//!
//! The check and the repair are made in memory first, and checked once more there; the image is written
//! only when all of the plan stands, is agreed to, and can be undone if that was asked for.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write, stderr, stdin, stdout};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use platfs::check::{Decision, Issue, Options, Severity};
use platfs::device::Device;
use platfs_host::OutputLocation;
use platfs_host::path;

use super::cage;
use super::{json, live};
use crate::check::ask::{Answer, Questions, about_plan};
use crate::check::examine::{Made, examine};
use crate::check::findings::{Findings, Policy};
use crate::check::fsck;
use crate::check::progress::Meter;
use crate::check::report::{self, Detail, counted};
use crate::check::{e2fsck, explain, facts, stop};
use crate::console::{Console, Failure};
use crate::door::output::filled;
use crate::door::{self, Shared};
use crate::image;
use crate::progress;
use crate::sandbox::Plan;
use crate::text::Shown;
use platfs_image::clock::now;
use platfs_open::memory;
use platfs_open::names::Names;
use platfs_open::undo;

/// Arguments of `plat check`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes are those of fsck(8): 0 sound, 1 repaired, 4 something is wrong still, 8 could not be \
                        checked, 16 wrong usage, 32 stopped."
)]
pub struct Check {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`. Or a directory of a mount by
    /// `plat mount`: a snapshot of it is looked at.
    #[arg(required_unless_present_any = ["version", "explain"])]
    image: Option<OsString>,
    /// Only look, never write; so it is without a terminal if nothing else is said.
    #[arg(short = 'n', long = "dry-run", group = "mode")]
    look: bool,
    /// Repair if no repair loses anything, else change nothing; pass over a volume that is marked clean.
    #[arg(short, long, short_alias = 'a', group = "mode")]
    preen: bool,
    /// Repair everything.
    #[arg(short, long, group = "mode")]
    yes: bool,
    /// Check a volume that is marked clean, too, with -p or as fsck.ext4.
    #[arg(short, long)]
    force: bool,
    /// Begin with the superblock in this block (see `plat info`) instead of the first.
    #[arg(short = 'b', value_name = "BLOCK")]
    superblock: Option<u64>,
    /// Size of a block, for -b; without it each size is tried.
    #[arg(short = 'B', value_name = "BYTES", requires = "superblock", value_parser = block_size)]
    block_size: Option<u32>,
    /// Print every issue, and what the volume holds.
    #[arg(short, long)]
    verbose: bool,
    /// Print the version.
    #[arg(short = 'V', long)]
    version: bool,
    /// Write progress to an open file, as `PASS DONE OF IMAGE`; 0 is a bar, and what is below shows none.
    #[arg(short = 'C', value_name = "FD", allow_hyphen_values = true)]
    progress: Option<i32>,
    /// One JSON object.
    #[arg(long)]
    json: bool,
    /// Explain what a kind of issue means and risks; all kinds without ID.
    #[arg(long, value_name = "ID", num_args = 0..=1)]
    explain: Option<Option<String>>,
    /// Before anything is written, save what it was to a new file.
    #[arg(long, value_name = "FILE", conflicts_with = "look")]
    undo: Option<PathBuf>,
    /// Bring the image back to what it was before the repair that wrote FILE.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["mode", "undo", "superblock"])]
    undo_from: Option<PathBuf>,
    /// Threads; as many as there are processors if not given.
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Called by one of the names of fsck(8).
    #[arg(long, hide = true)]
    fsck: bool,
    #[command(flatten)]
    e2fsck: e2fsck::Options,
}

/// The kind of a volume whose end is missing.
const CUT_SHORT: &str = "volume-cut-short";
/// The kind of a volume that can't be opened by its superblock.
const NO_SUPERBLOCK: &str = "superblock-damaged";

fn block_size(text: &str) -> Result<u32, String> {
    let bytes: u32 = text.parse().map_err(|_| "not a number of bytes".to_owned())?;
    let legal = bytes.is_power_of_two() && (1024..=65536).contains(&bytes);
    if legal { Ok(bytes) } else { Err("not a power of two from 1024 to 65536".into()) }
}

/// How much may be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Look,
    Preen,
    Yes,
    Ask,
}

/// How a check ended.
struct Ending {
    /// The exit code.
    code: u8,
    /// Something was written.
    written: bool,
}

/// An image, open for a check.
struct Held {
    name: String,
    device: Arc<dyn Device>,
    mode: Mode,
    _lock: Option<Shared>,
}

impl Check {
    /// Where nothing can be written: neither a repair nor a way back.
    pub(super) fn cage(&self) -> Option<Plan> {
        let Some(image) = &self.image else { return Some(cage::system()) };
        if self.mode() == Mode::Look && self.undo_from.is_none() {
            return cage::reading(&[image], &[], None);
        }
        let plan = cage::reshaping(image, self.undo().map(PathBuf::as_path))?;
        Some(cage::with_files(plan, self.undo_from.clone()))
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let code = match self.work(console) {
            Ok(code) => code,
            Err(Failure::Failed(text)) => {
                console.complain(Failure::Failed(text))?;
                fsck::FAILED
            }
            Err(Failure::Usage(text)) => {
                console.complain(Failure::Failed(text.into()))?;
                fsck::USAGE
            }
            Err(other) => return Err(other),
        };
        if code == fsck::SOUND { Ok(()) } else { Err(Failure::Reported(code)) }
    }

    fn work(&self, console: &mut Console<'_>) -> Result<u8, Failure> {
        if self.version {
            writeln!(console.out, "plat check {}", crate::VERSION)?;
            return Ok(fsck::SOUND);
        }
        if let Some(id) = &self.explain {
            return self.explain(console, id.as_deref());
        }
        if let Some(path) = &self.undo_from {
            return self.bring_back(console, path);
        }
        self.e2fsck.refuse()?;
        if self.is_silent() {
            progress::end();
        }
        let (_stoppable, begun) = (stop::stoppable(), Instant::now());
        let held = self.open(console)?;
        if let Some(code) = self.pass_over(console, &held)? {
            return Ok(code);
        }
        let made = self.examine(&held, Policy::All)?;
        let code = self.conclude(console, &held, made)?;
        if self.e2fsck.times() && !self.json {
            writeln!(console.out, "{}: {:.2} seconds", held.name, begun.elapsed().as_secs_f64())?;
        }
        Ok(code)
    }

    /// Where the way back is to be kept.
    fn undo(&self) -> Option<&PathBuf> {
        self.undo.as_ref().or(self.e2fsck.undo())
    }

    fn name(&self) -> String {
        self.image.as_deref().map(|image| image::shown(image).to_string()).unwrap_or_default()
    }

    fn explain(&self, console: &mut Console<'_>, id: Option<&str>) -> Result<u8, Failure> {
        let Some(id) = id else {
            if self.json {
                let mut array = json::Array::default();
                for kind in platfs::check::kinds() {
                    array.push(console.out, facts::explained(kind))?;
                }
                array.end(console.out)?;
            } else {
                explain::all(console.out)?;
            }
            return Ok(fsck::SOUND);
        };
        let kind = facts::find_kind(id).map_err(|alike| {
            let hint = if alike.is_empty() { "--explain alone lists all".into() } else { alike.join(", ") };
            Failure::Usage(format!("{}: no such kind of issue; {hint}", Shown(id.as_bytes())))
        })?;
        if self.json {
            json::print(console.out, facts::explained(kind))?;
        } else {
            explain::one(console.out, kind)?;
        }
        Ok(fsck::SOUND)
    }

    /// Returns the mode that was asked for, or that the terminal allows.
    fn mode(&self) -> Mode {
        let asks = stdin().is_terminal() && stdout().is_terminal() && !self.json;
        match (self.look, self.preen, self.yes) {
            (true, ..) => Mode::Look,
            (_, true, _) => Mode::Preen,
            (.., true) => Mode::Yes,
            _ if asks => Mode::Ask,
            _ => Mode::Look,
        }
    }

    /// Opens and locks the image. One that is in use is not repaired; it can be looked at.
    fn open(&self, console: &mut Console<'_>) -> Result<Held, Failure> {
        let (name, image) = (self.name(), self.image.clone().unwrap_or_default());
        let failed = |what: String| Failure::about(&name, what);
        let look = |lock: Option<Shared>| -> Result<Held, Failure> {
            let device = image::open_read(&image).map_err(|error| Failure::about(&name, error))?;
            Ok(Held { name: name.clone(), device, mode: Mode::Look, _lock: lock })
        };
        let mode = self.mode();
        if path::is_directory(&image) && live::is_meant(&image, None) {
            return self.open_mounted(console, &image);
        }
        if mode == Mode::Look {
            return match door::share(&image) {
                Ok(lock) => look(Some(lock)),
                Err(why) => {
                    let held = look(None)?;
                    console.warn(format!("{name}: {why}; what is found may be about to change"));
                    Ok(held)
                }
            };
        }
        let opened = door::open_check(&image).map_err(|error| error.to_string());
        let opened = opened.map(|device| Held { name: name.clone(), device, mode, _lock: None });
        match opened {
            Err(why) if mode == Mode::Ask => {
                let held = look(None)?;
                console.warn(format!("{name}: {why}; only looking"));
                Ok(held)
            }
            opened => opened.map_err(failed),
        }
    }

    /// Takes a snapshot of a mount, which is there until the check ends.
    fn open_mounted(&self, console: &mut Console<'_>, place: &OsStr) -> Result<Held, Failure> {
        let name = self.name();
        if matches!(self.mode(), Mode::Preen | Mode::Yes) {
            return Err(Failure::about(
                name,
                "is mounted: it can be looked at (`-n`), and repaired once it is not",
            ));
        }
        let file = live::snapshot(console, place)?;
        let device = filled(file).map_err(|error| Failure::about(&name, error))?;
        Ok(Held { name, device: Arc::new(device), mode: Mode::Look, _lock: None })
    }

    /// The end of it for a volume that is marked clean, where that is good enough.
    fn pass_over(&self, console: &mut Console<'_>, held: &Held) -> Result<Option<u8>, Failure> {
        if self.force || self.superblock.is_some() || !(self.fsck || held.mode == Mode::Preen) {
            return Ok(None);
        }
        let Ok(raw) = platfs::read_superblock(&*held.device) else { return Ok(None) };
        // What can't be looked at at all the check refuses with its own words.
        let Ok(glance) = platfs::check::glance(Arc::clone(&held.device), &self.options()) else {
            return Ok(None);
        };
        if let Some(why) = fsck::why(&raw, now()).or(glance) {
            if !self.json {
                writeln!(console.out, "{}: {why}: checking", held.name)?;
            }
            return Ok(None);
        }
        if self.json {
            let verdict = facts::Verdict {
                image: &held.name,
                outcome: "clean",
                exit_code: fsck::SOUND,
                written: false,
            };
            json::print(console.out, facts::check(&verdict, None, &Findings::default(), &Names::default()))?;
        } else {
            writeln!(console.out, "{}: {}", held.name, fsck::clean_line(&raw))?;
        }
        Ok(Some(fsck::SOUND))
    }

    fn meter(&self, name: &str) -> Result<Meter, Failure> {
        match self.progress {
            Some(descriptor) if descriptor > 0 => {
                let failed = |error| Failure::Usage(format!("-C {descriptor}: {error}"));
                Meter::to_descriptor(descriptor.unsigned_abs(), name).map_err(failed)
            }
            None | Some(_) => Ok(Meter::bar()),
        }
    }

    /// Returns true if nothing shows how far it is: fsck(8) asks for that with `-C`.
    fn is_silent(&self) -> bool {
        self.progress.map_or(self.fsck, |descriptor| descriptor != 0)
    }

    fn examine(&self, held: &Held, policy: Policy<'_>) -> Result<Made, Failure> {
        let mut meter = self.meter(&held.name)?;
        examine(&held.device, &held.name, &self.options(), policy, &mut meter)
    }

    fn options(&self) -> Options {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        Options {
            threads: self.threads.map_or_else(processors, usize::from),
            now: now(),
            superblock: self.superblock.map(|block| (block, self.block_size)),
            memory: memory::for_check(),
        }
    }

    /// Prints what was found, repairs as far as the mode allows, and says how it ended.
    fn conclude(&self, console: &mut Console<'_>, held: &Held, mut made: Made) -> Result<u8, Failure> {
        let detail = if self.verbose { Detail::All } else { Detail::Some };
        let mut written = false;
        let mut cancelled = false;
        let mut shown = Ok(());
        if made.findings.count() > 0 && !self.json {
            shown = show(console, &made, held, detail, self.fsck);
        }
        let mut undo = self.undo().cloned();
        let has_work = made.findings.count() > 0 || made.findings.replay.is_some();
        let wanted = match held.mode {
            Mode::Look => false,
            Mode::Yes => has_work,
            Mode::Preen => has_work && made.safe && made.left == 0,
            // A mount replays the journal, too.
            Mode::Ask if made.findings.count() == 0 => false,
            Mode::Ask => match self.ask_about_plan(console, &held.name)? {
                Answer::All => true,
                Answer::Undoable(path) => {
                    undo = Some(path);
                    true
                }
                Answer::Nothing => false,
                Answer::Each => {
                    (made, cancelled) = self.one_by_one(held, &made.names)?;
                    !cancelled
                }
            },
        };
        if wanted && !made.outcome.repaired.is_unchanged() {
            Self::write(held, &made, undo.as_deref())?;
            written = true;
        }
        let code = match () {
            () if cancelled => fsck::CANCELLED,
            () if made.findings.count() == 0 && made.left == 0 => fsck::SOUND,
            () if written && made.left == 0 => fsck::REPAIRED,
            () if made.findings.count() == made.findings.of_clocks() && made.left == 0 => fsck::SOUND,
            // e2fsck -p takes no backup either, and says that there was no volume to check.
            () if held.mode == Mode::Preen && made.findings.has(NO_SUPERBLOCK) => fsck::FAILED,
            () => fsck::UNSOUND,
        };
        shown = shown.and_then(|()| self.end(console, held, &made, Ending { code, written }));
        match shown {
            // The work is done; the volume does not depend on whether its report is read.
            Ok(()) | Err(Failure::OutputClosed) => Ok(code),
            Err(other) => Err(other),
        }
    }

    fn ask_about_plan(&self, console: &mut Console<'_>, name: &str) -> Result<Answer, Failure> {
        let usual = self.undo().is_none().then(|| undo::usual_path(name));
        Ok(about_plan(&mut stdin(), console.out, usual.as_deref())?)
    }

    /// Checks again, asking about each issue.
    fn one_by_one(&self, held: &Held, names: &Names) -> Result<(Made, bool), Failure> {
        let (mut input, mut output) = (stdin(), progress::stdout());
        let mut questions = Questions::new(&mut input, &mut output);
        let mut ask = |issue: &Issue| -> Decision {
            let place = names.place(&issue.place);
            let text = format!(
                "\n{}: {}\n    {place}: {}\n    repair: {}\n",
                issue.kind.id, issue.kind.title, issue.found, issue.repair
            );
            questions.about(issue, &text)
        };
        let made = self.examine(held, Policy::Ask(&mut ask))?;
        Ok((made, questions.cancelled))
    }

    /// Brings the repairs to the image. Signals that would end this wait until it is done.
    fn write(held: &Held, made: &Made, undo: Option<&Path>) -> Result<(), Failure> {
        let failed = |what: String| Failure::about(&held.name, what);
        let _busy = stop::busy();
        if let Some(path) = undo {
            let reason = |error| {
                format!("nothing was written: {}: {error}", Shown(path.as_os_str().as_encoded_bytes()))
            };
            undo::save(path, &made.outcome.repaired).map_err(|error| failed(reason(error)))?;
        }
        made.outcome.repaired.apply().map_err(|error| {
            let back = if undo.is_some() { ", or bring it back with --undo-from" } else { "" };
            failed(format!("writing the repairs: {error}; the volume is half repaired: check it again{back}"))
        })
    }

    fn end(
        &self,
        console: &mut Console<'_>,
        held: &Held,
        made: &Made,
        Ending { code, written }: Ending,
    ) -> Result<(), Failure> {
        let (name, findings, summary) = (&held.name, &made.findings, &made.outcome.summary);
        if self.json {
            let outcome = match code {
                fsck::SOUND => "sound",
                fsck::REPAIRED => "repaired",
                _ => "unsound",
            };
            let verdict = facts::Verdict { image: name, outcome, exit_code: code, written };
            let all = facts::check(&verdict, Some(summary), findings, &made.names);
            return Ok(json::print(console.out, all)?);
        }
        if self.verbose {
            report::census(console.out, summary)?;
        }
        let (count, repaired) = (findings.count(), findings.repaired());
        let replay = match &findings.replay {
            None => "",
            Some(_) if written => "its journal was replayed; ",
            Some(_) => "its journal waits to be replayed, as a mount does; ",
        };
        let state = match code {
            fsck::SOUND => format!("{replay}{}", report::in_use(summary)),
            fsck::REPAIRED => format!("{} repaired; {}", counted(count, "problem"), report::in_use(summary)),
            _ if written => format!(
                "{repaired} of {} repaired, {} left; THE VOLUME IS NOT SOUND YET",
                counted(count, "problem"),
                made.left
            ),
            // Work that a mount or a repair without loss does.
            _ if findings.kinds.iter().all(|of| of.kind.severity == Severity::Untidy) => format!(
                "{}, none of them damage; not in order yet, and nothing was written",
                counted(count, "problem")
            ),
            _ => format!("{}; NOT SOUND, and nothing was written", counted(count, "problem")),
        };
        writeln!(console.out, "{name}: {state}")?;
        if matches!(code, fsck::UNSOUND | fsck::FAILED) && !written && !self.fsck {
            let how = match (findings.repairable(), made.left) {
                _ if findings.has(CUT_SHORT) => format!(
                    "copy the image again, or make the partition as long as it was; `plat export --keep-going {name} DIR` \
                     takes out what is there"
                ),
                (0, _) => "nothing of it can be repaired here".to_owned(),
                (_, 0) => format!(
                    "`plat check -y {name}` makes the repair, `--undo FILE` with it keeps the way back"
                ),
                (_, left) => format!(
                    "`plat check -y {name}` repairs what it can, {} would be left; `--undo FILE` with it keeps the way back",
                    counted(left, "problem")
                ),
            };
            writeln!(console.out, "{how}; `plat check --explain ID` says more.")?;
        }
        Ok(())
    }

    fn bring_back(&self, console: &mut Console<'_>, path: &std::path::Path) -> Result<u8, Failure> {
        let (name, image) = (self.name(), self.image.clone().unwrap_or_default());
        let failed = |what: String| Failure::about(&name, what);
        let device = door::open_unfinished(&image).map_err(|error| Failure::about(&name, error))?;
        let shown = Shown(path.as_os_str().as_encoded_bytes()).to_string();
        let written = undo::restore(path, &*device).map_err(|why| failed(format!("{shown}: {why}")))?;
        let pending = door::way_back(&image);
        if path::is_there(&pending) {
            // What was under way is taken back with what came before it.
            let removed = OutputLocation::of(&pending).and_then(|place| place.remove());
            removed.map_err(|error| Failure::about(&name, error))?;
        }
        if !self.json {
            writeln!(console.out, "{name}: as it was before the repair ({written} bytes written)")?;
        }
        Ok(fsck::SOUND)
    }
}

fn show(
    console: &mut Console<'_>,
    made: &Made,
    held: &Held,
    detail: Detail,
    brief: bool,
) -> Result<(), Failure> {
    writeln!(
        console.out,
        "{}: {} of {}",
        held.name,
        counted(made.findings.count(), "problem"),
        counted(made.findings.kinds.len() as u64, "kind")
    )?;
    report::issues(console.out, &made.findings, &made.names, detail)?;
    if !brief {
        report::plan(console.out, &made.findings, &made.names, detail)?;
    }
    // What is to be agreed to is read first.
    console.out.flush()?;
    let _ = stderr().flush();
    Ok(())
}
