//! A disk: an arm, platters that turn, and a buffer that reads on by itself.
//!
//! Model of Ruemmler and Wilkes, "An introduction to disk drive modeling" (1994): a seek takes a time
//! that grows with the root of a short distance and linearly with a long one; then the platter turns to
//! the first sector; sectors are laid out so that a transfer goes on over the ends of tracks (skew), which
//! is part of the rate. Outer tracks hold more. No bad sectors, no thermal recalibration.

use super::{Mechanism, Request, transfer};

/// Zones of tracks with the same number of sectors.
const ZONES: u64 = 16;

/// Geometry and speeds of a disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Platters {
    /// Turns in a minute.
    pub(crate) rpm: u32,
    /// Nanoseconds to the next track, over a third of the tracks, and over all.
    pub(crate) seek: [u64; 3],
    /// Bytes a second on the outermost and the innermost track.
    pub(crate) rate: [u64; 2],
    /// Tracks on one side of a platter, and sides.
    pub(crate) tracks: u32,
    pub(crate) sides: u32,
    /// Bytes that are read ahead of need into the drive's own memory.
    pub(crate) buffer: u64,
}

/// A disk of any size with the tracks of its family.
pub(crate) struct Disk {
    size: u64,
    /// Of the drive: the volume is on its outer tracks.
    capacity: u64,
    seek: [u64; 3],
    rate: [u64; 2],
    /// One turn.
    turn: u64,
    cylinders: u64,
    buffer: u64,
    /// Cylinder of the arm.
    arm: u64,
    /// Byte behind the last one that was transferred, and when that was.
    last: (u64, u64),
    /// Range being read ahead: from, to at most, since when.
    ahead: Option<(u64, u64, u64)>,
}

impl Disk {
    /// A disk on which a volume of `size` bytes lies.
    pub(crate) fn new(size: u64, platters: Platters) -> Self {
        let Platters { rpm, seek, rate, tracks, sides, buffer } = platters;
        let turn = 60_000_000_000 / u64::from(rpm.max(1));
        // The volume's tracks are those that its size takes at the mean rate; the drive may have more.
        let track = (rate[0] + rate[1]) / 2 * turn / 1_000_000_000 * u64::from(sides);
        let cylinders = (size / track.max(1)).clamp(1, u64::from(tracks));
        let capacity = size.max(track * u64::from(tracks));
        let seek = scaled(seek, cylinders, u64::from(tracks));
        Disk { size, capacity, seek, rate, turn, cylinders, buffer, arm: 0, last: (0, 0), ahead: None }
    }

    fn cylinder(&self, offset: u64) -> u64 {
        share(offset, self.size, self.cylinders).min(self.cylinders - 1)
    }

    /// The zone of a byte: where it begins, and its rate.
    fn zone(&self, offset: u64) -> (u64, u64) {
        let zone = share(offset, self.capacity, ZONES).min(ZONES - 1);
        (
            share(zone, ZONES, self.capacity),
            self.rate[0] - share(zone, ZONES - 1, self.rate[0] - self.rate[1]),
        )
    }

    fn rate_at(&self, offset: u64) -> u64 {
        self.zone(offset).1
    }

    /// Where a byte passes the head, as a time within a turn.
    fn angle(&self, offset: u64) -> u64 {
        // Skew makes successive bytes pass one after the other: the angle is the time since the zone began.
        let (start, rate) = self.zone(offset);
        transfer(offset - start, rate) % self.turn
    }

    fn seek_time(&self, distance: u64) -> u64 {
        if distance == 0 {
            return 0;
        }
        let third = (self.cylinders / 3).max(1);
        let [next, average, full] = self.seek;
        if distance <= third {
            next + root_share(distance, third, average - next)
        } else {
            average + share(distance - third, self.cylinders - third, full - average)
        }
    }

    /// When the bytes of a read are in the drive's buffer, if they come to be there without the arm.
    fn buffered(&self, start: u64, request: Request) -> Option<u64> {
        let (from, to, since) = self.ahead?;
        let end = request.offset + request.len;
        if request.write || request.offset < from || end > to {
            return None;
        }
        Some(start.max(since + transfer(end - from, self.rate_at(from))))
    }
}

/// Seek times of a volume that takes the first cylinders only.
fn scaled([next, average, full]: [u64; 3], cylinders: u64, all: u64) -> [u64; 3] {
    let third = (all / 3).max(1);
    let time = |distance: u64| {
        if distance <= third {
            next + root_share(distance, third, average - next)
        } else {
            average + share(distance - third, all - third, full - average)
        }
    };
    [next, time((cylinders / 3).max(1)), time(cylinders)]
}

/// `part / whole` of `amount`.
fn share(part: u64, whole: u64, amount: u64) -> u64 {
    let product = u128::from(part.min(whole)) * u128::from(amount);
    u64::try_from(product / u128::from(whole.max(1))).unwrap_or(amount)
}

/// The root of `part / whole`, of `amount`.
fn root_share(part: u64, whole: u64, amount: u64) -> u64 {
    // In whole numbers, so that every machine finds the same.
    let square = u128::from(part.min(whole)) * (1 << 40) / u128::from(whole.max(1));
    share(u64::try_from(square.isqrt()).unwrap_or(1 << 20), 1 << 20, amount)
}

impl Mechanism for Disk {
    fn serve(&mut self, start: u64, request: Request) -> (u64, bool) {
        let end_byte = request.offset + request.len;
        let rate = self.rate_at(request.offset);
        let cylinder = self.cylinder(request.offset);
        let (end, moved) = if let Some(ready) = self.buffered(start, request) {
            (ready, false)
        } else if self.last == (request.offset, start) && self.arm == cylinder {
            // The next bytes, asked for in time.
            (start + transfer(request.len, rate), false)
        } else {
            let there = start + self.seek_time(cylinder.abs_diff(self.arm));
            let turned = (self.angle(request.offset) + self.turn - there % self.turn) % self.turn;
            (there + turned + transfer(request.len, rate), cylinder != self.arm)
        };
        self.ahead = match self.ahead {
            _ if request.write => None,
            // What was read ahead goes on from where it is.
            Some((from, to, since)) if self.buffered(start, request).is_some() => {
                Some((from, to.max((end_byte + self.buffer).min(self.size)), since))
            }
            _ => {
                let from = request.offset;
                let since = end.saturating_sub(transfer(request.len, rate));
                Some((from, (end_byte + self.buffer).min(self.size), since))
            }
        };
        self.arm = self.cylinder(end_byte.saturating_sub(1));
        self.last = (end_byte, end);
        (end, moved)
    }
}

#[cfg(test)]
mod tests {
    use super::super::MS;
    use super::*;

    fn disk() -> Disk {
        let (seek, rate) = ([MS, 8 * MS, 16 * MS], [40_000_000, 20_000_000]);
        let platters = Platters { rpm: 7_200, seek, rate, tracks: 30_000, sides: 10, buffer: 1 << 19 };
        Disk::new(40_000_000_000, platters)
    }

    fn read(offset: u64, len: u64) -> Request {
        Request { write: false, offset, len }
    }

    fn write(offset: u64, len: u64) -> Request {
        Request { write: true, offset, len }
    }

    #[test]
    fn requests_in_order_run_at_the_rate_of_their_zone() {
        // The volume takes half of the drive.
        for (start, rate) in [(0, 40.0), (39_000_000_000, 29.33)] {
            for make in [read, write] {
                let mut disk = disk();
                let mut now = disk.serve(0, make(start, 65_536)).0;
                let begun = now;
                for i in 1..=100 {
                    now = disk.serve(now, make(start + i * 65_536, 65_536)).0;
                }
                let megabytes = 6_553_600.0 / 1e6 / (crate::numbers::float(now - begun) / 1e9);
                assert!((megabytes / rate - 1.0).abs() < 0.02, "{megabytes} at {start}");
            }
        }
    }

    #[test]
    fn random_requests_take_a_seek_and_half_a_turn_each() {
        let mut disk = disk();
        let mut numbers = crate::numbers::Numbers::new(1);
        let (mut now, mut moved) = (0, 0);
        for _ in 0..1000 {
            let (end, arm) = disk.serve(now, write(numbers.below(39_000_000_000) / 512 * 512, 4096));
            (now, moved) = (end, moved + u64::from(arm));
        }
        // The volume takes half of the tracks, so its mean seek is below the drive's.
        let mean = now / 1000;
        assert!(moved > 990 && mean > 4_167_000 + 2 * MS && mean < 4_167_000 + 8 * MS, "{mean}");
    }

    #[test]
    fn a_write_that_misses_its_turn_waits_for_the_next() {
        let mut disk = disk();
        let first = disk.serve(0, write(1 << 20, 4096)).0;
        let late = disk.serve(first + 1000, write((1 << 20) + 4096, 4096)).0;
        assert!(late - first > 8 * MS, "{}", late - first);
    }

    #[test]
    fn what_is_read_ahead_needs_no_turn() {
        let mut disk = disk();
        let first = disk.serve(0, read(1 << 20, 4096)).0;
        let second = disk.serve(first + 5 * MS, read((1 << 20) + 65_536, 4096));
        assert_eq!(second, (first + 5 * MS, false));
        assert!(disk.serve(second.0, read(1 << 30, 4096)).1);
    }
}
