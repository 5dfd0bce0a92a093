//! `plat undelete`: files that the kernel removed from volumes with a journal.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::plat::plat;
use serde_json::Value;
use testkit::mount::{Mounted, have_loop_mount};
use testkit::scratch::Scratch;
use testkit::sparse;
use testkit::tool;

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// Numbers that look like chance and are always the same.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.next(256).to_le_bytes()[0]).collect()
    }
}

fn sync(mounted: &Mounted) {
    tool::run(tool::command("sync").arg("-f").arg(mounted.path()));
}

fn volume(scratch: &Scratch, options: &[&str], size: &str) -> PathBuf {
    let image = scratch.join("disk.img");
    tool::run(tool::command("mke2fs").args(["-q", "-F", "-t", "ext4"]).args(options).arg(&image).arg(size));
    image
}

/// Drivers that leave the map of a removed file in its record, as debugfs does: its name is in unused space of its
/// directory, and the record says when it went.
#[test]
fn what_keeps_its_map_has_a_name_and_a_time() {
    if !tool::have_tools("what_keeps_its_map_has_a_name_and_a_time", &["mke2fs", "debugfs"]) {
        return;
    }
    let scratch = Scratch::new("undelete-kept");
    let (file, contents) = (scratch.join("file"), Numbers(3).bytes(300_000));
    fs::write(&file, &contents).unwrap();
    let plain = ["-O", "^has_journal,^extent,^64bit,^metadata_csum", "-b", "1024"];
    for options in [&plain[..], &["-O", "^has_journal"], &["-b", "1024"]] {
        let image = volume(&scratch, options, "16M");
        for request in [
            "mkdir d".to_owned(),
            "mkdir d/e".to_owned(),
            format!("write {} d/e/secret", file.display()),
            format!("write {} keep", file.display()),
            "rm d/e/secret".to_owned(),
        ] {
            tool::debugfs_write(&image, &request);
        }
        let all = json(&plat("undelete --json", &image, &[]).out);
        let [one] = &all.as_array().unwrap()[..] else { panic!("{options:?}: {all:#}") };
        assert_eq!(one["names"][0]["path"], "d/e/secret", "{options:?}");
        assert!(one["removed"].is_string() && one["sureness"] == "likely", "{options:?}: {one:#}");
        let into = scratch.join("into");
        let ran = plat("undelete --into", &into, &[image.as_os_str()]);
        assert_eq!(fs::read(into.join("d/e/secret")).unwrap(), contents, "{options:?}: {}", ran.err);
        fs::remove_dir_all(&into).unwrap();
    }
}

/// Makes a volume by debugfs: contents, and requests in which `FILE` stands for a file with them.
fn made(scratch: &Scratch, options: &[&str], contents: &[u8], requests: &[&str]) -> PathBuf {
    let (file, image) = (scratch.join("file"), volume(scratch, options, "16M"));
    fs::write(&file, contents).unwrap();
    for request in requests {
        tool::debugfs_write(&image, &request.replace("FILE", file.to_str().unwrap()));
    }
    image
}

#[test]
fn files_without_a_name_and_doubtful_ones_are_for_who_asks_for_all() {
    let test = "files_without_a_name_and_doubtful_ones_are_for_who_asks_for_all";
    if !tool::have_tools(test, &["mke2fs", "debugfs"]) {
        return;
    }
    let plain = ["-O", "^has_journal,^metadata_csum", "-b", "1024"];
    let contents = Numbers(5).bytes(300_000);
    // Another name takes the place of that of the removed file.
    let scratch = Scratch::new("undelete-nameless");
    let requests = ["write FILE keep", "mkdir d", "write FILE d/secret", "rm d/secret", "ln keep d/public"];
    let image = made(&scratch, &plain, &contents, &requests);
    let ran = plat("undelete", &image, &[]);
    assert!(ran.out.is_empty() && ran.err.contains("1 without a name: --all lists them"), "{}", ran.err);
    let ran = plat("undelete --all", &image, &[]);
    let listed = String::from_utf8(ran.out.clone()).unwrap();
    assert!(listed.contains("(no name)") && ran.err.contains("1 removed file"), "{listed}{}", ran.err);
    // Another file has the first blocks of the second one that was removed.
    let scratch = Scratch::new("undelete-doubtful");
    let image = made(&scratch, &plain, &contents, &["write FILE a", "write FILE b", "rm a", "rm b"]);
    fs::write(scratch.join("file"), Numbers(6).bytes(400_000)).unwrap();
    tool::debugfs_write(&image, &format!("write {} new", scratch.join("file").display()));
    let into = scratch.join("into");
    for (options, is_there) in [("undelete --into", false), ("undelete --all --into", true)] {
        let ran = plat(options, &into, &[image.as_os_str()]);
        assert_eq!(into.join("b").exists(), is_there, "{options}: {}", ran.err);
        fs::remove_dir_all(&into).unwrap();
    }
}

/// Contents of removed files, by path.
type Gone = BTreeMap<String, Vec<u8>>;

/// Makes files, removes 200 of them, and does `more` afterwards, which may remove others; all that are removed.
fn remove_many(image: &Path, more: impl FnOnce(&Mounted, &mut Numbers, &mut Gone)) -> Gone {
    let mounted = Mounted::read_write(image).unwrap();
    let (mut numbers, mut files) = (Numbers(7), Gone::new());
    for directory in 0..5 {
        fs::create_dir(mounted.path().join(format!("directory {directory}"))).unwrap();
        for file in 0..60 {
            let path = format!("directory {directory}/file {file}");
            let len = [0, 100, 5_000, 20_000, 70_000][usize::try_from(numbers.next(5)).unwrap()];
            let contents = numbers.bytes(len + file);
            fs::write(mounted.path().join(&path), &contents).unwrap();
            files.insert(path, contents);
        }
    }
    sync(&mounted);
    let mut removed = Gone::new();
    while removed.len() < 200 {
        let at = usize::try_from(numbers.next(files.len() as u64)).unwrap();
        let path = files.keys().nth(at).unwrap().clone();
        fs::remove_file(mounted.path().join(&path)).unwrap();
        removed.insert(path.clone(), files.remove(&path).unwrap());
    }
    sync(&mounted);
    more(&mounted, &mut numbers, &mut removed);
    removed
}

/// Files recovered: right ones, wrong ones that are called sure, wrong ones that are called likely.
struct Score {
    right: usize,
    sure: usize,
    wrong_sure: Vec<String>,
    wrong_likely: usize,
}

fn score(scratch: &Scratch, image: &Path, removed: &Gone) -> Score {
    let before = fs::read(image).unwrap();
    let into = scratch.join("recovered");
    let ran = plat("undelete --json --into", &into, &[image.as_os_str()]);
    assert_eq!(ran.err, "");
    assert!(fs::read(image).unwrap() == before, "the image is only read");
    let mut score = Score { right: 0, sure: 0, wrong_sure: Vec::new(), wrong_likely: 0 };
    let mut right = std::collections::BTreeSet::new();
    for one in json(&ran.out).as_array().unwrap() {
        let Some(place) = one["recovered"].as_str() else { continue };
        let contents = fs::read(into.join(place)).unwrap();
        let is_right = one["names"].as_array().unwrap().iter().any(|named| {
            let path = named["path"].as_str().unwrap().to_owned();
            let is_right = removed.get(&path) == Some(&contents);
            is_right && right.insert(path)
        });
        // Without a name it is right if some removed file had these contents.
        let is_right = is_right || removed.values().any(|known| *known == contents);
        match (is_right, one["sureness"].as_str().unwrap()) {
            (true, sureness) => {
                score.right += 1;
                score.sure += usize::from(sureness == "sure");
            }
            (false, "sure") => score.wrong_sure.push(one.to_string()),
            (false, _) => score.wrong_likely += 1,
        }
    }
    fs::remove_dir_all(&into).unwrap();
    score
}

/// Files that another tool brings back with right contents.
fn by_tool(scratch: &Scratch, removed: &Gone, tool: &str, arguments: &[&str], image: &Path) -> usize {
    if tool::find(tool).is_none() {
        return 0;
    }
    let place = scratch.join(tool);
    fs::create_dir(&place).unwrap();
    // Their exit codes say little.
    let _ = tool::command(tool).args(arguments).arg(image).current_dir(&place).output();
    let mut known: Vec<&Vec<u8>> = removed.values().collect();
    let mut right = 0;
    let mut pending = vec![place];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                pending.push(entry.path());
            } else if kind.is_file() {
                let contents = fs::read(entry.path()).unwrap();
                if let Some(at) = known.iter().position(|one| **one == contents) {
                    known.swap_remove(at);
                    right += 1;
                }
            }
        }
    }
    right
}

/// Files that `plat rm` removes come back as those that Linux removes: the log goes on behind what it held, also from one command to
/// the next.
#[test]
fn what_plat_removes_comes_back() {
    if !tool::have_tools("what_plat_removes_comes_back", &["mke2fs"]) {
        return;
    }
    for options in [&["-b", "1024"][..], &[], &["-O", "^extent,^64bit,^flex_bg,^metadata_csum"]] {
        let scratch = Scratch::new("undelete-own");
        let image = volume(&scratch, options, "64M");
        let (mut numbers, mut files) = (Numbers(11), Gone::new());
        let file = scratch.join("file");
        for (at, len) in (0..12).zip([100, 5_000, 70_000].into_iter().cycle()) {
            let contents = numbers.bytes(len + at);
            fs::write(&file, &contents).unwrap();
            let path = format!("file {at}");
            plat("put", &image, &[file.as_os_str(), format!("/{path}").as_ref()]).fine();
            files.insert(path, contents);
        }
        let removed: Gone = files.into_iter().take(9).collect();
        for path in removed.keys() {
            plat("rm", &image, &[format!("/{path}").as_ref()]).fine();
        }
        let score = score(&scratch, &image, &removed);
        assert_eq!((score.right, score.wrong_sure, score.wrong_likely), (9, Vec::new(), 0), "{options:?}");
        testkit::fsck::assert_clean(&image);
    }
}

#[test]
fn removed_files_come_back() {
    let test = "removed_files_come_back";
    if !have_loop_mount(test) {
        return;
    }
    for options in
        [&["-b", "1024"][..], &["-O", "^metadata_csum,^64bit"], &[], &["-O", "inline_data", "-I", "512"]]
    {
        let scratch = Scratch::new("undelete");
        let image = volume(&scratch, options, "128M");
        let removed = remove_many(&image, |_, _, _| ());
        let score = score(&scratch, &image, &removed);
        assert_eq!(score.wrong_sure, Vec::<String>::new(), "{options:?}");
        assert_eq!((score.right, score.sure, score.wrong_likely), (200, 200, 0), "{options:?}");
        let extundelete = by_tool(&scratch, &removed, "extundelete", &["--restore-all"], &image);
        let ext4magic = by_tool(&scratch, &removed, "ext4magic", &["-M", "-d", "out"], &image);
        println!("{options:?}: {} right, extundelete {extundelete}, ext4magic {ext4magic}", score.right);
        assert!(score.right >= extundelete.max(ext4magic), "{options:?}: {extundelete} {ext4magic}");
    }
}

#[test]
fn what_was_written_over_is_never_sure() {
    let test = "what_was_written_over_is_never_sure";
    if !have_loop_mount(test) {
        return;
    }
    for options in [&["-b", "1024"][..], &["-O", "^metadata_csum"], &["-O", "^extent,^64bit,^metadata_csum"]]
    {
        let scratch = Scratch::new("undelete-reuse");
        let image = volume(&scratch, options, "16M");
        // Others take the space, and go again: by their end all blocks are free as before.
        let removed = remove_many(&image, |mounted, numbers, removed| {
            for round in 0..4 {
                let names: Vec<String> = (0..12).map(|file| format!("new {round} {file}")).collect();
                for name in &names {
                    let contents = numbers.bytes(450_000);
                    fs::write(mounted.path().join(name), &contents).unwrap();
                    if round != 1 {
                        removed.insert(name.clone(), contents);
                    }
                }
                sync(mounted);
                if round != 1 {
                    names.iter().for_each(|name| fs::remove_file(mounted.path().join(name)).unwrap());
                    sync(mounted);
                }
            }
        });
        let score = score(&scratch, &image, &removed);
        assert_eq!(score.wrong_sure, Vec::<String>::new(), "{options:?}");
        println!(
            "{options:?}: {} right, {} sure, {} wrong and likely",
            score.right, score.sure, score.wrong_likely
        );
        assert!(score.right > 20 && score.right < removed.len(), "{options:?}: {}", score.right);
    }
}

#[test]
fn unclean_volumes_directories_and_links() {
    let test = "unclean_volumes_directories_and_links";
    if !have_loop_mount(test) {
        return;
    }
    let scratch = Scratch::new("undelete-unclean");
    let (image, copy) = (volume(&scratch, &[], "64M"), scratch.join("copy.img"));
    let mounted = Mounted::read_write(&image).unwrap();
    let at = |path: &str| mounted.path().join(path);
    fs::create_dir_all(at("a/b/c")).unwrap();
    fs::write(at("a/b/c/file"), b"in a directory").unwrap();
    fs::hard_link(at("a/b/c/file"), at("a/b/other")).unwrap();
    symlink("/etc/passwd", at("a/b/short")).unwrap();
    symlink("../".repeat(60), at("a/b/c/long")).unwrap();
    fs::write(at("renamed before"), b"renamed").unwrap();
    fs::write(at("emptied"), b"was full").unwrap();
    sync(&mounted);
    fs::rename(at("renamed before"), at("renamed after")).unwrap();
    sync(&mounted);
    fs::remove_dir_all(at("a")).unwrap();
    fs::remove_file(at("renamed after")).unwrap();
    // It has no name, but is in use: a crash leaves it on the list of orphans.
    fs::write(at("open"), b"held open").unwrap();
    sync(&mounted);
    let held = fs::File::open(at("open")).unwrap();
    fs::remove_file(at("open")).unwrap();
    sync(&mounted);
    sleep(Duration::from_millis(100));
    sparse::copy(&image, &copy).unwrap();
    drop(held);
    drop(mounted);
    let into = scratch.join("into");
    let ran = plat("undelete --json --into", &into, &[copy.as_os_str()]);
    assert_eq!(ran.err, "");
    let all = json(&ran.out);
    let by_place = |place: &str| {
        let found = all.as_array().unwrap().iter().find(|one| one["recovered"] == place);
        found.unwrap_or_else(|| panic!("{place}: {all:#}"))["sureness"].clone()
    };
    assert_eq!(fs::read(into.join("a/b/c/file")).unwrap(), b"in a directory");
    assert_eq!(fs::read(into.join("a/b/other")).unwrap(), b"in a directory");
    assert_eq!(fs::read_link(into.join("a/b/short")).unwrap(), Path::new("/etc/passwd"));
    assert_eq!(fs::read_link(into.join("a/b/c/long")).unwrap(), PathBuf::from("../".repeat(60)));
    assert_eq!(fs::read(into.join("renamed after")).unwrap(), b"renamed");
    assert!(!into.join("renamed before").exists());
    assert!(!into.join("emptied").exists(), "it was not removed");
    assert_eq!(fs::read(into.join("open")).unwrap(), b"held open");
    assert_eq!(by_place("renamed after"), "sure");
    assert_eq!(by_place("a/b/short"), "sure");
    // The directory is not empty now.
    let again = plat("undelete --into", &into, &[copy.as_os_str()]).failed();
    assert!(again.contains("is not empty"), "{again}");
}

#[test]
fn volumes_that_tell_nothing() {
    let scratch = Scratch::new("undelete-nothing");
    for options in ["mkfs", "mkfs -O ^has_journal", "mkfs -t ext2"] {
        let image = scratch.join("disk.img");
        plat(options, &image, &["32M".as_ref()]).fine();
        let ran = plat("undelete", &image, &[]);
        assert!(ran.out.is_empty() && ran.err.contains("0 removed files"), "{}", ran.err);
        let why = if options == "mkfs" { "the journal holds no transaction" } else { "there is no journal" };
        assert!(ran.err.contains(why), "{options}: {}", ran.err);
        assert_eq!(plat("undelete --json", &image, &[]).fine(), b"[]\n");
        fs::remove_file(&image).unwrap();
    }
}
