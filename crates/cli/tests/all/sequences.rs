//! Volumes that change: seeded sequences of tune, convert, resize and defrag with writing in between. After each step
//! e2fsck has nothing to say, and the kernel's tree is what it was before. A step of tune or resize that is refused
//! changes no byte; what convert and defrag can't do for one file they leave.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sha2::{Digest, Sha256};
use testkit::mount::{Mounted, have_loop_mount};
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::snapshot::{Rules, Snapshot, assert_same};
use testkit::{fsck, tool};

/// Kinds of volumes, by mke2fs.
const KINDS: [&str; 40] = [
    "-t ext2 -b 1024",
    "-t ext2 -b 1024 -I 128",
    "-t ext2 -b 2048",
    "-t ext2 -b 4096",
    "-t ext2 -b 4096 -I 128 -O ^resize_inode",
    "-t ext2 -b 1024 -O ^sparse_super,^resize_inode",
    "-t ext2 -b 1024 -g 1024",
    "-t ext2 -b 1024 -O ^dir_index",
    "-t ext3 -b 1024",
    "-t ext3 -b 1024 -I 128",
    "-t ext3 -b 4096",
    "-t ext3 -b 2048 -J size=2",
    "-t ext3 -b 4096 -O flex_bg",
    "-t ext3 -b 1024 -O uninit_bg",
    "-t ext4 -b 1024",
    "-t ext4 -b 2048",
    "-t ext4 -b 4096",
    "-t ext4 -b 4096 -I 128",
    "-t ext4 -b 1024 -O ^metadata_csum",
    "-t ext4 -b 4096 -O ^metadata_csum,uninit_bg",
    "-t ext4 -b 4096 -O ^metadata_csum,^64bit",
    "-t ext4 -b 4096 -O ^64bit",
    "-t ext4 -b 1024 -O ^64bit,^resize_inode",
    "-t ext4 -b 4096 -O ^has_journal",
    "-t ext4 -b 1024 -O ^has_journal,^flex_bg",
    "-t ext4 -b 1024 -O ^flex_bg",
    "-t ext4 -b 1024 -g 2048",
    "-t ext4 -b 1024 -G 4",
    "-t ext4 -b 4096 -O ^extents,^64bit",
    "-t ext4 -b 1024 -O ^extents,^metadata_csum,^64bit",
    "-t ext4 -b 1024 -O metadata_csum_seed",
    "-t ext4 -b 4096 -O inline_data",
    "-t ext4 -b 1024 -I 512 -O inline_data",
    "-t ext4 -b 4096 -O ea_inode,large_dir",
    "-t ext4 -b 4096 -O bigalloc -C 16384",
    "-t ext4 -b 4096 -O bigalloc -C 65536",
    "-t ext4 -b 1024 -O meta_bg,^resize_inode",
    "-t ext4 -b 1024 -O sparse_super2",
    "-t ext4 -b 4096 -O orphan_file",
    "-t ext4 -b 1024 -O quota",
];

/// Changes by `plat tune`.
const TUNED: [&str; 34] = [
    "-L changed",
    "-U random",
    "-U time",
    "-m 2",
    "-r 64",
    "-u 7",
    "-g 7",
    "-e remount-ro",
    "-c 30",
    "-i 10d",
    "-E stride=4,stripe_width=16",
    "-o acl,user_xattr",
    "-O ^has_journal",
    "-O has_journal",
    "-O ^metadata_csum",
    "-O metadata_csum",
    "-O metadata_csum_seed",
    "-O ^metadata_csum_seed",
    "-O 64bit",
    "-O ^64bit",
    "-I 256",
    "-I 512",
    "-O dir_index",
    "-O ^dir_index",
    "-O extents",
    "-O sparse_super",
    "-O large_dir",
    "-O ea_inode",
    "-O orphan_file",
    "-O ^orphan_file",
    "-O quota",
    "-O ^quota",
    "-O uninit_bg",
    "-O ^flex_bg",
];

/// A volume that changes.
struct Changing {
    scratch: Scratch,
    image: PathBuf,
    random: Random,
    rules: Rules,
    /// Calls made so far, for a failure's message.
    story: Vec<String>,
    /// How often each command did something, and how often it refused.
    counts: BTreeMap<&'static str, (u32, u32)>,
}

impl Changing {
    fn new(kind: &str, seed: u64) -> Self {
        let scratch = Scratch::new("sequences");
        let image = scratch.join("disk.img");
        let mut command = tool::command("mke2fs");
        let arguments = kind.split_whitespace();
        tool::run(command.args(["-q", "-F"]).args(arguments).arg(&image).arg("24M"));
        let rules = Rules { nanoseconds: !kind.contains("128"), hole_granularity: 0, ..Rules::default() };
        let story = vec![format!("mke2fs {kind}, seed {seed}")];
        Changing { scratch, image, random: Random(seed), rules, story, counts: BTreeMap::new() }
    }

    /// Runs a command; whether it did it. One that refuses must say why, and leave every byte as it was.
    fn plat(&mut self, command: &'static str, options: &str, rest: &[&str]) -> bool {
        self.story.push(format!("{command} {options} {}", rest.join(" ")));
        let before = digest(&self.image);
        let rest: Vec<&OsStr> =
            options.split_whitespace().chain(rest.iter().copied()).map(OsStr::new).collect();
        let ran = crate::plat::plat(command, &self.image, &rest);
        let done = ran.code == ExitCode::SUCCESS;
        if !done {
            assert!(!ran.err.is_empty(), "{}: nothing is said", self.so_far());
            let is_whole = command == "tune" || command == "resize";
            let same = digest(&self.image) == before;
            assert!(same || !is_whole, "{}: refused ({}) and changed", self.so_far(), ran.err);
            self.story.push(format!("  refused: {}", ran.err.trim_end()));
        }
        let counts = self.counts.entry(command).or_default();
        *(if done { &mut counts.0 } else { &mut counts.1 }) += 1;
        done
    }

    /// The story as a text.
    fn so_far(&self) -> String {
        self.story.join("\n")
    }

    fn tree(&self) -> Snapshot {
        let mounted =
            Mounted::read_only(&self.image).unwrap_or_else(|why| panic!("{}: {why}", self.so_far()));
        let mut tree = Snapshot::of(mounted.path()).unwrap();
        tree.name_links();
        tree
    }

    fn judge(&self) {
        let complaints = fsck::complaints(&self.image);
        assert!(complaints.is_empty(), "{}:\n{complaints}", self.so_far());
    }

    /// Files come, grow and go, by the kernel.
    fn write(&mut self) {
        // A kernel may have been built without quotas, and then writes no volume that counts them.
        let features = tool::dumpe2fs_field(&self.image, "Filesystem features").unwrap_or_default();
        let mounted = match Mounted::read_write(&self.image) {
            Ok(mounted) => mounted,
            Err(_) if features.contains("quota") => return,
            Err(why) => panic!("{}: {why}", self.so_far()),
        };
        self.story.push("files come and go".into());
        for _ in 0..40 {
            let directory = mounted.path().join(format!("d{}", self.random.below(6)));
            let path = directory.join(format!("file-{}", self.random.below(60)));
            let bytes = 1 << self.random.below(15);
            let contents = self.random.bytes(bytes);
            // A full volume is one to change, too.
            let _ = match self.random.below(8) {
                0 => fs::remove_file(&path),
                1 => append(&path, &contents),
                2 => fs::rename(&path, mounted.path().join(format!("moved-{}", self.random.below(20)))),
                3 => std::os::unix::fs::symlink(&"x".repeat(120)[usize::from(contents[0] % 120)..], &path),
                _ => fs::create_dir_all(&directory).and_then(|()| fs::write(&path, &contents)),
            };
        }
    }

    /// One change of the volume.
    fn change(&mut self) {
        match self.random.below(10) {
            0..=3 => {
                let options = *self.random.pick(&TUNED).unwrap();
                self.plat("tune", options, &[]);
            }
            4 => {
                let to = *self.random.pick(&["ext2", "ext3", "ext4"]).unwrap();
                self.plat("convert", &format!("--to {to}"), &["--all"]);
            }
            5..=7 => {
                let size = format!("{}K", 12_000 + self.random.below(40_000));
                self.plat("resize", "", &[&size]);
            }
            8 => {
                self.plat("defrag", "", &[]);
            }
            _ => {
                self.plat("defrag", "--free", &[]);
            }
        }
    }

    fn run(&mut self, steps: u32) {
        self.write();
        for _ in 0..steps {
            let before = self.tree();
            self.change();
            self.judge();
            assert_same(&before, &self.tree(), &self.rules);
            if self.random.one_in(2) {
                self.write();
            }
        }
        let _ = &self.scratch;
    }
}

fn append(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    fs::OpenOptions::new().append(true).open(path)?.write_all(contents)
}

fn digest(path: &Path) -> Vec<u8> {
    Sha256::digest(fs::read(path).unwrap()).to_vec()
}

/// Runs sequences, each with a kind of its own; what was done and what was refused, by command.
fn run(sequences: u64, steps: u32) -> BTreeMap<&'static str, (u32, u32)> {
    let mut counts: BTreeMap<&'static str, (u32, u32)> = BTreeMap::new();
    for seed in 0..sequences {
        let kind = KINDS[usize::try_from(seed).unwrap() % KINDS.len()];
        let mut changing = Changing::new(kind, seed + 1);
        changing.run(steps);
        for (command, (done, refused)) in changing.counts {
            let sum = counts.entry(command).or_default();
            *sum = (sum.0 + done, sum.1 + refused);
        }
    }
    println!("done and refused: {counts:?}");
    counts
}

fn have(test: &str) -> bool {
    tool::have_tools(test, &["mke2fs", "e2fsck"]) && have_loop_mount(test)
}

#[test]
fn each_kind_of_volume_stands_some_changes() {
    if !have("each_kind_of_volume_stands_some_changes") {
        return;
    }
    let counts = run(KINDS.len() as u64, 2);
    assert!(counts.values().all(|(done, _)| *done > 0), "{counts:?}");
}

/// `cargo test -p platfs-cli --test all sequences:: -- --ignored --nocapture`
#[test]
#[ignore = "takes ten minutes"]
fn five_hundred_sequences_of_changes_keep_every_tree() {
    if have("five_hundred_sequences_of_changes_keep_every_tree") {
        run(500, 8);
    }
}
