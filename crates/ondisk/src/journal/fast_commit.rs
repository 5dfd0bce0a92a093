//! The area of fast commits behind the log: enough of it to tell whether any wait for replay.
//!
//! Little-endian, unlike the log. Source: the ext4 data structure documentation of Linux ("Fast commits").

use crate::seal::crc32c;

/// Bytes of a tag before its value: kind and length.
const TAG_LEN: usize = 4;
const PAD: u16 = 7;
const TAIL: u16 = 8;
const HEAD: u16 = 9;
/// Blocks of the area where the superblock names none.
pub const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;

/// Reads the area block by block, from its first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FastCommits {
    transaction: u32,
    crc: u32,
    begun: bool,
}

/// What is known after a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pending {
    /// A complete fast commit waits for replay.
    Yes,
    /// None does.
    No,
    /// The next block tells.
    ReadOn,
}

fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

impl FastCommits {
    /// Those that follow the last full commit, before the transaction of this number.
    #[must_use]
    pub fn before(transaction: u32) -> Self {
        FastCommits { transaction, crc: 0, begun: false }
    }

    /// Takes in the next block of the area.
    pub fn block(&mut self, bytes: &[u8]) -> Pending {
        let mut at = 0;
        while let (Some(kind), Some(len)) = (le16(bytes, at), le16(bytes, at + 2)) {
            let Some(value) = bytes.get(at + TAG_LEN..at + TAG_LEN + usize::from(len)) else {
                return Pending::No;
            };
            match kind {
                HEAD if le32(value, 4) != Some(self.transaction) => return Pending::No,
                HEAD => self.begun = true,
                TAIL => {
                    let covered = bytes.get(at..at + TAG_LEN + 4).unwrap_or_default();
                    let whole = self.begun
                        && le32(value, 0) == Some(self.transaction)
                        && le32(value, 4) == Some(crc32c(self.crc, covered));
                    return if whole { Pending::Yes } else { Pending::No };
                }
                1..=PAD if self.begun => {}
                _ => return Pending::No,
            }
            let covered = bytes.get(at..at + TAG_LEN + usize::from(len)).unwrap_or_default();
            self.crc = crc32c(self.crc, covered);
            at += covered.len();
        }
        if self.begun { Pending::ReadOn } else { Pending::No }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tag(kind: u16, value: &[u8]) -> Vec<u8> {
        let len = u16::try_from(value.len()).unwrap();
        [&kind.to_le_bytes(), &len.to_le_bytes(), value].concat()
    }

    fn words(words: [u32; 2]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn whole(transaction: u32) -> Vec<u8> {
        let mut bytes = [tag(HEAD, &words([0, transaction])), tag(6, &[3; 20])].concat();
        let unsealed = tag(TAIL, &words([transaction, 0]));
        let crc = crc32c(crc32c(0, &bytes), &unsealed[..8]);
        bytes.extend(tag(TAIL, &words([transaction, crc])));
        bytes
    }

    #[test]
    fn only_a_whole_one_of_the_right_transaction_counts() {
        let mut bytes = whole(7);
        bytes.resize(1024, 0);
        assert_eq!(FastCommits::before(7).block(&bytes), Pending::Yes);
        assert_eq!(FastCommits::before(8).block(&bytes), Pending::No);
        bytes[17] ^= 1;
        assert_eq!(FastCommits::before(7).block(&bytes), Pending::No);
        assert_eq!(FastCommits::before(7).block(&[0; 1024]), Pending::No);
    }

    #[test]
    fn it_may_go_on_in_the_next_block() {
        let bytes = whole(7);
        let mut commits = FastCommits::before(7);
        assert_eq!(commits.block(&bytes[..12]), Pending::ReadOn);
        assert_eq!(commits.block(&bytes[12..]), Pending::Yes);
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..200), id: u32) {
            FastCommits::before(id).block(&bytes);
        }
    }
}
