//! Images that stay like an older one (`plat build --like`), and what differs between two (`plat diff`).

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::support::{build, fail, modest_tree, plat, succeed};
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::{fsck, odd, tool};

/// `plat build --like OLD SOURCE IMAGE`; the image is sound, and holds what a fresh one of the same source holds.
fn like(old: &Path, source: &Path, image: &Path) -> serde_json::Value {
    let mut command = plat(&["build", "--reproducible", "--json", "--like"]);
    let output = succeed(command.arg(old).arg(source).arg(image));
    if tool::have_tools("like", &["e2fsck"]) {
        fsck::assert_clean(image);
    }
    let fresh = image.with_extension("fresh");
    build(source, &fresh, &["--reproducible"]);
    assert_eq!(archive(image), archive(&fresh), "{}", image.display());
    fs::remove_file(fresh).unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// All that an image holds, in an order of its own.
fn archive(image: &Path) -> Vec<u8> {
    succeed(plat(&["export"]).arg(image).arg("-")).stdout
}

/// Bytes in chunks of `size` that are in no chunk of the older image.
fn new_bytes(old: &Path, new: &Path, size: usize) -> usize {
    let (old, new) = (fs::read(old).unwrap(), fs::read(new).unwrap());
    let had: HashSet<&[u8]> = old.chunks(size).collect();
    new.chunks(size)
        .filter(|chunk| chunk.iter().any(|byte| *byte != 0))
        .filter(|c| !had.contains(c))
        .map(<[u8]>::len)
        .sum()
}

/// The numbers of inodes by path.
fn inode(image: &Path, path: &str) -> String {
    let listed = succeed(plat(&["stat", "--json"]).arg(image).arg(path)).stdout;
    let facts: serde_json::Value = serde_json::from_slice(&listed).unwrap();
    format!("{} {}", facts[0]["inode"], facts[0]["generation"])
}

/// A tree of files with contents of their own, in some directories.
fn tree(root: &Path, files: u32, random: &mut Random) {
    for number in 0..files {
        let directory = root.join(format!("d{}", number % 17));
        fs::create_dir_all(&directory).unwrap();
        let most = 8 + random.below(11);
        let len = 1 + random.below(1 << most);
        fs::write(directory.join(format!("f{number}")), random.bytes(len)).unwrap();
    }
}

fn files(root: &Path) -> Vec<PathBuf> {
    let directories = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let names = directories.flat_map(|directory| fs::read_dir(directory).unwrap());
    let mut files: Vec<PathBuf> = names.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// An update as package managers make it: some files grow, some are new, some go.
fn update(root: &Path, round: u32, random: &mut Random) {
    let mut all = files(root);
    for number in 0..8 {
        let at = random.below(all.len() as u64) as usize;
        let path = all.swap_remove(at);
        if number == 0 {
            fs::remove_file(path).unwrap();
            continue;
        }
        let mut bytes = fs::read(&path).unwrap();
        let (place, len) = (random.below(bytes.len() as u64) as usize, 1024 + random.below(7168));
        bytes.splice(place..place, random.bytes(len));
        fs::write(path, bytes).unwrap();
    }
    for number in 0..12 {
        let len = 4096 + random.below(36_864);
        let name = format!("d{}/new-{round}-{number}", random.below(17));
        fs::write(root.join(name), random.bytes(len)).unwrap();
    }
}

fn scratch_tree(test: &str, files: u32, seed: u64) -> (Scratch, PathBuf, Random) {
    let scratch = Scratch::new(test);
    let root = scratch.join("tree");
    fs::create_dir(&root).unwrap();
    let mut random = Random(seed);
    tree(&root, files, &mut random);
    (scratch, root, random)
}

#[test]
fn of_the_same_source_the_image_stays_as_it_is() {
    let scratch = Scratch::new("like-same");
    let source = modest_tree(&scratch, &odd::Options::modest());
    let formats: [&[&str]; 3] = [&["-t", "ext2"], &["-O", "inline_data"], &["-O", "bigalloc", "-C", "16384"]];
    for options in formats {
        let [old, new] = ["old", "new"].map(|name| scratch.join(name));
        build(&source, &old, &[&["--reproducible"], options].concat());
        let facts = like(&old, &source, &new);
        assert_eq!(fs::read(&old).unwrap(), fs::read(&new).unwrap(), "{options:?}: {facts}");
        fs::remove_file(old).unwrap();
        fs::remove_file(new).unwrap();
    }
}

#[test]
fn every_kind_of_change_is_made() {
    let scratch = Scratch::new("like-kinds");
    let source = modest_tree(&scratch, &odd::Options::modest());
    // Sockets do not pass through tar.
    fs::remove_file(source.join("kinds/socket")).unwrap();
    let mut random = Random(7);
    let big = random.bytes(3 << 20);
    let at = |name: &str| source.join(name);
    for name in ["big", "grows", "shrinks", "renamed-from", "becomes-a-directory", "loses-a-name", "hole"] {
        fs::write(at(name), &big[..if name == "big" { big.len() } else { 300_000 + name.len() }]).unwrap();
    }
    fs::hard_link(at("loses-a-name"), at("second")).unwrap();
    fs::create_dir_all(at("becomes-a-file/deep/er")).unwrap();
    fs::write(at("becomes-a-file/deep/er/x"), b"x").unwrap();
    fs::hard_link(at("big"), at("becomes-a-file/big")).unwrap();
    symlink("one", at("link")).unwrap();
    for options in [&["-t", "ext3"][..], &["-O", "inline_data,^has_journal"]] {
        let [old, new, back] = ["old", "new", "back"].map(|name| scratch.join(name));
        build(&source, &old, &[&["--reproducible"], options].concat());
        let after = scratch.join("after");
        succeed(tool::command("cp").arg("-a").arg(&source).arg(&after));
        change(&after, &mut random);
        let facts = like(&old, &after, &new);
        let update = &facts["like"];
        assert_eq!((&update["in_place"], &update["renamed"]), (&1.into(), &1.into()), "{facts}");
        layered(&scratch, &old, &new);
        for (was, is) in
            [("big", "big"), ("grows", "grows"), ("renamed-from", "renamed/to"), ("hole", "hole")]
        {
            assert_eq!(inode(&old, was), inode(&new, is), "{is}");
        }
        // And all of it back again.
        like(&new, &source, &back);
        fs::remove_dir_all(&after).unwrap();
        [old, new, back].iter().for_each(|image| fs::remove_file(image).unwrap());
    }
}

/// The older tree and the layer of what differs, one over the other, are the newer tree.
fn layered(scratch: &Scratch, old: &Path, new: &Path) {
    let [layer, both, image] = ["layer.tar", "both.tar", "both"].map(|name| scratch.join(name));
    let output = succeed(plat(&["diff", "--json", "-o"]).arg(&layer).arg(old).arg(new));
    let changes: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let what =
        |path: &str| changes.iter().find(|change| change["path"] == path).map(|change| &change["what"]);
    assert_eq!(what("/loses-a-name"), Some(&serde_json::json!(["mode"])), "{changes:?}");
    assert_eq!(what("/renamed-from"), Some(&serde_json::json!([])), "{changes:?}");
    assert_eq!(what("/becomes-a-file"), Some(&serde_json::json!(["type"])), "{changes:?}");
    assert_eq!(what("/nothing"), None);
    let base = scratch.join("base.tar");
    fs::write(&base, archive(old)).unwrap();
    oci_image(scratch, &[&base, &layer], &both);
    build(&both, &image, &["--reproducible"]);
    assert_eq!(archive(&image), archive(new));
    let same = succeed(plat(&["diff"]).arg(&image).arg(new));
    assert_eq!(String::from_utf8_lossy(&same.stdout), "");
    for path in [base, layer, both, image] {
        let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
    }
}

/// A docker-save archive of layers.
fn oci_image(scratch: &Scratch, layers: &[&PathBuf], out: &Path) {
    let directory = scratch.join("saved");
    fs::create_dir(&directory).unwrap();
    let mut names = Vec::new();
    let mut digests = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        let name = format!("layer{number}.tar");
        fs::copy(layer, directory.join(&name)).unwrap();
        let sum = succeed(tool::command("sha256sum").arg(layer)).stdout;
        digests.push(format!("sha256:{}", String::from_utf8_lossy(&sum).split(' ').next().unwrap()));
        names.push(name);
    }
    let config = serde_json::json!({
        "architecture": "amd64", "os": "linux", "rootfs": { "type": "layers", "diff_ids": digests }
    });
    fs::write(directory.join("config.json"), config.to_string()).unwrap();
    let manifest = serde_json::json!([{ "Config": "config.json", "RepoTags": ["a:b"], "Layers": names }]);
    fs::write(directory.join("manifest.json"), manifest.to_string()).unwrap();
    succeed(tool::command("tar").arg("-C").arg(&directory).arg("-cf").arg(out).arg("."));
    fs::remove_dir_all(directory).unwrap();
}

fn change(root: &Path, random: &mut Random) {
    let at = |name: &str| root.join(name);
    let file = fs::OpenOptions::new().write(true).open(at("big")).unwrap();
    file.write_all_at(&random.bytes(5000), 1_000_000).unwrap();
    fs::write(at("grows"), random.bytes(700_000)).unwrap();
    fs::write(at("shrinks"), random.bytes(10)).unwrap();
    fs::create_dir(at("renamed")).unwrap();
    fs::rename(at("renamed-from"), at("renamed/to")).unwrap();
    fs::remove_file(at("becomes-a-directory")).unwrap();
    fs::create_dir(at("becomes-a-directory")).unwrap();
    fs::remove_dir_all(at("becomes-a-file")).unwrap();
    fs::write(at("becomes-a-file"), b"y").unwrap();
    fs::remove_file(at("second")).unwrap();
    fs::hard_link(at("grows"), at("another")).unwrap();
    fs::remove_file(at("link")).unwrap();
    symlink("two", at("link")).unwrap();
    let file = fs::OpenOptions::new().write(true).open(at("hole")).unwrap();
    file.set_len(0).unwrap();
    file.write_all_at(b"end", 299_000).unwrap();
    fs::set_permissions(at("loses-a-name"), Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_chain_of_updates_costs_what_is_new_and_does_not_decay() {
    let (scratch, root, mut random) = scratch_tree("like-chain", 400, 11);
    let mut old = scratch.join("0.img");
    build(&root, &old, &["--reproducible"]);
    let first = fs::metadata(&old).unwrap().len();
    for round in 1..=6 {
        update(&root, round, &mut random);
        let new = scratch.join(format!("{round}.img"));
        like(&old, &root, &new);
        // About 600 KiB are new in each; a fresh image has all of its megabytes moved.
        let cost = [4096, 65_536, 524_288].map(|size| new_bytes(&old, &new, size) >> 10);
        eprintln!("like-chain: {round}: {cost:?} KiB, {} bytes", fs::metadata(&new).unwrap().len());
        assert!(cost[0] <= 1_100 && cost[1] <= 2_600 && cost[2] <= 7_000, "{round}: {cost:?} KiB");
        let frag = succeed(plat(&["frag", "--json"]).arg(&new)).stdout;
        let frag: serde_json::Value = serde_json::from_slice(&frag).unwrap();
        let (extents, files) = (frag["extents"].as_f64().unwrap(), frag["files"].as_f64().unwrap());
        assert!(extents <= 1.02 * files, "{round}: {frag}");
        fs::remove_file(std::mem::replace(&mut old, new)).unwrap();
    }
    assert!(fs::metadata(&old).unwrap().len() < 2 * first);
    // The same source laid out from the start has the older image's identifiers.
    let fresh = scratch.join("fresh.img");
    build(&root, &fresh, &["--relayout", "--like", old.to_str().unwrap()]);
    let uuid = |image: &Path| {
        let info = succeed(plat(&["info", "--json"]).arg(image)).stdout;
        serde_json::from_slice::<serde_json::Value>(&info).unwrap()["uuid"].clone()
    };
    assert_eq!(uuid(&old), uuid(&fresh));
}

#[test]
fn a_volume_without_room_grows_and_the_result_depends_on_nothing_else() {
    let (scratch, root, mut random) = scratch_tree("like-grows", 60, 5);
    let [old, one, two] = ["old", "one", "two"].map(|name| scratch.join(name));
    build(&root, &old, &["--reproducible", "--size", "min"]);
    fs::write(root.join("d0/large"), random.bytes(20 << 20)).unwrap();
    let facts = like(&old, &root, &one);
    assert!(facts["like"]["grown_bytes"].as_u64().unwrap() > 20 << 20, "{facts}");
    like(&old, &root, &two);
    assert_eq!(fs::read(&one).unwrap(), fs::read(&two).unwrap());
}

#[test]
fn a_name_that_means_a_format_that_is_not_written_is_refused() {
    let (scratch, root, _) = scratch_tree("build-formats", 1, 1);
    for name in ["x.vmdk", "x.VHDX", "x.vdi", "x.img.gz", "x.xz"] {
        let output = plat(&["build"]).arg(&root).arg(scratch.join(name)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("a format that is not written") && !scratch.join(name).exists(), "{said}");
    }
    build(&root, &scratch.join("qcow2"), &[]);
}

#[test]
fn images_of_one_base_built_apart_share_its_chunks() {
    const CHUNK: usize = 512 << 10;
    let (scratch, root, mut random) = scratch_tree("align", 1200, 23);
    fs::write(root.join("d1/large"), random.bytes(5 << 20)).unwrap();
    let layer = scratch.join("layer");
    fs::create_dir_all(layer.join("app")).unwrap();
    tree(&layer.join("app"), 150, &mut random);
    // One file of the base is another one.
    fs::create_dir(layer.join("d2")).unwrap();
    fs::write(layer.join("d2/f2"), random.bytes(9000)).unwrap();
    let [base, both, plain, apart] = ["base", "both", "plain", "apart"].map(|name| scratch.join(name));
    let run = |options: &[&str], sources: &[&Path], image: &Path| {
        let output =
            succeed(plat(&["build", "--reproducible", "--json"]).args(options).args(sources).arg(image));
        fsck::assert_clean(image);
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let align = ["--align", "512K"];
    run(&align, &[&root], &base);
    let facts = run(&align, &[&root, &layer], &both);
    run(&["-b", "4096"], &[&root], &plain);
    run(&["-b", "4096"], &[&root, &layer], &apart);
    assert_eq!(archive(&both), archive(&apart));
    let added: usize =
        files(&layer.join("app")).iter().map(|path| fs::metadata(path).unwrap().len() as usize).sum();
    let (shared, moved) = (new_bytes(&base, &both, CHUNK), new_bytes(&plain, &apart, CHUNK));
    let cost = facts["align"]["cost_bytes"].as_u64().unwrap() as usize;
    eprintln!("a layer of {added} bytes: {shared} new bytes, {moved} without --align, which cost {cost}");
    // Files end in the middle of blocks and chunks; with the files come the replaced one, a directory, an inode table, the
    // superblock with the bitmaps, and its copy.
    let blocks = added + 4096 * 150;
    assert!(shared <= blocks + 8 * CHUNK, "{shared} new bytes of a layer of {added}");
    assert!(moved > 2 * shared, "{moved} {shared}");
    let frag = succeed(plat(&["frag", "--json"]).arg(&both)).stdout;
    let frag: serde_json::Value = serde_json::from_slice(&frag).unwrap();
    eprintln!("{frag}");
    for (block, chunk) in [("4096", "64M"), ("1024", "4M")] {
        let mut command = plat(&["build", "-b", block, "--align", chunk]);
        let wrong = command.arg(&root).arg(scratch.join("x")).output().unwrap();
        let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
        assert!(wrong.status.code() == Some(2) && said.contains("groups of this block size"), "{said}");
    }
    let wrong = plat(&["build", "--align", "3K"]).arg(&root).arg(scratch.join("x")).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

/// Inodes by path, with generations and places.
fn places(image: &Path, paths: &[&str]) -> Vec<String> {
    let shown = |path: &&str| {
        if path.ends_with("long") {
            return format!("{path} {}", inode(image, path));
        }
        let map = succeed(plat(&["map", "--json", "-e"]).arg(image).arg(path)).stdout;
        format!("{path} {} {}", inode(image, path), String::from_utf8(map).unwrap())
    };
    paths.iter().map(shown).collect()
}

#[test]
fn inodes_and_directories_of_a_base_stay_whatever_lies_over_it() {
    let (scratch, root, mut random) = scratch_tree("layers", 300, 31);
    let link = |path: PathBuf| symlink("x".repeat(200), path).unwrap();
    link(root.join("d3/long"));
    let [one, two] = ["one", "two"].map(|name| scratch.join(name));
    // One layer has links with blocks of their own, replaces a file, and has a directory outgrow its block.
    fs::create_dir_all(one.join("d1")).unwrap();
    fs::create_dir_all(one.join("d2")).unwrap();
    (0..300).for_each(|number| fs::write(one.join(format!("d1/a name of the layer {number}")), "x").unwrap());
    link(one.join("d2/long"));
    fs::write(one.join("d2/f2"), random.bytes(9000)).unwrap();
    tree(&two.join("app"), 60, &mut random);
    fs::create_dir_all(two.join("d4")).unwrap();
    fs::write(two.join("d4/f4"), "other").unwrap();
    let paths = ["/d0", "/d0/f0", "/d2", "/d3", "/d3/long", "/d5/f5", "/d16/f16"];
    for options in
        [&[][..], &["-O", "inline_data"], &["-O", "bigalloc"], &["-b", "1024"], &["-t", "ext2", "-b", "4096"]]
    {
        let build = |sources: &[&Path], name: &str, more: &[&str]| {
            let image = scratch.join(name);
            let mut command = plat(&["build", "--force", "--reproducible", "-q", "--align", "128K"]);
            succeed(command.args(options).args(more).args(sources).arg(&image));
            fsck::assert_clean(&image);
            image
        };
        let sources = [&root, &one, &two].map(PathBuf::as_path);
        let base = build(&sources[..1], "base", &[]);
        let both = build(&sources[..2], "both", &[]);
        let all = build(&sources, "all", &[]);
        assert!(fs::read(&all).unwrap() == fs::read(build(&sources, "again", &[])).unwrap(), "{options:?}");
        let smallest = build(&sources, "smallest", &["--size", "min"]);
        assert_eq!(archive(&smallest), archive(&all), "{options:?}");
        let number = |image: &Path, path| inode(image, path).split(' ').next().unwrap().to_owned();
        assert_eq!(number(&base, "/d2/f2"), number(&both, "/d2/f2"), "{options:?}");
        // Smaller blocks have groups of a few MiB, whose number changes what is in front.
        if options.contains(&"1024") {
            continue;
        }
        assert_eq!(places(&base, &paths), places(&both, &paths), "{options:?}");
        assert_eq!(places(&base, &paths), places(&all, &paths), "{options:?}");
        let of_layer = ["/d1", "/d1/a name of the layer 7", "/d2/f2", "/d2/long"];
        assert_eq!(places(&both, &of_layer), places(&all, &of_layer), "{options:?}");
    }
}

#[test]
fn umoci_and_skopeo_take_a_difference_for_a_layer() {
    if !tool::have_tools("layers", &["umoci", "skopeo", "tar"]) || !tool::have_root("layers") {
        return;
    }
    let (scratch, root, mut random) = scratch_tree("layer-umoci", 60, 8);
    let [old, new, again] = ["old", "new", "again"].map(|name| scratch.join(name));
    let [base, layer, layout] = ["base.tar", "layer.tar", "layout"].map(|name| scratch.join(name));
    build(&root, &old, &["--reproducible"]);
    tool::run(tool::command("tar").args(["--format=posix", "-cf"]).arg(&base).arg("-C").arg(&root).arg("."));
    update(&root, 1, &mut random);
    fs::remove_dir_all(root.join("d4")).unwrap();
    fs::create_dir(root.join("made")).unwrap();
    symlink("/etc/motd", root.join("made/link")).unwrap();
    like(&old, &root, &new);
    plat(&["diff"]).arg(&old).arg(&new).arg("-o").arg(&layer).output().unwrap();
    let image = |tag: &str| format!("{}:{tag}", layout.display());
    let umoci = |words: &[&str], files: &[&Path]| {
        tool::run(tool::command("umoci").args(words).args(files));
    };
    umoci(&["init", "--layout"], &[&layout]);
    umoci(&["new", "--image", &image("base")], &[]);
    umoci(&["raw", "add-layer", "--image", &image("base")], &[&base]);
    umoci(&["raw", "add-layer", "--image", &image("base"), "--tag", "new"], &[&layer]);
    umoci(&["unpack", "--image", &image("new")], &[&scratch.join("bundle")]);
    let unpacked = scratch.join("bundle/rootfs");
    tool::run(tool::command("diff").args(["-r", "--no-dereference"]).arg(&unpacked).arg(&root));
    let copied = scratch.join("copied");
    let mut skopeo = tool::command("skopeo");
    skopeo.args(["copy", "-q", &format!("oci:{}", image("new")), &format!("dir:{}", copied.display())]);
    tool::run(&mut skopeo);
    // Options may stand between the source and the image.
    succeed(plat(&["build"]).arg(&layout).args(["--tag", "new"]).arg(&again).arg("-q"));
    let found = succeed(plat(&["diff"]).arg(&new).arg(&again)).stdout;
    assert_eq!(String::from_utf8(found).unwrap(), "");
}

#[test]
fn what_can_be_no_pattern_is_refused() {
    let (scratch, root, _) = scratch_tree("like-refused", 40, 3);
    let [old, new] = ["old", "new"].map(|name| scratch.join(name));
    build(&root, &old, &["--reproducible"]);
    let run = |options: &[&str]| {
        let mut command = plat(&["build", "--like"]);
        command.arg(&old).args(options).arg(&root).arg(&new);
        command
    };
    let usage = run(&["-b", "1024"]).output().unwrap();
    assert_eq!(usage.status.code(), Some(2), "{usage:?}");
    assert!(fail(&mut run(&["--size", "64K"])).contains("--relayout"));
    assert!(fail(&mut run(&["--size", "min"])).contains("laid out from the start"));
    // A bitmap that frees what is in use.
    let file = fs::OpenOptions::new().write(true).open(&old).unwrap();
    let sound = fs::read(&old).unwrap();
    let image = platfs::Image::open(&old).unwrap();
    let block = image.volume().format().geometry.block_size.bytes();
    drop(image);
    file.write_all_at(&vec![0; block as usize * 64], u64::from(block) * 3).unwrap();
    let said = fail(&mut run(&[]));
    assert!(said.contains("older image"), "{said}");
    assert!(!new.exists());
    file.write_all_at(&sound, 0).unwrap();
    file.write_all_at(&[0; 4096], 0).unwrap();
    assert!(!fail(&mut run(&[])).is_empty());
    assert!(!new.exists());
}
