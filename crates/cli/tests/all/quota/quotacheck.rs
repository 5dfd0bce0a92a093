//! Counts after random work and a killed server are those of quotacheck, and of e2fsck.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use platfs::ondisk::quota::{self, QuotaKind, Usage};
use rustix::process::Signal;
use testkit::mount::have_loop_mount;
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::{fsck, mount, sparse, tool};

use super::record;
use crate::support::mounted::{Mounted, have_fuse};
use crate::support::{plat, succeed};

/// Kinds of volumes for mke2fs, and how they are mounted. quotacheck opens none with bigalloc.
const KINDS: [(&str, &str); 7] = [
    ("-t ext4 -b 4096 -J size=4", "rw"),
    ("-t ext4 -b 2048 -J size=2 -O inline_data", "rw,nodelalloc"),
    ("-t ext3 -b 1024 -J size=1", "rw,data=journal"),
    ("-t ext4 -b 1024 -J size=1", "rw,data=writeback,commit=1"),
    ("-t ext4 -b 4096 -O ^has_journal", "rw,softdep"),
    ("-t ext2 -b 1024", "rw,softdep,commit=1"),
    ("-t ext2 -b 1024", "rw,normal"),
];

const FILES: QuotaKinds =
    [(QuotaKind::User, "--user", "aquota.user"), (QuotaKind::Group, "--group", "aquota.group")];
type QuotaKinds = [(QuotaKind, &'static str, &'static str); 2];

/// A user whose limit is set, synced, and has to be there afterwards.
const LIMITED: u32 = 70_000;
const LIMIT: u64 = 3 << 20;

/// Owners whose numbers lie near each other, and far apart.
fn owner(random: &mut Random) -> u32 {
    let some = u32::try_from(random.below(20)).unwrap();
    if random.one_in(2) { 1000 + some } else { 1000 + some * 70_001 }
}

/// Files come, grow, shrink, change hands and go, until the server is gone.
fn work(root: &Path, thread: u64, seed: u64, done: &AtomicU64) -> std::io::Result<()> {
    let mut random = Random(seed * 100 + thread);
    let directory = root.join(format!("t{thread}"));
    fs::create_dir(&directory)?;
    for number in 0_u64.. {
        done.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("f{}", random.below(80)));
        match random.below(8) {
            0 => fs::remove_file(&path).or_else(absent)?,
            1 => chown(&path, Some(owner(&mut random)), Some(owner(&mut random))).or_else(absent)?,
            2 => symlink("x".repeat(100), &path).or_else(absent)?,
            3 => {
                let some = random.below(200_000);
                OpenOptions::new()
                    .write(true)
                    .open(&path)
                    .and_then(|file| file.set_len(some))
                    .or_else(absent)?;
            }
            _ => {
                let mut file = OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(&path)
                    .or_else(|_| File::create(directory.join("other")))?;
                chown(&path, Some(owner(&mut random)), Some(owner(&mut random))).or_else(absent)?;
                file.seek(SeekFrom::Start(random.below(100_000)))?;
                file.write_all(&vec![7; usize::try_from(random.below(60_000)).unwrap()])?;
                if number % 16 == 0 {
                    file.sync_all()?;
                }
            }
        }
    }
    Ok(())
}

/// Passes over a name that is not there, or is a link to nothing; a server that is gone is an error.
fn absent(error: std::io::Error) -> std::io::Result<()> {
    use std::io::ErrorKind::{AlreadyExists, NotFound, QuotaExceeded, StorageFull};
    match error.kind() {
        AlreadyExists | NotFound | QuotaExceeded | StorageFull => Ok(()),
        _ => Err(error),
    }
}

/// Counts of quotacheck on a copy of a volume, whose own quota is taken off: for all but root, whose files of quota come
/// to it.
fn by_quotacheck(image: &Path, scratch: &Scratch) -> [BTreeMap<u32, Usage>; 2] {
    let copy = scratch.join("copy");
    sparse::copy(image, &copy).unwrap();
    tool::run(tool::command("tune2fs").args(["-O", "^quota"]).arg(&copy));
    let kernel = mount::Mounted::kernel(&copy, "loop,rw,usrquota,grpquota").unwrap();
    tool::run(tool::command("quotacheck").args(["-cugm", "-F", "vfsv1"]).arg(kernel.path()));
    FILES.map(|(kind, _, name)| {
        let file = fs::read(kernel.path().join(name)).unwrap();
        let mut usage = quota::decode(kind, &file).unwrap();
        usage.retain(|id, used| *id != 0 && *used != Usage::default());
        usage
    })
}

fn killed(seed: u64) {
    let (kind, options) = KINDS[usize::try_from(seed).unwrap() % KINDS.len()];
    println!("seed {seed}: {kind}, {options}");
    let scratch = Scratch::new("quotacheck");
    let image = scratch.join("image");
    tool::run(tool::command("mke2fs").args(["-q", "-F"]).args(kind.split(' ')).arg(&image).arg("64M"));
    succeed(plat(&["quota", "--on", "user,group"]).arg(&image));
    let mut mounted = Mounted::new(&image, &["-o", options]).unwrap();
    let limited = LIMITED.to_string();
    succeed(plat(&["quota", "--user", &limited, "--block-hard", "3M"]).arg(mounted.path()));
    succeed(plat(&["sync"]).arg(mounted.path()));
    let (root, done, wanted) = (mounted.path().to_owned(), AtomicU64::new(0), 60 + Random(seed).below(600));
    thread::scope(|scope| {
        for thread in 0..3 {
            let (root, done) = (&root, &done);
            scope.spawn(move || work(root, thread, seed, done).unwrap_err());
        }
        while done.load(Ordering::Relaxed) < wanted {
            thread::sleep(Duration::from_millis(2));
        }
        mounted.signal(Signal::KILL);
        mounted.wait();
    });
    succeed(plat(&["umount"]).arg(mounted.path()));
    Mounted::new(&image, &["-o", options]).unwrap().unmount();
    fsck::assert_clean(&image);
    let said = record(&image, &["--user", &limited]);
    assert_eq!(said["hard_bytes"].as_u64(), Some(LIMIT), "{said}");
    let counted = by_quotacheck(&image, &scratch);
    println!("{} calls, {} owners", done.load(Ordering::Relaxed), counted[0].len());
    for ((_, option, _), usage) in FILES.into_iter().zip(counted) {
        for (id, used) in usage {
            let said = record(&image, &[option, &id.to_string()]);
            let ours = [&said["bytes"], &said["inodes"]].map(|number| number.as_u64().unwrap());
            assert_eq!(ours, [used.bytes, used.inodes], "seed {seed}, {option} {id}");
        }
    }
}

fn able(test: &str) -> bool {
    let tools = ["mke2fs", "e2fsck", "tune2fs", "quotacheck"];
    tool::have_root(test) && have_fuse(test) && tool::have_tools(test, &tools) && have_loop_mount(test)
}

#[test]
fn counts_are_those_of_quotacheck_after_kills() {
    if able("counts_are_those_of_quotacheck_after_kills") {
        (0..KINDS.len() as u64).for_each(killed);
    }
}

/// `cargo test -p platfs-cli --test all quota:: -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes"]
fn counts_are_those_of_quotacheck_after_a_hundred_kills() {
    if able("counts_are_those_of_quotacheck_after_a_hundred_kills") {
        (100..200).for_each(killed);
    }
}
