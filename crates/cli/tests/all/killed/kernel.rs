//! Crashes under the kernel's driver: after the rest is opened for writing and closed, no check has anything to report
//! of the volume, its counts included.

use std::fs::{self, File, OpenOptions as Host};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use platfs::device::FileDevice;
use platfs::{OpenOptions, Volume};
use testkit::mount::Mounted as Kernel;
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::{fsck, mount, sparse, tool};

use crate::support::mounted::{Mounted, have_fuse};
use crate::support::{plat, succeed};

/// Kinds of volumes for mke2fs, how many MiB, and how the kernel mounts them.
const KINDS: [(&str, &str, &str); 4] = [
    ("-t ext3 -b 1024 -J size=1", "16M", "data=ordered"),
    ("-t ext4 -b 4096 -J size=4", "32M", "data=ordered"),
    ("-t ext4 -b 1024 -J size=1 -O orphan_file", "16M", "data=writeback"),
    ("-t ext4 -b 1024 -J size=1 -O ^metadata_csum,^64bit", "24M", "data=journal,nodelalloc"),
];
/// Crashes of one volume, one after the other.
const EACH: u64 = 20;

/// A volume that is worked on, and files that are open without a name.
struct UncleanVolume {
    // Before the mount, which they keep busy.
    nameless: Vec<File>,
    mounted: Kernel,
    scratch: Scratch,
    random: Random,
}

impl UncleanVolume {
    fn new(seed: u64) -> Self {
        let (mke2fs, size, options) = KINDS[usize::try_from(seed).unwrap() % KINDS.len()];
        let scratch = Scratch::new("crashed");
        let image = scratch.join("image");
        tool::run(tool::command("mke2fs").args(["-q", "-F"]).args(mke2fs.split(' ')).arg(&image).arg(size));
        let mounted = Kernel::kernel(&image, &format!("loop,rw,commit=3000,{options}")).unwrap();
        UncleanVolume { nameless: Vec::new(), mounted, scratch, random: Random(seed) }
    }

    fn place(&mut self) -> PathBuf {
        let directory = self.mounted.path().join(format!("d{}", self.random.below(5)));
        let _ = fs::create_dir(&directory);
        directory.join(format!("a name of some length {}", self.random.below(60)))
    }

    /// One change; what can't be done because of those before is passed over.
    fn step(&mut self) -> std::io::Result<()> {
        let path = self.place();
        let len = self.random.below(60_000);
        match self.random.below(12) {
            0..=3 => fs::write(&path, self.random.bytes(len)),
            4 | 5 => fs::remove_file(&path),
            6 => fs::remove_dir_all(path.parent().unwrap_or(&path)),
            7 => Host::new().write(true).open(&path)?.set_len(self.random.below(20_000)),
            8 => {
                let file = Host::new().write(true).create(true).truncate(false).open(&path)?;
                file.write_all_at(&self.random.bytes(5000), 400_000)?;
                fs::remove_file(&path)?;
                self.nameless.push(file);
                if self.nameless.len() > 12 {
                    self.nameless.remove(0);
                }
                Ok(())
            }
            9 => fs::rename(&path, self.place()),
            10 => File::open(&path)?.sync_all(),
            _ => Ok(rustix::fs::syncfs(File::open(self.mounted.path())?)?),
        }
    }

    /// Image that a crash now would leave, once nothing is written to it.
    fn crash(&mut self) -> Vec<u8> {
        for _ in 0..5 + self.random.below(40) {
            let _ = self.step();
        }
        if self.random.one_in(3) {
            // Removed, and committed while everything of it is still to be cleaned up.
            let _ = fs::remove_dir_all(self.mounted.path().join("d0"));
            rustix::fs::syncfs(File::open(self.mounted.path()).unwrap()).unwrap();
        }
        let read = || fs::read(self.scratch.join("image")).unwrap();
        let mut before = read();
        loop {
            let now = read();
            if now == before {
                return now;
            }
            before = now;
        }
    }
}

fn by_library(image: &Path) {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let device = Arc::new(FileDevice::new(file).unwrap().without_flush());
    Volume::open(device, &OpenOptions::new().write(true)).unwrap().close().unwrap();
}

fn by_put(image: &Path, source: &Path) {
    succeed(plat(&["put"]).arg(image).arg(source).arg("/put"));
}

fn by_mount(image: &Path) {
    let mounted = Mounted::new(image, &["-o", "rw"]).unwrap();
    fs::write(mounted.path().join("touched"), b"").unwrap();
    mounted.unmount();
}

fn assert_clean(what: &str, image: &Path) {
    let said = fsck::complaints(image);
    assert!(said.is_empty(), "{what}: {said}");
    let checked = plat(&["check", "-n"]).arg(image).output().unwrap();
    assert!(checked.status.success(), "{what}: {}", String::from_utf8_lossy(&checked.stdout));
}

/// `count` crashes, each recovered in all ways.
fn crashes(count: u64) {
    let begun = Instant::now();
    let (mut number, mut pending, mut seed) = (0, 0, 0);
    while number < count {
        let mut worked = UncleanVolume::new(seed);
        let source = worked.scratch.join("source");
        fs::write(&source, vec![7; 3000]).unwrap();
        for _ in 0..EACH.min((count - number).div_ceil(KINDS.len() as u64)) {
            let crashed = worked.crash();
            let raw = platfs::ondisk::superblock::RawSuperblock::parse(&crashed[1024..2048]).unwrap();
            let waits = platfs::ondisk::features::Incompat::RECOVER;
            pending += u64::from(raw.features().incompat.contains(waits));
            let image = worked.scratch.join("crashed");
            let ways: [(&str, &dyn Fn()); 3] = [
                ("library", &|| by_library(&image)),
                ("put", &|| by_put(&image, &source)),
                ("mount", &|| by_mount(&image)),
            ];
            for (way, recover) in ways {
                sparse::write(&image, &crashed).unwrap();
                recover();
                assert_clean(&format!("seed {seed}, crash {number}, {way}"), &image);
            }
            number += 1;
        }
        seed += 1;
    }
    println!("{number} crashes of {seed} volumes, {pending} with a log to replay, {:?}", begun.elapsed());
    assert!(pending * 10 > number * 9, "only {pending} of {number} had anything to recover");
}

fn able(test: &str) -> bool {
    tool::have_tools(test, &["mke2fs", "e2fsck"]) && mount::have_loop_mount(test) && have_fuse(test)
}

#[test]
fn volumes_that_crashed_under_the_kernel_have_right_counts_afterwards() {
    if able("crashes under the kernel") {
        crashes(8);
    }
}

/// `make crash-kernel`, `CRASHES` many.
#[test]
#[ignore = "takes minutes"]
fn many_crashes_under_the_kernel() {
    if able("many crashes under the kernel") {
        let count = std::env::var("PLATFS_STEPS").ok().and_then(|count| count.parse().ok());
        crashes(count.unwrap_or(1000));
    }
}
