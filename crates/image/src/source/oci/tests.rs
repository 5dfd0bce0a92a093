use super::*;
use crate::archive::{Device, Entry, EntryKind, Run, Times, Writer};
use crate::source::Source;
use crate::source::catalogue::Catalogue;
use crate::source::options::SourceOptions;
use crate::source::reading::Reading;
use serde_json::{Value, json};
use sha2::Digest as _;
use std::fs;
use std::path::Path;

fn entry(path: &str, size: u64) -> Entry {
    Entry {
        offset: 0,
        path: path.as_bytes().to_vec(),
        kind: EntryKind::File,
        target: Vec::new(),
        mode: 0o644,
        uid: 0,
        gid: 0,
        device: Device::default(),
        times: Times::default(),
        size,
        xattrs: Vec::new(),
        runs: if size == 0 { Vec::new() } else { vec![Run { file_offset: 0, len: size, archive_offset: 0 }] },
    }
}

fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for (path, data) in files {
        writer.entry(&entry(path, data.len() as u64)).unwrap();
        if !data.is_empty() {
            writer.data(data).unwrap();
        }
    }
    writer.finish().unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    let hex: String = sha2::Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
    format!("sha256:{hex}")
}

/// Puts a blob into a layout and describes it.
fn blob(root: &Path, bytes: &[u8]) -> Value {
    let digest = sha256(bytes);
    let path = root.join("blobs").join(digest.replace(':', "/"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    json!({"digest": digest, "size": bytes.len()})
}

fn image(root: &Path, layers: &[Vec<u8>]) -> Value {
    let layers: Vec<Value> = layers.iter().map(|layer| blob(root, layer)).collect();
    blob(root, json!({"layers": layers}).to_string().as_bytes())
}

fn index(root: &Path, manifests: &[Value]) {
    fs::write(root.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    fs::write(root.join("index.json"), json!({"manifests": manifests}).to_string()).unwrap();
}

fn with(mut descriptor: Value, key: &str, value: Value) -> Value {
    descriptor[key] = value;
    descriptor
}

fn open(path: &Path, options: SourceOptions) -> Result<Catalogue, SourceError> {
    options.open(path).map(Source::into_catalogue)
}

fn names(catalogue: &Catalogue) -> Vec<String> {
    catalogue.walk().map(|step| String::from_utf8_lossy(step.name).into_owned()).collect()
}

#[test]
fn layers_of_every_packing_are_applied_in_order() {
    let root = tempfile::tempdir().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, &tar(&[("b", b"two"), (".wh.a", b"")])).unwrap();
    let zstd = zstd::encode_all(tar(&[("c", b"three")]).as_slice(), 1).unwrap();
    let layers = [tar(&[("a", b"one"), ("b", b"one")]), gzip.finish().unwrap(), zstd];
    index(root.path(), &[image(root.path(), &layers)]);
    let catalogue = open(root.path(), SourceOptions::default()).unwrap();
    assert_eq!(names(&catalogue), ["b", "c"]);
    let mut buf = [0; 9];
    let node = catalogue.find(b"b").unwrap();
    assert_eq!(catalogue.reader().read_file(node, 0, &mut buf).unwrap(), 3);
    assert_eq!(&buf[..3], b"two");
}

#[test]
fn platforms_and_names_choose() {
    let root = tempfile::tempdir().unwrap();
    let platform = |arch: &str| json!({"os": "linux", "architecture": arch});
    let of =
        |file: &str, arch: &str| with(image(root.path(), &[tar(&[(file, b"")])]), "platform", platform(arch));
    let nested = json!({"manifests": [of("amd", "amd64"), of("arm", "arm64"), of("risc", "riscv64")]});
    let nested = blob(root.path(), nested.to_string().as_bytes());
    let named = |descriptor, name: &str| {
        with(descriptor, "annotations", json!({"org.opencontainers.image.ref.name": name}))
    };
    let plain = image(root.path(), &[tar(&[("plain", b"")])]);
    index(root.path(), &[named(nested, "multi"), named(plain, "repo/x:plain")]);
    let choose = |image: Option<&str>, platform: Option<&str>| {
        let options = SourceOptions {
            image: image.map(Into::into),
            platform: platform.map(Into::into),
            ..SourceOptions::default()
        };
        open(root.path(), options)
            .map(|catalogue| names(&catalogue).concat())
            .map_err(|error| error.to_string())
    };
    assert_eq!(choose(Some("plain"), None), Ok("plain".into()));
    assert_eq!(choose(Some("multi"), Some("linux/arm64")), Ok("arm".into()));
    assert_eq!(choose(Some("multi"), Some("linux/arm64/v8")), Ok("arm".into()));
    assert!(choose(Some("multi"), Some("linux/s390x")).unwrap_err().contains("linux/amd64, linux/arm64"));
    assert!(choose(Some("other"), None).unwrap_err().contains("multi, repo/x:plain"));
    assert!(choose(None, None).is_err());
}

#[test]
fn variants_of_a_processor_and_digests_choose() {
    let root = tempfile::tempdir().unwrap();
    let of = |file: &str, arch: &str, variant: Option<&str>| {
        let mut platform = json!({"os": "linux", "architecture": arch});
        if let Some(variant) = variant {
            platform["variant"] = variant.into();
        }
        with(image(root.path(), &[tar(&[(file, b"")])]), "platform", platform)
    };
    let chosen = |manifests: &[Value], image: Option<&str>, platform: &str| {
        index(root.path(), manifests);
        let platform = (!platform.is_empty()).then(|| platform.into());
        let options = SourceOptions { image: image.map(Into::into), platform, ..SourceOptions::default() };
        open(root.path(), options).map(|tree| names(&tree).concat()).map_err(|error| error.to_string())
    };
    let amd = [of("second", "amd64", Some("v2")), of("plain", "amd64", None)];
    for (wanted, file) in [("", "plain"), ("/v1", "plain"), ("/v2", "second"), ("/v3", "second")] {
        assert_eq!(chosen(&amd, None, &format!("linux/amd64{wanted}")).as_deref(), Ok(file), "{wanted}");
    }
    let arm = [of("five", "arm", Some("v5")), of("seven", "arm", Some("v7"))];
    assert_eq!(chosen(&arm, None, "linux/arm").as_deref(), Ok("seven"));
    assert_eq!(chosen(&arm, None, "linux/arm/v6").as_deref(), Ok("five"));
    assert!(chosen(&arm[1..], None, "linux/arm/v5").unwrap_err().contains("linux/arm/v7"));
    let same = [of("first", "amd64", None), of("other", "amd64", None)];
    let digest = same[1]["digest"].as_str().unwrap();
    assert!(chosen(&same, None, "linux/amd64").unwrap_err().contains(digest));
    assert_eq!(chosen(&same, Some(digest), "").as_deref(), Ok("other"));
    assert_eq!(chosen(&same, Some(&digest[7..20]), "").as_deref(), Ok("other"));
    let kind = |file: &str, kind: &str| {
        with(image(root.path(), &[tar(&[(file, b"")])]), "annotations", json!({"kind": kind}))
    };
    let signed =
        [kind("image", "dev.cosignproject.cosign/image"), kind("signature", "dev.cosignproject.cosign/sigs")];
    assert_eq!(chosen(&signed, None, "").as_deref(), Ok("image"));
}

#[test]
fn directories_of_docker_save_and_skopeo_are_images_and_nothing_missing_is_passed_over() {
    let root = tempfile::tempdir().unwrap();
    let (archive, saved, copied) =
        (root.path().join("image.tar"), root.path().join("saved"), root.path().join("copied"));
    let layers = [tar(&[("a", b"one")]), tar(&[(".wh.a", b""), ("b", b"two")])];
    docker_archive(&archive, &layers, |manifest| manifest);
    fs::create_dir(&saved).unwrap();
    let tree = open(&archive, SourceOptions::default()).unwrap();
    assert_eq!(names(&tree), ["b"]);
    let unpacked = std::process::Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&saved).status();
    assert!(unpacked.unwrap().success());
    assert_eq!(names(&open(&saved, SourceOptions::default()).unwrap()), ["b"]);
    fs::remove_file(saved.join("1/layer.tar")).unwrap();
    assert!(open(&saved, SourceOptions::default()).unwrap_err().to_string().contains("1/layer.tar"));

    fs::create_dir(&copied).unwrap();
    fs::write(copied.join("version"), "Directory Transport Version: 1.1\n").unwrap();
    let described: Vec<Value> = layers
        .iter()
        .map(|layer| {
            let digest = sha256(layer);
            fs::write(copied.join(&digest[7..]), layer).unwrap();
            json!({"digest": digest, "size": layer.len()})
        })
        .collect();
    let manifest =
        |layers: &[Value]| fs::write(copied.join("manifest.json"), json!({"layers": layers}).to_string());
    manifest(&described).unwrap();
    assert_eq!(names(&open(&copied, SourceOptions::default()).unwrap()), ["b"]);
    manifest(&[]).unwrap();
    assert!(open(&copied, SourceOptions::default()).unwrap_err().to_string().contains("no layers"));
}

#[test]
fn a_platform_that_no_index_tells_is_that_of_the_configuration() {
    let root = tempfile::tempdir().unwrap();
    let layer = blob(root.path(), &tar(&[("a", b"one")]));
    let choose = |config: Value, wanted: &str| {
        let config = blob(root.path(), config.to_string().as_bytes());
        let manifest = json!({"config": config, "layers": [layer]}).to_string();
        index(root.path(), &[blob(root.path(), manifest.as_bytes())]);
        let options = SourceOptions { platform: Some(wanted.into()), ..SourceOptions::default() };
        open(root.path(), options).map(|_| ()).map_err(|error| error.to_string())
    };
    let amd = json!({"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": []}});
    assert_eq!(choose(amd.clone(), "linux/amd64"), Ok(()));
    let refused = choose(amd, "linux/arm64").unwrap_err();
    assert!(refused.contains("the image is for linux/amd64, not for linux/arm64"), "{refused}");
    assert!(choose(json!({}), "linux/arm64").unwrap_err().contains("does not say"));

    let path = root.path().join("image.tar");
    docker_archive(&path, &[tar(&[("a", b"one")])], |manifest| manifest);
    let refused =
        open(&path, SourceOptions { platform: Some("linux/arm64".into()), ..SourceOptions::default() });
    assert!(refused.unwrap_err().to_string().contains("does not say"));
}

#[test]
fn options_for_images_need_an_image() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("plain.tar"), tar(&[("manifest.json", b"{}")])).unwrap();
    for source in [root.path().to_owned(), root.path().join("plain.tar")] {
        for options in [
            SourceOptions { platform: Some("linux/amd64".into()), ..SourceOptions::default() },
            SourceOptions { image: Some("latest".into()), ..SourceOptions::default() },
        ] {
            let refused = open(&source, options).unwrap_err();
            assert!(matches!(refused, SourceError::Filter(_)), "{refused}");
        }
    }
}

#[test]
fn damaged_and_missing_blobs_are_named() {
    let root = tempfile::tempdir().unwrap();
    let layer = tar(&[("a", b"one")]);
    index(root.path(), &[image(root.path(), std::slice::from_ref(&layer))]);
    let path = root.path().join("blobs").join(sha256(&layer).replace(':', "/"));
    let mut damaged = layer.clone();
    damaged[512] ^= 1;
    fs::write(&path, damaged).unwrap();
    assert!(
        open(root.path(), SourceOptions::default()).unwrap_err().to_string().contains("digest does not hold")
    );
    fs::write(&path, b"short").unwrap();
    assert!(open(root.path(), SourceOptions::default()).unwrap_err().to_string().contains("has 5 bytes"));
    fs::remove_file(&path).unwrap();
    assert!(open(root.path(), SourceOptions::default()).is_err());
    index(root.path(), &[json!({"digest": "sha256:../../../etc/passwd", "size": 1})]);
    assert!(matches!(open(root.path(), SourceOptions::default()), Err(SourceError::Image { .. })));
    fs::write(root.path().join("index.json"), "{").unwrap();
    assert!(matches!(open(root.path(), SourceOptions::default()), Err(SourceError::Image { .. })));
}

fn docker_archive(path: &Path, layers: &[Vec<u8>], manifest: impl FnOnce(Value) -> Value) {
    let diff_ids: Vec<String> = layers.iter().map(|layer| sha256(layer)).collect();
    let config = json!({"rootfs": {"diff_ids": diff_ids}}).to_string();
    let paths: Vec<String> = (0..layers.len()).map(|i| format!("{i}/layer.tar")).collect();
    let image = json!({"Config": "c.json", "RepoTags": ["x:latest"], "Layers": paths});
    let manifest = manifest(json!([image])).to_string();
    let mut files = vec![("manifest.json", manifest.as_bytes()), ("c.json", config.as_bytes())];
    files.extend(paths.iter().map(String::as_str).zip(layers.iter().map(Vec::as_slice)));
    fs::write(path, tar(&files)).unwrap();
}

#[test]
fn docker_archives_are_merged_in_place() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("image.tar");
    let layers = [tar(&[("a", b"one"), ("b", b"one")]), tar(&[(".wh.a", b""), ("c", b"two")])];
    docker_archive(&path, &layers, |manifest| manifest);
    assert_eq!(names(&open(&path, SourceOptions::default()).unwrap()), ["b", "c"]);
    let named =
        |name: &str| open(&path, SourceOptions { image: Some(name.into()), ..SourceOptions::default() });
    assert!(named("x").is_ok() && named("x:latest").is_ok());
    assert!(named("y").unwrap_err().to_string().contains("x:latest"));
    // With a list that names files which are not there, it is just an archive with such a file in it.
    docker_archive(&path, &layers, |_| json!([{"Config": "c", "Layers": ["none"]}]));
    assert_eq!(names(&open(&path, SourceOptions::default()).unwrap())[..2], ["c.json", "manifest.json"]);
}

#[test]
fn layouts_may_stand_in_archives() {
    let root = tempfile::tempdir().unwrap();
    index(root.path(), &[image(root.path(), &[tar(&[("a", b"one")])])]);
    let mut files = Vec::new();
    let (catalogue, mut above) = {
        let mut builder = CatalogueBuilder::new(SourceOptions::default()).unwrap();
        let mut reading = Reading::new(&SourceOptions::new()).unwrap();
        let directory = platfs_host::Directory::open(root.path()).unwrap();
        crate::source::directory::read(&mut reading, &mut builder, root.path(), directory).unwrap();
        (builder.finish(), vec![String::new()])
    };
    for step in catalogue.walk() {
        above.truncate(step.depth);
        let path = format!("{}{}", above[step.depth - 1], String::from_utf8_lossy(step.name));
        above.push(format!("{path}/"));
        if let Ok(bytes) = fs::read(root.path().join(&path)) {
            files.push((path, bytes));
        }
    }
    let files: Vec<(&str, &[u8])> =
        files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice())).collect();
    let path = tempfile::NamedTempFile::new().unwrap();
    fs::write(path.path(), tar(&files)).unwrap();
    assert_eq!(names(&open(path.path(), SourceOptions::default()).unwrap()), ["a"]);
}

#[test]
fn links_of_a_layout_stay_in_it_and_pipes_are_not_waited_for() {
    use super::store::Store;
    use std::os::unix::fs::symlink;
    let top = tempfile::tempdir().unwrap();
    let root = top.path().join("layout");
    std::fs::create_dir_all(root.join("a")).unwrap();
    std::fs::write(root.join("a/layer.tar"), "inside").unwrap();
    std::fs::write(top.path().join("secret"), "outside").unwrap();
    symlink("../a/layer.tar", root.join("a/shared")).unwrap();
    symlink("../../secret", root.join("a/up")).unwrap();
    symlink(top.path().join("secret"), root.join("a/absolute")).unwrap();
    let layout = platfs_host::Directory::open(root.join("a")).unwrap();
    layout.make_node("pipe", platfs_host::Kind::Fifo, (0, 0)).unwrap();
    let store =
        Store::Directory { directory: platfs_host::Directory::open(&root).unwrap(), path: root, flat: false };
    assert_eq!(store.open("a/shared").unwrap().bytes(), 6);
    for path in ["a/up", "a/absolute"] {
        let said = store.open(path).unwrap_err().to_string();
        assert!(said.contains("No such file"), "{path}: {said}");
    }
    assert!(store.open("a/pipe").unwrap_err().to_string().contains("is no regular file"));
}

#[test]
fn what_layers_become_counts_together() {
    let root = tempfile::tempdir().unwrap();
    let layer = |name| zstd::encode_all(tar(&[(name, &vec![0; 600 << 10])]).as_slice(), 1).unwrap();
    let read = |layers: &[Vec<u8>]| {
        index(root.path(), &[image(root.path(), layers)]);
        open(root.path(), SourceOptions::new().max_size(1 << 20))
    };
    read(&[layer("a")]).unwrap();
    for layers in [[layer("a"), layer("b")], [layer("a"), layer("a")]] {
        assert!(matches!(read(&layers), Err(SourceError::TooLarge { given: true, .. })));
    }
}

#[test]
fn an_image_of_more_layers_than_any_has_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let layers = vec![blob(root.path(), &tar(&[])); MAX_LAYERS + 1];
    let index_of = |layers: &[Value]| {
        let manifest = json!({ "layers": layers }).to_string();
        index(root.path(), &[blob(root.path(), manifest.as_bytes())]);
    };
    index_of(&layers);
    let refused = open(root.path(), SourceOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("the image has 1025 layers"), "{refused}");
    index_of(&layers[..20]);
    open(root.path(), SourceOptions::default()).unwrap();
    let path = root.path().join("image.tar");
    docker_archive(&path, &vec![tar(&[]); MAX_LAYERS + 1], |manifest| manifest);
    assert!(matches!(open(&path, SourceOptions::default()), Err(SourceError::Image { .. })));
}
