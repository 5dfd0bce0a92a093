//! The sizes of a volume before and after a change, as they are reported.

use platfs::ondisk::geometry::Geometry;
use serde_json::{Map, Value};

/// Sizes before and after a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sizes {
    /// Bytes of a block.
    pub block_size: u64,
    /// Blocks that there were.
    pub blocks_before: u64,
    /// Blocks that there are then.
    pub blocks_after: u64,
    /// Their bytes.
    pub bytes_before: u64,
    /// Their bytes.
    pub bytes_after: u64,
    /// Groups that there were.
    pub groups_before: u64,
    /// Groups that there are then.
    pub groups_after: u64,
    /// Blocks that move.
    pub blocks_moved: u64,
    /// Inodes that get other numbers.
    pub inodes_moved: u64,
}

impl Sizes {
    /// Those of two shapes, nothing being moved.
    #[must_use]
    pub fn of(before: &Geometry, after: &Geometry) -> Self {
        Sizes {
            block_size: u64::from(after.block_size.bytes()),
            blocks_before: before.blocks,
            blocks_after: after.blocks,
            bytes_before: before.blocks << before.block_size.log2(),
            bytes_after: after.blocks << after.block_size.log2(),
            groups_before: u64::from(before.groups),
            groups_after: u64::from(after.groups),
            blocks_moved: 0,
            inodes_moved: 0,
        }
    }

    fn named(&self) -> [(&'static str, u64); 9] {
        [
            ("block_size", self.block_size),
            ("blocks_before", self.blocks_before),
            ("blocks", self.blocks_after),
            ("bytes_before", self.bytes_before),
            ("bytes", self.bytes_after),
            ("groups_before", self.groups_before),
            ("groups", self.groups_after),
            ("blocks_moved", self.blocks_moved),
            ("inodes_moved", self.inodes_moved),
        ]
    }

    /// As an object of JSON.
    #[must_use]
    pub fn object(&self, written: bool) -> Map<String, Value> {
        let numbers = self.named().into_iter().map(|(name, number)| (name, Value::from(number)));
        let all = std::iter::once(("written", Value::from(written))).chain(numbers);
        all.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// From such an object; what it lacks is 0.
    #[must_use]
    pub fn from_object(object: &Map<String, Value>) -> Self {
        let number = |name: &str| object.get(name).and_then(Value::as_u64).unwrap_or(0);
        Sizes {
            block_size: number("block_size"),
            blocks_before: number("blocks_before"),
            blocks_after: number("blocks"),
            bytes_before: number("bytes_before"),
            bytes_after: number("bytes"),
            groups_before: number("groups_before"),
            groups_after: number("groups"),
            blocks_moved: number("blocks_moved"),
            inodes_moved: number("inodes_moved"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_were_written() {
        let sizes =
            Sizes { block_size: 1, blocks_after: 2, groups_before: 3, inodes_moved: 4, ..Sizes::default() };
        assert_eq!(Sizes::from_object(&sizes.object(true)), sizes);
    }
}
