//! Recording runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use platfs::Volume;
use platfs::device::{Device, Event, MemoryDevice, Recorder};
use platfs::ondisk::units::InodeNumber;
use testkit::random::Random;

use crate::ace;
use crate::calls::Caller;
use crate::deep::Deep;
use crate::model::Model;
use crate::random::Chooser;
use crate::reclaim::record_reclaiming;
use crate::states::States;
use crate::workload::{Calls, Workload};

/// What was recorded of a run.
pub(crate) struct Run {
    pub(crate) workload: Workload,
    pub(crate) seed: u64,
    pub(crate) base: MemoryDevice,
    pub(crate) events: Vec<Event>,
    /// The models by call.
    pub(crate) history: Vec<Model>,
    /// Which inode each file and directory of the models is.
    pub(crate) inodes: BTreeMap<u32, InodeNumber>,
}

pub(crate) fn copy(device: &dyn Device) -> MemoryDevice {
    MemoryDevice::from_bytes(&bytes_of(device))
}

/// All that a device holds.
pub(crate) fn bytes_of(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Records a run of so many calls on a volume where others were made before; for random ones these decide where in
/// the log it begins. `None` if one of a sequence can't be made.
pub(crate) fn record(workload: &Workload, seed: u64, calls: u64) -> Option<Run> {
    if let Calls::Reclaiming { deep } = workload.calls {
        return record_reclaiming(workload, deep, seed, calls);
    }
    record_on(workload, workload.made(), seed, |caller, begin| {
        match workload.calls {
            Calls::Reclaiming { .. } => {}
            Calls::Random(taste) => {
                let mut chooser = Chooser { caller, random: Random(seed), taste };
                chooser.prepare();
                let before = if seed % 2 == 1 { 0 } else { chooser.random.below(500) };
                chooser.run(before);
                begin(chooser.caller);
                chooser.run(calls);
            }
            Calls::Deep => {
                let mut chooser = Deep { caller, random: Random(seed) };
                // Half of the runs begin with an empty volume.
                let is_empty = seed % 2 == 1;
                if is_empty {
                    begin(chooser.caller);
                }
                chooser.prepare();
                if !is_empty {
                    begin(chooser.caller);
                }
                chooser.run(calls);
            }
            Calls::Sequences => {
                ace::prepare(caller);
                begin(caller);
                ace::run(caller, &ace::sequence(usize::try_from(seed).unwrap()))?;
            }
        }
        Some(())
    })
}

/// Records the calls that `make` makes on a volume. It says when the run begins: what it did before is there, and
/// promised.
pub(crate) fn record_on(
    workload: &Workload,
    base: MemoryDevice,
    seed: u64,
    make: impl FnOnce(&mut Caller<'_>, &dyn Fn(&mut Caller<'_>)) -> Option<()>,
) -> Option<Run> {
    let recorder = Arc::new(Recorder::new(Arc::new(copy(&base))));
    let volume = Volume::open(recorder.clone(), &workload.options()).unwrap();
    let mut caller = Caller::new(&volume, &recorder, workload);
    let begin = |caller: &mut Caller<'_>| {
        caller.begin_here();
        States::apply(&base, recorder.take());
        caller.sync();
    };
    make(&mut caller, &begin)?;
    let Caller { history, inodes, .. } = caller;
    volume.release_all();
    volume.close().unwrap();
    let events = apart(workload, recorder.take());
    Some(Run { workload: *workload, seed, base, events, history, inodes })
}

/// Soft updates count on blocks that are written whole. Neighbours are written at once, but a crash may come between
/// them: they are taken apart.
fn apart(workload: &Workload, events: Vec<Event>) -> Vec<Event> {
    if !workload.order.is_phased() {
        return events;
    }
    let size = u64::from(workload.shape.block_size);
    let apart = |event| match event {
        Event::Write { offset, data } => {
            let mut parts = Vec::new();
            let mut at = 0;
            while at < data.len() {
                let place = offset + at as u64;
                let len = usize::try_from(size - place % size).unwrap().min(data.len() - at);
                parts.push(Event::Write { offset: place, data: Arc::from(&data[at..at + len]) });
                at += len;
            }
            parts
        }
        other => vec![other],
    };
    events.into_iter().flat_map(apart).collect()
}
