//! Cages: what a stranger's image could make of a program that reads, serves or mounts it reaches nothing else.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use testkit::scratch::Scratch;
use testkit::tool;

use crate::support::mounted::{Mounted, have_fuse};
use crate::support::{caged, fail, plat, succeed};

/// Calls of the planted program that only root could make anyway.
const OF_ROOT: &str = "mount";

fn volume(scratch: &Scratch) -> PathBuf {
    let image = scratch.join("disk.img");
    succeed(plat(&["mkfs"]).arg(&image).arg("16M"));
    image
}

fn have_cages() -> bool {
    !caged("cages").is_empty()
}

/// Answers that the planted program got, by name.
fn planted(said: &str) -> Vec<(String, String)> {
    let lines = said.lines().filter_map(|line| line.strip_prefix("planted: "));
    lines.filter_map(|line| line.split_once(": ")).map(|(name, got)| (name.into(), got.into())).collect()
}

/// A file beside the image, which the planted program is after.
fn victim(scratch: &Scratch) -> PathBuf {
    let file = scratch.join("victim");
    fs::write(&file, "nobody's business").unwrap();
    file
}

fn assert_refused(said: &str, victim: &Path) {
    let got = planted(said);
    assert!(got.len() > 15, "{said}");
    for (name, got) in got {
        assert_eq!(got, "refused", "{name}");
    }
    assert_eq!(fs::read_to_string(victim).unwrap(), "nobody's business");
}

#[test]
fn what_is_planted_reaches_nothing_from_a_cage() {
    if !have_cages() || !tool::have_root("cages") {
        return;
    }
    let scratch = Scratch::new("cage");
    let (image, victim) = (volume(&scratch), victim(&scratch));
    let with = |words: &[&str]| {
        let mut command = plat(words);
        command.env("PLATFS_TEST_PLANTED", &victim).arg(&image);
        String::from_utf8(succeed(&mut command).stderr).unwrap()
    };
    for words in [&["ls"][..], &["info"], &["check", "-n"], &["frag"]] {
        assert_refused(&with(words), &victim);
    }
    // What lies beside a socket can be removed by its server, as the socket must be.
    fs::create_dir(scratch.join("sockets")).unwrap();
    let socket = scratch.join("sockets/socket");
    let mut serve = plat(&["serve", "--nbd"]);
    serve.arg(&socket).arg(&image).env("PLATFS_TEST_PLANTED", &victim);
    let mut server = serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("served on"), "{line}");
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    assert_refused(&String::from_utf8(server.wait_with_output().unwrap().stderr).unwrap(), &victim);
    assert!(!socket.exists(), "it goes with its server");
    if have_fuse("cages of mounts") {
        let variables = [("PLATFS_TEST_PLANTED", victim.to_str().unwrap())];
        let log = Mounted::with_env(&image, &[], &variables).unwrap().unmount();
        assert_refused(&log.join("\n"), &victim);
    }
    // The same program without a cage gets all of it: what refuses is the cage.
    let got = planted(&with(&["ls", "--sandbox=off"]));
    assert!(got.len() > 15 && got.iter().all(|(name, got)| got == "done" || name == OF_ROOT), "{got:?}");
    assert!(!victim.exists());
}

/// Commands on a mount open what their user names. They start no program, and reach no host and no other process.
#[test]
fn what_is_planted_in_commands_on_a_mount_reaches_no_program_and_no_host() {
    const REFUSED: [&str; 6] =
        ["run a program", "connect to a host", "send to a host", "signal another", "trace another", "mount"];
    let test = "cages of commands on a mount";
    if !have_cages() || !tool::have_root(test) || !have_fuse(test) {
        return;
    }
    let scratch = Scratch::new("cage-live");
    let (image, victim) = (volume(&scratch), scratch.join("victim"));
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let at = |name: &str| mounted.path().join(name).into_os_string().into_string().unwrap();
    let on_host = |name: &str| scratch.join(name).into_os_string().into_string().unwrap();
    fs::write(at("f"), "contents").unwrap();
    fs::write(on_host("source"), "source").unwrap();
    let (root, tar) = (at(""), on_host("out.tar"));
    let lines: [&[&str]; 12] = [
        &["put", &root, &on_host("source"), "/put"],
        &["get", &root, "/put", &on_host("got")],
        &["cp", &at("put"), &at("copy")],
        &["export", &root, &tar],
        &["import", "--force", &root, &tar],
        &["snapshot", &root, &on_host("snapshot.img")],
        &["defrag", &root],
        &["trim", &root],
        &["tune", "-L", "x", &root],
        &["rm", &at("copy")],
        &["stats", &root],
        &["sync", &root],
    ];
    let run = |words: &[&str]| {
        fs::write(&victim, "x").unwrap();
        let said = succeed(plat(words).env("PLATFS_TEST_PLANTED", &victim)).stderr;
        planted(&String::from_utf8(said).unwrap())
    };
    for words in lines {
        let got = run(words);
        assert!(got.len() > 15, "{words:?}: {got:?}");
        let refused: Vec<_> = got.iter().filter(|(name, _)| REFUSED.contains(&name.as_str())).collect();
        assert_eq!(refused.len(), REFUSED.len(), "{words:?}: {got:?}");
        assert!(refused.iter().all(|(_, got)| got == "refused"), "{words:?}: {refused:?}");
    }
    let without = run(&["stats", "--sandbox=off", &root]);
    let refused = |(name, got): &(String, String)| REFUSED.contains(&name.as_str()) && got != "done";
    assert!(!without.iter().any(|one| refused(one) && one.0 != OF_ROOT), "{without:?}");
    mounted.unmount();
}

/// Command lines about `disk.img`, a source, an archive and a store in one directory.
const OTHERS: [&str; 30] = [
    "mkfs new.img 4M",
    "put disk.img source/file /f",
    "put -r disk.img source /d",
    "mkdir disk.img /e",
    "cp disk.img /f /g",
    "mv disk.img /g /h",
    "ln disk.img /f /l",
    "chmod disk.img 600 /f",
    "chown disk.img 1:1 /f",
    "xattr --set user.a=b disk.img /f",
    "fallocate -l 4096 disk.img /f",
    "import disk.img source.tar.gz",
    "rm disk.img /h",
    "get disk.img /f got",
    "get -r disk.img /d got-all",
    "snapshot disk.img copy.img",
    "image --metadata disk.img metadata.img",
    "undelete --into found disk.img",
    "tune -L x disk.img",
    "tune -O ^has_journal -z undo disk.img",
    "check --undo-from undo disk.img",
    "check -f -y disk.img",
    "resize disk.img 20M",
    "defrag disk.img",
    "convert --all --to ext4 disk.img",
    "trim disk.img",
    "quota --on user disk.img",
    "placement disk.img",
    "build source built.img",
    "build source.tar.gz built-too.img",
];

/// The command lines about a store.
#[cfg(feature = "store")]
const OF_STORES: [&str; 4] =
    ["push disk.img STORE#v", "store ls STORE", "pull STORE#v pulled.img", "mkdir STORE#v /new"];
#[cfg(not(feature = "store"))]
const OF_STORES: [&str; 0] = [];

#[test]
fn what_is_planted_in_commands_that_change_or_make_images_reaches_nothing() {
    if !have_cages() || !tool::have_root("cages") || !tool::have_tools("cages", &["tar", "gzip"]) {
        return;
    }
    let (near, far) = (Scratch::new("cage"), Scratch::new("cage-victim"));
    let victim = victim(&far);
    volume(&near);
    fs::create_dir(near.join("source")).unwrap();
    fs::write(near.join("source/file"), "contents").unwrap();
    tool::run(Command::new("tar").current_dir(near.path()).args(["-czf", "source.tar.gz", "source"]));
    let store = format!("file://{}/store", near.path().display());
    for line in OTHERS.iter().chain(&OF_STORES) {
        let words: Vec<String> = line.split(' ').map(|word| word.replace("STORE", &store)).collect();
        let mut command = plat(&["--sandbox=require"]);
        command.args(words).current_dir(near.path()).env("PLATFS_TEST_PLANTED", &victim);
        // What is unpacked goes there.
        command.env("TMPDIR", near.path()).env("PLAT_CACHE", "");
        let said = String::from_utf8(succeed(&mut command).stderr).unwrap();
        // Names of users are what it shows.
        let shows = line.starts_with("quota ");
        // Landlock does not look at these, and what copies them out of an image needs the calls.
        let gives = line.starts_with("get ") || line.starts_with("undelete ");
        let said: String = said
            .lines()
            .filter(|said| {
                !gives || !said.contains(" change a mode: ") && !said.contains(" change an owner: ")
            })
            .filter(|said| !shows || !said.contains(" read the users: "))
            .map(|said| format!("{said}\n"))
            .collect();
        assert_refused(&said, &victim);
    }
}

#[test]
fn a_lock_is_held_from_a_cage() {
    let scratch = Scratch::new("cage");
    let (image, socket) = (volume(&scratch), scratch.join("socket"));
    let mut serve = plat(&["serve", "-r", "--nbd"]);
    let mut server = serve.arg(&socket).arg(&image).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let file = fs::File::open(&image).unwrap();
    let taken = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    assert_eq!(taken, Err(rustix::io::Errno::WOULDBLOCK), "{line}");
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
}

#[test]
fn a_mount_in_the_background_has_its_cage_and_its_helper() {
    if !have_cages() || !have_fuse("cages of mounts") {
        return;
    }
    let scratch = Scratch::new("cage");
    let (image, directory) = (volume(&scratch), scratch.join("mount"));
    fs::create_dir(&directory).unwrap();
    succeed(plat(&["mount", "--sandbox=require"]).arg(&image).arg(&directory));
    let stats = succeed(plat(&["stats"]).arg(&directory)).stdout;
    fs::write(directory.join("file"), "x").unwrap();
    succeed(plat(&["umount"]).arg(&directory));
    assert!(String::from_utf8(stats).unwrap().contains("cage: landlock "));
    assert!(!directory.join("file").exists());
    // Without one, nothing is started beside it.
    succeed(plat(&["mount", "-o", "sandbox=off"]).arg(&image).arg(&directory));
    assert!(directory.join("file").exists());
    succeed(plat(&["umount"]).arg(&directory));
}

/// The value of a line of a status, for each thread of a process.
fn of_threads(process: u32, name: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let texts = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default());
    let lines = texts.filter_map(|text| {
        text.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
    });
    lines.collect()
}

#[test]
fn all_threads_of_a_mount_are_in_its_cage_and_its_statistics_say_so() {
    if !have_cages() || !tool::have_root("cages") || !have_fuse("cages of mounts") {
        return;
    }
    let scratch = Scratch::new("cage");
    let image = volume(&scratch);
    let said = |mounted: &Mounted| {
        let shown = succeed(plat(&["stats"]).arg(mounted.path())).stdout;
        let shown = String::from_utf8(shown).unwrap();
        shown.lines().find_map(|line| line.strip_prefix("cage: ")).map(str::to_owned).unwrap()
    };
    let mounted = Mounted::new(&image, &["--sandbox=require"]).unwrap();
    let cage = said(&mounted);
    assert!(cage.starts_with("landlock ") && cage.contains(", seccomp, capabilities dac_override"), "{cage}");
    fs::write(mounted.path().join("file"), "x").unwrap();
    let process = mounted.process();
    assert!(of_threads(process, "Seccomp:").iter().all(|mode| mode == "2"));
    assert!(of_threads(process, "NoNewPrivs:").iter().all(|set| set == "1"));
    // DAC_OVERRIDE, DAC_READ_SEARCH, IPC_LOCK, SYS_NICE, SYS_RESOURCE, whichever there are.
    let most: u64 = 1 << 1 | 1 << 2 | 1 << 14 | 1 << 23 | 1 << 24;
    for name in ["CapEff:", "CapPrm:", "CapInh:"] {
        let sets = of_threads(process, name);
        let bits = sets.iter().map(|set| u64::from_str_radix(set, 16).unwrap());
        assert!(sets.len() > 4 && bits.into_iter().all(|bits| bits & !most == 0), "{name} {sets:?}");
    }
    mounted.unmount();
    let mounted = Mounted::new(&image, &["-o", "sandbox=off"]).unwrap();
    assert_eq!(said(&mounted), "none");
    assert!(of_threads(mounted.process(), "Seccomp:").iter().all(|mode| mode == "0"));
    mounted.unmount();
}

#[test]
fn a_signal_unmounts_from_a_cage_and_nothing_is_left_of_its_helper() {
    if !have_cages() || !have_fuse("cages of mounts") {
        return;
    }
    let scratch = Scratch::new("cage");
    let image = volume(&scratch);
    let mut mounted = Mounted::new(&image, &[]).unwrap();
    let children = format!("/proc/{0}/task/{0}/children", mounted.process());
    let helper: i32 = fs::read_to_string(children).unwrap().trim().parse().unwrap();
    mounted.signal(Signal::TERM);
    let (status, log) = mounted.wait();
    assert!(status.success() && log.iter().any(|line| line.contains("unmounted")), "{status} {log:?}");
    assert!(!Path::new(&format!("/proc/{helper}")).exists());
}

#[test]
fn a_cage_that_is_required_and_cannot_be_had_is_named() {
    let scratch = Scratch::new("cage");
    let image = volume(&scratch);
    for words in [&["ls", "."][..], &["stats", "."]] {
        let said = fail(plat(words).arg("--sandbox=require"));
        assert!(said.contains("--sandbox=require"), "{said}");
    }
    let output = plat(&["ls", "--sandbox=maybe"]).arg(&image).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn outputs_are_made_from_a_cage_where_they_belong() {
    if !have_cages() {
        return;
    }
    let scratch = Scratch::new("cage");
    let image = volume(&scratch);
    fs::create_dir(scratch.join("elsewhere")).unwrap();
    fs::write(scratch.join("elsewhere/real.tar"), "").unwrap();
    std::os::unix::fs::symlink("elsewhere/real.tar", scratch.join("link.tar")).unwrap();
    for name in ["new.tar", "link.tar", "tree"] {
        let mut export = plat(&["export", "--sandbox=require"]);
        succeed(export.args((name == "link.tar").then_some("--force")).arg(&image).arg(scratch.join(name)));
        assert!(scratch.join(name).exists(), "{name}");
    }
    // By names that hold in the working directory only, and to what is no file.
    let mut command = Command::new(env!("CARGO_BIN_EXE_plat"));
    command.current_dir(scratch.path()).args(["map", "disk.img", "-o", "page.html"]);
    succeed(&mut command);
    let mut command = Command::new("sh");
    command.arg("-c").arg("\"$0\" export disk.img - | tar -t > list && \"$0\" cat /dev/fd/7 /x 7< disk.img");
    command.arg(env!("CARGO_BIN_EXE_plat")).current_dir(scratch.path()).process_group(0);
    let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(said.contains("no such file") && !fs::read(scratch.join("list")).unwrap().is_empty(), "{said}");
}

/// Sources, outputs and reports lie in other directories, some behind links.
#[test]
fn sources_and_outputs_may_lie_anywhere() {
    if !have_cages() {
        return;
    }
    let scratch = Scratch::new("cage-places");
    let image = volume(&scratch);
    let at = |name: &str| scratch.join(name);
    for name in ["images", "out", "reports", "tree/below"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    fs::rename(&image, at("images/disk.img")).unwrap();
    std::os::unix::fs::symlink("images/disk.img", at("link.img")).unwrap();
    std::os::unix::fs::symlink("out", at("way")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", at("tree/leak")).unwrap();
    fs::write(at("tree/below/file"), "text").unwrap();
    let text = |name: &str| at(name).display().to_string();
    let (link, tree) = (text("link.img"), text("tree"));
    let lines: &[&[&str]] = &[
        &["put", "-r", &link, &tree, "/"],
        &["export", &link, &text("way/tree")],
        &["export", &link, &text("way/tree.tar")],
        &["get", &link, "/tree/below/file", &text("way/file")],
        &["snapshot", &link, &text("way/copy.img")],
        &["map", &link, "-o", &text("reports/map.svg")],
        &["build", "--bmap", &text("reports/made.bmap"), &tree, &text("way/made.img")],
        &["resize", &link, "24M"],
    ];
    for line in lines {
        succeed(plat(&["--sandbox=require"]).args(*line));
    }
    assert_eq!(fs::read_to_string(at("out/tree/tree/below/file")).unwrap(), "text");
    // A link of the tree stays one.
    assert_eq!(fs::read_link(at("out/tree/tree/leak")).unwrap(), Path::new("/etc/hostname"));
    let made = succeed(plat(&["ls", "-l"]).arg(at("out/made.img")).arg("/"));
    assert!(String::from_utf8_lossy(&made.stdout).contains("leak -> /etc/hostname"));
}
