//! `plat check`: what it says, what it writes and when, exit codes, the way back, fsck's names.
mod reported;
mod rescued;
mod table;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

use crate::plat::{Ran, plat};
use serde_json::Value;
use testkit::scratch::Scratch;
use testkit::{fsck, sparse, tool};

/// A volume of 8 MiB with a file in it.
fn volume(scratch: &Scratch) -> PathBuf {
    let (tree, image) = (scratch.join("tree"), scratch.join("a.img"));
    fs::create_dir_all(tree.join("etc")).unwrap();
    fs::write(tree.join("etc/passwd"), b"root\n").unwrap();
    let made = tool::command("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-d"])
        .arg(&tree)
        .arg(&image)
        .arg("8M")
        .output();
    assert!(made.unwrap().status.success());
    image
}

/// Makes an image with a wrong superblock checksum, whose repair loses nothing.
fn damaged(scratch: &Scratch) -> PathBuf {
    let image = volume(scratch);
    let file = File::options().write(true).read(true).open(&image).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 1024 + 1020).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 1024 + 1020).unwrap();
    image
}

/// An image without the time of its last check and the checksum over it: two repairs may lie in different seconds.
fn without_time(mut image: Vec<u8>) -> Vec<u8> {
    // s_lastcheck, s_lastcheck_hi, s_checksum (spec: sb)
    for field in [0x40..0x44, 0x277..0x278, 0x3fc..0x400] {
        image[1024..2048][field].fill(0);
    }
    image
}

fn ready(test: &str) -> bool {
    tool::have_tools(test, &["mke2fs", "e2fsck"])
}

fn json(ran: &Ran) -> Value {
    serde_json::from_slice(&ran.out).unwrap()
}

fn text(ran: &Ran) -> String {
    String::from_utf8(ran.out.clone()).unwrap()
}

/// Runs the program by another name.
fn called(name: &str, arguments: &[&str], image: &Path) -> Output {
    let scratch = Scratch::new("fsck-name");
    let link = scratch.join(name);
    symlink(env!("CARGO_BIN_EXE_plat"), &link).unwrap();
    Command::new(&link).args(arguments).arg(image).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_sound_volume_is_summed_up() {
    if !ready("a_sound_volume_is_summed_up") {
        return;
    }
    let scratch = Scratch::new("check");
    let image = volume(&scratch);
    let before = fs::read(&image).unwrap();
    for mode in ["check", "check -n", "check -p", "check -y", "check -fy -v --threads 3"] {
        let ran = plat(mode, &image, &[]);
        assert_eq!((ran.code, &ran.err[..]), (ExitCode::SUCCESS, ""), "{mode}");
        assert!(text(&ran).lines().last().unwrap().contains(" files"), "{mode}: {}", text(&ran));
    }
    let ran = plat("check --json", &image, &[]);
    let report = json(&ran);
    assert_eq!(
        (&report["outcome"], &report["issues"], &report["written"]),
        (&"sound".into(), &0.into(), &false.into())
    );
    assert_eq!(fs::read(&image).unwrap(), before);
}

#[test]
fn looking_changes_nothing_and_repairing_can_be_undone() {
    if !ready("looking_changes_nothing_and_repairing_can_be_undone") {
        return;
    }
    let scratch = Scratch::new("check");
    let image = damaged(&scratch);
    let before = fs::read(&image).unwrap();
    for mode in ["check", "check -n"] {
        let ran = plat(mode, &image, &[]);
        assert_eq!(ran.code, ExitCode::from(4), "{mode}: {}{}", text(&ran), ran.err);
        assert!(text(&ran).contains("superblock-checksum"), "{}", text(&ran));
        assert_eq!(fs::read(&image).unwrap(), before, "{mode}");
    }
    let report = json(&plat("check -n --json", &image, &[]));
    assert_eq!(
        (&report["outcome"], &report["exit_code"], &report["repaired"]),
        (&"unsound".into(), &4.into(), &0.into())
    );
    assert_eq!(report["kinds"][0]["id"], "superblock-checksum");

    let undo = scratch.join("undo");
    let ran = plat("check -p --undo", &undo, &[image.as_os_str()]);
    assert_eq!(ran.code, ExitCode::from(1), "{}{}", text(&ran), ran.err);
    fsck::assert_clean(&image);
    let after = fs::read(&image).unwrap();
    assert_eq!(plat("check -n", &image, &[]).code, ExitCode::SUCCESS);

    let ran = plat("check --undo-from", &undo, &[image.as_os_str()]);
    assert_eq!(ran.code, ExitCode::SUCCESS, "{}", ran.err);
    assert_eq!(fs::read(&image).unwrap(), before);

    // The volume is repaired again, and then another program writes.
    assert_eq!(plat("check -y", &image, &[]).code, ExitCode::from(1));
    assert_eq!(without_time(fs::read(&image).unwrap()), without_time(after), "the same repair");
    plat("rm", &image, &[OsStr::new("/etc/passwd")]).fine();
    let now = fs::read(&image).unwrap();
    let ran = plat("check --undo-from", &undo, &[image.as_os_str()]);
    assert_eq!(ran.code, ExitCode::from(8));
    assert!(ran.err.contains("changed since"), "{}", ran.err);
    assert_eq!(fs::read(&image).unwrap(), now);
}

#[test]
fn an_undo_file_that_exists_keeps_the_image_as_it_is() {
    if !ready("an_undo_file_that_exists_keeps_the_image_as_it_is") {
        return;
    }
    let scratch = Scratch::new("check");
    let image = damaged(&scratch);
    let before = fs::read(&image).unwrap();
    for undo in [image.clone(), scratch.join("missing/undo")] {
        let ran = plat("check -y --undo", &undo, &[image.as_os_str()]);
        assert_eq!(ran.code, ExitCode::from(8));
        assert!(ran.err.contains("nothing was written"), "{}", ran.err);
        assert_eq!(fs::read(&image).unwrap(), before);
    }
}

#[test]
fn exit_codes_of_what_can_not_be_checked() {
    let scratch = Scratch::new("check");
    let missing = scratch.join("missing");
    let ran = plat("check -y", &missing, &[]);
    assert_eq!(ran.code, ExitCode::from(8));
    assert!(ran.err.contains("No such file"), "{}", ran.err);
    let noise = scratch.join("noise");
    fs::write(&noise, vec![0x5a; 100_000]).unwrap();
    assert_eq!(plat("check", &noise, &[]).code, ExitCode::from(8));
    fs::write(&noise, b"").unwrap();
    assert_eq!(plat("check -y", &noise, &[]).code, ExitCode::from(8));
    let usage = [
        "check -n -y",
        "check -B 1000 -b 1",
        "check -B 1024",
        "check -n --undo x",
        "check --threads 0",
        "check -C 77",
        "check -b -1",
        "check --undo-from x -y",
        "check --no-such-option",
    ];
    fs::write(&noise, vec![0; 100_000]).unwrap();
    for line in usage {
        assert_eq!(plat(line, &noise, &[]).code, ExitCode::from(16), "{line}");
    }
    let code = plat_cli::run_with(["plat".into(), "check".into()], &mut Vec::new(), &mut Vec::new());
    assert_eq!(code, ExitCode::from(16));
    assert_eq!(plat("ls --no-such-option", &noise, &[]).code, ExitCode::from(2));
}

#[test]
fn kinds_are_explained() {
    let run = |words: &[&str]| {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = plat_cli::run_with(words.iter().map(Into::into), &mut out, &mut err);
        (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    };
    let (code, all, _) = run(&["plat", "check", "--explain"]);
    assert_eq!(code, ExitCode::SUCCESS);
    assert_eq!(all.lines().count(), platfs::check::kinds().count());
    let (code, one, _) = run(&["plat", "check", "--explain", "superblock-checksum"]);
    assert_eq!(code, ExitCode::SUCCESS);
    assert!(one.contains("What it means:") && one.contains("What the repair does:"), "{one}");
    let (code, _, err) = run(&["plat", "check", "--explain", "superblock-sum"]);
    assert_eq!(code, ExitCode::from(16));
    assert!(err.contains("superblock-checksum"), "{err}");
    let (_, listed, _) = run(&["plat", "check", "--json", "--explain"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), all.lines().count());
}

#[test]
fn an_image_in_use_is_looked_at_only() {
    if !ready("an_image_in_use_is_looked_at_only") {
        return;
    }
    let scratch = Scratch::new("check");
    let image = damaged(&scratch);
    let before = fs::read(&image).unwrap();
    let held = File::open(&image).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    for mode in ["check -y", "check -p"] {
        let ran = plat(mode, &image, &[]);
        assert_eq!(ran.code, ExitCode::from(8));
        assert!(ran.err.contains("in use"), "{}", ran.err);
    }
    let ran = plat("check -n", &image, &[]);
    assert_eq!(ran.code, ExitCode::from(4));
    assert!(ran.err.contains("warning") && ran.err.contains("in use"), "{}", ran.err);
    assert_eq!(fs::read(&image).unwrap(), before);
}

#[test]
fn what_the_kernel_has_mounted_is_not_repaired() {
    let test = "what_the_kernel_has_mounted_is_not_repaired";
    if !ready(test) || !testkit::mount::have_loop_mount(test) {
        return;
    }
    let scratch = Scratch::new("check");
    let image = volume(&scratch);
    let mount = testkit::mount::Mounted::read_write(&image).unwrap();
    let ran = plat("check -fy", &image, &[]);
    assert_eq!(ran.code, ExitCode::from(8));
    assert!(ran.err.contains("mounted"), "{}", ran.err);
    drop(mount);
}

/// Room for more descriptors lies in several places; that is no fragmentation.
#[test]
fn an_empty_volume_is_in_one_piece() {
    const TEST: &str = "an_empty_volume_is_in_one_piece";
    if !ready(TEST) {
        return;
    }
    let scratch = Scratch::new("check");
    let image = scratch.join("empty.img");
    tool::run(tool::command("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&image).arg("64M"));
    let theirs = tool::command("e2fsck").arg("-fn").arg(&image).output().unwrap();
    assert!(String::from_utf8_lossy(&theirs.stdout).contains("(0.0% non-contiguous)"), "{theirs:?}");
    let ran = plat("check -fn", &image, &[]);
    assert!(text(&ran).contains("(0.0% non-contiguous)"), "{}", text(&ran));
}

#[test]
fn the_names_of_fsck() {
    if !ready("the_names_of_fsck") {
        return;
    }
    let scratch = Scratch::new("check");
    let image = volume(&scratch);
    let said = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    for name in ["fsck.ext2", "fsck.ext3", "fsck.ext4", "e2fsck"] {
        let output = called(name, &["-a"], &image);
        assert_eq!(output.status.code(), Some(0));
        let clean = format!("{}: clean, ", image.display());
        assert!(said(&output).starts_with(&clean) && said(&output).lines().count() == 1, "{}", said(&output));
        let e2fsck = tool::command("e2fsck").arg("-p").arg(&image).output().unwrap();
        assert_eq!(said(&output), said(&e2fsck), "the line of e2fsck");
    }
    let output = called("fsck.ext4", &["-f", "-y", "-C0", "-v"], &image);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(said(&output).contains("inodes used"), "{}", said(&output));
    let output = called("fsck.ext4", &["-V"], &image);
    assert_eq!((output.status.code(), said(&output).starts_with("plat check ")), (Some(0), true));
    assert_eq!(called("fsck.ext4", &["-Q"], &image).status.code(), Some(16));

    fs::remove_file(&image).unwrap();
    let image = damaged(&scratch);
    let output = called("fsck.ext4", &["-fp"], &image);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    fsck::assert_clean(&image);
}

/// An empty volume of 32 MiB with blocks of 1 KiB.
fn bare(scratch: &Scratch, fs_type: &str) -> PathBuf {
    let image = scratch.join("bare.img");
    let mut make = tool::command("mke2fs");
    make.args(["-q", "-F", "-t", fs_type, "-b", "1024"]).arg(&image).arg("32M");
    assert!(make.output().unwrap().status.success());
    image
}

/// A mark "clean" is believed only where the volume can be mounted.
#[test]
fn a_clean_mark_hides_nothing_that_a_mount_needs() {
    let test = "a_clean_mark_hides_nothing_that_a_mount_needs";
    if !tool::have_tools(test, &["mke2fs", "debugfs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("check-clean-mark");
    let root_at = |image: &Path| -> u64 {
        let said = tool::debugfs(image, "imap <2>");
        let block = said.split("at block ").nth(1).and_then(|rest| rest.split(',').next());
        block.unwrap().trim().parse::<u64>().unwrap() * 1024
    };
    // What is overwritten: where, and with what.
    type Harm = (&'static str, fn(u64) -> u64, &'static [u8]);
    let harms: [Harm; 10] = [
        ("descriptors of zeros", |_| 2048, &[0; 1024]),
        ("descriptors that lead outside", |_| 2048, &[0xA5; 1024]),
        ("no root directory", |root| root, &[0; 1024]),
        ("no inodes", |_| 1024, &[0; 4]),
        ("blocks behind the device", |_| 1024 + 4, &[0xFF, 0xFF, 0xFF, 0x7F]),
        ("a first block of 9", |_| 1024 + 0x14, &[9, 0, 0, 0]),
        ("blocks of 2^137 bytes", |_| 1024 + 0x18, &[0x7F, 0, 0, 0]),
        ("groups of no blocks", |_| 1024 + 0x20, &[0; 4]),
        ("one inode in a group", |_| 1024 + 0x28, &[1, 0, 0, 0]),
        ("inodes of 3 bytes", |_| 1024 + 0x58, &[3, 0]),
    ];
    for fs_type in ["ext2", "ext3", "ext4"] {
        let image = bare(&scratch, fs_type);
        assert_eq!(called("fsck.ext4", &["-a"], &image).status.code(), Some(0), "{fs_type}");
        let (whole, root) = (fs::read(&image).unwrap(), root_at(&image));
        for (what, place, bytes) in harms {
            sparse::write(&image, &whole).unwrap();
            let file = File::options().write(true).open(&image).unwrap();
            file.write_all_at(bytes, place(root)).unwrap();
            let copy = scratch.join("theirs.img");
            sparse::copy(&image, &copy).unwrap();
            let theirs = tool::command("e2fsck").arg("-p").arg(&copy).output().unwrap();
            let of_superblock = (1024..2048).contains(&place(root));
            // Codes are sums: it may have cleared something before it gave up. It takes that many blocks for possible.
            let is_refused = theirs.status.code().unwrap() & 8 != 0;
            assert!(is_refused || !of_superblock || what == "blocks behind the device", "{what}: {theirs:?}");
            let expected = if of_superblock { 8 } else { 4 };
            let damaged = fs::read(&image).unwrap();
            for output in [called("fsck.ext4", &["-a"], &image), called("e2fsck", &["-p"], &image)] {
                assert_eq!(output.status.code(), Some(expected), "{fs_type}: {what}: {output:?}, {theirs:?}");
            }
            assert!(fs::read(&image).unwrap() == damaged, "{fs_type}: {what}: nothing is written");
        }
        sparse::write(&image, &whole).unwrap();
        File::options().write(true).open(&image).unwrap().set_len(20 << 20).unwrap();
        let output = called("fsck.ext4", &["-a"], &image);
        assert_eq!(output.status.code(), Some(4), "{fs_type}: cut short: {output:?}");
        let ran = plat("check -y", &image, &[]);
        assert!(text(&ran).contains("the volume needs 33554432 bytes"), "{}", text(&ran));
        assert_eq!(fs::read(&image).unwrap(), whole[..20 << 20], "{fs_type}: nothing is written");
    }
    let protected = scratch.join("protected.img");
    let mut make = tool::command("mke2fs");
    make.args(["-q", "-F", "-t", "ext4", "-O", "mmp,^metadata_csum"]).arg(&protected).arg("16M");
    assert!(make.output().unwrap().status.success());
    assert_eq!(called("fsck.ext4", &["-a"], &protected).status.code(), Some(0));
    // No block of multiple mount protection, without which Linux mounts nothing.
    File::options().write(true).open(&protected).unwrap().write_all_at(&[0; 8], 1024 + 0x168).unwrap();
    let output = called("fsck.ext4", &["-a"], &protected);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    fsck::assert_clean(&protected);
    let journal = scratch.join("journal.img");
    let mut make = tool::command("mke2fs");
    make.args(["-q", "-F", "-O", "journal_dev", "-b", "4096"]).arg(&journal).arg("8M");
    assert!(make.output().unwrap().status.success());
    assert_eq!(called("fsck.ext4", &["-a"], &journal).status.code(), Some(8));
}

/// Checks on a terminal, which script(1) gives; Ctrl-C is `\x03`.
fn asked(image: &Path, answers: &str) -> (Option<i32>, String) {
    // `exec`: a shell that waits for its command may end by Ctrl-C itself, with a code of its own.
    let command = format!("exec {} check {}", env!("CARGO_BIN_EXE_plat"), image.display());
    // What does not end shows as another code. The limit lies outside the terminal: inside, timeout(1) would
    // pass Ctrl-C on to a `plat` that had it from the terminal, and a second one ends it where it stands.
    let mut child = tool::command("timeout")
        .args(["-k", "1", "60", "script", "-qec", &command, "/dev/null"])
        .current_dir(image.parent().unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut said = Vec::new();
    // Each answer waits for its question: on a terminal that is not read yet Ctrl-C would reach no process.
    for answer in answers.split_inclusive(['\n', '\x03']) {
        while !said.ends_with(b": ") {
            let mut byte = [0];
            assert_eq!(
                std::io::Read::read(&mut output, &mut byte).unwrap(),
                1,
                "{}",
                String::from_utf8_lossy(&said)
            );
            said.push(byte[0]);
        }
        std::io::Write::write_all(&mut input, answer.as_bytes()).unwrap();
        said.push(b' ');
    }
    std::io::Read::read_to_end(&mut output, &mut said).unwrap();
    let code = child.wait().unwrap().code();
    drop(input);
    (code, String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn questions_on_a_terminal() {
    let test = "questions_on_a_terminal";
    if !ready(test) || !tool::have_tools(test, &["script"]) {
        return;
    }
    let scratch = Scratch::new("check");
    let image = damaged(&scratch);
    let before = fs::read(&image).unwrap();
    let (code, said) = asked(&image, "n\n");
    assert_eq!(code, Some(4), "{said}");
    let (code, said) = asked(&image, "e\nq\n");
    assert_eq!(code, Some(32), "{said}");
    assert_eq!(fs::read(&image).unwrap(), before);
    for answers in ["\x03", "e\n\x03"] {
        let (code, said) = asked(&image, answers);
        assert_eq!(code, Some(32), "{said}");
        assert!(said.contains("stopped by SIGINT"), "{said}");
        assert_eq!(fs::read(&image).unwrap(), before);
    }
    let (code, said) = asked(&image, "e\ny\n");
    assert_eq!(code, Some(1), "{said}");
    fsck::assert_clean(&image);

    sparse::write(&image, &before).unwrap();
    let (code, said) = asked(&image, "u\n\n");
    assert_eq!(code, Some(1), "{said}");
    fsck::assert_clean(&image);
    let undo = scratch.join("a.img.undo");
    assert_eq!(plat("check --undo-from", &undo, &[image.as_os_str()]).code, ExitCode::SUCCESS);
    assert_eq!(fs::read(&image).unwrap(), before);
}

#[test]
fn issues_name_the_files() {
    if !ready("issues_name_the_files") || !tool::have_tools("issues_name_the_files", &["debugfs"]) {
        return;
    }
    let scratch = Scratch::new("check");
    let image = volume(&scratch);
    let request = "sif /etc/passwd links_count 5";
    tool::run(tool::command("debugfs").args(["-w", "-R", request]).arg(&image));
    let ran = plat("check -n", &image, &[]);
    assert_eq!(ran.code, ExitCode::from(4));
    assert!(text(&ran).contains("/etc/passwd (inode "), "{}", text(&ran));
    let report = json(&plat("check -n --json", &image, &[]));
    assert_eq!(report["kinds"][0]["issues"][0]["path"], "/etc/passwd", "{report:#}");
    assert_eq!(plat("check -y", &image, &[]).code, ExitCode::from(1));
    fsck::assert_clean(&image);
}

#[test]
fn equal_problems_are_folded() {
    let test = "equal_problems_are_folded";
    if !ready(test) || !tool::have_tools(test, &["debugfs"]) {
        return;
    }
    let scratch = Scratch::new("check-folded");
    let (tree, image) = (scratch.join("tree"), scratch.join("a.img"));
    fs::create_dir_all(&tree).unwrap();
    (0..1000).for_each(|at| fs::write(tree.join(format!("file-{at:03}")), "x").unwrap());
    let mut make = tool::command("mke2fs");
    tool::run(make.args(["-q", "-t", "ext4", "-N", "2048", "-d"]).arg(&tree).arg(&image).arg("32M"));
    let script = scratch.join("script");
    let lines: Vec<String> =
        (12..1012).map(|inode| format!("sif <{inode}> links_count {}\n", inode % 9 + 3)).collect();
    fs::write(&script, lines.concat()).unwrap();
    tool::run(tool::command("debugfs").args(["-w", "-f"]).arg(&script).arg(&image));
    let few = text(&plat("check -n", &image, &[]));
    // Numbers make no other problem of it.
    assert!(few.contains("... and 997 more of this kind, inodes 15-1011 (-v shows them)"), "{few}");
    assert!(few.lines().count() < 40, "{few}");
    let all = text(&plat("check -n -v", &image, &[]));
    assert!(all.matches("        repair: ").count() == 1000 && !all.contains("more of this kind"), "{all}");
    let report = json(&plat("check -n --json", &image, &[]));
    assert_eq!(report["kinds"][0]["issues"].as_array().unwrap().len(), 1000);
}

/// A volume as the kernel leaves it when a machine goes down has nothing wrong.
#[test]
fn a_journal_that_waits_is_no_problem() {
    let test = "a_journal_that_waits_is_no_problem";
    if !ready(test) || !testkit::mount::have_loop_mount(test) {
        return;
    }
    let scratch = Scratch::new("check");
    let image = volume(&scratch);
    let crashed = scratch.join("crashed.img");
    let mount = testkit::mount::Mounted::read_write(&image).unwrap();
    for number in 0..20 {
        fs::write(mount.path().join(format!("new-{number}")), vec![1; 3000]).unwrap();
    }
    rustix::fs::syncfs(File::open(mount.path()).unwrap()).unwrap();
    sparse::copy(&image, &crashed).unwrap();
    drop(mount);
    let before = fs::read(&crashed).unwrap();
    let ran = plat("check -n", &crashed, &[]);
    assert_eq!(ran.code, ExitCode::SUCCESS, "{}", text(&ran));
    assert!(text(&ran).contains("waits to be replayed") && !text(&ran).contains("SOUND"), "{}", text(&ran));
    let report = json(&plat("check -n --json", &crashed, &[]));
    assert_eq!((&report["outcome"], &report["issues"]), (&"sound".into(), &0.into()));
    assert!(report["journal_replay"].is_string());
    assert_eq!(fs::read(&crashed).unwrap(), before);
    for mode in ["check -p", "check -y"] {
        fs::write(&crashed, &before).unwrap();
        let ran = plat(mode, &crashed, &[]);
        assert_eq!(ran.code, ExitCode::SUCCESS, "{mode}: {}", text(&ran));
        assert!(text(&ran).contains("was replayed"), "{}", text(&ran));
        fsck::assert_clean(&crashed);
        assert_eq!(text(&plat("ls", &crashed, &[OsStr::new("/")])).matches("new-").count(), 20);
    }
}

#[test]
fn options_of_e2fsck_are_done_or_refused_with_a_reason() {
    if !ready("options_of_e2fsck_are_done_or_refused_with_a_reason") {
        return;
    }
    let scratch = Scratch::new("check");
    let image = damaged(&scratch);
    let before = fs::read(&image).unwrap();
    for options in
        [&["-D"][..], &["-c"], &["-l", "x"], &["-j", "/dev/null"], &["-E", "discard"], &["-E", "x=1"]]
    {
        let output = called("fsck.ext4", &[&["-fy"], options].concat(), &image);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(16), "{options:?}: {said}");
        assert!(said.contains(options[0]), "{options:?}: {said}");
    }
    assert_eq!(fs::read(&image).unwrap(), before);
    let undo = scratch.join("undo");
    let undo = undo.to_str().unwrap();
    let idle = ["-fy", "-k", "-F", "-t", "-E", "nodiscard,readahead_kb=0", "-z", undo];
    let output = called("fsck.ext4", &idle, &image);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains(" seconds"));
    fsck::assert_clean(&image);
    assert_eq!(plat("check --undo-from", Path::new(undo), &[image.as_os_str()]).code, ExitCode::SUCCESS);
    assert_eq!(fs::read(&image).unwrap(), before);
}

/// A file that a repair takes away is reported by the name that it had.
#[test]
fn what_is_taken_away_is_named() {
    if !ready("what_is_taken_away_is_named") || !tool::have_tools("what_is_taken_away_is_named", &["debugfs"])
    {
        return;
    }
    let scratch = Scratch::new("check");
    let image = volume(&scratch);
    // No type of file.
    tool::run(tool::command("debugfs").args(["-w", "-R", "sif /etc/passwd mode 0"]).arg(&image));
    let report = json(&plat("check -n --json", &image, &[]));
    assert_eq!(report["losing"][0]["path"], "/etc/passwd", "{report:#}");
}
