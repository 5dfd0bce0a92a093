use super::layout::{AttrLocation, Choice, Item, Rooms, layout};
use ondisk::xattr::space_of;
use proptest::prelude::*;

fn item(name_len: usize, value_len: usize) -> Item {
    Item { name_len, value_len: Some(value_len), pinned: false, hot: false }
}

const IN_INODE: Choice = Choice { location: AttrLocation::Inode, own_inode: false };
const IN_BLOCK: Choice = Choice { location: AttrLocation::Block, own_inode: false };
const ROOMS: Rooms = Rooms { inode: 88, block: 4060, value_inodes: false };

#[test]
fn access_control_stands_in_the_inode_and_large_values_in_the_block() {
    let label = Item { hot: true, ..item(7, 34) };
    assert_eq!(layout(&[item(4, 60), label], ROOMS), Some(vec![IN_BLOCK, IN_INODE]));
    assert_eq!(layout(&[item(4, 2000), label], ROOMS), Some(vec![IN_BLOCK, IN_INODE]));
    assert_eq!(layout(&[label], Rooms { inode: 0, ..ROOMS }), Some(vec![IN_BLOCK]));
    assert_eq!(layout(&[], ROOMS), Some(vec![]));
}

#[test]
fn inline_contents_never_leave_the_inode() {
    let data = Item { pinned: true, ..item(4, 60) };
    let label = Item { hot: true, ..item(7, 34) };
    assert_eq!(layout(&[label, data], ROOMS), Some(vec![IN_BLOCK, IN_INODE]));
    assert_eq!(layout(&[data], Rooms { inode: 60, value_inodes: true, ..ROOMS }), None);
}

#[test]
fn a_tight_block_gets_the_least() {
    // With the smallest first the rest, 60 + 4,036 bytes, would not fit the block.
    let list = [item(4, 20), item(4, 40), item(4, 4012)];
    let choices = layout(&list, Rooms { inode: 60, block: 4076, ..ROOMS }).unwrap();
    assert_eq!(choices, [IN_BLOCK, IN_INODE, IN_BLOCK]);
}

#[test]
fn values_move_out_only_where_the_volume_can_and_only_as_many_as_must() {
    let list = [item(4, 3000), item(4, 2000), item(4, 100)];
    assert_eq!(layout(&list, ROOMS), None);
    let choices = layout(&list, Rooms { value_inodes: true, ..ROOMS }).unwrap();
    assert_eq!(choices.iter().map(|choice| choice.own_inode).collect::<Vec<_>>(), [true, false, false]);
    let huge = layout(&[item(4, 60_000)], Rooms { value_inodes: true, ..ROOMS }).unwrap();
    assert_eq!(huge, [Choice { location: AttrLocation::Inode, own_inode: true }]);
    // More names than any region holds.
    let names = vec![item(250, 1); 100];
    assert_eq!(layout(&names, Rooms { value_inodes: true, ..ROOMS }), None);
}

proptest! {
    #[test]
    fn layouts_hold_what_they_promise(
        sizes in prop::collection::vec((0_usize..40, 0_usize..600, any::<bool>()), 0..12),
        inode in 0_usize..400, block in 0_usize..1100, value_inodes: bool,
    ) {
        let items: Vec<Item> =
            sizes.iter().map(|(name, value, hot)| Item { hot: *hot, ..item(*name, *value) }).collect();
        let rooms = Rooms { inode, block, value_inodes };
        let needed: usize = items.iter().map(|item| space_of(item.name_len, item.value_len.unwrap())).sum();
        match layout(&items, rooms) {
            None => prop_assert!(needed > inode),
            Some(choices) => {
                let used = |location| -> usize {
                    let here = items.iter().zip(&choices).filter(|(_, choice)| choice.location == location);
                    here.map(|(item, choice)| {
                        space_of(item.name_len, if choice.own_inode { 0 } else { item.value_len.unwrap() })
                    }).sum()
                };
                prop_assert!(used(AttrLocation::Inode) <= inode);
                prop_assert!(used(AttrLocation::Block) <= block);
                prop_assert!(value_inodes || choices.iter().all(|choice| !choice.own_inode));
            }
        }
    }
}
