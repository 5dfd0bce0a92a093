//! `plat build` from each kind of source: what the kernel shows of the image is the source.
mod others;
mod overlay;
mod shapes;

use crate::support::{build, modest_tree, plat, succeed};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use testkit::odd;
use testkit::scratch::{Scratch, cache_dir};
use testkit::snapshot::{Rules, Snapshot, assert_same, differences};
use testkit::view::seen;
use testkit::{fsck, tool};

fn assert_holds(test: &str, image: &Path, source: &Snapshot, rules: Rules) {
    fsck::assert_clean(image);
    if let Some(seen) = seen(test, image) {
        assert_same(source, &seen.tree, &seen.rules(rules));
    }
}

/// A file system in memory on a directory, which ends with this value.
struct InMemory<'p>(&'p Path);

impl<'p> InMemory<'p> {
    fn new(place: &'p Path, size: &str) -> Self {
        let mut mount = tool::command("mount");
        tool::run(mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(place));
        InMemory(place)
    }
}

impl Drop for InMemory<'_> {
    fn drop(&mut self) {
        let _ = tool::command("umount").arg("-l").arg(self.0).status();
    }
}

/// Tree that GNU tar makes of `archive`.
fn extracted(archive: &Path, into: &Path) -> Snapshot {
    fs::create_dir_all(into).unwrap();
    let mut tar = tool::command("tar");
    tar.args(["--xattrs", "--xattrs-include=*", "--acls", "--same-owner", "--numeric-owner", "-xpf"]);
    tool::run(tar.arg(archive).arg("-C").arg(into));
    Snapshot::of(into).unwrap()
}

#[test]
fn a_directory_with_every_oddity() {
    let test = "odd directory";
    let scratch = Scratch::new("odd-directory");
    let tree = modest_tree(&scratch, &odd::Options::default());
    let source = Snapshot::of(&tree).unwrap();
    let image = scratch.join("image");
    build(&tree, &image, &["-b", "4096"]);
    // Holes to the block.
    assert_holds(test, &image, &source, Rules { hole_granularity: 4096, ..Rules::default() });
}

#[test]
fn archives_with_every_oddity() {
    let test = "odd archive";
    if !tool::have_root(test) || !tool::have_tools(test, &["tar", "gzip", "zstd", "xz"]) {
        return;
    }
    let scratch = Scratch::new("odd-archive");
    let tree = modest_tree(&scratch, &odd::Options { many: 3000, ..odd::Options::default() });
    let archive = scratch.join("odd.tar");
    odd::pack(&tree, &archive);
    let source = extracted(&archive, &scratch.join("extracted"));
    let image = scratch.join("image");
    let rules = Rules { hole_granularity: 4096, ..Rules::default() };

    build(&archive, &image, &["-b", "4096", "--reproducible"]);
    assert_holds(test, &image, &source, rules);

    for (compressor, option) in [("gzip", "-1"), ("zstd", "-1"), ("xz", "-0")] {
        // The name says nothing: contents decide.
        let packed = scratch.join("archive.dat");
        let output = tool::run(tool::command(compressor).args([option, "-c"]).arg(&archive));
        fs::write(&packed, output.stdout).unwrap();
        let again = scratch.join("again");
        build(&packed, &again, &["-b", "4096", "--reproducible"]);
        assert_same_bytes(&image, &again);
        fs::remove_file(&again).unwrap();
        let input = File::open(&packed).unwrap();
        succeed(plat(&["build", "-b", "4096", "--reproducible", "-"]).arg(&again).stdin(Stdio::from(input)));
        assert_same_bytes(&image, &again);
        fs::remove_file(&again).unwrap();
    }
}

fn assert_same_bytes(left: &Path, right: &Path) {
    tool::run(tool::command("cmp").arg(left).arg(right));
}

#[test]
fn other_formats_of_tar() {
    let test = "other formats of tar";
    if !tool::have_tools(test, &["tar"]) {
        return;
    }
    let scratch = Scratch::new("tar-formats");
    let tree = scratch.join("tree");
    fs::create_dir_all(tree.join("d".repeat(120)).join("e".repeat(120))).unwrap();
    let long = tree.join("d".repeat(120)).join("e".repeat(120)).join("f".repeat(200));
    fs::write(&long, "long name").unwrap();
    std::os::unix::fs::symlink("t".repeat(300), tree.join("long-link")).unwrap();
    fs::hard_link(&long, tree.join("linked")).unwrap();
    fs::write(tree.join("plain"), "plain").unwrap();
    let sparse = File::create(tree.join("sparse")).unwrap();
    sparse.set_len(9 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"data", 5 << 20).unwrap();
    drop(sparse);

    for format in ["gnu", "oldgnu", "posix"] {
        let archive = scratch.join(format!("{format}.tar"));
        let mut tar = tool::command("tar");
        tar.args(["--sparse", &format!("--format={format}"), "-cf"]).arg(&archive);
        tool::run(tar.arg("-C").arg(&tree).arg("."));
        let source = extracted(&archive, &scratch.join(format));
        let image = scratch.join("image");
        build(&archive, &image, &["-b", "4096"]);
        assert_holds(test, &image, &source, Rules { hole_granularity: 4096, ..Rules::default() });
        fs::remove_file(&image).unwrap();
    }
    // PAX sparse maps of the versions before 1.0, which GNU tar still writes.
    for version in ["0.0", "0.1", "1.0"] {
        let archive = scratch.join("pax.tar");
        let mut tar = tool::command("tar");
        tar.args(["--sparse", "--format=posix", &format!("--sparse-version={version}"), "-cf"]).arg(&archive);
        tool::run(tar.arg("-C").arg(&tree).arg("."));
        let source = extracted(&archive, &scratch.join(format!("pax-{version}")));
        let image = scratch.join("image");
        build(&archive, &image, &["-b", "4096"]);
        assert_holds(test, &image, &source, Rules { hole_granularity: 4096, ..Rules::default() });
        fs::remove_file(&image).unwrap();
    }
}

/// A blob of an OCI layout: stored under its digest, which is returned with its size.
fn blob(layout: &Path, bytes: &[u8]) -> (String, usize) {
    let fresh = layout.join("blobs/sha256/new");
    fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    fs::write(&fresh, bytes).unwrap();
    let sum = tool::text("sha256sum", &[&fresh]);
    let digest = sum.split(' ').next().unwrap().to_owned();
    fs::rename(fresh, layout.join("blobs/sha256").join(&digest)).unwrap();
    (digest, bytes.len())
}

/// Two layers and the tree that they make together.
struct Layers {
    archives: [PathBuf; 2],
    together: PathBuf,
}

fn layers(scratch: &Scratch) -> Layers {
    let [lower, upper, together] = ["lower", "upper", "together"].map(|name| scratch.join(name));
    let write = |root: &Path, path: &str, text: &str| {
        let file = root.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    for (path, text) in [
        ("kept", "from the lower layer"),
        ("replaced", "old"),
        ("removed", "gone"),
        ("dir/removed", "gone"),
        ("dir/kept", "kept"),
        ("opaque/hidden", "hidden"),
        ("opaque/sub/hidden", "hidden"),
        ("file-to-dir", "a file"),
        ("dir-to-file/inside", "inside"),
        ("removed-dir/a/b", "gone"),
    ] {
        write(&lower, path, text);
    }
    for (path, text) in [
        ("replaced", "new"),
        (".wh.removed", ""),
        ("dir/.wh.removed", ""),
        ("opaque/.wh..wh..opq", ""),
        ("opaque/shown", "shown"),
        ("file-to-dir/inside", "now a directory"),
        ("dir-to-file", "now a file"),
        (".wh.removed-dir", ""),
    ] {
        write(&upper, path, text);
    }
    // A hard link to a file of the lower layer: the name is there while packing, and left out of the archive.
    write(&upper, "kept", "from the lower layer");
    fs::hard_link(upper.join("kept"), upper.join("linked-across")).unwrap();
    for (path, text) in [
        ("kept", "from the lower layer"),
        ("replaced", "new"),
        ("dir/kept", "kept"),
        ("opaque/shown", "shown"),
        ("file-to-dir/inside", "now a directory"),
        ("dir-to-file", "now a file"),
    ] {
        write(&together, path, text);
    }
    fs::hard_link(together.join("kept"), together.join("linked-across")).unwrap();

    let archives = ["lower.tar", "upper.tar"].map(|name| scratch.join(name));
    for (root, archive) in [&lower, &upper].into_iter().zip(&archives) {
        tool::run(
            tool::command("tar")
                .args(["--sort=name", "--numeric-owner", "-cf"])
                .arg(archive)
                .arg("-C")
                .arg(root)
                .arg("."),
        );
    }
    // `kept` sorts before `linked-across`, so the second is the link; without the first the archive links to the layer below.
    tool::run(tool::command("tar").arg("--delete").arg("-f").arg(&archives[1]).arg("./kept"));
    Layers { archives, together }
}

fn assert_is_together(test: &str, image: &Path, together: &Path) {
    let source = Snapshot::of(together).unwrap();
    assert_holds(test, image, &source, Rules { times: false, ..Rules::default() });
}

#[test]
fn layers_of_an_oci_layout() {
    let test = "OCI layout";
    if !tool::have_tools(test, &["tar", "sha256sum", "gzip"]) {
        return;
    }
    let scratch = Scratch::new("oci");
    let layers = layers(&scratch);
    let layout = scratch.join("layout");
    let mut descriptors = Vec::new();
    for (archive, compressed) in layers.archives.iter().zip([true, false]) {
        let bytes = if compressed {
            tool::run(tool::command("gzip").arg("-c").arg(archive)).stdout
        } else {
            fs::read(archive).unwrap()
        };
        let (digest, size) = blob(&layout, &bytes);
        let media = if compressed { "tar+gzip" } else { "tar" };
        descriptors.push(format!(
            r#"{{"mediaType":"application/vnd.oci.image.layer.v1.{media}","digest":"sha256:{digest}","size":{size}}}"#
        ));
    }
    let config = br#"{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}"#;
    let (config, config_size) = blob(&layout, config);
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:{config}","size":{config_size}}},"layers":[{}]}}"#,
        descriptors.join(",")
    );
    let (manifest, manifest_size) = blob(&layout, manifest.as_bytes());
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    fs::write(
        layout.join("index.json"),
        format!(
            r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:{manifest}","size":{manifest_size}}}]}}"#
        ),
    )
    .unwrap();
    let image = scratch.join("image");
    build(&layout, &image, &[]);
    assert_is_together(test, &image, &layers.together);
}

#[test]
fn layers_of_a_docker_archive() {
    let test = "docker archive";
    if !tool::have_tools(test, &["tar", "sha256sum"]) {
        return;
    }
    let scratch = Scratch::new("docker");
    let layers = layers(&scratch);
    let saved = scratch.join("saved");
    for (index, archive) in layers.archives.iter().enumerate() {
        fs::create_dir_all(saved.join(format!("layer-{index}"))).unwrap();
        fs::copy(archive, saved.join(format!("layer-{index}/layer.tar"))).unwrap();
    }
    let sums = tool::text("sha256sum", &layers.archives);
    let ids: Vec<_> = sums.lines().map(|line| format!(r#""sha256:{}""#, &line[..64])).collect();
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
        ids.join(",")
    );
    fs::write(saved.join("config.json"), config).unwrap();
    fs::write(
        saved.join("manifest.json"),
        r#"[{"Config":"config.json","RepoTags":["x:latest"],"Layers":["layer-0/layer.tar","layer-1/layer.tar"]}]"#,
    )
    .unwrap();
    let archive = scratch.join("saved.tar");
    // The manifest comes last, as docker writes it, and first, as others do.
    for order in [
        ["layer-0", "layer-1", "config.json", "manifest.json"],
        ["manifest.json", "config.json", "layer-1", "layer-0"],
    ] {
        tool::run(tool::command("tar").arg("-cf").arg(&archive).arg("-C").arg(&saved).args(order));
        let image = scratch.join("image");
        build(&archive, &image, &["--force"]);
        assert_is_together(test, &image, &layers.together);
    }
}

#[test]
fn the_debian_root() {
    let test = "Debian root";
    whole_archive(test, "rootfs.tar", "PLATFS_ROOTFS_TAR");
}

#[test]
fn the_linux_source() {
    let test = "linux-source";
    whole_archive(test, "linux.tar", "PLATFS_LINUX_TAR");
}

/// Builds from a large archive of the cache; compares all of it, and asks for one extent per file.
fn whole_archive(test: &str, name: &str, variable: &str) {
    let archive = std::env::var_os(variable).map_or_else(|| cache_dir().join(name), PathBuf::from);
    if !archive.exists() {
        tool::skip(test, &format!("no {name} in the cache (make demo, make bench), nor in {variable}"));
        return;
    }
    if !tool::have_root(test) {
        return;
    }
    let scratch = Scratch::new("whole");
    let image = scratch.join("image");
    build(&archive, &image, &[]);
    fsck::assert_clean(&image);
    let source = extracted(&archive, &scratch.join("extracted"));
    let Some(seen) = seen(test, &image) else { return };
    let mut differences =
        differences(&source, &seen.tree, &Rules { hole_granularity: 4096, ..seen.rules(Rules::default()) });
    // An archive without an entry for its root leaves that to the builder.
    differences.retain(|line| !line.starts_with("/: "));
    // GNU tar leaves a directory with the time of extraction when its members are scattered over the
    // archive; what the archive says is in the image.
    let is_directory = |path: &str| scratch.join("extracted").join(path).is_dir();
    differences.retain(|line| !line.split_once(": mtime: ").is_some_and(|(path, _)| is_directory(path)));
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    let split: Vec<_> = testkit::mount::extent_counts(seen.mounted.path())
        .into_iter()
        .filter(|(_, count)| *count > 1)
        .collect();
    assert!(split.is_empty(), "files of more than one extent: {split:?}");
}
