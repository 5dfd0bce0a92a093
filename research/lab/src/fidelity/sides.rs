//! The two that are compared: the kernel's ext4 on a loop device, and the port on a copy of the image.
//!
//! Owns: how each carries out the calls, its counters, and where its files lie. Excludes the judgement.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use ondisk::inode::FileType;
use platfs::device::FileDevice;
use platfs::placement::{BlockPolicyKind, DirectoryPolicyKind};
use platfs::{InodeNumber, OpenOptions, State, Volume, Walk};

use super::volume::FILLER;
use crate::peers::{Counts, Mounted, SHARED, Tunables, WorkDir, counts, fresh, read_mb_stats, remove, tool};
use crate::system::{Client, Computer, Directory, Library, Op, System};

/// Bytes that may wait for their places in the port: more than any workload writes between two syncs.
const DELAY: u64 = 4 << 30;

/// A piece of a file: first file block, first block on disk, blocks.
pub(super) type Piece = [u64; 3];

/// Where the files of a volume lie, by path.
pub(super) type Files = BTreeMap<String, Vec<Piece>>;

/// Inode numbers of files and directories, by path.
pub(super) type Inodes = BTreeMap<String, u64>;

/// The outcome of the calls.
pub(super) struct Outcome {
    pub(super) counts: Counts,
    pub(super) files: Files,
    pub(super) inodes: Inodes,
}

fn perform(client: &mut dyn Client, calls: &[Op]) -> Result<(), String> {
    calls.iter().try_for_each(|call| client.perform(call).map(drop))
}

/// Counters of the calls alone.
fn since(before: &Counts, mut after: Counts) -> Counts {
    for (name, count) in &mut after {
        *count = count.saturating_sub(before.get(name).copied().unwrap_or(0));
    }
    after
}

/// By the kernel, on one processor, with all bitmaps read before; and the tunables that it chose.
pub(super) fn by_kernel(
    place: &WorkDir,
    delays: bool,
    calls: &[Op],
) -> Result<(Outcome, Tunables<'static>), String> {
    fresh(place)?;
    let delay = if delays { "delalloc,dioread_lock" } else { "nodelalloc" };
    let mounted = Mounted::kernel(place, "ext4", &format!("{delay},noinit_itable,commit=600"))?;
    let device = mounted.device().ok_or("the loop device is not known")?;
    let read = |path: String| fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"));
    let switch = format!("/sys/fs/ext4/{device}/mb_stats");
    fs::write(&switch, "1").map_err(|error| format!("{switch}: {error}"))?;
    read(format!("/proc/fs/ext4/{device}/mb_groups"))?;
    let stats = || read(format!("/proc/fs/ext4/{device}/mb_stats")).map(|text| read_mb_stats(&text));
    let before = stats()?;
    let _writeback = delays.then(WritebackPlace::on_one_processor).transpose()?;
    on_one_processor(|| {
        let directory = Directory::new(mounted.path());
        let mut client = directory.client();
        for part in calls.split_inclusive(|call| matches!(call, Op::SyncAll)) {
            perform(&mut *client, part)?;
            settle(&mounted.path()).map_err(|error| error.to_string())?;
        }
        Ok(())
    })?;
    let counts = since(&before, stats()?);
    let tunable = |name: &'static str| {
        let text = fs::read_to_string(format!("/sys/fs/ext4/{device}/{name}")).ok()?;
        Some((name, text.trim().parse().ok()?))
    };
    let streams = ("streams", possible_processors());
    let tunables = SHARED.into_iter().filter_map(tunable).chain([streams]).collect();
    mounted.end()?;
    let (files, inodes) = tree(&place.image())?;
    remove(&place.image())?;
    Ok((Outcome { counts, files, inodes }, tunables))
}

/// Places at which Linux begins files where nothing is delayed: the thread's number modulo this chooses one
/// (`ext4_inode_to_goal_block`). The port's first client has number 1.
const COLOURS: u64 = 16;

/// Runs something in a thread that stays on one processor, for the kernel keeps a pool for each, and that has the
/// number of the port's client, as far as it counts.
fn on_one_processor<T: Send>(work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    let mut work = Some(work);
    for _ in 0..100 * COLOURS {
        let attempt = || {
            let own = fs::read_link("/proc/thread-self").map_err(|error| error.to_string())?;
            let number = own.file_name().ok_or("a thread without a number")?;
            let colour =
                number.to_string_lossy().parse::<u64>().map_err(|error| error.to_string())? % COLOURS;
            let Some(work) = (colour == 1).then(|| work.take()).flatten() else { return Ok(None) };
            tool::run("taskset", ["-pc".as_ref(), "0".as_ref(), number])?;
            work().map(Some)
        };
        let done = std::thread::scope(|scope| scope.spawn(attempt).join());
        if let Some(done) = done.unwrap_or_else(|_| Err("the thread on one processor panicked".into()))? {
            return Ok(done);
        }
    }
    Err("no thread gets the number that is wanted".into())
}

/// Waits for the end of the commit before. A sync ends while the kernel still gives back what was freed
/// (`ext4_process_freed_data`); the next commit, which is one of nothing that counts, comes after that.
fn settle(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, fs::metadata(directory)?.permissions())?;
    File::open(directory)?.sync_all()
}

/// The processors on which the kernel writes back what was delayed: as it keeps a pool of small files for each, where they
/// lie depends on the processor. All file systems of the machine share them, so the choice ends with this value.
struct WritebackPlace {
    before: String,
}

/// The file with the mask of these processors, in hexadecimal digits.
const WRITEBACK: &str = "/sys/bus/workqueue/devices/writeback/cpumask";

impl WritebackPlace {
    fn on_one_processor() -> Result<Self, String> {
        let failure = |error: io::Error| format!("{WRITEBACK}: {error}");
        let before = fs::read_to_string(WRITEBACK).map_err(failure)?;
        fs::write(WRITEBACK, "1").map_err(failure)?;
        Ok(WritebackPlace { before })
    }
}

impl Drop for WritebackPlace {
    fn drop(&mut self) {
        if let Err(error) = fs::write(WRITEBACK, self.before.trim()) {
            eprintln!("{WRITEBACK} could not be set to {} again: {error}", self.before.trim());
        }
    }
}

/// Processors that the machine could have: each has a stream in the kernel.
pub(super) fn possible_processors() -> u32 {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<u32>().ok());
    last.map_or(1, |last| last + 1)
}

/// The release of the kernel that runs here.
pub(super) fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The port that follows a release of Linux; the newest for one that can't be read.
pub(super) fn policy_of(release: &str) -> BlockPolicyKind {
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) < (6, 5) => BlockPolicyKind::Mballoc64,
        (Some(major), Some(minor)) if (major, minor) < (6, 17) => BlockPolicyKind::Mballoc65,
        _ => BlockPolicyKind::Mballoc,
    }
}

/// By a port, with these tunables.
pub(super) fn by_port(
    place: &WorkDir,
    policy: BlockPolicyKind,
    delays: bool,
    tunables: &Tunables<'_>,
    calls: &[Op],
) -> Result<Outcome, String> {
    fresh(place)?;
    let how = OpenOptions::new().policy(policy).directories(DirectoryPolicyKind::Orlov);
    let how = how.tunables(tunables).delay(if delays { DELAY } else { 0 });
    let library = Library::<Computer>::on_image(&place.image(), &how)?;
    library.volume().space().load_bitmaps().map_err(|error| error.to_string())?;
    let before = counts(&library.statistics());
    perform(&mut *library.client(), calls)?;
    let counts = since(&before, counts(&library.statistics()));
    library.close()?;
    let (files, inodes) = tree(&place.image())?;
    remove(&place.image())?;
    Ok(Outcome { counts, files, inodes })
}

/// Where the regular files of an image lie, the filler not, and the inodes of files and directories. Pieces that touch are
/// one.
fn tree(image: &Path) -> Result<(Files, Inodes), String> {
    let failure = |error: &dyn std::fmt::Display| format!("{}: {error}", image.display());
    let file = File::open(image).map_err(|error| failure(&error))?;
    let device = FileDevice::new(file).map_err(|error| failure(&error))?;
    let volume = Volume::open(Arc::new(device), &OpenOptions::new()).map_err(|error| failure(&error))?;
    read_tree(&volume).map_err(|error| failure(&error))
}

fn read_tree(volume: &Volume) -> platfs::Result<(Files, Inodes)> {
    let (mut files, mut inodes, mut walk) = (Files::new(), Inodes::new(), Walk::new(volume));
    walk.enter(b"", InodeNumber::ROOT)?;
    while walk.depth() > 0 {
        let Some(entry) = walk.next_entry().cloned() else {
            walk.leave();
            continue;
        };
        let kind = volume.entry_type(&entry)?;
        if entry.name == FILLER.as_bytes() || !matches!(kind, FileType::Directory | FileType::Regular) {
            continue;
        }
        let path = String::from_utf8_lossy(&[walk.path(), b"/", &entry.name].concat()).into_owned();
        if kind == FileType::Regular {
            files.insert(path.clone(), pieces(volume, entry.inode)?);
        } else {
            walk.enter(&entry.name, entry.inode)?;
        }
        inodes.insert(path, u64::from(entry.inode.0.get()));
    }
    Ok((files, inodes))
}

fn pieces(volume: &Volume, file: InodeNumber) -> platfs::Result<Vec<Piece>> {
    let mut pieces: Vec<Piece> = Vec::new();
    for segment in volume.map(file)? {
        let segment = segment?;
        let (State::Mapped(start) | State::Unwritten(start)) = segment.state else { continue };
        let (logical, count) = (u64::from(segment.logical.0), segment.count);
        match pieces.last_mut() {
            Some(last) if last[0] + last[2] == logical && last[1] + last[2] == start.0 => last[2] += count,
            _ => pieces.push([logical, start.0, count]),
        }
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_has_the_port_that_follows_it() {
        let cases = [
            ("5.15.0-91-generic", BlockPolicyKind::Mballoc64),
            ("6.1.0-56-amd64", BlockPolicyKind::Mballoc64),
            ("6.5.13", BlockPolicyKind::Mballoc65),
            ("6.16.12+deb14", BlockPolicyKind::Mballoc65),
            ("6.17-rc1", BlockPolicyKind::Mballoc),
            ("7.0.1", BlockPolicyKind::Mballoc),
            ("unknown", BlockPolicyKind::Mballoc),
        ];
        for (release, policy) in cases {
            assert_eq!(policy_of(release), policy, "{release}");
        }
    }
}
