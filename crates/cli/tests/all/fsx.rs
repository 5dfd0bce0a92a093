//! Random reads, writes, mapped reads and writes, truncations, ranges and syncs of one file, against its bytes in memory: on a mount of ours,
//! and on the kernel's, which must of course pass as well.
//!
//! A failure prints the seed and the last steps: `PLATFS_SEED=N PLATFS_STEPS=M cargo test -p platfs-cli --test all fsx::NAME` repeats it.

use crate::support::mounted::have_fuse;
use crate::support::volumes::{
    AT_ONCE, CLUSTERS, DEFAULTS, EXTENTS, INLINE, JOURNAL, LARGE_BLOCKS, POINTERS, Profile, SMALL_BLOCKS,
    SMALL_DELAYED, View, Who, all_modes, judge,
};
use rustix::fs::{self, FallocateFlags as F, Mode, OFlags as O};
use rustix::io::{self, Errno};
use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use testkit::mapped::{Mapping, Sharing};
use testkit::mount::have_loop_mount;
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::snapshot::Snapshot;
use testkit::tool;

/// Steps of a short run.
const SHORT: u64 = 1500;
/// Steps of a long one, over all kinds of volumes.
const LONG: u64 = 1_000_000;
/// Longest file.
const LONGEST: u64 = 512 << 10;
/// The unit of moving ranges: a cluster of the coarsest volume.
const UNIT: u64 = 65_536;
/// Steps between looks at the whole file.
const LOOK: u64 = 40;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// A file, and what must be in it.
struct Fsx {
    path: PathBuf,
    fd: OwnedFd,
    model: Vec<u8>,
    random: Random,
    /// The last steps, for the message of a failure.
    steps: Vec<String>,
    /// Modes of fallocate that the volume knows.
    modes: Vec<F>,
    /// The next byte written: each write has another one.
    mark: u8,
}

fn open(path: &Path, flags: O) -> OwnedFd {
    fs::open(path, flags | O::CLOEXEC, Mode::from_raw_mode(0o644)).unwrap()
}

/// Those modes of fallocate that this volume has.
fn modes(root: &Path) -> Vec<F> {
    let path = root.join("probe");
    let fd = open(&path, O::RDWR | O::CREATE);
    fs::ftruncate(&fd, 4 * UNIT).unwrap();
    let all = [
        F::empty(),
        F::KEEP_SIZE,
        F::PUNCH_HOLE | F::KEEP_SIZE,
        F::ZERO_RANGE,
        F::COLLAPSE_RANGE,
        F::INSERT_RANGE,
    ];
    let known = all.into_iter().filter(|mode| match fs::fallocate(&fd, *mode, UNIT, UNIT) {
        Ok(()) => true,
        Err(Errno::OPNOTSUPP) => false,
        Err(error) => panic!("{mode:?}: {error}"),
    });
    let known = known.collect();
    fs::unlink(&path).unwrap();
    known
}

impl Fsx {
    fn new(root: &Path, seed: u64) -> Self {
        let path = root.join("file");
        let fd = open(&path, O::RDWR | O::CREATE);
        let random = Random(seed);
        Fsx { path, fd, model: Vec::new(), random, steps: Vec::new(), modes: modes(root), mark: 0 }
    }

    fn size(&self) -> u64 {
        self.model.len() as u64
    }

    fn record(&mut self, step: String) {
        if self.steps.len() == 60 {
            self.steps.remove(0);
        }
        self.steps.push(step);
    }

    fn fail(&self, what: &str) -> ! {
        panic!("{what}\nthe last steps:\n{}", self.steps.join("\n"))
    }

    /// A place in the file (or a little behind it), and a length.
    fn range(&mut self, beyond: u64) -> (u64, u64) {
        let at = self.random.below((self.size() + beyond).clamp(1, LONGEST));
        let at = if self.random.one_in(4) { at / 4096 * 4096 } else { at };
        let most = if self.random.one_in(3) { 200 } else { 100_000 };
        let len = 1 + self.random.below(most.min(LONGEST - at));
        (at, if self.random.one_in(4) { len.next_multiple_of(4096).min(LONGEST - at) } else { len })
    }

    /// A range of whole units inside the file.
    fn units(&mut self, room: u64) -> Option<(u64, u64)> {
        let units = room / UNIT;
        let first = self.random.below(units);
        let count = 1 + self.random.below((units - first).min(3));
        (units > 0 && first + count <= units).then_some((first * UNIT, count * UNIT))
    }

    fn grow(&mut self, end: u64) {
        if end > self.size() {
            self.model.resize(end as usize, 0);
        }
    }

    fn fill(&mut self, len: u64) -> Vec<u8> {
        self.mark = self.mark.wrapping_add(1).max(1);
        let mark = self.mark;
        (0..len).map(|at| mark.wrapping_add((at >> 9) as u8)).collect()
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.grow(at + bytes.len() as u64);
        self.model[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Compares what was read at a place.
    fn compare(&self, how: &str, at: u64, found: &[u8]) {
        let expected = &self.model[(at as usize).min(self.model.len())..];
        let expected = &expected[..expected.len().min(found.len())];
        if expected == found {
            return;
        }
        let mut text = format!("{how} at {at}: {} bytes found, {} expected", found.len(), expected.len());
        let wrong: Vec<usize> = (0..expected.len()).filter(|at| expected[*at] != found[*at]).collect();
        if let (Some(first), Some(last)) = (wrong.first(), wrong.last()) {
            let place = |index: usize| at + index as u64;
            write!(text, "; {} differ, from {} to {}", wrong.len(), place(*first), place(*last)).unwrap();
            write!(text, "; first: {} for {}", found[*first], expected[*first]).unwrap();
        }
        self.fail(&text);
    }

    fn read_back(&self, at: u64, len: u64) -> Vec<u8> {
        let mut buffer = vec![0xEE; len as usize];
        let mut filled = 0;
        while filled < buffer.len() {
            match io::pread(&self.fd, &mut buffer[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) => self.fail(&format!("read {at} {len}: {error}")),
            }
        }
        buffer.truncate(filled);
        buffer
    }

    fn whole(&self) {
        let size = fs::fstat(&self.fd).unwrap().st_size;
        if size.cast_unsigned() != self.size() {
            self.fail(&format!("size {size}, expected {}", self.size()));
        }
        let found = self.read_back(0, self.size() + 10);
        if found.len() as u64 != self.size() {
            self.fail(&format!("{} bytes in a file of {}", found.len(), self.size()));
        }
        self.compare("the whole file", 0, &found);
    }

    fn read(&mut self) {
        let (at, len) = self.range(1000);
        self.record(format!("read {at} {len}"));
        let found = self.read_back(at, len);
        if (found.len() as u64) < len.min(self.size().saturating_sub(at)) {
            self.fail("a short read");
        }
        self.compare("read", at, &found);
    }

    fn write(&mut self) {
        let (at, len) = self.range(50_000);
        self.record(format!("write {at} {len}"));
        let bytes = self.fill(len);
        let written = io::pwrite(&self.fd, &bytes, at);
        if written != Ok(bytes.len()) {
            self.fail(&format!("write: {written:?}"));
        }
        self.put(at, &bytes);
    }

    fn append(&mut self) {
        let len = (1 + self.random.below(9000)).min(LONGEST - self.size());
        self.record(format!("append {len}"));
        let bytes = self.fill(len);
        let fd = open(&self.path, O::WRONLY | O::APPEND);
        if io::write(&fd, &bytes) != Ok(bytes.len()) {
            self.fail("append");
        }
        self.put(self.size(), &bytes);
    }

    /// Past the cache, in whole pages; where the volume's blocks are too large for that it is refused.
    fn write_direct(&mut self) {
        let at = self.random.below(LONGEST / UNIT) * UNIT;
        let mut room = vec![0; 3 * UNIT as usize];
        let skip = room.as_ptr().align_offset(4096);
        let bytes = self.fill(UNIT);
        self.record(format!("write around the cache {at} {UNIT}"));
        room[skip..][..bytes.len()].copy_from_slice(&bytes);
        let fd = open(&self.path, O::WRONLY | O::DIRECT);
        match io::pwrite(&fd, &room[skip..][..bytes.len()], at) {
            Ok(count) if count == bytes.len() => self.put(at, &bytes),
            other => self.fail(&format!("direct write: {other:?}")),
        }
    }

    fn map_read(&mut self) {
        let (at, len) = self.range(0);
        let len = len.min(self.size().saturating_sub(at));
        if len == 0 {
            return;
        }
        self.record(format!("mapped read {at} {len}"));
        let start = at / 4096 * 4096;
        let mapping = Mapping::new(&self.fd, start, (at + len - start) as usize, Sharing::Shared).unwrap();
        self.compare("mapped read", at, &mapping.read((at - start) as usize, len as usize));
    }

    fn map_write(&mut self) {
        let (at, len) = self.range(20_000);
        self.record(format!("mapped write {at} {len}"));
        if at + len > self.size() {
            fs::ftruncate(&self.fd, at + len).unwrap();
            self.grow(at + len);
        }
        let start = at / 4096 * 4096;
        let mapping = Mapping::new(&self.fd, start, (at + len - start) as usize, Sharing::Shared).unwrap();
        let bytes = self.fill(len);
        mapping.write((at - start) as usize, &bytes);
        self.put(at, &bytes);
        if self.random.one_in(3) {
            self.record("  msync".into());
            mapping.sync().unwrap();
        }
    }

    fn truncate(&mut self) {
        let size = if self.random.one_in(20) { 0 } else { self.random.below(LONGEST) };
        self.record(format!("truncate {} to {size}", self.size()));
        if let Err(error) = fs::ftruncate(&self.fd, size) {
            self.fail(&format!("truncate: {error}"));
        }
        self.model.resize(size as usize, 0);
    }

    fn fallocate(&mut self, mode: F, at: u64, len: u64) {
        self.record(format!("fallocate {mode:?} {at} {len}"));
        if let Err(error) = fs::fallocate(&self.fd, mode, at, len) {
            self.fail(&format!("fallocate: {error}"));
        }
    }

    fn change_range(&mut self) {
        let Some(mode) = self.random.pick(&self.modes).copied() else { return };
        let unsized_mode = mode - F::KEEP_SIZE;
        if unsized_mode == F::COLLAPSE_RANGE {
            // What is behind must not be nothing.
            let Some((at, len)) = self.units(self.size().saturating_sub(1)) else { return };
            self.fallocate(mode, at, len);
            self.model.drain(at as usize..(at + len) as usize);
        } else if unsized_mode == F::INSERT_RANGE {
            let Some((at, len)) = self.units(self.size().saturating_sub(1)) else { return };
            if self.size() + len > LONGEST {
                return;
            }
            self.fallocate(mode, at, len);
            self.model.splice(at as usize..at as usize, std::iter::repeat_n(0, len as usize));
        } else {
            let (at, len) = self.range(20_000);
            self.fallocate(mode, at, len);
            if !mode.contains(F::KEEP_SIZE) {
                self.grow(at + len);
            }
            if unsized_mode == F::PUNCH_HOLE || unsized_mode == F::ZERO_RANGE {
                let size = self.model.len();
                self.model[(at as usize).min(size)..((at + len) as usize).min(size)].fill(0);
            }
        }
    }

    fn copy(&mut self) {
        let (at, len) = self.range(0);
        let (to, _) = self.range(10_000);
        let len = len.min(self.size().saturating_sub(at)).min(LONGEST - to);
        let apart = to + len <= at || at + len <= to;
        if len == 0 || !apart {
            return;
        }
        self.record(format!("copy_file_range {at} {to} {len}"));
        let (mut from, mut target) = (at, to);
        while from < at + len {
            let left = (at + len - from) as usize;
            match fs::copy_file_range(&self.fd, Some(&mut from), &self.fd, Some(&mut target), left) {
                Ok(count) if count > 0 => {}
                other => self.fail(&format!("copy_file_range: {other:?}")),
            }
        }
        let bytes = self.model[at as usize..(at + len) as usize].to_vec();
        self.put(to, &bytes);
    }

    fn sync(&mut self) {
        let which = self.random.below(4);
        self.record(format!("sync {which}"));
        let done = match which {
            0 => fs::fsync(&self.fd),
            1 => fs::fdatasync(&self.fd),
            2 => fs::syncfs(&self.fd),
            // Clean pages go, so that the next read asks the file system.
            _ => fs::fsync(&self.fd).and_then(|()| fs::fadvise(&self.fd, 0, None, fs::Advice::DontNeed)),
        };
        if let Err(error) = done {
            self.fail(&format!("sync: {error}"));
        }
    }

    fn reopen(&mut self) {
        self.record("reopen".into());
        self.fd = open(&self.path, O::RDWR);
        if self.random.one_in(4) {
            self.record("  pages dropped".into());
            // Of all file systems of the machine, but only those that need no writing.
            let _ = std::fs::write("/proc/sys/vm/drop_caches", "1");
        }
    }

    /// Ranges that SEEK_DATA and SEEK_HOLE report must cover all that is not zero.
    fn seek(&mut self) {
        self.record("seek".into());
        let mut at = 0;
        while at < self.size() {
            let data = match fs::seek(&self.fd, fs::SeekFrom::Data(at)) {
                Ok(data) => data,
                Err(Errno::NXIO) => self.size(),
                Err(error) => self.fail(&format!("SEEK_DATA {at}: {error}")),
            };
            if self.model[at as usize..data as usize].iter().any(|byte| *byte != 0) {
                self.fail(&format!("SEEK_DATA from {at} to {data} skips data"));
            }
            if data >= self.size() {
                return;
            }
            at = match fs::seek(&self.fd, fs::SeekFrom::Hole(data)) {
                Ok(hole) if hole > data => hole,
                other => self.fail(&format!("SEEK_HOLE {data}: {other:?}")),
            };
        }
    }

    fn play(&mut self, steps: u64) {
        for step in 0..steps {
            match self.random.below(100) {
                0..20 => self.read(),
                20..45 => self.write(),
                45..48 => self.append(),
                48..50 => self.write_direct(),
                50..58 => self.map_read(),
                58..66 => self.map_write(),
                66..74 => self.truncate(),
                74..88 => self.change_range(),
                88..92 => self.copy(),
                92..96 => self.sync(),
                96..98 => self.seek(),
                _ => self.reopen(),
            }
            if step % LOOK == 0 {
                self.whole();
            }
        }
        self.whole();
    }
}

fn run(test: &str, profile: &Profile, who: Who, seed: u64, steps: u64) {
    let ready = tool::have_root(test) && tool::have_tools(test, &["mke2fs", "e2fsck"]);
    if !ready || (who == Who::Kernel && !have_loop_mount(test)) || (who.is_ours() && !have_fuse(test)) {
        return;
    }
    let seed = number("PLATFS_SEED").unwrap_or(seed);
    let steps = number("PLATFS_STEPS").unwrap_or(steps);
    println!("PLATFS_SEED={seed} PLATFS_STEPS={steps} profile {} of {who:?}", profile.name);
    let scratch = Scratch::new(test);
    let image = profile.make(&scratch, "image", "64M");
    let view = View::new(who, &image, profile.options);
    let mut fsx = Fsx::new(view.path(), seed);
    fsx.play(steps);
    let model = std::mem::take(&mut fsx.model);
    drop(fsx);
    let shown = Snapshot::of(view.path()).unwrap();
    view.end();
    if who.is_ours() {
        judge(test, &image, &shown, false);
        // Once more, by a mount that has seen nothing of it.
        let view = View::new(who, &image, "ro");
        assert!(std::fs::read(view.path().join("file")).unwrap() == model, "other bytes after unmounting");
        view.end();
    }
}

#[test]
fn the_kernel_keeps_the_bytes() {
    run("the_kernel_keeps_the_bytes", &EXTENTS, Who::Kernel, 1, SHORT);
}

macro_rules! ours {
    ($($name:ident: $profile:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            run(stringify!($name), &$profile, Who::Plat, 1, SHORT);
        })*
    };
}

ours!(
    extents: EXTENTS,
    at_once: AT_ONCE,
    small_blocks: SMALL_BLOCKS,
    small_delayed: SMALL_DELAYED,
    pointers: POINTERS,
    clusters: CLUSTERS,
    inline: INLINE,
    journal: JOURNAL,
    large_blocks: LARGE_BLOCKS,
);

#[test]
fn own_permissions_by_device() {
    run("own_permissions_by_device", &EXTENTS, Who::PlatIn("own_permissions,transport=device"), 2, SHORT);
}

#[test]
fn without_attributes_by_ring() {
    run(
        "without_attributes_by_ring",
        &JOURNAL,
        Who::PlatIn("own_permissions,noxattr,transport=uring"),
        3,
        SHORT,
    );
}

#[test]
fn without_the_kernels_cache() {
    let mode = "allow_other,nowriteback_cache,transport=device";
    run("without_the_kernels_cache", &SMALL_DELAYED, Who::PlatIn(mode), 4, SHORT);
}

#[test]
fn by_default() {
    for (seed, mode) in (5..).zip(DEFAULTS) {
        run("by_default", &EXTENTS, Who::PlatByDefault(mode), seed, SHORT);
    }
}

/// `cargo test -p platfs-cli --test all fsx::every_mode -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn every_mode() {
    for (seed, mode) in (200..).zip(all_modes()) {
        for profile in [EXTENTS, SMALL_DELAYED, JOURNAL] {
            println!("{mode:?}");
            run("every_mode", &profile, mode, seed, 2 * SHORT);
        }
    }
}

/// A million steps over all kinds of volumes: `cargo test --release -p platfs-cli --test all fsx:: -- --ignored`.
#[test]
#[ignore = "takes many minutes"]
fn a_million_steps() {
    let all = [EXTENTS, AT_ONCE, SMALL_BLOCKS, SMALL_DELAYED, POINTERS, CLUSTERS, INLINE, LARGE_BLOCKS];
    for (index, profile) in all.iter().enumerate() {
        run("a_million_steps", profile, Who::Plat, 100 + index as u64, LONG / all.len() as u64);
    }
}
