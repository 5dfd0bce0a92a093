//! Each change on each kind of volume, next to tune2fs on a copy: fields as dumpe2fs shows them, e2fsck silent, the tree
//! unchanged.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use crate::draft::Limits;
use crate::tune::{Field, Request, tune};
use ondisk::features::feature_by_name;
use ondisk::inode::Timestamp;
use ondisk::quota::QuotaKind;
use platfs::mkfs::{JournalOptions, OnError, parse_features};
use platfs_device::{Device, FileDevice};
use testkit::mount::Mounted;
use testkit::scratch::Scratch;
use testkit::snapshot::{Rules, Snapshot, differences};
use testkit::{fsck, images, sparse, tool};

/// Kinds of volumes of the short run.
const FEW: &[&str] = &["ext2-1k", "ext3-4k", "ext4-1k", "ext4-4k", "gdt-csum", "bigalloc-16k"];

const UUID: [u8; 16] = *b"\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef";

/// A change, and the options of tune2fs for the same; nothing where it can't.
struct Case {
    name: &'static str,
    tune2fs: &'static [&'static str],
    request: Request,
}

fn fields(fields: Vec<Field>) -> Request {
    Request { fields, ..Request::default() }
}

fn features(list: &str) -> Request {
    Request { features: parse_features(list).unwrap(), ..Request::default() }
}

fn case(name: &'static str, tune2fs: &'static [&'static str], request: Request) -> Case {
    Case { name, tune2fs, request: Request { random: [7; 16], ..request } }
}

fn of_fields() -> Vec<Case> {
    vec![
        case("label", &["-L", "new label"], fields(vec![Field::Label(b"new label".to_vec())])),
        case("last-mounted", &["-M", "/a/b"], fields(vec![Field::LastMounted(b"/a/b".to_vec())])),
        case("percent", &["-m", "2.5"], fields(vec![Field::ReservedPercent(2.5)])),
        case(
            "reserved",
            &["-r", "77", "-u", "70000", "-g", "8"],
            fields(vec![Field::ReservedBlocks(77), Field::ReservedUser(70_000), Field::ReservedGroup(8)]),
        ),
        case("errors", &["-e", "remount-ro"], fields(vec![Field::OnError(OnError::RemountReadOnly)])),
        case(
            "counts",
            &["-c", "20", "-C", "5", "-i", "2w"],
            fields(vec![Field::MostMounts(20), Field::Mounts(5), Field::CheckInterval(1_209_600)]),
        ),
        case(
            "mount-options",
            &["-o", "^acl,journal_data_writeback,nobarrier"],
            fields(vec![
                Field::MountOption(8, false),
                Field::MountOption(0x60, true),
                Field::MountOption(0x100, true),
            ]),
        ),
        case(
            "extended",
            &["-E", "stride=16,stripe_width=64,hash_alg=tea,test_fs,mount_opts=data=journal"],
            fields(vec![
                Field::Stride(16),
                Field::StripeWidth(64),
                Field::HashAlgorithm(2),
                Field::TestVolume(true),
                Field::MountText(b"data=journal".to_vec()),
            ]),
        ),
        case("hash-seed", &[], fields(vec![Field::HashSeed([0x5A; 16])])),
        case(
            "uuid",
            &["-U", "01234567-89ab-cdef-0123-456789abcdef"],
            Request { uuid: Some(UUID), ..Request::default() },
        ),
    ]
}

fn of_features() -> Vec<Case> {
    let names: &[(&str, &[&str])] = &[
        ("metadata_csum", &["-O", "metadata_csum"]),
        ("^metadata_csum", &["-O", "^metadata_csum"]),
        ("^metadata_csum,^uninit_bg", &["-O", "^metadata_csum,^uninit_bg"]),
        ("uninit_bg", &["-O", "uninit_bg"]),
        ("^uninit_bg", &["-O", "^uninit_bg"]),
        ("metadata_csum_seed", &["-O", "metadata_csum_seed"]),
        ("^metadata_csum_seed", &["-O", "^metadata_csum_seed"]),
        ("has_journal", &["-O", "has_journal"]),
        ("^has_journal", &["-O", "^has_journal"]),
        ("orphan_file", &["-O", "orphan_file"]),
        ("^orphan_file", &["-O", "^orphan_file"]),
        ("dir_index", &["-O", "dir_index"]),
        ("^dir_index", &["-O", "^dir_index"]),
        ("filetype", &["-O", "filetype"]),
        ("^filetype", &["-O", "^filetype"]),
        ("sparse_super", &["-O", "sparse_super"]),
        ("^resize_inode", &["-O", "^resize_inode"]),
        ("quota", &["-O", "quota"]),
        ("^quota", &["-O", "^quota"]),
        ("project", &["-O", "project"]),
        ("mmp", &["-O", "mmp"]),
        ("^mmp", &["-O", "^mmp"]),
        ("extents", &["-O", "extents"]),
        ("flex_bg", &["-O", "flex_bg"]),
        ("^flex_bg", &["-O", "^flex_bg"]),
        ("large_file,huge_file,dir_nlink,extra_isize", &["-O", "large_file,huge_file,dir_nlink,extra_isize"]),
        ("ea_inode,large_dir,encrypt,verity", &["-O", "ea_inode,large_dir,encrypt,verity"]),
        ("casefold", &["-O", "casefold"]),
        ("fast_commit,stable_inodes", &["-O", "fast_commit,stable_inodes"]),
        ("read-only", &["-O", "read-only"]),
        ("^dir_nlink,^extra_isize,^huge_file", &["-O", "^dir_nlink,^extra_isize,^huge_file"]),
    ];
    let mut cases: Vec<Case> = names.iter().map(|(list, args)| case(list, args, features(list))).collect();
    let journal = JournalOptions { size: Some(6 << 20), ..JournalOptions::default() };
    cases.push(case("journal-size", &[], Request { journal: Some(journal), ..Request::default() }));
    cases.push(case("64bit", &[], features("64bit")));
    cases.push(case("^64bit", &[], features("^64bit")));
    let larger = Request { inode_size: Some(256), ..Request::default() };
    cases.push(case("inode-size", &["-I", "256"], larger.clone()));
    cases.push(case("inode-size-512", &[], Request { inode_size: Some(512), ..larger }));
    cases.push(case(
        "quota-kinds",
        &["-Q", "usrquota,^grpquota"],
        Request { quotas: vec![(QuotaKind::User, true), (QuotaKind::Group, false)], ..Request::default() },
    ));
    cases
}

fn device(image: &Path) -> Arc<dyn Device> {
    let file = File::options().read(true).write(true).open(image).unwrap();
    Arc::new(FileDevice::new(file).unwrap().unshared())
}

fn limits() -> Limits {
    Limits { memory: 1 << 30, threads: 1, now: Timestamp::from_seconds(testkit::clock::seconds()) }
}

/// Makes the change; the refusal, if there is one.
fn ours(image: &Path, request: &Request) -> Result<(), String> {
    let device = device(image);
    let tuned = tune(&device, request, limits()).map_err(|error| error.to_string())?;
    tuned.change.apply().unwrap();
    Ok(())
}

/// Makes the change with tune2fs, and with e2fsck where it asks for that.
fn theirs(image: &Path, arguments: &[&str]) -> Result<(), String> {
    let output = tool::command("tune2fs").arg("-f").args(arguments).arg(image).output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        return Err(said);
    }
    if said.contains("e2fsck") {
        let _ = tool::command("e2fsck").arg("-fy").arg(image).output().unwrap();
    }
    Ok(())
}

/// Fields of `dumpe2fs -h`, without those that say when and how often.
fn header(image: &Path) -> BTreeMap<String, String> {
    let text = tool::text("dumpe2fs", &["-h".as_ref(), image.as_os_str()]);
    let mut fields = BTreeMap::new();
    for line in text.lines() {
        if let Some((key, value)) = line.split_once(':') {
            fields.insert(key.trim().to_owned(), value.trim().to_owned());
        }
    }
    for key in IGNORED {
        fields.remove(*key);
    }
    fields
}

/// Times and sums of all else.
const IGNORED: &[&str] = &[
    "Last write time",
    "Last checked",
    "Next check after",
    "Mount count",
    "Lifetime writes",
    "Checksum",
    "Journal checksum",
    "Journal sequence",
    "mmp_sequence",
    "mmp_update_date",
    "mmp_update_time",
    "mmp_node_name",
    "mmp_device_name",
];

/// Differences that are meant: the kinds of volumes (all), the change (any), the field, and why.
const MEANT: &[(&str, &str, &str, &str)] = &[
    ("", "extended", "Filesystem flags", "e2fsck clears the mark of a test volume"),
    ("", "^has_journal", "Journal backup", "tune2fs leaves the copy of a map that leads to free blocks"),
    ("", "^has_journal", "Filesystem features", "the orphan file goes with the journal"),
    ("", "^has_journal", "Orphan file inode", "the orphan file goes with the journal"),
    ("", "^has_journal", "Free blocks", "the orphan file goes with the journal"),
    ("", "^has_journal", "Free inodes", "the orphan file goes with the journal"),
    ("", "has_journal", "Overhead clusters", "where nothing was counted, Linux counts by itself"),
    ("", "dir_index", "Free blocks", "tune2fs makes no indexes"),
    ("", "^quota", "Filesystem features", "project ids stay without quota"),
    ("", "uuid", "refused", "hashes of values in inodes of their own begin with the UUID; --fast keeps them"),
    ("", "fast_commit,stable_inodes", "refused", "fast commits without a journal are nothing"),
    ("", "inode-size", "Required extra isize", "inodes have room behind their old fields, and use it"),
    ("", "inode-size", "Desired extra isize", "inodes have room behind their old fields, and use it"),
    ("", "inode-size", "Overhead clusters", "tune2fs does not count the longer tables"),
    ("genext2fs", "dir_index", "Directory Hash Seed", "a seed that was never set is random"),
    ("htree-ext2-tea", "metadata_csum", "Free blocks", "e2fsck, which tune2fs asks for, packs directories"),
    ("huge-holes", "^dir_nlink,^extra_isize,^huge_file", "refused", "Linux opens no file of that size then"),
    ("mmp", "uuid", "MMP_block", "tune2fs leaves the block with a wrong checksum"),
    ("mmp", "uuid", "mmp_check_interval", "tune2fs leaves the block with a wrong checksum"),
    ("mmp", "uuid", "mmp_magic", "tune2fs leaves the block with a wrong checksum"),
    ("revision-0", "", "Filesystem revision #", "features are of revision 1"),
    ("revision-0", "", "First inode", "features are of revision 1"),
    ("revision-0", "", "Inode size", "features are of revision 1"),
    (
        "revision-0",
        "inode-size",
        "Inode blocks per group",
        "dumpe2fs takes inodes of revision 0 for 128 bytes",
    ),
];

fn is_meant(of: &str, change: &str, key: &str) -> bool {
    let fits = |(kind, case, field, _): &(&str, &str, &str, &str)| {
        of.starts_with(kind) && (case.is_empty() || *case == change) && *field == key
    };
    MEANT.iter().any(fits)
}

/// Complaints of e2fsck about an image. It counts no symbolic links whose target is in the inode as inline data towards quota;
/// Linux does, and so do we.
fn complaints(kind: &str, image: &Path) -> String {
    let said = fsck::complaints(image);
    let usage = said.contains("[QUOTA WARNING] Usage inconsistent") && !said.contains("Missing quota entry");
    if usage && kind.contains("inline") { String::new() } else { said }
}

/// Judges a change of one kind of volume; returns what is wrong.
fn judge(kind: &str, base: &Path, case: &Case, scratch: &Scratch) -> Vec<String> {
    let mut wrong = Vec::new();
    let (one, other) = (scratch.join("ours"), scratch.join("theirs"));
    sparse::copy(base, &one).unwrap();
    let made = ours(&one, &case.request);
    if let Err(why) = &made {
        if fs::read(base).unwrap() != fs::read(&one).unwrap() {
            wrong.push(format!("refused ({why}), but changed"));
        }
    } else {
        let said = complaints(kind, &one);
        if !said.is_empty() {
            wrong.push(format!("e2fsck: {said}"));
        }
    }
    if !case.tune2fs.is_empty() {
        sparse::copy(base, &other).unwrap();
        match (&made, theirs(&other, case.tune2fs)) {
            (Ok(()), Ok(())) => {
                let (mine, reference) = (header(&one), header(&other));
                let keys: std::collections::BTreeSet<_> = mine.keys().chain(reference.keys()).collect();
                for key in keys.into_iter().filter(|key| mine.get(*key) != reference.get(*key)) {
                    if !is_meant(kind, case.name, key) {
                        let (a, b) = (mine.get(key), reference.get(key));
                        wrong.push(format!("{key}: {a:?}, tune2fs makes it {b:?}"));
                    }
                }
            }
            (Err(_), Ok(())) if is_meant(kind, case.name, "refused") => {}
            (Err(why), Ok(())) => wrong.push(format!("refused, tune2fs does it: {why}")),
            (Ok(()), Err(_)) | (Err(_), Err(_)) => {}
        }
    }
    if made.is_ok() && std::env::var_os("PLATFS_TUNE_TREES").is_some() {
        wrong.extend(trees(base, &one));
    }
    let said: Vec<String> = wrong.into_iter().map(|what| format!("{kind}, {}: {what}", case.name)).collect();
    said.iter().for_each(|what| eprintln!("{what}"));
    said
}

/// Differences of the tree, as the kernel shows it; none where this kernel can't mount both.
fn trees(before: &Path, after: &Path) -> Vec<String> {
    let tree = |image: &Path| {
        let mounted = Mounted::read_only(image).ok()?;
        Some(Snapshot::of(mounted.path()).map_err(|error| error.to_string()))
    };
    match (tree(before), tree(after)) {
        (Some(Ok(before)), Some(Ok(after))) => differences(&before, &after, &Rules::default()),
        (Some(_), Some(Err(why))) => vec![format!("the kernel: {why}")],
        (Some(Err(why)), Some(Ok(_))) => vec![format!("the kernel before the change: {why}")],
        _ => Vec::new(),
    }
}

fn run(test: &str, kinds: &[&str], cases: &[Case]) {
    if !tool::have_tools(test, &["tune2fs", "e2fsck", "dumpe2fs"]) {
        return;
    }
    let mut wrong = Vec::new();
    let only = std::env::var("PLATFS_TUNE_ONLY").ok();
    for kind in kinds {
        let Some(image) = images::golden(test, kind) else { continue };
        let scratch = Scratch::new("tune");
        let base = scratch.join("base");
        sparse::copy(&image, &base).unwrap();
        // Counts and marks as a check leaves them, for both.
        let _ = tool::command("e2fsck").arg("-fy").arg(&base).output().unwrap();
        for case in cases.iter().filter(|case| only.as_deref().is_none_or(|only| only == case.name)) {
            wrong.extend(judge(kind, &base, case, &scratch));
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn fields_become_what_tune2fs_makes_them() {
    run("fields", FEW, &of_fields());
}

#[test]
fn features_become_what_tune2fs_makes_them() {
    run("features", &["ext2-1k", "ext4-4k"], &of_features());
}

#[test]
fn huge_file_stays_where_a_file_is_larger_than_without_it() {
    let test = "huge_file_stays_where_a_file_is_larger_than_without_it";
    if !tool::have_tools(test, &["e2fsck"]) {
        return;
    }
    let Some(golden) = images::golden(test, "huge-holes") else { return };
    let scratch = Scratch::new("tune");
    let image = scratch.join("image");
    sparse::copy(&golden, &image).unwrap();
    let _ = tool::command("e2fsck").arg("-fy").arg(&image).output().unwrap();
    let before = fs::read(&image).unwrap();
    let why = ours(&image, &features("^huge_file")).unwrap_err();
    assert!(why.contains("the file of inode 12 has 17592186036225 bytes"), "{why}");
    assert!(before == fs::read(&image).unwrap());
}

#[test]
#[ignore = "some 1,500 changes: PLATFS_TUNE_TREES=1 cargo test --release -p platfs-reshape --lib tests::tune -- --ignored"]
fn every_kind_of_volume_takes_every_change() {
    let kinds: Vec<&str> = images::all().iter().map(|recipe| recipe.name).collect();
    let chosen = std::env::var("PLATFS_TUNE_KINDS").ok();
    let chosen: Vec<&str> = match &chosen {
        Some(list) => list.split(',').collect(),
        None => kinds.into_iter().filter(|kind| *kind != "unclean").collect(),
    };
    let mut cases = of_fields();
    cases.extend(of_features());
    run("every kind", &chosen, &cases);
}

/// One change after the other, as a seed says; what is wrong.
fn sequence(test: &str, seed: u64) -> Vec<String> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = |most: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap() % most
    };
    let kinds: Vec<_> = images::all().iter().filter(|recipe| recipe.name != "unclean").collect();
    let kind = kinds[next(kinds.len())].name;
    let Some(image) = images::golden(test, kind) else { return Vec::new() };
    let scratch = Scratch::new("sequence");
    let (base, copy) = (scratch.join("base"), scratch.join("copy"));
    sparse::copy(image, &base).unwrap();
    let _ = tool::command("e2fsck").arg("-fy").arg(&base).output().unwrap();
    sparse::copy(&base, &copy).unwrap();
    let cases: Vec<Case> = of_fields().into_iter().chain(of_features()).collect();
    let mut made = Vec::new();
    for _ in 0..8 {
        let case = &cases[next(cases.len())];
        // Nobody says no to a change that the volume can have; what it can't is refused whole.
        if ours(&copy, &case.request).is_ok() {
            made.push(case.name);
            let said = complaints(kind, &copy);
            if !said.is_empty() {
                return vec![format!("{seed}: {kind}: {made:?}: {said}")];
            }
        }
    }
    trees(&base, &copy).into_iter().map(|what| format!("{seed}: {kind}: {made:?}: {what}")).collect()
}

fn sequences(test: &str, seeds: std::ops::Range<u64>) {
    if !tool::have_tools(test, &["e2fsck"]) || !tool::have_root(test) {
        return;
    }
    let wrong: Vec<String> =
        seeds.flat_map(|seed| sequence(test, seed)).inspect(|what| eprintln!("{what}")).collect();
    assert!(wrong.is_empty(), "{} sequences went wrong", wrong.len());
}

#[test]
fn changes_go_together_in_any_order() {
    sequences("sequences", 0..6);
}

#[test]
#[ignore = "500 sequences: cargo test --release -p platfs-reshape --lib any_order_often -- --ignored"]
fn changes_go_together_in_any_order_often() {
    let first = std::env::var("PLATFS_TUNE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    sequences("sequences", first..first + 500);
}

/// Descriptors of the other width fill more or fewer blocks, and nothing is kept for growth.
#[test]
fn what_lies_behind_descriptors_moves_for_64bit() {
    if !tool::have_tools("64bit", &["mke2fs", "e2fsck", "dumpe2fs"]) {
        return;
    }
    for (options, change) in [
        ("^64bit,^resize_inode", "64bit"),
        ("^64bit,^resize_inode,^flex_bg", "64bit"),
        ("^64bit,^resize_inode,^metadata_csum,^uninit_bg,^has_journal", "64bit"),
        ("^64bit,^resize_inode,meta_bg", "64bit"),
        ("64bit,^resize_inode", "^64bit"),
        ("64bit,^resize_inode,meta_bg", "^64bit"),
    ] {
        let scratch = Scratch::new("64bit");
        let (base, image) = (scratch.join("base"), scratch.join("image"));
        let tree = scratch.join("tree");
        fs::create_dir(&tree).unwrap();
        for number in 0..60 {
            fs::write(tree.join(number.to_string()), vec![number; 300_000]).unwrap();
        }
        let mut command = tool::command("mke2fs");
        command.args(["-q", "-F", "-t", "ext4", "-b", "1024", "-N", "2048", "-O", options, "-d"]).arg(&tree);
        tool::run(command.arg(&base).arg("300M"));
        sparse::copy(&base, &image).unwrap();
        ours(&image, &features(change)).unwrap_or_else(|why| panic!("{options}: {why}"));
        fsck::assert_clean(&image);
        let has = tool::dumpe2fs_field(&image, "Filesystem features").unwrap().contains("64bit");
        assert_eq!(has, change == "64bit", "{options}");
        let moved = trees(&base, &image);
        assert!(moved.is_empty(), "{options}: {moved:?}");
    }
}

/// No run is free that holds a longer inode table: files make room.
#[test]
fn files_make_room_for_longer_inode_tables() {
    if !tool::have_tools("longer tables", &["mke2fs", "e2fsck", "dumpe2fs", "debugfs"]) {
        return;
    }
    for options in [
        "-t ext2",
        "-t ext3 -J size=1",
        "-t ext4 -J size=1 -O ^flex_bg",
        "-t ext4 -J size=1",
        "-t ext4 -J size=1 -O ^extents,^64bit,quota",
    ] {
        let scratch = Scratch::new("longer-tables");
        let (base, image, tree) = (scratch.join("base"), scratch.join("image"), scratch.join("tree"));
        fs::create_dir(&tree).unwrap();
        for number in 0..260_u32 {
            fs::write(tree.join(number.to_string()), number.to_le_bytes().repeat(23_000)).unwrap();
        }
        let mut command = tool::command("mke2fs");
        command.args(["-q", "-F", "-b", "1024", "-I", "128", "-N", "16384"]).args(options.split_whitespace());
        tool::run(command.arg("-d").arg(&tree).arg(&base).arg("32M"));
        let removed: Vec<_> = (0..260).step_by(5).map(|number| format!("rm /{number}")).collect();
        let script = scratch.join("script");
        fs::write(&script, removed.join("\n")).unwrap();
        tool::run(tool::command("debugfs").arg("-wf").arg(&script).arg(&base));
        let _ = tool::command("e2fsck").arg("-fyD").arg(&base).output().unwrap();
        sparse::copy(&base, &image).unwrap();
        let longer = Request { inode_size: Some(256), ..Request::default() };
        ours(&image, &longer).unwrap_or_else(|why| panic!("{options}: {why}"));
        fsck::assert_clean(&image);
        assert_eq!(tool::dumpe2fs_field(&image, "Inode size").as_deref(), Some("256"), "{options}");
        let moved = trees(&base, &image);
        assert!(moved.is_empty(), "{options}: {moved:?}");
        // Tables of a kilobyte for each inode leave no room, and then nothing changes.
        let before = fs::read(&image).unwrap();
        let why = ours(&image, &Request { inode_size: Some(1024), ..longer }).unwrap_err();
        assert!(why.contains("table of group") || why.contains("does not fit"), "{options}: {why}");
        assert!(before == fs::read(&image).unwrap(), "{options}");
    }
}

#[test]
fn what_no_volume_gets_is_refused_with_the_reason() {
    let Some(image) = images::golden("refused", "ext4-4k") else { return };
    let scratch = Scratch::new("refused");
    let copy = scratch.join("copy");
    sparse::copy(image, &copy).unwrap();
    let before = fs::read(&copy).unwrap();
    for (list, words) in [
        ("bigalloc", "whole clusters"),
        ("meta_bg", "meta group"),
        ("^sparse_super", "in use by files"),
        ("^extents", "extent"),
        ("needs_recovery", "mark"),
    ] {
        let why = ours(&copy, &features(list)).unwrap_err();
        assert!(why.contains(words), "{list}: {why}");
    }
    assert!(feature_by_name("bigalloc").is_some());
    let many = ours(&copy, &fields(vec![Field::ReservedBlocks(1 << 40)])).unwrap_err();
    assert!(many.contains("more than half"), "{many}");
    assert!(fs::read(&copy).unwrap() == before);
}
