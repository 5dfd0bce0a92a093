//! Places of attributes: pure arithmetic over sizes.
//!
//! The inode is preferred, because its attributes cost no further read. What it can't take shares one
//! block. Values that even the block can't take go to inodes of their own, where the volume has them.

use ondisk::xattr::space_of;

/// Sizes of an attribute, on which the choice of its place depends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Item {
    pub(super) name_len: usize,
    /// Bytes of a value that still can be anywhere; `None` for one already in its own inode.
    pub(super) value_len: Option<usize>,
    /// Must be in the inode with its value: inline contents.
    pub(super) pinned: bool,
    /// Read at almost every access (access control): first in the inode.
    pub(super) hot: bool,
}

/// Where an entry goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AttrLocation {
    Inode,
    Block,
}

/// The choice for one attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Choice {
    pub(super) location: AttrLocation,
    /// The value moves into an inode of its own.
    pub(super) own_inode: bool,
}

/// Bytes for entries and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rooms {
    pub(super) inode: usize,
    pub(super) block: usize,
    /// The volume can keep values in inodes of their own.
    pub(super) value_inodes: bool,
}

impl Item {
    fn space(&self, own_inode: bool) -> usize {
        // A value in an inode of its own takes no room beside its entry.
        space_of(self.name_len, if own_inode { 0 } else { self.value_len.unwrap_or(0) })
    }
}

/// The choice for every item in order, or `None` where they do not fit.
pub(super) fn layout(items: &[Item], rooms: Rooms) -> Option<Vec<Choice>> {
    let mut own = vec![false; items.len()];
    if rooms.value_inodes {
        // As Linux: a value that would fill a block with a name of three letters never is in one.
        let large = rooms.block.saturating_sub(space_of(3, 0));
        for (item, own) in items.iter().zip(&mut own) {
            *own = !item.pinned && item.value_len.is_some_and(|len| len.next_multiple_of(4) > large);
        }
    }
    loop {
        let spaces: Vec<usize> = items.iter().zip(&own).map(|(item, own)| item.space(*own)).collect();
        if let Some(locations) = distribute(items, &spaces, rooms) {
            let choice = |(location, own_inode)| Choice { location, own_inode };
            return Some(locations.into_iter().zip(own).map(choice).collect());
        }
        // Each round moves one more value out, so the items bound the rounds.
        let movable = |at: &usize| {
            let (item, own) = (items.get(*at), own.get(*at));
            own == Some(&false) && item.is_some_and(|item| !item.pinned && item.value_len.unwrap_or(0) > 0)
        };
        let largest = (0..items.len()).filter(movable).max_by_key(|at| spaces.get(*at))?;
        if !rooms.value_inodes {
            return None;
        }
        *own.get_mut(largest)? = true;
    }
}

/// Fills the inode first, by preference; where the block then is too small for the rest, tries once
/// more with the largest first, which leaves the least for the block.
fn distribute(items: &[Item], spaces: &[usize], rooms: Rooms) -> Option<Vec<AttrLocation>> {
    let mut order: Vec<(usize, &Item, usize)> =
        items.iter().zip(spaces).enumerate().map(|(at, (item, space))| (at, item, *space)).collect();
    order.sort_by_key(|(_, item, space)| (!item.pinned, !item.hot, *space));
    first_fit(&order, rooms).or_else(|| {
        order.sort_by_key(|(_, item, space)| (!item.pinned, usize::MAX - space));
        first_fit(&order, rooms)
    })
}

fn first_fit(order: &[(usize, &Item, usize)], rooms: Rooms) -> Option<Vec<AttrLocation>> {
    let mut locations = vec![AttrLocation::Block; order.len()];
    let (mut inode, mut block) = (rooms.inode, rooms.block);
    for (at, item, space) in order {
        if *space <= inode {
            inode -= space;
            *locations.get_mut(*at)? = AttrLocation::Inode;
        } else if item.pinned {
            return None;
        } else {
            block = block.checked_sub(*space)?;
        }
    }
    Some(locations)
}
