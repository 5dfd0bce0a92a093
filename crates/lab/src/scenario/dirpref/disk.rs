//! An IDE disk of the year 2000: where the arm is, and what each request costs in time.
//!
//! The drive: 7,200 turns a minute, mean seek 8.5 ms, to the next cylinder 1.2 ms, 37 MB/s, 45 GB
//! on six surfaces, a buffer of 2 MB. A turn is 8.33 ms, so a track holds 308 kB or 300 sectors of
//! 1 KiB (the unit of addresses here), a cylinder 1,800, the drive 24,400 cylinders. The time of a seek is
//! a + b * sqrt(d) over d cylinders; the mean of sqrt(d) over random pairs is 8/15 of the root of
//! the cylinders, which gives b = (8.5 - 1.2) / (8/15 * sqrt(24,400) - 1) = 0.0887 and a = 1.2 - b.
//!
//! A request that is not ahead on the way costs the seek, half a turn and the transfer. One that
//! is so near ahead that waiting for it is shorter than that costs the time of what lies between:
//! reads because the drive reads on into its buffer, queued writes because the drive takes them
//! before it arrives there. A synchronous write always waits: its command arrives when the place
//! has gone by. What was read over stays in the drive's buffer and costs its transfer only.
//! Zones, head switches, bad sectors and the time of commands are left out.

use crate::numbers::float;
use std::collections::{BTreeMap, VecDeque};

/// Kibibytes of a cylinder.
pub(super) const CYLINDER: u64 = 1_800;
/// A movement of the arm over more cylinders than this is a seek. Tracks of a cylinder need no
/// movement, and the next cylinder is a step of the sequence.
const NEAR: u64 = 1;
const HALF_TURN_MS: f64 = 4.17;
const UNIT_MS: f64 = 1.024 / 37.0;
const SEEK_ROOT_MS: f64 = 0.0887;
const SEEK_BASE_MS: f64 = 1.2 - SEEK_ROOT_MS;
/// Kibibytes of the drive's buffer.
const BUFFER: u64 = 2_048;

/// The disk and what was asked of it.
#[derive(Default)]
pub(super) struct Disk {
    /// Behind the last place that passed.
    head: u64,
    /// What the buffer holds, oldest first: from, to.
    buffer: VecDeque<(u64, u64)>,
    pub(super) milliseconds: f64,
    /// Movements of the arm over more than [`NEAR`] cylinders.
    pub(super) seeks: u64,
    /// Cylinders the arm travelled.
    pub(super) distance: u64,
    pub(super) requests: u64,
}

impl Disk {
    /// Reads `len` from `start` on.
    pub(super) fn read(&mut self, start: u64, len: u64) {
        self.requests += 1;
        let end = start + len;
        if self.buffer.iter().any(|(from, to)| *from <= start && end <= *to) {
            self.milliseconds += float(len) * UNIT_MS;
            return;
        }
        let behind = self.head;
        if self.approach(start, len, true) {
            match self.buffer.back_mut() {
                Some(last) if last.1 == behind => last.1 = end,
                _ => self.buffer.push_back((behind, end)),
            }
        } else {
            self.buffer.push_back((start, end));
        }
        let held = |buffer: &VecDeque<(u64, u64)>| buffer.iter().map(|(from, to)| to - from).sum::<u64>();
        while held(&self.buffer) > BUFFER {
            self.buffer.pop_front();
        }
    }

    /// Writes at once.
    pub(super) fn write(&mut self, start: u64, len: u64) {
        self.requests += 1;
        self.approach(start, len, false);
    }

    /// Writes in the order of an elevator: upwards from the arm, then upwards from the lowest. The
    /// map holds lengths by place.
    pub(super) fn sweep(&mut self, pieces: &BTreeMap<u64, u64>) {
        let arm = self.head;
        for (start, len) in pieces.range(arm..).chain(pieces.range(..arm)) {
            self.requests += 1;
            self.approach(*start, *len, true);
        }
    }

    /// Brings the head to a place and past it; whether it came there by waiting.
    fn approach(&mut self, start: u64, len: u64, may_pass: bool) -> bool {
        let cylinders = (self.head / CYLINDER).abs_diff(start / CYLINDER);
        let arm = if cylinders == 0 { 0.0 } else { SEEK_BASE_MS + SEEK_ROOT_MS * float(cylinders).sqrt() };
        let ahead = start.checked_sub(self.head).map(|gap| float(gap) * UNIT_MS);
        let wait = ahead.filter(|wait| may_pass && *wait < HALF_TURN_MS);
        // Going on into the next cylinder costs its step, too.
        self.milliseconds += arm + wait.unwrap_or(HALF_TURN_MS) + float(len) * UNIT_MS;
        self.seeks += u64::from(cylinders > NEAR);
        self.distance += cylinders;
        self.head = start + len;
        wait.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_cost_what_the_drive_states() {
        let mut disk = Disk::default();
        let mut cost = |work: &dyn Fn(&mut Disk)| {
            let before = disk.milliseconds;
            work(&mut disk);
            disk.milliseconds - before
        };
        let close = |a: f64, b: f64| (a - b).abs() < 0.01;
        assert!(close(cost(&|disk| disk.write(0, 4)), 4.28));
        assert!(close(cost(&|disk| disk.write(CYLINDER, 4)), 1.2 + 4.28));
        assert!(close(cost(&|disk| disk.write(24_400 * CYLINDER, 4)), 14.96 + 4.28));
        assert!(close(cost(&|disk| disk.read(24_400 * CYLINDER + 14, 1)), 11.0 * UNIT_MS));
        assert!(close(cost(&|disk| disk.read(24_400 * CYLINDER + 5, 1)), UNIT_MS));
        assert_eq!((disk.seeks, disk.distance), (1, 24_400));
    }

    #[test]
    fn a_random_seek_takes_the_mean_time() {
        let mut numbers = crate::numbers::Numbers::new(1);
        let mut disk = Disk::default();
        for _ in 0..20_000 {
            disk.write(numbers.below(24_400 * CYLINDER), 1);
        }
        let mean = disk.milliseconds / 20_000.0 - HALF_TURN_MS - UNIT_MS;
        assert!((mean - 8.5).abs() < 0.1, "{mean}");
    }
}
