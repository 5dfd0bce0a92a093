//! Where problems of one kind lie that are not shown one by one. Excludes what they are.

use std::fmt;

use platfs::check::Location;

/// The first and the last of some numbers.
type Ends = Option<(u64, u64)>;

/// First and last inode, group and block of some places. Each place counts as the largest thing that it names.
#[derive(Clone, Copy, Default, Debug)]
pub struct Spread {
    inodes: Ends,
    groups: Ends,
    blocks: Ends,
}

impl Spread {
    /// Adds a place.
    pub fn add(&mut self, place: &Location) {
        let (ends, number) = match (place.inode, place.group, place.block) {
            (Some(inode), _, _) => (&mut self.inodes, u64::from(inode.get())),
            (None, Some(group), _) => (&mut self.groups, u64::from(group.0)),
            (None, None, Some(block)) => (&mut self.blocks, block.0),
            (None, None, None) => return,
        };
        let (first, last) = ends.unwrap_or((number, number));
        *ends = Some((first.min(number), last.max(number)));
    }
}

/// `, inodes 13-1009, group 7`; nothing where no place was added.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (noun, ends) in [("inode", self.inodes), ("group", self.groups), ("block", self.blocks)] {
            match ends {
                None => {}
                Some((first, last)) if first == last => write!(f, ", {noun} {first}")?,
                Some((first, last)) => write!(f, ", {noun}s {first}-{last}")?,
            }
        }
        Ok(())
    }
}
