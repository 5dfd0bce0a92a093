//! Reading directories, also while names come and go, and going back to places in them.

use crate::posix::transcript::{Result, Transcript, cases, entries, entries_from};
use rustix::fd::OwnedFd;
use rustix::fs::{self, FileType, Mode, OFlags as O, SeekFrom};
use rustix::io::Errno;
use std::collections::BTreeSet;

cases![
    names_and_types,
    dots_are_listed,
    inode_numbers_agree,
    empty_directory,
    of_what_is_no_directory,
    from_the_start_again,
    back_to_each_place,
    places_survive_removal,
    places_survive_creation,
    stable_while_names_come_and_go,
    removed_while_listed,
    renamed_while_listed,
    grows_while_listed,
    seen_after_seek_to_start,
    places_of_another_descriptor,
    small_buffers,
    too_small_a_buffer,
    behind_the_end,
    large_directory,
    after_emptying,
    moved_names_are_seen_once,
];

const MODE: Mode = Mode::from_raw_mode(0o644);

fn touch(t: &mut Transcript, path: &str) {
    t.check("create", fs::open(path, O::WRONLY | O::CREATE, MODE));
}

fn filled(t: &mut Transcript, count: usize) -> Option<OwnedFd> {
    t.check("mkdir", fs::mkdir("d", Mode::from_raw_mode(0o755)));
    for number in 0..count {
        touch(t, &format!("d/name-of-a-file-{number:05}"));
    }
    t.open("d", O::RDONLY | O::DIRECTORY, 0)
}

fn names(found: Result<Vec<(String, FileType, u64)>>) -> BTreeSet<String> {
    found.into_iter().flatten().map(|(name, _, _)| name).collect()
}

fn names_and_types(t: &mut Transcript) {
    touch(t, "file");
    t.mkdir("directory", 0o755);
    t.symlink("x", "symlink");
    t.mknod("fifo", FileType::Fifo, 0o644, (0, 0));
    t.mknod("socket", FileType::Socket, 0o644, (0, 0));
    t.mknod("char", FileType::CharacterDevice, 0o644, (1, 3));
    t.mknod("block", FileType::BlockDevice, 0o644, (7, 0));
    let mut found = entries(".").unwrap_or_default();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    for (name, kind, _) in found {
        t.say(format!("{name} {}", crate::posix::transcript::type_name(kind)));
    }
}

fn dots_are_listed(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    for path in ["d", "."] {
        t.say(format!("{:?}", names(entries(path))));
    }
}

fn inode_numbers_agree(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.mkdir("d/sub", 0o755);
    touch(t, "d/a");
    t.link("d/a", "d/b");
    let mut room = vec![std::mem::MaybeUninit::uninit(); 4096];
    let Some(fd) = t.open("d", O::RDONLY, 0) else { return };
    let mut list = fs::RawDir::new(&fd, &mut room);
    let mut found = Vec::new();
    while let Some(Ok(entry)) = list.next() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let stat = fs::lstat(format!("d/{name}"));
        found.push((name, stat.map(|stat| stat.st_ino == entry.ino()).unwrap_or(false)));
    }
    found.sort();
    t.say(format!("{found:?}"));
}

fn empty_directory(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.list("d");
    let Some(fd) = t.open("d", O::RDONLY, 0) else { return };
    t.record("first", entries_from(&fd, usize::MAX).map(|found| found.len()));
    t.record("again", entries_from(&fd, usize::MAX).map(|found| found.len()));
}

fn of_what_is_no_directory(t: &mut Transcript) {
    t.file("a", b"x");
    let Some(fd) = t.open("a", O::RDONLY, 0) else { return };
    t.record("list", entries_from(&fd, 10).map(|found| found.len()));
    t.list("missing");
    t.list("a");
}

fn from_the_start_again(t: &mut Transcript) {
    let Some(fd) = filled(t, 50) else { return };
    let first = names(entries_from(&fd, usize::MAX));
    t.record("at the end", entries_from(&fd, usize::MAX).map(|found| found.len()));
    t.did("rewind", fs::seek(&fd, SeekFrom::Start(0)));
    let second = names(entries_from(&fd, usize::MAX));
    t.say(format!("{} {}", first.len(), first == second));
}

fn back_to_each_place(t: &mut Transcript) {
    let Some(fd) = filled(t, 400) else { return };
    let all = entries_from(&fd, usize::MAX).unwrap_or_default();
    let mut wrong = 0;
    for (index, (_, _, place)) in all.iter().enumerate().rev().step_by(7) {
        let went = fs::seek(&fd, SeekFrom::Start(*place)).is_ok();
        let next = entries_from(&fd, 1).ok().and_then(|found| found.first().map(|entry| entry.0.clone()));
        wrong += u32::from(!went || next.as_ref() != all.get(index + 1).map(|entry| &entry.0));
    }
    t.say(format!("{} names, wrong: {wrong}", all.len()));
}

fn places_survive_removal(t: &mut Transcript) {
    let Some(fd) = filled(t, 300) else { return };
    let all = entries_from(&fd, usize::MAX).unwrap_or_default();
    // The one right behind the place goes, and its neighbours: the rest must still come.
    let place = all[150].2;
    for (name, _, _) in &all[148..155] {
        if !name.starts_with('.') {
            t.check("unlink", fs::unlink(format!("d/{name}")));
        }
    }
    t.did("seek", fs::seek(&fd, SeekFrom::Start(place)));
    let rest = names(entries_from(&fd, usize::MAX));
    let expected: BTreeSet<String> = all[155..].iter().map(|entry| entry.0.clone()).collect();
    t.say(format!("all of the rest: {}", expected.is_subset(&rest)));
}

fn places_survive_creation(t: &mut Transcript) {
    let Some(fd) = filled(t, 60) else { return };
    let all = entries_from(&fd, usize::MAX).unwrap_or_default();
    let place = all[30].2;
    for number in 0..400 {
        touch(t, &format!("d/new-{number}"));
    }
    t.did("seek", fs::seek(&fd, SeekFrom::Start(place)));
    let rest = names(entries_from(&fd, usize::MAX));
    let expected: BTreeSet<String> = all[31..].iter().map(|entry| entry.0.clone()).collect();
    t.say(format!("all of the rest: {}", expected.is_subset(&rest)));
}

fn stable_while_names_come_and_go(t: &mut Transcript) {
    // Names that are there all the time come exactly once, whatever others do.
    let Some(fd) = filled(t, 800) else { return };
    let mut seen = Vec::new();
    let mut number = 0;
    loop {
        let some = entries_from(&fd, 20).unwrap_or_default();
        if some.is_empty() || number > 5000 {
            break;
        }
        seen.extend(some.into_iter().map(|entry| entry.0).filter(|name| name.starts_with("name-of")));
        for _ in 0..10 {
            touch(t, &format!("d/comes-{number}"));
            if number > 20 {
                t.check("unlink", fs::unlink(format!("d/comes-{}", number - 20)));
            }
            number += 1;
        }
    }
    let once: BTreeSet<&String> = seen.iter().collect();
    t.say(format!("{} names, {} different", seen.len(), once.len()));
}

fn removed_while_listed(t: &mut Transcript) {
    // As `rm -r` does it: what was listed goes before the next names are asked for.
    let Some(fd) = filled(t, 1000) else { return };
    let mut removed = 0;
    loop {
        let some = entries_from(&fd, 50).unwrap_or_default();
        if some.is_empty() {
            break;
        }
        for (name, _, _) in some.iter().filter(|entry| !entry.0.starts_with('.')) {
            removed += u32::from(t.check("unlink", fs::unlink(format!("d/{name}"))).is_some());
        }
    }
    t.say(format!("removed {removed}"));
    t.rmdir("d");
}

fn renamed_while_listed(t: &mut Transcript) {
    let Some(fd) = filled(t, 500) else { return };
    t.mkdir("e", 0o755);
    let mut moved = 0;
    loop {
        let some = entries_from(&fd, 30).unwrap_or_default();
        if some.is_empty() {
            break;
        }
        for (name, _, _) in some.iter().filter(|entry| !entry.0.starts_with('.')) {
            moved +=
                u32::from(t.check("rename", fs::rename(format!("d/{name}"), format!("e/{name}"))).is_some());
        }
    }
    t.say(format!("moved {moved}"));
    t.list("d");
    t.record("there", entries("e").map(|found| found.len()));
}

fn grows_while_listed(t: &mut Transcript) {
    let Some(fd) = filled(t, 100) else { return };
    let mut seen = names(entries_from(&fd, 10));
    for number in 100..1200 {
        touch(t, &format!("d/name-of-a-file-{number:05}"));
    }
    loop {
        let some = names(entries_from(&fd, 100));
        if some.is_empty() {
            break;
        }
        seen.extend(some);
    }
    let first = (0..100).filter(|number| seen.contains(&format!("name-of-a-file-{number:05}"))).count();
    t.say(format!("of the first hundred: {first}"));
}

fn seen_after_seek_to_start(t: &mut Transcript) {
    let Some(fd) = filled(t, 3) else { return };
    t.record("first", entries_from(&fd, usize::MAX).map(|found| found.len()));
    touch(t, "d/new");
    t.unlink("d/name-of-a-file-00001");
    t.did("rewind", fs::seek(&fd, SeekFrom::Start(0)));
    t.say(format!("{:?}", names(entries_from(&fd, usize::MAX))));
}

fn places_of_another_descriptor(t: &mut Transcript) {
    let Some(fd) = filled(t, 200) else { return };
    let Some(other) = t.open("d", O::RDONLY, 0) else { return };
    let all = entries_from(&fd, usize::MAX).unwrap_or_default();
    t.did("seek", fs::seek(&other, SeekFrom::Start(all[100].2)));
    let rest: Vec<String> =
        entries_from(&other, usize::MAX).unwrap_or_default().into_iter().map(|entry| entry.0).collect();
    let expected: Vec<String> = all[101..].iter().map(|entry| entry.0.clone()).collect();
    t.say(format!("the rest: {}", rest == expected));
}

fn small_buffers(t: &mut Transcript) {
    let Some(fd) = filled(t, 100) else { return };
    let mut seen = Vec::new();
    while let Ok(some) = entries_from(&fd, 1) {
        if some.is_empty() {
            break;
        }
        // A buffer holds more than one: go back to behind the first.
        seen.push(some[0].0.clone());
        t.check("seek", fs::seek(&fd, SeekFrom::Start(some[0].2)));
    }
    let once: BTreeSet<&String> = seen.iter().collect();
    t.say(format!("{} names, {} different", seen.len(), once.len()));
}

fn too_small_a_buffer(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    touch(t, &format!("d/{}", "n".repeat(200)));
    let Some(fd) = t.open("d", O::RDONLY, 0) else { return };
    let mut room = vec![std::mem::MaybeUninit::uninit(); 16];
    let mut list = fs::RawDir::new(&fd, &mut room);
    let found = list.next().map(|entry| entry.map(|entry| entry.ino()).map(drop));
    t.say(format!("{:?}", found.map(|found| found.map_err(crate::posix::transcript::error_name))));
}

fn behind_the_end(t: &mut Transcript) {
    let Some(fd) = filled(t, 10) else { return };
    let all = entries_from(&fd, usize::MAX).unwrap_or_default();
    t.did("seek", fs::seek(&fd, SeekFrom::Start(all[all.len() - 1].2)));
    t.record("list", entries_from(&fd, usize::MAX).map(|found| found.len()));
    t.record("negative", fs::seek(&fd, SeekFrom::Current(i64::MIN)).map(drop));
}

fn large_directory(t: &mut Transcript) {
    let Some(fd) = filled(t, 6000) else { return };
    let mut seen = Vec::new();
    loop {
        let some = entries_from(&fd, 100).unwrap_or_default();
        if some.is_empty() {
            break;
        }
        seen.extend(some.into_iter().map(|entry| entry.0));
    }
    let once: BTreeSet<&String> = seen.iter().collect();
    t.say(format!("{} names, {} different", seen.len(), once.len()));
    t.stat("d/name-of-a-file-04711");
    t.stat("d/name-of-a-file-06000");
}

fn after_emptying(t: &mut Transcript) {
    drop(filled(t, 1000));
    for number in 0..1000 {
        t.check("unlink", fs::unlink(format!("d/name-of-a-file-{number:05}")));
    }
    t.list("d");
    touch(t, "d/one");
    t.list("d");
    t.unlink("d/one");
    t.rmdir("d");
}

fn moved_names_are_seen_once(t: &mut Transcript) {
    drop(filled(t, 300));
    for round in 0..3 {
        for number in 0..300 {
            let from = if round == 0 { String::new() } else { format!("{}-", round - 1) };
            let result = fs::rename(
                format!("d/{from}name-of-a-file-{number:05}"),
                format!("d/{round}-name-of-a-file-{number:05}"),
            );
            t.check("rename", result);
        }
    }
    let found = entries("d").map_err(|_| Errno::IO).unwrap_or_default();
    let once: BTreeSet<&String> = found.iter().map(|entry| &entry.0).collect();
    t.say(format!("{} names, {} different", found.len(), once.len()));
}
