//! Directories that are swapped with links while a command copies: nothing outside is read, written or changed.
//!
//! A thread exchanges a directory with a link to a victim, to and fro and as fast as it can, with the rights of root:
//! more than whoever owns a tree can do. Fifty rounds for each verb, eight in a mount; others with `PLATFS_STEPS`:
//! `PLATFS_STEPS=10000 cargo test -p platfs-cli --test all live::swapped -- --ignored --nocapture --test-threads=1`. Layouts of
//! OCI images are not among them: what is read there has the digest that its name promises, or is not taken.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use platfs_store::objects::{Files, Objects};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use testkit::scratch::Scratch;
use testkit::tool;

use super::{have, volume};
use crate::support::mounted::Mounted;

const SECRET: &str = "ONLY-FOR-ROOT";
const FILES: usize = 12;

fn rounds() -> u64 {
    std::env::var("PLATFS_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(50)
}

/// Victim that may not be touched: a directory with files whose names are those of the harmless ones.
struct Victim {
    path: PathBuf,
    before: Vec<String>,
}

impl Victim {
    fn new(scratch: &Scratch) -> Self {
        let path = scratch.join("victim");
        fs::create_dir_all(path.join("below")).unwrap();
        for number in 0..FILES {
            fs::write(path.join(format!("f{number}")), SECRET).unwrap();
            fs::set_permissions(path.join(format!("f{number}")), fs::Permissions::from_mode(0o600)).unwrap();
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        let before = told(&path);
        Victim { path, before }
    }

    fn judge(&self, round: u64, verb: &str) {
        assert_eq!(told(&self.path), self.before, "{verb}, round {round}: the victim was changed");
    }
}

/// Names, modes and contents of a tree, links as links.
fn told(path: &Path) -> Vec<String> {
    let Ok(facts) = fs::symlink_metadata(path) else { return Vec::new() };
    let mut told = vec![format!("{} {:o}", path.display(), facts.permissions().mode())];
    if facts.is_dir() {
        let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        told.extend(names.iter().flat_map(|path| self::told(path)));
    } else if facts.is_file() {
        told.push(String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned());
    }
    told
}

/// A tree whose directory `d` is exchanged with links to the victim, and with a directory of links to its files.
fn harmless(above: &Path, victim: &Victim) {
    fs::create_dir_all(above.join("tree/d/below")).unwrap();
    fs::create_dir(above.join("links")).unwrap();
    for number in 0..FILES {
        fs::write(above.join(format!("tree/d/f{number}")), "harmless").unwrap();
        symlink(victim.path.join(format!("f{number}")), above.join(format!("links/f{number}"))).unwrap();
    }
    symlink(&victim.path, above.join("link")).unwrap();
}

fn exchange(one: &Path, other: &Path) -> bool {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).is_ok()
}

/// Runs a verb beside exchanges, and says how many there were.
fn beside(swap: impl Fn(u64) -> u64 + Sync, mut verb: impl FnMut()) -> u64 {
    rounds_beside(swap, 1, |_| verb())
}

/// Says that it is over, whatever happens.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs rounds beside one thread that exchanges, where nothing has to stand still between them.
fn rounds_beside(swap: impl Fn(u64) -> u64 + Sync, rounds: u64, mut round: impl FnMut(u64)) -> u64 {
    let (begun, ends, swaps) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            begun.store(true, Ordering::Relaxed);
            while !ends.load(Ordering::Relaxed) {
                let turn = swaps.load(Ordering::Relaxed);
                swaps.fetch_add(swap(turn), Ordering::Relaxed);
                // A verb shall meet the directory in all states, and for some time in each.
                (0..turn % 7 * 40).for_each(|_| std::hint::spin_loop());
            }
        });
        let _over = Over(&ends);
        while !begun.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        (0..rounds).for_each(&mut round);
    });
    swaps.load(Ordering::Relaxed)
}

/// Exchanges the directory of a harmless tree with a link, or with a directory of links, and back.
fn swap_source(above: &Path) -> impl Fn(u64) -> u64 + Sync {
    move |turn| {
        let other = above.join(if turn % 2 == 0 { "link" } else { "links" });
        let directory = above.join("tree/d");
        let swapped = exchange(&directory, &other);
        (0..turn % 5 * 100).for_each(|_| std::hint::spin_loop());
        u64::from(swapped) + u64::from(swapped && exchange(&directory, &other))
    }
}

/// Exchanges each directory that appears in `home` with a link to the victim, and back.
fn swap_output(home: &Path) -> impl Fn(u64) -> u64 + Sync {
    let link = home.join("link");
    move |turn| {
        let Ok(entries) = fs::read_dir(home) else { return 0 };
        let mut swaps = 0;
        for made in entries.flatten().map(|entry| entry.path()) {
            let is_made = fs::symlink_metadata(&made).is_ok_and(|facts| facts.is_dir());
            if is_made && made != link && exchange(&made, &link) {
                (0..turn % 5 * 100).for_each(|_| std::hint::spin_loop());
                swaps += 1 + u64::from(exchange(&made, &link));
            }
        }
        swaps
    }
}

/// Runs `plat` in this process; whether it succeeds is not asked.
fn plat(words: &[&str], paths: &[&Path]) {
    let line = std::iter::once("plat").chain(words.iter().copied()).map(OsString::from);
    let line: Vec<OsString> = line.chain(paths.iter().map(OsString::from)).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let _ = plat_cli::run_with(line, &mut out, &mut err);
}

/// No copy below a directory, or in an image, has what only root may read.
fn assert_nothing_leaked(path: &Path, round: u64, verb: &str) {
    let leaked = match fs::symlink_metadata(path) {
        Ok(facts) if facts.is_dir() => told(path).iter().any(|line| line.contains(SECRET)),
        Ok(facts) if facts.is_file() => {
            // Contents begin with a block, or stand in an inode; most of an image is zeros.
            let image = fs::read(path).unwrap();
            let blocks = image.chunks(4096).filter(|block| block.iter().any(|byte| *byte != 0));
            blocks
                .into_iter()
                .any(|block| block.windows(SECRET.len()).any(|bytes| bytes == SECRET.as_bytes()))
        }
        _ => false,
    };
    assert!(!leaked, "{verb}, round {round}: a file of the victim was copied");
}

/// Empties a directory, but for the link.
fn clear(home: &Path, victim: &Victim) {
    for path in fs::read_dir(home).unwrap().map(|entry| entry.unwrap().path()) {
        let is_directory = fs::symlink_metadata(&path).unwrap().is_dir();
        if is_directory { fs::remove_dir_all(&path).unwrap() } else { fs::remove_file(&path).unwrap() }
    }
    symlink(&victim.path, home.join("link")).unwrap();
}

/// A small image with a harmless tree.
fn image_of(scratch: &Scratch, name: &str, source: &Path) -> PathBuf {
    let image = scratch.join(name);
    plat(&["build", "-q", "--size", "4M"], &[source, &image]);
    assert!(image.exists());
    image
}

/// Verbs that read a tree of the host into an image.
fn into_images(rounds: u64) {
    let scratch = Scratch::new("swapped_into_images");
    let victim = Victim::new(&scratch);
    let source = scratch.join("source");
    fs::create_dir(&source).unwrap();
    harmless(&source, &victim);
    let empty = scratch.join("empty");
    fs::create_dir(&empty).unwrap();
    let fresh = image_of(&scratch, "fresh.img", &empty);
    let image = scratch.join("disk.img");
    let mut swaps = [0; 2];
    let tree = source.join("tree");
    for (verb, swaps) in ["put", "build"].into_iter().zip(&mut swaps) {
        *swaps = rounds_beside(swap_source(&source), rounds, |round| {
            let _ = fs::remove_file(&image);
            if verb == "put" {
                fs::copy(&fresh, &image).unwrap();
                plat(&["put", "-r"], &[&image, &tree, Path::new("/to")]);
            } else {
                plat(&["build", "-q"], &[&tree, &image]);
            }
            assert_nothing_leaked(&image, round, verb);
            victim.judge(round, verb);
        });
    }
    println!("put -r, build: {rounds} rounds each, {swaps:?} exchanges");
    assert!(swaps.iter().all(|swaps| *swaps >= rounds), "too few exchanges: {swaps:?}");
}

/// Verbs that write a tree of the host.
fn out_of_images(rounds: u64) {
    let scratch = Scratch::new("swapped_out_of_images");
    let victim = Victim::new(&scratch);
    let (source, home) = (scratch.join("source"), scratch.join("home"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&home).unwrap();
    harmless(&source, &victim);
    let image = image_of(&scratch, "disk.img", &source.join("tree"));
    let removed = scratch.join("removed.img");
    fs::copy(&image, &removed).unwrap();
    for number in 0..FILES {
        tool::debugfs_write(&removed, &format!("rm /d/f{number}"));
    }
    let out = home.join("out");
    let mut swaps = [0; 3];
    for round in 0..rounds {
        for (verb, swaps) in ["export", "get", "undelete"].into_iter().zip(&mut swaps) {
            clear(&home, &victim);
            *swaps += beside(swap_output(&home), || match verb {
                "export" => plat(&["export"], &[&image, &out]),
                "get" => plat(&["get", "-r"], &[&image, Path::new("/d"), &out]),
                _ => plat(&["undelete", "--all", "--into"], &[&out, &removed]),
            });
            victim.judge(round, verb);
        }
    }
    println!("export, get -r, undelete --into: {rounds} rounds each, {swaps:?} exchanges");
    assert!(swaps.iter().all(|swaps| *swaps >= rounds), "too few exchanges: {swaps:?}");
}

/// Puts a link of another user in the place of a name, or of what has it, and takes it away.
fn swap_name(home: &Path, name: &Path, victim: &Victim) -> impl Fn(u64) -> u64 + Sync {
    let (link, target) = (home.join("link-to-be"), victim.path.join("f0"));
    move |turn| {
        let _ = symlink(&target, &link);
        let _ = std::os::unix::fs::lchown(&link, Some(1001), Some(1001));
        let swapped = fs::rename(&link, name).is_ok();
        (0..turn % 5 * 100).for_each(|_| std::hint::spin_loop());
        if fs::symlink_metadata(name).is_ok_and(|facts| facts.is_symlink()) {
            let _ = fs::remove_file(name);
        }
        u64::from(swapped)
    }
}

/// Verbs that make one file, in a directory where all may put links.
fn outputs(rounds: u64) {
    // A link of one's own is followed, as by any program; only root makes one of another user.
    if !tool::have_root("swapped_outputs") {
        return;
    }
    let scratch = Scratch::new("swapped_outputs");
    let victim = Victim::new(&scratch);
    let (source, home) = (scratch.join("source"), scratch.join("home"));
    for path in [&source, &home] {
        fs::create_dir(path).unwrap();
    }
    fs::set_permissions(&home, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(source.join("file"), "harmless").unwrap();
    let image = image_of(&scratch, "disk.img", &source);
    let out = home.join("out");
    let verbs = ["snapshot", "image", "build"];
    let make = |verb: &str| match verb {
        "snapshot" => plat(&["snapshot", "--force"], &[&image, &out]),
        "image" => plat(&["image", "--metadata", "--force"], &[&image, &out]),
        _ => plat(&["build", "-q", "--force", "--size", "4M"], &[&source, &out]),
    };
    for verb in verbs {
        let _ = fs::remove_file(&out);
        make(verb);
        assert!(fs::symlink_metadata(&out).unwrap().is_file(), "{verb}");
    }
    let (mut swaps, mut made) = ([0; 3], [0_u64; 3]);
    for (at, verb) in verbs.into_iter().enumerate() {
        swaps[at] = rounds_beside(swap_name(&home, &out, &victim), rounds, |round| {
            let _ = fs::remove_file(&out);
            make(verb);
            made[at] += u64::from(fs::symlink_metadata(&out).is_ok_and(|facts| facts.is_file()));
            victim.judge(round, verb);
        });
    }
    println!("{verbs:?}: {rounds} rounds each, {swaps:?} exchanges, {made:?} outputs stayed");
    assert!(swaps.iter().all(|swaps| *swaps >= rounds), "too few exchanges: {swaps:?}");
    let names = fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert!(names.len() <= 2, "something unfinished is left: {names:?}");
}

/// Works with objects of a store in a directory.
fn stores(rounds: u64) {
    let scratch = Scratch::new("swapped_stores");
    let victim = Victim::new(&scratch);
    let root = scratch.join("root");
    fs::create_dir(&root).unwrap();
    harmless(&root, &victim);
    let store = Files::new(root.join("tree"));
    let verbs = ["get", "range", "head", "list", "put", "create", "remove"];
    let mut swaps = [0; 7];
    for (at, verb) in verbs.into_iter().enumerate() {
        swaps[at] = rounds_beside(swap_source(&root), rounds, |round| {
            let (key, new) = (format!("d/f{}", round % FILES as u64), format!("d/new{}", round % 3));
            let read = match verb {
                "get" => store.get(&key, 100).map(|object| object.bytes),
                "range" => store.range(&key, 0, 100),
                "head" => store.head(&key).map(|_| Vec::new()),
                "list" => store.list("d/", &mut |_| Ok(())).map(|()| Vec::new()),
                "put" => store.put(&key, b"harmless").map(|()| Vec::new()),
                "create" => store.create(&new, b"harmless").map(|_| Vec::new()),
                _ => store.remove(if round % 2 == 0 { &new } else { &key }).map(|()| Vec::new()),
            };
            let leaked = read.is_ok_and(|bytes| bytes == SECRET.as_bytes());
            assert!(!leaked, "{verb}, round {round}: a file of the victim is an object");
            victim.judge(round, verb);
        });
    }
    println!("{verbs:?} of a store: {rounds} rounds each, {swaps:?} exchanges");
    assert!(swaps.iter().sum::<u64>() >= 7 * rounds, "too few exchanges: {swaps:?}");
}

/// Places that verbs on a mount work with: two in the mount, two of the host.
struct Places {
    mount: PathBuf,
    inside: PathBuf,
    to: PathBuf,
    source: PathBuf,
    home: PathBuf,
    victim: Victim,
}

/// Does rounds of verbs on a mount; `work` does one beside exchanges, and returns the number of these.
fn on_a_mount<const N: usize>(
    test: &str,
    rounds: u64,
    verbs: [&str; N],
    work: impl Fn(&str, &Places) -> u64,
) {
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let victim = Victim::new(&scratch);
    let image = volume(&scratch, "-t ext4 -b 4096", "64M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let [inside, to] = ["inside", "to"].map(|name| mounted.path().join(name));
    let [source, home] = ["source", "home"].map(|name| scratch.join(name));
    for path in [&inside, &source, &home] {
        fs::create_dir(path).unwrap();
    }
    harmless(&inside, &victim);
    harmless(&source, &victim);
    let at = Places { mount: mounted.path().to_owned(), inside, to, source, home, victim };
    let mut swaps = [0; N];
    for round in 0..rounds {
        for (verb, swaps) in verbs.into_iter().zip(&mut swaps) {
            clear(&at.home, &at.victim);
            let _ = fs::remove_dir_all(&at.to);
            fs::create_dir(&at.to).unwrap();
            symlink(&at.victim.path, at.to.join("link")).unwrap();
            *swaps += work(verb, &at);
            for copy in [&at.home, &at.to] {
                assert_nothing_leaked(copy, round, verb);
            }
            at.victim.judge(round, verb);
        }
    }
    println!("{test}: {verbs:?}: {rounds} rounds each, {swaps:?} exchanges");
    assert!(swaps.iter().all(|swaps| *swaps >= rounds), "too few exchanges: {swaps:?}");
    mounted.unmount();
}

/// Verbs that copy to and from a mount.
fn mounts(rounds: u64) {
    let verbs = ["get of what is swapped", "get into it", "put of it", "put into it"];
    on_a_mount("swapped_mounts", rounds, verbs, |verb, at| {
        let put = || plat(&["put", "-r"], &[&at.mount, &at.source.join("tree"), Path::new("to/new")]);
        let get = || plat(&["get", "-r"], &[&at.mount, Path::new("inside/tree"), &at.home.join("out")]);
        match verb {
            "get of what is swapped" => beside(swap_source(&at.inside), get),
            "get into it" => beside(swap_output(&at.home), get),
            "put of it" => beside(swap_source(&at.source), put),
            _ => beside(swap_output(&at.to), put),
        }
    });
}

/// Work that the server of a mount does, with files of the host and without.
fn live_work(rounds: u64) {
    let verbs = ["export of it", "export to it", "import into it", "cp of it", "cp into it", "rm in it"];
    on_a_mount("swapped_live_work", rounds, verbs, |verb, at| {
        let (tree, new) = (at.inside.join("tree"), at.to.join("new"));
        let (packed, archive) = (at.home.join("out.tar"), at.source.join("tree.tar"));
        let export = |words: &[&str]| plat(words, &[&tree, &packed]);
        let cp = || plat(&["cp", "-r"], &[&tree, &new]);
        match verb {
            "export of it" => beside(swap_source(&at.inside), || export(&["export"])),
            "export to it" => {
                fs::set_permissions(&at.home, fs::Permissions::from_mode(0o1777)).unwrap();
                beside(swap_name(&at.home, &packed, &at.victim), || export(&["export", "--force"]))
            }
            "import into it" => {
                let mut tar = tool::command("tar");
                tool::run(tar.arg("-cf").arg(&archive).arg("-C").arg(at.source.join("tree")).arg("."));
                beside(swap_output(&at.to), || plat(&["import", "--force"], &[&at.to, &archive]))
            }
            "cp of it" => beside(swap_source(&at.inside), cp),
            "cp into it" => beside(swap_output(&at.to), cp),
            _ => {
                cp();
                beside(swap_output(&at.to), || plat(&["rm", "-r"], &[&new]))
            }
        }
    });
}

/// A copy with the rights of root gets them, and not the file that its directory's owner puts in its place meanwhile.
fn lent_rights(rounds: u64) {
    let test = "swapped_lent_rights";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4 -b 4096", "64M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let (source, to) = (scratch.join("source"), mounted.path().join("to"));
    fs::create_dir(&source).unwrap();
    for number in 0..FILES {
        let path = source.join(format!("f{number}"));
        fs::write(&path, "trusted").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    }
    let mut swaps = 0;
    // A slow machine may need more until one comes at the right moment.
    for round in 0..50 * rounds {
        if round >= rounds && swaps > 0 {
            break;
        }
        let _ = fs::remove_dir_all(&to);
        fs::create_dir_all(to.join("others")).unwrap();
        // One is a user's, the other one root's, as earlier copies are.
        for number in 0..2 * FILES {
            let path = to.join(format!("others/{number}"));
            let owner = if number % 2 == 0 { 0 } else { 1001 };
            fs::write(&path, format!("another one of {owner}")).unwrap();
            std::os::unix::fs::chown(&path, Some(owner), None).unwrap();
        }
        let (turns, target) = (AtomicU64::new(0), to.join("source"));
        swaps += rounds_beside(
            |_| {
                let mut swaps = 0;
                for number in 0..FILES as u64 {
                    let name = target.join(format!("f{number}"));
                    if fs::metadata(&name).is_ok_and(|facts| facts.len() == 7 && facts.mode() & 0o4000 == 0) {
                        let other = to.join(format!("others/{}", turns.fetch_add(1, Ordering::Relaxed)));
                        swaps += u64::from(fs::rename(other, &name).is_ok());
                    }
                }
                swaps
            },
            1,
            |_| plat(&["put", "-r"], &[mounted.path(), &source, Path::new("to")]),
        );
        let made = fs::read_dir(&target).map(|entries| entries.flatten().collect()).unwrap_or(Vec::new());
        for path in made.iter().map(fs::DirEntry::path) {
            let facts = fs::metadata(&path).unwrap();
            let contents = fs::read_to_string(&path).unwrap();
            if let Some(owner) = contents.strip_prefix("another one of ") {
                assert_eq!(facts.mode() & 0o6000, 0, "round {round}: {} lends rights", path.display());
                assert_eq!(
                    facts.uid().to_string(),
                    owner,
                    "round {round}: {} has another owner",
                    path.display()
                );
            }
        }
    }
    println!("put -r of programs with set-id bits: {rounds} rounds, {swaps} exchanges");
    assert!(swaps > 0, "no exchanges");
    mounted.unmount();
}

#[test]
fn what_takes_the_place_of_a_copy_gets_no_rights() {
    lent_rights(rounds().min(20));
}

#[test]
fn what_is_swapped_while_it_is_put_leads_to_nothing_outside() {
    into_images(rounds().min(50));
}

#[test]
fn what_is_swapped_while_it_is_written_leads_to_nothing_outside() {
    if tool::have_tools("what_is_swapped_while_it_is_written", &["debugfs"]) {
        out_of_images(rounds().min(50));
    }
}

#[test]
fn a_link_that_takes_the_name_of_an_output_leads_nowhere() {
    outputs(rounds().min(50));
}

#[test]
fn what_is_swapped_in_a_store_leads_to_nothing_outside() {
    stores(rounds().min(50));
}

#[test]
fn what_is_swapped_in_a_mount_leads_to_nothing_outside() {
    // Each round has four commands that wait for the server, beside the one who swaps in its mount.
    mounts(rounds().min(8));
}

#[test]
fn what_is_swapped_while_a_server_works_leads_to_nothing_outside() {
    live_work(rounds().min(8));
}

/// A copy by paths, as the verbs once made them, is caught: the rounds above mean something.
#[test]
fn swaps_catch_a_copy_by_paths() {
    let scratch = Scratch::new("swapped_paths");
    let victim = Victim::new(&scratch);
    harmless(scratch.path(), &victim);
    let caught = (0..20_000).any(|_| {
        let mut leaked = false;
        beside(swap_source(scratch.path()), || {
            for number in 0..FILES {
                let path = scratch.join(format!("tree/d/f{number}"));
                if fs::symlink_metadata(&path).is_ok_and(|facts| facts.is_file()) {
                    leaked |= fs::read(&path).is_ok_and(|bytes| bytes == SECRET.as_bytes());
                }
            }
        });
        leaked
    });
    assert!(caught, "20,000 rounds, and no link was followed");
}

/// Rounds of one kind of verbs, as many as `PLATFS_STEPS` says.
macro_rules! long {
    ($($name:ident $rounds:ident),*) => {
        $(#[test]
        #[ignore = "long run: minutes with PLATFS_STEPS=10000 and TMPDIR in memory"]
        fn $name() {
            $rounds(rounds());
        })*
    };
}

long!(
    into_images_for_long into_images,
    out_of_images_for_long out_of_images,
    outputs_for_long outputs,
    stores_for_long stores,
    mounts_for_long mounts,
    live_work_for_long live_work,
    lent_rights_for_long lent_rights
);
