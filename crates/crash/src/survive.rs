//! Going through the states of a run: to the first that is wrong.

use std::collections::HashSet;
use std::sync::Arc;

use platfs::Volume;
use platfs::device::{Device, Event, Overlay, Recorder};
use platfs::ondisk::units::BlockSize;
use testkit::scratch::Scratch;
use testkit::{fsck, tool};

use crate::calls::PROMISED;
use crate::kinds::Kind;
use crate::oracle::journal::{self as oracle, complaints};
use crate::record::{Run, record};
use crate::states::{State, States};

/// How much is done with a state: each so manieth of them.
#[derive(Clone, Copy)]
pub struct Depth {
    /// Given to e2fsck; none if it is 0.
    e2fsck: usize,
    /// Checked by our check after recovery.
    check: usize,
    /// Recovered again and again, each time with a write less of the first recovery.
    twice: usize,
    /// States of a run, at most.
    most: usize,
}

impl Depth {
    pub const PLAIN: Depth = Depth { e2fsck: 0, check: 0, twice: 0, most: 3000 };
    pub const SUITE: Depth = Depth { e2fsck: 120, check: 7, twice: 41, most: 1000 };
    pub const LONG: Depth = Depth { e2fsck: 1000, check: 7, twice: 101, most: usize::MAX };
}

fn is_due(every: usize, count: usize) -> bool {
    every > 0 && count.is_multiple_of(every)
}

/// Lets e2fsck replay and judge a copy of a state.
fn as_e2fsck(device: &dyn Device, scratch: &Scratch) -> Result<(), String> {
    let image = scratch.join("state.img");
    let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    std::fs::write(&image, bytes).unwrap();
    let done = tool::command("e2fsck").args(["-fy"]).arg(&image).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    let unasked =
        said.lines().any(|line| line.contains("yes") || line.contains("FIXED") || line.contains("corrupt"));
    if unasked || done.status.code().is_none_or(|code| code > 1) {
        return Err(format!("e2fsck: {said}"));
    }
    let again = fsck::complaints(&image);
    if again.is_empty() { Ok(()) } else { Err(format!("e2fsck, again: {again}")) }
}

/// What is asked of a state.
struct Judge<'r> {
    kind: &'r Kind,
    run: &'r Run,
    depth: Depth,
    scratch: Scratch,
}

impl Judge<'_> {
    fn judge(&self, state: &State<'_>, device: Arc<dyn Device>) -> Result<(), String> {
        let history = &self.run.history;
        oracle::judge(device, &self.kind.options(), history, state, self.kind.rule())
    }

    fn look(&self, state: &State<'_>, count: usize) -> Result<(), String> {
        self.judge(state, state.device.clone())?;
        let torn = state.name.contains("bytes");
        if is_due(self.depth.check, count)
            && let Some(complaint) = complaints(state.device.clone())
        {
            return Err(format!("a check after recovery: {complaint}"));
        }
        if is_due(self.depth.e2fsck, count) && !torn {
            as_e2fsck(&*state.again(), &self.scratch)?;
        }
        if is_due(self.depth.twice, count) { self.twice(state) } else { Ok(()) }
    }

    /// Recovery is itself cut off, behind each of its writes.
    fn twice(&self, state: &State<'_>) -> Result<(), String> {
        let recorder = Arc::new(Recorder::new(state.again()));
        let volume = Volume::open(recorder.clone(), &self.kind.options());
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
            let told = |what| format!("recovery cut off behind {count} writes: {what}");
            self.judge(state, device).map_err(told)?;
        }
        Ok(())
    }
}

/// The states that were looked at, each once.
pub type Looked = HashSet<u64>;

/// Goes through the states of a run, to the first that is wrong.
pub fn enumerate(kind: &Kind, run: &Run, seed: u64, depth: Depth, looked: &mut Looked) -> Result<(), String> {
    let judge = Judge { kind, run, depth, scratch: Scratch::new("crash") };
    let size = BlockSize::from_bytes(u64::from(kind.block_size)).unwrap();
    let states = States::new(Arc::new(crate::record::copy(&run.base)), run.events.clone(), size, seed);
    let (mut count, mut first) = (0, None);
    states.all(|state| {
        count += 1;
        looked.insert(state.identity);
        if let Err(what) = judge.look(state, count) {
            first = Some(format!("{}, seed {seed}, {}: {what}", kind.name, state.name));
        }
        first.is_none() && count < depth.most
    });
    first.map_or(Ok(()), Err)
}

/// Records a random run, and goes through its states.
pub fn survive(kind: &Kind, seed: u64, calls: u64, depth: Depth, looked: &mut Looked) {
    let run = record(kind, seed, calls);
    let promises =
        run.events.iter().filter(|event| matches!(event, Event::Mark(word) if word & PROMISED != 0));
    assert!(promises.count() > 1);
    enumerate(kind, &run, seed, depth, looked).unwrap_or_else(|what| panic!("PLATFS_SEED={seed}: {what}"));
}
