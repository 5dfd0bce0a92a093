//! Images for the targets: patches over volumes of the reference tools. They come from `fuzz/seeds/`, which
//! `make fuzz` fills; their checksums are switched off there, since otherwise no patch would get past them.

use platfs::device::Device;
use std::io;
use std::sync::OnceLock;

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

/// A base with some bytes changed, for reading.
pub struct Patched {
    base: &'static Base,
    patches: Vec<(usize, u8)>,
}

impl Patched {
    /// The first byte of the input chooses the base; four bytes each a patch: which piece (16 bits), where
    /// in it, what.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let (&choice, patches) = bytes.split_first()?;
        let bases = bases();
        let base = &bases[usize::from(choice) % bases.len()];
        let patches = patches.as_chunks::<4>().0.iter().take(64).map(|[low, high, at, byte]| {
            let piece = base.pieces[usize::from(u16::from_le_bytes([*low, *high])) % base.pieces.len()];
            (piece * PIECE + usize::from(*at) % PIECE, *byte)
        });
        Some(Patched { base, patches: patches.collect() })
    }
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
