//! `fallocate` in all its modes, `copy_file_range`.

use crate::posix::transcript::{Transcript, cases};
use rustix::fs::{self, FallocateFlags as F, FileType, Mode, OFlags as O, SeekFrom};
use rustix::io;

cases![
    allocate_inside_and_behind,
    allocate_keeping_the_size,
    allocate_over_data,
    allocate_nothing,
    allocate_of_what_is_no_file,
    allocate_too_far,
    allocated_reads_as_zeros,
    allocated_is_written_into,
    punch,
    punch_inside_a_block,
    punch_everything,
    punch_without_keeping_the_size,
    punch_around_the_end,
    zero,
    zero_keeping_the_size,
    collapse,
    collapse_refused,
    insert,
    insert_refused,
    modes_together,
    modes_on_flagged_files,
    modes_without_writing,
    space_of_each_mode,
    truncate_of_allocated_space,
    punch_of_allocated_space,
    ranges_of_many_extents,
    copy,
    copy_within,
    copy_refused,
    copy_of_holes,
    copy_over_the_end,
    copy_keeps_offsets,
    copy_by_clone,
];

fn made(t: &mut Transcript, name: &str, len: usize) -> Option<rustix::fd::OwnedFd> {
    let fd = t.check("open", fs::open(name, O::RDWR | O::CREATE, Mode::from_raw_mode(0o644)))?;
    // Each stretch of 4 KiB has a letter of its own.
    let bytes: Vec<u8> = (0..len).map(|at| b'a' + u8::try_from(at / 4096 % 26).unwrap()).collect();
    t.check("write", io::pwrite(&fd, &bytes, 0));
    Some(fd)
}

fn allocate_inside_and_behind(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 0) else { return };
    t.fallocate(&fd, F::empty(), 0, 10_000);
    t.fstat(&fd);
    t.sectors(&fd);
    t.fallocate(&fd, F::empty(), 50_000, 10_000);
    t.fstat(&fd);
    t.sectors(&fd);
    t.fallocate(&fd, F::empty(), 0, 1000);
    t.fstat(&fd);
    t.contents("a");
}

fn allocate_keeping_the_size(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 5000) else { return };
    t.fallocate(&fd, F::KEEP_SIZE, 0, 1_000_000);
    t.fstat(&fd);
    t.sectors(&fd);
    t.pwrite(&fd, b"behind", 20_000);
    t.fstat(&fd);
    t.pread(&fd, 30, 19_990);
    t.ftruncate(&fd, 20_006);
    t.sectors(&fd);
    t.contents("a");
}

fn allocate_over_data(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 20_000) else { return };
    t.fallocate(&fd, F::empty(), 1000, 100_000);
    t.fstat(&fd);
    t.contents("a");
}

fn allocate_nothing(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 100) else { return };
    t.fallocate(&fd, F::empty(), 0, 0);
    t.fallocate(&fd, F::empty(), u64::MAX, 10);
    t.fallocate(&fd, F::empty(), 0, u64::MAX);
    t.fallocate(&fd, F::PUNCH_HOLE | F::KEEP_SIZE, 0, 0);
    t.fallocate(&fd, F::COLLAPSE_RANGE, 0, 0);
    t.fstat(&fd);
}

fn allocate_of_what_is_no_file(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.mknod("p", FileType::Fifo, 0o644, (0, 0));
    t.open("d", O::RDONLY, 0).map(|fd| t.fallocate(&fd, F::empty(), 0, 100));
    t.open("p", O::RDWR | O::NONBLOCK, 0).map(|fd| t.fallocate(&fd, F::empty(), 0, 100));
    t.file("a", b"x");
    t.open("a", O::RDONLY, 0).map(|fd| t.fallocate(&fd, F::empty(), 0, 100));
}

fn allocate_too_far(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 100) else { return };
    t.fallocate(&fd, F::empty(), 1 << 44, 100);
    t.fallocate(&fd, F::empty(), 1 << 62, 100);
    t.fallocate(&fd, F::empty(), 0, 1 << 50);
    t.fstat(&fd);
    t.fallocate(&fd, F::empty(), (1 << 63) - 10, 100);
    t.fstat(&fd);
}

fn allocated_reads_as_zeros(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 0) else { return };
    t.fallocate(&fd, F::empty(), 0, 100_000);
    t.pread(&fd, 200_000, 0);
    t.did("fsync", fs::fsync(&fd));
    t.pread(&fd, 200_000, 0);
    t.seek(&fd, SeekFrom::Data(0));
    t.seek(&fd, SeekFrom::Hole(0));
}

fn allocated_is_written_into(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 0) else { return };
    t.fallocate(&fd, F::empty(), 0, 1 << 20);
    for at in [0, 100_000, 500_001, 1_048_570] {
        t.pwrite(&fd, b"data", at);
    }
    t.did("fsync", fs::fsync(&fd));
    t.contents("a");
    t.sectors(&fd);
}

fn punch(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 1 << 18) else { return };
    t.fallocate(&fd, F::PUNCH_HOLE | F::KEEP_SIZE, 65_536, 65_536);
    t.fstat(&fd);
    t.contents("a");
    t.sectors(&fd);
    t.seek(&fd, SeekFrom::Hole(0));
    t.seek(&fd, SeekFrom::Data(65_536));
    t.pwrite(&fd, b"back", 100_000);
    t.pread(&fd, 20, 99_990);
}

fn punch_inside_a_block(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 20_000) else { return };
    t.fallocate(&fd, F::PUNCH_HOLE | F::KEEP_SIZE, 100, 50);
    t.fallocate(&fd, F::PUNCH_HOLE | F::KEEP_SIZE, 4000, 200);
    t.fallocate(&fd, F::PUNCH_HOLE | F::KEEP_SIZE, 9000, 8000);
    t.contents("a");
    t.did("fsync", fs::fsync(&fd));
    t.contents("a");
}

fn punch_everything(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 100_000) else { return };
    t.fallocate(&fd, F::PUNCH_HOLE | F::KEEP_SIZE, 0, 1 << 30);
    t.contents("a");
    t.sectors(&fd);
    t.fstat(&fd);
}

fn punch_without_keeping_the_size(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 100_000) else { return };
    t.fallocate(&fd, F::PUNCH_HOLE, 0, 4096);
    t.fstat(&fd);
}

fn punch_around_the_end(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 10_000) else { return };
    t.fallocate(&fd, F::PUNCH_HOLE | F::KEEP_SIZE, 9000, 100_000);
    t.contents("a");
    t.fallocate(&fd, F::PUNCH_HOLE | F::KEEP_SIZE, 10_000, 100);
    t.fallocate(&fd, F::PUNCH_HOLE | F::KEEP_SIZE, 1 << 40, 100);
    t.fstat(&fd);
    t.ftruncate(&fd, 12_000);
    t.contents("a");
}

fn zero(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 100_000) else { return };
    t.fallocate(&fd, F::ZERO_RANGE, 5000, 50_000);
    t.contents("a");
    t.sectors(&fd);
    t.fallocate(&fd, F::ZERO_RANGE, 99_000, 10_000);
    t.fstat(&fd);
    t.contents("a");
    t.fallocate(&fd, F::ZERO_RANGE, 10, 20);
    t.pread(&fd, 40, 0);
}

fn zero_keeping_the_size(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 10_000) else { return };
    t.fallocate(&fd, F::ZERO_RANGE | F::KEEP_SIZE, 9000, 100_000);
    t.fstat(&fd);
    t.contents("a");
    t.sectors(&fd);
    t.ftruncate(&fd, 50_000);
    t.contents("a");
}

/// The unit of ranges that are taken out or put in: a cluster of whatever volume the suite makes.
const UNIT: u64 = 65_536;

fn collapse(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 6 * 65_536 + 100) else { return };
    t.fallocate(&fd, F::COLLAPSE_RANGE, UNIT, UNIT);
    t.fstat(&fd);
    t.contents("a");
    t.fallocate(&fd, F::COLLAPSE_RANGE, 0, UNIT);
    t.contents("a");
    t.fallocate(&fd, F::PUNCH_HOLE | F::KEEP_SIZE, UNIT, UNIT);
    t.fallocate(&fd, F::COLLAPSE_RANGE, UNIT, UNIT);
    t.contents("a");
    t.sectors(&fd);
}

fn collapse_refused(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 4 * 65_536) else { return };
    t.fallocate(&fd, F::COLLAPSE_RANGE, 100, UNIT);
    t.fallocate(&fd, F::COLLAPSE_RANGE, 0, 100);
    t.fallocate(&fd, F::COLLAPSE_RANGE, 3 * UNIT, UNIT);
    t.fallocate(&fd, F::COLLAPSE_RANGE, 4 * UNIT, UNIT);
    t.fallocate(&fd, F::COLLAPSE_RANGE, 0, 5 * UNIT);
    t.fstat(&fd);
    t.fallocate(&fd, F::COLLAPSE_RANGE, 2 * UNIT, UNIT);
    t.fstat(&fd);
}

fn insert(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 3 * 65_536 + 100) else { return };
    t.fallocate(&fd, F::INSERT_RANGE, UNIT, UNIT);
    t.fstat(&fd);
    t.contents("a");
    t.seek(&fd, SeekFrom::Hole(0));
    t.fallocate(&fd, F::INSERT_RANGE, 0, 2 * UNIT);
    t.contents("a");
    t.pwrite(&fd, b"filled", UNIT);
    t.pread(&fd, 20, UNIT - 5);
    t.sectors(&fd);
}

fn insert_refused(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 4 * 65_536) else { return };
    t.fallocate(&fd, F::INSERT_RANGE, 100, UNIT);
    t.fallocate(&fd, F::INSERT_RANGE, 0, 100);
    t.fallocate(&fd, F::INSERT_RANGE, 4 * UNIT, UNIT);
    t.fallocate(&fd, F::INSERT_RANGE, 5 * UNIT, UNIT);
    t.fallocate(&fd, F::INSERT_RANGE, 0, 1 << 62);
    t.fstat(&fd);
}

fn modes_together(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 4 * 65_536) else { return };
    for mode in [
        F::COLLAPSE_RANGE | F::KEEP_SIZE,
        F::INSERT_RANGE | F::KEEP_SIZE,
        F::COLLAPSE_RANGE | F::INSERT_RANGE,
        F::PUNCH_HOLE | F::KEEP_SIZE | F::ZERO_RANGE,
        F::UNSHARE_RANGE,
        F::UNSHARE_RANGE | F::KEEP_SIZE,
        F::from_bits_retain(4),
        F::from_bits_retain(0x1000),
    ] {
        t.fallocate(&fd, mode, 0, UNIT);
    }
    t.fstat(&fd);
}

fn modes_on_flagged_files(t: &mut Transcript) {
    for flag in [fs::IFlags::APPEND, fs::IFlags::IMMUTABLE] {
        let name = format!("{flag:?}");
        let Some(fd) = made(t, &name, 4 * 65_536) else { continue };
        let flags = fs::ioctl_getflags(&fd);
        t.did("set", flags.and_then(|flags| fs::ioctl_setflags(&fd, flags | flag)));
        for mode in [
            F::empty(),
            F::KEEP_SIZE,
            F::PUNCH_HOLE | F::KEEP_SIZE,
            F::ZERO_RANGE,
            F::COLLAPSE_RANGE,
            F::INSERT_RANGE,
        ] {
            t.fallocate(&fd, mode, UNIT, UNIT);
        }
        t.fstat(&fd);
        t.did("clear", flags.and_then(|flags| fs::ioctl_setflags(&fd, flags)));
    }
}

fn modes_without_writing(t: &mut Transcript) {
    drop(made(t, "a", 4 * 65_536));
    t.chmod("a", 0o444);
    t.as_user(1001, |t| {
        let Some(fd) = t.open("a", O::RDONLY, 0) else { return };
        for mode in [F::empty(), F::PUNCH_HOLE | F::KEEP_SIZE, F::COLLAPSE_RANGE] {
            t.fallocate(&fd, mode, 0, UNIT);
        }
    });
}

fn space_of_each_mode(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 0) else { return };
    let steps = [
        (F::empty(), 0, 8 * UNIT),
        (F::PUNCH_HOLE | F::KEEP_SIZE, UNIT, UNIT),
        (F::ZERO_RANGE, 0, 3 * UNIT),
        (F::COLLAPSE_RANGE, 0, UNIT),
        (F::INSERT_RANGE, UNIT, UNIT),
        (F::KEEP_SIZE, 0, 20 * UNIT),
    ];
    for (mode, at, len) in steps {
        t.fallocate(&fd, mode, at, len);
        t.fstat(&fd);
        t.sectors(&fd);
    }
}

fn truncate_of_allocated_space(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 10_000) else { return };
    t.fallocate(&fd, F::KEEP_SIZE, 0, 1 << 20);
    t.sectors(&fd);
    t.ftruncate(&fd, 10_000);
    t.sectors(&fd);
    t.fallocate(&fd, F::empty(), 0, 1 << 20);
    t.ftruncate(&fd, 70_000);
    t.sectors(&fd);
    t.ftruncate(&fd, 200_000);
    t.contents("a");
    t.sectors(&fd);
}

fn punch_of_allocated_space(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 0) else { return };
    t.fallocate(&fd, F::empty(), 0, 1 << 20);
    t.pwrite(&fd, &[1; 300_000], 300_000);
    t.fallocate(&fd, F::PUNCH_HOLE | F::KEEP_SIZE, 200_000, 200_000);
    t.contents("a");
    t.fallocate(&fd, F::PUNCH_HOLE | F::KEEP_SIZE, 0, 1 << 20);
    t.sectors(&fd);
}

fn ranges_of_many_extents(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 0) else { return };
    for block in 0..200_u64 {
        t.check(
            "pwrite",
            io::pwrite(&fd, &[b'a' + u8::try_from(block % 26).unwrap(); 4096], block * 2 * UNIT),
        );
    }
    t.did("fsync", fs::fsync(&fd));
    t.fallocate(&fd, F::COLLAPSE_RANGE, 100 * UNIT, 40 * UNIT);
    t.fstat(&fd);
    t.fallocate(&fd, F::INSERT_RANGE, 20 * UNIT, 30 * UNIT);
    t.fallocate(&fd, F::PUNCH_HOLE | F::KEEP_SIZE, 200 * UNIT + 5, 10 * UNIT);
    t.fstat(&fd);
    t.sectors(&fd);
    t.did("fsync", fs::fsync(&fd));
    let mut at = 0;
    let mut found = Vec::new();
    while let Ok(start) = fs::seek(&fd, SeekFrom::Data(at)) {
        let mut byte = [0];
        t.check("pread", io::pread(&fd, &mut byte[..], start));
        found.push((start / UNIT, char::from(byte[0])));
        at = fs::seek(&fd, SeekFrom::Hole(start)).unwrap_or(u64::MAX >> 1);
    }
    t.say(format!("{found:?}"));
}

fn copied(
    t: &mut Transcript,
    from: &rustix::fd::OwnedFd,
    at: u64,
    to: &rustix::fd::OwnedFd,
    to_at: u64,
    len: usize,
) {
    let (mut one, mut other) = (at, to_at);
    let result = fs::copy_file_range(from, Some(&mut one), to, Some(&mut other), len);
    t.record(format!("copy_file_range {at} {to_at} {len}"), result);
    t.say(format!("offsets moved {} {}", one - at, other - to_at));
}

fn copy(t: &mut Transcript) {
    let (Some(from), Some(to)) = (made(t, "a", 100_000), made(t, "b", 0)) else { return };
    copied(t, &from, 0, &to, 0, 50_000);
    t.contents("b");
    copied(t, &from, 1000, &to, 60_000, 3000);
    t.contents("b");
    copied(t, &from, 90_000, &to, 0, 20_000);
    t.contents("b");
    copied(t, &from, 100_000, &to, 0, 10);
    copied(t, &from, 0, &to, 0, 0);
    t.stat("a");
}

fn copy_within(t: &mut Transcript) {
    let Some(fd) = made(t, "a", 20_000) else { return };
    let Some(again) = t.open("a", O::RDWR, 0) else { return };
    copied(t, &fd, 0, &fd, 50_000, 9000);
    copied(t, &fd, 0, &fd, 5000, 6000);
    copied(t, &fd, 5000, &again, 0, 6000);
    copied(t, &fd, 0, &fd, 0, 100);
    copied(t, &fd, 0, &again, 10_000, 10_000);
    t.contents("a");
}

fn copy_refused(t: &mut Transcript) {
    let (Some(from), Some(to)) = (made(t, "a", 10_000), made(t, "b", 10_000)) else { return };
    let (Some(reader), Some(writer)) = (t.open("b", O::RDONLY, 0), t.open("a", O::WRONLY, 0)) else { return };
    let Some(append) = t.open("b", O::RDWR | O::APPEND, 0) else { return };
    copied(t, &from, 0, &reader, 0, 10);
    copied(t, &writer, 0, &to, 0, 10);
    copied(t, &from, 0, &append, 0, 10);
    t.mkdir("d", 0o755);
    if let Some(directory) = t.open("d", O::RDONLY, 0) {
        copied(t, &directory, 0, &to, 0, 10);
        copied(t, &from, 0, &directory, 0, 10);
    }
    t.mknod("p", FileType::Fifo, 0o644, (0, 0));
    if let Some(fifo) = t.open("p", O::RDWR | O::NONBLOCK, 0) {
        copied(t, &from, 0, &fifo, 0, 10);
    }
    t.contents("b");
}

fn copy_of_holes(t: &mut Transcript) {
    let (Some(from), Some(to)) = (made(t, "a", 0), made(t, "b", 300_000)) else { return };
    t.ftruncate(&from, 1 << 20);
    t.pwrite(&from, &[b'X'; 65_536], 131_072);
    copied(t, &from, 0, &to, 0, 1 << 20);
    t.contents("b");
}

fn copy_over_the_end(t: &mut Transcript) {
    let (Some(from), Some(to)) = (made(t, "a", 5000), made(t, "b", 0)) else { return };
    copied(t, &from, 4000, &to, 10_000, 1 << 30);
    t.contents("b");
    copied(t, &from, 6000, &to, 0, 100);
    copied(t, &from, 0, &to, (1 << 63) - 5000, 5000);
}

fn copy_keeps_offsets(t: &mut Transcript) {
    let (Some(from), Some(to)) = (made(t, "a", 20_000), made(t, "b", 0)) else { return };
    t.seek(&from, SeekFrom::Start(100));
    t.record("both at their offsets", fs::copy_file_range(&from, None, &to, None, 6000));
    t.seek(&from, SeekFrom::Current(0));
    t.seek(&to, SeekFrom::Current(0));
    t.record("one at its offset", fs::copy_file_range(&from, Some(&mut 0), &to, None, 100));
    t.seek(&from, SeekFrom::Current(0));
    t.seek(&to, SeekFrom::Current(0));
    t.contents("b");
}

fn copy_by_clone(t: &mut Transcript) {
    let (Some(from), Some(to)) = (made(t, "a", 20_000), made(t, "b", 0)) else { return };
    t.did("clone", fs::ioctl_ficlone(&to, &from));
    t.stat("b");
}
