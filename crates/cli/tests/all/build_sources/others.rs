//! Sources as other programs leave them: layers of overlayfs, archives that were cut off, tables of Android, builds under
//! fakeroot; outputs at odd places; trees in use.

use super::InMemory;
use super::{assert_holds, extracted};
use crate::support::{build, caged, fail, plat, succeed};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::scratch::Scratch;
use testkit::snapshot::Rules;
use testkit::{fsck, tool};

fn write(path: PathBuf, contents: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, contents).unwrap();
}

fn pack(tree: &Path, archive: &Path, options: &[&str]) {
    let mut tar = tool::command("tar");
    tool::run(tar.args(options).arg("-C").arg(tree).arg("-cf").arg(archive).arg("."));
}

fn text(command: &mut Command) -> String {
    String::from_utf8(succeed(command).stdout).unwrap()
}

/// The messages of a command that has done what it could and ends with 1.
fn in_part(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

/// The tree that overlayfs shows for one layer over another.
fn shown_by_linux(scratch: &Scratch, (low, high): (&Path, &Path)) -> Option<testkit::snapshot::Snapshot> {
    let (merged, archive) = (scratch.join("merged"), scratch.join("merged.tar"));
    fs::create_dir(&merged).unwrap();
    let script = "mount -t overlay -o ro,lowerdir=$2:$1 overlay $3 || exit 77
        tar --xattrs '--xattrs-include=*' -C $3 -cf $4 .";
    let mut command = tool::command("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).args([low, high, &merged, &archive]);
    let done = command.output().unwrap();
    match done.status.code() {
        Some(77) => None,
        code => {
            assert_eq!(code, Some(0), "{}", String::from_utf8_lossy(&done.stderr));
            Some(extracted(&archive, &scratch.join("expected")))
        }
    }
}

#[test]
fn layers_of_overlayfs_are_as_linux_shows_them() {
    let test = "layers_of_overlayfs_are_as_linux_shows_them";
    if !tool::have_root(test) || !tool::have_tools(test, &["unshare", "mount", "mknod", "setfattr", "tar"]) {
        return;
    }
    let scratch = Scratch::new("overlayfs");
    let (low, high) = (scratch.join("low"), scratch.join("high"));
    for name in ["gone", "tree/gone/deep", "opaque/old", "opaque/sub/old", "joined/low", "kept"] {
        write(low.join(name), name);
    }
    for name in ["opaque/new", "joined/high", "kept"] {
        write(high.join(name), "high");
    }
    let set = |name: &str, value: &str, path: PathBuf| {
        tool::run(tool::command("setfattr").args(["-n", name, "-v", value]).arg(path));
    };
    for name in ["gone", "tree/gone", "none"] {
        fs::create_dir_all(high.join(name).parent().unwrap()).unwrap();
        tool::run(tool::command("mknod").arg(high.join(name)).args(["c", "0", "0"]));
    }
    set("trusted.overlay.opaque", "y", high.join("opaque"));
    set("trusted.overlay.origin", "0x00", high.join("joined"));
    set("user.kept", "1", high.join("joined"));
    tool::run(tool::command("mknod").arg(high.join("device")).args(["c", "1", "3"]));
    let Some(expected) = shown_by_linux(&scratch, (&low, &high)) else {
        return tool::skip(test, "overlayfs can't be mounted in a namespace");
    };
    let archive = scratch.join("high.tar");
    pack(&high, &archive, &["--xattrs", "--xattrs-include=*"]);
    for (number, upper) in [&high, &archive].into_iter().enumerate() {
        let image = scratch.join(format!("image-{number}"));
        succeed(plat(&["build"]).arg(&low).arg(upper).arg(&image));
        assert_holds(test, &image, &expected, Rules { times: false, ..Rules::default() });
    }
    // Alone it is a tree like any other.
    let alone = scratch.join("alone");
    build(&high, &alone, &[]);
    assert!(text(plat(&["ls", "-l"]).arg(&alone).arg("/")).contains("0, 0"));
    for (key, word) in [("redirect", "redirect_dir=off"), ("metacopy", "metacopy=off")] {
        set(&format!("trusted.overlay.{key}"), "x", high.join("joined"));
        let said = fail(plat(&["build"]).arg(&low).arg(&high).arg(scratch.join("none")));
        assert!(said.contains("`joined`") && said.contains(word), "{said}");
        tool::run(
            tool::command("setfattr")
                .args(["-x", &format!("trusted.overlay.{key}")])
                .arg(high.join("joined")),
        );
    }
}

#[test]
fn an_import_goes_through_links_to_directories() {
    let scratch = Scratch::new("import-links");
    let (tree, more) = (scratch.join("tree"), scratch.join("more"));
    write(tree.join("usr/lib/old"), "old");
    for (target, name) in [
        ("usr/lib", "lib"),
        ("/usr/../usr/./lib", "usr/absolute"),
        ("../../../../usr/lib", "usr/above"),
        ("circle", "circle"),
        ("nowhere", "dangling"),
        ("usr/lib/old", "file"),
    ] {
        symlink(target, tree.join(name)).unwrap();
    }
    let image = scratch.join("image");
    build(&tree, &image, &["--size", "8M"]);
    write(more.join("lib/modules/ko"), "module");
    write(more.join("usr/absolute/a/b"), "absolute");
    write(more.join("usr/above/c"), "above");
    fs::hard_link(more.join("lib/modules/ko"), more.join("usr/second")).unwrap();
    let archive = scratch.join("more.tar");
    pack(&more, &archive, &["--sort=name"]);
    succeed(plat(&["import", "-q"]).arg(&image).arg(&archive));
    fsck::assert_clean(&image);
    for (path, contents) in [
        ("/usr/lib/modules/ko", "module"),
        ("/usr/lib/a/b", "absolute"),
        ("/usr/lib/c", "above"),
        ("/usr/second", "module"),
    ] {
        assert_eq!(text(plat(&["cat"]).arg(&image).arg(path)), contents, "{path}");
    }
    let links = text(plat(&["ls", "-l"]).arg(&image).args(["/", "/usr"]));
    for link in ["lib -> usr/lib", "absolute -> /usr/../usr/./lib"] {
        assert!(links.contains(link), "{links}");
    }
    for (name, word) in [("circle/x", "more than 40"), ("dangling/x", "not there"), ("file/x", "directory")] {
        let (wrong, archive) = (scratch.join("wrong"), scratch.join("wrong.tar"));
        write(wrong.join(name), "");
        tool::run(tool::command("tar").arg("-C").arg(&wrong).arg("-cf").arg(&archive).arg(name));
        let said = fail(plat(&["import", "-f"]).arg(&image).arg(&archive));
        assert!(said.contains(word), "{said}");
        fs::remove_dir_all(&wrong).unwrap();
    }
    // Below a directory that all goes to, links lead on in it only.
    write(scratch.join("chroot/root/usr/lib/x"), "");
    symlink("/usr/lib", scratch.join("chroot/root/lib")).unwrap();
    let image = scratch.join("chroot.img");
    build(&scratch.join("chroot"), &image, &["--size", "8M"]);
    pack(&more, &archive, &["--sort=name", "--exclude=./usr"]);
    succeed(plat(&["import", "-q", "--to", "/root"]).arg(&image).arg(&archive));
    assert_eq!(text(plat(&["cat"]).arg(&image).arg("/root/usr/lib/modules/ko")), "module");
}

/// GNU tar writes names of groups into lists; their numbers are those of the tree that an archive goes over.
#[test]
fn names_in_lists_are_those_of_lower_layers() {
    let test = "names_in_lists_are_those_of_lower_layers";
    if !tool::have_root(test) || !tool::have_tools(test, &["tar", "setfacl"]) {
        return;
    }
    let scratch = Scratch::new("names-below");
    let (low, high) = (scratch.join("low"), scratch.join("high"));
    write(low.join("etc/group"), "root:x:0:\nadm:x:44:\n");
    write(high.join("journal/x"), "");
    tool::run(tool::command("setfacl").args(["-m", "g:adm:rx"]).arg(high.join("journal")));
    let (archive, lower) = (scratch.join("high.tar"), scratch.join("low.tar"));
    pack(&high, &archive, &["--acls"]);
    pack(&low, &lower, &[]);
    let group = "080005002c000000";
    let listed = |image: &Path| text(plat(&["xattr"]).arg(image).arg("/journal"));
    for (number, below) in [&low, &lower].into_iter().enumerate() {
        let image = scratch.join(format!("image-{number}"));
        succeed(plat(&["build", "-q"]).arg(below).arg(&archive).arg(&image));
        assert!(listed(&image).contains(group), "{}", listed(&image));
    }
    let image = scratch.join("imported");
    build(&low, &image, &["--size", "8M"]);
    succeed(plat(&["import", "-q"]).arg(&image).arg(&archive));
    assert!(listed(&image).contains(group), "{}", listed(&image));
    let said = fail(plat(&["build"]).arg(&archive).arg(scratch.join("none")));
    assert!(said.contains("adm"), "{said}");
}

#[test]
fn an_image_goes_to_standard_output() {
    let scratch = Scratch::new("to-stdout");
    let (tree, named, file) = (scratch.join("tree"), scratch.join("named"), scratch.join("file"));
    write(tree.join("d/f"), "contents");
    build(&tree, &named, &["--reproducible", "--size", "64M"]);
    let expected = fs::read(&named).unwrap();
    let begin = || {
        let mut command = plat(&["build", "--reproducible", "--size", "64M"]);
        command.arg(&tree).arg("-").env("TMPDIR", scratch.path());
        command
    };
    assert!(succeed(&mut begin()).stdout == expected, "by a pipe");
    let status = begin().stdout(File::create(&file).unwrap()).status().unwrap();
    assert!(status.success() && fs::read(&file).unwrap() == expected);
    assert!(fs::metadata(&file).unwrap().blocks() <= fs::metadata(&named).unwrap().blocks() + 64, "holes");
    // What a file holds already is not taken for zeros.
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    let again = File::options().write(true).open(&file).unwrap();
    assert!(begin().stdout(again).status().unwrap().success() && fs::read(&file).unwrap() == expected);
    let names: Vec<_> =
        fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let output = plat(&["build", "--json"]).arg(&tree).arg("-").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn sources_are_never_replaced_and_outputs_are_no_sources() {
    let test = "sources_are_never_replaced_and_outputs_are_no_sources";
    if !tool::have_tools(test, &["tar", "gzip"]) {
        return;
    }
    let scratch = Scratch::new("spared");
    let tree = scratch.join("tree");
    write(tree.join("f"), "contents");
    let [one, two] = ["one.tar", "two.tar"].map(|name| scratch.join(name));
    pack(&tree, &one, &[]);
    pack(&tree, &two, &["--gzip"]);
    for (sources, output) in [(vec![&one], &two), (vec![&tree, &two, &one], &one), (vec![&one], &one)] {
        let before = fs::read(output).unwrap();
        for option in [None, Some("--force")] {
            let said = fail(plat(&["build"]).args(option).args(&sources).arg(output));
            assert!(said.contains("comes last") && fs::read(output).unwrap() == before, "{said}");
        }
    }
    // An image that is replaced inside the tree that it is made of.
    let inside = tree.join("out.img");
    succeed(plat(&["build", "-q"]).arg(&tree).arg(&inside));
    let said = succeed(plat(&["build", "-q", "--force"]).arg(&tree).arg(&inside)).stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("`out.img` is left out"), "{said}");
    assert_eq!(text(plat(&["ls"]).arg(&inside)), "f\nlost+found\n");
    // One that is not named is a file like others.
    build(&tree, &scratch.join("other.img"), &[]);
    assert!(text(plat(&["ls"]).arg(scratch.join("other.img"))).contains("out.img"));
}

#[test]
fn what_is_cut_off_is_taken_as_far_as_it_goes() {
    let test = "what_is_cut_off_is_taken_as_far_as_it_goes";
    if !tool::have_tools(test, &["tar", "gzip"]) {
        return;
    }
    let scratch = Scratch::new("cut-off");
    let tree = scratch.join("tree");
    let mut state = 1_u32;
    let mut letter = || {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        char::from(b'!' + u8::try_from(state >> 16 & 63).unwrap())
    };
    let noise: String = (0..200_000).map(|_| letter()).collect();
    for name in ["a", "b", "c"] {
        write(tree.join(name), &format!("{name}{noise}"));
    }
    for (name, options) in [("plain.tar", &["--sort=name"][..]), ("packed.tar", &["--sort=name", "--gzip"])] {
        let archive = scratch.join(name);
        pack(&tree, &archive, options);
        let whole = fs::read(&archive).unwrap();
        fs::write(&archive, &whole[..whole.len() / 2]).unwrap();
        let image = scratch.join("image");
        fail(plat(&["build"]).arg(&archive).arg(&image));
        assert!(!image.exists());
        let said = in_part(plat(&["build", "-q", "--keep-going"]).arg(&archive).arg(&image));
        assert!(said.contains("what stands before is taken"), "{said}");
        fsck::assert_clean(&image);
        assert_eq!(text(plat(&["ls"]).arg(&image)), "a\nlost+found\n", "{name}");
        fs::remove_file(&image).unwrap();
        succeed(plat(&["mkfs", "-q"]).arg(&image).arg("8M"));
        in_part(plat(&["import", "-q", "--keep-going"]).arg(&image).arg(&archive));
        assert_eq!(text(plat(&["ls"]).arg(&image)), "a\nlost+found\n", "{name}");
        fs::remove_file(&image).unwrap();
    }
    // All entries are there, and what is packed is damaged behind them.
    let archive = scratch.join("trailer.tar");
    pack(&tree, &archive, &["--sort=name", "--gzip"]);
    let mut bytes = fs::read(&archive).unwrap();
    let trailer = bytes.len() - 8;
    bytes[trailer] ^= 1;
    fs::write(&archive, &bytes).unwrap();
    let image = scratch.join("image");
    succeed(plat(&["mkfs", "-q"]).arg(&image).arg("8M"));
    fail(plat(&["import", "-q"]).arg(&image).arg(&archive));
    succeed(plat(&["mkfs", "-q", "--force"]).arg(&image).arg("8M"));
    let said = in_part(plat(&["import", "-q", "--keep-going"]).arg(&image).arg(&archive));
    assert!(said.contains("trailer.tar") && said.contains("what stands before is taken"), "{said}");
    assert_eq!(text(plat(&["ls"]).arg(&image)), "a\nb\nc\nlost+found\n");
    // What is packed otherwise is named, with what unpacks it.
    for (start, word) in [(&b"BZh91AY&SY"[..], "bunzip2"), (b"070701", "cpio"), (b"PK\x03\x04", "zip")] {
        let archive = scratch.join("other");
        fs::write(&archive, [start, &[7; 4096]].concat()).unwrap();
        let said = fail(plat(&["build"]).arg(&archive).arg(scratch.join("none")));
        assert!(said.contains(word), "{said}");
        let input = File::open(&archive).unwrap();
        let said = fail(plat(&["build", "-"]).arg(scratch.join("none")).stdin(Stdio::from(input)));
        assert!(said.contains("tar") || said.contains(word), "{said}");
    }
}

#[test]
fn tables_of_android_hold_below_a_mount_point() {
    let scratch = Scratch::new("android");
    let tree = scratch.join("tree");
    write(tree.join("bin/sh"), "x");
    write(tree.join("etc/x"), "");
    let [owners, labels] = ["fs_config", "file_contexts"].map(|name| scratch.join(name));
    fs::write(
        &owners,
        "vendor 0 2000 0751\nvendor/bin 0 2000 0751\nvendor/bin/sh 0 2000 0755 capabilities=0x2000\n\
         vendor/etc 0 0 0755\nvendor/etc/x 1 2 0640\n",
    )
    .unwrap();
    fs::write(&labels, "/vendor(/.*)? u:object_r:vendor_file:s0\n").unwrap();
    let image = scratch.join("image");
    let tables = ["--fs-config", owners.to_str().unwrap(), "--file-contexts", labels.to_str().unwrap()];
    build(&tree, &image, &[&tables[..], &["--mount-point", "/vendor"]].concat());
    fsck::assert_clean(&image);
    let listed = text(plat(&["ls", "-l"]).arg(&image).args(["/", "/bin", "/etc"]));
    let words: Vec<String> =
        listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let has =
        |start: &str, end: &str| words.iter().any(|line| line.starts_with(start) && line.ends_with(end));
    assert!(has("drwxr-x--x 2 0 2000", " bin") && has("-rwxr-xr-x 1 0 2000", " sh"), "{listed}");
    assert!(has("-rw-r----- 1 1 2", " x"), "{listed}");
    let attributes = text(plat(&["xattr"]).arg(&image).args(["/bin/sh", "/"]));
    assert!(attributes.contains("/bin/sh: security.capability=0x0100000200200000"), "{attributes}");
    assert_eq!(attributes.matches("security.selinux").count(), 2, "{attributes}");
    let said = fail(plat(&["build"]).args(tables).arg(&tree).arg(scratch.join("none")));
    assert!(said.contains("no line says") && said.contains("--mount-point"), "{said}");
    let done = succeed(plat(&["build", "-q"]).args(&tables[2..]).arg(&tree).arg(scratch.join("other")));
    assert!(String::from_utf8_lossy(&done.stderr).contains("no path matches"));
}

#[test]
fn extended_options_about_trees_are_done_or_refused() {
    let test = "extended_options_about_trees_are_done_or_refused";
    if !tool::have_tools(test, &["setfattr"]) {
        return;
    }
    let scratch = Scratch::new("extended");
    let tree = scratch.join("tree");
    write(tree.join("f"), "");
    tool::run(tool::command("setfattr").args(["-n", "user.x", "-v", "1"]).arg(tree.join("f")));
    let listed = |image: &Path| text(plat(&["xattr"]).arg(image).arg("/f"));
    let (with, without) = (scratch.join("with"), scratch.join("without"));
    build(&tree, &with, &[]);
    build(&tree, &without, &["-E", "no_copy_xattrs"]);
    assert!(listed(&with).contains("user.x=1") && !listed(&without).contains("user.x"));
    let said = plat(&["mkfs", "-E", "android_sparse"]).arg(scratch.join("none")).arg("8M").output().unwrap();
    assert!(said.status.code() == Some(2) && String::from_utf8_lossy(&said.stderr).contains(".simg"));
    succeed(plat(&["mkfs", "-q", "-t", "ext2", "-E", "revision=0"]).arg(scratch.join("old")).arg("8M"));
    assert!(text(plat(&["info"]).arg(scratch.join("old"))).contains("0 (original)"));
}

#[test]
fn owners_outside_of_all_ranges_and_closed_roots_are_told() {
    let test = "owners_outside_of_all_ranges_and_closed_roots_are_told";
    if !tool::have_root(test) {
        return;
    }
    let scratch = Scratch::new("outside");
    let tree = scratch.join("tree");
    for (name, owner) in [("a", 100_000), ("b", 1000), ("c", 1001)] {
        write(tree.join(name), "");
        std::os::unix::fs::chown(tree.join(name), Some(owner), Some(100_000)).unwrap();
    }
    std::os::unix::fs::chown(&tree, Some(100_000), Some(100_000)).unwrap();
    let ranges = ["--map-uid", "100000:0:65536", "--map-gid", "100000:0:65536"];
    let said = |options: &[&str]| {
        let done = succeed(plat(&["build", "-q", "--force"]).args(options).arg(&tree).arg(scratch.join("i")));
        String::from_utf8(done.stderr).unwrap()
    };
    let told = said(&ranges);
    assert!(told.lines().count() == 1 && told.contains("2 files keep an owner"), "{told}");
    assert_eq!(said(&[&ranges[..], &["--owner", "0:0"]].concat()), "");
    assert_eq!(said(&[]), "");
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o700)).unwrap();
    let told = said(&[]);
    assert!(told.contains("mode 0700") && told.contains("root_perms=0755"), "{told}");
    assert_eq!(said(&["-E", "root_perms=0700"]), "");
}

/// Under fakeroot and pseudo, which answer for the kernel by LD_PRELOAD, trees have the owners and devices that these say.
#[test]
fn fakeroot_is_believed() {
    let test = "fakeroot_is_believed";
    if !tool::have_root(test) || !tool::have_tools(test, &["fakeroot", "setpriv", "mke2fs"]) {
        return;
    }
    let scratch = Scratch::new("fakeroot");
    let (command, work) = (scratch.join("plat"), scratch.join("work"));
    fs::copy(env!("CARGO_BIN_EXE_plat"), &command).unwrap();
    fs::create_dir(&work).unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(&work, Some(65_534), Some(65_534)).unwrap();
    let script =
        "set -e; mkdir -p t/dev; echo x >t/f; chown 123:456 t/f; chmod 4755 t/f; mknod t/dev/null c 1 3
        chown 0:0 t t/dev; chown 7:8 t/dev/null; ../plat build -q --size 8M t b.img
        ../plat export b.img out/; stat -c '%n %a %u:%g %t:%T' out/f out/dev/null
        ../plat --sandbox=require ls b.img && exit 1; exit 0";
    let mut fakeroot = tool::command("setpriv");
    fakeroot.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "fakeroot", "sh", "-c", script]);
    let shown = text(fakeroot.current_dir(&work));
    assert_eq!(shown, "out/f 4755 123:456 0:0\nout/dev/null 644 7:8 1:3\n");
    let listed = text(plat(&["ls", "-l"]).arg(work.join("b.img")).args(["/", "/dev"]));
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = listed.lines().map(words).collect();
    assert!(
        lines.iter().any(|line| line.starts_with("-rwsr-xr-x 1 123 456") && line.ends_with(" f")),
        "{listed}"
    );
    assert!(lines.iter().any(|line| line.starts_with("crw-r--r-- 1 7 8 1, 3")), "{listed}");
}

/// An OCI layout of one layer, with the layer's tree and the configuration.
fn container(scratch: &Scratch) -> (PathBuf, PathBuf, &'static str) {
    let (tree, layout) = (scratch.join("tree"), scratch.join("layout"));
    write(tree.join("f"), "contents");
    let config = r#"{"os":"linux","architecture":"amd64","config":{"User":"12:34","Entrypoint":["/bin/x","-y"],
        "Env":["A=b","C=d"],"Labels":{"k":"v"}},"rootfs":{"type":"layers","diff_ids":["sha256:0"]}}"#;
    pack(&tree, &scratch.join("layer.tar"), &[]);
    let layer = super::blob(&layout, &fs::read(scratch.join("layer.tar")).unwrap());
    let blob = super::blob(&layout, config.as_bytes());
    let manifest = format!(
        r#"{{"config":{{"digest":"sha256:{}","size":{}}},"layers":[{{"digest":"sha256:{}","size":{}}}]}}"#,
        blob.0, blob.1, layer.0, layer.1
    );
    let (digest, size) = super::blob(&layout, manifest.as_bytes());
    fs::write(layout.join("oci-layout"), "{}").unwrap();
    let index = format!(r#"{{"manifests":[{{"digest":"sha256:{digest}","size":{size}}}]}}"#);
    fs::write(layout.join("index.json"), index).unwrap();
    (tree, layout, config)
}

/// A command with its cage, in the first directory, with files that lie in the second.
fn caged_in(near: &Scratch, cage: &[&str], words: &[&str]) -> Command {
    let mut command = plat(words);
    command.args(cage).current_dir(near.path()).env_remove("TMPDIR");
    command
}

#[test]
fn all_that_a_build_opens_is_in_its_cage() {
    let test = "all_that_a_build_opens_is_in_its_cage";
    if !tool::have_tools(test, &["sha256sum", "tar", "gzip"]) {
        return;
    }
    let (near, far) = (Scratch::new("cage-near"), Scratch::new("cage-far"));
    let (tree, layout, config) = container(&far);
    let (archive, owners, written) =
        (far.join("layout.tar.gz"), far.join("fs_config"), far.join("written.json"));
    pack(&layout, &archive, &["-z"]);
    fs::write(&owners, "vendor 0 2000 0751\nvendor/f 1 2 0640\n").unwrap();
    symlink(&owners, near.join("owners")).unwrap();
    symlink(&archive, near.join("archive")).unwrap();
    let cage = caged(test);
    let run =
        |words: &[&str]| succeed(&mut caged_in(&near, cage, &[&["build", "-q"], words].concat())).stdout;
    let name = |path: &Path| path.to_str().unwrap().to_owned();
    // Standard output: the image is made among temporary files.
    for source in [name(&tree), name(&archive)] {
        assert!(run(&[&source, "-"]).len() > 1 << 20);
    }
    for table in [name(&owners), "owners".to_owned()] {
        run(&["--force", "--fs-config", &table, "--mount-point", "/vendor", &name(&tree), "owned.img"]);
        assert!(text(plat(&["ls", "-l"]).arg(near.join("owned.img"))).contains("-rw-r-----"));
    }
    run(&["--image-config", &name(&written), "archive", "image.img"]);
    assert_eq!(fs::read_to_string(&written).unwrap(), config);
    if !tool::have_root(test) || !tool::have_tools(test, &["losetup"]) {
        return;
    }
    // A device: what is packed is unpacked among temporary files.
    File::create(near.join("disk")).unwrap().set_len(16 << 20).unwrap();
    let device = tool::text("losetup", &["-f", "--show", near.join("disk").to_str().unwrap()]);
    let done = caged_in(&near, cage, &["build", "-q", "--force", "archive", device.trim()]).output().unwrap();
    tool::run(tool::command("losetup").args(["-d", device.trim()]));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(text(plat(&["cat"]).arg(near.join("disk")).arg("/f")), "contents");
}

#[test]
fn no_output_of_a_build_is_a_source_or_another_output() {
    let test = "no_output_of_a_build_is_a_source_or_another_output";
    if !tool::have_tools(test, &["sha256sum", "tar"]) {
        return;
    }
    let scratch = Scratch::new("apart");
    let (tree, layout, _) = container(&scratch);
    pack(&layout, &scratch.join("image.tar"), &[]);
    pack(&tree, &scratch.join("other.tar"), &[]);
    fs::hard_link(scratch.join("image.tar"), scratch.join("hard")).unwrap();
    symlink("image.tar", scratch.join("soft")).unwrap();
    symlink("new.img", scratch.join("to-new")).unwrap();
    write(scratch.join("table"), "/f f 644 1 2 - - - - -\n");
    build(&tree, &scratch.join("old.img"), &[]);
    fs::hard_link(scratch.join("old.img"), scratch.join("hard.img")).unwrap();
    let before = || {
        let files = ["image.tar", "other.tar", "table", "old.img"];
        files.map(|name| fs::read(scratch.join(name)).unwrap())
    };
    let kept = before();
    let run = |line: &str, input: Stdio| {
        let mut command = plat(&["build", "--force"]);
        command.args(line.split(' ')).current_dir(scratch.path()).stdin(input);
        let done = command.output().unwrap();
        assert!(kept == before(), "{line}");
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    for line in [
        "--image-config old.img image.tar old.img",
        "--image-config hard.img image.tar old.img",
        "--image-config new.img image.tar to-new",
        "--image-config ./new.img image.tar new.img",
        "--image-config m --bmap m image.tar new.img",
        "--bmap new.img tree new.img",
        "--bmap m --verity=./m tree new.img",
    ] {
        let (code, said) = run(line, Stdio::null());
        assert!(code == Some(2) && said.contains("names of their own"), "{line}: {said}");
        assert!(!scratch.join("new.img").exists() && !scratch.join("m").exists(), "{line}");
    }
    for line in [
        "--image-config image.tar image.tar new.img",
        "--image-config hard image.tar new.img",
        "--image-config soft image.tar new.img",
        "--image-config other.tar image.tar new.img",
        "--bmap hard image.tar new.img",
        "--verity=soft image.tar new.img",
        "--pseudo table --bmap table tree new.img",
        "--like old.img --bmap hard.img tree new.img",
        "image.tar soft",
        "image.tar other.tar",
    ] {
        let (code, said) = run(line, Stdio::null());
        assert!(code == Some(1) && said.contains("never replaced"), "{line}: {said}");
        assert!(!scratch.join("new.img").exists(), "{line}");
    }
    let stream = File::open(scratch.join("image.tar")).unwrap();
    let (code, said) = run("--image-config hard - new.img", stream.into());
    assert!(code == Some(1) && said.contains("is a source"), "{said}");
    // An image takes the place of the one that it is made like.
    succeed(
        plat(&["build", "-q", "--force", "--like"])
            .current_dir(scratch.path())
            .args(["old.img", "tree", "old.img"]),
    );
    succeed(plat(&["build", "-q", "--bmap", "m", "tree", "new.img"]).current_dir(scratch.path()));
    succeed(plat(&["build", "-q", "--bmap", "m", "--force", "tree", "new.img"]).current_dir(scratch.path()));
}

#[test]
fn no_output_of_a_reader_is_its_image() {
    let scratch = Scratch::new("own-output");
    let tree = scratch.join("tree");
    write(tree.join("f"), "contents");
    build(&tree, &scratch.join("a.tar"), &["--format", "raw"]);
    fs::hard_link(scratch.join("a.tar"), scratch.join("b.tar")).unwrap();
    symlink("a.tar", scratch.join("c.tar")).unwrap();
    let before = fs::read(scratch.join("a.tar")).unwrap();
    for words in [&["get", "a.tar", "/f"][..], &["export", "a.tar"], &["image", "--metadata", "a.tar"]] {
        for out in ["a.tar", "b.tar", "c.tar"] {
            let said = fail(plat(words).args([out, "--force"]).current_dir(scratch.path()));
            assert!(said.contains("is the image itself"), "{words:?} {out}: {said}");
        }
    }
    build(&tree, &scratch.join("other"), &[]);
    let words = ["diff", "other", "a.tar", "--force", "-o", "b.tar"];
    assert!(fail(plat(&words).current_dir(scratch.path())).contains("is the image itself"));
    assert!(before == fs::read(scratch.join("a.tar")).unwrap());
    succeed(plat(&["get", "a.tar", "/f", "got"]).current_dir(scratch.path()));
}

#[test]
fn a_damaged_configuration_is_named() {
    let test = "a_damaged_configuration_is_named";
    if !tool::have_tools(test, &["sha256sum", "tar"]) {
        return;
    }
    let scratch = Scratch::new("configuration");
    let (_, layout, config) = container(&scratch);
    let (digest, _) = super::blob(&layout, config.as_bytes());
    let blob = layout.join("blobs/sha256").join(&digest);
    let damage: [&dyn Fn(); 2] = [&|| fs::write(&blob, config.replace("12:34", "12:35")).unwrap(), &|| {
        fs::remove_file(&blob).unwrap()
    }];
    for damage in damage {
        damage();
        let said = fail(plat(&["info"]).arg(&layout));
        assert!(said.contains(&format!("configuration sha256:{digest}")), "{said}");
        // The files are whole.
        let image = scratch.join("image");
        let done = succeed(plat(&["build", "-q", "--force"]).arg(&layout).arg(&image));
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(said.contains(&format!("configuration sha256:{digest}")), "{said}");
        let written = scratch.join("written");
        let said = fail(plat(&["build", "--force", "--image-config"]).arg(&written).arg(&layout).arg(&image));
        assert!(said.contains("none to write") && !said.contains("no source is"), "{said}");
        assert!(!written.exists());
    }
}

#[test]
fn room_for_users_and_for_root_leaves_some_for_files() {
    let scratch = Scratch::new("parts");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("f"), vec![1; 3 << 20]).unwrap();
    let facts = |image: &Path| {
        let json = succeed(plat(&["info", "--json"]).arg(image)).stdout;
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let number = |name: &str| json["superblock"][name].as_u64().unwrap();
        ["blocks", "free_blocks", "reserved_blocks"].map(number)
    };
    let image = scratch.join("image");
    for reserved in ["0", "5", "8"] {
        build(&tree, &image, &["--force", "--size", "auto+80%", "-m", reserved]);
        let [blocks, free, kept] = facts(&image);
        assert!(free - kept >= blocks * 4 / 5, "-m {reserved}: {free} of {blocks}, {kept} reserved");
        assert!(fs::metadata(&image).unwrap().len() < 1 << 30, "-m {reserved}");
        let size = scratch.join("resized");
        build(&tree, &size, &["--force", "--size", "16M", "-m", reserved]);
        succeed(plat(&["resize"]).arg(&size).arg("auto+80%"));
        let [blocks, free, kept] = facts(&size);
        assert!(free - kept >= blocks * 4 / 5, "-m {reserved}: {free} of {blocks}, {kept} reserved");
        assert!(fs::metadata(&size).unwrap().len() < 1 << 30, "-m {reserved}");
    }
    for reserved in ["20", "50"] {
        let other = scratch.join("other");
        let words = ["build", "--size", "auto+80%", "-m", reserved];
        let done = plat(&words).arg(&tree).arg(&other).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.code() == Some(2) && said.contains("nothing is left for files"), "{said}");
        assert!(!other.exists());
        build(&tree, &image, &["--force", "--size", "16M", "-m", reserved]);
        let said = fail(plat(&["resize"]).arg(&image).arg("auto+80%"));
        assert!(said.contains("nothing is left for files"), "{said}");
        assert_eq!(fs::metadata(&image).unwrap().len(), 16 << 20);
        let like = ["build", "--size", "auto+80%", "--like"];
        let said = fail(plat(&like).arg(&image).arg(&tree).arg(&other));
        assert!(said.contains("nothing is left for files") && !other.exists(), "{said}");
    }
}

#[test]
fn lack_of_room_below_a_partition_is_told_as_it_is() {
    let test = "lack_of_room_below_a_partition_is_told_as_it_is";
    if !tool::have_root(test) || !tool::have_tools(test, &["mount", "umount", "sfdisk"]) {
        return;
    }
    let scratch = Scratch::new("no-room");
    let (tree, full) = (scratch.join("tree"), scratch.join("full"));
    fs::create_dir(&full).unwrap();
    fs::create_dir(&tree).unwrap();
    // No byte of it is zero, so that nothing of it is a hole.
    fs::write(tree.join("f"), vec![1; 12 << 20]).unwrap();
    let filled = InMemory::new(&full, "6M");
    let disk = full.join("disk");
    File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    tables(&disk, "label: dos\nstart=2048\n");
    let build = |to: PathBuf| plat(&["build", "--force"]).arg(&tree).arg(to).output().unwrap();
    let [on, new] = [build(full.join("disk@part1")), build(full.join("new.img"))];
    let left = fs::read_dir(&full).unwrap().count();
    drop(filled);
    let said = |done: &std::process::Output| String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said(&on).contains("no room") && said(&on).contains("overwritten in part"), "{}", said(&on));
    assert!(said(&new).contains("no room") && said(&new).contains("nothing is left of it"), "{}", said(&new));
    assert_eq!(left, 1);
}

/// Gives a disk a partition table, in the language of sfdisk.
fn tables(disk: &Path, table: &str) {
    let mut sfdisk = tool::command("sfdisk");
    let mut child = sfdisk.arg("-q").arg(disk).stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), table.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn info_shows_configurations_of_containers_and_finds_lost_volumes() {
    let test = "info_shows_configurations_of_containers_and_finds_lost_volumes";
    if !tool::have_tools(test, &["sha256sum", "tar"]) {
        return;
    }
    let scratch = Scratch::new("info");
    let (tree, layout, config) = container(&scratch);
    let packed = scratch.join("layout.tar.gz");
    pack(&layout, &scratch.join("layout.tar"), &[]);
    pack(&layout, &packed, &["-z"]);
    let cage = caged(test);
    for image in [&layout, &scratch.join("layout.tar"), &packed] {
        let said = text(plat(&["info"]).args(cage).env_remove("TMPDIR").arg(image));
        for line in
            ["User: 12:34", r#"Entry point: ["/bin/x","-y"]"#, "Environment: A=b", "Labels: k=v", "Layers: 1"]
        {
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(said.lines().any(|said| words(said) == line), "{line} in {said}");
        }
    }
    // With the name of an image it is not unpacked, and the complaint says what it looks like.
    let named = scratch.join("layout.img");
    fs::copy(&packed, &named).unwrap();
    let said = fail(plat(&["info"]).args(cage).arg(&named));
    assert!(said.contains("gzip -d") && !said.contains("denied"), "{said}");
    let (image, written) = (scratch.join("image"), scratch.join("config.json"));
    build(&layout, &image, &["--image-config", written.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(&written).unwrap(), config);
    let said =
        fail(plat(&["build", "--image-config"]).arg(scratch.join("c")).arg(&tree).arg(scratch.join("x")));
    assert!(said.contains("no source is a container image") && !scratch.join("c").exists(), "{said}");

    // A disk whose table is lost.
    let disk = scratch.join("disk");
    let file = File::create(&disk).unwrap();
    file.set_len(64 << 20).unwrap();
    let mut bytes = Vec::new();
    File::open(&image).unwrap().read_to_end(&mut bytes).unwrap();
    for at in [1 << 20, (30 << 20) + 512] {
        file.write_all_at(&bytes, at).unwrap();
    }
    let said = text(plat(&["info", "--search"]).arg(&disk));
    let names: Vec<&str> = said.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(names, [1 << 20, (30 << 20) + 512].map(|at| format!("{}@{at}", disk.display())), "{said}");
    for name in names {
        assert_eq!(text(&mut plat(&["cat", name, "/f"])), "contents");
    }
    let json: serde_json::Value =
        serde_json::from_slice(&succeed(plat(&["info", "--search", "--json"]).arg(&disk)).stdout).unwrap();
    assert_eq!(json[1]["offset"], (30 << 20) + 512);
    fs::write(&disk, vec![0; 1 << 20]).unwrap();
    assert!(fail(plat(&["info", "--search"]).arg(&disk)).contains("no superblock"));
}

/// A disk that was cut off: its last partition leaves it, and the others are read.
#[test]
fn a_partition_that_leaves_the_disk_hides_no_other() {
    let test = "a_partition_that_leaves_the_disk_hides_no_other";
    if !tool::have_tools(test, &["sfdisk"]) {
        return;
    }
    let scratch = Scratch::new("cut-disk");
    let (tree, volume) = (scratch.join("tree"), scratch.join("volume"));
    write(tree.join("f"), "contents");
    build(&tree, &volume, &["--size", "8M", "-O", "^has_journal"]);
    let bytes = fs::read(&volume).unwrap();
    for label in ["gpt", "dos"] {
        let disk = scratch.join(label);
        let file = File::create(&disk).unwrap();
        file.set_len(64 << 20).unwrap();
        let table = format!("label: {label}\nstart=2048, size=16384\nstart=18432, size=16384\n");
        tables(&disk, &table);
        for at in [2048 * 512, 18_432 * 512] {
            file.write_all_at(&bytes, at).unwrap();
        }
        file.set_len(12 << 20).unwrap();
        let part = |number: u32| format!("{}@part{number}", disk.display());
        assert_eq!(text(&mut plat(&["cat", &part(1), "/f"])), "contents");
        // Of the second one, what is there.
        let done = succeed(&mut plat(&["cat", &part(2), "/f"]));
        assert_eq!(done.stdout, b"contents");
        assert!(String::from_utf8_lossy(&done.stderr).contains("cut off"));
        let said = fail(&mut plat(&["mkdir", &part(2), "/d"]));
        assert!(said.contains("leaves the disk"), "{said}");
        succeed(&mut plat(&["mkdir", &part(1), "/d"]));
    }
}

/// Logical partitions have records that lie before each of them, and may be cut off as well.
#[test]
fn a_disk_that_was_cut_off_keeps_its_logical_partitions() {
    let test = "a_disk_that_was_cut_off_keeps_its_logical_partitions";
    if !tool::have_tools(test, &["sfdisk"]) {
        return;
    }
    let scratch = Scratch::new("cut-logical");
    let (tree, volume, disk) = (scratch.join("tree"), scratch.join("volume"), scratch.join("disk"));
    write(tree.join("f"), "contents");
    build(&tree, &volume, &["--size", "8M", "-O", "^has_journal"]);
    let bytes = fs::read(&volume).unwrap();
    let file = File::create(&disk).unwrap();
    file.set_len(64 << 20).unwrap();
    let logical = |start: u32| format!("start={start}, size=16384, type=83\n");
    let starts = [2048, 22_528, 40_960, 59_392];
    let table = starts.map(logical);
    let extended = "start=20480, type=5\n";
    tables(&disk, &format!("label: dos\n{}{extended}{}", table[0], table[1..].concat()));
    for at in starts {
        file.write_all_at(&bytes, u64::from(at) * 512).unwrap();
    }
    let part = |number: u32| format!("{}@part{number}", disk.display());
    assert_eq!(text(&mut plat(&["cat", &part(7), "/f"])), "contents");
    // Before the record of the second one, which is then not known but for its place; and before the first.
    for (len, whole) in [(20 << 20, &[1, 5][..]), (10 << 20, &[1])] {
        file.set_len(len).unwrap();
        for number in whole {
            assert_eq!(text(&mut plat(&["cat", &part(*number), "/f"])), "contents");
            succeed(&mut plat(&["mkdir", &part(*number), "/d"]));
            succeed(&mut plat(&["rm", "-r", &part(*number), "/d"]));
        }
        let cut = if whole.len() > 1 { 6 } else { 5 };
        assert!(fail(&mut plat(&["ls", &part(cut)])).contains("leaves the disk"));
        let said = fail(&mut plat(&["ls", &part(9)]));
        assert!(said.contains("part1") && said.contains(&format!("part{cut} (cut off)")), "{said}");
        let said = fail(plat(&["ls"]).arg(&disk));
        assert!(said.contains(&format!("part{cut} (cut off)")), "{said}");
    }
}

/// Archives by other programs than GNU tar, judged by what they unpack themselves; `scripts/interop.sh` has many more.
#[test]
fn archives_by_bsdtar_and_busybox_are_what_they_unpack() {
    let test = "archives_by_bsdtar_and_busybox_are_what_they_unpack";
    if !tool::have_root(test)
        || !tool::have_tools(test, &["bsdtar", "busybox", "setfattr", "setfacl", "mknod"])
    {
        return;
    }
    let scratch = Scratch::new("other-tars");
    let tree = scratch.join("tree");
    write(tree.join("d/one"), "one");
    write(tree.join("d/e/setuid"), "x");
    fs::hard_link(tree.join("d/one"), tree.join("d/e/second")).unwrap();
    symlink("../one", tree.join("d/e/link")).unwrap();
    std::os::unix::fs::chown(tree.join("d/e/setuid"), Some(12), Some(34)).unwrap();
    fs::set_permissions(tree.join("d/e/setuid"), fs::Permissions::from_mode(0o4755)).unwrap();
    for (name, words) in [("null", &["c", "1", "3"][..]), ("fifo", &["p"])] {
        tool::run(tool::command("mknod").arg(tree.join(name)).args(words));
    }
    let sparse = File::create(tree.join("sparse")).unwrap();
    sparse.set_len(3 << 20).unwrap();
    sparse.write_all_at(b"data", 2 << 20).unwrap();
    tool::run(tool::command("touch").args(["-d", "2021-03-04 05:06:07"]).arg(&tree));
    let plain = ["ustar", "gnutar", "v7tar"].map(|format| ("bsdtar", vec!["--format", format], false));
    let rich =
        [vec!["--format", "pax", "--xattrs", "--acls", "--read-sparse"], vec!["--format", "paxr", "--zstd"]]
            .map(|options| ("bsdtar", options, true));
    tool::run(tool::command("setfattr").args(["-n", "user.x", "-v", "1"]).arg(tree.join("d/one")));
    tool::run(tool::command("setfacl").args(["-m", "u:1234:rw"]).arg(tree.join("d/one")));
    let forms = plain.into_iter().chain(rich).chain([("busybox", vec!["tar"], false)]);
    for (number, (program, options, is_rich)) in forms.enumerate() {
        let [archive, out, image] =
            ["archive", "out", "image"].map(|name| scratch.join(format!("{name}-{number}")));
        // The oldest format has no devices.
        let old = options.contains(&"v7tar").then_some(["--exclude", "./null", "--exclude", "./fifo"]);
        let mut pack = tool::command(program);
        pack.args(&options).args(old.iter().flatten()).arg("-cf").arg(&archive).arg("-C").arg(&tree).arg(".");
        tool::run(&mut pack);
        fs::create_dir(&out).unwrap();
        let mut unpack = tool::command(if program == "busybox" { "tar" } else { program });
        tool::run(
            unpack.args(["--numeric-owner", "--same-owner", "-p", "-xf"]).arg(&archive).arg("-C").arg(&out),
        );
        // bsdtar gives the directory itself no time.
        tool::run(tool::command("touch").arg("-r").arg(&tree).arg(&out));
        let expected = testkit::snapshot::Snapshot::of(&out).unwrap();
        build(&archive, &image, &["-b", "4096"]);
        let rules = Rules { times: is_rich, hole_granularity: 0, ..Rules::default() };
        assert_holds(test, &image, &expected, rules);
    }
}
