//! Recording: an event sink that turns places on the volume into places in files.

use super::{Ask, Goal, Name, Record, put_head, put_record};
use crate::events::{Event, EventSink};
use crate::layout::Layout;
use crate::request::{Kind, Request};
use ondisk::units::ClusterRun;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Bytes that are collected before they are handed on.
const CHUNK: usize = 64 << 10;

/// Extents recorded so far, and bytes not handed on yet.
struct State<W> {
    write: W,
    buffer: Vec<u8>,
    /// Run of each place that is known: start to (length, name, place in it).
    places: BTreeMap<u64, (u64, Name, u64)>,
    /// Those runs by name: (name, place) to length.
    files: BTreeMap<(Name, u64), u64>,
    grants: u64,
    unknown: u64,
}

/// Records what an engine is asked, and hands the trace on in pieces.
pub struct Recorder<W> {
    state: Mutex<State<W>>,
}

impl<W: FnMut(&[u8]) + Send> Recorder<W> {
    /// Begins a trace of an engine with this geometry; `write` takes its bytes in order.
    pub fn new(layout: &Layout, write: W) -> Self {
        let mut buffer = Vec::new();
        put_head(&mut buffer, layout);
        let (places, files) = (BTreeMap::new(), BTreeMap::new());
        Recorder { state: Mutex::new(State { write, buffer, places, files, grants: 0, unknown: 0 }) }
    }

    /// Hands on what was collected; returns how many clusters were freed or used as a goal which the
    /// trace does not know, because they were in use before it began.
    pub fn flush(&self) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.hand_on();
        state.unknown
    }
}

impl<W: FnMut(&[u8]) + Send> EventSink for Recorder<W> {
    fn event(&self, event: &Event) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.take(event);
        if state.buffer.len() >= CHUNK {
            state.hand_on();
        }
    }
}

impl<W: FnMut(&[u8])> State<W> {
    fn hand_on(&mut self) {
        (self.write)(&self.buffer);
        self.buffer.clear();
    }

    fn put(&mut self, record: Record) {
        put_record(&mut self.buffer, &record);
    }

    fn take(&mut self, event: &Event) {
        match *event {
            Event::Described { group, free, .. } => self.put(Record::Group { group: group.0, free }),
            Event::Allocated { request, run, promised } => {
                let (name, at) = self.name(&request, u64::from(run.count));
                let ask = self.ask(&request, name, at, promised);
                self.put(Record::Allocate(ask));
                self.map(name, at, run);
            }
            Event::Refused { request, refusal: crate::Refusal::NoSpace } => {
                let (name, at) = self.name(&request, u64::from(request.want));
                let ask = self.ask(&request, name, at, false);
                self.put(Record::Refused(ask));
            }
            Event::TakenExact(run) => {
                let count = run.count;
                let request = Request { min: count, ..Request::data(run.start, count) };
                let (name, at) = self.name(&request, u64::from(count));
                let ask = self.ask(&request, name, at, false);
                self.put(Record::Allocate(ask));
                self.map(name, at, run);
            }
            Event::Freed(run) => self.free(run),
            Event::Closed(owner) => self.put(Record::Close(owner)),
            Event::Truncated(owner) => self.put(Record::Truncate(owner)),
            Event::Promised(count) => self.put(Record::Promise(count)),
            Event::PromiseEnded(count) => self.put(Record::EndPromise(count)),
            Event::ClaimsReleased => self.put(Record::Settle),
            _ => {}
        }
    }

    /// Name that a request allocates to: its file's, or a new one where the request names no file or
    /// a part of the file that is there already.
    fn name(&mut self, request: &Request, count: u64) -> (Name, u64) {
        let file = match request.kind {
            Kind::Data => Name::File(request.owner),
            Kind::Metadata => Name::Metadata(request.owner),
        };
        let end = request.offset.saturating_add(count);
        let before = self.files.range(..(file, end)).next_back();
        let taken = before.is_some_and(|((name, at), len)| *name == file && at + len > request.offset);
        if request.owner != 0 && !taken && end < u64::MAX {
            return (file, request.offset);
        }
        self.grants += 1;
        (Name::Grant(self.grants), 0)
    }

    fn ask(&mut self, request: &Request, name: Name, at: u64, promised: bool) -> Ask {
        Ask {
            name,
            at,
            goal: self.goal(request.goal.0),
            min: request.min,
            want: request.want,
            kind: request.kind,
            stream: request.stream,
            extends: request.extends,
            growing: request.growing,
            promised,
            owner: request.owner,
            offset: request.offset,
            size: request.size,
            directory: request.directory,
        }
    }

    /// A goal as what it lies behind, if that is known.
    fn goal(&self, goal: u64) -> Goal {
        let before = goal.checked_sub(1).and_then(|last| self.places.range(..=last).next_back());
        match before {
            Some((start, (len, name, at))) if start + len >= goal => {
                Goal::Behind(*name, at + (goal - 1 - start))
            }
            _ => Goal::At(goal),
        }
    }

    fn map(&mut self, name: Name, at: u64, run: ClusterRun) {
        let count = u64::from(run.count);
        self.places.insert(run.start.0, (count, name, at));
        self.files.insert((name, at), count);
    }

    /// Forgets a run, piece by piece, and records what it was.
    fn free(&mut self, run: ClusterRun) {
        let (mut at, end) = (run.start.0, run.end());
        while at < end {
            let found = self.places.range(..=at).next_back().map(|(start, place)| (*start, *place));
            let Some((start, (len, name, offset))) = found.filter(|(start, (len, ..))| start + len > at)
            else {
                let next = self.places.range(at..end).next().map_or(end, |(start, _)| *start);
                self.unknown += next - at;
                at = next;
                continue;
            };
            let upto = end.min(start + len);
            self.unmap(start);
            for (from, to) in [(start, at), (upto, start + len)] {
                if from < to {
                    let place = offset + (from - start);
                    self.places.insert(from, (to - from, name, place));
                    self.files.insert((name, place), to - from);
                }
            }
            self.put(Record::Free { name, at: offset + (at - start), count: upto - at });
            at = upto;
        }
    }

    fn unmap(&mut self, start: u64) {
        if let Some((_, name, at)) = self.places.remove(&start) {
            self.files.remove(&(name, at));
        }
    }
}
