//! Going through the states of a run: to the first that is wrong.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use platfs::Volume;
use platfs::device::{Device, Event, Overlay, Recorder};
use testkit::scratch::Scratch;

use crate::e2fsck;
use crate::oracle::{self, journal, phased};
use crate::run::{Run, image_of};
use crate::states::{State, States};

/// Judgements beside recovery and the comparison with what was promised: made of every n-th state; 0: never.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Depth {
    /// Given to e2fsck.
    pub e2fsck: u64,
    /// Checked after recovery by our check. With soft updates all are.
    pub check: u64,
    /// Recovered again and again, each time with a write less of the first recovery.
    pub twice: u64,
    /// States of a run, at most.
    pub most: u64,
}

impl Depth {
    /// Nothing beside.
    pub const PLAIN: Depth = Depth { e2fsck: 0, check: 0, twice: 0, most: 3000 };
}

fn is_due(every: u64, count: u64) -> bool {
    every > 0 && count.is_multiple_of(every)
}

/// Counts of the states of a run.
#[derive(Clone, Default, Debug)]
pub(crate) struct StateCounts {
    /// States that were met, the same ones more than once.
    pub(crate) met: u64,
    pub(crate) judged: u64,
    /// Given to e2fsck.
    pub(crate) by_e2fsck: u64,
    /// The first that is wrong.
    pub(crate) wrong: Option<BadState>,
}

/// A state that is not as it should be.
#[derive(Clone, Debug)]
pub(crate) struct BadState {
    pub(crate) number: u64,
    /// Words that name the state.
    pub(crate) name: String,
    pub(crate) what: String,
}

/// Judges what a state must hold.
struct Judge<'r> {
    run: &'r Run,
    depth: Depth,
    scratch: Scratch,
    by_e2fsck: u64,
}

impl Judge<'_> {
    /// Everything that is due.
    fn look(&mut self, state: &State<'_>, count: u64) -> Result<(), String> {
        let is_e2fsck_due = is_due(self.depth.e2fsck, count) && !self.run.workload.is_beyond_e2fsck();
        self.by_e2fsck += u64::from(is_e2fsck_due);
        let is_phased = self.run.workload.order.is_phased();
        if is_phased {
            phased::before_recovery(state.device.clone())?;
        }
        if is_e2fsck_due {
            self.as_e2fsck(state, is_phased)?;
        }
        self.recovered(state, state.device.clone())?;
        if is_phased || is_due(self.depth.check, count) {
            oracle::is_clean(state.device.clone()).map_err(|what| format!("after recovery: {what}"))?;
        }
        if is_due(self.depth.twice, count) { self.twice(state) } else { Ok(()) }
    }

    fn as_e2fsck(&self, state: &State<'_>, is_phased: bool) -> Result<(), String> {
        if !is_phased {
            return e2fsck::replays(&*state.again(), &self.scratch);
        }
        let repaired = e2fsck::repairs(&*state.again(), &self.scratch)?;
        let volume = Volume::open(Arc::new(repaired), &platfs::OpenOptions::new())
            .map_err(|error| error.to_string())?;
        let context = |what| format!("after e2fsck -fy: {what}");
        oracle::tree(&volume).and_then(|tree| phased::judge(&tree, self.run, state)).map_err(context)
    }

    /// Recovers a state by opening it for writing, and compares it with what was promised.
    fn recovered(&self, state: &State<'_>, device: Arc<dyn Device>) -> Result<(), String> {
        let options = self.run.workload.options();
        let volume = Volume::open(device, &options).map_err(|error| format!("opening: {error}"))?;
        let tree = oracle::tree(&volume)?;
        if self.run.workload.order.is_phased() {
            phased::judge_in_use(&tree, self.run, state).map_err(|what| format!("in use: {what}"))?;
            volume.leftovers().reclaim().map_err(|error| format!("reclaiming: {error}"))?;
            phased::judge(&oracle::tree(&volume)?, self.run, state)?;
            phased::whole(&volume, self.run, state)?;
        } else {
            journal::judge(&volume, tree, self.run, state)?;
        }
        volume.close().map_err(|error| format!("closing: {error}"))
    }

    /// Recovery is itself cut off, behind each of its writes.
    fn twice(&self, state: &State<'_>) -> Result<(), String> {
        let recorder = Arc::new(Recorder::new(state.again()));
        let volume = Volume::open(recorder.clone(), &self.run.workload.options());
        volume.map_err(|error| error.to_string())?.close().map_err(|error| error.to_string())?;
        let events = recorder.take();
        let writes: Vec<_> = events.iter().filter(|event| matches!(event, Event::Write { .. })).collect();
        let step = writes.len().div_ceil(12).max(1);
        for count in (0..writes.len()).step_by(step) {
            let device: Arc<Overlay> = state.again();
            for event in &writes[..count] {
                if let Event::Write { offset, data } = event {
                    device.write_at(*offset, data).unwrap();
                }
            }
            let context = |what| format!("recovery cut off behind {count} writes: {what}");
            self.recovered(state, device).map_err(context)?;
        }
        Ok(())
    }

    /// As `look`; a panic counts as what is wrong.
    fn look_safely(&mut self, state: &State<'_>, count: u64) -> Result<(), String> {
        safely(|| self.look(state, count)).and_then(|done| done)
    }
}

/// Runs something; a panic becomes what is wrong.
pub(crate) fn safely<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let owned = panic.downcast_ref::<String>().map(String::as_str);
        let words = owned.or_else(|| panic.downcast_ref::<&str>().copied());
        format!("a panic: {}", words.unwrap_or("without words"))
    })
}

/// Goes through the states of a run, to the first that is wrong. `see` gets what each holds, as a number, and says
/// whether more are wanted.
pub(crate) fn enumerate(run: &Run, depth: Depth, see: impl Fn(u64) -> bool) -> StateCounts {
    let mut judge = Judge { run, depth, scratch: Scratch::new("crash"), by_e2fsck: 0 };
    let mut looked = StateCounts::default();
    looked.met = States::of(run).all(|state| {
        looked.judged += 1;
        // Runs are short: not always the same ones of their states are due.
        if let Err(what) = judge.look_safely(state, looked.judged + run.seed.wrapping_mul(61)) {
            looked.wrong = Some(BadState { number: state.number, name: state.name.clone(), what });
        }
        see(state.identity) && looked.wrong.is_none() && looked.judged < depth.most
    });
    looked.by_e2fsck = judge.by_e2fsck;
    looked
}

/// Judges one state of a run with all that can be asked; gives what it holds to `see` before. `None` if the run has
/// fewer.
pub(crate) fn judge_one(
    run: &Run,
    number: u64,
    e2fsck: bool,
    see: impl FnOnce(&[u8]),
) -> Option<StateCounts> {
    let depth = Depth { e2fsck: u64::from(e2fsck), check: 1, twice: 1, most: u64::MAX };
    let mut judge = Judge { run, depth, scratch: Scratch::new("crash"), by_e2fsck: 0 };
    let (mut see, mut found) = (Some(see), None);
    States::of(run).all(|state| {
        if state.number < number {
            return true;
        }
        if let Some(see) = see.take() {
            see(&image_of(&*state.again()));
        }
        let done = judge.look_safely(state, 1).err();
        let wrong = done.map(|what| BadState { number, name: state.name.clone(), what });
        found = Some(StateCounts { met: 1, judged: 1, by_e2fsck: judge.by_e2fsck, wrong });
        false
    });
    found
}
