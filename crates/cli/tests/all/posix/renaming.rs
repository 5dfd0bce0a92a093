//! `rename` and `renameat2`: each pair of types, the flags, subtrees, links, other users.

use crate::posix::transcript::{Transcript, cases};
use rustix::fs::{FileType, OFlags as O, RenameFlags};

cases![
    every_pair_of_types,
    every_pair_without_replacing,
    every_pair_exchanged,
    to_itself,
    two_names_of_one_file,
    into_its_own_subtree,
    missing_parts,
    across_directories,
    directory_moves_its_parent,
    directory_over_empty_directory,
    directory_over_full_directory,
    exchange_of_directories,
    exchange_with_an_ancestor,
    flags_together,
    whiteouts,
    link_counts_after_moves,
    onto_a_name_with_more_links,
    longer_and_shorter_names,
    by_another_user,
    of_a_directory_by_another_user,
    to_another_file_system,
    open_file_keeps_its_contents,
    open_directory_goes_along,
    many_times,
    chain_of_replacements,
    dot_dot_after_a_move,
];

const TYPES: [&str; 7] = ["file", "empty", "full", "link", "dangling", "fifo", "missing"];

/// One of each type, in a directory of its own.
fn make(t: &mut Transcript, below: &str, name: &str, kind: &str) {
    let path = format!("{below}/{name}");
    let mode = rustix::fs::Mode::from_raw_mode(0o755);
    match kind {
        "file" => {
            t.check("make", std::fs::write(&path, name).map_err(|_| rustix::io::Errno::IO));
        }
        "empty" => {
            t.check("make", rustix::fs::mkdir(path.as_str(), mode));
        }
        "full" => {
            t.check("make", rustix::fs::mkdir(path.as_str(), mode));
            t.check("make", rustix::fs::mkdir(format!("{path}/inner"), mode));
        }
        "link" => {
            t.check("make", rustix::fs::symlink(".", path.as_str()));
        }
        "dangling" => {
            t.check("make", rustix::fs::symlink("nowhere", path.as_str()));
        }
        "fifo" => {
            t.check("make", rustix::fs::mknodat(rustix::fs::CWD, path.as_str(), FileType::Fifo, mode, 0));
        }
        _ => {}
    }
}

/// Each type renamed to each by `rename`, and what is left.
fn pairs(t: &mut Transcript, flags: RenameFlags) {
    for from in TYPES {
        for to in TYPES {
            let below = format!("{from}-{to}");
            t.check("mkdir", rustix::fs::mkdir(below.as_str(), rustix::fs::Mode::from_raw_mode(0o755)));
            make(t, &below, "from", from);
            make(t, &below, "to", to);
            let (one, other) = (format!("{below}/from"), format!("{below}/to"));
            t.rename_with(&one, &other, flags);
            let stat =
                |path: &str| rustix::fs::lstat(path).map(|stat| crate::posix::transcript::facts(&stat));
            t.record("  from", stat(&one));
            t.record("  to", stat(&other));
            t.record("  links of the parent", rustix::fs::lstat(below.as_str()).map(|stat| stat.st_nlink));
        }
    }
}

fn every_pair_of_types(t: &mut Transcript) {
    pairs(t, RenameFlags::empty());
}

fn every_pair_without_replacing(t: &mut Transcript) {
    pairs(t, RenameFlags::NOREPLACE);
}

fn every_pair_exchanged(t: &mut Transcript) {
    pairs(t, RenameFlags::EXCHANGE);
}

fn to_itself(t: &mut Transcript) {
    t.file("a", b"x");
    t.mkdir("d", 0o755);
    t.rename("a", "a");
    t.rename("d", "d");
    t.rename("d", "./d");
    t.rename_with("a", "a", RenameFlags::NOREPLACE);
    t.rename_with("a", "a", RenameFlags::EXCHANGE);
    t.list(".");
}

fn two_names_of_one_file(t: &mut Transcript) {
    t.file("a", b"x");
    t.link("a", "b");
    t.rename("a", "b");
    t.list(".");
    t.stat("a");
    t.rename_with("a", "b", RenameFlags::NOREPLACE);
    t.rename_with("a", "b", RenameFlags::EXCHANGE);
    t.stat("b");
    t.list(".");
}

fn into_its_own_subtree(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.mkdir("d/e", 0o755);
    t.mkdir("d/e/f", 0o755);
    t.rename("d", "d/x");
    t.rename("d", "d/e/x");
    t.rename("d", "d/e/f");
    t.rename("d/e", "d/e/f/x");
    t.rename("d/e/f", "d/e");
    t.rename("d/e/f", "d");
    t.rename_with("d", "d/e", RenameFlags::EXCHANGE);
    t.rename_with("d/e", "d", RenameFlags::EXCHANGE);
    t.list(".");
    t.list("d/e");
}

fn missing_parts(t: &mut Transcript) {
    t.file("a", b"x");
    t.mkdir("d", 0o755);
    t.rename("missing", "b");
    t.rename("missing", "a");
    t.rename("a", "missing/b");
    t.rename("missing/a", "b");
    t.rename("a/x", "b");
    t.rename("a", "a/x");
    t.rename("d", "a/x");
    t.rename("", "b");
    t.rename("a", "");
    t.rename(".", "b");
    t.rename("a", ".");
    t.rename("..", "b");
    t.rename("d", "..");
    t.rename_with("missing", "a", RenameFlags::EXCHANGE);
    t.rename_with("a", "missing", RenameFlags::EXCHANGE);
    t.list(".");
}

fn across_directories(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.mkdir("e", 0o755);
    t.file("d/a", b"moved");
    t.rename("d/a", "e/b");
    t.list("d");
    t.contents("e/b");
    t.file("d/a", b"again");
    t.rename("d/a", "e/b");
    t.contents("e/b");
    t.symlink("../e/b", "d/s");
    t.rename("d/s", "s");
    t.readlink("s");
    t.mknod("d/p", FileType::Fifo, 0o644, (0, 0));
    t.rename("d/p", "e/p");
    t.stat("e/p");
    t.stat("d");
    t.stat("e");
}

fn directory_moves_its_parent(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.mkdir("e", 0o700);
    t.mkdir("d/moved", 0o755);
    t.file("d/moved/a", b"x");
    t.stat("d");
    t.stat("e");
    t.rename("d/moved", "e/moved");
    t.stat("d");
    t.stat("e");
    t.stat("e/moved/..");
    t.contents("e/moved/a");
    t.rename("e/moved", "e/again");
    t.stat("e");
    t.rename("e/again", "up");
    t.stat("e");
    t.rmdir("d");
    t.list(".");
}

fn directory_over_empty_directory(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.mkdir("d/inner", 0o755);
    t.mkdir("e", 0o700);
    t.rename("d", "e");
    t.stat("e");
    t.list("e");
    t.mkdir("f", 0o755);
    t.mkdir("f/target", 0o755);
    t.rename("e", "f/target");
    t.stat("f");
    t.stat("f/target");
    t.list(".");
}

fn directory_over_full_directory(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.mkdir("e", 0o755);
    t.file("e/a", b"x");
    t.rename("d", "e");
    t.unlink("e/a");
    t.mkdir("e/sub", 0o755);
    t.rename("d", "e");
    t.rmdir("e/sub");
    t.rename("d", "e");
    t.list(".");
}

fn exchange_of_directories(t: &mut Transcript) {
    t.mkdir("one", 0o755);
    t.mkdir("two", 0o755);
    t.mkdir("one/d", 0o711);
    t.mkdir("one/d/x", 0o755);
    t.file("two/f", b"file");
    t.rename_with("one/d", "two/f", RenameFlags::EXCHANGE);
    t.stat("one");
    t.stat("two");
    t.contents("one/d");
    t.list("two/f");
    t.stat("two/f/..");
    t.mkdir("one/e", 0o700);
    t.rename_with("one/e", "two/f", RenameFlags::EXCHANGE);
    t.stat("one");
    t.stat("two");
    t.stat("one/e/..");
    t.rename_with("one", "two", RenameFlags::EXCHANGE);
    t.list("one");
    t.list("two");
}

fn exchange_with_an_ancestor(t: &mut Transcript) {
    t.mkdir("a", 0o755);
    t.mkdir("a/b", 0o755);
    t.file("a/b/c", b"x");
    t.rename_with("a/b/c", "a", RenameFlags::EXCHANGE);
    t.rename_with("a", "a/b/c", RenameFlags::EXCHANGE);
    t.rename_with("a/b/c", "a/b", RenameFlags::EXCHANGE);
    t.contents("a/b/c");
}

fn flags_together(t: &mut Transcript) {
    t.file("a", b"x");
    t.file("b", b"y");
    t.rename_with("a", "b", RenameFlags::EXCHANGE | RenameFlags::NOREPLACE);
    t.rename_with("a", "c", RenameFlags::from_bits_retain(0x80));
    t.rename_with("a", "b", RenameFlags::EXCHANGE | RenameFlags::WHITEOUT);
    t.list(".");
}

fn whiteouts(t: &mut Transcript) {
    t.file("a", b"x");
    t.rename_with("a", "b", RenameFlags::WHITEOUT);
    t.stat("a");
    t.contents("b");
    t.chmod(".", 0o777);
    t.as_user(1001, |t| {
        t.file("u", b"x");
        t.rename_with("u", "v", RenameFlags::WHITEOUT);
    });
    t.list(".");
}

fn link_counts_after_moves(t: &mut Transcript) {
    for name in ["p", "q", "p/1", "p/2", "p/3", "q/4"] {
        t.mkdir(name, 0o755);
    }
    t.rename("p/1", "q/1");
    t.rename("p/2", "q/4");
    t.stat("p");
    t.stat("q");
    t.rename_with("p/3", "q/1", RenameFlags::EXCHANGE);
    t.stat("p");
    t.stat("q");
    t.file("p/f", b"");
    t.rename_with("p/f", "q/1", RenameFlags::EXCHANGE);
    t.stat("p");
    t.stat("q");
}

fn onto_a_name_with_more_links(t: &mut Transcript) {
    t.file("a", b"one");
    t.file("b", b"two");
    t.link("b", "b2");
    t.link("a", "a2");
    t.rename("a", "b");
    t.stat("b");
    t.stat("b2");
    t.contents("b2");
    t.stat("a2");
    t.list(".");
}

fn longer_and_shorter_names(t: &mut Transcript) {
    t.file("a", b"x");
    let mut name = "a".to_owned();
    for length in [255, 1, 128, 7, 255, 254, 2] {
        let next = "n".repeat(length);
        t.rename(&name, &next);
        name = next;
    }
    t.contents(&name);
    t.list(".");
}

fn by_another_user(t: &mut Transcript) {
    t.mkdir("open", 0o777);
    t.chmod("open", 0o777);
    t.mkdir("shut", 0o755);
    t.file("open/a", b"x");
    t.file("shut/b", b"x");
    t.as_user(1001, |t| {
        t.rename("open/a", "open/c");
        t.rename("open/c", "shut/c");
        t.rename("shut/b", "open/b");
        t.rename("shut/b", "shut/c");
        t.rename("shut/missing", "shut/c");
        t.rename_with("open/c", "shut/b", RenameFlags::EXCHANGE);
    });
    t.chmod("shut", 0o700);
    t.as_user(1001, |t| t.rename("shut/b", "open/b"));
    t.list("open");
    t.list("shut");
}

fn of_a_directory_by_another_user(t: &mut Transcript) {
    // Changing `..` of a directory is writing it.
    t.mkdir("one", 0o777);
    t.chmod("one", 0o777);
    t.mkdir("two", 0o777);
    t.chmod("two", 0o777);
    t.mkdir("one/roots", 0o755);
    t.mkdir("one/theirs", 0o755);
    t.chown("one/theirs", Some(1001), Some(1001));
    t.as_user(1001, |t| {
        t.rename("one/roots", "two/roots");
        t.rename("one/theirs", "two/theirs");
        t.rename("one/roots", "one/here");
    });
    t.list("one");
    t.list("two");
}

fn to_another_file_system(t: &mut Transcript) {
    t.file("a", b"x");
    t.rename("a", "/proc/a");
    t.rename("/proc/self/status", "b");
    t.rename("a", "/dev/shm/never");
    t.list(".");
}

fn open_file_keeps_its_contents(t: &mut Transcript) {
    t.file("a", b"one");
    let Some(fd) = t.open("a", O::RDWR | O::APPEND, 0) else { return };
    t.write(&fd, b"two");
    t.rename("a", "b");
    t.write(&fd, b"three");
    t.contents("b");
    t.mkdir("d", 0o755);
    t.rename("b", "d/c");
    t.write(&fd, b"four");
    t.contents("d/c");
    t.fstat(&fd);
}

fn open_directory_goes_along(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.mkdir("e", 0o755);
    let Some(fd) = t.open("d", O::RDONLY, 0) else { return };
    t.rename("d", "e/moved");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    t.did("create in it", rustix::fs::openat(&fd, "a", O::WRONLY | O::CREATE, mode));
    t.list("e/moved");
    t.did("up from it", rustix::fs::openat(&fd, "../moved/a", O::RDONLY, mode));
}

fn many_times(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.mkdir("e", 0o755);
    for number in 0..300 {
        let made = std::fs::write(format!("d/{number}"), number.to_string());
        t.check("write", made.map_err(|_| rustix::io::Errno::IO));
    }
    for number in 0..300 {
        t.check("move", rustix::fs::rename(format!("d/{number}"), format!("e/{}", (number * 7) % 300)));
    }
    t.record("left", crate::posix::transcript::names_of("d").map(|names| names.len()));
    t.record("there", crate::posix::transcript::names_of("e").map(|names| names.len()));
    let wrong = (0..300).filter(|number: &u32| {
        std::fs::read_to_string(format!("e/{}", (number * 7) % 300)).ok() != Some(number.to_string())
    });
    t.say(format!("wrong: {}", wrong.count()));
}

fn chain_of_replacements(t: &mut Transcript) {
    for number in 0..50_u8 {
        let write = || {
            std::fs::write("new", [number; 5000])?;
            std::fs::rename("new", "current")
        };
        t.check("replace", write().map_err(|_| rustix::io::Errno::IO));
    }
    t.contents("current");
    t.list(".");
}

fn dot_dot_after_a_move(t: &mut Transcript) {
    t.mkdir("a", 0o755);
    t.mkdir("b", 0o755);
    t.file("a/mark", b"in a");
    t.file("b/mark", b"in b");
    t.mkdir("a/d", 0o755);
    t.contents("a/d/../mark");
    t.rename("a/d", "b/d");
    t.contents("b/d/../mark");
    let inode = |path: &str| rustix::fs::lstat(path).map(|stat| stat.st_ino);
    let listed = std::fs::metadata("b/d/..").ok().map(|found| std::os::unix::fs::MetadataExt::ino(&found));
    t.say(format!("same: {}", inode("b").ok() == listed));
    t.rename("b/d", "d");
    t.say(format!("same: {}", inode(".").ok() == inode("d/..").ok()));
}
