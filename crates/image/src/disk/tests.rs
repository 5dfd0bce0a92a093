use std::path::Path;

use super::*;

#[test]
fn a_name_says_its_format() {
    let of = |name: &str| Format::of_name(Path::new(name));
    assert_eq!(of("a/disk.QCOW2"), Some(Format::Qcow2));
    assert_eq!((of("disk.img.zst"), of("system.simg")), (Some(Format::Zstd), Some(Format::AndroidSparse)));
    assert_eq!((of("disk"), of("disk.vmdk")), (None, None));
    for name in Format::names() {
        assert_eq!(Format::named(name).map(Format::name), Some(name));
    }
}
