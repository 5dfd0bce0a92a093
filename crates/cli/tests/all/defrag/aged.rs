//! Volumes that the kernel aged to 85 %, defragmented while four clients write, and offline: files, free space, bytes moved,
//! contents. Printed are the figures of docs/defrag.md.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::fsck::assert_clean;
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::snapshot::{Rules, Snapshot, assert_same};
use testkit::{mount, sparse, tool};

use super::{have, number, report, seen};
use crate::support::mounted::{Mounted, have_fuse};
use crate::support::{plat, succeed};

/// Clients, and files of each.
const CLIENTS: u64 = 4;
const OWN: u64 = 24;

/// Longest file of a client, in bytes.
const OWN_MOST: u64 = 400_000;

/// Files that grow side by side while a volume ages.
const BESIDE: usize = 12;

/// A file that grows while the volume ages.
struct Growing {
    path: PathBuf,
    file: File,
    left: u64,
}

/// Ages a volume by the kernel: files of 4 KiB to some MiB grow in turns, and when 88 % are in use some go. Three times
/// its size is written in all.
struct Ageing<'d> {
    root: &'d Path,
    random: Random,
    made: u64,
    files: Vec<PathBuf>,
    written: u64,
}

impl Ageing<'_> {
    fn share_in_use(&self) -> f64 {
        let facts = rustix::fs::statvfs(self.root).unwrap();
        #[allow(clippy::cast_precision_loss, reason = "a share")]
        let share = 1.0 - facts.f_bfree as f64 / facts.f_blocks as f64;
        share
    }

    fn begin(&mut self) -> Growing {
        let directory = self.root.join(format!("d{}", self.random.below(40)));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join(format!("f{}", self.made));
        self.made += 1;
        let scale = 12 + self.random.below(11);
        let left = (1 << scale) + self.random.below(1 << scale);
        Growing { file: File::create(&path).unwrap(), path, left }
    }

    fn remove_until(&mut self, share: f64) {
        while self.share_in_use() > share {
            let at = usize::try_from(self.random.below(self.files.len() as u64)).unwrap();
            fs::remove_file(self.files.swap_remove(at)).unwrap();
            // Blocks of removed files are free after the commit.
            if self.files.len().is_multiple_of(16) {
                rustix::fs::syncfs(File::open(self.root).unwrap()).unwrap();
            }
        }
    }

    fn run(&mut self, bytes: u64) {
        let mut growing: Vec<_> = (0..BESIDE).map(|_| self.begin()).collect();
        while self.written < bytes {
            for file in &mut growing {
                let len = file.left.min(4096 * (1 + self.random.below(8)));
                file.file.write_all(&self.random.bytes(len)).unwrap();
                file.left -= len;
                self.written += len;
                if file.left == 0 {
                    let next = self.begin();
                    self.files.push(std::mem::replace(file, next).path);
                }
            }
            if self.share_in_use() > 0.88 {
                self.remove_until(0.80);
            }
        }
        self.files.extend(growing.into_iter().map(|file| file.path));
        if self.share_in_use() > 0.85 {
            self.remove_until(0.85);
        }
    }
}

/// A volume of a size that has aged; among its files those that clients will write.
fn aged(scratch: &Scratch, options: &str, mib: u64) -> PathBuf {
    let image = scratch.join("aged.img");
    let mut command = tool::command("mke2fs");
    command.args(["-q", "-F", "-E", "lazy_itable_init=0"]).args(options.split_whitespace());
    tool::run(command.arg(&image).arg(format!("{mib}M")));
    let mounted = mount::Mounted::kernel(&image, "nodelalloc").unwrap();
    let root = mounted.path();
    let mut ageing = Ageing { root, random: Random(mib), made: 0, files: Vec::new(), written: 0 };
    ageing.run(mib << 20);
    let mut own: Vec<_> = (0..CLIENTS * OWN)
        .map(|at| {
            let directory = root.join(format!("client{}", at % CLIENTS));
            fs::create_dir_all(&directory).unwrap();
            File::create(directory.join(format!("own{}", at / CLIENTS))).unwrap()
        })
        .collect();
    for turn in 1..=8 {
        for file in &mut own {
            file.write_all(&ageing.random.bytes(OWN_MOST / 8 / turn)).unwrap();
        }
        ageing.run((mib << 20) + turn * (mib << 18));
    }
    drop(own);
    drop(mounted);
    image
}

/// Client with the files that it finds and leaves in its directory.
struct Client {
    directory: PathBuf,
    random: Random,
    files: BTreeMap<u64, Vec<u8>>,
    bytes: u64,
    operations: u64,
}

impl Client {
    fn new(root: &Path, at: u64) -> Self {
        let directory = root.join(format!("client{at}"));
        let read = |name: u64| (name, fs::read(directory.join(format!("own{name}"))).unwrap());
        let files: BTreeMap<_, _> = (0..OWN).map(read).collect();
        let bytes = files.values().map(|file| file.len() as u64).sum();
        Client { directory, random: Random(at), files, bytes, operations: 0 }
    }

    fn path(&self, name: u64) -> PathBuf {
        self.directory.join(format!("own{name}"))
    }

    /// Writes somewhere, cuts, replaces, or makes stable; never more bytes in all than there were.
    fn step(&mut self) {
        self.operations += 1;
        let names: Vec<u64> = self.files.keys().copied().collect();
        let name = *self.random.pick(&names).unwrap();
        let len = self.files[&name].len() as u64;
        match self.random.below(20) {
            0 => self.cut(name, self.random.clone().below(len + 1)),
            1 => self.replace(name),
            2 => File::open(self.path(name)).unwrap().sync_all().unwrap(),
            _ => self.write(name, len),
        }
    }

    fn write(&mut self, name: u64, len: u64) {
        let sum: u64 = self.files.values().map(|file| file.len() as u64).sum();
        let offset = self.random.below((len + 1).min(OWN_MOST));
        let room = (len + self.bytes.saturating_sub(sum)).saturating_sub(offset);
        let count = (1 + self.random.below(60_000)).min(room);
        let bytes = self.random.bytes(count);
        let file = File::options().write(true).open(self.path(name)).unwrap();
        file.write_all_at(&bytes, offset).unwrap();
        let (from, to) = (usize::try_from(offset).unwrap(), usize::try_from(offset + count).unwrap());
        let contents = self.files.get_mut(&name).unwrap();
        contents.resize(contents.len().max(to), 0);
        contents[from..to].copy_from_slice(&bytes);
    }

    fn cut(&mut self, name: u64, len: u64) {
        File::options().write(true).open(self.path(name)).unwrap().set_len(len).unwrap();
        self.files.get_mut(&name).unwrap().truncate(usize::try_from(len).unwrap());
    }

    /// A new file takes the place of another, as editors do it.
    fn replace(&mut self, name: u64) {
        let count = self.files[&name].len() as u64;
        let (bytes, temporary) = (self.random.bytes(count), self.directory.join("new"));
        fs::write(&temporary, &bytes).unwrap();
        fs::rename(&temporary, self.path(name)).unwrap();
        self.files.insert(name, bytes);
    }

    fn judge(&self) {
        for (name, contents) in &self.files {
            assert!(fs::read(self.path(*name)).unwrap() == *contents, "{}", self.path(*name).display());
        }
    }
}

/// Figures of e2freefrag and plat frag for an image.
#[derive(Debug)]
#[allow(dead_code, reason = "they are printed")]
struct Figures {
    extents: u64,
    files: u64,
    torn: u64,
    free_runs: u64,
    longest: u64,
    mean: u64,
    /// Free chunks of 1 MiB.
    chunks: u64,
    free: u64,
    /// Percent of all blocks.
    in_use: u64,
}

fn figures(image: &Path) -> Figures {
    let frag = report(&succeed(plat(&["frag", "--json"]).arg(image)));
    let free = tool::text("e2freefrag", &["-c".as_ref(), "1024".as_ref(), image.as_os_str()]);
    let field = |name: &str| {
        let line =
            free.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {free}"));
        line.split_once(": ").unwrap().1.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    let blocks = field("Total blocks");
    Figures {
        extents: number(&frag, "extents"),
        files: number(&frag, "files_with_blocks"),
        torn: number(&frag, "fragmented_files"),
        free_runs: field("Num. free extent"),
        longest: field("Max. free extent"),
        mean: field("Avg. free extent"),
        chunks: field("Free chunks"),
        free: field("Free blocks"),
        in_use: (blocks - field("Free blocks")) * 100 / blocks,
    }
}

/// Files in pieces that would fit the longest free run, but for those that clients wrote meanwhile.
fn could_be_whole(image: &Path) -> Vec<String> {
    let found = report(&succeed(plat(&["defrag", "-n", "--json"]).arg(image)));
    let longest = number(&found, "longest_free_kib") << 10;
    let mounted = mount::Mounted::read_only(image).unwrap();
    let mut could = Vec::new();
    for directory in fs::read_dir(mounted.path()).unwrap().map(|entry| entry.unwrap().path()) {
        let name = directory.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("client") || name == "lost+found" {
            continue;
        }
        for file in fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()) {
            let said = tool::text("filefrag", &[file.as_os_str()]);
            let pieces: u64 = said.rsplit(": ").next().unwrap().split(' ').next().unwrap().parse().unwrap();
            let bytes = rustix::fs::stat(&file).unwrap().st_blocks.cast_unsigned() * 512;
            if pieces > 1 && bytes <= longest {
                could.push(format!("{}: {bytes} bytes in {pieces}, a run has {longest}", file.display()));
            }
        }
    }
    could
}

/// The tree without what clients write.
fn without_clients(mut tree: Snapshot) -> Snapshot {
    tree.entries.retain(|path, _| !path.starts_with(b"client"));
    tree
}

/// Judges a defragmentation by its figures, which are printed.
fn judge(what: &str, image: &Path, before: &Figures, done: &Value, took: Duration) {
    let after = figures(image);
    let (moved, torn) = (number(done, "bytes_moved"), number(done, "bytes_in_pieces"));
    println!("{what}, before: {before:?}");
    println!("{what}, after: {after:?}");
    println!(
        "{what}: {moved} bytes moved of {torn} in pieces ({} %), {} files, {} too long, {} beyond the bound, {} busy, {took:?}",
        moved * 100 / torn.max(1),
        number(done, "files_moved"),
        number(done, "too_long"),
        number(done, "beyond"),
        number(done, "busy"),
    );
    assert!(moved * 10 <= torn * 13, "{what}: {moved} bytes moved, {torn} in pieces");
    // Clients take runs meanwhile, and in a small volume there is little to choose from.
    let (is_large, alone) = (after.free > 10_000, what == "offline");
    let fewer = after.free_runs < before.free_runs && after.mean > before.mean;
    assert!(fewer || !alone && !is_large, "{what}: free space");
    assert!(after.longest >= before.longest || !alone, "{what}: the longest run");
    assert!(after.torn * 2 < before.torn, "{what}: files in pieces");
}

/// No file is in pieces that would fit a free run, but for those for which no more could be moved.
fn assert_whole(what: &str, image: &Path, done: &Value) {
    let could = could_be_whole(image);
    let some = &could[..could.len().min(9)];
    assert!(could.len() as u64 <= number(done, "beyond"), "{what}: could be whole: {some:?}, but {done}");
}

fn offline(aged: &Path, image: &Path) {
    sparse::copy(aged, image).unwrap();
    let (figures, tree, begun) = (figures(image), seen(image), Instant::now());
    let done = report(&succeed(plat(&["defrag", "--json"]).arg(image)));
    let took = begun.elapsed();
    assert_clean(image);
    assert_same(&tree, &seen(image), &Rules::default());
    judge("offline", image, &figures, &done, took);
    assert_whole("offline", image, &done);
}

/// Clients work while it is defragmented, and find in the end what they wrote.
fn beside_clients(image: &Path) {
    let (figures, tree) = (figures(image), without_clients(seen(image)));
    let mounted = Mounted::new(image, &[]).unwrap();
    let (root, ended) = (mounted.path().to_owned(), AtomicBool::new(false));
    let (root, ended) = (&root, &ended);
    let (done, took, clients) = thread::scope(|scope| {
        let work = move |at| {
            let mut client = Client::new(root, at);
            while !ended.load(Ordering::Relaxed) {
                client.step();
            }
            client
        };
        let clients: Vec<_> = (0..CLIENTS).map(|at| scope.spawn(move || work(at))).collect();
        thread::sleep(Duration::from_millis(300));
        let begun = Instant::now();
        let done = report(&succeed(plat(&["defrag", "--json"]).arg(root)));
        let took = begun.elapsed();
        ended.store(true, Ordering::Relaxed);
        let clients: Vec<Client> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        (done, took, clients)
    });
    clients.iter().for_each(Client::judge);
    println!("clients: {:?} operations", clients.iter().map(|client| client.operations).collect::<Vec<_>>());
    mounted.unmount();
    assert_clean(image);
    assert_same(&tree, &without_clients(seen(image)), &Rules::default());
    let kernel = mount::Mounted::read_only(image).unwrap();
    for mut client in clients {
        client.directory = kernel.path().join(client.directory.file_name().unwrap());
        client.judge();
    }
    drop(kernel);
    judge("beside four clients", image, &figures, &done, took);
    // What clients gave back behind the last look at the files has room for some of them.
    let done = report(&succeed(plat(&["defrag", "--json"]).arg(image)));
    assert_clean(image);
    assert_same(&tree, &without_clients(seen(image)), &Rules::default());
    assert_whole("after four clients", image, &done);
}

fn run(test: &str, options: &str, mib: u64) {
    if !have(test) || !have_fuse(test) || !tool::have_tools(test, &["e2freefrag"]) {
        return;
    }
    let scratch = Scratch::new("aged");
    let image = aged(&scratch, options, mib);
    println!("{options}, {mib} MiB");
    offline(&image, &scratch.join("offline.img"));
    beside_clients(&image);
}

#[test]
fn an_aged_volume_becomes_whole_beside_four_clients() {
    run("an_aged_volume_becomes_whole", "-t ext4 -b 4096", 160);
}

/// `cargo test -p platfs-cli --test all large_aged -- --ignored --nocapture`; `PLATFS_AGED_MIB` is the size.
#[test]
#[ignore = "1 GiB of two kinds, minutes"]
fn large_aged_volumes_become_whole_beside_four_clients() {
    let mib = std::env::var("PLATFS_AGED_MIB").ok().and_then(|mib| mib.parse().ok()).unwrap_or(1024);
    for options in ["-t ext4 -b 4096", "-t ext4 -b 1024"] {
        run("large_aged_volumes", options, mib);
    }
}
