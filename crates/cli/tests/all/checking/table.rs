//! Every verb that opens an image, on images that were cut off at each place and damaged in each way: it ends with a code
//! as documented, names the image and what helps, changes nothing unless it is to, and leaves whole outputs or none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use ondisk::features::Incompat;
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, Group};
use platfs::device::{Device, FileDevice};
use platfs::{InodeNumber, OpenOptions, Volume, ondisk};
use testkit::scratch::Scratch;
use testkit::sparse;
use testkit::tool;
use zerocopy::IntoBytes;

use crate::plat::{Ran, plat};

/// Effect that a verb may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Does {
    /// The image stays as it is.
    Reads,
    /// The image stays as it is, and the output has what can be read, with exit code 1 where that is not all.
    KeepsGoing,
    /// The image is another one if the verb succeeded.
    Writes,
    /// As fsck(8): the image may be repaired, whatever the code.
    Checks,
}

/// `OUT` and `BASE` stand for an output and for the image before the damage.
const VERBS: &[(&str, &[&str], Does)] = &[
    ("info", &[], Does::Reads),
    ("journal", &[], Does::Reads),
    ("undelete", &[], Does::Reads),
    ("image --metadata", &["OUT"], Does::Reads),
    ("export", &["OUT"], Does::Reads),
    ("export --keep-going", &["OUT"], Does::KeepsGoing),
    ("check -n", &[], Does::Checks),
    ("check -p", &[], Does::Checks),
    ("check -y", &[], Does::Checks),
    ("ls -R", &["/"], Does::Reads),
    ("cat", &["/large"], Does::Reads),
    ("get", &["/large", "OUT"], Does::Reads),
    ("get -r", &["/", "OUT"], Does::Reads),
    ("stat", &["/large"], Does::Reads),
    ("diff", &["BASE"], Does::Reads),
    ("diff --blocks", &["BASE"], Does::Reads),
    ("snapshot", &["OUT"], Does::Reads),
    ("convert --to ext3", &["/large"], Does::Writes),
    ("resize -P", &[], Does::Reads),
    ("resize", &["9M"], Does::Writes),
    ("tune -L x", &[], Does::Writes),
    ("rm", &["/large"], Does::Writes),
    ("trim", &[], Does::Writes),
    ("defrag", &["/large"], Does::Writes),
    ("quota --on user", &[], Does::Writes),
];

/// Offsets of structures in the image.
struct Places {
    tables: usize,
    bitmaps: usize,
    journal: usize,
    root: usize,
    file: usize,
}

const BLOCK: usize = 1024;

impl Places {
    fn of(image: &Path) -> Self {
        let device = Arc::new(FileDevice::new(fs::File::open(image).unwrap()).unwrap()) as Arc<dyn Device>;
        let volume = Volume::open(Arc::clone(&device), &OpenOptions::new()).unwrap();
        let first = volume.space().descriptor(Group(0)).unwrap();
        let at = |block: Block| block.0 as usize * BLOCK;
        let ground = platfs_forensics::RawImage::open(Arc::clone(&device)).unwrap();
        let of = |inode: InodeNumber| at(ground.map(&ground.inode(inode).unwrap()).unwrap().runs[0].start);
        Places {
            tables: at(first.inode_table()),
            bitmaps: at(first.block_bitmap()),
            journal: of(InodeNumber::new(8).unwrap()),
            root: of(InodeNumber::ROOT),
            file: of(volume.resolve(b"/large").unwrap()),
        }
    }
}

fn base(scratch: &Scratch) -> PathBuf {
    let (tree, image) = (scratch.join("tree"), scratch.join("base.img"));
    fs::create_dir_all(tree.join("etc/d")).unwrap();
    fs::write(tree.join("etc/small"), b"small\n").unwrap();
    fs::write(tree.join("large"), (0..900_000_u32).map(|at| (at / 3) as u8).collect::<Vec<_>>()).unwrap();
    (0..60).for_each(|at| fs::write(tree.join(format!("etc/d/{at}")), vec![1; at]).unwrap());
    let mut make = tool::command("mke2fs");
    make.args(["-q", "-F", "-t", "ext4", "-b", "1024", "-g", "2048", "-N", "256", "-J", "size=1", "-d"]);
    tool::run(make.arg(&tree).arg(&image).arg("8M"));
    image
}

/// Images by what was done to them.
fn images(bytes: &[u8], places: &Places) -> Vec<(String, Vec<u8>)> {
    let (len, group) = (bytes.len(), 2049 * BLOCK);
    let ends =
        [0, 1, 1023, 1024, 1536, 2048, 2148, 3072, 4096, 16_384, places.bitmaps + 1, places.tables + 300]
            .into_iter()
            .chain([places.root, places.file + 70_000, places.journal + 5000, group, group + 512, len / 2])
            .chain([len - 65_536, len - 1024, len - 1]);
    let cuts = ends.map(|end| (format!("cut off behind {end}"), bytes[..end].to_vec()));
    let over = |at: usize, count: usize, byte: u8| {
        let mut bytes = bytes.to_vec();
        bytes[at..at + count].fill(byte);
        bytes
    };
    let noise: Vec<u8> =
        (0..len as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
    let edited = |edit: fn(&mut RawSuperblock)| {
        let mut bytes = bytes.to_vec();
        let mut raw = RawSuperblock::parse(&bytes[1024..2048]).unwrap();
        edit(&mut raw);
        bytes[1024..2048].copy_from_slice(raw.as_bytes());
        bytes
    };
    let damaged = [
        ("no superblock", over(1024, 1024, 0)),
        ("noise for a superblock", over(1024, 1024, 0xA5)),
        ("another magic", over(1024 + 56, 2, b'X')),
        ("no descriptors", over(2048, 1024, 0)),
        ("noise for descriptors", over(2048, 1024, 0xC3)),
        ("no inode table", over(places.tables, 8 * BLOCK, 0)),
        ("noise for an inode table", over(places.tables, 8 * BLOCK, 0x3C)),
        ("no bitmaps", over(places.bitmaps, 1024, 0)),
        ("noise for the root directory", over(places.root, 1024, 0x77)),
        ("no journal superblock", over(places.journal, 1024, 0)),
        ("noise for the journal superblock", over(places.journal, 1024, 0x11)),
        (
            "an unknown feature",
            edited(|raw| raw.s_feature_incompat.set(raw.s_feature_incompat.get() | 1 << 27)),
        ),
        ("as a journal on its own", edited(|raw| raw.s_feature_incompat.set(Incompat::JOURNAL_DEV.bits()))),
        ("a size without end", edited(|raw| raw.s_blocks_count_hi.set(0x0010_0000))),
        ("another UUID", edited(|raw| raw.s_uuid[5] ^= 4)),
        ("nothing in its first 64 KiB", over(0, 65_536, 0)),
        ("zeros", vec![0; len]),
        ("noise", noise),
    ];
    cuts.chain(damaged.into_iter().map(|(what, bytes)| (what.to_owned(), bytes))).collect()
}

struct Bench {
    scratch: Scratch,
    base: PathBuf,
}

impl Bench {
    fn image(&self) -> PathBuf {
        self.scratch.join("a.img")
    }

    fn out(&self) -> PathBuf {
        self.scratch.join("out")
    }

    /// Names beside what the test made.
    fn left(&self) -> Vec<String> {
        let names = fs::read_dir(self.scratch.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !["a.img", "base.img", "tree", "out", "mount"].contains(&&name[..])).collect()
    }

    fn clear(&self) {
        let out = self.out();
        let _ = if out.is_dir() { fs::remove_dir_all(out) } else { fs::remove_file(out) };
    }

    /// Runs a verb; what is wrong with how it ended.
    fn run(&self, what: &str, bytes: &[u8], (verb, rest, does): (&str, &[&str], Does)) -> Vec<String> {
        let (out, image) = (self.out(), self.image());
        sparse::write(&image, bytes).unwrap();
        let rest: Vec<_> = rest
            .iter()
            .map(|word| match *word {
                "OUT" => out.as_os_str(),
                "BASE" => self.base.as_os_str(),
                word => word.as_ref(),
            })
            .collect();
        let Ran { code, err, .. } = plat(verb, &image, &rest);
        let codes: &[u8] = if does == Does::Checks { &[0, 1, 4, 8] } else { &[0, 1] };
        let is_well = code == ExitCode::SUCCESS;
        let is_whole = is_well || does == Does::KeepsGoing;
        let may_write = does == Does::Writes && is_well || does == Does::Checks && verb != "check -n";
        let is_helped = is_well || does == Does::Checks || helps(&err);
        let faults = [
            (codes.iter().any(|one| ExitCode::from(*one) == code), "another exit code than documented"),
            (is_whole || !out.exists(), "half an output"),
            (may_write || fs::read(&image).unwrap() == bytes, "the image is another one"),
            (self.left().is_empty(), "something is left"),
            (is_helped, "no word of the image, or what to do"),
        ];
        self.clear();
        let about = |fault: &str| format!("{what}: {verb}: {fault}: {code:?}: {err}");
        faults.into_iter().filter(|(is_right, _)| !is_right).map(|(_, fault)| about(fault)).collect()
    }

    /// Mounts an image with these bytes, and unmounts it.
    fn mount(&self, what: &str, bytes: &[u8]) -> Vec<String> {
        let (image, point) = (self.image(), self.scratch.join("mount"));
        sparse::write(&image, bytes).unwrap();
        fs::create_dir_all(&point).unwrap();
        let mut mount = Command::new(env!("CARGO_BIN_EXE_plat"));
        let ran = mount.args(["mount", "-o", "ro"]).arg(&image).arg(&point).output().unwrap();
        let err = String::from_utf8_lossy(&ran.stderr).into_owned();
        if ran.status.success() {
            let _ = fs::read_dir(&point).map(|names| names.count());
            tool::run(tool::command("fusermount3").arg("-u").arg(&point));
        }
        let faults = [
            (matches!(ran.status.code(), Some(0 | 1)), "another exit code than documented"),
            (fs::read(&image).unwrap() == bytes, "the image is another one"),
            (ran.status.success() || helps(&err), "no word of the image, or what to do"),
        ];
        let about = |fault: &str| format!("{what}: mount: {fault}: {}: {err}", ran.status);
        faults.into_iter().filter(|(is_right, _)| !is_right).map(|(_, fault)| about(fault)).collect()
    }
}

/// Returns true if a complaint says of which file it is, and what to do, or that no volume is there.
fn helps(err: &str) -> bool {
    let helps = ["`plat ", "copy it again", "is no ext2, ext3 or ext4 volume", "all else is in the output"];
    err.contains(".img") && helps.iter().any(|help| err.contains(help))
}

#[test]
fn verbs_on_images_that_were_cut_off_or_damaged() {
    let test = "verbs_on_images_that_were_cut_off_or_damaged";
    if !tool::have_tools(test, &["mke2fs"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let base = base(&scratch);
    let (bytes, places) = (fs::read(&base).unwrap(), Places::of(&base));
    let mounts = Path::new("/dev/fuse").exists() && tool::have_tools(test, &["fusermount3"]);
    let bench = Bench { scratch, base };
    let mut faults = Vec::new();
    for (what, bytes) in images(&bytes, &places) {
        VERBS.iter().for_each(|verb| faults.extend(bench.run(&what, &bytes, *verb)));
        if mounts {
            faults.extend(bench.mount(&what, &bytes));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
