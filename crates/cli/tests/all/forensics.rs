//! `plat map --block`, `stat --blocks`, `stat --index` and `plat journal`, compared with debugfs.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::plat::plat;
use serde_json::Value;
use testkit::images;
use testkit::images::golden;
use testkit::mount::{Mounted, have_loop_mount};
use testkit::scratch::Scratch;
use testkit::sparse;
use testkit::tool;

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Numbers of a JSON array.
fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(number).collect()
}

/// Images that debugfs reads as they are: those without a journal to be replayed.
fn clean_images(test: &str) -> Vec<(&'static str, PathBuf)> {
    let recipes = images::all().iter().filter(|recipe| !recipe.name.contains("unclean"));
    let made: Vec<_> = recipes.filter_map(|recipe| Some((recipe.name, golden(test, recipe.name)?))).collect();
    made.into_iter()
        .filter(|(_, image)| json(&plat("info --json", image, &[]).out)["journal"] != "needs recovery")
        .collect()
}

/// Inodes that debugfs finds for each block: `icheck`.
fn icheck(image: &Path, blocks: &[u64]) -> BTreeMap<u64, Option<u64>> {
    let list: Vec<String> = blocks.iter().map(u64::to_string).collect();
    let answer = tool::debugfs(image, &format!("icheck {}", list.join(" ")));
    let rows = answer.lines().skip(1).filter_map(|line| {
        let (block, inode) = line.split_once('\t')?;
        Some((block.trim().parse().ok()?, inode.trim().parse().ok()))
    });
    rows.collect()
}

/// The first path that debugfs finds for each inode: `ncheck`.
fn ncheck(image: &Path, inodes: &BTreeSet<u64>) -> BTreeMap<u64, BTreeSet<String>> {
    let list: Vec<String> = inodes.iter().map(u64::to_string).collect();
    let answer = tool::debugfs(image, &format!("ncheck {}", list.join(" ")));
    let mut all: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for line in answer.lines().skip(1) {
        let Some((inode, path)) = line.split_once('\t') else { continue };
        if let Ok(inode) = inode.trim().parse() {
            all.entry(inode).or_default().insert(path.trim_start_matches('/').to_owned());
        }
    }
    all
}

#[test]
fn owners_of_blocks_are_those_of_debugfs() {
    let test = "owners_of_blocks_are_those_of_debugfs";
    let (mut files, mut paths) = (0, 0);
    for (name, image) in clean_images(test) {
        let blocks = number(&json(&plat("map --json", &image, &[]).out)["blocks"]);
        let step = (blocks / 1500).max(1);
        let asked: Vec<u64> = (1..blocks).step_by(usize::try_from(step).unwrap()).collect();
        let list: Vec<String> = asked.iter().map(u64::to_string).collect();
        let ours = json(&plat(&format!("map --json --block {}", list.join(",")), &image, &[]).out);
        let theirs = icheck(&image, &asked);
        let mut named: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
        for (block, found) in asked.iter().zip(ours.as_array().unwrap()) {
            assert_eq!(found["block"], *block, "{name}");
            let owners = found["owners"].as_array().unwrap();
            let inodes: BTreeSet<u64> = owners.iter().filter_map(|owner| owner["inode"].as_u64()).collect();
            match theirs.get(block).copied().flatten() {
                // It names one of several.
                Some(inode) => assert!(inodes.contains(&inode), "{name}: block {block}: {found} {inode}"),
                None => assert!(inodes.is_empty(), "{name}: block {block}: {found}"),
            }
            // Of a cluster not all blocks need be a file's.
            let is_owned = found["in_use"] == true && !name.contains("bigalloc");
            assert!(found["in_use"] == true || owners.is_empty(), "{name}: block {block}: {found}");
            assert!(!is_owned || !owners.is_empty(), "{name}: block {block}: {found}");
            for owner in owners {
                files += u32::from(owner["part"] == "data");
                for path in owner["names"].as_array().into_iter().flatten() {
                    if path["path_hex"].is_null() {
                        let path = path["path"].as_str().unwrap().trim_start_matches('/').to_owned();
                        named.entry(number(&owner["inode"])).or_default().insert(path);
                    }
                }
            }
        }
        // debugfs has names only for what it walks to, and writes odd names in its own way.
        let plain = |path: &String| path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        named.retain(|_, paths| paths.iter().all(plain));
        for (inode, theirs) in ncheck(&image, &named.keys().copied().collect()) {
            for path in
                theirs.iter().filter(|path| plain(path) && !path.is_empty() && !path.starts_with("..."))
            {
                assert!(named[&inode].contains(path), "{name}: inode {inode}: {path}: {:?}", named[&inode]);
                paths += 1;
            }
        }
    }
    println!("{files} blocks of files, {paths} paths");
}

#[test]
fn blocks_of_every_part_are_known() {
    let scratch = Scratch::new("forensics-parts");
    let image = scratch.join("disk.img");
    plat("mkfs -b 1024", &image, &["64M".as_ref()]).fine();
    let all = json(&plat("map --json --block 0-65535", &image, &[]).out);
    let parts: BTreeSet<&str> = all
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|block| block["owners"].as_array().unwrap())
        .map(|owner| owner["part"].as_str().unwrap())
        .collect();
    for part in ["boot", "superblock", "descriptors", "reserved-descriptors", "block-bitmap", "inode-bitmap"]
    {
        assert!(parts.contains(part), "{part}: {parts:?}");
    }
    for part in ["inode-table", "journal", "data"] {
        assert!(parts.contains(part), "{part}: {parts:?}");
    }
    let text = String::from_utf8(plat("map --block 1", &image, &[]).fine()).unwrap();
    assert_eq!(text, "1: superblock, in group 0\n");
    let outside = plat("map --block 65536", &image, &[]).failed();
    assert!(outside.contains("no block 65536"), "{outside}");
}

/// Blocks of an inode as debugfs lists them, in no order.
fn blocks_of(image: &Path, inode: u64) -> BTreeSet<u64> {
    let answer = tool::debugfs(image, &format!("blocks <{inode}>"));
    answer.split_whitespace().filter_map(|word| word.parse().ok()).filter(|block| *block != 0).collect()
}

#[test]
fn blocks_and_records_of_inodes_are_those_of_debugfs() {
    let test = "blocks_and_records_of_inodes_are_those_of_debugfs";
    let mut compared = 0;
    for (name, image) in clean_images(test) {
        for inode in 11..40_u64 {
            let path = format!("<{inode}>");
            let ran = plat("stat --json --blocks --raw", &image, &[path.as_ref()]);
            let Some(found) = json(&ran.out).get(0).cloned() else { continue };
            let record = &found["record"];
            let place = tool::debugfs(&image, &format!("imap <{inode}>"));
            if place.contains("located at block") {
                let ours = format!(
                    "located at block {}, offset {:#06x}",
                    record["block"],
                    number(&record["offset"])
                );
                assert!(place.contains(&ours), "{name}: inode {inode}: {ours}: {place}");
            }
            if found["inode"].is_null() || found["layout"] == "inline" || found["layout"] == "none" {
                continue;
            }
            let mut ours: BTreeSet<u64> = numbers(&record["map_blocks"]).into_iter().collect();
            for run in record["data_blocks"].as_array().unwrap() {
                let first = number(&run["disk_block"]);
                ours.extend(first..first + number(&run["count"]));
            }
            assert_eq!(ours, blocks_of(&image, inode), "{name}: inode {inode}");
            compared += 1;
        }
    }
    assert!(compared > 50, "{compared}");
}

#[test]
fn an_index_is_that_of_debugfs() {
    let test = "an_index_is_that_of_debugfs";
    if !tool::have_tools(test, &["mke2fs", "debugfs"]) {
        return;
    }
    let scratch = Scratch::new("forensics-index");
    let (tree, image) = (scratch.join("tree"), scratch.join("disk.img"));
    fs::create_dir_all(tree.join("many")).unwrap();
    for index in 0..900 {
        fs::write(tree.join("many").join(format!("a name that is long enough {index}")), "").unwrap();
    }
    plat("build --size 32M", &tree, &[image.as_os_str()]).fine();
    let found = json(&plat("stat --json --index", &image, &["/many".as_ref()]).fine());
    let index = &found[0]["record"]["index"];
    let dump = tool::debugfs(&image, "htree_dump /many");
    let (mut leads, mut names) = (0, 0);
    for node in index["nodes"].as_array().unwrap() {
        for entry in node["entries"].as_array().into_iter().flatten() {
            let line = format!("Hash {:#010x}{}, block {}", number(&entry["hash"]), "", entry["file_block"]);
            assert!(dump.contains(&line), "{line}: {dump}");
            leads += 1;
        }
        for named in node["names"].as_array().into_iter().flatten() {
            let line = format!(
                "{} {:#010x}-{:08x}",
                named["inode"],
                number(&named["hash"]),
                number(&named["minor_hash"])
            );
            assert!(dump.contains(&line), "{line}: {dump}");
            names += 1;
        }
    }
    assert!(leads > 5 && names == 900, "{leads} {names}");
    assert!(
        plat("stat --index", &image, &["/many/a name that is long enough 1".as_ref()])
            .failed()
            .contains("no directory")
    );
}

/// Transactions as `logdump -a` lists them: for each the blocks of which it has copies, those it revokes.
fn logdump(image: &Path) -> (BTreeMap<u64, Vec<u64>>, BTreeMap<u64, Vec<u64>>) {
    let answer = tool::debugfs(image, "logdump -aO");
    let (mut copies, mut revoked) = (BTreeMap::<u64, Vec<u64>>::new(), BTreeMap::<u64, Vec<u64>>::new());
    let word_after = |line: &str, mark: &str| -> Option<u64> {
        let rest = line.split_once(mark)?.1;
        rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let mut sequence = 0;
    for line in answer.lines() {
        if let Some(found) = word_after(line, "Found expected sequence") {
            sequence = found;
        }
        if let Some(block) =
            word_after(line, "FS block ").filter(|_| line.contains("logged at journal block"))
        {
            copies.entry(sequence).or_default().push(block);
        }
        if let Some(block) = word_after(line, "Revoke FS block ") {
            revoked.entry(sequence).or_default().push(block);
        }
    }
    (copies, revoked)
}

/// A volume that the kernel worked on, copied while it was mounted.
fn worked_on(scratch: &Scratch, options: &[&str]) -> (PathBuf, PathBuf) {
    let (image, copy) = (scratch.join("disk.img"), scratch.join("unclean.img"));
    tool::run(tool::command("mke2fs").args(["-q", "-F", "-t", "ext4"]).args(options).arg(&image).arg("64M"));
    let mounted = Mounted::read_write(&image).unwrap();
    for round in 0..5 {
        for file in 0..20 {
            let path = mounted.path().join(format!("{round} {file}"));
            fs::write(&path, vec![7; 5000 * (file + 1)]).unwrap();
        }
        let directory = mounted.path().join(format!("directory {round}"));
        fs::create_dir(&directory).unwrap();
        tool::run(tool::command("sync").arg("-f").arg(mounted.path()));
        fs::remove_dir(&directory).unwrap();
        fs::remove_file(mounted.path().join(format!("{round} 3"))).unwrap();
        tool::run(tool::command("sync").arg("-f").arg(mounted.path()));
    }
    // The loop device writes through the page cache of the file.
    sparse::copy(&image, &copy).unwrap();
    drop(mounted);
    (image, copy)
}

#[test]
fn transactions_are_those_of_logdump() {
    let test = "transactions_are_those_of_logdump";
    if !have_loop_mount(test) || !tool::have_tools(test, &["debugfs"]) {
        return;
    }
    for (index, options) in
        [&["-b", "1024"][..], &["-O", "^64bit,^metadata_csum"], &["-O", "metadata_csum,64bit"]]
            .iter()
            .enumerate()
    {
        let scratch = Scratch::new(&format!("forensics-journal{index}"));
        let (image, unclean) = worked_on(&scratch, options);
        for image in [&unclean, &image] {
            let ours = json(&plat("journal --json --blocks", image, &[]).out);
            let (copies, revoked) = logdump(image);
            let mut seen = 0;
            for transaction in ours["transactions"].as_array().unwrap() {
                let sequence = number(&transaction["sequence"]);
                let own: Vec<u64> = transaction["copies"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|copy| number(&copy["block"]))
                    .collect();
                if let Some(theirs) = copies.get(&sequence) {
                    assert_eq!(&own, theirs, "{options:?}: transaction {sequence}");
                    seen += 1;
                }
                assert_eq!(transaction["problems"], Value::Array(vec![]), "{options:?}: {transaction}");
                let own = numbers(&transaction["revoked"]);
                assert_eq!(
                    own,
                    revoked.get(&sequence).cloned().unwrap_or_default(),
                    "{options:?}: {sequence}"
                );
            }
            assert!(seen >= 8, "{options:?}: {seen} of {}", copies.len());
            let expected = if *image == unclean { "waiting" } else { "checkpointed" };
            let last = ours["transactions"].as_array().unwrap().last().unwrap();
            assert_eq!(last["state"], expected, "{options:?}");
            // The block of the root directory was written again and again.
            let root = numbers(
                &json(&plat("stat --json --blocks", image, &["/".as_ref()]).out)[0]["record"]["map_blocks"],
            );
            assert!(root.is_empty());
            let root = &json(&plat("stat --json --blocks", image, &["/".as_ref()]).out)[0]["record"]["data_blocks"]
                [0];
            let block = root["disk_block"].to_string();
            let text =
                String::from_utf8(plat(&format!("journal --hex --block {block}"), image, &[]).out).unwrap();
            assert!(text.matches(&format!("block {block} in ")).count() >= 8, "{text}");
            assert!(text.contains("data of inode 2, file block 0: /"), "{text}");
        }
    }
}

#[test]
fn hostile_journals_end() {
    let scratch = Scratch::new("forensics-hostile");
    let image = scratch.join("disk.img");
    plat("mkfs -b 1024", &image, &["32M".as_ref()]).fine();
    let first =
        &json(&plat("stat --json --blocks", &image, &["<8>".as_ref()]).out)[0]["record"]["data_blocks"][0];
    let start = usize::try_from(number(&first["disk_block"])).unwrap() * 1024;
    let mut bytes = fs::read(&image).unwrap();
    // Every block claims to be a descriptor, a revocation or a commit of one transaction or another.
    for (index, block) in bytes[start + 1024..start + 1024 * 1024].chunks_mut(1024).enumerate() {
        let seed = u32::try_from(index).unwrap();
        block.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7 + index * 13).to_le_bytes()[0]);
        block[..4].copy_from_slice(&0xC03B_3998_u32.to_be_bytes());
        block[4..8].copy_from_slice(&(seed % 6).to_be_bytes());
        block[8..12].copy_from_slice(&(seed / 3).to_be_bytes());
    }
    sparse::write(&image, &bytes).unwrap();
    let ran = plat("journal --blocks --json", &image, &[OsStr::new("--")][..0]);
    let all = json(&ran.out);
    assert!(all["transactions"].as_array().unwrap().iter().all(|one| one["state"] != "waiting"));
    let none = scratch.join("none.img");
    plat("mkfs -O ^has_journal", &none, &["32M".as_ref()]).fine();
    assert!(plat("journal", &none, &[]).failed().contains("has no journal"));
}
