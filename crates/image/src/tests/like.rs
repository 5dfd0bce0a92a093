//! Images made like an older one from archives in any order.

use crate::archive::{Device, Entry, EntryKind, Run, Times, Writer};
use crate::{Builder, Source};
use platfs::device::FileDevice;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FILES: u32 = 400;
const BYTES: usize = 9000;
/// Has no common divisor with [`FILES`], so that steps of it meet each file once, and neighbours lie far apart.
const STRIDE: u32 = 149;

/// Contents of a file; every fiftieth has something else in a later version.
fn contents(file: u32, version: u32) -> Vec<u8> {
    let mut bytes: Vec<u8> = file.to_le_bytes().into_iter().cycle().take(BYTES).collect();
    if file % 50 == 7 {
        bytes[BYTES / 2] = u8::try_from(version).unwrap();
    }
    bytes
}

fn archive(path: &Path, order: impl Iterator<Item = u32>, version: u32) -> PathBuf {
    let mut writer = Writer::new(Vec::new());
    for file in order {
        let size = BYTES as u64;
        let entry = Entry {
            offset: 0,
            path: format!("file{file:03}").into_bytes(),
            kind: EntryKind::File,
            target: Vec::new(),
            mode: 0o644,
            uid: 0,
            gid: 0,
            device: Device::default(),
            times: Times::default(),
            size,
            xattrs: Vec::new(),
            runs: vec![Run { file_offset: 0, len: size, archive_offset: 0 }],
        };
        writer.entry(&entry).unwrap();
        writer.data(&contents(file, version)).unwrap();
    }
    fs::write(path, writer.finish().unwrap()).unwrap();
    path.to_owned()
}

/// Bytes that this thread has read from files so far.
fn bytes_read() -> Option<u64> {
    let said = fs::read_to_string("/proc/thread-self/io").ok()?;
    said.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse().ok()
}

#[test]
fn an_archive_in_any_order_is_read_once_and_gives_the_same_image() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    let old = at("old");
    let first = archive(&at("first.tar"), 0..FILES, 1);
    Builder::new(&Source::open(&first).unwrap()).build(&old).unwrap();
    let sorted = archive(&at("sorted.tar"), 0..FILES, 2);
    let mixed = archive(&at("mixed.tar"), (0..FILES).map(|file| file * STRIDE % FILES), 2);
    let images = [(sorted, at("sorted")), (mixed, at("mixed"))].map(|(tar, image)| {
        let source = Source::open(&tar).unwrap();
        let before = bytes_read();
        let device = FileDevice::new(File::open(&old).unwrap()).unwrap();
        let built = Builder::new(&source).like(Arc::new(device)).build(&image).unwrap();
        assert_eq!(built.update.unwrap().same, u64::from(FILES) - 8);
        // The archive and the older image, each once, and tables of both images.
        let most = (2 * FILES as usize * (BYTES + 1024) + (2 << 20)) as u64;
        if let (Some(before), Some(after)) = (before, bytes_read()) {
            assert!(after - before <= most, "{} bytes read for {most}", after - before);
        }
        fs::read(&image).unwrap()
    });
    assert!(images[0] == images[1], "the order of an archive shows in the image");
}
