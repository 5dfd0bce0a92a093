//! The pieces of an image, known by what they hold: cut at fixed places, or by content.
//!
//! Pieces of zeros count for nothing: no one fetches them. Excluded: which images are compared.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// How an image is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// At multiples of so many bytes.
    Fixed(usize),
    /// Where the bytes before say so: pieces of so many bytes on average, a quarter of that at least, four times at most.
    Content(usize),
}

const KIB: usize = 1 << 10;

/// All that are counted.
pub(super) const CUTS: [Cut; 12] = [
    Cut::Fixed(4 * KIB),
    Cut::Fixed(16 * KIB),
    Cut::Fixed(64 * KIB),
    Cut::Fixed(256 * KIB),
    Cut::Fixed(512 * KIB),
    Cut::Fixed(1024 * KIB),
    Cut::Fixed(4096 * KIB),
    Cut::Content(4 * KIB),
    Cut::Content(16 * KIB),
    Cut::Content(64 * KIB),
    Cut::Content(512 * KIB),
    Cut::Content(4096 * KIB),
];

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cut::Fixed(bytes) => write!(f, "{} KiB", bytes / KIB),
            Cut::Content(bytes) => write!(f, "{} KiB by content", bytes / KIB),
        }
    }
}

/// Bytes read at once: no piece is longer.
const WINDOW: usize = 16 << 20;

/// The pieces of one image, by hash and length.
pub(super) struct Pieces(HashSet<(u64, usize)>);

impl Pieces {
    /// Cuts a file.
    pub(super) fn of(file: &File, cut: Cut) -> io::Result<Self> {
        let len = file.metadata()?.len();
        let mut pieces = HashSet::new();
        let mut window = Vec::new();
        let mut read = 0;
        loop {
            let more = usize::try_from(len - read).unwrap_or(WINDOW).min(WINDOW - window.len());
            let had = window.len();
            window.resize(had + more, 0);
            file.read_exact_at(window.get_mut(had..).unwrap_or_default(), read)?;
            read += more as u64;
            if window.is_empty() {
                return Ok(Pieces(pieces));
            }
            let mut done = 0;
            while let Some(rest) = window.get(done..).filter(|rest| !rest.is_empty()) {
                let piece = cut.first(rest);
                // One that reaches the window's end may go on behind it.
                if piece == rest.len() && read < len && done > 0 {
                    break;
                }
                let bytes = rest.get(..piece).unwrap_or_default();
                if bytes.iter().any(|byte| *byte != 0) {
                    pieces.insert((hash(bytes), piece));
                }
                done += piece;
            }
            window.drain(..done);
        }
    }

    /// Bytes of the pieces that another image has not.
    pub(super) fn beyond(&self, other: &Pieces) -> u64 {
        self.0.difference(&other.0).map(|(_, len)| *len as u64).sum()
    }
}

impl Cut {
    /// Bytes of the first piece.
    fn first(self, bytes: &[u8]) -> usize {
        match self {
            Cut::Fixed(size) => size.min(bytes.len()),
            Cut::Content(average) => {
                let most = bytes.len().min(average * 4);
                let mask = (average as u64).wrapping_sub(1) << (63 - average.ilog2());
                let mut state = 0_u64;
                for (at, byte) in bytes.iter().enumerate().take(most).skip(average / 4) {
                    state = (state << 1).wrapping_add(gear(*byte));
                    if state & mask == 0 {
                        return at + 1;
                    }
                }
                most
            }
        }
    }
}

/// A number for each byte (Xia et al.: FastCDC, 2016, with SplitMix64 for the table).
fn gear(byte: u8) -> u64 {
    const TABLE: [u64; 256] = {
        let mut table = [0; 256];
        let mut at = 0;
        let mut state = 0_u64;
        while at < 256 {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            table[at] = z ^ (z >> 31);
            at += 1;
        }
        table
    };
    TABLE[usize::from(byte)]
}

/// FNV-1a over words: pieces are known by it and their length, and none is hostile.
fn hash(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let step = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x0100_0000_01B3).rotate_left(23);
    let hash = words.iter().fold(0xCBF2_9CE4_8422_2325, |hash, word| step(hash, u64::from_le_bytes(*word)));
    rest.iter().fold(hash, |hash, byte| step(hash, u64::from(*byte)))
}
