//! Named drives in virtual time: what a request costs, in whole nanoseconds, the same on every machine.
//!
//! [`Drive`] is the table of parameters, [`Mechanism`] what a disk or flash does with one request,
//! [`ModelDevice`] the device of a volume: a page cache, a buffer cache, a queue with an elevator, and the mechanism.
//! Nothing here knows files.

mod buffers;
mod device;
mod disk;
mod flash;
mod machine;
mod pages;
mod store;

pub(crate) use crate::traffic::Figures;
pub(crate) use device::ModelDevice;
pub(crate) use machine::ParameterSetting;

use disk::{Disk, Platters};
use flash::Flash;

/// Nanoseconds of a millisecond.
pub(crate) const MS: u64 = 1_000_000;

/// A request at the mechanism.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) write: bool,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// Mechanism that serves requests, one after the other.
pub(crate) trait Mechanism: Send {
    /// Serves a request that comes when the one before has ended, or later; when it has ended, and
    /// whether the arm was moved for it.
    fn serve(&mut self, start: u64, request: Request) -> (u64, bool);
}

/// Medium of a drive, with or without moving parts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Medium {
    Disk(Platters),
    /// Flash.
    Flash {
        /// Nanoseconds of a read and of a write, beside the transfer.
        latency: [u64; 2],
        /// Bytes a second of reads and writes.
        rate: [u64; 2],
    },
}

/// Condition that ends a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stable {
    /// Nothing: the drive says that a write is done once it has it, and the host takes that for stable.
    Taken,
    /// That the metadata since the flush before is on the medium: the host waits for its own writes.
    Own,
    /// That all that waits is on the medium.
    All,
}

/// A drive with the machine around it: parameters and where they are from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drive {
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) source: &'static str,
    pub(crate) medium: Medium,
    /// Processors: calls of more clients wait for one another.
    pub(crate) cpus: usize,
    /// Nanoseconds of a call beside what the device takes, and of each page that is copied.
    pub(crate) call: u64,
    pub(crate) page: u64,
    /// Bytes of the buffer cache, and how many bytes of files may wait to be written.
    pub(crate) cache: u64,
    pub(crate) waiting: u64,
    /// Largest request.
    pub(crate) request: u64,
    /// Bytes of a file that are on their way as soon as they lie together.
    pub(crate) together: u64,
    /// Condition that ends a flush.
    pub(crate) stable: Stable,
    /// Nanoseconds of each command on the way to the drive, where the host's queue doesn't join what files write
    /// side by side; the drive's cache does. 0 where the host joins them.
    pub(crate) command: u64,
    /// True if neighbours that wait become one request: the host joins them, or the drive's cache.
    pub(crate) joins: bool,
    /// Nanoseconds from the end of a request to the begin of the next, where the drive has no commands in hand: the
    /// next sector has passed the head by then.
    pub(crate) gap: u64,
    /// Bytes that a writer adds between looks at the limit of bytes that may wait.
    pub(crate) burst: u64,
    /// Writes that wait at the drive at most: among these it chooses the nearest.
    pub(crate) depth: u64,
    /// Bytes of writes that are on their way to the drive at most.
    pub(crate) running: u64,
    /// Nanoseconds that a program that unpacks an archive computes for each entry.
    pub(crate) unpack: u64,
    /// Nanoseconds for each free run that is looked at, under the lock of its group, and of each change of names, under that
    /// of its directory; 0: locks take no time.
    pub(crate) scan: u64,
    pub(crate) names: u64,
}

/// Requests that wait at a drive: Linux's default.
const QUEUE: u64 = 128;

/// Part of a volume that one client at a time changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lock {
    /// A group, whose lock is waited for by spinning; none: the index of all.
    Group(Option<u32>),
    /// A directory, whose lock is waited for asleep.
    Directory(u32),
}

/// The drives. The times of the host are orders of magnitude for its year, the same for every policy.
pub(crate) const DRIVES: &[Drive] = &[
    IDE_2000,
    Drive {
        name: "scsi-2004",
        summary: "10,000 rpm SCSI disk of 32 GB, about 20 MB/s, 1 GiB of memory",
        source: "S0's machine is not named; seek times as in data sheets of 10,000 rpm disks of 2000 to 2004, rate fitted to its single dd, memory to its dbench, which on ext3 is as fast with 32 clients as with 16; writers look at the limit every 8 pages to 4 MiB (ratelimit_pages in mm/page-writeback.c of Linux 2.6), set to 1 MiB from ext3's tiobench with 4 threads",
        medium: Medium::Disk(Platters {
            rpm: 10_000,
            seek: [600_000, 5_200_000, 11 * MS],
            rate: [20_000_000, 14_000_000],
            tracks: 40_000,
            sides: 8,
            buffer: 1 << 20,
        }),
        cpus: 2,
        call: 8_000,
        page: 6_000,
        cache: 768 << 20,
        waiting: 64 << 20,
        request: 256 << 10,
        together: u64::MAX,
        stable: Stable::All,
        command: 0,
        joins: true,
        gap: 0,
        burst: 1 << 20,
        ..IDE_2000
    },
    SATA_2010,
    Drive {
        name: "sata-2010-bsd",
        summary: "the same disk and memory under FreeBSD 8: written behind, the disk's own cache counts as stable",
        source: "as sata-2010; vfs.write_behind joins up to 128 KiB of a file (vfs_cluster.c), hw.ata.wc=1 is the default (ata(4)), ext2fs sends no cache flushes, and bioq_disksort (subr_disk.c) sorts without joining; a command takes some 70 us on a controller that has one at a time; of 2 GiB 13,771 buffers, a quarter and 20 of which may be changed before they are written, a block of 4 KiB each (nbuf and hidirtybuffers in vfs_bio.c of FreeBSD 8), and 1 MiB is on its way at most (hirunningspace there)",
        request: 128 << 10,
        together: 128 << 10,
        stable: Stable::Taken,
        command: 70_000,
        waiting: 3_462 * (4 << 10),
        depth: u64::MAX,
        running: 1 << 20,
        ..SATA_2010
    },
    Drive {
        name: "note-2008-bsd",
        summary: "2.5 inch disk of 5,400 rpm in a notebook with one core of 1.7 GHz and 1.25 GiB, under FreeBSD 8",
        source: "S4's notebook; its disk is not named: data sheet of the Hitachi Travelstar 5K120 (2006), 11 ms average seek, some 50 MB/s at most; the host as sata-2010-bsd, a processor half as fast, 8,856 buffers by the same rule",
        medium: Medium::Disk(Platters {
            rpm: 5_400,
            seek: [1_500_000, 11 * MS, 20 * MS],
            rate: [50_000_000, 26_000_000],
            tracks: 100_000,
            sides: 1,
            buffer: 2 << 20,
        }),
        cpus: 1,
        call: 6_000,
        page: 3_000,
        cache: 640 << 20,
        waiting: 2_234 * (4 << 10),
        request: 128 << 10,
        together: 128 << 10,
        stable: Stable::Taken,
        command: 70_000,
        depth: u64::MAX,
        running: 1 << 20,
        ..SATA_2010
    },
    Drive {
        name: "ide-obsd-8",
        summary: "IDE disk that has no commands in hand, under OpenBSD of 2000, 45 MiB of buffers",
        source: "S2's first machine, by the message of FreeBSD's commit of the rule (2001-04-10): a Celeron of 450 MHz with 128 MB, BUFCACHEPERCENT=35, the disk is not named: the mechanism of ide-2000; \
                 disksort() sorts without joining, a quarter of the buffers may be changed before the cleaner writes (hidirtypages in vfs_bio.c up to 2004); that a write waits for the platter follows from its own 8.7 ms a synchronous write (472 s, normal, the new rule); tar computes as on ide-obsd-40, by the clock of 450 for 600 MHz",
        cache: 45 << 20,
        waiting: (45 << 20) / 4,
        stable: Stable::Own,
        joins: false,
        gap: 300_000,
        unpack: 1_133_000,
        ..IDE_2000
    },
    Drive {
        name: "ide-obsd-40",
        summary: "IBM DTLA-307045 with its write cache, under OpenBSD of 2000, 64 MiB of buffers",
        source: "S2's second machine, by the same message: a Pentium III of 600 MHz with 128 MB, BUFCACHEPERCENT=50, IBM Deskstar 75GXP; commands go one after the other, 0.3 ms each, set from one cell, the new rule's untar with synchronous metadata (81 s); \
                 what tar itself computes, 0.85 ms an entry, from another, the new rule's untar with asynchronous metadata (25.7 s)",
        cache: 64 << 20,
        waiting: (64 << 20) / 4,
        command: 300_000,
        unpack: 850_000,
        ..IDE_2000
    },
    Drive {
        name: "sata-ssd",
        summary: "SATA SSD",
        source: "data sheet of the Samsung 860 EVO (2018): 550 and 520 MB/s, about 10,000 reads a second one at a time",
        medium: Medium::Flash { latency: [95_000, 28_000], rate: [550_000_000, 520_000_000] },
        cpus: 4,
        call: 2_000,
        page: 400,
        cache: 2 << 30,
        waiting: 256 << 20,
        request: 1 << 20,
        together: u64::MAX,
        stable: Stable::All,
        command: 0,
        joins: true,
        gap: 0,
        burst: 0,
        ..IDE_2000
    },
    Drive {
        name: "nvme",
        summary: "NVMe SSD",
        source: "data sheet of the Samsung 970 EVO Plus (2019): 3,500 and 3,300 MB/s, 19,000 reads and 60,000 writes a second one at a time",
        medium: Medium::Flash { latency: [52_000, 16_000], rate: [3_500_000_000, 3_300_000_000] },
        cpus: 8,
        call: 2_000,
        page: 300,
        cache: 2 << 30,
        waiting: 256 << 20,
        request: 1 << 20,
        together: u64::MAX,
        stable: Stable::All,
        command: 0,
        joins: true,
        gap: 0,
        burst: 0,
        ..IDE_2000
    },
];

const IDE_2000: Drive = Drive {
    name: "ide-2000",
    summary: "7,200 rpm IDE disk of 2000, 128 MiB of memory",
    source: "data sheet of the IBM Deskstar 75GXP (2000): 8.5 ms average seek, 1.2 ms to the next track, 37 MB/s at most; its write buffer is on, which FreeBSD 4 and Linux 2.4 never had emptied; \
             buffers take a quarter of the memory and are written from a quarter of them on, as in FreeBSD 4",
    medium: Medium::Disk(Platters {
        rpm: 7_200,
        seek: [1_200_000, 8_500_000, 15 * MS],
        rate: [37_000_000, 20_000_000],
        tracks: 27_000,
        sides: 10,
        buffer: 512 << 10,
    }),
    cpus: 1,
    call: 30_000,
    page: 25_000,
    cache: 32 << 20,
    waiting: 16 << 20,
    request: 128 << 10,
    together: u64::MAX,
    stable: Stable::Taken,
    command: 0,
    joins: true,
    gap: 0,
    burst: 0,
    depth: QUEUE,
    running: u64::MAX,
    unpack: 0,
    scan: 0,
    names: 0,
};

const SATA_2010: Drive = Drive {
    name: "sata-2010",
    summary: "7,200 rpm SATA disk of 250 GB, 2010, 2 GiB of memory",
    source: "data sheet of the Seagate Barracuda 7200.12 ST3250318AS (2009): 8.5 ms average seek, 125 MB/s at most",
    medium: Medium::Disk(Platters {
        rpm: 7_200,
        seek: [MS, 8_500_000, 18 * MS],
        rate: [125_000_000, 60_000_000],
        tracks: 150_000,
        sides: 1,
        buffer: 2 << 20,
    }),
    cpus: 2,
    call: 3_000,
    page: 1_500,
    cache: 1 << 30,
    waiting: 128 << 20,
    request: 512 << 10,
    together: u64::MAX,
    stable: Stable::All,
    command: 0,
    joins: true,
    gap: 0,
    burst: 0,
    ..IDE_2000
};

impl Drive {
    /// The drive of this name.
    ///
    /// # Errors
    /// There is none; the message names all.
    pub(crate) fn named(name: &str) -> Result<&'static Drive, String> {
        let names = || DRIVES.iter().map(|drive| drive.name).collect::<Vec<_>>().join(", ");
        let found = DRIVES.iter().find(|drive| drive.name == name);
        found.ok_or_else(|| format!("no drive is called {name}; there are {}", names()))
    }

    /// Its mechanism, for a device of `size` bytes.
    fn mechanism(&self, size: u64) -> Box<dyn Mechanism> {
        match self.medium {
            Medium::Disk(platters) => Box::new(Disk::new(size, platters)),
            Medium::Flash { latency, rate } => Box::new(Flash { latency, rate }),
        }
    }
}

/// Nanoseconds that `bytes` take at a rate.
fn transfer(bytes: u64, rate: u64) -> u64 {
    u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))).unwrap_or(u64::MAX)
}
