//! Rules of bitmaps, counts and usage.

use super::kinds;

kinds! {
    BLOCK_BITMAP = "block-bitmap", Wrong, safe:
        "a block bitmap is wrong",
        "The bitmap of a group says which of its blocks are in use. A block in use that it calls free would be given to another file by the next write; a free block that it calls used can't be used by any file. A crash without a journal leaves this behind.",
        "The bitmap becomes what the files and structures of the volume were found to use.";
    BLOCK_BITMAP_PADDING = "block-bitmap-padding", Untidy, safe:
        "bits behind the last block of a group are not set",
        "A bitmap fills a whole block; the bits that stand for no block are set, so that they are never allocated.",
        "The bits are set. No block is concerned.";
    BLOCK_BITMAP_CHECKSUM = "block-bitmap-checksum", Wrong, safe:
        "the checksum of a block bitmap is wrong",
        "The bitmap itself is right, its checksum in the group descriptor is not. Linux refuses to allocate in the group.",
        "The checksum is recomputed.";
    BLOCK_BITMAP_UNREADABLE = "block-bitmap-unreadable", Damage, safe:
        "a block bitmap can't be read",
        "The device fails where the bitmap lies.",
        "The bitmap is rewritten from what was found in use, in its old place: many devices replace a bad sector when it is written. If it fails again, the device needs replacing.";
    BLOCKS_UNINIT = "group-blocks-uninit", Wrong, safe:
        "blocks are in use in a group whose bitmap is marked as not yet begun",
        "A group that was never used needs no bitmap, and its descriptor says so. Here files have blocks in such a group: the next write could give them away.",
        "The mark is taken away and the bitmap written from what was found in use.";
    INODE_BITMAP = "inode-bitmap", Wrong, safe:
        "an inode bitmap is wrong",
        "The bitmap of a group says which of its inodes are in use. An inode in use that it calls free would be overwritten by the next new file; a free inode that it calls used can't be used by any file.",
        "The bitmap becomes what was found in use.";
    INODE_BITMAP_PADDING = "inode-bitmap-padding", Untidy, safe:
        "bits behind the last inode of a group are not set",
        "A bitmap fills a whole block; the bits that stand for no inode are set, so that they are never allocated.",
        "The bits are set. No inode is concerned.";
    INODE_BITMAP_CHECKSUM = "inode-bitmap-checksum", Wrong, safe:
        "the checksum of an inode bitmap is wrong",
        "The bitmap itself is right, its checksum in the group descriptor is not. Linux refuses to make files in the group.",
        "The checksum is recomputed.";
    INODE_BITMAP_UNREADABLE = "inode-bitmap-unreadable", Damage, safe:
        "an inode bitmap can't be read",
        "The device fails where the bitmap lies.",
        "The bitmap is rewritten from what was found in use, in its old place: many devices replace a bad sector when it is written. If it fails again, the device needs replacing.";
    GROUP_FREE_BLOCKS = "group-free-blocks", Untidy, safe:
        "a group counts its free blocks wrongly",
        "The descriptor of a group keeps the number of free blocks (clusters with bigalloc), by which groups are chosen for new files.",
        "The count becomes what the bitmap says.";
    GROUP_FREE_INODES = "group-free-inodes", Untidy, safe:
        "a group counts its free inodes wrongly",
        "The descriptor of a group keeps the number of free inodes, by which groups are chosen for new files.",
        "The count becomes what the bitmap says.";
    GROUP_DIRECTORIES = "group-directories", Untidy, safe:
        "a group counts its directories wrongly",
        "The descriptor of a group keeps the number of directories in it, by which groups are chosen for new directories.",
        "The count becomes what was found.";
    GROUP_UNUSED_INODES = "group-unused-inodes", Wrong, safe:
        "a group says of inodes in use that they were never used",
        "The end of an inode table that was never used is not read, and its descriptor says how long that is. Files could lie in it unseen.",
        "The whole table is read, and the end behind the last inode in use counted.";
    FREE_BLOCKS = "free-blocks", Untidy, safe:
        "the superblock counts free blocks wrongly",
        "The superblock keeps the sum over all groups. Linux writes it only now and then, so a crash leaves an old one; a mount counts again.",
        "The count becomes the sum over the groups.";
    FREE_INODES = "free-inodes", Untidy, safe:
        "the superblock counts free inodes wrongly",
        "The superblock keeps the sum over all groups. Linux writes it only now and then, so a crash leaves an old one; a mount counts again.",
        "The count becomes the sum over the groups.";
    QUOTA_FILE = "quota-file", Wrong, asks:
        "a quota file is damaged",
        "It counts what each user, group or project uses, and keeps their limits. Its header or its tree is broken.",
        "It is rewritten with what is in use. Limits that can't be read are lost: set them again. A file whose map is broken stays; turn the quota off and on with tune2fs.";
    QUOTA_USAGE = "quota-usage", Untidy, safe:
        "a quota file counts wrongly",
        "What the files of a user, a group or a project take is not what the quota file says, so that limits are enforced too early or too late.",
        "The counts become what was found in use. Limits stay.";
}
