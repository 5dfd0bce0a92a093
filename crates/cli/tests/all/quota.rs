//! Quota by the command and by mounts: what is shown, what is refused, and that e2fsck agrees. The cases are those of
//! xfstests' group `quota` that are about limits and counts, by their documents.

mod quotacheck;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::mounted::{Mounted, have_fuse};
use crate::support::{fail, plat, succeed};
use serde_json::Value;
use testkit::scratch::Scratch;
use testkit::{fsck, tool};

/// A user without rights, whom fusermount3 can find by name (`nobody`).
const USER: u32 = 65534;

fn image(scratch: &Scratch, features: &str) -> PathBuf {
    let image = scratch.join("image");
    let arguments = ["-q", "-F", "-t", "ext4", "-O", features, "-E", "quotatype=usrquota:grpquota:prjquota"];
    tool::run(tool::command("mke2fs").args(arguments).arg(&image).arg("512M"));
    image
}

fn quota(place: &Path, arguments: &[&str]) {
    succeed(plat(&["quota"]).args(arguments).arg(place));
}

/// Record of one id.
fn record(place: &Path, whose: &[&str]) -> Value {
    let said = succeed(plat(&["quota", "--json"]).args(whose).arg(place)).stdout;
    let said: Value = serde_json::from_slice(&said).unwrap();
    said["kinds"][0]["records"][0].clone()
}

fn number(record: &Value, field: &str) -> u64 {
    record[field].as_u64().unwrap_or_else(|| panic!("{record}: {field}"))
}

#[test]
fn limits_of_an_image_are_set_shown_and_listed() {
    let test = "limits_of_an_image_are_set_shown_and_listed";
    if !tool::have_tools(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = scratch.join("image");
    tool::run(
        tool::command("mke2fs").args(["-q", "-F", "-t", "ext4", "-O", "project"]).arg(&image).arg("32M"),
    );
    let refused = fail(plat(&["quota", "--user", "77001"]).arg(&image));
    assert!(refused.contains("--on user"), "{refused}");
    let before = fs::read(&image).unwrap();
    let plan = succeed(plat(&["quota", "-n", "--on", "user,group,project"]).arg(&image)).stdout;
    assert_eq!(String::from_utf8(plan).unwrap(), "begin to count: user, group, project\n");
    assert!(fs::read(&image).unwrap() == before, "a dry run changes nothing");
    quota(&image, &["--on", "user,group,project"]);
    quota(&image, &["--user", "77001", "--block-soft", "1M", "--block-hard", "2M", "--inode-hard", "10"]);
    quota(&image, &["--user", "77001", "--inode-soft", "5"]);
    quota(&image, &["--kind", "user", "--grace", "2d"]);
    let shown = record(&image, &["--user", "77001"]);
    let fields =
        ["soft_bytes", "hard_bytes", "soft_inodes", "hard_inodes"].map(|field| number(&shown, field));
    assert_eq!(fields, [1 << 20, 2 << 20, 5, 10]);
    let list = succeed(plat(&["quota", "--export", "--kind", "user"]).arg(&image)).stdout;
    assert_eq!(String::from_utf8(list.clone()).unwrap(), "77001 1024 2048 5 10\n");
    let file = scratch.join("list");
    fs::write(&file, [&list[..], b"77123 1 2 3 4\n"].concat()).unwrap();
    quota(&image, &["--kind", "group", "--import", file.to_str().unwrap()]);
    assert_eq!(number(&record(&image, &["--group", "77123"]), "hard_bytes"), 2048);
    fs::write(&file, "77123 1 2 3\n").unwrap();
    let refused = fail(plat(&["quota", "--import"]).arg(&file).arg(&image));
    assert!(refused.contains("line 1"), "{refused}");
    let table = String::from_utf8(succeed(plat(&["quota"]).arg(&image)).stdout).unwrap();
    assert!(
        table.contains("users; grace 2d for space, 7d for inodes") && table.contains("2.0 MiB"),
        "{table}"
    );
    fsck::assert_clean(&image);
    succeed(plat(&["mkdir"]).arg(&image).args(["/tree", "/tree/sub"]));
    succeed(plat(&["quota", "--set-project", "42", "-r"]).arg(&image).arg("/tree"));
    succeed(plat(&["mkdir"]).arg(&image).arg("/tree/sub/new"));
    assert_eq!(number(&record(&image, &["--project", "42"]), "inodes"), 3);
    fsck::assert_clean(&image);
    quota(&image, &["--off", "user"]);
    quota(&image, &["--recount"]);
    fail(plat(&["quota", "--user", "77001"]).arg(&image));
    quota(&image, &["--off", "group,project"]);
    fsck::assert_clean(&image);
}

fn ready(test: &str) -> bool {
    tool::have_root(test) && have_fuse(test) && tool::have_tools(test, &["mke2fs", "e2fsck", "dd", "setpriv"])
}

fn mounted(image: &Path, options: &str) -> Mounted {
    let mounted = Mounted::new(image, &["-o", &format!("rw,allow_other,{options}")]).unwrap();
    fs::set_permissions(mounted.path(), fs::Permissions::from_mode(0o777)).unwrap();
    mounted
}

fn end(image: &Path, mounted: Mounted) {
    mounted.unmount();
    fsck::assert_clean(image);
}

/// Runs something as a user; what it said where it failed.
fn as_user(user: u32, command: &mut Command) -> Result<(), String> {
    let output = command.uid(user).gid(user).env("LC_ALL", "C").output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn shell(user: u32, script: &str, place: &Path) -> Result<(), String> {
    as_user(user, Command::new("sh").args(["-e", "-c", script]).current_dir(place))
}

#[track_caller]
fn exceeded(done: Result<(), String>) {
    let said = done.expect_err("it was to be refused");
    assert!(said.contains("Disk quota exceeded"), "{said}");
}

#[test]
fn a_writer_hears_of_the_limit_from_write() {
    let test = "a_writer_hears_of_the_limit_from_write";
    if !ready(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = image(&scratch, "quota,project");
    let limit: u64 = 32 << 20;
    for options in ["writeback_cache", "nowriteback_cache"] {
        let mounted = mounted(&image, options);
        quota(mounted.path(), &["--user", &USER.to_string(), "--block-hard", "32M"]);
        for piece in ["4k", "1M"] {
            let target = mounted.path().join("target");
            let mut dd = tool::command("timeout");
            dd.args(["60", "dd", "if=/dev/zero", &format!("bs={piece}"), "count=200M", "iflag=count_bytes"]);
            exceeded(as_user(USER, dd.arg(format!("of={}", target.display()))));
            let taken = fs::metadata(&target).unwrap().len();
            println!("{options} bs={piece}: {taken} bytes taken, {limit} allowed");
            assert!(taken >= limit - limit / 8 && taken <= limit, "{options} {piece}: {taken}");
            fs::remove_file(&target).unwrap();
            // What is deleted is given back once it is stable.
            File::open(mounted.path()).unwrap().sync_all().unwrap();
        }
        // A limit binds the owner of a file: root's files have none.
        fs::write(mounted.path().join("root"), vec![1; 40 << 20]).unwrap();
        fs::remove_file(mounted.path().join("root")).unwrap();
        end(&image, mounted);
    }
}

/// Space is counted by whatever call it is taken, and the blocks that are kept for root are not given away either.
#[test]
fn limits_hold_for_every_call_that_takes_space() {
    let test = "limits_hold_for_every_call_that_takes_space";
    if !ready(test) || !tool::have_tools(test, &["fallocate", "setfattr", "python3"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = image(&scratch, "quota,project");
    let mounted = mounted(&image, "writeback_cache");
    let root = mounted.path();
    quota(root, &["--user", &USER.to_string(), "--block-hard", "8M"]);
    let copy = "import os; a = os.open('full', os.O_RDONLY); b = os.open('copy', os.O_RDWR | os.O_CREAT)\n\
                left = 16 << 20\n\
                while left > 0: left -= os.copy_file_range(a, b, 1 << 20, 0)";
    exceeded(shell(USER, "fallocate -l 20M space", root));
    exceeded(shell(USER, "rm -f space; truncate -s 20M holes; fallocate -z -l 20M holes", root));
    shell(USER, "rm -f space holes; fallocate -l 4M full; sync -f .", root).unwrap();
    exceeded(shell(USER, "fallocate -l 20M full", root));
    exceeded(shell(USER, &format!("python3 -c \"{copy}\""), root));
    shell(USER, "rm -f copy full; mkdir d; sync -f .; fallocate -l 8380416 full", root).unwrap();
    let said = "for i in 1 2 3 4 5 6 7 8; do touch n$i; setfattr -n user.a$i -v \"$(head -c 3000 /dev/zero | tr '\\0' $i)\" n$i; done";
    exceeded(shell(USER, said, root));
    assert!(number(&record(root, &["--user", &USER.to_string()]), "bytes") <= 8 << 20);
    // A directory grows by names that cost no inode.
    let names = "for i in $(seq 200); do ln n1 \"d/$i$(printf %0200d $i)\"; done";
    exceeded(shell(USER, names, root));
    // Root is bound as all others, unless it has the capability.
    let sets = rustix::thread::capabilities(None).unwrap();
    let done = shell(0, "fallocate -l 20M root; chown nobody root; fallocate -l 30M root", root);
    match sets.effective.contains(rustix::thread::CapabilitySet::SYS_RESOURCE) {
        true => done.unwrap(),
        false => exceeded(done),
    }
    end(&image, mounted);
}

#[test]
fn inodes_links_and_owners_on_a_mount() {
    let test = "inodes_links_and_owners_on_a_mount";
    if !ready(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = image(&scratch, "quota,project");
    let mounted = mounted(&image, "writeback_cache");
    let root = mounted.path();
    let user = USER.to_string();
    quota(root, &["--user", &user, "--inode-hard", "4"]);
    shell(USER, "touch a; mkdir b; ln -s x c; mkfifo d", root).unwrap();
    exceeded(shell(USER, "touch e", root));
    exceeded(shell(USER, "mkdir e", root));
    exceeded(shell(USER, "ln -s x e", root));
    // Names cost nothing, and what goes makes room.
    shell(USER, "ln a e; mv a f; rm d; touch d", root).unwrap();
    exceeded(shell(USER, "touch g", root));
    let shown = record(root, &["--user", &user]);
    assert_eq!(number(&shown, "inodes"), 4);
    // A file that is given away counts for the new owner.
    chown(root.join("f"), Some(1), Some(1)).unwrap();
    assert_eq!(number(&record(root, &["--user", &user]), "inodes"), 3);
    assert_eq!(number(&record(root, &["--user", "1"]), "inodes"), 1);
    shell(USER, "touch g", root).unwrap();
    // A group's limit is that of all its members.
    quota(root, &["--group", "1", "--block-hard", "1M"]);
    chown(root.join("g"), Some(USER), Some(1)).unwrap();
    exceeded(shell(USER, "dd if=/dev/zero of=g bs=64k count=64 conv=fsync", root));
    let shown = record(root, &["--group", "1"]);
    assert!(number(&shown, "bytes") <= 1 << 20, "{shown}");
    // Others see what they use themselves, and change nothing.
    let refused = plat(&["quota", "--user", "1", "--inode-hard", "1"]).arg(root).uid(USER).output().unwrap();
    assert!(
        String::from_utf8_lossy(&refused.stderr)
            .contains("only the owner of the mount and programs with CAP_SYS_ADMIN"),
        "{refused:?}"
    );
    let own = plat(&["quota", "--json", "--kind", "user"]).arg(root).uid(USER).output().unwrap();
    let own: Value = serde_json::from_slice(&own.stdout).unwrap();
    assert_eq!(own["kinds"][0]["records"].as_array().map(Vec::len), Some(1));
    end(&image, mounted);
}

#[test]
fn soft_limits_and_their_grace_on_a_mount() {
    let test = "soft_limits_and_their_grace_on_a_mount";
    if !ready(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = image(&scratch, "quota,project");
    let mounted = mounted(&image, "writeback_cache");
    let (root, user) = (mounted.path(), USER.to_string());
    quota(root, &["--kind", "user", "--grace", "3", "--inode-grace", "3"]);
    quota(root, &["--user", &user, "--block-soft", "1M", "--block-hard", "8M", "--inode-soft", "2"]);
    shell(USER, "dd if=/dev/zero of=a bs=1M count=2 conv=fsync; touch b; touch c", root).unwrap();
    let shown = record(root, &["--user", &user]);
    assert!(shown["bytes_until"].is_string() && shown["inodes_until"].is_string(), "{shown}");
    std::thread::sleep(Duration::from_millis(3500));
    exceeded(shell(USER, "touch d", root));
    exceeded(shell(USER, "dd if=/dev/zero of=b bs=1M count=1 conv=fsync", root));
    // More time for this user alone.
    quota(root, &["--user", &user, "--grace", "1h", "--inode-grace", "1h"]);
    shell(USER, "touch d; dd if=/dev/zero of=d bs=1M count=1 conv=fsync", root).unwrap();
    shell(USER, "rm a b c d", root).unwrap();
    File::open(root).unwrap().sync_all().unwrap();
    let shown = record(root, &["--user", &user]);
    assert!(shown["bytes_until"].is_null() && shown["inodes_until"].is_null(), "{shown}");
    end(&image, mounted);
}

#[test]
fn projects_on_a_mount() {
    let test = "projects_on_a_mount";
    if !ready(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = image(&scratch, "quota,project");
    let mounted = mounted(&image, "writeback_cache");
    let root = mounted.path();
    shell(0, "mkdir p p/sub; touch p/old; chmod -R 777 p", root).unwrap();
    succeed(plat(&["quota", "--set-project", "42", "-r"]).arg(root).arg(root.join("p")));
    quota(root, &["--project", "42", "--block-hard", "4M", "--inode-hard", "5"]);
    let shown = rustix::fs::statvfs(root.join("p").as_path()).unwrap();
    assert_eq!((shown.f_blocks * shown.f_frsize, shown.f_files, shown.f_ffree), (4 << 20, 5, 2));
    let whole = rustix::fs::statvfs(root).unwrap();
    assert!(whole.f_blocks * whole.f_frsize > 256 << 20);
    shell(USER, "touch p/sub/new p/sub/other", root).unwrap();
    exceeded(shell(USER, "touch p/sub/third", root));
    exceeded(shell(USER, "dd if=/dev/zero of=p/sub/new bs=1M count=64 conv=fsync", root));
    // Out of the project all goes; into it only what belongs to it.
    shell(USER, "mv p/sub/other out; touch in", root).unwrap();
    let said = fs::rename(root.join("in"), root.join("p/in")).unwrap_err();
    assert_eq!(said.raw_os_error(), Some(18), "{said}");
    let said = fs::hard_link(root.join("in"), root.join("p/in")).unwrap_err();
    assert_eq!(said.raw_os_error(), Some(18), "{said}");
    assert_eq!(number(&record(root, &["--project", "42"]), "inodes"), 5);
    end(&image, mounted);
}

#[test]
fn counting_begins_and_ends_on_a_mount_in_use() {
    let test = "counting_begins_and_ends_on_a_mount_in_use";
    if !ready(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = scratch.join("image");
    tool::run(tool::command("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&image).arg("256M"));
    let mounted = mounted(&image, "writeback_cache");
    let root = mounted.path();
    shell(USER, "mkdir d; for i in $(seq 200); do echo $i > d/$i; done", root).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            shell(USER, "for i in $(seq 400); do echo $i > d/x$i; rm -f d/$i; done", root).unwrap()
        });
        quota(root, &["--on", "user,group"]);
    });
    File::open(root).unwrap().sync_all().unwrap();
    assert_eq!(number(&record(root, &["--user", &USER.to_string()]), "inodes"), 401);
    quota(root, &["--user", &USER.to_string(), "--inode-hard", "401"]);
    exceeded(shell(USER, "touch d/more", root));
    quota(root, &["--off", "group"]);
    shell(USER, "rm d/x1; touch d/more", root).unwrap();
    end(&image, mounted);
    let mounted = Mounted::new(&image, &["-o", "rw,allow_other,noquota"]).unwrap();
    shell(USER, "touch d/again d/and", mounted.path()).unwrap();
    assert_eq!(number(&record(mounted.path(), &["--user", &USER.to_string()]), "inodes"), 403);
    end(&image, mounted);
}

/// Bytes that a mapped or buffered write promised and could not keep are no reason for wrong counts.
#[test]
fn counts_are_right_after_many_writers_met_their_limit() {
    let test = "counts_are_right_after_many_writers_met_their_limit";
    if !ready(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = image(&scratch, "quota,project");
    let mounted = mounted(&image, "writeback_cache");
    let root = mounted.path();
    quota(root, &["--user", &USER.to_string(), "--block-hard", "16M", "--inode-hard", "100"]);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let script = format!(
                "for i in $(seq 60); do dd if=/dev/zero of=f{thread}-$i bs=64k count=16 2>/dev/null || true; \
                 test $((i % 7)) -ne 0 || rm -f f{thread}-*; done; true"
            );
            scope.spawn(move || shell(USER, &script, root).unwrap());
        }
    });
    let mut file = File::create(root.join("last")).unwrap();
    file.write_all(b"root is not bound").unwrap();
    drop(file);
    File::open(root).unwrap().sync_all().unwrap();
    assert!(number(&record(root, &["--user", &USER.to_string()]), "bytes") <= (16 << 20) + (1 << 20));
    end(&image, mounted);
}

/// Limits from before the feature `quota`: the file of a volume that counts is put into one that does not.
#[test]
fn limits_of_ordinary_quota_files_are_taken_over() {
    let test = "limits_of_ordinary_quota_files_are_taken_over";
    if !tool::have_tools(test, &["mke2fs", "debugfs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let make = |name: &str, features: &str| {
        let image = scratch.join(name);
        let mut command = tool::command("mke2fs");
        tool::run(command.args(["-q", "-F", "-t", "ext4", "-O", features]).arg(&image).arg("16M"));
        image
    };
    let first = make("first", "quota");
    quota(&first, &["--user", "1000", "--block-hard", "2M", "--inode-soft", "7"]);
    quota(&first, &["--user", "4294967294", "--block-hard", "5M"]);
    let file = scratch.join("aquota.user");
    let dump = format!("dump <3> {}", file.display());
    tool::run(tool::command("debugfs").args(["-R", &dump]).arg(&first));
    let ways: [&[&str]; 3] =
        [&["quota", "--on", "user"], &["tune", "-O", "quota"], &["tune", "-Q", "usrquota"]];
    for way in ways {
        let image = make("second", "^quota");
        succeed(plat(&["put"]).arg(&image).arg(&file).arg("/"));
        succeed(plat(way).arg(&image));
        let record = |user: &str| record(&image, &["--user", user]);
        let known = record("1000");
        assert_eq!((number(&known, "hard_bytes"), number(&known, "soft_inodes")), (2 << 20, 7), "{way:?}");
        assert_eq!(number(&record("4294967294"), "hard_bytes"), 5 << 20, "{way:?}");
        assert!(number(&record("0"), "inodes") > 1, "{way:?}: what is in use is counted");
        fsck::assert_clean(&image);
    }
    // A file that is none is not dropped in silence.
    fs::write(&file, "limits of another kind").unwrap();
    for way in ways {
        let image = make("second", "^quota");
        succeed(plat(&["put"]).arg(&image).arg(&file).arg("/"));
        let before = fs::read(&image).unwrap();
        let said = fail(plat(way).arg(&image));
        assert!(said.contains("/aquota.user can't be taken over") && said.contains("rename"), "{said}");
        if way[0] == "tune" {
            assert!(fs::read(&image).unwrap() == before);
        }
    }
}
