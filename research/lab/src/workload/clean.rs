//! Workloads of one kind or another: the same calls for the same seed, and a volume without damage behind them.

use platfs::check::{self, Decision, Issue, Sink};
use platfs::mkfs::FsType;

use super::{Kinds, Scale, Workload, in_model_time, in_real_time};
use crate::drive::Drive;
use crate::system::{Directory, Library, Mounting, Op};

const NAMES: [&str; 6] = ["database", "git", "layers", "mail", "service", "tree"];

fn quick(seed: u64) -> Scale {
    Scale { seed, quick: true, ..Scale::default() }
}

#[derive(Default)]
struct Issues(Vec<Issue>);

impl Sink for Issues {
    fn issue(&mut self, issue: Issue) -> Decision {
        self.0.push(issue);
        Decision::Leave
    }
}

fn library(size: u64) -> Library {
    let plain = Mounting::new(Drive::named("sata-2010").unwrap(), size, FsType::Ext4);
    Library::new(&Mounting { delay: 16 << 20, ..plain }).unwrap()
}

/// Runs a workload; what its calls took, on a volume that is clean then.
fn ran(name: &str, scale: &Scale) -> Kinds {
    let library = library(2 << 30);
    let mut all = Kinds::new();
    for phase in (Workload::named(name).unwrap().phases)(scale).unwrap() {
        let outcome = in_model_time(&library, phase).unwrap();
        outcome.kinds.iter().for_each(|(kind, timing)| all.entry(kind).or_default().add(timing));
    }
    let mut issues = Issues::default();
    check::check(library.close().unwrap(), &check::Options::default(), &mut issues).unwrap();
    assert!(issues.0.is_empty(), "{name}: {:?}", issues.0);
    all
}

#[test]
fn the_same_calls_follow_from_the_same_seed() {
    let calls = |name: &str, seed| -> Vec<Vec<Vec<Op>>> {
        let phases = (Workload::named(name).unwrap().phases)(&quick(seed)).unwrap();
        phases.into_iter().map(|phase| phase.clients.into_iter().map(Iterator::collect).collect()).collect()
    };
    for name in NAMES {
        assert!(calls(name, 5) == calls(name, 5), "{name}");
        // The tree is as it is; others differ.
        assert_eq!(calls(name, 5) == calls(name, 6), name == "tree", "{name}");
    }
}

#[test]
fn all_calls_succeed_and_leave_a_clean_volume() {
    for name in NAMES {
        ran(name, &quick(1));
    }
}

/// The sample is what `sh` did below /tmp/spool: mkdir, cat, cp, ln, mv, dd, truncate, rm, tar, of which this was left.
#[test]
fn a_recorded_trace_leaves_the_files_that_its_programs_left() {
    let dir = std::env::temp_dir().join(format!("plat-lab-strace-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("root")).unwrap();
    let trace = dir.join("trace");
    std::fs::write(&trace, include_str!("sample.strace")).unwrap();
    let mut scale = quick(1);
    scale.settings.insert("trace".into(), trace.to_string_lossy().into());
    scale.settings.insert("root".into(), "/tmp/spool".into());
    let directory = Directory::new(dir.join("root"));
    for phase in (Workload::named("replay").unwrap().phases)(&scale).unwrap() {
        in_real_time(&directory, phase).unwrap();
    }
    let mut found = Vec::new();
    let mut waiting = vec![dir.join("root")];
    while let Some(above) = waiting.pop() {
        for entry in std::fs::read_dir(above).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            let len = if kind.is_file() { entry.metadata().unwrap().len() } else { 0 };
            let path = entry.path().strip_prefix(dir.join("root")).unwrap().to_string_lossy().into_owned();
            found.push((path, len));
            if kind.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    let kinds = ran("replay", &scale);
    std::fs::remove_dir_all(&dir).unwrap();
    found.sort();
    let left = [
        ("d", 0),
        ("d/big", 100),
        ("d/e", 0),
        ("d/e/four", 6),
        ("d/link", 0),
        ("d/one.copy", 6),
        ("d/three", 6),
        ("t", 0),
        ("t/a.tar", 10_240),
    ];
    assert_eq!(found, left.map(|(path, len)| (path.to_string(), len)));
    assert_eq!((kinds["link"].calls, kinds["symlink"].calls, kinds["rename"].calls), (2, 2, 1));
    scale.settings.insert("root".into(), "/elsewhere".into());
    assert!((Workload::named("replay").unwrap().phases)(&scale).is_err());
}

#[test]
fn an_archive_is_unpacked_and_removed_as_it_is() {
    let dir = std::env::temp_dir().join(format!("plat-lab-tar-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("a/b")).unwrap();
    std::fs::write(dir.join("a/b/file"), vec![1; 200_000]).unwrap();
    std::fs::hard_link(dir.join("a/b/file"), dir.join("a/second")).unwrap();
    std::os::unix::fs::symlink("b", dir.join("a/link")).unwrap();
    let path = dir.join("a.tar");
    let tar = std::process::Command::new("tar").arg("-C").arg(&dir).arg("-cf").arg(&path).arg("a").status();
    let mut scale = quick(1);
    scale.settings.insert("tar".into(), path.to_string_lossy().into());
    let kinds = ran("tree", &scale);
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(tar.unwrap().success());
    let count = |kind| kinds.get(kind).map_or(0, |timing| timing.calls);
    let wanted = [("mkdir", 2), ("create", 1), ("link", 1), ("symlink", 1), ("unlink", 3), ("rmdir", 2)];
    assert_eq!(wanted.map(|(kind, _)| (kind, count(kind))), wanted);
    assert_eq!(kinds["write"].bytes, 200_000);
}

/// The sample is what `plat mount --trace` wrote of mkdir, cp, head, mv, ln, truncate, rm, tar and ln -s; these files were left.
#[test]
fn a_trace_of_a_mount_leaves_the_files_that_were_on_it() {
    let dir = std::env::temp_dir().join(format!("plat-lab-calls-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("root")).unwrap();
    let trace = dir.join("trace");
    std::fs::write(&trace, include_str!("sample.calls")).unwrap();
    let mut scale = quick(1);
    scale.settings.insert("trace".into(), trace.to_string_lossy().into());
    let directory = Directory::new(dir.join("root"));
    for phase in (Workload::named("replay").unwrap().phases)(&scale).unwrap() {
        in_real_time(&directory, phase).unwrap();
    }
    let (mut found, mut waiting) = (Vec::new(), vec![dir.join("root")]);
    while let Some(above) = waiting.pop() {
        for entry in std::fs::read_dir(above).unwrap().map(Result::unwrap) {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                waiting.push(entry.path());
            } else if kind.is_file() {
                let path =
                    entry.path().strip_prefix(dir.join("root")).unwrap().to_string_lossy().into_owned();
                found.push((path, entry.metadata().unwrap().len()));
            }
        }
    }
    ran("replay", &scale);
    std::fs::remove_dir_all(&dir).unwrap();
    found.sort();
    let mut left = [
        ("a b/bash/CHANGES.gz", 126_824),
        ("a b/bash/COMPAT.gz", 10_180),
        ("a b/bash/INTRO.gz", 2_921),
        ("a b/bash/NEWS.gz", 35_089),
        ("a b/bash/POSIX.gz", 4_329),
        ("a b/bash/RBASH", 2_472),
        ("a b/bash/README.Debian.gz", 1_919),
        ("a b/bash/README.abs-guide", 1_105),
        ("a b/bash/README.commands.gz", 3_021),
        ("a b/bash/README.gz", 2_003),
        ("a b/bash/changelog.Debian.amd64.gz", 250),
        ("a b/bash/changelog.Debian.gz", 1_366),
        ("a b/bash/changelog.gz", 126_824),
        ("a b/bash/copyright", 9_764),
        ("a b/bash/inputrc.arrows", 727),
        ("a b/c/g", 10_000),
        ("f4", 30_000),
        ("f5", 123_456),
        ("h", 20_000),
        ("t.tar", 358_400),
    ]
    .map(|(path, len)| (path.to_string(), len));
    left.sort();
    assert_eq!(found, left);
}
