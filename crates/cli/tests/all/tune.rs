//! `plat tune`: output, plans, refusals, and changes that are cut off.

#[allow(dead_code, reason = "shared with other tests")]
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use plat_cli::reshaping;
use platfs::device::{Device, FileDevice};
use platfs::mkfs::parse_features;
use platfs_open::undo;
use platfs_reshape::tune::{Request, tune};
use testkit::scratch::Scratch;
use testkit::{fsck, sparse, tool};

fn volume(scratch: &Scratch, options: &[&str]) -> PathBuf {
    let image = scratch.join("disk.img");
    let tree = scratch.join("tree");
    fs::create_dir_all(tree.join("many")).unwrap();
    for number in 0..700 {
        fs::write(tree.join(format!("many/a name of some length, number {number}")), number.to_string())
            .unwrap();
    }
    let mut command = tool::command("mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-d"]).arg(&tree).args(options).arg(&image).arg("32M");
    tool::run(&mut command);
    image
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

fn tuned(image: &Path, arguments: &[&str]) -> crate::plat::Ran {
    ran("tune", image, arguments)
}

fn ran(command: &str, image: &Path, arguments: &[&str]) -> crate::plat::Ran {
    let arguments: Vec<&std::ffi::OsStr> = arguments.iter().map(std::ffi::OsStr::new).collect();
    crate::plat::plat(command, image, &arguments)
}

#[test]
fn fields_change_and_are_listed() {
    if !tool::have_tools("tune", &["mke2fs", "e2fsck", "dumpe2fs"]) {
        return;
    }
    let scratch = Scratch::new("tune-fields");
    let image = volume(&scratch, &[]);
    let said = text(tuned(&image, &["-L", "root", "-m", "1", "-e", "panic"]).fine());
    assert!(said.contains("Filesystem volume name: is now root (was <none>)"), "{said}");
    let listed = text(tuned(&image, &["-l"]).fine());
    assert!(listed.contains("Filesystem volume name:   root\n"), "{listed}");
    assert!(listed.contains("Errors behavior:          Panic\n"), "{listed}");
    assert_eq!(tool::dumpe2fs_field(&image, "Filesystem volume name").as_deref(), Some("root"));
    fsck::assert_clean(&image);
    let json = text(tuned(&image, &["-L", "other", "--json"]).fine());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["written"], true);
    assert_eq!(json["changed"][0]["field"], "volume_name");
    assert_eq!(json["changed"][0]["after"], "other");
}

#[test]
fn a_plan_writes_nothing() {
    if !tool::have_tools("tune", &["mke2fs"]) {
        return;
    }
    let scratch = Scratch::new("tune-plan");
    let image = volume(&scratch, &[]);
    let before = fs::read(&image).unwrap();
    let said = text(tuned(&image, &["-n", "-O", "^metadata_csum,quota", "-U", "random"]).fine());
    assert!(said.contains("Filesystem UUID: would become"), "{said}");
    assert!(said.contains("Filesystem features: +uninit_bg +quota -metadata_csum\n"), "{said}");
    assert!(said.contains("nothing was written"), "{said}");
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn what_is_no_change_is_wrong_usage() {
    if !tool::have_tools("tune", &["mke2fs"]) {
        return;
    }
    let scratch = Scratch::new("tune-usage");
    let image = volume(&scratch, &[]);
    let before = fs::read(&image).unwrap();
    for (arguments, words) in [
        (&[][..], "nothing to change"),
        (&["-O", "none"], "-O none"),
        (&["-O", "colour"], "unknown feature"),
        (&["-E", "colour=red"], "unknown"),
        (&["-L", "more than sixteen bytes"], "16 fit"),
        (&["-m", "60"], "0 to 50"),
        (&["-U", "x"], "not a UUID"),
        (&["-I", "300"], "power of two"),
        (&["-J", "size=512K"], "1024"),
    ] {
        let ran = tuned(&image, arguments);
        assert_eq!(ran.code, std::process::ExitCode::from(2), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(words), "{arguments:?}: {}", ran.err);
    }
    let refused = tuned(&image, &["-O", "bigalloc"]).failed();
    assert!(refused.contains("whole clusters"), "{refused}");
    assert!(fs::read(&image).unwrap() == before);
}

/// A device that fails for good after some writes, as if the machine had stopped.
struct Cut {
    inner: FileDevice,
    left: AtomicUsize,
}

impl Device for Cut {
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left.is_err() {
            return Err(io::Error::other("cut off"));
        }
        self.inner.write_at(offset, data)
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

fn request(list: &str) -> Request {
    Request { features: parse_features(list).unwrap(), ..Request::default() }
}

/// Begins a change as the command does, and is cut off after some writes; whether it came to its end.
fn cut_off(image: &Path, list: &str, writes: usize) -> bool {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let cut = Cut { inner: FileDevice::new(file).unwrap(), left: AtomicUsize::new(writes) };
    let device: Arc<dyn Device> = Arc::new(cut);
    let tuned = tune(&device, &request(list), reshaping::limits()).unwrap();
    let beside = image.with_file_name(".disk.img.plat-undo");
    if !tuned.change.is_atomic() {
        undo::save(&beside, tuned.change.staged()).unwrap();
    }
    tuned.change.apply().is_ok()
}

#[test]
fn a_change_that_was_cut_off_anywhere_is_finished_by_the_same_command() {
    if !tool::have_tools("tune", &["mke2fs", "e2fsck"]) {
        return;
    }
    for list in ["^metadata_csum", "^has_journal", "has_journal"] {
        let scratch = Scratch::new("tune-cut");
        let without: &[&str] = if list == "has_journal" { &["-O", "^has_journal"] } else { &[] };
        let image = volume(&scratch, &[&["-b", "1024"], without].concat());
        let before = fs::read(&image).unwrap();
        let mut writes = 0;
        loop {
            sparse::write(&image, &before).unwrap();
            let whole = cut_off(&image, list, writes);
            if !whole {
                // Nobody takes what is between two volumes for one.
                let refused = ran("mkdir", &image, &["/x"]).failed();
                assert!(refused.contains("cut off"), "{refused}");
            }
            let ran = tuned(&image, &["-O", list]);
            assert_eq!(ran.code, std::process::ExitCode::SUCCESS, "{list}, {writes} writes: {}", ran.err);
            assert!(whole || ran.err.contains("taken back"), "{list}, {writes} writes: {}", ran.err);
            assert!(!image.with_file_name(".disk.img.plat-undo").exists());
            fsck::assert_clean(&image);
            if whole {
                break;
            }
            writes += 1 + writes / 2;
        }
        assert!(writes > 3, "{list}");
    }
}

#[test]
fn anothers_way_back_is_not_taken_where_all_may_put_files() {
    use std::os::unix::fs::PermissionsExt;
    let test = "anothers_way_back_is_not_taken";
    if !tool::have_root(test) || !tool::have_tools(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, &["-b", "1024"]);
    assert!(!cut_off(&image, "^metadata_csum", 3));
    let beside = image.with_file_name(".disk.img.plat-undo");
    let above = beside.parent().unwrap();
    fs::set_permissions(above, fs::Permissions::from_mode(0o1777)).unwrap();
    std::os::unix::fs::chown(&beside, Some(1001), None).unwrap();
    let before = fs::read(&image).unwrap();
    let refused = tuned(&image, &["-O", "^metadata_csum"]).failed();
    assert!(refused.contains("belongs to user 1001"), "{refused}");
    assert!(fs::read(&image).unwrap() == before && beside.exists());
    std::os::unix::fs::chown(&beside, Some(0), None).unwrap();
    assert!(tuned(&image, &["-O", "^metadata_csum"]).err.contains("taken back"));
    fsck::assert_clean(&image);
}

/// A write with its place, or a flush.
type Noted = Option<(u64, Vec<u8>)>;

/// A device that notes what is written, and when it is flushed as `None`; nothing reaches the image.
struct Noting {
    inner: FileDevice,
    noted: Mutex<Vec<Noted>>,
}

impl Device for Noting {
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.noted.lock().unwrap().push(Some((offset, data.to_vec())));
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        self.noted.lock().unwrap().push(None);
        Ok(())
    }
}

/// Image that a power failure can leave: all that was flushed, and of the rest any sectors.
fn after_a_power_failure(before: &[u8], noted: &[Option<(u64, Vec<u8>)>], mut seed: u64) -> Vec<u8> {
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed >> 20
    };
    let flushes: Vec<usize> = (0..noted.len()).filter(|at| noted[*at].is_none()).collect();
    let stable = match next() % (flushes.len() as u64 + 1) {
        0 => 0,
        nth => flushes[usize::try_from(nth).unwrap() - 1] + 1,
    };
    let end = flushes.iter().find(|at| **at >= stable).map_or(noted.len(), |at| *at);
    let mut image = before.to_vec();
    for (at, written) in noted[..end].iter().enumerate() {
        let Some((offset, data)) = written else { continue };
        for (sector, bytes) in data.chunks(512).enumerate() {
            if at < stable || next() % 2 == 0 {
                let start = usize::try_from(*offset).unwrap() + sector * 512;
                image[start..start + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
    image
}

fn power_failures(lists: &[&str], states: u64) {
    if !tool::have_tools("tune", &["mke2fs", "e2fsck"]) {
        return;
    }
    for list in lists {
        let scratch = Scratch::new("tune-power");
        let image = volume(&scratch, &["-b", "1024"]);
        let before = fs::read(&image).unwrap();
        let inner = FileDevice::new(File::open(&image).unwrap()).unwrap();
        let noting = Arc::new(Noting { inner, noted: Mutex::default() });
        let device: Arc<dyn Device> = Arc::clone(&noting) as Arc<dyn Device>;
        let tuned_in_memory = tune(&device, &request(list), reshaping::limits()).unwrap();
        let kept = scratch.join("kept");
        undo::save(&kept, tuned_in_memory.change.staged()).unwrap();
        tuned_in_memory.change.apply().unwrap();
        let noted = noting.noted.lock().unwrap();
        for seed in 1..=states {
            fs::write(
                &image,
                after_a_power_failure(&before, &noted, seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            )
            .unwrap();
            fs::copy(&kept, image.with_file_name(".disk.img.plat-undo")).unwrap();
            let ran = tuned(&image, &["-O", list]);
            assert_eq!(ran.code, std::process::ExitCode::SUCCESS, "{list}, state {seed}: {}", ran.err);
            fsck::assert_clean(&image);
        }
    }
}

#[test]
fn a_power_failure_leaves_what_the_same_command_finishes() {
    power_failures(&["^metadata_csum", "quota"], 12);
}

#[test]
#[ignore = "thousands of states: cargo test -p platfs-cli --test all tune:: -- --ignored"]
fn power_failures_of_all_changes_often() {
    let lists = [
        "^metadata_csum",
        "quota",
        "^has_journal",
        "^filetype",
        "^dir_index",
        "^resize_inode",
        "^64bit",
        "mmp",
    ];
    power_failures(&lists, 500);
}

#[test]
fn the_way_back_can_be_kept() {
    if !tool::have_tools("tune", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("tune-undo");
    let image = volume(&scratch, &[]);
    let before = fs::read(&image).unwrap();
    let way = scratch.join("way");
    tuned(&image, &["-U", "random", "-z", way.to_str().unwrap()]).fine();
    assert!(fs::read(&image).unwrap() != before);
    fsck::assert_clean(&image);
    let back = ran("check --undo-from", &way, &[image.to_str().unwrap()]);
    assert_eq!(back.code, std::process::ExitCode::SUCCESS, "{}", back.err);
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn a_mounted_volume_changes_by_its_server() {
    if !crate::support::mounted::have_fuse("tune")
        || !tool::have_tools("tune", &["mke2fs", "e2fsck", "dumpe2fs"])
    {
        return;
    }
    for options in [&[][..], &["-O", "^has_journal"], &["-O", "metadata_csum_seed"]] {
        let scratch = Scratch::new("tune-mounted");
        let image = volume(&scratch, options);
        let mount = crate::support::mounted::Mounted::new(&image, &[]).unwrap();
        fs::write(mount.path().join("before"), "x").unwrap();
        tuned(mount.path(), &["-L", "live", "-r", "99", "-c", "7", "-e", "panic"]).fine();
        fs::write(mount.path().join("after"), "y").unwrap();
        let seeded = options.contains(&"metadata_csum_seed");
        let id = "01234567-89ab-cdef-0123-456789abcdef";
        if seeded {
            tuned(mount.path(), &["-U", id]).fine();
        } else {
            let why = tuned(mount.path(), &["-U", id]).failed();
            assert!(why.contains("--fast") || why.contains("unmount"), "{why}");
            tuned(mount.path(), &["-U", id, "--fast"]).fine();
        }
        fs::write(mount.path().join("later"), "z".repeat(100_000)).unwrap();
        for (arguments, words) in [
            (&["-O", "quota"][..], "unmount it first"),
            (&["-r", "999999"], "more than half"),
            (&["-E", "force_fsck"], "not mounted"),
        ] {
            let why = tuned(mount.path(), arguments).failed();
            assert!(why.contains(words), "{arguments:?}: {why}");
        }
        if options.contains(&"^has_journal") {
            mount.unmount();
        } else {
            // What the command said to be done is stable: the server is killed, and the journal replayed.
            drop(mount);
            crate::support::mounted::Mounted::new(&image, &[]).unwrap().unmount();
        }
        let field = |name: &str| tool::dumpe2fs_field(&image, name).unwrap();
        assert_eq!(field("Filesystem volume name"), "live");
        assert_eq!(field("Reserved block count"), "99");
        assert_eq!(field("Maximum mount count"), "7");
        assert_eq!(field("Errors behavior"), "Panic");
        assert_eq!(field("Filesystem UUID"), id);
        fsck::assert_clean(&image);
    }
}

/// An image made by mke2fs with these options, and changed by these requests to debugfs.
fn made(scratch: &Scratch, options: &[&str], requests: &[&str]) -> PathBuf {
    let image = scratch.join("made.img");
    tool::run(tool::command("mke2fs").args(["-q", "-F"]).args(options).arg(&image).arg("16M"));
    for request in requests {
        tool::run(tool::command("debugfs").args(["-w", "-R", request]).arg(&image));
    }
    image
}

/// As tune2fs does it, and what changes the size does the same.
#[test]
fn a_journal_that_waits_is_replayed_first() {
    if !tool::have_tools("tune", &["mke2fs", "debugfs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("tune-replay");
    let [old, new, script] = ["old", "new", "script"].map(|name| scratch.join(name));
    fs::write(&old, [b'o'; 1024]).unwrap();
    fs::write(&new, [b'n'; 1024]).unwrap();
    for (command, arguments) in
        [("tune", ["-O", "quota"]), ("tune", ["-L", "new"]), ("resize", ["20M", "--json"])]
    {
        let options = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"];
        let image = made(&scratch, &options, &[&format!("write {} file", old.display())]);
        let block = tool::debugfs(&image, "blocks /file");
        // A transaction with the one block of the file.
        fs::write(&script, format!("jo\njw -b {} {}\njc\n", block.trim(), new.display())).unwrap();
        tool::run(tool::command("debugfs").arg("-w").arg("-f").arg(&script).arg(&image));
        let ran = ran(command, &image, &arguments);
        assert!(ran.err.contains("its journal was replayed"), "{command}: {}", ran.err);
        assert_eq!(ran.code, std::process::ExitCode::SUCCESS, "{command}: {}", ran.err);
        assert_eq!(ran_cat(&image), [b'n'; 1024], "{command}");
        fsck::assert_clean(&image);
    }
}

fn ran_cat(image: &Path) -> Vec<u8> {
    ran("cat", image, &["/file"]).fine()
}

#[test]
fn a_journal_whose_device_is_lost_is_given_up() {
    if !tool::have_tools("tune", &["mke2fs", "debugfs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("tune-lost-journal");
    let requests = [
        "feature has_journal needs_recovery",
        "ssv journal_dev 0x700",
        "ssv journal_uuid 51a2e62e-dc36-4616-ba6d-b5f4c117aa58",
    ];
    let image = made(&scratch, &["-t", "ext4", "-O", "^has_journal"], &requests);
    let before = fs::read(&image).unwrap();
    let refusals: [&[&str]; 3] =
        [&["-O", "^has_journal"], &["-f", "-L", "x"], &["-f", "-L", "x", "-O", "^has_journal"]];
    for refused in refusals {
        tuned(&image, refused).failed();
        assert!(fs::read(&image).unwrap() == before, "{refused:?}");
    }
    assert!(tuned(&image, &["-L", "x"]).failed().contains("plat tune -f -O ^has_journal"));
    let ran = tuned(&image, &["-f", "-O", "^has_journal"]);
    assert!(ran.err.contains("plat check -y"), "{}", ran.err);
    assert_eq!(ran.code, std::process::ExitCode::SUCCESS, "{}", ran.err);
    assert_eq!(tool::dumpe2fs_field(&image, "Filesystem state").as_deref(), Some("not clean"));
    assert!(ran_check(&image));
    fsck::assert_clean(&image);
}

/// Runs a check; returns true if it repaired all.
fn ran_check(image: &Path) -> bool {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_plat"));
    command.args(["check", "-y"]).arg(image).output().unwrap().status.code() == Some(1)
}

#[test]
fn quota_of_projects_brings_projects() {
    if !tool::have_tools("tune", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("tune-projects");
    let image = made(&scratch, &["-t", "ext4"], &[]);
    tuned(&image, &["-Q", "prjquota"]).fine();
    let features = tool::dumpe2fs_field(&image, "Filesystem features").unwrap();
    assert!(features.contains("quota") && features.contains("project"), "{features}");
    fsck::assert_clean(&image);
}

/// Volumes of revision 0 have no features: the first one begins revision 1, in Linux and here.
#[test]
fn the_first_feature_of_an_old_volume_begins_revision_1() {
    if !tool::have_tools("tune", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("revision-0");
    let commands: [(&str, &[&str]); 3] =
        [("quota", &["--on", "user"]), ("convert", &["--to", "ext4", "--all"]), ("tune", &["-O", "extent"])];
    for (command, arguments) in commands {
        let image = made(&scratch, &["-r", "0", "-b", "1024"], &[]);
        ran(command, &image, arguments).fine();
        let revision = tool::dumpe2fs_field(&image, "Filesystem revision #").unwrap();
        assert!(revision.starts_with('1'), "{command}: {revision}");
        fsck::assert_clean(&image);
        ran("check", &image, &["-n"]).fine();
    }
}
