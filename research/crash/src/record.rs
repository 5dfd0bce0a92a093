//! Recording a run: calls are made on a volume while its device keeps writes, flushes and marks.
//!
//! Excludes which calls are made (`runs`).

use std::sync::Arc;

use platfs::Volume;
use platfs::device::{Event, MemoryDevice, Recorder};

use crate::calls::Caller;
use crate::run::{Run, apply, copy};
use crate::workload::Workload;

/// Records the calls that `make` makes on a volume. It says when the run begins: what it did before is there, and
/// promised. `None` if a call can't be made.
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
        apply(&base, recorder.take());
        // Behind what was taken: the first mark of the run promises what is there.
        caller.sync();
    };
    make(&mut caller, &begin)?;
    let Caller { history, inodes, .. } = caller;
    volume.uses().release_all();
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
