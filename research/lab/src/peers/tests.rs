//! Guards, tried by failing on purpose; what tools print, recorded; and a small run of everything.

use super::*;
use crate::results::Record;
use crate::system::{Computer, Library, System};
use std::panic::{AssertUnwindSafe, catch_unwind};

const QUICK: u64 = 320;

fn have_loop() -> bool {
    let peer = Peer::named("ext4", None).unwrap();
    let missing = peer.missing();
    if let Some(why) = &missing {
        testkit::tool::skip("peers", why);
    }
    missing.is_none()
}

fn loops_of(root: &Path) -> usize {
    let name = root.file_name().unwrap().to_string_lossy().into_owned();
    let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
    let file = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("loop/backing_file"));
    devices.filter(|_| true).filter_map(|entry| file(entry).ok()).filter(|file| file.contains(&name)).count()
}

#[test]
fn a_panic_leaves_no_mount_no_loop_device_and_no_file() {
    if !have_loop() {
        return;
    }
    let place = WorkDir::new(&std::env::temp_dir()).unwrap();
    let root = place.mount_point().parent().unwrap().to_owned();
    let peer = Peer::named("ext4", None).unwrap();
    peer.make(&place, 32 << 20).unwrap();
    let torn = catch_unwind(AssertUnwindSafe(|| {
        let mounted = place::Mounted::kernel(&place, "ext4", "").unwrap();
        std::fs::write(mounted.path().join("file"), b"x").unwrap();
        assert_eq!(loops_of(&root), 1);
        assert!(mounted.device().unwrap().starts_with("loop"));
        panic!("on purpose");
    }));
    assert!(torn.is_err() && !tool::is_mounted(&place.mount_point()));
    assert_eq!(loops_of(&root), 0);
    // Nothing is mounted on what is no volume, and the loop device goes too.
    place.empty_image(32 << 20).unwrap();
    let error = place::Mounted::kernel(&place, "ext4", "").err().unwrap();
    assert!(error.starts_with("mount: "), "{error}");
    assert_eq!(loops_of(&root), 0);
    let false_ = tool::find("false").unwrap();
    let error = place::Mounted::served(&place, &false_, &[]).err().unwrap();
    assert!(error.contains("exit status: 1: no message"), "{error}");
    // A mount that its guard forgot goes with the place.
    peer.make(&place, 32 << 20).unwrap();
    std::mem::forget(place::Mounted::kernel(&place, "ext4", "").unwrap());
    drop(place);
    assert!(!root.exists() && !tool::is_mounted(&root.join("mount")) && loops_of(&root) == 0);
}

#[test]
fn what_is_asked_wrongly_is_explained() {
    assert!(Peer::named("zfs", None).unwrap_err().contains("there are library, fuse, ext4"));
    assert!(Peer::named("library:ro", None).unwrap_err().contains("no mount options"));
    assert!(WorkDir::new(Path::new("/nowhere")).err().unwrap().starts_with("/nowhere: "));
    assert!(tool::run("no-such-tool", [""]).unwrap_err().contains("is not installed"));
}

/// Layout decides: a file whose blocks lie in their order against one whose blocks alternate with another's.
#[test]
fn pieces_cost_a_cold_reader_time_on_a_disk() {
    use platfs::placement::BlockPolicyKind;
    let place = WorkDir::new(&std::env::temp_dir()).unwrap();
    let time = |policy| {
        let peer = Peer::named("library", None).unwrap();
        peer.make(&place, 192 << 20).unwrap();
        let mounting = Computer::mounting().policy(policy).delay(0);
        let library = Library::<Computer>::on_image(&place.image(), &mounting).unwrap();
        let mut scale = Scale { quick: true, ..Scale::default() };
        scale.settings.insert("size".into(), (1 << 20).to_string());
        for phase in (Workload::named("append").unwrap().phases)(&scale).unwrap() {
            // A call each in turn: with threads the machine would decide how far their blocks alternate.
            let mut clients: std::collections::VecDeque<_> =
                phase.clients.into_iter().map(|calls| (library.client(), calls)).collect();
            while let Some((mut client, mut calls)) = clients.pop_front() {
                if let Some(call) = calls.next() {
                    client.perform(&call).unwrap();
                    clients.push_back((client, calls));
                }
            }
        }
        library.close().unwrap();
        let again = cold::figures(&place.image()).unwrap();
        assert_eq!(again, cold::figures(&place.image()).unwrap());
        again[0].1
    };
    let (lease, single) = (time(BlockPolicyKind::Lease), time(BlockPolicyKind::Single));
    assert!(lease * 1.5 < single, "{lease} {single}");
}

#[test]
fn the_same_calls_on_the_library_and_the_kernel_are_compared() {
    let results = std::env::temp_dir().join(format!("plat-lab-peers-results-{}", std::process::id()));
    let options = CompareOptions {
        workloads: vec!["dd".into(), "age".into()],
        systems: ["library", "ext4", "xfs", "btrfs"].map(String::from).to_vec(),
        size: QUICK,
        rounds: 1,
        seed: 1,
        quick: true,
        dir: std::env::temp_dir(),
        plat: None,
        results: Some(results.clone()),
    };
    let cells = compare_all(&options, CASES).unwrap();
    let records = crate::results::read(std::slice::from_ref(&results)).unwrap();
    std::fs::remove_file(&results).unwrap();
    let skipped = records.iter().filter(|record| matches!(record, Record::Skipped(_))).count();
    assert_eq!(cells.len(), 2 * (4 - skipped));
    let figure = |system: &str, case: &str, name: &str| {
        let cell = cells.iter().find(|cell| cell.system == system && cell.case.starts_with(case))?;
        cell.figures.0.iter().find(|figure| figure.0 == name).map(|figure| figure.1)
    };
    assert_eq!(figure("library", "dd", "extents/file"), Some(1.0));
    let cold = |system: &str, at: usize| figure(system, "age", cold::DRIVES[at].1);
    let (disk, flash) = (cold("library", 0).unwrap(), cold("library", 1).unwrap());
    assert!(disk > flash && flash > 0.0 && cold("xfs", 0).is_none(), "{disk} {flash}");
    let files = figure("library", "age", "files").unwrap();
    assert!(files > 100.0, "{files}");
    for system in ["ext4", "xfs", "btrfs"] {
        match figure(system, "age", "files") {
            Some(others) => assert_eq!(others, files, "{system}"),
            None => testkit::tool::skip("peers", &format!("{system} can't run here")),
        }
    }
    if figure("ext4", "age", "files").is_some() {
        let verdicts = records.iter().filter(|record| matches!(record, Record::Verdict(_))).count();
        assert_eq!(verdicts, 2 * 6);
    }
}
