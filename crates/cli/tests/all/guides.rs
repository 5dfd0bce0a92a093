//! The guides of the manual and the README: each command in them is run, in order, by the user they speak to: one without
//! rights, at home, with the installed command. It prints what the guide shows.
//!
//! In blocks marked `console` a line that begins with `$ ` is a command, and the lines behind it are what it prints.
//! `...` stands for any text of a line, and alone on a line for any lines. `(exit code N)` stands last; without it the
//! command succeeds.

use std::collections::BTreeSet;
use std::fs;

use crate::support::installed::{User, project};
use crate::support::mounted::{have_fuse, is_advice};
use testkit::tool;

const EXIT: &str = "(exit code ";

/// A command of a guide, with what it is to print.
struct Shown<'g> {
    command: &'g str,
    lines: Vec<&'g str>,
    code: i32,
}

fn shown(guide: &str) -> Vec<Shown<'_>> {
    let (mut all, mut inside) = (Vec::<Shown<'_>>::new(), false);
    for line in guide.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if !inside && line.starts_with("$ ") {
            panic!("a command that no test runs: {line}");
        } else if let (true, Some(command)) = (inside, line.strip_prefix("$ ")) {
            all.push(Shown { command, lines: Vec::new(), code: 0 });
        } else if inside {
            let last = all.last_mut().expect("a block begins with a command");
            match line.strip_prefix(EXIT).and_then(|rest| rest.strip_suffix(')')) {
                Some(code) => last.code = code.parse().unwrap(),
                None => last.lines.push(line),
            }
        }
    }
    all
}

/// Returns true if a line is what a pattern shows.
fn is_line(line: &str, pattern: &str) -> bool {
    let Some((first, rest)) = pattern.split_once("...") else { return line == pattern };
    let Some(line) = line.strip_prefix(first) else { return false };
    (0..=line.len()).any(|at| line.is_char_boundary(at) && is_line(&line[at..], rest))
}

/// Returns true if lines are what patterns show, one of them standing for any number.
fn are_lines(lines: &[&str], patterns: &[&str]) -> bool {
    match (lines, patterns) {
        (_, []) => lines.is_empty(),
        (_, ["...", rest @ ..]) => (0..=lines.len()).any(|at| are_lines(&lines[at..], rest)),
        ([line, lines @ ..], [pattern, rest @ ..]) => is_line(line, pattern) && are_lines(lines, rest),
        ([], _) => false,
    }
}

/// Runs the commands of a file as a user; `ready` are lines that make what the reader is taken to have.
fn run(test: &str, file: &str, ready: &str, is_text: impl Fn(&[&str], &[&str]) -> bool) {
    let Some(user) = User::new(test) else { return };
    let guide = fs::read_to_string(project().join(file)).unwrap();
    let all = shown(&guide);
    assert!(all.len() > 2, "{file}: {} commands", all.len());
    tool::run(&mut user.shell(ready));
    for Shown { command, lines, code } in all {
        let output = user.shell(command).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        let found: Vec<_> = printed.lines().filter(|line| !is_advice(line)).collect();
        assert_eq!(output.status.code(), Some(code), "{file}: $ {command}\n{printed}");
        assert!(is_text(&found, &lines), "{file}: $ {command}\n{printed}\nis not\n{}", lines.join("\n"));
    }
}

fn guide(test: &str, name: &str) {
    run(test, &format!("docs/guides/{name}.md"), "true", are_lines);
}

/// A line whose numbers are all the same.
fn without_numbers(line: &str) -> String {
    let mut out = String::new();
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        let is_point = letter == '.' && letters.peek().is_some_and(char::is_ascii_digit);
        match letter.is_ascii_digit() || is_point && out.ends_with('0') {
            true if out.ends_with('0') => {}
            true => out.push('0'),
            false => out.push(letter),
        }
    }
    out
}

#[test]
fn patterns_stand_for_what_they_show() {
    assert!(is_line("a: 12 files", "a: ... files") && !is_line("a: 12 file", "a: ... files"));
    assert!(is_line("a", "a") && !is_line("ab", "a") && is_line("ab", "a..."));
    assert!(are_lines(&["a", "b", "c"], &["a", "..."]) && are_lines(&["c"], &["...", "c"]));
    assert!(!are_lines(&["a", "b"], &["a"]) && !are_lines(&[], &["a"]) && are_lines(&[], &["..."]));
}

#[test]
fn images_are_built() {
    if tool::have_tools("images_are_built", &["bash", "e2fsck"]) {
        guide("images_are_built", "images");
    }
}

#[test]
fn a_broken_disk_is_rescued() {
    if tool::have_tools("a_broken_disk_is_rescued", &["bash", "dd", "tar"]) {
        guide("a_broken_disk_is_rescued", "rescue");
    }
}

#[test]
fn an_image_is_mounted() {
    let test = "an_image_is_mounted";
    if tool::have_tools(test, &["bash", "tar", "split"]) && have_fuse(test) {
        guide(test, "rootless");
    }
}

/// A root file system that has what its figures name: files, directories, links and special files.
const ROOTFS: &str = "mkdir -p t/etc t/dir && echo 12.15 >t/etc/debian_version && head -c 30000000 /dev/urandom >t/dir/data \
                      && ln -s data t/dir/link && ln t/dir/data t/dir/second && mkfifo t/pipe \
                      && tar --owner=0 --group=0 -cf rootfs.tar -C t . && rm -r t";

#[test]
fn the_readme_is_true() {
    let test = "the_readme_is_true";
    if tool::have_tools(test, &["tar", "mkfifo"]) {
        run(test, "README.md", ROOTFS, |found, shown| {
            let same = |lines: &[&str]| lines.iter().map(|line| without_numbers(line)).collect::<Vec<_>>();
            same(found) == same(&shown.iter().copied().filter(|line| !line.is_empty()).collect::<Vec<_>>())
        });
    }
}

#[test]
fn each_guide_has_a_test() {
    let names = fs::read_dir(project().join("docs/guides")).unwrap();
    let names: BTreeSet<_> = names.map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["images.md", "rescue.md", "rootless.md"]);
}

/// Stands for the command with the words of the remedy, as the error prints it.
const AS_PRINTED: &str = "";

/// Errors that a new user meets, each with the words of the remedy, and the line that is the remedy.
const ERRORS: &[(&str, &str, &str)] = &[
    ("plat lst disk.img", "did you mean `ls`", "plat ls disk.img"),
    ("plat disk.img", "plat info disk.img", AS_PRINTED),
    ("plat mkfs.ext4 other.img 8M", "`plat mkfs IMAGE SIZE`", "plat mkfs other.img 8M"),
    ("plat fsck disk.img", "`plat check IMAGE`", "plat check disk.img"),
    ("plat ls tree", "plat build tree tree.img", AS_PRINTED),
    ("plat ls /tree disk.img", "plat ls disk.img /tree", AS_PRINTED),
    ("plat put file disk.img /b", "plat put disk.img file /b", AS_PRINTED),
    ("plat build swapped.img tree", "plat build tree swapped.img", AS_PRINTED),
    ("plat ls good.tar", "plat build good.tar good.tar.img", AS_PRINTED),
    ("plat ls packed.img.gz", "gzip -dc", AS_PRINTED),
    ("plat ls x.qcow2", "qemu-img convert", AS_PRINTED),
    ("plat ls x.simg", "simg2img", AS_PRINTED),
    ("plat ls x.zst", "zstd -d", AS_PRINTED),
    ("plat ls shut.img", "chmod u+rw shut.img", AS_PRINTED),
    ("plat mount disk.img there", "mkdir there", AS_PRINTED),
    ("plat mount -o nothing disk.img m", "plat help mount-options", AS_PRINTED),
    ("plat umount m", "plat mount", AS_PRINTED),
    ("plat mount disk.img m && plat resize disk.img 64M", "plat umount", AS_PRINTED),
    ("plat mount -o fakeroot disk.img m && plat umount", "/disk.img on /", "plat umount m"),
    ("plat mkfs sized.img 64MB", "`64M`", "plat mkfs sized.img 64M"),
    ("plat mkfs unsized.img", "plat mkfs unsized.img 64M", AS_PRINTED),
    ("plat mkfs -c -q tested.img 8M", "leave it out", "plat mkfs -q tested.img 8M"),
    ("plat mkfs -t xfs typed.img 8M", "ext2, ext3, ext4", "plat mkfs -t ext3 typed.img 8M"),
    ("plat build notes noted.img", "a source must be a directory", "plat build tree noted.img"),
    ("plat mkfs -q closed/x.img 8M", "~/x.img", "plat mkfs -q ~/x.img 8M"),
    ("plat build tree closed/named.img", "~/named.img", "plat build tree ~/named.img"),
    ("plat build --force tree notes", "rm notes", AS_PRINTED),
    (
        "plat rm disk.img /tree",
        "--recursive",
        "plat rm --recursive disk.img /tree && plat put -r disk.img tree /tree",
    ),
    (
        "plat undelete --into tree disk.img",
        "is not empty",
        "mkdir -p found && plat undelete --into found disk.img",
    ),
    ("plat export disk.img tree", "name a new one", "plat export disk.img out/"),
    ("plat df disk.img", "`plat info IMAGE`", "plat info disk.img"),
    ("plat ls disk.img:/tree", "disk.img /tree", "plat ls disk.img /tree"),
    ("plat chmod 644 disk.img /tree", "first comes the image", "plat chmod disk.img 755 /tree"),
    ("plat get disk.img /tree copy", "--recursive", "plat get --recursive disk.img /tree copy"),
    ("plat mkdir locked.img /a", "plat tune -O ^read-only locked.img", AS_PRINTED),
    ("plat mkdir shared.img /a", "plat tune -O ^shared_blocks shared.img", AS_PRINTED),
    ("plat put disk.img good.tar", "plat put disk.img good.tar /good.tar", AS_PRINTED),
    ("plat put file /c", "the image is missing", "plat put disk.img file /c"),
    ("plat build tree/", "plat build tree/ tree.img", "plat build tree/ other-tree.img"),
    (
        "plat mount disk.img /usr",
        "mkdir ~/mnt",
        "mkdir ~/mnt && plat mount disk.img ~/mnt && plat umount ~/mnt",
    ),
    ("plat put disk.img file /tree/file", "--force", "plat put --force disk.img file /tree/file"),
    ("plat mv disk.img /a /tree/file", "--force", "plat mv --force disk.img /a /tree/file"),
    ("plat put disk.img file /x/", "no such file", "plat mkdir disk.img /x && plat put disk.img file /x/"),
    ("plat build tree old.img", "--force", "plat build --force tree old.img"),
    ("plat build --size 10 tree new.img", "64M", "plat build --size 64M tree new.img"),
    ("plat build --size 1M big big.img", "`--size auto`", "plat build --size auto big big.img"),
    ("plat put old.img numbers /", "plat resize old.img", AS_PRINTED),
    ("plat mkfs tiny.img 8K", "64M", "plat mkfs tiny.img 64M"),
    ("plat resize disk.img 1M", "plat resize -P disk.img", "plat resize -P disk.img"),
    ("plat xattr disk.img /tree -x user.none", "no attribute user.none", "plat xattr disk.img /tree"),
    ("plat chown disk.img nobody /tree", "a number", "plat chown disk.img 65534 /tree"),
    (
        "plat store ls store",
        "file://",
        "mkdir store && plat push disk.img file://$PWD/store#a && plat store ls $PWD/store",
    ),
    (
        "plat mkfs -q closed.img 8M && plat mount closed.img m && echo x >m/x",
        "-o fakeroot",
        "plat umount m && plat mount -o fakeroot closed.img m && echo x >m/x && plat umount m",
    ),
];

#[test]
fn each_error_of_a_new_user_names_its_remedy() {
    let test = "each_error_of_a_new_user_names_its_remedy";
    if !tool::have_tools(test, &["debugfs", "seq", "tar", "gzip"]) || !have_fuse(test) {
        return;
    }
    let Some(user) = User::new(test) else { return };
    let ready = "mkdir -p tree m && echo a >tree/file && echo b >file && \
                 plat build -q tree/.. disk.img --exclude disk.img --size 16M && plat put disk.img file /a && plat build -q tree old.img \
                 && tar -cf good.tar tree && gzip -c disk.img >packed.img.gz && echo text >notes && cp old.img shut.img \
                 && chmod 0 shut.img && mkdir -m 555 closed && plat build -q tree x.qcow2 && plat build -q tree x.simg \
                 && plat build -q tree x.zst && mkdir big && seq 1000000 >numbers && cp numbers big && plat mkfs -q locked.img 8M && plat mkfs -q shared.img 8M \
                 && debugfs -w -R 'feature read-only' locked.img && debugfs -w -R 'feature shared_blocks' shared.img";
    tool::run(&mut user.shell(ready));
    for (line, remedy, right) in ERRORS {
        let refused = user.shell(line).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stdout).into_owned();
        assert!(!refused.status.success() && said.contains(remedy), "{line}: {said}");
        let mut printed = said.split('`').skip(1).step_by(2).filter(|command| command.contains(remedy));
        let right = if *right == AS_PRINTED { printed.next().unwrap() } else { right };
        let program = right.split(' ').next().unwrap_or_default();
        if program.starts_with(['q', 's', 'z']) && !tool::have_tools(test, &[program]) {
            continue;
        }
        let done = user.shell(right).output().unwrap();
        assert!(done.status.success(), "{right}: {}", String::from_utf8_lossy(&done.stdout));
    }
}

#[test]
fn a_mount_with_fakeroot_is_worked_on_by_its_user() {
    let test = "a_mount_with_fakeroot_is_worked_on_by_its_user";
    if !tool::have_tools(test, &["e2fsck"]) || !have_fuse(test) {
        return;
    }
    let Some(user) = User::new(test) else { return };
    let lines = "mkdir m tree && echo a >tree/a && plat mkfs -q v.img 16M && plat mount -q -o rw,fakeroot v.img m && \
                 plat put -r m tree / && plat snapshot m s.img && plat cp -r m/tree m/copy && plat rm m/copy/a && plat resize m 24M && \
                 [ $(cat m/tree/a) = a ] && [ ! -e m/copy/a ] && plat umount m && e2fsck -fn v.img";
    let done = user.shell(lines).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}

/// Lines that fill a volume of 1 MiB, `v.img`, or the mount `m` of one with a journal.
const FILLING: &[&str] = &[
    "plat put v.img numbers /f",
    "plat put -r v.img tree /",
    "plat put -r v.img many /",
    "plat import v.img tree.tar",
    "plat cp v.img /half /copy",
    "plat fallocate -l 9M v.img /half",
    "plat put m numbers /f",
    "plat put -r m tree /",
    "plat put -r m bare /",
    "plat import m tree.tar",
    "plat cp m/most m/copy",
];

/// The printed command makes a full volume as large as the work needs, which then succeeds.
#[test]
fn a_full_volume_names_how_it_becomes_large_enough() {
    let test = "a_full_volume_names_how_it_becomes_large_enough";
    if !tool::have_tools(test, &["tar", "seq", "split", "e2fsck"]) || !have_fuse(test) {
        return;
    }
    let Some(user) = User::new(test) else { return };
    let said = |line: &str| {
        let output = user.shell(line).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let ready = "mkdir -p m tree/d many bare && (cd bare && seq 3000 | xargs mkdir) && seq 1000000 >numbers && head -c 600000 numbers >half && head -c 3800000 numbers >most && cp numbers tree/d && \
                 tar -cf tree.tar tree && split -n 300 half many/";
    assert!(said(ready).0);
    for line in FILLING {
        let is_live = !line.contains("v.img");
        // A mounted volume grows through its journal.
        let ready = match is_live {
            true => {
                "rm -f v.img && plat mkfs -q -E root_owner v.img 8M && plat put v.img most / && plat mount -q -o rw v.img m"
            }
            false => "rm -f v.img && plat mkfs -q v.img 1M && plat put v.img half /",
        };
        assert!(said(ready).0, "{line}");
        let (done, words) = said(line);
        let remedy = words.split('`').find(|words| words.starts_with("plat resize")).unwrap_or("false");
        assert!(!done && words.contains("no "), "{line}: {words}");
        assert!(said(remedy).0, "{line}: {words}");
        // What was copied before is there.
        let away =
            if is_live { "rm -rf m/tree m/many m/bare" } else { "plat rm -r v.img /tree /many || true" };
        assert!(said(away).0, "{line}");
        let (done, words) = said(line);
        assert!(done, "{line}: after {remedy}: {words}");
        if is_live {
            assert!(said("plat umount m").0, "{line}");
        }
        assert!(said("e2fsck -fn v.img").0, "{line}: {}", said("e2fsck -fn v.img").1);
    }
}
