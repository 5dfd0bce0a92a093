//! `plat mkfs` against mke2fs, e2fsck and the kernel.
//!
//! Byte for byte, our volumes are those of mke2fs 1.47.0 with the same options, UUID, hash seed and
//! time. What may differ stands in [`may_differ`], and in the cases that are left out:
//!
//! - the count of kilobytes written so far, and the superblock checksum over it;
//! - bigalloc with blocks of 1 KiB gets no resize inode: e2fsck rejects the one mke2fs makes;
//! - with inline_data, mke2fs makes lost+found inline and then moves it out, which leaves traces in inode
//!   and first block that we have no reason to imitate;
//! - a journal of more than four extents may have its tree's leaf elsewhere.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Output};

use crate::support;
use rustix::fs::{SeekFrom, seek};
use testkit::scratch::Scratch;
use testkit::{fsck, mount, tool};

const UUID: &str = "11111111-2222-3333-4444-555555555555";
const SEED: &str = "hash_seed=99999999-2222-3333-4444-555555555555";
const TIME: &str = "1700000000";

fn plat(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plat"));
    command.arg("mkfs").args(arguments).current_dir(directory).env("SOURCE_DATE_EPOCH", TIME);
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Makes `image` in `directory` by our hand; the options are mke2fs's.
fn make(directory: &Path, size: &str, options: &str) {
    let words: Vec<&str> = options.split_whitespace().collect();
    let output = plat(directory, &[&["-q", "-U", UUID, "-E", SEED], &words[..], &["image", size]].concat());
    assert!(output.status.success(), "plat mkfs {options} {size}: {}", said(&output));
}

fn make_by_mke2fs(directory: &Path, size: &str, options: &str) {
    let image = directory.join("image");
    File::create(&image).unwrap().set_len(parse(size)).unwrap();
    let has_type = options.contains("-t ");
    // Of several -E, mke2fs takes the last.
    let mut extended = SEED.to_owned();
    let mut words = Vec::new();
    let mut rest = options.split_whitespace();
    while let Some(word) = rest.next() {
        match word {
            "-E" => extended = format!("{extended},{}", rest.next().unwrap()),
            _ => words.push(word),
        }
    }
    let mut command = tool::command("mke2fs");
    command.current_dir(directory).env("E2FSPROGS_FAKE_TIME", TIME);
    command.args(["-q", "-F", "-U", UUID, "-E", &extended]).args(if has_type {
        &[][..]
    } else {
        &["-t", "ext4"]
    });
    tool::run(command.args(words).arg("image"));
}

fn parse(size: &str) -> u64 {
    let (digits, unit) = size.split_at(size.len() - 1);
    digits.parse::<u64>().unwrap() << "KMGT".find(unit).map_or(0, |at| 10 * (at + 1))
}

const SECTOR: usize = 1024;

/// Returns true if a byte of a sector (1 KiB) may differ from mke2fs's: the written kilobytes and the checksum
/// of superblocks, and the time in the block of multiple mount protection (mke2fs takes the clock's).
fn may_differ(sector: &[u8], at: usize) -> bool {
    let superblock = sector[0x38..0x3A] == [0x53, 0xEF];
    let mmp = sector[..4] == *b"PMM\0";
    superblock && ((0x178..0x180).contains(&at) || at >= 0x3FC)
        || mmp && ((8..16).contains(&at) || at >= 0x3FC)
}

/// The first byte that differs and may not; both files have the same length.
fn first_difference(ours: &Path, theirs: &Path) -> Option<u64> {
    let files = [ours, theirs].map(|path| File::open(path).unwrap());
    let len = files[0].metadata().unwrap().len();
    assert_eq!(len, files[1].metadata().unwrap().len());
    let mut at = 0;
    let mut bytes = [vec![0; 64 * SECTOR], vec![0; 64 * SECTOR]];
    // Holes in both are equal.
    while let Some(data) = files.iter().filter_map(|file| seek(file, SeekFrom::Data(at)).ok()).min() {
        at = data / SECTOR as u64 * SECTOR as u64;
        let step = (len - at).min(64 * SECTOR as u64);
        for (file, bytes) in files.iter().zip(&mut bytes) {
            bytes.resize(usize::try_from(step).unwrap(), 0);
            file.read_exact_at(bytes, at).unwrap();
        }
        if bytes[0] != bytes[1] {
            for (index, (a, b)) in bytes[0].chunks(SECTOR).zip(bytes[1].chunks(SECTOR)).enumerate() {
                let differs = (0..a.len()).find(|at| a[*at] != b[*at] && !may_differ(a, *at));
                if let Some(byte) = differs {
                    return Some(at + (index * SECTOR + byte) as u64);
                }
            }
        }
        at += step;
    }
    None
}

/// Makes both and compares; then asks e2fsck about ours.
fn compare(test: &str, cases: &[(&str, &str)]) {
    if !tool::have_tools(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let [ours, theirs] = ["ours", "theirs"].map(|name| scratch.join(name));
    fs::create_dir(&ours).unwrap();
    fs::create_dir(&theirs).unwrap();
    let mut wrong = Vec::new();
    for (size, options) in cases {
        make(&ours, size, options);
        make_by_mke2fs(&theirs, size, options);
        let difference = first_difference(&ours.join("image"), &theirs.join("image"));
        if let Some(byte) = difference.filter(|_| !options.contains("inline_data")) {
            wrong.push(format!("mkfs {options} {size}: differs from mke2fs at byte {byte}"));
        }
        let complaints = fsck::complaints(&ours.join("image"));
        if !complaints.is_empty() {
            wrong.push(format!("mkfs {options} {size}: e2fsck: {complaints}"));
        }
        fs::remove_file(ours.join("image")).unwrap();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn defaults_of_every_family_at_every_size() {
    let sizes = ["1M", "3M", "8M", "100M", "511M", "513M", "4G", "30G"];
    let options = ["-t ext2", "-t ext3 -E lazy_journal_init=1", "-t ext4 -E lazy_journal_init=1"];
    let cases: Vec<_> = sizes.iter().flat_map(|size| options.map(|options| (*size, options))).collect();
    compare("defaults", &cases);
}

#[test]
fn every_block_and_inode_size() {
    let mut cases = Vec::new();
    for block in [1024, 2048, 4096, 8192, 16_384, 32_768, 65_536] {
        for rest in
            ["-t ext2", "-t ext3", "-t ext4", "-t ext4 -I 128", "-t ext4 -I 1024 -O quota,orphan_file"]
        {
            cases.push(("600M", format!("-b {block} {rest}")));
        }
    }
    let cases: Vec<_> = cases.iter().map(|(size, options)| (*size, options.as_str())).collect();
    compare("block-sizes", &cases);
}

#[test]
fn every_feature_on_and_off() {
    let features = [
        "^has_journal",
        "^ext_attr",
        "^resize_inode",
        "^dir_index",
        "sparse_super2",
        "sparse_super2,^resize_inode",
        "fast_commit",
        "stable_inodes",
        "orphan_file",
        "^filetype",
        "meta_bg,^resize_inode",
        "^extent,^64bit",
        "^64bit",
        "mmp",
        "^flex_bg",
        "ea_inode",
        "metadata_csum_seed",
        "large_dir",
        "inline_data",
        "encrypt",
        "casefold",
        "^sparse_super,^resize_inode",
        "^large_file",
        "^huge_file",
        "^metadata_csum,uninit_bg",
        "^metadata_csum",
        "^dir_nlink",
        "^extra_isize",
        "quota",
        "project",
        "quota,project,orphan_file,mmp,inline_data,fast_commit,metadata_csum_seed",
        "verity",
        "none",
    ];
    let cases: Vec<String> = features.iter().map(|list| format!("-O {list}")).collect();
    let cases: Vec<_> =
        cases.iter().flat_map(|options| ["20M", "600M"].map(|size| (size, options.as_str()))).collect();
    compare("features", &cases);
}

#[test]
fn clusters_of_every_size() {
    let mut cases = Vec::new();
    for cluster in ["16384", "65536", "1048576"] {
        for block in ["2048", "4096", "16384"] {
            cases.push(("600M", format!("-O bigalloc -b {block} -C {cluster}")));
            cases.push(("600M", format!("-O bigalloc,^flex_bg,quota,orphan_file -b {block} -C {cluster}")));
        }
    }
    cases.push(("4G", "-O bigalloc,meta_bg,^resize_inode".to_owned()));
    let cases: Vec<_> = cases.iter().map(|(size, options)| (*size, options.as_str())).collect();
    compare("clusters", &cases);
}

#[test]
fn layout_options() {
    compare(
        "layout",
        &[
            ("600M", "-G 1"),
            ("600M", "-G 32 -b 1024"),
            ("600M", "-E packed_meta_blocks=1 -b 1024"),
            ("3000M", "-E packed_meta_blocks=1"),
            ("600M", "-E stride=16,stripe_width=64"),
            ("600M", "-E stride=7 -O ^flex_bg"),
            ("600M", "-E stride=7 -t ext3 -b 1024"),
            ("600M", "-E resize=4000000"),
            ("600M", "-E num_backup_sb=1 -O sparse_super2"),
            ("600M", "-E root_owner=1000:100000,mmp_update_interval=9 -O mmp,quota"),
            ("600M", "-E quotatype=usrquota:prjquota -O quota"),
            ("600M", "-E encoding=utf8,encoding_flags=strict"),
            ("600M", "-E orphan_file_size=64 -O orphan_file"),
            ("600M", "-E desc_size=128"),
            ("600M", "-E desc_size=1024 -b 1024"),
            ("600M", "-J size=8"),
            ("600M", "-J size=8,location=20000 -t ext4"),
            ("600M", "-t ext2 -j"),
            ("600M", "-r 0 -t ext2"),
            ("600M", "-g 8192"),
            ("600M", "-g 256"),
            ("600M", "-N 1000000"),
            ("600M", "-N 16"),
            ("600M", "-i 1024"),
            ("600M", "-i 67108864"),
            ("600M", "-m 0.7 -L label -M /mnt -e remount-ro -o hurd"),
            ("600M", "-m 50 -e panic"),
            ("600M", "-T news"),
            ("600M", "-T largefile"),
            ("600M", "-T small"),
            ("40M", "-b -4096"),
            ("129M", "-b 1024"),
        ],
    );
}

#[test]
fn large_volumes_have_the_same_tables() {
    if !tool::have_tools("large", &["mke2fs", "dumpe2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("large");
    let [ours, theirs] = ["ours", "theirs"].map(|name| scratch.join(name));
    fs::create_dir(&ours).unwrap();
    fs::create_dir(&theirs).unwrap();
    for (size, options) in [("100G", ""), ("100G", "-t ext3"), ("1T", "")] {
        let options = format!("{options} -E lazy_journal_init=1");
        make(&ours, size, &options);
        make_by_mke2fs(&theirs, size, &options);
        let [a, b] = [&ours, &theirs].map(|directory| {
            let text = tool::text("dumpe2fs", &[directory.join("image").as_os_str()]);
            let lines = text
                .lines()
                .filter(|line| !line.starts_with("Lifetime writes") && !line.starts_with("Checksum:"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        });
        let first = a.iter().zip(&b).find(|(a, b)| a != b);
        assert_eq!(first, None, "mkfs {options} {size}");
        assert_eq!(a.len(), b.len());
        let space = |directory: &Path| fs::metadata(directory.join("image")).unwrap().blocks();
        assert!(space(&ours) <= space(&theirs), "{} sectors, mke2fs {}", space(&ours), space(&theirs));
        if size != "1T" {
            fsck::assert_clean(&ours.join("image"));
        }
        fs::remove_file(ours.join("image")).unwrap();
    }
}

#[test]
fn sixteen_tebibytes_and_more_are_planned() {
    let scratch = Scratch::new("sixteen");
    for (size, blocks) in [("16T", 1_u64 << 32), ("64T", 1 << 34)] {
        let output = plat(scratch.path(), &["-n", "--json", "image", size]);
        let facts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(facts["blocks"], blocks);
        assert_eq!(facts["written"], false);
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "a dry run leaves nothing");
}

#[test]
fn the_kernel_mounts_and_writes_them() {
    if !mount::have_loop_mount("mkfs-kernel") {
        return;
    }
    let scratch = Scratch::new("mkfs-kernel");
    for options in [
        "-t ext2 -b 1024",
        "-t ext3 -b 2048",
        "-t ext4",
        "-t ext4 -O bigalloc,inline_data,ea_inode,metadata_csum_seed,large_dir,orphan_file",
        "-t ext4 -O ^flex_bg,^metadata_csum,uninit_bg -b 1024",
        "-t ext4 -O meta_bg,^resize_inode,sparse_super2 -E packed_meta_blocks=1",
    ] {
        make(scratch.path(), "200M", options);
        let image = scratch.join("image");
        let mounted = mount::Mounted::read_write(&image).unwrap_or_else(|error| panic!("{options}: {error}"));
        let directory = mounted.path().join("lost+found");
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o7777, 0o700);
        fs::write(mounted.path().join("file"), vec![7; 3_000_000]).unwrap();
        fs::create_dir(mounted.path().join("sub")).unwrap();
        drop(mounted);
        fsck::assert_clean(&image);
        fs::remove_file(&image).unwrap();
    }
}

#[test]
fn a_journal_device_is_what_mke2fs_makes() {
    if !tool::have_tools("journal-device", &["mke2fs"]) {
        return;
    }
    let scratch = Scratch::new("journal-device");
    for options in ["-O journal_dev", "-O journal_dev -b 1024 -L log", "-O journal_dev -b 4096"] {
        let [ours, theirs] = ["ours", "theirs"].map(|name| scratch.join(name));
        for directory in [&ours, &theirs] {
            fs::create_dir_all(directory).unwrap();
        }
        make(&ours, "64M", options);
        make_by_mke2fs(&theirs, "64M", options);
        assert_eq!(first_difference(&ours.join("image"), &theirs.join("image")), None, "{options}");
        fs::remove_file(ours.join("image")).unwrap();
    }
}

/// Newer than the mke2fs that the others are compared with.
#[test]
fn the_root_directory_gets_a_label() {
    if !tool::have_tools("the_root_directory_gets_a_label", &["debugfs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("mkfs-label");
    make(scratch.path(), "16M", "-E root_selinux=system_u:object_r:root_t:s0");
    let image = scratch.join("image");
    fsck::assert_clean(&image);
    let said = tool::debugfs(&image, "ea_get / security.selinux");
    assert!(said.contains("system_u:object_r:root_t:s0"), "{said}");
}

#[test]
fn wrong_options_are_reported_in_one_line_and_leave_nothing() {
    let scratch = Scratch::new("wrong");
    for (options, code, expected) in [
        ("-b 3000", 2, "block size 3000"),
        ("-N 4294967295", 1, "4294967295 inodes"),
        ("-N 99999999999999999999", 2, "too large"),
        ("-i 1", 2, "inode ratio 1 "),
        ("-I 100000", 2, "inode size 100000"),
        ("-G 3", 2, "flex group size 3"),
        ("-m 51", 2, "percentage 51"),
        ("-m -1", 2, "percentage -1"),
        ("-C 65536", 2, "bigalloc"),
        ("-g 300", 2, "300 blocks per group"),
        ("-L 12345678901234567", 2, "label"),
        ("-E resize=1", 2, "resize limit of 1 "),
        ("-E mmp_update_interval=301", 2, "300 seconds"),
        ("-T hugefile", 2, "not one of default"),
        ("-E desc_size=96", 2, "no power of two"),
        ("-E desc_size=64 -O ^64bit", 2, "needs -O 64bit"),
        ("-I 128 -E root_selinux=system_u:object_r:root_t:s0", 2, "-I"),
        ("-J size=1", 2, "journal of 256 blocks"),
        ("-O meta_bg", 2, "exclude each other"),
        ("-O ^extent", 2, "64bit needs"),
        ("-O nosuch", 2, "`nosuch`"),
        ("-E nosuch", 2, "-E nosuch"),
        ("-U 1234", 2, "-U 1234"),
        ("-t ext5", 2, "ext5"),
        ("-d /etc", 2, "plat build /etc image"),
    ] {
        let words: Vec<&str> = options.split_whitespace().collect();
        let output = plat(scratch.path(), &[&words[..], &["image", "1G"]].concat());
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{options}: {text}");
        assert!(text.contains(expected), "{options}: {text}");
        assert!(code == 2 || text.lines().count() == 1, "{options}: {text}");
    }
    for (size, expected) in
        [("10K", "too few"), ("0", "too few"), ("99999999T", "too large"), ("7E", "not a number")]
    {
        let output = plat(scratch.path(), &["image", size]);
        assert!(!output.status.success() && said(&output).contains(expected), "{size}: {}", said(&output));
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn what_would_be_lost_is_refused_without_force() {
    let scratch = Scratch::new("force");
    let image = scratch.join("image");
    assert!(plat(scratch.path(), &["image", "1M"]).status.success());
    let older = fs::read(&image).unwrap();
    let output = plat(scratch.path(), &["image", "8M"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("-F"), "{}", said(&output));
    assert!(fs::read(&image).unwrap() == older, "it is untouched");
    assert!(plat(scratch.path(), &["-F", "image", "8M"]).status.success());
    assert_eq!(fs::metadata(&image).unwrap().len(), 8 << 20);
    assert!(!plat(scratch.path(), &["image"]).status.success(), "a volume is there now");
    // A file that is all hole is taken as it is, with its own size.
    File::create(&image).unwrap().set_len(16 << 20).unwrap();
    assert!(plat(scratch.path(), &["image"]).status.success());
    assert_eq!(fs::metadata(&image).unwrap().len(), 16 << 20);
    if tool::have_tools("force", &["e2fsck"]) {
        fsck::assert_clean(&image);
    }
}

#[test]
fn a_volume_inside_a_disk_image_leaves_the_rest_alone() {
    if !tool::have_tools("offset", &["e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("offset");
    let (disk, start, size) = (scratch.join("disk"), 1 << 20, 32 << 20);
    for (fill, options) in [(0xA5_u8, ""), (0xA5, "-E lazy_itable_init=0"), (0x5A, "-t ext3")] {
        fs::write(&disk, vec![fill; start + size + 4096]).unwrap();
        let words: Vec<&str> = options.split_whitespace().collect();
        let refused = plat(scratch.path(), &[&words[..], &["disk@1M", "32M"]].concat());
        assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
        let output = plat(scratch.path(), &[&words[..], &["-F", "disk@1M", "32M"]].concat());
        assert!(output.status.success(), "{}", said(&output));
        let bytes = fs::read(&disk).unwrap();
        assert!(bytes[..start].iter().chain(&bytes[start + size..]).all(|byte| *byte == fill));
        let inner = scratch.join("inner");
        fs::write(&inner, &bytes[start..start + size]).unwrap();
        fsck::assert_clean(&inner);
    }
}

/// A file of mke2fs is not read, as docs/conventions.md says: an image is the same on each machine.
#[test]
fn configurations_of_mke2fs_change_nothing() {
    let scratch = Scratch::new("mke2fs-conf");
    let config = scratch.join("mke2fs.conf");
    fs::write(&config, "[defaults]\n\tbase_features = filetype\n\tblocksize = 1024\n\tinode_size = 128\n")
        .unwrap();
    let made = |name: &str, config: Option<&Path>| {
        let image = scratch.join(name);
        let mut command = support::plat(&["mkfs", "-q", "-U", "11111111-2222-3333-4444-555555555555"]);
        command.args(["-E", "hash_seed=11111111-2222-3333-4444-555555555555"]).arg(&image).arg("64M");
        config.map(|config| command.env("MKE2FS_CONFIG", config));
        support::succeed(command.env("SOURCE_DATE_EPOCH", "1700000000"));
        fs::read(image).unwrap()
    };
    assert!(made("a.img", None) == made("b.img", Some(&config)));
    // What it says is said by options.
    let (by_options, by_mke2fs) = (scratch.join("c.img"), scratch.join("d.img"));
    support::succeed(
        support::plat(&["mkfs", "-q", "-O", "none,filetype", "-b", "1024", "-I", "128"])
            .arg(&by_options)
            .arg("64M"),
    );
    if !tool::have_tools("configurations_of_mke2fs_change_nothing", &["mke2fs", "dumpe2fs"]) {
        return;
    }
    let mut mke2fs = tool::command("mke2fs");
    tool::run(mke2fs.args(["-q", "-F"]).arg(&by_mke2fs).arg("64M").env("MKE2FS_CONFIG", &config));
    let facts = |image: &Path| {
        let said = tool::run(tool::command("dumpe2fs").arg("-h").arg(image)).stdout;
        let said = String::from_utf8(said).unwrap();
        let is_meant = |line: &&str| {
            ["Filesystem features:", "Block size:", "Inode size:"].iter().any(|head| line.starts_with(head))
        };
        said.lines().filter(is_meant).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(facts(&by_options), facts(&by_mke2fs));
}
