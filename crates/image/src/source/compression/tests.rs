use super::*;
use crate::archive::Input;
use crate::source::options::SourceOptions;

/// A block that may begin an archive.
fn header() -> Vec<u8> {
    let mut block = [0; 512];
    crate::archive::header::seal(&mut block);
    block.to_vec()
}

fn text() -> Vec<u8> {
    let mut text = header();
    text.extend((0..300_000_u32).map(|i| i.to_le_bytes()[0]));
    text.extend(vec![0; 1 << 20]);
    text
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn contents(section: &Section) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(section.bytes()).unwrap()];
    section.read_exact_at(0, &mut bytes).unwrap();
    bytes
}

fn reading() -> Reading {
    Reading::new(&SourceOptions::new()).unwrap()
}

fn spooled(packed: &[u8]) -> Result<Vec<u8>, SourceError> {
    let from_stream = spool_stream(&mut reading(), packed, "x").map(|section| contents(&section));
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(packed).unwrap();
    let from_file = unpacked(&mut reading(), Section::whole(file).unwrap(), "x");
    let from_file = from_file.map(|section| contents(&section));
    match (&from_stream, &from_file) {
        (Ok(stream), Ok(file)) => assert!(stream == file),
        (Err(_), Err(_)) => {}
        _ => panic!("{from_stream:?} {from_file:?}"),
    }
    from_file
}

#[test]
fn every_format_is_recognised_and_undone() {
    let text = text();
    let (front, back) = text.split_at(100_000);
    assert_eq!(spooled(&text).unwrap(), text);
    assert_eq!(spooled(&[gzip(front), gzip(back)].concat()).unwrap(), text);
    let frames = [zstd::encode_all(front, 1).unwrap(), zstd::encode_all(back, 1).unwrap()];
    assert_eq!(spooled(&frames.concat()).unwrap(), text);
    assert_eq!(spooled(b"").unwrap(), b"");
    assert_eq!(spooled(b"abc").unwrap(), b"abc");
}

#[test]
fn broken_and_cut_streams_are_errors() {
    for packed in [gzip(&text()), zstd::encode_all(text().as_slice(), 1).unwrap()] {
        let cut = &packed[..packed.len() - 9];
        assert!(matches!(spooled(cut), Err(SourceError::Compression { .. })));
    }
    let mut flipped = gzip(&text());
    let middle = flipped.len() / 2;
    flipped[middle..middle + 8].fill(0xff);
    assert!(matches!(spooled(&flipped), Err(SourceError::Compression { .. })));
    assert!(matches!(spooled(b"\xfd7zXZ\0 no stream"), Err(SourceError::Compression { .. })));
}

#[test]
fn zeros_are_holes_of_the_spool() {
    use std::os::unix::fs::MetadataExt;
    let packed = gzip(&[header(), vec![0; (8 << 20) - 512]].concat());
    let spooled = spool_stream(&mut reading(), packed.as_slice(), "x").unwrap();
    let section = unpacked(&mut reading(), spooled, "x").unwrap();
    assert_eq!(section.bytes(), 8 << 20);
    let page = PIECE as u64 / 512;
    assert!(section.file().unwrap().metadata().unwrap().blocks() <= page, "only the header's piece is there");
}

#[test]
fn what_no_archive_begins_with_is_not_read_to_its_end() {
    let mut endless = std::io::repeat(0);
    assert!(matches!(spool_stream(&mut reading(), &mut endless, "x"), Err(SourceError::NoArchive { .. })));
    let mut endless = std::io::repeat(b'y');
    assert!(matches!(spool_stream(&mut reading(), &mut endless, "x"), Err(SourceError::NoArchive { .. })));
    let zeros = gzip(&vec![0; 1 << 20]);
    assert!(matches!(
        spool_stream(&mut reading(), zeros.as_slice(), "x"),
        Err(SourceError::NoArchive { .. })
    ));
    // The end of an archive alone, as long as tar pads it.
    assert_eq!(spooled(&[0; 10_240]).unwrap(), [0; 10_240]);
}

#[test]
fn what_unpacks_to_more_than_any_archive_is_refused_unless_it_is_wanted() {
    let mut bomb = zstd::Encoder::new(Vec::new(), 1).unwrap();
    bomb.write_all(&header()).unwrap();
    let zeros = vec![0; 1 << 20];
    (0..1025).for_each(|_| bomb.write_all(&zeros).unwrap());
    let bomb = bomb.finish().unwrap();
    let refused = |reading: &mut Reading| match spool_stream(reading, bomb.as_slice(), "x") {
        Err(error @ SourceError::TooLarge { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(refused(&mut reading()).contains("no archive of files is packed so well"));
    let with = |most| Reading::new(&SourceOptions::new().max_size(most)).unwrap();
    assert_eq!(spool_stream(&mut with(2 << 30), bomb.as_slice(), "x").unwrap().bytes(), (1025 << 20) + 512);
    assert!(refused(&mut with(1 << 20)).contains("the limit that was given; a larger limit (--max-size)"));
}

#[test]
fn what_is_unpacked_counts_together() {
    let archive = zstd::encode_all([header(), vec![0; 600 << 10]].concat().as_slice(), 1).unwrap();
    let mut reading = Reading::new(&SourceOptions::new().max_size(1 << 20)).unwrap();
    spool_stream(&mut reading, archive.as_slice(), "first").unwrap();
    match spool_stream(&mut reading, archive.as_slice(), "second") {
        Err(SourceError::TooLarge { archive, packed, unpacked, given: true }) => {
            assert_eq!((&*archive, packed > 0, unpacked > 1 << 20), ("second", true, true));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn zeros_behind_gzip_are_padding_and_members_follow_each_other() {
    let (one, two) = (gzip(&text()), gzip(b"more"));
    let whole = [text(), b"more".to_vec()].concat();
    assert_eq!(spooled(&[one.clone(), two.clone()].concat()).unwrap(), whole);
    assert_eq!(spooled(&[one.clone(), two.clone(), vec![0; 100_000]].concat()).unwrap(), whole);
    for wrong in [vec![0, 0, 1], b"what is this".to_vec()] {
        assert!(spooled(&[one.clone(), wrong].concat()).is_err());
    }
}
