//! `plat build`: images in the formats of others, and what goes beside them, judged by the tools of the others.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::{build, fail, modest_tree, plat, succeed};
use testkit::scratch::Scratch;
use testkit::{odd, tool};

/// Blocks of both sizes; a volume that ends in the middle of a page.
const VOLUMES: [&[&str]; 2] =
    [&["--reproducible", "-b", "4096"], &["--reproducible", "-b", "1024", "--size", "min"]];

/// A tree, and the raw image of it with these options.
fn raw(test: &str, options: &[&str]) -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(test);
    let source = modest_tree(&scratch, &odd::Options::modest());
    let raw = scratch.join("raw.img");
    build(&source, &raw, options);
    (scratch, source, raw)
}

/// `plat build` with further words; what it prints as JSON.
fn make(source: &Path, image: &Path, options: &[&str], more: &[String]) -> serde_json::Value {
    let mut command = plat(&["build", "--json"]);
    let output = succeed(command.args(options).args(more).arg(source).arg(image));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn same(one: &Path, other: &Path) {
    assert!(fs::read(one).unwrap() == fs::read(other).unwrap(), "{} differs", other.display());
}

#[test]
fn qemu_finds_the_raw_image_in_qcow2_and_vhd() {
    if !tool::have_tools("qcow2 and vhd", &["qemu-img"]) {
        return;
    }
    for options in VOLUMES {
        let (scratch, source, raw) = raw("disk-qemu", options);
        for (name, format) in [("d.qcow2", "qcow2"), ("d.vhd", "vpc")] {
            let image = scratch.join(name);
            make(&source, &image, options, &[]);
            if format == "qcow2" {
                let checked = tool::run(tool::command("qemu-img").arg("check").arg(&image));
                assert!(String::from_utf8_lossy(&checked.stdout).contains("No errors"));
                assert!(fs::metadata(&image).unwrap().len() < 8 << 20, "holes have clusters");
            }
            let mut compare = tool::command("qemu-img");
            tool::run(compare.args(["compare", "-f", "raw", "-F", format]).args([&raw, &image]));
        }
    }
}

#[test]
fn simg2img_and_zstd_give_the_raw_image() {
    for options in VOLUMES {
        let (scratch, source, raw) = raw("disk-packed", options);
        let out = scratch.join("out");
        if tool::have_tools("Android sparse", &["simg2img"]) {
            let image = scratch.join("d.simg");
            make(&source, &image, options, &[]);
            tool::run(tool::command("simg2img").args([&image, &out]));
            same(&raw, &out);
        }
        if tool::have_tools("seekable zstd", &["zstd"]) {
            let image = scratch.join("d.img.zst");
            make(&source, &image, options, &[]);
            tool::run(tool::command("zstd").args(["-q", "-d", "-f", "-o"]).args([&out, &image]));
            same(&raw, &out);
            seekable(&fs::read(&image).unwrap(), &fs::read(&raw).unwrap());
        }
    }
}

/// Every frame that the table at the end names unpacks by itself to its part of the disk.
fn seekable(packed: &[u8], raw: &[u8]) {
    let number = |at: usize| u32::from_le_bytes(packed[at..at + 4].try_into().unwrap()) as usize;
    let end = packed.len();
    assert_eq!(number(end - 4), 0x8F92_EAB1);
    let frames = number(end - 9);
    let table = end - 9 - 8 * frames;
    assert_eq!((number(table - 8), number(table - 4)), (0x184D_2A5E, end - table));
    let (mut at, mut place) = (0, 0);
    for frame in 0..frames {
        let (len, unpacked) = (number(table + 8 * frame), number(table + 8 * frame + 4));
        assert!(zstd::decode_all(&packed[at..at + len]).unwrap() == raw[place..place + unpacked]);
        (at, place) = (at + len, place + unpacked);
    }
    assert_eq!((at, place), (table - 8, raw.len()));
}

#[test]
fn bmaptool_copies_what_the_map_names() {
    if !tool::have_tools("bmap", &["bmaptool"]) {
        return;
    }
    for options in &VOLUMES[1..] {
        let (scratch, source, raw) = raw("disk-bmap", options);
        let [image, map, out] = ["d.img", "d.bmap", "out"].map(|name| scratch.join(name));
        make(&source, &image, options, &["--bmap".into(), map.display().to_string()]);
        same(&raw, &image);
        tool::run(tool::command("bmaptool").args(["copy", "--bmap"]).args([&map, &image, &out]));
        same(&raw, &out);
        let text = fs::read_to_string(&map).unwrap();
        let count = |name: &str| {
            let from = text.find(&format!("<{name}>")).unwrap() + name.len() + 2;
            text[from..].split('<').next().unwrap().parse::<u64>().unwrap()
        };
        // Free blocks need not be copied.
        let facts = make(&source, &scratch.join("again.img"), options, &[]);
        let free = count("BlocksCount") - count("MappedBlocksCount");
        assert_eq!(free, facts["free_blocks"].as_u64().unwrap());
    }
}

#[test]
fn veritysetup_agrees_with_the_tree_of_hashes() {
    if !tool::have_tools("dm-verity", &["veritysetup"]) {
        return;
    }
    for options in VOLUMES {
        let (scratch, source, raw) = raw("disk-verity", options);
        let [image, tree] = ["d.img", "d.verity"].map(|name| scratch.join(name));
        let facts = make(&source, &image, options, &[format!("--verity={}", tree.display())]);
        same(&raw, &image);
        let root = facts["verity"]["root_hash"].as_str().unwrap();
        tool::run(tool::command("veritysetup").arg("verify").args([&image, &tree]).arg(root));
        let behind = make(&source, &scratch.join("behind.img"), options, &["--verity".into()]);
        assert_eq!(behind["verity"]["root_hash"], root);
        let offset = format!("--hash-offset={}", behind["verity"]["hash_offset"]);
        let image = scratch.join("behind.img");
        let mut verify = tool::command("veritysetup");
        tool::run(verify.arg("verify").args([&image, &image]).args([root, &offset]));
        // What is printed is the line that opens it.
        let (image_again, named) = (scratch.join("again.img"), tree.with_extension("again"));
        for (word, tree) in
            [("--verity".to_owned(), &image_again), (format!("--verity={}", named.display()), &named)]
        {
            let _ = fs::remove_file(&image_again);
            let said =
                succeed(plat(&["build"]).args(options).arg(&word).arg(&source).arg(&image_again)).stdout;
            let said = String::from_utf8(said).unwrap();
            let line = said.lines().find(|line| line.starts_with("veritysetup open ")).unwrap();
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(
                words[2..5],
                [image_again.to_str().unwrap(), "NAME", tree.to_str().unwrap()],
                "{line}"
            );
            let mut verify = tool::command("veritysetup");
            tool::run(verify.arg("verify").args([words[2], words[4]]).args(&words[5..]));
        }
        // One changed bit is found.
        let mut bytes = fs::read(&image).unwrap();
        bytes[5000] ^= 1;
        fs::write(&image, bytes).unwrap();
        let mut verify = tool::command("veritysetup");
        assert!(
            !verify.arg("verify").args([&image, &image]).args([root, &offset]).status().unwrap().success()
        );
    }
}

#[test]
fn an_update_in_another_format_hides_what_was_freed() {
    let (scratch, source, old) = raw("disk-like", VOLUMES[0]);
    let secret = b"a secret that an update removes, in a block of its own".repeat(200);
    fs::write(source.join("secret"), &secret).unwrap();
    build(&source, &old, &["--reproducible", "--force"]);
    fs::remove_file(source.join("secret")).unwrap();
    let like = ["--like".into(), old.display().to_string()];
    let (image, packed) = (scratch.join("new.img"), scratch.join("new.qcow2"));
    make(&source, &image, &["--reproducible"], &like);
    make(&source, &packed, &["--reproducible"], &like);
    let holds = |path: &Path| fs::read(path).unwrap().windows(54).any(|bytes| *bytes == secret[..54]);
    assert!(holds(&image), "the raw image keeps the bytes of free blocks");
    assert!(!holds(&packed));
}

#[test]
fn what_does_not_go_together_is_refused_and_nothing_is_left() {
    let scratch = Scratch::new("disk-refused");
    let source = modest_tree(&scratch, &odd::Options::modest());
    let image = |name: &str| scratch.join(name);
    let refused = |words: &[&str], name: &str| {
        let output = plat(&["build"]).args(words).arg(&source).arg(image(name)).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?} {name}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused(&[], "x.vmdk").contains("raw, qcow2, vhd, simg, zstd"));
    assert!(refused(&["--bmap", "map"], "x.qcow2").contains("--bmap"));
    let own = image("x.img").display().to_string();
    assert!(refused(&["--bmap", &own], "x.img").contains("names of their own"));
    // A file beside the image that is there already is kept.
    let map = image("map");
    fs::write(&map, "old").unwrap();
    let said = fail(plat(&["build", "--bmap"]).arg(&map).arg(&source).arg(image("x.img")));
    assert!(said.contains("--force"), "{said}");
    assert_eq!(fs::read(&map).unwrap(), b"old");
    // The image can't be named: nothing of it is left, and nothing without a name stays.
    let gone = image("none/x.qcow2");
    fail(plat(&["build"]).arg(&source).arg(&gone));
    let mut left: Vec<_> = fs::read_dir(scratch.join(".")).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["map", "tree"]);
}

/// Programs that copy a disk by NBD ask what holds nothing, and leave it out.
#[test]
fn a_copy_by_nbd_reads_what_holds_anything() {
    let test = "a_copy_by_nbd_reads_what_holds_anything";
    if !tool::have_tools(test, &["qemu-img"]) {
        return;
    }
    let scratch = Scratch::new("nbd-holes");
    let (tree, image, socket) = (scratch.join("tree"), scratch.join("d.img"), scratch.join("socket"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("f"), vec![7; 1 << 20]).unwrap();
    build(&tree, &image, &["-q", "--size", "8G"]);
    let mut server = plat(&["serve", "--read-only", "--nbd"]);
    let mut server = server.arg(&socket).arg(&image).stdout(Stdio::null()).spawn().unwrap();
    while !socket.exists() {
        assert!(server.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let address = format!("nbd+unix:///?socket={}", socket.display());
    let copy = scratch.join("copy.qcow2");
    let mapped = tool::run(tool::command("qemu-img").args(["map", "-f", "raw", "--output=json", &address]));
    tool::run(tool::command("qemu-img").args(["convert", "-f", "raw", "-O", "qcow2", &address]).arg(&copy));
    let calls = fs::read_to_string(format!("/proc/{}/io", server.id())).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let ranges: serde_json::Value = serde_json::from_slice(&mapped.stdout).unwrap();
    assert!(ranges.as_array().unwrap().len() > 2, "{ranges}");
    let read: u64 = calls.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap();
    assert!(read < 64 << 20, "{read} bytes are read for 1 MiB of files");
    let mut compare = tool::command("qemu-img");
    tool::run(compare.args(["compare", "-f", "raw", "-F", "qcow2"]).args([&image, &copy]));
}
