//! Whole volumes: patches over images of the reference tools, opened and walked to the end. The images come from `fuzz/seeds/`, which `make fuzz`
//! fills; their checksums are switched off there, since otherwise no patch would get past them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use platfs::device::Device;
use platfs::ondisk::inode::FileType;
use platfs::ondisk::units::InodeNumber;
use platfs::{OpenOptions, Volume};
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, OnceLock};

/// Inodes looked at in one volume, and stretches of one file: enough to meet every structure, and soon over.
const MOST_INODES: usize = 600;
const MOST_SEGMENTS: usize = 2000;

/// An image, and where it is not zero: patches elsewhere would change free space.
struct Base {
    bytes: Vec<u8>,
    pieces: Vec<usize>,
}

const PIECE: usize = 128;

fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/seeds");
        let mut paths: Vec<_> = std::fs::read_dir(directory)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "img"))
            .collect();
        paths.sort();
        assert!(!paths.is_empty(), "no images in {directory}: run `make fuzz`");
        paths
            .iter()
            .map(|path| {
                let bytes = std::fs::read(path).unwrap_or_default();
                let used = |piece: &usize| bytes[piece * PIECE..][..PIECE].iter().any(|byte| *byte != 0);
                let pieces = (0..bytes.len() / PIECE).filter(used).collect();
                Base { bytes, pieces }
            })
            .collect()
    })
}

/// A base with some bytes changed.
struct Patched {
    base: &'static Base,
    patches: Vec<(usize, u8)>,
}

impl Device for Patched {
    fn size(&self) -> u64 {
        self.base.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(self.base.bytes.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        for (at, byte) in self.patches.iter().filter(|(at, _)| (start..end).contains(at)) {
            buffer[at - start] = *byte;
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        panic!("reading a volume wrote to it");
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

fn walk(volume: &Volume) {
    let mut seen = BTreeSet::from([InodeNumber::ROOT]);
    let mut pending = vec![InodeNumber::ROOT];
    let mut buffer = [0; 5000];
    while let Some(number) = pending.pop() {
        let _ = volume.xattrs(number);
        let Ok(metadata) = volume.metadata(number) else { continue };
        match metadata.file_type {
            FileType::Directory => {
                let Ok(entries) = volume.read_dir(number) else { continue };
                for entry in entries.take(MOST_SEGMENTS) {
                    let Ok(entry) = entry else { break };
                    if seen.len() < MOST_INODES && seen.insert(entry.inode) {
                        let _ = volume.lookup(number, &entry.name);
                        pending.push(entry.inode);
                    }
                }
            }
            FileType::Symlink => drop(volume.read_link(number)),
            FileType::Regular => {
                let Ok(file) = volume.open_file(number) else { continue };
                let _ = file.segments().take(MOST_SEGMENTS).filter(Result::is_err).count();
                for offset in [0, 70_000, metadata.size / 2, metadata.size.saturating_sub(4000)] {
                    let _ = file.read_at(offset, &mut buffer);
                }
            }
            _ => {}
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, patches)) = bytes.split_first() else { return };
    let bases = bases();
    let base = &bases[usize::from(choice) % bases.len()];
    // Four bytes each: which piece (16 bits), where in it, what.
    let patches = patches.as_chunks::<4>().0.iter().take(64).map(|[low, high, at, byte]| {
        let piece = base.pieces[usize::from(u16::from_le_bytes([*low, *high])) % base.pieces.len()];
        (piece * PIECE + usize::from(*at) % PIECE, *byte)
    });
    let device = Patched { base, patches: patches.collect() };
    if let Ok(volume) = Volume::open(Arc::new(device), &OpenOptions::new()) {
        walk(&volume);
    }
});
