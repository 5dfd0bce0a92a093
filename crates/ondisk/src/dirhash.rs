//! The hashes by which indexed directories order their names.
//!
//! Sources: the round functions and constants of MD4 (RFC 1320), the cipher TEA (Wheeler and
//! Needham, "TEA, a Tiny Encryption Algorithm", 1994), and for what the format makes of them
//! (order and number of steps, packing of names into words, which word is the result) the format
//! documentation of Linux ("Hash Tree Directories") and the description that FreeBSD's `ext2_hash.c`
//! (BSD-2-Clause) gives; every variant is verified against recorded answers of `debugfs dx_hash`.

/// Hash algorithm of a directory index, as `hash_version` in its root and in the superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HashVersion {
    /// The first one, without a seed.
    Legacy,
    /// MD4 with half the words and steps.
    HalfMd4,
    /// The cipher TEA with the name as its key.
    Tea,
}

impl HashVersion {
    /// From the number on disk; `None` for those that need a key or are not known. The unsigned
    /// variants (3 to 5 inside the kernel) never stand on disk: a superblock flag selects them.
    #[must_use]
    pub fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            0 => Some(HashVersion::Legacy),
            1 => Some(HashVersion::HalfMd4),
            2 => Some(HashVersion::Tea),
            _ => None,
        }
    }

    /// The number on disk.
    #[must_use]
    pub fn raw(self) -> u8 {
        match self {
            HashVersion::Legacy => 0,
            HashVersion::HalfMd4 => 1,
            HashVersion::Tea => 2,
        }
    }
}

/// Chaining value where the superblock's seed is all zeros: the initial state of MD4.
const DEFAULT_SEED: [u32; 4] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];
/// Twice 0x7FFF_FFFF marks the end of the directory where positions are hashes, so no name may have
/// it.
const END_OF_DIRECTORY: u32 = 0x7FFF_FFFF << 1;

/// Hash of a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DirHash {
    /// Order of names in the index; always even, because bit 0 marks a collision that continues
    /// from the leaf before.
    pub major: u32,
    /// Orders names of one major hash where positions need it; not on disk.
    pub minor: u32,
}

/// The hash function of one directory.
#[derive(Clone, Copy, Debug)]
pub struct NameHasher {
    version: HashVersion,
    unsigned: bool,
    seed: [u32; 4],
}

impl NameHasher {
    /// The function for an algorithm, the signedness of characters and the superblock's seed
    /// (four zero words mean the fixed default).
    #[must_use]
    pub fn new(version: HashVersion, unsigned: bool, seed: [u32; 4]) -> Self {
        // spec: htree
        NameHasher { version, unsigned, seed: if seed == [0; 4] { DEFAULT_SEED } else { seed } }
    }

    /// Hashes a name.
    #[must_use]
    pub fn hash(&self, name: &[u8]) -> DirHash {
        if self.unsigned { self.hash_with(name, unsigned) } else { self.hash_with(name, signed) }
    }

    fn hash_with(&self, name: &[u8], widen: impl Fn(u8) -> u32 + Copy) -> DirHash {
        let (major, minor) = match self.version {
            HashVersion::Legacy => (legacy(name, widen), 0),
            HashVersion::HalfMd4 => {
                let [_, major, minor, _] = chain::<8>(self.seed, name, widen, half_md4);
                (major, minor)
            }
            HashVersion::Tea => {
                let [major, minor, ..] = chain::<4>(self.seed, name, widen, tea);
                (major, minor)
            }
        };
        let even = major & !1;
        DirHash { major: if even == END_OF_DIRECTORY { END_OF_DIRECTORY - 2 } else { even }, minor }
    }
}

fn unsigned(byte: u8) -> u32 {
    u32::from(byte)
}

fn signed(byte: u8) -> u32 {
    i32::from(byte.cast_signed()).cast_unsigned()
}

/// Runs a compression function over the name in pieces of `N` words, each padded with the length
/// of all that is left.
fn chain<const N: usize>(
    seed: [u32; 4],
    name: &[u8],
    widen: impl Fn(u8) -> u32 + Copy,
    compress: impl Fn([u32; 4], [u32; N]) -> [u32; 4],
) -> [u32; 4] {
    let mut state = seed;
    let mut rest = name;
    while !rest.is_empty() {
        state = compress(state, words(rest, widen));
        rest = rest.get(4 * N..).unwrap_or_default();
    }
    state
}

/// Packs four characters into each word, first one highest, over a background of the length. The
/// addition matters: a negative character borrows from those before it.
fn words<const N: usize>(rest: &[u8], widen: impl Fn(u8) -> u32) -> [u32; N] {
    let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
    let background = length | length << 8;
    let background = background | background << 16;
    let mut words = [background; N];
    for (word, piece) in words.iter_mut().zip(rest.chunks(4)) {
        *word = piece.iter().fold(*word, |word, byte| (word << 8).wrapping_add(widen(*byte)));
    }
    words
}

/// Three rounds of MD4 cut to eight steps each: RFC 1320's functions, its additive constants (the
/// square roots of 2 and 3), and per round four rotations and an order of the words.
fn half_md4(state: [u32; 4], words: [u32; 8]) -> [u32; 4] {
    let mut s = state;
    s = md4_round(s, words, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19], 0, |x, y, z| x & y | !x & z);
    s = md4_round(s, words, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13], 0x5A82_7999, |x, y, z| {
        x & y | x & z | y & z
    });
    s = md4_round(s, words, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15], 0x6ED9_EBA1, |x, y, z| x ^ y ^ z);
    std::array::from_fn(|at| state[at].wrapping_add(s[at]))
}

/// Eight steps of one round. Each changes the first register; the registers then move on by one
/// place, and after eight steps stand where they began.
fn md4_round(
    mut s: [u32; 4],
    words: [u32; 8],
    order: [usize; 8],
    rotations: [u32; 4],
    constant: u32,
    mix: impl Fn(u32, u32, u32) -> u32,
) -> [u32; 4] {
    for (step, word) in order.into_iter().enumerate() {
        let [a, b, c, d] = s;
        let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(words[word]).wrapping_add(constant);
        s = [d, sum.rotate_left(rotations[step % 4]), b, c];
    }
    s
}

/// Sixteen cycles of TEA that encipher the first two words under the name's words as the key; the
/// result is added to what it was made from.
fn tea(state: [u32; 4], key: [u32; 4]) -> [u32; 4] {
    /// From the golden ratio, as TEA's paper derives it.
    const DELTA: u32 = 0x9E37_79B9;
    let half = |of: u32, sum: u32, low: u32, high: u32| {
        (of << 4).wrapping_add(low) ^ of.wrapping_add(sum) ^ (of >> 5).wrapping_add(high)
    };
    let [first, second, ..] = state;
    let (mut y, mut z, mut sum) = (first, second, 0u32);
    for _ in 0..16 {
        sum = sum.wrapping_add(DELTA);
        y = y.wrapping_add(half(z, sum, key[0], key[1]));
        z = z.wrapping_add(half(y, sum, key[2], key[3]));
    }
    [first.wrapping_add(y), second.wrapping_add(z), state[2], state[3]]
}

/// The legacy hash: a second-order recurrence kept within 31 bits.
fn legacy(name: &[u8], widen: impl Fn(u8) -> u32) -> u32 {
    let (mut last, mut before) = (0x12A3_FE2D_u32, 0x37AB_E8F9_u32);
    for byte in name {
        let mut next = before.wrapping_add(last ^ widen(*byte).wrapping_mul(7_152_373));
        if next >> 31 == 1 {
            next = next.wrapping_sub(0x7FFF_FFFF);
        }
        (last, before) = (next, last);
    }
    last << 1
}

#[cfg(test)]
mod tests;
