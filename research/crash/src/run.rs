//! Recorded runs, and the meaning of their marks.
//!
//! Owns the words that recording, states and judges share. Excludes how runs are made (`record`, `runs`) and what a
//! crash leaves of them (`states`).

use std::collections::BTreeMap;

use platfs::device::{Device, Event, MemoryDevice};
use platfs::ondisk::units::InodeNumber;

use crate::model::Model;
use crate::workload::Workload;

/// A recorded run.
pub(crate) struct Run {
    pub(crate) workload: Workload,
    pub(crate) seed: u64,
    /// The device at the beginning.
    pub(crate) base: MemoryDevice,
    /// Writes, flushes and marks since.
    pub(crate) events: Vec<Event>,
    /// The model after each call.
    pub(crate) history: Vec<Model>,
    /// The inode of each file and directory of the models.
    pub(crate) inodes: BTreeMap<u32, InodeNumber>,
}

/// A mark among the events of a run. Calls are numbered as `Run::history` is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// A call begins.
    Started(u64),
    /// All calls up to this one are promised, with the bytes of all files.
    Promised(u64),
    /// All calls up to this one are promised, but of the bytes that may wait in memory only those of one file.
    PromisedOf { file: u32, call: u64 },
    /// The bytes of one file are promised as all calls up to this one leave them, and nothing else.
    PromisedBytes { file: u32, call: u64 },
}

/// Bits of a mark's word: a promise; a promise about one file, whose number stands above the call's; about its bytes.
const PROMISED: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 62;
const OF_BYTES: u64 = 1 << 61;

impl Mark {
    /// The word that a recorder keeps.
    pub(crate) fn word(self) -> u64 {
        match self {
            Mark::Started(call) => call,
            Mark::Promised(call) => PROMISED | call,
            Mark::PromisedOf { file, call } => PROMISED | OF_FILE | u64::from(file) << 32 | call,
            Mark::PromisedBytes { file, call } => PROMISED | OF_BYTES | u64::from(file) << 32 | call,
        }
    }

    /// The mark of a word.
    pub(crate) fn of(word: u64) -> Mark {
        let call = word & u64::from(u32::MAX);
        let file = u32::try_from((word & !(PROMISED | OF_FILE | OF_BYTES)) >> 32).unwrap();
        match (word & PROMISED != 0, word & OF_FILE != 0, word & OF_BYTES != 0) {
            (false, _, _) => Mark::Started(word),
            (true, false, false) => Mark::Promised(call),
            (true, true, _) => Mark::PromisedOf { file, call },
            (true, false, true) => Mark::PromisedBytes { file, call },
        }
    }
}

/// All that a device holds.
pub(crate) fn image_of(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// A device that holds the same.
pub(crate) fn copy(device: &dyn Device) -> MemoryDevice {
    MemoryDevice::from_bytes(&image_of(device))
}

/// Makes all recorded writes on a device.
pub(crate) fn apply(device: &MemoryDevice, events: Vec<Event>) {
    for event in events {
        if let Event::Write { offset, data } = event {
            device.write_at(offset, &data).unwrap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Mark;

    #[test]
    fn marks_are_read_as_they_are_written() {
        for mark in [
            Mark::Started(7),
            Mark::Promised(0),
            Mark::Promised(u64::from(u32::MAX)),
            Mark::PromisedOf { file: 0, call: 9 },
            Mark::PromisedOf { file: 1 << 16 | 12, call: 300 },
            Mark::PromisedBytes { file: 1 << 16 | 12, call: 300 },
        ] {
            assert_eq!(Mark::of(mark.word()), mark);
        }
    }
}
