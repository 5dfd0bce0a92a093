//! `read`, `write` and their kin, `truncate`, `lseek`.

use crate::posix::transcript::{Transcript, cases, show_bytes};
use rustix::fs::{self, FileType, Mode, OFlags as O, SeekFrom};
use rustix::io::{self, Errno};
use std::io::{IoSlice, IoSliceMut};

cases![
    write_and_read_back,
    overlapping_writes,
    writes_at_every_alignment,
    write_of_nothing,
    holes_read_as_zeros,
    holes_take_no_space,
    vectors,
    reads_around_the_end,
    far_offsets,
    negative_offsets,
    truncate_shorter_and_longer,
    truncate_inside_a_block_zeroes,
    truncate_of_what_is_no_file,
    truncate_without_permission,
    truncate_far,
    seeks,
    seeks_to_data_and_holes,
    seeks_of_special_files,
    data_is_found_before_it_is_written,
    sectors_of_files,
    small_files_grow,
    zeros_are_data,
    many_small_writes,
    two_descriptors_see_each_other,
    large_file,
    bytes_survive_syncs,
    rewrites_in_place,
    file_by_single_blocks_backwards,
    every_other_block,
    splice_and_sendfile,
    size_limit_of_the_process,
];

fn new(t: &mut Transcript, name: &str) -> Option<rustix::fd::OwnedFd> {
    t.check("open", fs::open(name, O::RDWR | O::CREATE, Mode::from_raw_mode(0o644)))
}

fn write_and_read_back(t: &mut Transcript) {
    let Some(fd) = new(t, "a") else { return };
    t.write(&fd, b"hello, ");
    t.write(&fd, b"world");
    t.fstat(&fd);
    t.read(&fd, 10);
    t.seek(&fd, SeekFrom::Start(0));
    t.read(&fd, 5);
    t.read(&fd, 100);
    t.read(&fd, 100);
    t.contents("a");
}

fn overlapping_writes(t: &mut Transcript) {
    let Some(fd) = new(t, "a") else { return };
    for (at, len, byte) in
        [(0, 9000, b'a'), (4000, 200, b'b'), (8000, 3000, b'c'), (100, 8000, b'd'), (0, 1, b'e')]
    {
        t.pwrite(&fd, &vec![byte; len], at);
    }
    t.contents("a");
    t.fstat(&fd);
}

fn writes_at_every_alignment(t: &mut Transcript) {
    let Some(fd) = new(t, "a") else { return };
    let mut model = vec![0_u8; 70_000];
    for (index, base) in
        [0_usize, 511, 1023, 1024, 4095, 4096, 4097, 8191, 32_768, 65_535].into_iter().enumerate()
    {
        for (step, len) in [1_usize, 2, 511, 1024, 4095, 4096].into_iter().enumerate() {
            let byte = u8::try_from(index * 10 + step + 1).unwrap();
            let end = (base + len).min(model.len());
            model[base..end].fill(byte);
            t.check("pwrite", io::pwrite(&fd, &model[base..end], base as u64));
        }
    }
    let found = std::fs::read("a").unwrap_or_default();
    t.say(format!("size {}, the same: {}", found.len(), found == model[..found.len()]));
}

fn write_of_nothing(t: &mut Transcript) {
    let Some(fd) = new(t, "a") else { return };
    t.write(&fd, b"");
    t.pwrite(&fd, b"", 1_000_000);
    t.fstat(&fd);
    t.sectors(&fd);
}

fn holes_read_as_zeros(t: &mut Transcript) {
    let Some(fd) = new(t, "a") else { return };
    t.pwrite(&fd, b"far", 1_000_000);
    t.pwrite(&fd, b"x", 5000);
    t.pread(&fd, 20, 999_990);
    t.pread(&fd, 3000, 4000);
    t.pread(&fd, 100_000, 200_000);
    t.fstat(&fd);
}

fn holes_take_no_space(t: &mut Transcript) {
    let Some(fd) = new(t, "a") else { return };
    t.ftruncate(&fd, 1 << 30);
    t.sectors(&fd);
    t.pwrite(&fd, &[1; 65_536], 1 << 29);
    t.sectors(&fd);
    t.ftruncate(&fd, 0);
    t.sectors(&fd);
}

fn vectors(t: &mut Transcript) {
    let Some(fd) = new(t, "a") else { return };
    let parts = [IoSlice::new(b"one"), IoSlice::new(b""), IoSlice::new(b"three")];
    t.record("writev", io::writev(&fd, &parts));
    t.record("pwritev", io::pwritev(&fd, &parts, 100));
    let (mut a, mut b) = ([0; 4], [0; 10]);
    let read = io::preadv(&fd, &mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)], 0);
    t.record("preadv", read);
    t.say(format!("{} {}", show_bytes(&a), show_bytes(&b)));
    t.seek(&fd, SeekFrom::Start(98));
    let read = io::readv(&fd, &mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)]);
    t.record("readv", read);
    t.say(format!("{} {}", show_bytes(&a), show_bytes(&b)));
    let append = io::pwritev2(&fd, &parts, 0, io::ReadWriteFlags::APPEND);
    t.record("pwritev2 that appends", append);
    t.record("pwritev2 that syncs", io::pwritev2(&fd, &parts, 0, io::ReadWriteFlags::DSYNC));
    t.contents("a");
}

fn reads_around_the_end(t: &mut Transcript) {
    t.file("a", &[b'q'; 5000]);
    let Some(fd) = t.open("a", O::RDONLY, 0) else { return };
    for (at, len) in
        [(4990, 20), (4999, 1), (5000, 1), (5001, 10), (8192, 10), (0, 0), (0, 10_000), (1 << 40, 5)]
    {
        t.pread(&fd, len, at);
    }
}

fn far_offsets(t: &mut Transcript) {
    let Some(fd) = new(t, "a") else { return };
    t.pwrite(&fd, b"x", (1 << 31) - 1);
    t.pwrite(&fd, b"y", 1 << 32);
    t.fstat(&fd);
    t.pread(&fd, 2, (1 << 31) - 1);
    t.pread(&fd, 5, (1 << 32) - 2);
    t.sectors(&fd);
    for power in [36, 42, 44, 45, 62] {
        t.pwrite(&fd, b"z", 1 << power);
    }
    t.fstat(&fd);
}

fn negative_offsets(t: &mut Transcript) {
    let Some(fd) = new(t, "a") else { return };
    t.pwrite(&fd, b"x", u64::MAX);
    t.pread(&fd, 1, u64::MAX);
    t.pwrite(&fd, b"x", 1 << 63);
    t.pwrite(&fd, b"xyz", (1 << 63) - 2);
    t.record("end - 1", fs::seek(&fd, SeekFrom::End(-1)));
    t.record("current - 1", fs::seek(&fd, SeekFrom::Current(-1)));
    t.ftruncate(&fd, u64::MAX);
    t.fstat(&fd);
}

fn truncate_shorter_and_longer(t: &mut Transcript) {
    t.file("a", &[b'a'; 20_000]);
    for size in [10_000, 10_001, 4096, 4095, 1, 0, 1, 5000, 100_000, 99_999] {
        t.truncate("a", size);
        t.stat("a");
    }
    t.contents("a");
}

fn truncate_inside_a_block_zeroes(t: &mut Transcript) {
    let Some(fd) = new(t, "a") else { return };
    for (short, long) in [(100, 200), (5000, 8192), (4096, 4097), (1, 30_000)] {
        t.pwrite(&fd, &[b'f'; 30_000], 0);
        t.ftruncate(&fd, short);
        t.ftruncate(&fd, long);
        t.contents("a");
        t.did("fsync", fs::fsync(&fd));
        t.ftruncate(&fd, short);
        t.pwrite(&fd, b"!", long);
        t.contents("a");
    }
}

fn truncate_of_what_is_no_file(t: &mut Transcript) {
    let truncate =
        |path: &str, size| nix::unistd::truncate(path, size).map_err(|e| Errno::from_raw_os_error(e as i32));
    t.mkdir("d", 0o755);
    t.file("a", b"x");
    t.symlink("a", "s");
    t.mknod("p", FileType::Fifo, 0o644, (0, 0));
    t.mknod("c", FileType::CharacterDevice, 0o644, (1, 3));
    for (path, size) in [
        ("d", 0),
        ("missing", 0),
        ("a/x", 0),
        ("p", 0),
        ("c", 0),
        ("a", -1),
        ("a", i64::MAX),
        ("s", 7),
        ("", 0),
    ] {
        t.record(format!("truncate {path} {size}"), truncate(path, size));
    }
    t.stat("a");
}

fn truncate_without_permission(t: &mut Transcript) {
    let truncate =
        |path: &str| nix::unistd::truncate(path, 1).map_err(|e| Errno::from_raw_os_error(e as i32));
    t.file("a", b"contents");
    t.chmod("a", 0o644);
    t.as_user(1001, |t| {
        t.record("truncate", truncate("a"));
    });
    t.chmod("a", 0o622);
    t.as_user(1001, |t| {
        t.record("truncate", truncate("a"));
    });
    t.contents("a");
}

fn truncate_far(t: &mut Transcript) {
    let Some(fd) = new(t, "a") else { return };
    for size in [(1 << 32) + 5, 1 << 40, (1 << 44) - 4096, 1 << 44, (1 << 44) + 1, 1 << 50, 1 << 62] {
        t.ftruncate(&fd, size);
        t.fstat(&fd);
    }
    t.ftruncate(&fd, 0);
    t.fstat(&fd);
}

fn seeks(t: &mut Transcript) {
    t.file("a", &[1; 5000]);
    let Some(fd) = t.open("a", O::RDWR, 0) else { return };
    for to in [
        SeekFrom::Start(100),
        SeekFrom::Current(50),
        SeekFrom::Current(-150),
        SeekFrom::Current(-1),
        SeekFrom::End(0),
        SeekFrom::End(-5000),
        SeekFrom::End(-5001),
        SeekFrom::End(1000),
        SeekFrom::Start(1 << 40),
        SeekFrom::Start(1 << 45),
        SeekFrom::Start(1 << 63),
        SeekFrom::Current(0),
    ] {
        t.seek(&fd, to);
    }
    t.fstat(&fd);
}

fn seeks_to_data_and_holes(t: &mut Transcript) {
    let Some(fd) = new(t, "a") else { return };
    for to in [SeekFrom::Data(0), SeekFrom::Hole(0)] {
        t.seek(&fd, to);
    }
    t.pwrite(&fd, &[1; 65_536], 65_536);
    t.pwrite(&fd, &[1; 65_536], 262_144);
    t.ftruncate(&fd, 1 << 20);
    for round in 0..2 {
        for at in [
            0, 1, 65_535, 65_536, 70_000, 131_071, 131_072, 200_000, 262_144, 327_680, 1_048_575, 1_048_576,
            2_000_000,
        ] {
            t.seek(&fd, SeekFrom::Data(at));
            t.seek(&fd, SeekFrom::Hole(at));
        }
        if round == 0 {
            t.did("fsync", fs::fsync(&fd));
        }
    }
    t.seek(&fd, SeekFrom::Data(u64::MAX));
    t.seek(&fd, SeekFrom::Hole(u64::MAX));
    t.seek(&fd, SeekFrom::Start(0));
    t.seek(&fd, SeekFrom::Data(0));
    t.read(&fd, 3);
}

fn seeks_of_special_files(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.file("d/a", b"x");
    if let Some(fd) = t.open("d", O::RDONLY, 0) {
        t.did("start", fs::seek(&fd, SeekFrom::Start(0)));
    }
    t.file("full", &[1; 5000]);
    if let Some(fd) = t.open("full", O::RDONLY, 0) {
        t.seek(&fd, SeekFrom::Hole(0));
        t.seek(&fd, SeekFrom::Hole(4999));
        t.seek(&fd, SeekFrom::Data(4999));
        t.seek(&fd, SeekFrom::Data(5000));
    }
}

fn data_is_found_before_it_is_written(t: &mut Transcript) {
    // Space that was asked for is a hole until something is written there, also when that is only in memory.
    let Some(fd) = new(t, "a") else { return };
    t.fallocate(&fd, fs::FallocateFlags::empty(), 0, 1 << 20);
    t.seek(&fd, SeekFrom::Data(0));
    t.pwrite(&fd, &[1; 65_536], 131_072);
    t.seek(&fd, SeekFrom::Data(0));
    t.seek(&fd, SeekFrom::Hole(131_072));
    t.did("fsync", fs::fsync(&fd));
    t.seek(&fd, SeekFrom::Data(0));
    t.seek(&fd, SeekFrom::Hole(131_072));
}

fn sectors_of_files(t: &mut Transcript) {
    for size in [0_usize, 1, 100, 4096, 4097, 65_536, 1_000_000] {
        let Some(fd) = new(t, &format!("f{size}")) else { continue };
        t.check("write", io::write(&fd, &vec![1; size]));
        t.sectors(&fd);
    }
    t.mkdir("d", 0o755);
    t.open("d", O::RDONLY, 0).map(|fd| t.sectors(&fd));
}

fn small_files_grow(t: &mut Transcript) {
    let Some(fd) = new(t, "a") else { return };
    let mut at = 0;
    for len in [1_u64, 59, 1, 40, 27, 28, 100, 1000, 3000, 10_000] {
        let bytes = vec![b'a' + u8::try_from(len % 26).unwrap(); usize::try_from(len).unwrap()];
        t.check("pwrite", io::pwrite(&fd, &bytes, at));
        at += len;
        t.fstat(&fd);
        t.did("fsync", fs::fsync(&fd));
    }
    t.contents("a");
    t.ftruncate(&fd, 30);
    t.contents("a");
}

fn zeros_are_data(t: &mut Transcript) {
    let Some(fd) = new(t, "a") else { return };
    t.pwrite(&fd, &[0; 65_536], 0);
    t.sectors(&fd);
    t.seek(&fd, SeekFrom::Data(0));
    t.seek(&fd, SeekFrom::Hole(0));
}

fn many_small_writes(t: &mut Transcript) {
    let Some(fd) = new(t, "a") else { return };
    let mut model = Vec::new();
    for number in 0..2000_u32 {
        let text = format!("{number},");
        model.extend_from_slice(text.as_bytes());
        t.check("write", io::write(&fd, text.as_bytes()));
    }
    t.fstat(&fd);
    t.say(format!("the same: {}", std::fs::read("a").is_ok_and(|found| found == model)));
}

fn two_descriptors_see_each_other(t: &mut Transcript) {
    let (Some(one), Some(two)) = (new(t, "a"), new(t, "a")) else { return };
    t.write(&one, b"first");
    t.read(&two, 10);
    t.write(&two, b"second");
    t.read(&one, 10);
    t.ftruncate(&one, 3);
    t.pread(&two, 10, 0);
    t.seek(&two, SeekFrom::Current(0));
    t.write(&two, b"z");
    t.contents("a");
}

/// Bytes that differ from block to block and within one.
fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn large_file(t: &mut Transcript) {
    let bytes = pattern(8 << 20, 5);
    t.check("write", std::fs::write("a", &bytes).map_err(|_| Errno::IO));
    t.stat("a");
    t.say(format!("the same: {}", std::fs::read("a").is_ok_and(|found| found == bytes)));
    t.open("a", O::RDONLY, 0).map(|fd| t.sectors(&fd));
}

fn bytes_survive_syncs(t: &mut Transcript) {
    let Some(fd) = new(t, "a") else { return };
    let bytes = pattern(300_000, 9);
    for (index, part) in bytes.chunks(10_007).enumerate() {
        t.check("write", io::write(&fd, part));
        match index % 4 {
            0 => t.check("fsync", fs::fsync(&fd)),
            1 => t.check("fdatasync", fs::fdatasync(&fd)),
            2 => t.check("syncfs", fs::syncfs(&fd)),
            _ => t.check("advice", fs::fadvise(&fd, 0, None, fs::Advice::DontNeed)),
        };
    }
    t.say(format!("the same: {}", std::fs::read("a").is_ok_and(|found| found == bytes)));
}

fn rewrites_in_place(t: &mut Transcript) {
    let Some(fd) = new(t, "a") else { return };
    for round in 0..20_u32 {
        let bytes = pattern(50_000, round);
        t.check("pwrite", io::pwrite(&fd, &bytes, 0));
        if round % 5 == 0 {
            t.check("fsync", fs::fsync(&fd));
        }
        let same = std::fs::read("a").is_ok_and(|found| found == bytes);
        if !same {
            t.say(format!("round {round} differs"));
        }
    }
    t.fstat(&fd);
}

fn file_by_single_blocks_backwards(t: &mut Transcript) {
    let Some(fd) = new(t, "a") else { return };
    let bytes = pattern(64 * 4096, 3);
    for block in (0..64).rev() {
        t.check("pwrite", io::pwrite(&fd, &bytes[block * 4096..][..4096], block as u64 * 4096));
    }
    t.say(format!("the same: {}", std::fs::read("a").is_ok_and(|found| found == bytes)));
    t.sectors(&fd);
}

fn every_other_block(t: &mut Transcript) {
    let Some(fd) = new(t, "a") else { return };
    for block in (0..400_u64).step_by(2) {
        t.check("pwrite", io::pwrite(&fd, &[7; 4096], block * 4096));
    }
    t.did("fsync", fs::fsync(&fd));
    t.fstat(&fd);
    t.seek(&fd, SeekFrom::Hole(0));
    t.seek(&fd, SeekFrom::Data(396 * 4096));
    let found = std::fs::read("a").unwrap_or_default();
    let right = found
        .chunks(4096)
        .enumerate()
        .all(|(index, block)| block.iter().all(|byte| *byte == if index % 2 == 0 { 7 } else { 0 }));
    t.say(format!("{} {right}", found.len()));
    for block in (0..400_u64).skip(1).step_by(2) {
        t.check("pwrite", io::pwrite(&fd, &[8; 4096], block * 4096));
    }
    t.ftruncate(&fd, 123_456);
    t.fstat(&fd);
    t.pread(&fd, 8200, 4090);
}

fn splice_and_sendfile(t: &mut Transcript) {
    t.file("a", &pattern(100_000, 1));
    let (Some(from), Some(to)) = (t.open("a", O::RDONLY, 0), new(t, "b")) else { return };
    let mut at = 5000;
    t.record("sendfile", fs::sendfile(&to, &from, Some(&mut at), 50_000));
    t.record("offset", Ok(at));
    let same = || Some(std::fs::read("a").ok()?.get(5000..55_000)? == std::fs::read("b").ok()?);
    t.say(format!("the same: {:?}", same()));
}

fn size_limit_of_the_process(t: &mut Transcript) {
    // As a program run with `ulimit -f`: the write stops at the limit, then fails.
    let script = "ulimit -f 8; trap '' XFSZ; head -c 20000 /dev/zero > limited 2>/dev/null; echo $?";
    let output = std::process::Command::new("bash").args(["-c", script]).output();
    if let Ok(output) = output {
        t.say(format!("status {}", String::from_utf8_lossy(&output.stdout).trim()));
    }
    t.stat("limited");
}
