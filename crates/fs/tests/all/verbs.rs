//! Random verbs against a model in memory: whatever was made must be read back, by the library after
//! opening again, and e2fsck must find nothing wrong. A failure prints the seed that repeats it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::sync::Arc;

use platfs::device::{Device, FileDevice};
use platfs::mkfs::{FsType, Options, Plan, parse_features};
use platfs::ondisk::inode::{FileType, Timestamp};
use platfs::ondisk::units::InodeNumber;
use platfs::{Attributes, Kind, NewInode, OpenOptions, Times, Volume};
use testkit::scratch::Scratch;

/// SplitMix64: a run is a function of its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn bytes(&mut self, count: u64) -> Vec<u8> {
        (0..count.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).take(count as usize).collect()
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Content {
    /// Bytes by offset; the rest up to the size is a hole.
    File {
        size: u64,
        pieces: Vec<(u64, Vec<u8>)>,
    },
    Directory(BTreeMap<Vec<u8>, InodeNumber>),
    Link(Vec<u8>),
    Device(u32, u32),
}

#[derive(Clone, Debug)]
struct Node {
    content: Content,
    attributes: Attributes,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    links: u16,
}

type Model = BTreeMap<InodeNumber, Node>;

fn attributes(random: &mut Random) -> Attributes {
    let mut time = || Timestamp {
        seconds: random.below(1 << 33) as i64 - (1 << 31),
        nanoseconds: random.below(1_000_000_000) as u32,
    };
    let times = Times { access: time(), modify: time(), change: time(), create: Some(time()) };
    let permissions = (random.next() & 0o7777) as u16;
    Attributes { permissions, uid: random.next() as u32, gid: random.next() as u32, times }
}

fn name(random: &mut Random) -> Vec<u8> {
    let length = if random.below(20) == 0 { 255 } else { 1 + random.below(40) };
    let bytes = random.bytes(length).into_iter();
    let name: Vec<u8> = bytes.map(|byte| if matches!(byte, b'/' | 0) { b'_' } else { byte }).collect();
    if name == b"." || name == b".." { b"dot".to_vec() } else { name }
}

fn xattrs(random: &mut Random) -> Vec<(Vec<u8>, Vec<u8>)> {
    match random.below(10) {
        0 => vec![(b"user.long".to_vec(), random.bytes(200))],
        1 => vec![(b"trusted.a".to_vec(), Vec::new()), (b"user.b".to_vec(), random.bytes(3))],
        _ => Vec::new(),
    }
}

fn pick_directory(model: &Model, random: &mut Random) -> InodeNumber {
    let is_directory = |node: &Node| matches!(node.content, Content::Directory(_));
    let all: Vec<_> =
        model.iter().filter(|(_, node)| is_directory(node)).map(|(number, _)| *number).collect();
    all[random.below(all.len() as u64) as usize]
}

fn entries(model: &mut Model, directory: InodeNumber) -> &mut BTreeMap<Vec<u8>, InodeNumber> {
    match &mut model.get_mut(&directory).expect("known").content {
        Content::Directory(entries) => entries,
        _ => panic!("not a directory"),
    }
}

fn create(volume: &Volume, model: &mut Model, random: &mut Random, block_size: u64) {
    let directory = pick_directory(model, random);
    let name = name(random);
    let length = 1 + random.below(200);
    let target: Vec<u8> = random.bytes(length).into_iter().map(|byte| byte | 1).collect();
    let (kind, content) = match random.below(8) {
        0 => (Kind::Directory, Content::Directory(BTreeMap::new())),
        1 => (Kind::Symlink(&target), Content::Link(target.clone())),
        2 => (Kind::CharDevice(4, 300), Content::Device(4, 300)),
        _ => (Kind::File, Content::File { size: 0, pieces: Vec::new() }),
    };
    let (attributes, xattrs) = (attributes(random), xattrs(random));
    let created = volume.create(directory, &name, &NewInode { kind, attributes, xattrs: &xattrs });
    if entries(model, directory).contains_key(&name) {
        assert!(matches!(created, Err(platfs::Error::Exists)), "{created:?}");
        return;
    }
    let number = created.expect("create");
    entries(model, directory).insert(name, number);
    let mut links = 1;
    if kind == Kind::Directory {
        links = 2;
        model.get_mut(&directory).expect("known").links += 1;
    }
    model.insert(number, Node { content, attributes, xattrs, links });
    if kind == Kind::File {
        write(volume, model, random, number, block_size);
    }
}

fn write(volume: &Volume, model: &mut Model, random: &mut Random, number: InodeNumber, block_size: u64) {
    let mut pieces = Vec::new();
    let mut at = 0;
    for _ in 0..random.below(6) {
        at += random.below(3) * random.below(3 * block_size);
        let longest = if random.below(4) == 0 { 30 * block_size } else { 2 * block_size };
        let length = 1 + random.below(longest);
        pieces.push((at, random.bytes(length)));
        at += length;
    }
    let announced = if random.below(2) == 0 { at } else { 0 };
    let mut writer = volume.writer(number, announced).expect("writer");
    for (offset, piece) in &pieces {
        writer.write_all_at(*offset, piece).expect("write");
    }
    drop(writer);
    let size = at + random.below(2) * random.below(100_000);
    volume.extend(number, size).expect("extend");
    model.get_mut(&number).expect("known").content = Content::File { size, pieces };
}

fn link(volume: &Volume, model: &mut Model, random: &mut Random) {
    let numbers: Vec<InodeNumber> = model.keys().copied().collect();
    let number = numbers[random.below(numbers.len() as u64) as usize];
    let directory = pick_directory(model, random);
    let name = name(random);
    let linked = volume.link(number, directory, &name);
    if matches!(model[&number].content, Content::Directory(_)) {
        assert!(matches!(linked, Err(platfs::Error::IsDirectory)), "{linked:?}");
        return;
    }
    match entries(model, directory).entry(name) {
        Entry::Occupied(_) => assert!(matches!(linked, Err(platfs::Error::Exists)), "{linked:?}"),
        Entry::Vacant(entry) => {
            linked.expect("link");
            entry.insert(number);
            model.get_mut(&number).expect("known").links += 1;
        }
    }
}

fn expected_bytes(size: u64, pieces: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = vec![0; size as usize];
    for (offset, piece) in pieces {
        bytes[*offset as usize..*offset as usize + piece.len()].copy_from_slice(piece);
    }
    bytes
}

/// Compares everything; times only where nothing but creation touched them, and records hold them.
fn verify(volume: &Volume, model: &Model, exact_times: bool) {
    for (number, node) in model {
        let found = volume.metadata(*number).expect("metadata");
        assert_eq!(found.links, node.links, "links of {number}");
        assert_eq!(volume.inode(*number).xattrs().expect("xattrs"), node.xattrs, "xattrs of {number}");
        if *number != InodeNumber::ROOT {
            assert_eq!((found.uid, found.gid), (node.attributes.uid, node.attributes.gid));
            assert_eq!(found.permissions, node.attributes.permissions);
            if exact_times {
                assert_eq!(found.times, node.attributes.times, "times of {number}");
            }
        }
        verify_content(volume, *number, &node.content, &found);
    }
}

fn verify_content(volume: &Volume, number: InodeNumber, content: &Content, found: &platfs::Metadata) {
    match content {
        Content::File { size, pieces } => {
            assert_eq!(found.size, *size, "size of {number}");
            let mut bytes = vec![1; *size as usize + 10];
            let read = volume.open_file(number).expect("open").read_at(0, &mut bytes).expect("read");
            assert_eq!(read as u64, *size);
            bytes.truncate(read);
            assert!(bytes == expected_bytes(*size, pieces), "bytes of {number}");
        }
        Content::Directory(entries) => {
            let listed = volume.read_dir(number).expect("list").map(|entry| entry.expect("entry"));
            let mut names: BTreeMap<_, _> = listed.map(|entry| (entry.name, entry.inode)).collect();
            names.remove(&b"lost+found"[..]);
            assert_eq!(&names, entries, "names in {number}");
            for (name, child) in entries {
                assert_eq!(volume.lookup(number, name).expect("lookup"), *child);
            }
        }
        Content::Link(target) => assert_eq!(&volume.read_link(number).expect("target"), target),
        Content::Device(major, minor) => {
            assert_eq!(found.file_type, FileType::CharDevice);
            assert_eq!(found.device, Some((*major, *minor)));
        }
    }
}

fn format(fs_type: FsType, block_size: u32, features: &str, inode_size: u32) -> Options {
    let mut options = Options::new(fs_type);
    options.block_size = Some(block_size);
    options.inode_size = Some(inode_size);
    options.inodes = Some(2000);
    options.features = parse_features(features).expect("features");
    options.uuid = [0x5A; 16];
    options.hash_seed = [0x3C; 16];
    options
}

fn run(seed: u64, options: &Options, bytes: u64, loading: bool) {
    println!("seed {seed}, loading {loading}, {options:?}");
    let scratch = Scratch::new("verbs");
    let image = scratch.join("disk.img");
    let file = File::options().read(true).write(true).create_new(true).open(&image).expect("image");
    file.set_len(bytes).expect("size");
    let device: Arc<dyn Device> = Arc::new(FileDevice::new(file).expect("device").without_flush());
    Plan::new(options, bytes).expect("plan").write(&*device).expect("mkfs");
    let mut random = Random(seed);
    let content = Content::Directory(BTreeMap::new());
    let root = Node { content, attributes: Attributes::default(), xattrs: Vec::new(), links: 3 };
    let mut model = Model::from([(InodeNumber::ROOT, root)]);
    // Three openings: what one wrote, the next adds to.
    for _ in 0..3 {
        let open = OpenOptions::new().write(true).unordered(true).loading(loading).seed(seed);
        let volume = Volume::open(Arc::clone(&device), &open).expect("open");
        for _ in 0..150 {
            match random.below(10) {
                0 => link(&volume, &mut model, &mut random),
                _ => create(&volume, &mut model, &mut random, u64::from(options.block_size.unwrap_or(4096))),
            }
        }
        verify(&volume, &model, false);
        volume.close().expect("close");
    }
    let volume = Volume::open(device, &OpenOptions::new()).expect("open for reading");
    verify(&volume, &model, loading && options.inode_size == Some(256));
    if testkit::tool::have_tools("verbs", &["e2fsck"]) {
        testkit::fsck::assert_clean(&image);
    }
}

#[test]
fn extents_of_every_block_size() {
    for (seed, block_size) in [(1, 1024), (2, 2048), (3, 4096), (4, 16_384), (5, 65_536)] {
        run(seed, &format(FsType::Ext4, block_size, "", 256), 512 << 20, true);
        run(seed + 100, &format(FsType::Ext4, block_size, "", 256), 512 << 20, false);
    }
}

#[test]
fn block_maps() {
    for (seed, block_size) in [(11, 1024), (12, 4096)] {
        run(seed, &format(FsType::Ext2, block_size, "", 128), 256 << 20, true);
        run(seed + 100, &format(FsType::Ext3, block_size, "", 256), 256 << 20, false);
    }
}

#[test]
fn clusters() {
    run(21, &format(FsType::Ext4, 4096, "bigalloc", 256), 1 << 30, true);
    run(22, &format(FsType::Ext4, 1024, "bigalloc", 256), 512 << 20, false);
}

#[test]
fn features() {
    let sets = [
        "inline_data",
        "^metadata_csum,uninit_bg",
        "^metadata_csum",
        "meta_bg,^resize_inode",
        "^flex_bg",
        "ea_inode,large_dir",
        "metadata_csum_seed",
        "^64bit",
        "^dir_index",
        "^filetype",
    ];
    for (seed, features) in (31..).zip(sets) {
        run(seed, &format(FsType::Ext4, 1024, features, 256), 64 << 20, seed % 2 == 0);
    }
}
