//! Equal input and options give equal bytes, and so does the way through `export`.

use crate::support::{build, modest_tree, plat, succeed};
use std::fs;
use std::path::Path;
use testkit::scratch::Scratch;
use testkit::{odd, tool};

fn assert_same_bytes(left: &Path, right: &Path) {
    tool::run(tool::command("cmp").arg(left).arg(right));
}

#[test]
fn two_builds_are_the_same_bytes() {
    let scratch = Scratch::new("reproducible");
    let tree = modest_tree(&scratch, &odd::Options::modest());
    for options in
        [&["--reproducible"][..], &["--reproducible", "-t", "ext2"], &["--reproducible", "-O", "inline_data"]]
    {
        let [one, two] = ["one", "two"].map(|name| scratch.join(name));
        build(&tree, &one, options);
        build(&tree, &two, options);
        assert_same_bytes(&one, &two);
        fs::remove_file(one).unwrap();
        fs::remove_file(two).unwrap();
    }
}

#[test]
fn a_given_identity_and_date_are_honoured() {
    let scratch = Scratch::new("identity");
    let tree = modest_tree(&scratch, &odd::Options::modest());
    let [one, two] = ["one", "two"].map(|name| scratch.join(name));
    for image in [&one, &two] {
        let mut command = plat(&["build", "-U", "01234567-89ab-cdef-0123-456789abcdef"]);
        command
            .args(["-E", "hash_seed=11111111-2222-3333-4444-555555555555"])
            .env("SOURCE_DATE_EPOCH", "1700000000");
        succeed(command.arg(&tree).arg(image));
    }
    assert_same_bytes(&one, &two);
    if tool::have_tools("identity", &["dumpe2fs"]) {
        let field = |name| tool::dumpe2fs_field(&one, name).unwrap();
        assert_eq!(field("Filesystem UUID"), "01234567-89ab-cdef-0123-456789abcdef");
        assert_eq!(field("Directory Hash Seed"), "11111111-2222-3333-4444-555555555555");
        assert!(field("Filesystem created").ends_with("2023"), "{}", field("Filesystem created"));
    }
}

/// Each command that changes an image gives the same bytes each time, whatever the clock says.
#[test]
fn changes_at_a_stated_time_are_the_same_bytes() {
    let scratch = Scratch::new("changes");
    let tree = modest_tree(&scratch, &odd::Options { many: 40, ..odd::Options::modest() });
    let archive = scratch.join("tree.tar");
    odd::pack(&tree, &archive);
    let [tree, archive] = [&tree, &archive].map(|path| path.to_str().unwrap());
    let [one, two] = ["one", "two"].map(|name| scratch.join(name));
    for image in [&one, &two] {
        const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";
        let commands: Vec<Vec<&str>> = vec![
            vec![
                "mkfs",
                "-q",
                "-E",
                "hash_seed=11111111-2222-3333-4444-555555555555",
                "-U",
                UUID,
                "I",
                "64M",
            ],
            vec!["put", "-r", "I", tree, "/"],
            vec!["put", "I", archive, "/single"],
            vec!["mkdir", "I", "/unpacked"],
            vec!["import", "-q", "--to", "/unpacked", "I", archive],
            vec!["mkdir", "I", "/x"],
            vec!["cp", "-r", "I", "/tree", "/copy"],
            vec!["ln", "I", "/single", "/other"],
            vec!["mv", "I", "/other", "/x"],
            vec!["chmod", "I", "700", "/x"],
            vec!["chown", "I", "5:6", "/x"],
            vec!["xattr", "I", "/x", "--set", "user.a=b"],
            vec!["rm", "-r", "I", "/tree"],
            vec!["tune", "-L", "name", "I"],
            vec!["resize", "I", "80M"],
            vec!["defrag", "-q", "I", "/"],
        ];
        for mut words in commands {
            let image = image.to_str().unwrap();
            words.iter_mut().filter(|word| **word == "I").for_each(|word| *word = image);
            succeed(plat(&words).env("SOURCE_DATE_EPOCH", "1700000000"));
        }
        // Another second.
        std::thread::sleep(std::time::Duration::from_millis(1100));
    }
    assert_same_bytes(&one, &two);
    if tool::have_tools("changes", &["dumpe2fs", "e2fsck"]) {
        testkit::fsck::assert_clean(&one);
        assert!(tool::dumpe2fs_field(&one, "Last write time").unwrap().ends_with("2023"));
    }
    let wrong = plat(&["mkdir"]).arg(&one).arg("/y").env("SOURCE_DATE_EPOCH", "now").output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("SOURCE_DATE_EPOCH"));
}

#[test]
fn an_exported_image_builds_to_the_same_bytes() {
    let scratch = Scratch::new("again");
    let tree = modest_tree(&scratch, &odd::Options::modest());
    // Sockets do not pass through tar.
    fs::remove_file(tree.join("kinds/socket")).unwrap();
    let [one, archive, two] = ["one", "one.tar", "two"].map(|name| scratch.join(name));
    build(&tree, &one, &["--reproducible"]);
    succeed(plat(&["export"]).arg(&one).arg(&archive));
    build(&archive, &two, &["--reproducible"]);
    assert_same_bytes(&one, &two);
}
