//! Faults planted at a named field of a good image, and all that must be true of their check.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use ondisk::group::RawGroupDescriptor;
use ondisk::inode::Inode;
use ondisk::superblock::RawSuperblock;
use platfs::check::{Decision, Issue, Options, Outcome, PieceChange, Sink, check};
use platfs::device::{Device, MemoryDevice};
use platfs::ondisk::inode::Timestamp;
use platfs::{Format, InodeNumber, OpenOptions, State, Volume, ondisk};
use testkit::scratch::Scratch;
use testkit::{fsck, sparse, tool};
use zerocopy::IntoBytes;

use ondisk::units::{Block, Group};

/// Images to plant faults in: name, size, options for mke2fs. Small blocks make many groups and deep trees.
const BASES: &[(&str, &str, &[&str])] = &[
    ("ext4", "24M", &["-t", "ext4", "-b", "1024", "-g", "8192", "-O", "^orphan_file,^metadata_csum_seed"]),
    ("ext4_4k", "64M", &["-t", "ext4", "-b", "4096", "-I", "256"]),
    ("ext4_nojournal", "16M", &["-t", "ext4", "-b", "1024", "-O", "^has_journal"]),
    ("ext4_nocsum", "16M", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^has_journal"]),
    ("ext2", "16M", &["-t", "ext2", "-b", "1024"]),
    ("ext3", "16M", &["-t", "ext3", "-b", "1024"]),
    ("bigalloc", "64M", &["-t", "ext4", "-b", "4096", "-O", "bigalloc,^has_journal", "-C", "16384"]),
    ("inline", "16M", &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "inline_data,^has_journal"]),
    (
        "meta_bg",
        "24M",
        &["-t", "ext4", "-b", "1024", "-g", "1024", "-O", "meta_bg,^resize_inode,^has_journal"],
    ),
    ("sparse_super2", "24M", &["-t", "ext4", "-b", "1024", "-O", "sparse_super2,^resize_inode,^has_journal"]),
    ("quota", "16M", &["-t", "ext4", "-b", "1024", "-O", "quota,project,^has_journal", "-I", "256"]),
    (
        "quota_nocsum",
        "8M",
        &["-t", "ext4", "-b", "4096", "-O", "quota,project,^metadata_csum,^has_journal", "-I", "256"],
    ),
    ("ea_inode", "16M", &["-t", "ext4", "-b", "1024", "-O", "ea_inode,^has_journal", "-I", "256"]),
    ("orphan_file", "24M", &["-t", "ext4", "-b", "1024", "-O", "orphan_file"]),
    ("casefold", "16M", &["-t", "ext4", "-b", "1024", "-O", "casefold,^has_journal"]),
    ("linear", "16M", &["-t", "ext4", "-b", "1024", "-O", "^dir_index,^has_journal"]),
    ("no_types", "16M", &["-t", "ext2", "-b", "1024", "-O", "^filetype"]),
    ("mmp", "16M", &["-t", "ext4", "-b", "1024", "-O", "mmp,^has_journal", "-E", "mmp_update_interval=1"]),
];

/// Names of all bases.
pub fn bases() -> impl Iterator<Item = &'static str> {
    BASES.iter().map(|(name, ..)| *name)
}

/// Fills a base: a tree with a bit of everything that needs no root.
fn fill(root: &Path) {
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("a/small"), b"small contents\n").unwrap();
    fs::write(root.join("a/b/tiny"), b"x").unwrap();
    fs::write(root.join("a/b/c/other"), vec![7; 5000]).unwrap();
    fs::write(root.join("nothing"), b"").unwrap();
    let large: Vec<u8> = (0..400_000_u32).map(|at| (at / 7) as u8).collect();
    fs::write(root.join("large"), large).unwrap();
    // Every second block of 4 KiB: an extent each, more than a root holds.
    let comb = fs::File::create(root.join("comb")).unwrap();
    for tooth in 0..120_u64 {
        comb.write_all_at(&tooth.to_le_bytes().repeat(512), tooth * 8192).unwrap();
    }
    fs::hard_link(root.join("a/small"), root.join("a/again")).unwrap();
    symlink("a/small", root.join("short-link")).unwrap();
    symlink("long/".repeat(40), root.join("long-link")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, root.join("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let many = root.join("many");
    fs::create_dir(&many).unwrap();
    for index in 0..400 {
        fs::write(many.join(format!("name-of-some-length-{index:04}")), b"").unwrap();
    }
    for (name, len) in [("a/small", 20), ("large", 600)] {
        set_attribute(&root.join(name), "user.of-a-test", &"v".repeat(len));
    }
}

fn set_attribute(path: &Path, name: &str, value: &str) {
    rustix::fs::setxattr(path, name, value.as_bytes(), rustix::fs::XattrFlags::empty()).unwrap();
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let code = output.status.code().unwrap_or(99);
    assert!(code < 4, "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The bytes of a base; directories of more than a block have an index.
pub fn base(name: &str) -> Arc<Vec<u8>> {
    static MADE: Mutex<Option<HashMap<String, Arc<Vec<u8>>>>> = Mutex::new(None);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let made = made.get_or_insert_default();
    if let Some(bytes) = made.get(name) {
        return Arc::clone(bytes);
    }
    let (_, size, options) = BASES.iter().find(|(base, ..)| *base == name).expect("a base of this name");
    let scratch = Scratch::new("check-base");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir(&tree).unwrap();
    fill(&tree);
    if name == "ea_inode" {
        // More than a block of attributes holds.
        let value = "w".repeat(3000);
        for file in ["large", "comb"] {
            set_attribute(&tree.join(file), "user.large", &value);
        }
    }
    run(tool::command("mke2fs")
        .args(["-q", "-F", "-E", "lazy_itable_init=0,hash_seed=0f0f0f0f-0f0f-4f0f-8f0f-0f0f0f0f0f0f"])
        .args(*options)
        .arg("-d")
        .arg(&tree)
        .arg(&image)
        .arg(size));
    // Writing to a volume with multiple mount protection makes e2fsck wait for ten seconds.
    if name != "mmp" {
        run(tool::command("e2fsck").args(["-fyD"]).arg(&image));
    }
    fsck::assert_clean(&image);
    let bytes = Arc::new(fs::read(&image).unwrap());
    made.insert(name.into(), Arc::clone(&bytes));
    bytes
}

/// True if the tools that bases need are there; skips with a message otherwise.
pub fn ready(test: &str) -> bool {
    tool::have_tools(test, &["mke2fs", "e2fsck"])
}

/// An image to be damaged. Edits recompute checksums unless they say otherwise.
pub struct Image {
    pub bytes: Vec<u8>,
    pub format: Format,
}

impl Image {
    pub fn of(name: &str) -> Self {
        Image::from_bytes(base(name).to_vec())
    }

    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        let raw = RawSuperblock::parse(&bytes[1024..2048]).unwrap();
        Image { format: Format::from_superblock(&raw).unwrap(), bytes }
    }

    /// Changes the volume through the library.
    pub fn change(&mut self, verbs: impl FnOnce(&Volume)) {
        let device = Arc::new(MemoryDevice::from_bytes(&self.bytes));
        let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, &OpenOptions::new().write(true));
        let volume = volume.unwrap();
        verbs(&volume);
        volume.close().unwrap();
        device.read_at(0, &mut self.bytes).unwrap();
    }

    /// The volume as the library reads it, before more edits.
    pub fn volume(&self) -> Volume {
        self.try_volume().unwrap()
    }

    /// Opens one that may be too damaged.
    pub fn try_volume(&self) -> platfs::Result<Volume> {
        Volume::open(Arc::new(MemoryDevice::from_bytes(&self.bytes)), &OpenOptions::new())
    }

    pub fn inode_of(&self, path: &str) -> InodeNumber {
        self.volume().resolve_link(path.as_bytes()).unwrap()
    }

    /// The block of a file's contents.
    pub fn block_of(&self, path: &str, file_block: u64) -> Block {
        let volume = self.volume();
        let map = volume.map(volume.resolve_link(path.as_bytes()).unwrap()).unwrap();
        let found = map.map(Result::unwrap).find_map(|segment| {
            let first = u64::from(segment.logical.0);
            match segment.state {
                State::Mapped(start) | State::Unwritten(start)
                    if (first..first + segment.count).contains(&file_block) =>
                {
                    Some(Block(start.0 + file_block - first))
                }
                _ => None,
            }
        });
        found.expect("a mapped block")
    }

    /// The first block of an inode without a name.
    pub fn block_of_inode(&self, inode: InodeNumber) -> Block {
        let segment = self.volume().map(inode).unwrap().next().expect("a mapped block").unwrap();
        match segment.state {
            State::Mapped(start) | State::Unwritten(start) => start,
            _ => panic!("inode {inode} begins with a hole"),
        }
    }

    /// The superblock as it is now.
    pub fn superblock_now(&self) -> RawSuperblock {
        RawSuperblock::parse(&self.bytes[1024..2048]).unwrap()
    }

    pub fn superblock(&mut self, edit: impl FnOnce(&mut RawSuperblock)) {
        self.superblock_unsealed(|raw| edit(raw));
        let mut raw = RawSuperblock::parse(&self.bytes[1024..2048]).unwrap();
        self.format.sealer.seal_superblock(&mut raw);
        self.bytes[1024..2048].copy_from_slice(raw.as_bytes());
    }

    pub fn superblock_unsealed(&mut self, edit: impl FnOnce(&mut RawSuperblock)) {
        let mut raw = RawSuperblock::parse(&self.bytes[1024..2048]).unwrap();
        edit(&mut raw);
        self.bytes[1024..2048].copy_from_slice(raw.as_bytes());
    }

    pub fn descriptor_at(&self, group: u32) -> usize {
        let geometry = &self.format.geometry;
        let per_block = geometry.descriptors_per_block();
        let block = geometry.byte_offset(geometry.descriptor_block(group / per_block));
        block as usize + (group % per_block) as usize * usize::from(geometry.descriptor_size)
    }

    pub fn descriptor(&mut self, group: u32, edit: impl FnOnce(&mut RawGroupDescriptor)) {
        let (at, len) = (self.descriptor_at(group), usize::from(self.format.geometry.descriptor_size));
        let mut raw = RawGroupDescriptor::parse(&self.bytes[at..at + len]);
        edit(&mut raw);
        self.format.sealer.seal_descriptor(Group(group), &mut raw, &[]);
        raw.store(&mut self.bytes[at..at + len]);
    }

    pub fn read_descriptor(&self, group: u32) -> RawGroupDescriptor {
        let (at, len) = (self.descriptor_at(group), usize::from(self.format.geometry.descriptor_size));
        RawGroupDescriptor::parse(&self.bytes[at..at + len])
    }

    pub fn inode_at(&self, number: InodeNumber) -> usize {
        let geometry = &self.format.geometry;
        let (group, index) = geometry.locate_inode(number).unwrap();
        let table = self.read_descriptor(group.0).inode_table();
        geometry.byte_offset(table) as usize + index as usize * usize::from(geometry.inode_size)
    }

    pub fn read_inode(&self, number: InodeNumber) -> Inode {
        let (at, len) = (self.inode_at(number), usize::from(self.format.geometry.inode_size));
        Inode::parse(number, &self.bytes[at..at + len]).unwrap()
    }

    pub fn inode(&mut self, number: InodeNumber, edit: impl FnOnce(&mut Inode)) {
        let mut inode = self.read_inode(number);
        edit(&mut inode);
        self.format.sealer.seal_inode(&mut inode);
        let at = self.inode_at(number);
        self.bytes[at..at + inode.bytes().len()].copy_from_slice(inode.bytes());
    }

    /// The bytes of a block; checksums in it are the caller's affair.
    pub fn block(&mut self, block: Block) -> &mut [u8] {
        let at = self.format.geometry.byte_offset(block) as usize;
        let len = self.format.geometry.block_size.bytes_usize();
        &mut self.bytes[at..at + len]
    }

    /// Changes the block bitmap of a group, whose checksum and descriptor follow.
    pub fn block_bitmap(&mut self, group: u32, edit: impl FnOnce(&mut [u8])) {
        let place = self.read_descriptor(group).block_bitmap();
        edit(self.block(place));
        let bits = self.format.geometry.clusters_per_group();
        let sealer = self.format.sealer;
        let sum = sealer.bitmap_checksum(self.block(place), bits);
        self.descriptor(group, |raw| {
            raw.set_block_bitmap_checksum(sum.unwrap_or(raw.block_bitmap_checksum()))
        });
    }

    /// Changes the inode bitmap of a group, whose checksum and descriptor follow.
    pub fn inode_bitmap(&mut self, group: u32, edit: impl FnOnce(&mut [u8])) {
        let place = self.read_descriptor(group).inode_bitmap();
        edit(self.block(place));
        let bits = self.format.geometry.inodes_per_group;
        let sealer = self.format.sealer;
        let sum = sealer.bitmap_checksum(self.block(place), bits);
        self.descriptor(group, |raw| {
            raw.set_inode_bitmap_checksum(sum.unwrap_or(raw.inode_bitmap_checksum()))
        });
    }
}

/// Receives every issue, and decides by its number.
pub struct Ears<D = fn(usize) -> Decision> {
    pub heard: Vec<Issue>,
    decide: D,
}

impl Ears {
    /// Decides to repair.
    pub fn repairing() -> Self {
        Ears { heard: Vec::new(), decide: |_| Decision::Repair }
    }
}

impl<D: FnMut(usize) -> Decision> Sink for Ears<D> {
    fn issue(&mut self, issue: Issue) -> Decision {
        self.heard.push(issue);
        (self.decide)(self.heard.len() - 1)
    }
}

/// Checks bytes and repairs all: what was heard, and the outcome.
pub fn checked(bytes: &[u8]) -> (Vec<Issue>, Outcome) {
    decided(bytes, |_| Decision::Repair)
}

/// Checks bytes and repairs what is decided for, by the number of the issue.
pub fn decided(bytes: &[u8], decide: impl FnMut(usize) -> Decision) -> (Vec<Issue>, Outcome) {
    decided_at(testkit::clock::seconds(), bytes, decide)
}

/// As `decided`, at a given time, which repairs write: for results that are compared.
pub fn decided_at(now: i64, bytes: &[u8], decide: impl FnMut(usize) -> Decision) -> (Vec<Issue>, Outcome) {
    let mut ears = Ears { heard: Vec::new(), decide };
    let options = Options { threads: 2, now: Timestamp::from_seconds(now), ..Options::default() };
    let outcome = check(Arc::new(MemoryDevice::from_bytes(bytes)), &options, &mut ears).unwrap();
    (ears.heard, outcome)
}

/// The bytes after the repairs.
pub fn repaired(outcome: &Outcome) -> Vec<u8> {
    let mut bytes = vec![0; outcome.repaired.size() as usize];
    outcome.repaired.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Plants a fault and demands: exactly the expected issues, in order; after the repair, silence of
/// our own check and of e2fsck; and that e2fsck too saw the fault.
pub fn planted(name: &str, plant: impl FnOnce(&mut Image), expected: &[&str]) {
    planted_as(name, plant, expected, true);
}

/// As `planted`, for faults that e2fsck does not see (each needs its reason in the test).
pub fn planted_unseen(name: &str, plant: impl FnOnce(&mut Image), expected: &[&str]) {
    planted_as(name, plant, expected, false);
}

fn planted_as(name: &str, plant: impl FnOnce(&mut Image), expected: &[&str], seen: bool) {
    if !ready(name) {
        return;
    }
    let mut image = Image::of(name);
    plant(&mut image);
    assert_found(&image, expected, seen);
}

/// Demands of an image with a fault what [`planted`] does; `seen` if e2fsck sees the fault too.
pub fn assert_found(image: &Image, expected: &[&str], seen: bool) {
    let scratch = Scratch::new("planted");
    let file = scratch.join("image");
    sparse::write(&file, &image.bytes).unwrap();
    let said = fsck::complaints(&file);
    assert_eq!(!said.is_empty(), seen, "e2fsck -fn of the planted fault: {said}");
    let (heard, outcome) = checked(&image.bytes);
    let ids: Vec<_> = heard.iter().map(|issue| issue.kind.id).collect();
    assert_eq!(ids, expected, "{heard:#?}\ne2fsck: {said}");
    let after = repaired(&outcome);
    let (again, second) = checked(&after);
    assert_eq!(again, [], "the second check");
    assert!(second.repaired.is_unchanged());
    sparse::write(&file, &after).unwrap();
    fsck::assert_clean(&file);
    assert_undone(&image.bytes, &outcome, &after);
}

/// The old bytes that a repair reports bring the image back byte for byte.
pub fn assert_undone(before: &[u8], outcome: &Outcome, after: &[u8]) {
    let mut bytes = after.to_vec();
    let mut old = Vec::new();
    let tell = |change: PieceChange<'_>| {
        old.push((change.offset as usize, change.old.to_vec()));
        Ok(())
    };
    outcome.repaired.each_change(tell).unwrap();
    for (offset, old) in old {
        bytes[offset..offset + old.len()].copy_from_slice(&old);
    }
    assert!(bytes == before, "undone, the image is another one");
}
