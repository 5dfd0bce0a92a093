use super::{Options, make, pack};
use crate::scratch::Scratch;
use crate::snapshot::{Rules, Snapshot, assert_same, differences};
use crate::tool;
use std::fs;

#[test]
fn it_is_the_same_tree_each_time() {
    let scratch = Scratch::new("odd");
    let [left, right] = ["left", "right"].map(|name| {
        fs::create_dir(scratch.join(name)).unwrap();
        make(&scratch.join(name), &Options::modest());
        Snapshot::of(&scratch.join(name)).unwrap()
    });
    // Only `times` and the root have their times set; the others are "now".
    assert_same(&left, &right, &Rules { times: false, ..Rules::default() });
    let set = |tree: &Snapshot| tree.entries[b"times/year-2400".as_slice()].mtime;
    assert_eq!((set(&left), set(&right)), ((13_569_465_600, 5), (13_569_465_600, 5)));
}

#[test]
fn gnu_tar_carries_all_but_sockets() {
    if !tool::have_root("odd tree through tar") || !tool::have_tools("odd tree through tar", &["tar"]) {
        return;
    }
    let scratch = Scratch::new("odd");
    let [source, archive, copy] = ["source", "archive.tar", "copy"].map(|name| scratch.join(name));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&copy).unwrap();
    make(&source, &Options { many: 10, ..Options::default() });
    pack(&source, &archive);
    let mut extract = tool::command("tar");
    extract.args(["--xattrs", "--xattrs-include=*", "--acls", "--same-owner", "-xpf"]).arg(&archive);
    tool::run(extract.arg("-C").arg(&copy));
    let [source, copy] = [source, copy].map(|root| Snapshot::of(&root).unwrap());
    let rules = Rules { sockets: false, ..Rules::default() };
    let mut found = differences(&source, &copy, &rules);
    // GNU tar writes each name of a fifo as a fifo of its own.
    found.retain(|line| !line.starts_with("kinds/fifo"));
    assert_eq!(found, Vec::<String>::new());
}
