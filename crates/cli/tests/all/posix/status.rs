//! `statfs`, the syncs, a volume that is full or read-only, limits of links, locks, and mappings.

use crate::posix::transcript::{Transcript, cases, facts};
use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::{self, FlockOperation, Mode, OFlags as O};
use rustix::io::{self, Errno};
use std::os::fd::OwnedFd;
use testkit::mapped::{Mapping, Sharing};

cases![
    room_of_the_volume,
    names_that_fit,
    syncs,
    whole_file_locks,
    record_locks,
    record_locks_of_descriptors,
    leases_are_no_matter,
    shared_mapping_sees_writes,
    writes_see_shared_mapping,
    private_mapping_keeps_to_itself,
    mapping_of_a_hole,
    mapping_of_allocated_space,
    mapping_over_the_end,
    mapping_and_truncate,
    mapping_and_punch,
    mapping_survives_close_and_unlink,
    mapping_without_permission,
    mapping_synced_by_fsync,
    two_mappings,
    mapping_changes_times,
    sources_of_programs,
    sockets_are_bound,
    watched_names,
];

fn room_of_the_volume(t: &mut Transcript) {
    t.file("a", b"x");
    let of = |path: &str| {
        fs::statvfs(path)
            .map(|room| (room.f_bsize, room.f_frsize, room.f_blocks, room.f_files, room.f_namemax))
    };
    t.record("by directory", of("."));
    t.record("by file", of("a"));
    t.record("missing", of("missing"));
    let fd = t.open("a", O::RDONLY, 0);
    t.record(
        "by descriptor",
        fd.ok_or(Errno::BADF).and_then(|fd| fs::fstatvfs(&fd)).map(|room| room.f_blocks),
    );
    let sane = fs::statvfs(".").map(|room| {
        (room.f_bavail <= room.f_bfree, room.f_bfree <= room.f_blocks, room.f_ffree <= room.f_files)
    });
    t.record("sane", sane);
}

fn names_that_fit(t: &mut Transcript) {
    t.record("longest name", fs::statvfs(".").map(|room| room.f_namemax));
    t.record("block of I/O", fs::stat(".").map(|stat| stat.st_blksize));
}

fn syncs(t: &mut Transcript) {
    let Some(fd) = t.open("a", O::RDWR | O::CREATE, 0o644) else { return };
    t.write(&fd, &[1; 10_000]);
    t.did("fsync", fs::fsync(&fd));
    t.did("fdatasync", fs::fdatasync(&fd));
    t.did("syncfs", fs::syncfs(&fd));
    t.did("fsync again", fs::fsync(&fd));
    let Some(directory) = t.open(".", O::RDONLY, 0) else { return };
    t.did("fsync of the directory", fs::fsync(&directory));
    t.did("syncfs of the directory", fs::syncfs(&directory));
    let Some(path) = t.open("a", O::PATH, 0) else { return };
    t.did("fsync of a path", fs::fsync(&path));
}

fn whole_file_locks(t: &mut Transcript) {
    use FlockOperation::{NonBlockingLockExclusive, NonBlockingLockShared, Unlock};
    t.file("a", b"x");
    let (Some(one), Some(two)) = (t.open("a", O::RDWR, 0), t.open("a", O::RDONLY, 0)) else { return };
    t.did("shared", fs::flock(&one, NonBlockingLockShared));
    t.did("shared", fs::flock(&two, NonBlockingLockShared));
    t.did("exclusive", fs::flock(&one, NonBlockingLockExclusive));
    t.did("unlock", fs::flock(&two, Unlock));
    t.did("exclusive", fs::flock(&one, NonBlockingLockExclusive));
    t.did("shared", fs::flock(&two, NonBlockingLockShared));
    drop(one);
    t.did("exclusive", fs::flock(&two, NonBlockingLockExclusive));
    t.mkdir("d", 0o755);
    t.open("d", O::RDONLY, 0).map(|fd| t.did("of a directory", fs::flock(&fd, NonBlockingLockExclusive)));
}

/// A record lock of a type on a range.
fn record(kind: i32, start: i64, len: i64) -> nix::libc::flock {
    nix::libc::flock {
        l_type: i16::try_from(kind).unwrap(),
        l_whence: 0,
        l_start: start,
        l_len: len,
        l_pid: 0,
    }
}

fn locked(t: &mut Transcript, what: &str, fd: &OwnedFd, kind: i32, start: i64, len: i64) {
    let lock = record(kind, start, len);
    let result = fcntl(fd, FcntlArg::F_OFD_SETLK(&lock)).map_err(|e| Errno::from_raw_os_error(e as i32));
    t.did(format!("{what} {start} {len}"), result);
}

fn record_locks(t: &mut Transcript) {
    // Those of a process do not hold against itself: only what is refused for the descriptor shows.
    t.file("a", &[1; 1000]);
    let (Some(reader), Some(writer)) = (t.open("a", O::RDONLY, 0), t.open("a", O::WRONLY, 0)) else { return };
    for (what, fd) in [("reader", &reader), ("writer", &writer)] {
        for kind in [nix::libc::F_RDLCK, nix::libc::F_WRLCK, nix::libc::F_UNLCK] {
            let lock = record(kind, 0, 100);
            let result = fcntl(fd, FcntlArg::F_SETLK(&lock)).map_err(|e| Errno::from_raw_os_error(e as i32));
            t.did(format!("{what} {kind}"), result);
        }
    }
    let lock = record(nix::libc::F_RDLCK, -5, 100);
    let result = fcntl(&reader, FcntlArg::F_SETLK(&lock)).map_err(|e| Errno::from_raw_os_error(e as i32));
    t.did("before the start", result);
}

fn record_locks_of_descriptors(t: &mut Transcript) {
    use nix::libc::{F_RDLCK, F_UNLCK, F_WRLCK};
    t.file("a", &[1; 1000]);
    let (Some(one), Some(two)) = (t.open("a", O::RDWR, 0), t.open("a", O::RDWR, 0)) else { return };
    locked(t, "one writes", &one, F_WRLCK, 0, 100);
    locked(t, "two writes", &two, F_WRLCK, 50, 100);
    locked(t, "two writes", &two, F_WRLCK, 100, 100);
    locked(t, "one reads", &one, F_RDLCK, 0, 100);
    locked(t, "two reads", &two, F_RDLCK, 0, 50);
    locked(t, "one frees", &one, F_UNLCK, 0, 0);
    locked(t, "two writes", &two, F_WRLCK, 0, 0);
    locked(t, "one reads", &one, F_RDLCK, 5000, 1);
    drop(two);
    locked(t, "one reads", &one, F_RDLCK, 5000, 1);
}

fn leases_are_no_matter(t: &mut Transcript) {
    // A lock holds for the file, not for its name.
    t.file("a", b"x");
    let Some(one) = t.open("a", O::RDWR, 0) else { return };
    locked(t, "one writes", &one, nix::libc::F_WRLCK, 0, 0);
    t.rename("a", "b");
    t.link("b", "c");
    let Some(two) = t.open("c", O::RDWR, 0) else { return };
    locked(t, "two reads", &two, nix::libc::F_RDLCK, 0, 1);
    t.unlink("b");
    t.unlink("c");
    locked(t, "two reads", &two, nix::libc::F_RDLCK, 0, 1);
}

/// A file of `len` bytes, and a mapping of it.
fn mapped(t: &mut Transcript, len: usize, room: usize, sharing: Sharing) -> Option<(OwnedFd, Mapping)> {
    t.file("a", &vec![b'f'; len]);
    let fd = t.open("a", O::RDWR, 0)?;
    let mapping = t.did("mmap", Mapping::new(&fd, 0, room, sharing))?;
    Some((fd, mapping))
}

fn seen(t: &mut Transcript, mapping: &Mapping, at: usize, len: usize) {
    t.say(format!("mapped {at}: {}", crate::posix::transcript::show_bytes(&mapping.read(at, len))));
}

fn shared_mapping_sees_writes(t: &mut Transcript) {
    let Some((fd, mapping)) = mapped(t, 10_000, 10_000, Sharing::Shared) else { return };
    seen(t, &mapping, 0, 10_000);
    t.pwrite(&fd, b"written", 5000);
    seen(t, &mapping, 4990, 30);
    t.did("fsync", fs::fsync(&fd));
    t.pwrite(&fd, b"again", 4094);
    seen(t, &mapping, 4090, 20);
}

fn writes_see_shared_mapping(t: &mut Transcript) {
    let Some((fd, mapping)) = mapped(t, 10_000, 10_000, Sharing::Shared) else { return };
    mapping.write(100, b"through the mapping");
    t.pread(&fd, 30, 95);
    mapping.write(8190, b"over a page");
    t.contents("a");
    t.did("msync", mapping.sync());
    drop(mapping);
    t.contents("a");
    t.fstat(&fd);
}

fn private_mapping_keeps_to_itself(t: &mut Transcript) {
    let Some((fd, mapping)) = mapped(t, 10_000, 10_000, Sharing::Private) else { return };
    mapping.write(100, b"mine");
    seen(t, &mapping, 98, 10);
    t.pread(&fd, 10, 98);
    t.pwrite(&fd, b"theirs", 102);
    seen(t, &mapping, 98, 12);
    t.pwrite(&fd, b"theirs", 6000);
    seen(t, &mapping, 5998, 12);
    t.contents("a");
}

fn mapping_of_a_hole(t: &mut Transcript) {
    let Some(fd) = t.open("a", O::RDWR | O::CREATE, 0o644) else { return };
    t.ftruncate(&fd, 1 << 20);
    let Some(mapping) = t.did("mmap", Mapping::new(&fd, 0, 1 << 20, Sharing::Shared)) else { return };
    seen(t, &mapping, 0, 5000);
    mapping.write(300_000, b"in the hole");
    mapping.write(1_048_570, b"at end");
    t.pread(&fd, 20, 299_995);
    drop(mapping);
    t.sectors(&fd);
    t.contents("a");
}

fn mapping_of_allocated_space(t: &mut Transcript) {
    let Some(fd) = t.open("a", O::RDWR | O::CREATE, 0o644) else { return };
    t.fallocate(&fd, fs::FallocateFlags::empty(), 0, 200_000);
    // Maps of block pointers know no space that is not written to.
    t.ftruncate(&fd, 200_000);
    let Some(mapping) = t.did("mmap", Mapping::new(&fd, 0, 200_000, Sharing::Shared)) else { return };
    seen(t, &mapping, 0, 200_000);
    mapping.write(100_000, b"mapped");
    t.did("fsync", fs::fsync(&fd));
    drop(mapping);
    t.contents("a");
}

fn mapping_over_the_end(t: &mut Transcript) {
    // What is written behind the end in the last page never gets into the file.
    let Some((fd, mapping)) = mapped(t, 5000, 8192, Sharing::Shared) else { return };
    seen(t, &mapping, 4990, 100);
    mapping.write(4998, b"over the end");
    t.did("msync", mapping.sync());
    t.contents("a");
    t.fstat(&fd);
    drop(mapping);
    t.did("fsync", fs::fsync(&fd));
    t.ftruncate(&fd, 6000);
    t.contents("a");
}

fn mapping_and_truncate(t: &mut Transcript) {
    let Some((fd, mapping)) = mapped(t, 50_000, 50_000, Sharing::Shared) else { return };
    mapping.write(20_000, b"lost");
    t.ftruncate(&fd, 10_000);
    seen(t, &mapping, 9990, 100);
    t.ftruncate(&fd, 50_000);
    seen(t, &mapping, 9990, 20_000);
    mapping.write(30_000, b"new");
    t.contents("a");
}

fn mapping_and_punch(t: &mut Transcript) {
    let Some((fd, mapping)) = mapped(t, 50_000, 50_000, Sharing::Shared) else { return };
    mapping.write(10_000, b"will be punched");
    t.fallocate(&fd, fs::FallocateFlags::PUNCH_HOLE | fs::FallocateFlags::KEEP_SIZE, 8192, 8192);
    seen(t, &mapping, 8000, 9000);
    mapping.write(10_000, b"back");
    t.fallocate(&fd, fs::FallocateFlags::ZERO_RANGE, 30_000, 5000);
    seen(t, &mapping, 29_990, 6000);
    t.contents("a");
}

fn mapping_survives_close_and_unlink(t: &mut Transcript) {
    let Some((fd, mapping)) = mapped(t, 10_000, 10_000, Sharing::Shared) else { return };
    t.unlink("a");
    drop(fd);
    mapping.write(5000, b"nameless");
    seen(t, &mapping, 4990, 30);
    t.did("msync", mapping.sync());
}

fn mapping_without_permission(t: &mut Transcript) {
    t.file("a", &[1; 5000]);
    let (Some(reader), Some(writer)) = (t.open("a", O::RDONLY, 0), t.open("a", O::WRONLY, 0)) else { return };
    t.did("shared, for writing, by a reader", Mapping::new(&reader, 0, 4096, Sharing::Shared));
    t.did("private by a reader", Mapping::new(&reader, 0, 4096, Sharing::Private));
    t.did("by a writer", Mapping::new(&writer, 0, 4096, Sharing::Shared));
    t.did("odd offset", Mapping::new(&reader, 100, 4096, Sharing::Private));
    t.mkdir("d", 0o755);
    t.open("d", O::RDONLY, 0).map(|fd| t.did("directory", Mapping::new(&fd, 0, 4096, Sharing::Private)));
}

fn mapping_synced_by_fsync(t: &mut Transcript) {
    let Some((fd, mapping)) = mapped(t, 100_000, 100_000, Sharing::Shared) else { return };
    for round in 0..5_u8 {
        for at in (0..100_000).step_by(9001) {
            mapping.write(at, &[b'0' + round; 5]);
        }
        t.did("fsync", fs::fsync(&fd));
        t.check("advice", fs::fadvise(&fd, 0, None, fs::Advice::DontNeed));
    }
    t.contents("a");
}

fn two_mappings(t: &mut Transcript) {
    let Some((fd, one)) = mapped(t, 20_000, 20_000, Sharing::Shared) else { return };
    let Some(two) = t.did("mmap", Mapping::new(&fd, 8192, 8192, Sharing::Shared)) else { return };
    one.write(9000, b"from one");
    seen(t, &two, 9000 - 8192 - 4, 20);
    two.write(100, b"from two");
    seen(t, &one, 8192 + 96, 20);
}

fn mapping_changes_times(t: &mut Transcript) {
    let Some((fd, mapping)) = mapped(t, 10_000, 10_000, Sharing::Shared) else { return };
    t.did("fsync", fs::fsync(&fd));
    // What is not in the kernel's pages yet is read for it, which counts as reading through FUSE.
    seen(t, &mapping, 0, 10_000);
    t.changes(&["a"], "a write through a mapping", |t| {
        mapping.write(5000, b"x");
        t.did("msync", mapping.sync());
    });
    t.changes(&["a"], "msync of nothing", |t| {
        t.did("msync", mapping.sync());
    });
    t.changes(&["a"], "another write and fsync", |t| {
        mapping.write(8192, b"x");
        t.did("fsync", fs::fsync(&fd));
    });
    t.changes(&["a"], "another write and munmap", |_| {
        mapping.write(100, b"y");
        drop(mapping);
    });
}

fn sources_of_programs(t: &mut Transcript) {
    let script = "#!/bin/sh\necho ran with $1\n";
    t.file("script", script.as_bytes());
    let run = |uid: u32| {
        use std::os::unix::process::CommandExt;
        let mut command = std::process::Command::new("./script");
        let output = command.arg("this").uid(uid).gid(uid).output();
        output
            .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
            .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
    };
    for mode in [0o644, 0o700, 0o755, 0o711] {
        t.chmod("script", mode);
        t.record("run by root", run(0));
        t.record("run by another", run(1001));
    }
}

fn sockets_are_bound(t: &mut Transcript) {
    let errno = |e: std::io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
    let socket = std::os::unix::net::UnixListener::bind("socket").map_err(errno);
    let bound = t.did("bind", socket);
    t.record("connect", std::os::unix::net::UnixStream::connect("socket").map(drop).map_err(errno));
    t.did("bind again", std::os::unix::net::UnixListener::bind("socket").map_err(errno));
    t.record("type", fs::lstat("socket").map(|stat| facts(&stat).split(' ').next().unwrap_or("").to_owned()));
    drop(bound);
    t.did("connect", std::os::unix::net::UnixStream::connect("socket").map_err(errno));
    t.unlink("socket");
}

fn watched_names(t: &mut Transcript) {
    // Pipes by name work between two descriptors of one process.
    t.check("mknod", fs::mknodat(fs::CWD, "p", fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0));
    let Some(reader) = t.open("p", O::RDONLY | O::NONBLOCK, 0) else { return };
    let Some(writer) = t.open("p", O::WRONLY, 0) else { return };
    t.record("write", io::write(&writer, b"one"));
    t.rename("p", "q");
    let Some(other) = t.open("q", O::WRONLY | O::NONBLOCK, 0) else { return };
    t.record("write", io::write(&other, b"two"));
    t.read(&reader, 10);
    t.unlink("q");
    t.record("write", io::write(&other, b"three"));
    t.read(&reader, 10);
}
