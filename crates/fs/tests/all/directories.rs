//! Directories against e2fsck, debugfs and the kernel: ours read by them, theirs read by us.
#![cfg(target_os = "linux")]
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ondisk::dirent::{self, Layout};
use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::device::FileDevice;
use platfs::placement::DirectoryPolicyKind;
use platfs::{
    Attributes, DirName, Error, Kind, NameSizes, NewInode, OpenOptions, Replace, Volume, WriteOrder,
};
use testkit::mount::{Mounted, have_loop_mount};
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::{fsck, images, tool};

fn open(image: &Path, write: bool) -> Volume {
    let file = File::options().read(true).write(write).open(image).unwrap();
    let device = Arc::new(FileDevice::new(file).unwrap());
    Volume::open(device, &OpenOptions::new().write(write).unordered(true)).unwrap()
}

fn mke2fs(scratch: &Scratch, options: &str, size: &str) -> PathBuf {
    let image = scratch.join("image");
    let mut command = tool::command("mke2fs");
    command.args(["-q", "-F", "-E", "hash_seed=01234567-89ab-cdef-0123-456789abcdef"]);
    tool::run(command.args(options.split_whitespace()).arg(&image).arg(size));
    image
}

fn set_superblock(image: &Path, field: &str, value: &str) {
    let request = format!("set_super_value {field} {value}");
    tool::run(tool::command("debugfs").args(["-w", "-R", &request]).arg(image));
}

fn new(kind: Kind<'_>) -> NewInode<'_> {
    NewInode { kind, attributes: Attributes { permissions: 0o755, ..Attributes::default() }, xattrs: &[] }
}

/// Short, long, and not ASCII: so that signed and unsigned hashes differ.
fn name(number: u32) -> Vec<u8> {
    match number % 4 {
        0 => format!("file{number}").into_bytes(),
        1 => [&[0xC3, 0xA9, 0xFF][..], number.to_string().as_bytes()].concat(),
        2 => format!("a rather long name for a file, number {number}").into_bytes(),
        _ => format!("{number}").into_bytes(),
    }
}

/// Makes a directory of hard links to one file: as many names as wanted, few inodes.
fn fill(image: &Path, count: u32) -> BTreeSet<Vec<u8>> {
    let volume = open(image, true);
    let dir = volume.create(InodeNumber::ROOT, b"many", &new(Kind::Directory)).unwrap();
    let mut names = BTreeSet::new();
    let mut file = None;
    for number in 0..count {
        // The format counts at most 32,000 links.
        match file.filter(|_| number % 16_000 != 0) {
            Some(file) => volume.link(file, dir, &name(number)).unwrap(),
            None => file = Some(volume.create(dir, &name(number), &new(Kind::File)).unwrap()),
        }
        names.insert(name(number));
    }
    assert!(matches!(volume.create(dir, &name(0), &new(Kind::File)), Err(Error::Exists)));
    volume.close().unwrap();
    names
}

/// The names in a directory and what they lead to, each looked up too.
fn ours(volume: &Volume, dir: InodeNumber) -> BTreeSet<(Vec<u8>, u64)> {
    let mut names = BTreeSet::new();
    for entry in volume.read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(volume.lookup(dir, &entry.name).unwrap(), entry.inode);
        names.insert((entry.name, u64::from(entry.inode.get())));
    }
    assert!(matches!(volume.lookup(dir, b"not there"), Err(Error::NotFound)));
    names
}

/// Names and inodes as the kernel has them; metadata makes it look each name up.
fn kernels(dir: &Path) -> BTreeSet<(Vec<u8>, u64)> {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    entries
        .map(|name| {
            let inode = fs::symlink_metadata(dir.join(&name)).unwrap().ino();
            (name.into_vec(), inode)
        })
        .collect()
}

/// mke2fs options, image size, names, hash version, and whether every kernel mounts such blocks.
const VOLUMES: [(&str, &str, u32, &str, bool); 16] = [
    ("-t ext2 -b 1024 -O ^dir_index", "8M", 1500, "half_md4", true),
    ("-t ext2 -b 1024 -O dir_index,^filetype", "8M", 3000, "half_md4", true),
    ("-t ext2 -b 1024", "8M", 3000, "half_md4", true),
    ("-t ext3 -b 1024", "16M", 20_000, "half_md4", true),
    ("-t ext3 -b 4096 -I 128", "32M", 20_000, "half_md4", true),
    ("-t ext4 -b 1024", "32M", 30_000, "half_md4", true),
    ("-t ext4 -b 1024 -O large_dir", "32M", 20_000, "half_md4", true),
    ("-t ext4 -b 1024 -O ^metadata_csum", "32M", 20_000, "half_md4", true),
    ("-t ext4 -b 2048", "32M", 20_000, "tea", true),
    ("-t ext4 -b 4096", "32M", 30_000, "half_md4", true),
    ("-t ext4 -b 4096 -O ^dir_index", "32M", 1500, "half_md4", true),
    ("-t ext4 -b 4096", "32M", 20_000, "legacy", true),
    ("-t ext4 -b 4096 -O bigalloc -C 65536", "64M", 5000, "half_md4", true),
    ("-t ext4 -b 4096 -O metadata_csum_seed,^64bit", "32M", 5000, "half_md4", true),
    ("-t ext4 -b 16384", "64M", 10_000, "half_md4", false),
    ("-t ext4 -b 65536", "256M", 20_000, "half_md4", false),
];

/// Makes the same as a loader does: first the inodes, then all names at once.
fn load(image: &Path, count: u32) -> BTreeSet<Vec<u8>> {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let options = OpenOptions::new().write(true).unordered(true).loading(true);
    let volume = Volume::open(Arc::new(FileDevice::new(file).unwrap()), &options).unwrap();
    let root = InodeNumber::ROOT;
    let dir = volume.loader().unwrap().create(root, b"many", &new(Kind::Directory)).unwrap();
    let names: BTreeSet<Vec<u8>> = (0..count).map(name).collect();
    let mut all: Vec<DirName<'_>> = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let inode = match all.last().filter(|_| number % 16_000 != 0) {
            Some(last) => {
                volume.loader().unwrap().link(last.inode).unwrap();
                last.inode
            }
            None => volume.loader().unwrap().create(dir, name, &new(Kind::File)).unwrap(),
        };
        all.push(DirName { name, inode, file_type: FileType::Regular });
    }
    let lost = volume.lookup(root, b"lost+found").unwrap();
    let entry = |name, inode| DirName { name, inode, file_type: FileType::Directory };
    volume
        .loader()
        .unwrap()
        .write_names(root, root, &[entry(b"lost+found", lost), entry(b"many", dir)])
        .unwrap();
    volume.loader().unwrap().write_names(dir, root, &all).unwrap();
    volume.close().unwrap();
    names
}

/// How many runs the blocks of a file make.
fn runs(image: &Path, path: &str) -> usize {
    let blocks = tool::debugfs(image, &format!("blocks {path}"));
    let blocks: Vec<u64> = blocks.split_whitespace().map(|block| block.parse().unwrap()).collect();
    blocks.chunk_by(|before, next| before + 1 == *next).count()
}

/// Names go in an order of their own; the directory gives back what it does not need, and e2fsck is silent in between.
fn shrinks(options: &str, size: &str, count: u32, order: WriteOrder) {
    let scratch = Scratch::new("shrinks");
    let image = mke2fs(&scratch, options, size);
    let mut names: Vec<_> = fill(&image, count).into_iter().collect();
    names.sort_by_key(|name| {
        name.iter().fold(7_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
    });
    let how = OpenOptions::new().write(true).ordering(order);
    let open = || {
        Volume::open(
            Arc::new(FileDevice::new(File::options().read(true).write(true).open(&image).unwrap()).unwrap()),
            &how,
        )
        .unwrap()
    };
    let mut volume = open();
    let dir = volume.resolve(b"/many").unwrap();
    let before = volume.metadata(dir).unwrap().size;
    for stage in 0..6 {
        let left = names.len() * [3, 2, 1, 1, 1, 0][stage] / [4, 3, 2, 3, 4, 1][stage];
        for name in names.drain(left..) {
            volume.unlink(dir, &name).unwrap();
        }
        if stage % 2 == 1 {
            volume.inode(dir).pack().unwrap();
        }
        let found = ours(&volume, dir).into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>();
        assert_eq!(found, names.iter().cloned().collect(), "{options}, stage {stage}");
        volume.close().unwrap();
        fsck::assert_clean(&image);
        volume = open();
    }
    let after = volume.metadata(dir).unwrap().size;
    assert_eq!(after, u64::from(volume.format().geometry.block_size.bytes()), "{options}: {before} before");
    volume.close().unwrap();
}

#[test]
fn directories_shrink_and_e2fsck_is_silent() {
    if !tool::have_tools("directories_shrink_and_e2fsck_is_silent", &["mke2fs", "e2fsck"]) {
        return;
    }
    shrinks("-t ext2 -b 1024", "8M", 3000, WriteOrder::Async);
    shrinks("-t ext2 -b 1024 -O ^dir_index", "8M", 800, WriteOrder::Async);
    shrinks("-t ext3 -b 1024", "16M", 6000, WriteOrder::Journal);
    shrinks("-t ext4 -b 1024", "32M", 12_000, WriteOrder::Journal);
    shrinks("-t ext4 -b 4096 -O bigalloc -C 65536", "64M", 5000, WriteOrder::Journal);
    shrinks("-t ext4 -b 1024 -O ^has_journal", "32M", 6000, WriteOrder::Softdep);
    shrinks("-t ext4 -b 4096 -O bigalloc,^has_journal -C 65536", "64M", 4000, WriteOrder::Softdep);
}

#[test]
fn directories_written_whole_lie_in_one_run() {
    const TEST: &str = "directories_written_whole_lie_in_one_run";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    // No names, some that fit one block, those that fill it to the last bytes, and many.
    let counts = [0, 5, 30, 31, 32, 33, 34, 200];
    let mounts = have_loop_mount(TEST);
    for ((options, size, many, hash, mountable), flags) in VOLUMES.into_iter().zip(["1", "2"].iter().cycle())
    {
        let few = if options == "-t ext4 -b 1024" { &counts[..] } else { &[] };
        for count in few.iter().copied().chain([many]) {
            let scratch = Scratch::new("whole");
            let image = mke2fs(&scratch, options, size);
            set_superblock(&image, "def_hash_version", hash);
            set_superblock(&image, "flags", flags);
            let names = load(&image, count);
            fsck::assert_clean(&image);
            if options.starts_with("-t ext4") {
                assert_eq!(runs(&image, "/many"), 1, "{options}: {count} names");
            }
            let volume = open(&image, false);
            let read = ours(&volume, volume.resolve(b"/many").unwrap());
            assert_eq!(read.iter().map(|(name, _)| name).cloned().collect::<BTreeSet<_>>(), names);
            if mounts && mountable && count == many {
                let mounted = Mounted::read_only(&image).unwrap();
                assert_eq!(read, kernels(&mounted.path().join("many")), "{options}");
            }
            // Names go on being added where there is room.
            drop(volume);
            let volume = open(&image, true);
            let dir = volume.resolve(b"/many").unwrap();
            for number in 0..100_u32 {
                volume.create(dir, format!("later {number}").as_bytes(), &new(Kind::File)).unwrap();
            }
            volume.close().unwrap();
            fsck::assert_clean(&image);
        }
    }
}

/// The estimate of a directory's blocks is never less than what it takes.
#[test]
fn blocks_of_a_directory_are_foreseen() {
    const TEST: &str = "blocks_of_a_directory_are_foreseen";
    if !tool::have_tools(TEST, &["mke2fs"]) {
        return;
    }
    for (options, size, ..) in VOLUMES.into_iter().filter(|(_, _, _, hash, _)| *hash == "half_md4") {
        for count in [0, 10, 33, 300, 1500] {
            let scratch = Scratch::new("foreseen");
            let image = mke2fs(&scratch, options, size);
            let names = load(&image, count);
            let volume = open(&image, false);
            let taken = volume.metadata(volume.resolve(b"/many").unwrap()).unwrap().size;
            let mut sizes = NameSizes::default();
            names.iter().for_each(|name| sizes.add(name.len()));
            let block_size = volume.format().geometry.block_size;
            let most = sizes.blocks_at_most(block_size, &volume.format().features).unwrap();
            let taken = taken / u64::from(block_size.bytes());
            assert!(taken <= most && most <= 3 * taken, "{options}: {count} names: {taken} of {most}");
        }
    }
    // A million long names is too much for an index of blocks of 1 KiB, unless it may have three levels.
    let mut sizes = NameSizes::default();
    (0..1_000_000).for_each(|_| sizes.add(30));
    let size = |bytes| ondisk::units::BlockSize::from_bytes(bytes).unwrap();
    let mut features = ondisk::features::Features::default();
    features.compat |= ondisk::features::Compat::DIR_INDEX;
    assert_eq!(sizes.blocks_at_most(size(1024), &features), None);
    assert!(sizes.blocks_at_most(size(4096), &features).is_some());
    features.incompat |= ondisk::features::Incompat::LARGEDIR;
    assert!(sizes.blocks_at_most(size(1024), &features).is_some());
}

#[test]
fn e2fsck_and_the_kernel_accept_our_directories() {
    const TEST: &str = "e2fsck_and_the_kernel_accept_our_directories";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let mounts = have_loop_mount(TEST);
    // Every other volume hashes characters as unsigned.
    for ((options, size, count, hash, mountable), flags) in VOLUMES.into_iter().zip(["1", "2"].iter().cycle())
    {
        let scratch = Scratch::new("directories");
        let image = mke2fs(&scratch, options, size);
        set_superblock(&image, "def_hash_version", hash);
        set_superblock(&image, "flags", flags);
        let names = fill(&image, count);
        fsck::assert_clean(&image);
        let volume = open(&image, false);
        let read = ours(&volume, volume.resolve(b"/many").unwrap());
        assert_eq!(read.iter().map(|(name, _)| name).cloned().collect::<BTreeSet<_>>(), names);
        if mounts && mountable {
            let mounted = Mounted::read_only(&image).unwrap();
            assert_eq!(read, kernels(&mounted.path().join("many")), "{options}");
        }
    }
}

#[test]
fn the_kernel_goes_on_where_we_stopped_and_we_where_it_stopped() {
    const TEST: &str = "the_kernel_goes_on_where_we_stopped_and_we_where_it_stopped";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck"]) || !have_loop_mount(TEST) {
        return;
    }
    for options in ["-t ext4 -b 1024", "-t ext4 -b 4096", "-t ext2 -b 1024", "-t ext4 -b 1024 -O ^dir_index"]
    {
        let scratch = Scratch::new("directories");
        let image = mke2fs(&scratch, options, "48M");
        let ours_first = fill(&image, 2000);
        {
            let mounted = Mounted::read_write(&image).unwrap();
            let dir = mounted.path().join("many");
            let first = dir.join(OsStr::from_bytes(&name(0)));
            for number in 0..4000 {
                fs::hard_link(&first, dir.join(format!("kernel{number}"))).unwrap();
            }
            for (number, name) in ours_first.iter().enumerate() {
                if number % 3 != 0 && *name != self::name(0) {
                    fs::remove_file(dir.join(OsStr::from_bytes(name))).unwrap();
                }
            }
        }
        {
            let volume = open(&image, true);
            let dir = volume.resolve(b"/many").unwrap();
            let file = volume.create(dir, b"another", &new(Kind::File)).unwrap();
            for number in 0..4000 {
                volume.link(file, dir, format!("again{number}").as_bytes()).unwrap();
            }
            volume.close().unwrap();
        }
        fsck::assert_clean(&image);
        let volume = open(&image, false);
        let read = ours(&volume, volume.resolve(b"/many").unwrap());
        assert!(read.len() > 8600, "{options}: {} names", read.len());
        let mounted = Mounted::read_only(&image).unwrap();
        assert_eq!(read, kernels(&mounted.path().join("many")), "{options}");
    }
}

/// A name that comes (`true`) or goes.
type NameChange = (u32, bool);

/// Names come; half of them go, and others come, three times over. All come by links to `/keeper`.
fn comings_and_goings(seed: u64) -> Vec<NameChange> {
    let mut random = Random(seed);
    let mut changes: Vec<NameChange> = (1..2500).map(|number| (number, true)).collect();
    let mut here: Vec<u32> = (1..2500).collect();
    for round in 1..=3 {
        for _ in 0..here.len() / 2 {
            let at = random.below(here.len() as u64) as usize;
            changes.push((here.swap_remove(at), false));
        }
        let new = round * 10_000..round * 10_000 + 1500;
        changes.extend(new.clone().map(|number| (number, true)));
        here.extend(new);
    }
    changes
}

/// Each block of a directory: where its entries begin, what they cover, and their names.
fn blocks_of(image: &Path, path: &str) -> Vec<Vec<(usize, usize, String)>> {
    let volume = open(image, false);
    let layout = Layout::new(volume.format().geometry.block_size, &volume.format().features);
    let bytes = tool::run(tool::command("debugfs").args(["-R", &format!("cat {path}")]).arg(image)).stdout;
    let listed = |block: &[u8]| {
        let entries =
            dirent::entries(block, layout).map(Result::unwrap).filter(|entry| entry.inode.is_some());
        entries
            .map(|entry| (entry.offset, entry.len, String::from_utf8_lossy(entry.name).into_owned()))
            .collect()
    };
    bytes.chunks(layout.block_size.bytes_usize()).map(listed).collect()
}

#[test]
fn directories_of_orlov_are_divided_as_the_kernels() {
    const TEST: &str = "directories_of_orlov_are_divided_as_the_kernels";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck", "debugfs"]) || !have_loop_mount(TEST) {
        return;
    }
    for (seed, options) in
        [(1, "-t ext4 -b 1024"), (2, "-t ext4 -b 4096"), (3, "-t ext2 -b 1024 -O ^dir_index")]
    {
        let scratch = Scratch::new("directories");
        let image = mke2fs(&scratch, options, "16M");
        fill(&image, 1);
        {
            let volume = open(&image, true);
            let file = volume.lookup(volume.resolve(b"/many").unwrap(), &name(0)).unwrap();
            volume.link(file, InodeNumber::ROOT, b"keeper").unwrap();
            volume.close().unwrap();
        }
        let copy = scratch.join("copy");
        fs::copy(&image, &copy).unwrap();
        let changes = comings_and_goings(seed);
        {
            let mounted = Mounted::read_write(&copy).unwrap();
            let path = |number| mounted.path().join("many").join(OsStr::from_bytes(&name(number)));
            for &(number, comes) in &changes {
                if comes {
                    fs::hard_link(mounted.path().join("keeper"), path(number)).unwrap();
                } else {
                    fs::remove_file(path(number)).unwrap();
                }
            }
        }
        let device = FileDevice::new(File::options().read(true).write(true).open(&image).unwrap()).unwrap();
        let how = OpenOptions::new().write(true).directories(DirectoryPolicyKind::Orlov);
        let volume = Volume::open(Arc::new(device), &how).unwrap();
        let dir = volume.resolve(b"/many").unwrap();
        let file = volume.lookup(InodeNumber::ROOT, b"keeper").unwrap();
        for &(number, comes) in &changes {
            if comes {
                volume.link(file, dir, &name(number)).unwrap();
            } else {
                volume.unlink(dir, &name(number)).unwrap();
            }
        }
        volume.close().unwrap();
        fsck::assert_clean(&image);
        let (ours, kernels) = (blocks_of(&image, "/many"), blocks_of(&copy, "/many"));
        for (at, (ours, kernels)) in ours.iter().zip(&kernels).enumerate() {
            assert_eq!(ours, kernels, "{options}: block {at}");
        }
        assert_eq!(ours.len(), kernels.len(), "{options}: blocks");
    }
}

/// The place of the first name belongs to `..` once it went, and counts where the rest is divided.
#[test]
fn directories_of_orlov_whose_first_name_went_are_divided_as_the_kernels() {
    const TEST: &str = "directories_of_orlov_whose_first_name_went_are_divided_as_the_kernels";
    const DIRECTORIES: u32 = 40;
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck", "debugfs"]) || !have_loop_mount(TEST) {
        return;
    }
    let scratch = Scratch::new("directories");
    let image = mke2fs(&scratch, "-t ext4 -b 1024", "16M");
    fill(&image, 1);
    let copy = scratch.join("copy");
    fs::copy(&image, &copy).unwrap();
    let path = |directory: u32| format!("many/d{directory}");
    let names = |directory: u32| (0..40).map(move |at| name(40_002 + 4 * (directory * 100 + at)));
    {
        let mounted = Mounted::read_write(&copy).unwrap();
        let file = mounted.path().join("many").join(OsStr::from_bytes(&name(0)));
        for directory in (0..DIRECTORIES).map(|number| (number, mounted.path().join(path(number)))) {
            fs::create_dir(&directory.1).unwrap();
            fs::hard_link(&file, directory.1.join("first")).unwrap();
            for (at, name) in names(directory.0).enumerate() {
                fs::hard_link(&file, directory.1.join(OsStr::from_bytes(&name))).unwrap();
                if at == 0 {
                    fs::remove_file(directory.1.join("first")).unwrap();
                }
            }
        }
    }
    let device = FileDevice::new(File::options().read(true).write(true).open(&image).unwrap()).unwrap();
    let how = OpenOptions::new().write(true).directories(DirectoryPolicyKind::Orlov);
    let volume = Volume::open(Arc::new(device), &how).unwrap();
    let many = volume.resolve(b"/many").unwrap();
    let file = volume.lookup(many, &name(0)).unwrap();
    for number in 0..DIRECTORIES {
        let directory = volume.create(many, format!("d{number}").as_bytes(), &new(Kind::Directory)).unwrap();
        volume.link(file, directory, b"first").unwrap();
        for (at, name) in names(number).enumerate() {
            volume.link(file, directory, &name).unwrap();
            if at == 0 {
                // No other fits its place.
                volume.unlink(directory, b"first").unwrap();
            }
        }
    }
    volume.close().unwrap();
    fsck::assert_clean(&image);
    for number in 0..DIRECTORIES {
        let both = [&image, &copy].map(|image| blocks_of(image, &path(number)));
        assert!(both[0].len() > 2 && both[0] == both[1], "{number}: {both:?}");
    }
}

/// Compares every directory of a mounted image with ours and returns how many there are.
fn assert_tree_alike(volume: &Volume, mounted: &Path) -> usize {
    let mut left = vec![(InodeNumber::ROOT, mounted.to_path_buf())];
    let mut seen = 0;
    while let Some((number, path)) = left.pop() {
        assert_eq!(ours(volume, number), kernels(&path), "{}", path.display());
        seen += 1;
        for entry in volume.read_dir(number).unwrap() {
            let entry = entry.unwrap();
            let path = path.join(OsStr::from_bytes(&entry.name));
            let is_dir = fs::symlink_metadata(&path).unwrap().is_dir();
            assert!(entry.file_type.is_none_or(|told| (told == FileType::Directory) == is_dir));
            if is_dir {
                assert_eq!(volume.lookup(entry.inode, b"..").unwrap(), number);
                assert_eq!(volume.lookup(entry.inode, b".").unwrap(), entry.inode);
                left.push((entry.inode, path));
            }
        }
    }
    seen
}

#[test]
fn directories_of_others_read_as_the_kernel_reads_them() {
    const TEST: &str = "directories_of_others_read_as_the_kernel_reads_them";
    if !have_loop_mount(TEST) {
        return;
    }
    for name in [
        "ext2-1k",
        "ext3-4k",
        "ext4-1k",
        "ext4-4k",
        "no-filetype",
        "inline-data",
        "kernel-odd-inline",
        "kernel-odd-ext2-1k",
        "genext2fs-1k",
        "genext2fs-4k",
        "revision-0",
        "htree-deep",
        "htree-ext2-tea",
        "large-dir",
        "aged",
    ] {
        let Some(image) = images::golden(TEST, name) else { continue };
        let mounted = Mounted::read_only(&image).unwrap();
        let seen = assert_tree_alike(&open(&image, false), mounted.path());
        assert!(seen > 2, "{name} has only {seen} directories");
    }
}

/// A directory as debugfs lists it: name, inode, whether it is a directory. Fields end with `/`.
fn debugfs_listing(image: &Path, dir: InodeNumber) -> BTreeSet<(Vec<u8>, u64, bool)> {
    let request = format!("ls -p <{dir}>");
    let listed = tool::run(tool::command("debugfs").args(["-R", &request]).arg(image)).stdout;
    let fields: Vec<&[u8]> = listed.split(|byte| *byte == b'/').collect();
    let number = |field: &[u8]| String::from_utf8_lossy(field).parse::<u64>().unwrap();
    let records = fields.chunks_exact(7).map(|fields| match fields {
        [_, inode, mode, _, _, name, _] => (name.to_vec(), number(inode), mode.starts_with(b"04")),
        _ => panic!("debugfs lists {fields:?}"),
    });
    // It lists unused entries too, as inode 0.
    records.filter(|(name, inode, _)| *inode != 0 && name != b"." && name != b"..").collect()
}

#[test]
fn directories_that_few_kernels_mount_read_as_debugfs_reads_them() {
    const TEST: &str = "directories_that_few_kernels_mount_read_as_debugfs_reads_them";
    for name in ["ext4-8k", "ext4-32k", "ext4-64k", "casefold", "encrypt-stable", "inline-data-1k", "debugfs"]
    {
        let Some(image) = images::golden(TEST, name) else { continue };
        let volume = open(&image, false);
        let (mut left, mut seen) = (vec![InodeNumber::ROOT], 0);
        while let Some(dir) = left.pop() {
            let listing = debugfs_listing(&image, dir);
            let names: BTreeSet<_> = listing.iter().map(|(name, inode, _)| (name.clone(), *inode)).collect();
            assert_eq!(ours(&volume, dir), names, "{name}, directory {dir}");
            let below = listing.iter().filter(|(.., is_dir)| *is_dir);
            left.extend(below.map(|(_, inode, _)| InodeNumber::new(u32::try_from(*inode).unwrap()).unwrap()));
            seen += 1;
        }
        assert!(seen > 2, "{name} has only {seen} directories");
    }
}

#[test]
fn inline_directories_of_the_kernel_read_as_it_reads_them() {
    const TEST: &str = "inline_directories_of_the_kernel_read_as_it_reads_them";
    if !tool::have_tools(TEST, &["mke2fs"]) || !have_loop_mount(TEST) {
        return;
    }
    let scratch = Scratch::new("directories");
    let image = mke2fs(&scratch, "-t ext4 -b 4096 -I 256 -O inline_data", "16M");
    {
        let mounted = Mounted::read_write(&image).unwrap();
        for number in 0..12 {
            let dir = mounted.path().join(format!("d{number}"));
            fs::create_dir(&dir).unwrap();
            for file in 0..number {
                fs::write(dir.join(format!("name{file}")), b"x").unwrap();
            }
        }
    }
    let volume = open(&image, true);
    let mounted = Mounted::read_only(&image).unwrap();
    assert_eq!(assert_tree_alike(&volume, mounted.path()), 14);
    drop(mounted);
    // A name goes, another leads elsewhere, in the inode; one more moves the entries to a block.
    for number in 3..12_u32 {
        let dir = volume.resolve(format!("/d{number}").as_bytes()).unwrap();
        volume.unlink(dir, b"name1").unwrap();
        volume.rename(dir, b"name0", dir, b"name2", Replace::Yes).unwrap();
        if number % 2 == 0 {
            volume.create(dir, b"more", &new(Kind::File)).unwrap();
        }
    }
    let moved = volume.resolve(b"/d11").unwrap();
    volume.rename(InodeNumber::ROOT, b"d11", volume.resolve(b"/d4").unwrap(), b"sub", Replace::No).unwrap();
    assert_eq!(volume.lookup(moved, b"..").unwrap(), volume.resolve(b"/d4").unwrap());
    volume.close().unwrap();
    fsck::assert_clean(&image);
    let (volume, mounted) = (open(&image, false), Mounted::read_only(&image).unwrap());
    assert_eq!(assert_tree_alike(&volume, mounted.path()), 14);
}

/// Directories that are made on a volume with `inline_data` stand in their inode as long as that has room, as Linux makes
/// them, and both go on with those of the other.
#[test]
fn small_directories_stand_in_their_inode_until_it_is_full() {
    const TEST: &str = "small_directories_stand_in_their_inode_until_it_is_full";
    if !tool::have_tools(TEST, &["mke2fs", "debugfs"]) || !have_loop_mount(TEST) {
        return;
    }
    let scratch = Scratch::new("directories");
    for (features, attributes) in
        [("inline_data", false), ("inline_data,^dir_index,^metadata_csum", false), ("inline_data", true)]
    {
        let image = mke2fs(&scratch, &format!("-t ext4 -b 4096 -I 256 -O {features}"), "16M");
        let free = || tool::dumpe2fs_field(&image, "Free blocks").unwrap().parse::<u64>().unwrap();
        let before = free();
        let volume = open(&image, true);
        for number in 0..16_u32 {
            let name = format!("d{number}");
            let dir = volume.create(InodeNumber::ROOT, name.as_bytes(), &new(Kind::Directory)).unwrap();
            if attributes {
                volume.inode(dir).set_xattr(b"user.a", &[7; 30]).unwrap();
            }
            for file in 0..number {
                volume.create(dir, format!("name{file:02}").as_bytes(), &new(Kind::File)).unwrap();
            }
            let is_inside = volume.metadata(dir).unwrap().sectors == 0;
            // Three names of 16 bytes have room in the record, and four in the attribute, where no other needs that.
            let most = if attributes { 4 } else { 7 };
            assert!(is_inside || number > most, "{features}: {number} names");
            assert!(!is_inside || number < 10, "{features}: {number} names");
        }
        volume.create(volume.resolve(b"/d2").unwrap(), b"in", &new(Kind::Directory)).unwrap();
        volume.close().unwrap();
        fsck::assert_clean(&image);
        assert!(before - free() < 13, "{} blocks", before - free());
        {
            // Linux takes them for its own, and adds names to them.
            let mounted = Mounted::read_write(&image).unwrap();
            assert_tree_alike(&open(&image, false), mounted.path());
            for number in 0..16 {
                let dir = mounted.path().join(format!("d{number}"));
                fs::write(dir.join("kernels"), b"x").unwrap();
                fs::create_dir(dir.join("sub")).unwrap();
            }
            fs::remove_dir(mounted.path().join("d2/in")).unwrap();
        }
        fsck::assert_clean(&image);
        let volume = open(&image, true);
        let second = volume.resolve(b"/d2").unwrap();
        assert!(matches!(volume.lookup(second, b"in"), Err(Error::NotFound)));
        for number in 0..16_u32 {
            let dir = volume.resolve(format!("/d{number}").as_bytes()).unwrap();
            volume.rmdir(dir, b"sub").unwrap();
            // The room of names that went is used again.
            for file in 0..number {
                let name = format!("name{file:02}");
                volume.unlink(dir, name.as_bytes()).unwrap();
                volume.create(dir, format!("{name}x").as_bytes(), &new(Kind::File)).unwrap();
            }
            volume
                .rename(dir, b"kernels", InodeNumber::ROOT, format!("k{number}").as_bytes(), Replace::No)
                .unwrap();
        }
        volume.close().unwrap();
        fsck::assert_clean(&image);
        assert_tree_alike(&open(&image, false), Mounted::read_only(&image).unwrap().path());
    }
}

/// As in Linux: with `dir_nlink` a directory stops counting its subdirectories if it has an index, and takes no more of them
/// if it has none.
#[test]
fn a_directory_without_an_index_takes_as_many_subdirectories_as_it_can_count() {
    const TEST: &str = "a_directory_without_an_index_takes_as_many_subdirectories_as_it_can_count";
    if !tool::have_tools(TEST, &["mke2fs", "debugfs"]) {
        return;
    }
    for (features, flags, third) in [("^dir_index", "0x80000", false), ("dir_index", "0x81000", true)] {
        let scratch = Scratch::new("many-links");
        let image = mke2fs(&scratch, &format!("-t ext4 -O {features}"), "16M");
        let volume = open(&image, true);
        let big = volume.create(InodeNumber::ROOT, b"big", &new(Kind::Directory)).unwrap();
        let name = |at: u32| format!("{at:0>200}").into_bytes();
        for at in 0..40 {
            volume.create(big, &name(at), &new(Kind::File)).unwrap();
        }
        volume.close().unwrap();
        for request in ["set_inode_field /big links_count 64999", "stat /big"] {
            let said = tool::run(tool::command("debugfs").args(["-w", "-R", request]).arg(&image)).stdout;
            let said = String::from_utf8_lossy(&said);
            assert!(!request.starts_with("stat") || said.contains(flags), "{said}");
        }
        let volume = open(&image, true);
        volume.create(big, b"first", &new(Kind::Directory)).unwrap();
        assert_eq!(volume.metadata(big).unwrap().links, 65_000);
        let more = volume.create(big, b"second", &new(Kind::Directory));
        let links = volume.metadata(big).unwrap().links;
        match more {
            Ok(_) => assert!(third && links == 1, "{links}"),
            Err(error) => assert!(!third && matches!(error, Error::TooManyLinks), "{error}"),
        }
        volume.close().unwrap();
    }
}
