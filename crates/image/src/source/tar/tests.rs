use super::*;
use crate::archive::{Device, Run, Times, Writer, Xattr};
use crate::source::catalogue::Catalogue;
use crate::source::options::SourceOptions;
use crate::source::reading::Reading;
use std::io::Write;

fn entry(path: &str, kind: EntryKind) -> Entry {
    Entry {
        offset: 0,
        path: path.as_bytes().to_vec(),
        kind,
        target: Vec::new(),
        mode: 0o644,
        uid: 0,
        gid: 0,
        device: Device::default(),
        times: Times::default(),
        size: 0,
        xattrs: Vec::new(),
        runs: Vec::new(),
    }
}

fn link(path: &str, target: &str) -> Entry {
    Entry { target: target.as_bytes().to_vec(), ..entry(path, EntryKind::HardLink) }
}

fn archive(entries: &[Entry]) -> Section {
    let mut writer = Writer::new(Vec::new());
    entries.iter().for_each(|entry| writer.entry(entry).unwrap());
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&writer.finish().unwrap()).unwrap();
    Section::whole(file).unwrap()
}

fn files(paths: &[&str]) -> Section {
    archive(&paths.iter().map(|path| entry(path, EntryKind::File)).collect::<Vec<_>>())
}

fn layered(layers: &[Section]) -> Catalogue {
    let mut builder = CatalogueBuilder::new(SourceOptions::default()).unwrap();
    for layer in layers {
        read_layer(
            &mut Reading::new(&SourceOptions::new()).unwrap(),
            &mut builder,
            layer,
            "layer",
            WhiteoutStyle::Names,
        )
        .unwrap();
    }
    builder.finish()
}

fn names(catalogue: &Catalogue) -> Vec<String> {
    catalogue.walk().map(|step| String::from_utf8_lossy(step.name).into_owned()).collect()
}

#[test]
fn whiteouts_act_on_lower_layers_only() {
    let lower = files(&["a", "b", "dir/c", "dir/d", "old/x"]);
    // The whiteout of `a` comes after a new `a`; the opaque mark after a new entry of its directory.
    let upper =
        files(&["a", ".wh.a", ".wh.b", "dir/new", "dir/.wh..wh..opq", ".wh.old", ".wh..wh.plnk", ".wh.none"]);
    let catalogue = layered(&[lower, upper]);
    assert_eq!(names(&catalogue), ["a", "dir", "new"]);
}

#[test]
fn an_opaque_directory_hides_what_is_deep_below() {
    let lower = files(&["a/b/low", "a/x"]);
    let upper = files(&["a/b/high", "a/.wh..wh..opq"]);
    assert_eq!(names(&layered(&[lower, upper])), ["a", "b", "high"]);
}

#[test]
fn layers_change_types_and_link_across() {
    let lower = archive(&[
        entry("file", EntryKind::File),
        entry("dir/", EntryKind::Directory),
        entry("dir/x", EntryKind::File),
        entry("base", EntryKind::File),
    ]);
    let upper = archive(&[
        entry("file/", EntryKind::Directory),
        entry("file/y", EntryKind::File),
        entry("dir", EntryKind::File),
        link("other", "base"),
    ]);
    let catalogue = layered(&[lower, upper]);
    assert_eq!(names(&catalogue), ["base", "dir", "other", "file", "y"]);
    assert_eq!(catalogue.find(b"base"), catalogue.find(b"other"));
}

#[test]
fn errors_and_oddities_name_the_archive() {
    let mut builder = CatalogueBuilder::new(SourceOptions::default()).unwrap();
    let section = archive(&[link("a", "b")]);
    let mut reading = Reading::new(&SourceOptions::new()).unwrap();
    let error = read(&mut reading, &mut builder, &section, "x.tar").unwrap_err();
    assert_eq!(error.to_string(), "x.tar: the hard link `a` leads to `b`, which no earlier entry made");
    let whole = files(&["a"]);
    let cut = whole.part(0, 512).unwrap();
    read(&mut reading, &mut builder, &cut, "x.tar").unwrap();
    assert_eq!(reading.warnings.len(), 1);
}

#[test]
fn attributes_arrive() {
    let xattr = |name: &[u8]| Xattr { name: name.into(), value: (*b"v").into() };
    let with =
        Entry { xattrs: vec![xattr(b"user.b"), xattr(b"user.a")], uid: 7, ..entry("a", EntryKind::Fifo) };
    let same = Entry { path: b"b".to_vec(), ..with.clone() };
    let catalogue = layered(&[archive(&[with, same])]);
    let id = catalogue.find(b"b").unwrap();
    let names: Vec<&[u8]> = catalogue.xattrs(id).iter().map(|xattr| &*xattr.name).collect();
    assert_eq!(names, [b"user.a", b"user.b"]);
    assert_eq!(catalogue.metadata(id).ids, Ids { uid: 7, gid: 0 });
}

/// Reads an archive that may become a megabyte.
fn read_bounded(section: &Section) -> Result<(), SourceError> {
    let options = SourceOptions::new().max_size(1 << 20);
    let mut reading = Reading::new(&options).unwrap();
    reading.bounds.take_file(section);
    read(&mut reading, &mut CatalogueBuilder::new(options).unwrap(), section, "x")
}

#[test]
fn a_small_archive_becomes_no_large_tree() {
    // One entry that needs 30,000 directories.
    let deep = entry(&"a/".repeat(30_000), EntryKind::Directory);
    assert!(matches!(read_bounded(&archive(&[deep])), Err(SourceError::TooMany { given: true, .. })));
    // Attributes that are different for each file.
    let labelled = |number: u32| Entry {
        xattrs: vec![
            Xattr { name: b"user.a"[..].into(), value: vec![b'x'; 60_000].into() },
            Xattr { name: b"user.b"[..].into(), value: number.to_string().into_bytes().into() },
        ],
        ..entry(&number.to_string(), EntryKind::File)
    };
    read_bounded(&archive(&(0..20).map(labelled).collect::<Vec<_>>())).unwrap();
    // As many files as an archive of that size can have.
    let many: Vec<Entry> = (0..2000).map(|number| entry(&number.to_string(), EntryKind::File)).collect();
    read_bounded(&archive(&many)).unwrap();
}

#[test]
fn data_that_lie_scattered_count_as_the_blocks_they_take() {
    let sparse = |runs: u64| {
        let run = |at| Run { file_offset: at << 20, len: 512, archive_offset: 0 };
        let sparse =
            Entry { size: runs << 20, runs: (0..runs).map(run).collect(), ..entry("a", EntryKind::File) };
        let mut writer = Writer::new(Vec::new());
        writer.entry(&sparse).unwrap();
        writer.data(&vec![7; 512 * usize::try_from(runs).unwrap()]).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&writer.finish().unwrap()).unwrap();
        Section::whole(file).unwrap()
    };
    read_bounded(&sparse(200)).unwrap();
    assert!(matches!(read_bounded(&sparse(300)), Err(SourceError::TooLarge { given: true, .. })));
}

#[test]
fn what_a_layer_has_below_a_file_of_a_lower_one_takes_its_place() {
    let mut builder = CatalogueBuilder::new(SourceOptions::default()).unwrap();
    let mut reading = Reading::new(&SourceOptions::new()).unwrap();
    for layer in [files(&["foo", "bar"]), files(&["foo/inside", "bar/.wh.gone"])] {
        builder.begin_layer();
        read_layer(&mut reading, &mut builder, &layer, "layer", WhiteoutStyle::Names).unwrap();
    }
    let tree = builder.finish();
    assert_eq!(names(&tree), ["bar", "foo", "inside"]);
    assert!(tree.find(b"foo/inside").is_some());
    // In one archive it is a mistake.
    let mut builder = CatalogueBuilder::new(SourceOptions::default()).unwrap();
    builder.begin_layer();
    assert!(
        read_layer(
            &mut reading,
            &mut builder,
            &files(&["foo", "foo/inside"]),
            "layer",
            WhiteoutStyle::Names,
        )
        .is_err()
    );
}

#[test]
fn links_have_the_mode_that_linux_gives_them() {
    let link = Entry { target: b"x".to_vec(), mode: 0o755, ..entry("l", EntryKind::Symlink) };
    let tree = layered(&[archive(&[link])]);
    assert_eq!(tree.metadata(tree.find(b"l").unwrap()).mode, 0o777);
}
