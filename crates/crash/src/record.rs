//! Recording runs.

use std::sync::Arc;

use platfs::Volume;
use platfs::device::{Device, Event, MemoryDevice, Recorder};
use testkit::random::Random;

use crate::ace;
use crate::calls::Workload;
use crate::kinds::Kind;
use crate::model::Model;
use crate::random::Chooser;
use crate::states::States;

/// What was recorded of a run.
pub struct Run {
    pub base: MemoryDevice,
    pub events: Vec<Event>,
    pub history: Vec<Model>,
}

pub fn copy(device: &MemoryDevice) -> MemoryDevice {
    let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    MemoryDevice::from_bytes(&bytes)
}

/// Records random calls: on a new volume, or behind others, which decide where in the log it begins.
pub fn record(kind: &Kind, seed: u64, calls: u64) -> Run {
    let base = kind.made();
    let recorder = Arc::new(Recorder::new(Arc::new(copy(&base))));
    let volume = Volume::open(recorder.clone(), &kind.options()).unwrap();
    let mut workload = Workload::new(&volume, &recorder, kind.delay > 0);
    let mut chooser = Chooser { workload: &mut workload, random: Random(seed), taste: kind.taste };
    chooser.prepare();
    let before = if seed % 2 == 1 { 0 } else { chooser.random.below(500) };
    chooser.run(before);
    chooser.workload.begin_here();
    States::apply(&base, recorder.take());
    chooser.workload.sync();
    chooser.run(calls);
    let history = workload.history;
    volume.release_all();
    volume.close().unwrap();
    Run { base, events: recorder.take(), history }
}

/// A volume with what the sequences of calls are about.
pub fn set_up(kind: &Kind) -> (MemoryDevice, Model) {
    let device = Arc::new(kind.made());
    let recorder = Arc::new(Recorder::new(device.clone()));
    let volume = Volume::open(recorder.clone(), &kind.options()).unwrap();
    let mut workload = Workload::new(&volume, &recorder, false);
    ace::prepare(&mut workload);
    let model = workload.model;
    volume.close().unwrap();
    (copy(&device), model)
}

/// Records a sequence of calls; `None` if one of them can't be made.
pub fn record_sequence(
    kind: &Kind,
    (base, model): &(MemoryDevice, Model),
    calls: &[(usize, usize)],
) -> Option<Run> {
    let recorder = Arc::new(Recorder::new(Arc::new(copy(base))));
    let volume = Volume::open(recorder.clone(), &kind.options()).unwrap();
    let mut workload = Workload::new(&volume, &recorder, kind.delay > 0);
    workload.resume(model);
    ace::run(&mut workload, calls)?;
    let history = workload.history;
    volume.close().unwrap();
    Some(Run { base: copy(base), events: recorder.take(), history })
}
