//! The examples run, one after the other: a directory, its image, the image's archive, the archive's image.

use crate::Source;
use std::fs;

#[allow(dead_code, missing_docs, reason = "its main is not called")]
#[path = "../../examples/directory_to_image.rs"]
mod directory_to_image;
#[allow(dead_code, missing_docs, reason = "its main is not called")]
#[path = "../../examples/image_to_tar.rs"]
mod image_to_tar;
#[allow(dead_code, missing_docs, reason = "its main is not called")]
#[path = "../../examples/tar_to_image.rs"]
mod tar_to_image;

#[test]
fn the_examples_undo_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir_all(path("tree/sub")).unwrap();
    fs::write(path("tree/sub/kept"), vec![7; 100_000]).unwrap();
    fs::write(path("tree/main.o"), "not kept").unwrap();
    directory_to_image::run(&path("tree"), &path("first.img")).unwrap();
    for archive in ["tree.tar", "tree.tar.gz", "tree.tar.zst"] {
        image_to_tar::run(&path("first.img"), &path(archive)).unwrap();
        let image = format!("{archive}.img");
        tar_to_image::run(&path(archive), &path(&image)).unwrap();
        image_to_tar::run(&path(&image), &path(&format!("again-{archive}"))).unwrap();
        assert_eq!(
            fs::read(path(archive)).unwrap(),
            fs::read(path(&format!("again-{archive}"))).unwrap(),
            "{archive}"
        );
    }
    let source = Source::open(path("tree.tar")).unwrap();
    let catalogue = source.catalogue();
    let kept = catalogue.find(b"sub/kept").unwrap();
    assert_eq!((catalogue.metadata(kept).size, catalogue.metadata(kept).ids.uid), (100_000, 0));
    assert_eq!(catalogue.find(b"main.o"), None);
}
