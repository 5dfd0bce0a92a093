//! Repairs that are agreed to in part: what was declined stays and is reported again, nothing else is; after
//! the rest is repaired later the volume is sound.

use ondisk::group::GroupFlags;
use ondisk::units::Group;
use platfs::check::{Decision, Issue, Location};
use platfs::ondisk;
use testkit::fsck;
use testkit::scratch::Scratch;
use testkit::sparse;

use crate::check::directories::{entry, leaf};
use crate::check::plant::{Image, checked, decided, ready, repaired};

fn flip(bitmap: &mut [u8], at: usize) {
    bitmap[at / 8] ^= 1 << (at % 8);
}

/// The last clear bit of those that count.
fn last_clear(bitmap: &[u8], count: u32) -> usize {
    (0..count as usize).rev().find(|at| bitmap[at / 8] >> (at % 8) & 1 == 0).unwrap()
}

/// Faults in every pass, in the order in which they are reported.
fn plant(image: &mut Image) {
    let geometry = image.format.geometry;
    let inode = |image: &Image, path| image.inode_of(path);
    let comb = inode(image, "/comb");
    image.inode(comb, |inode| inode.raw_mut().i_blocks_lo.set(2));
    let large = inode(image, "/large");
    image.inode(large, |inode| inode.set_size(1));
    leaf(image, "/a", 0, |bytes| {
        let at = entry(bytes, "small");
        bytes[at + 7] = 4;
    });
    let empty = inode(image, "/empty").get();
    leaf(image, "/a/b", 0, |bytes| {
        let at = bytes.windows(2).position(|dots| dots == b"..").unwrap() - 8;
        bytes[at..at + 4].copy_from_slice(&empty.to_le_bytes());
    });
    leaf(image, "/a/b/c", 0, |bytes| {
        let at = entry(bytes, "other");
        bytes[at..at + 4].fill(0);
    });
    let pipe = inode(image, "/pipe");
    image.inode(pipe, |inode| inode.raw_mut().i_links_count.set(7));
    let begun = |image: &Image, group: u32| {
        let raw = image.read_descriptor(group);
        !raw.flags().contains(GroupFlags::BLOCK_UNINIT) && raw.free_clusters() > 0
    };
    let group = (0..geometry.groups).find(|group| begun(image, *group)).unwrap();
    let count = geometry.group_clusters(Group(group));
    image.block_bitmap(group, |bitmap| flip(bitmap, last_clear(bitmap, count)));
    image.inode_bitmap(0, |bitmap| flip(bitmap, last_clear(bitmap, geometry.inodes_per_group)));
    image.descriptor(0, |raw| raw.set_used_directories(raw.used_directories() + 1));
    image.superblock(|raw| raw.set_free_blocks_count(raw.free_blocks_count() - 16));
}

/// Kind and place of an issue.
fn about(issue: &Issue) -> (&'static str, Location) {
    (issue.kind.id, issue.place.clone())
}

/// Repairs in part, looks at what is left, repairs that.
fn declined(image: &Image, name: &str, decide: impl Fn(usize) -> bool + Copy) {
    let answer = |at| if decide(at) { Decision::Repair } else { Decision::Leave };
    let (heard, outcome) = decided(&image.bytes, answer);
    let left = heard.iter().enumerate().filter(|(at, _)| !decide(*at));
    let left: Vec<_> = left.map(|(_, issue)| about(issue)).collect();
    let partly = repaired(&outcome);
    let (heard, outcome) = decided(&partly, |_| Decision::Leave);
    assert_eq!(heard.iter().map(about).collect::<Vec<_>>(), left, "{name}");
    assert!(outcome.repaired.is_unchanged(), "{name}: nothing was agreed to");
    let (_, outcome) = checked(&partly);
    let whole = repaired(&outcome);
    assert_eq!(checked(&whole).0, [], "{name}");
    let scratch = Scratch::new("declined");
    let file = scratch.join("image");
    sparse::write(&file, &whole).unwrap();
    fsck::assert_clean(&file);
}

#[test]
fn what_is_declined_is_reported_again_and_nothing_else() {
    if !ready("what_is_declined_is_reported_again_and_nothing_else") {
        return;
    }
    for base in ["ext4", "ext2", "ext4_nojournal", "ext4_nocsum"] {
        let mut image = Image::of(base);
        plant(&mut image);
        let (heard, _) = decided(&image.bytes, |_| Decision::Leave);
        for rest in 0..2 {
            declined(&image, &format!("{base}: every second from {rest}"), |at| at % 2 == rest);
        }
        for (only, issue) in heard.iter().enumerate() {
            let what = issue.kind.id;
            declined(&image, &format!("{base}: all but {what}"), |at| at != only);
            declined(&image, &format!("{base}: only {what}"), |at| at == only);
        }
    }
}
