//! Wrong values of options: exit code 2, and a message that names the option and no library's words.

use crate::support::plat;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use testkit::scratch::Scratch;

/// Options for the format of a volume, each with a value that no volume can have.
const FORMAT: [(&str, &str); 43] = [
    ("-t", "ext5"),
    ("-T", "tiny"),
    ("-b", "3000"),
    ("-b", "512"),
    ("-b", "131072"),
    ("-b", "x"),
    ("-b", "-3000"),
    ("-b", "99999999999999999999"),
    ("-C", "65536"),
    ("-C", "1.5"),
    ("-I", "100"),
    ("-I", "300"),
    ("-I", "99999999"),
    ("-i", "5"),
    ("-i", "99999999999"),
    ("-N", "99999999999"),
    ("-N", "many"),
    ("-O", "nosuch"),
    ("-O", "bigalloc,^extent"),
    ("-E", "nosuch"),
    ("-E", "stride=x"),
    ("-E", "stride=99999999"),
    ("-E", "num_backup_sb=3"),
    ("-E", "mmp_update_interval=301"),
    ("-E", "root_owner=a:b"),
    ("-E", "root_perms=99999"),
    ("-E", "hash_seed=1"),
    ("-J", "size=x"),
    ("-J", "size=0"),
    ("-J", "speed=1"),
    ("-J", "fast_commit_size=64"),
    ("-L", "a label of more than sixteen bytes"),
    ("-M", "/a/directory/of/more/than/sixty-four/bytes/is/too/much/for/its/field/in/it"),
    ("-U", "1234"),
    ("-m", "80"),
    ("-m", "-1"),
    ("-m", "NaN"),
    ("-g", "7"),
    ("-g", "99999999999"),
    ("-G", "3"),
    ("-G", "0"),
    ("-e", "explode"),
    ("-r", "2"),
];

/// Words of libraries that say nothing to a user.
const RAW: [&str; 6] = [
    "number would be zero",
    "invalid digit",
    "out of range integral",
    "os error",
    "cannot parse integer",
    "number too large to fit",
];

/// Runs a command line that is wrong, and asserts how it says so.
fn wrong(arguments: &[OsString], named: &str) {
    let words: Vec<&str> = arguments.iter().map(|word| word.to_str().unwrap()).collect();
    let output = plat(&words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
    assert!(said.contains(named), "{words:?} does not name {named}: {said}");
    assert!(RAW.iter().all(|raw| !said.contains(raw)), "{words:?}: {said}");
    let help = format!("plat {} --help", words[0]);
    assert!(said.contains(&help), "{words:?} does not name `{help}`: {said}");
    assert!(output.stdout.is_empty(), "{words:?}");
}

fn line(words: &[&str], paths: &[&Path]) -> Vec<OsString> {
    let words = words.iter().map(OsString::from);
    words.chain(paths.iter().map(|path| path.as_os_str().to_owned())).collect()
}

#[test]
fn of_the_format() {
    let scratch = Scratch::new("options");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    let image = scratch.join("image");
    for (option, value) in FORMAT {
        wrong(&line(&["build", option, value], &[&tree, &image]), option);
        let mut mkfs = line(&["mkfs", option, value], &[&image]);
        mkfs.push("64M".into());
        wrong(&mkfs, option);
        assert!(!image.exists(), "{option} {value}");
    }
}

#[test]
fn of_build() {
    let scratch = Scratch::new("build-options");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "x").unwrap();
    let image = scratch.join("image");
    for (option, value) in [
        ("--size", "1.5"),
        ("--size", "much"),
        ("--size", "99999999T"),
        ("--owner", "1"),
        ("--owner", "root:"),
        ("--owner", "nobody-of-that-name:0"),
        ("--map-uid", "1:2"),
        ("--map-uid", "1:2:0"),
        ("--map-gid", "a:b:c"),
        ("--exclude", "["),
        ("--prefix", "../up"),
        ("--platform", ""),
        ("--platform", "linux"),
        ("--platform", "linux/arm64"),
        ("--tag", ""),
        ("--tag", "latest"),
        ("--jobs", "0"),
        ("--jobs", "x"),
        ("--jobs", "99999999999999999999"),
    ] {
        wrong(&line(&["build", option, value], &[&tree, &image]), option);
        assert!(!image.exists(), "{option} {value}");
    }
    for option in ["--map-uid", "--map-gid"] {
        let both = ["build", option, "0:1000:10", option, "9:0:1"];
        wrong(&line(&both, &[&tree, &image]), option);
    }
}

/// Options that need no volume to be wrong.
#[test]
fn of_other_commands() {
    let scratch = Scratch::new("other-options");
    let image = scratch.join("image");
    let image = image.to_str().unwrap();
    for (words, named) in [
        (&["ls", "--nosuch", image][..], "--nosuch"),
        (&["tree", "-L", "0", image], "--levels"),
        (&["tree", "-L", "x", image], "--levels"),
        (&["frag", "--worst", "x", image], "--worst"),
        (&["frag", "--worst", "99999999", image], "--worst"),
        (&["mkdir", "-m", "9", image, "/d"], "--mode"),
        (&["mkdir", "--owner", "1x", image, "/d"], "--owner"),
        (&["put", "--owner", "1x", image, "f", "/f"], "--owner"),
        (&["mount", "--threads", "0", image, "/mnt"], "--threads"),
        (&["mount", "--threads", "x", image, "/mnt"], "--threads"),
        (&["mount", "-o", "nosuchoption", image, "/mnt"], "nosuchoption"),
        (&["xattr", "--set", "novalue", image, "/f"], "--set"),
        (&["chmod", image, "9999", "/f"], "9999"),
        (&["chown", image, "1x", "/f"], "USER:GROUP"),
        (&["map", "-o", "map.doc", image], "map.doc"),
    ] {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        wrong(&words, named);
    }
}

#[test]
fn what_the_system_says_comes_without_its_number() {
    let scratch = Scratch::new("no-number");
    for command in ["ls", "info", "check", "cat", "frag", "freefrag", "export"] {
        let mut line = plat(&[command]);
        line.arg(scratch.join("missing"));
        if matches!(command, "cat" | "export") {
            line.arg("/x");
        }
        let output = line.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && !said.contains("os error"), "{command}: {said}");
        assert!(said.to_lowercase().contains("no such file"), "{command}: {said}");
    }
}
