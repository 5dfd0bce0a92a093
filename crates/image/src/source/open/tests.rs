use super::*;
use proptest::prelude::*;
use std::io::Write;

/// `printf x > f; tar c f` in the oldest format: one header, one block, two zero blocks.
fn archive() -> Vec<u8> {
    let mut bytes = vec![0; 2048];
    bytes[..1].copy_from_slice(b"f");
    bytes[100..107].copy_from_slice(b"0000644");
    bytes[124..135].copy_from_slice(b"00000000001");
    let mut header = [0; 512];
    header.copy_from_slice(&bytes[..512]);
    crate::archive::header::seal(&mut header);
    bytes[..512].copy_from_slice(&header);
    bytes[512] = b'x';
    bytes
}

#[test]
fn archives_come_as_files_and_streams_packed_or_not() {
    let packed = zstd::encode_all(archive().as_slice(), 1).unwrap();
    for bytes in [archive(), packed] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        let from_file = Source::open(file.path()).unwrap().into_catalogue();
        let from_stream =
            Source::options().read(bytes.as_slice(), "standard input").unwrap().into_catalogue();
        for catalogue in [from_file, from_stream] {
            let node = catalogue.find(b"f").unwrap();
            let mut buf = [0; 1];
            assert_eq!(catalogue.reader().read_file(node, 0, &mut buf).unwrap(), 1);
            assert_eq!(buf, *b"x");
        }
    }
}

#[test]
fn what_is_no_source_is_refused() {
    let error = Source::options().read(&b"just text"[..], "standard input").unwrap_err();
    assert_eq!(
        error.to_string(),
        "standard input: this is no tar archive: a source must be a directory, a tar archive or a container image (at byte 0 of the archive)"
    );
    let error = Source::options().read([b'x'; 1024].as_slice(), "x").unwrap_err();
    assert_eq!(
        error.to_string(),
        "x: this is no tar archive: a source must be a directory, a tar archive or a container image (at byte 0 of the archive)"
    );
    assert!(Source::open("/nonexistent/x").unwrap_err().to_string().contains("/nonexistent/x"));
}

proptest! {
    #[test]
    fn no_bytes_make_a_source_panic_or_hang(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
        packed in any::<bool>(),
    ) {
        let mut bytes = archive();
        if packed {
            bytes = zstd::encode_all(bytes.as_slice(), 1).unwrap();
        }
        for (place, byte) in edits {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(1 + cut.index(2 * bytes.len()));
        if let Ok(source) = Source::options().read(bytes.as_slice(), "x") {
            let catalogue = source.catalogue();
            let mut reader = catalogue.reader();
            for step in catalogue.walk() {
                // A size is bounded by the archive, unless it is a hole.
                let mut buf = [0; 4096];
                prop_assert!(reader.read_file(step.node, 0, &mut buf).is_ok());
            }
        }
    }
}
