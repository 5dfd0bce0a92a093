//! Rules of superblocks, descriptors and what they lead to.

use super::kinds;

kinds! {
    SUPERBLOCK_CHECKSUM = "superblock-checksum", Wrong, safe:
        "the superblock's checksum is wrong",
        "The checksum covers every field of the superblock. A wrong one means that a field was changed by accident, or that a program changed one without knowing of checksums.",
        "The checksum is recomputed once all other fields have been checked; a changed field that no other rule covers (a label, a time) stays as it is.";
    SUPERBLOCK_DAMAGED = "superblock-damaged", Fatal, asks:
        "the superblock is damaged",
        "The superblock says how large the volume is and how it is divided; all else is found by it. Backups of it lie at the start of some groups. Here the primary can't be used, or fields in it that never change are not those of the backup.",
        "What never changes is taken from the backup; counts, times and labels stay if the primary is this volume's at all. Where there is no backup, only fields that follow from others are repaired. Look at a listing of files before you trust the result.";
    JOURNAL_NEEDS_REPLAY = "journal-needs-replay", Untidy, safe:
        "the journal holds changes that are not yet in their places",
        "The volume was not closed: its last changes stand in the journal only. Until they are brought in, it looks damaged where it is not.",
        "The journal is replayed, fast commits with it, as a mount does, and the rest of the check looks at the volume as it is then. Every repair builds on the replay. Without it nothing is repaired.";
    JOURNAL_DAMAGED = "journal-damaged", Damage, asks:
        "the journal holds changes that can't be brought in",
        "The volume was not closed, and its last changes stand in the journal only. A part of them is damaged: a checksum is wrong, or the journal asks for what can't be.",
        "What is whole before the damage is replayed, and the log is emptied. What only the rest of it held is lost; the rest of this check repairs what that leaves behind.";
    RESERVED_BLOCKS = "superblock-reserved-blocks", Wrong, safe:
        "more than half of the blocks are reserved",
        "Some blocks are kept for the super-user. More than half is never meant.",
        "A twentieth is reserved, as by default. Change it with tune2fs -m.";
    DESCRIPTOR_SIZE = "superblock-descriptor-size", Untidy, safe:
        "the superblock states an impossible size of descriptors",
        "Descriptors have 32 bytes without the feature 64bit; the field is then not used, but e2fsck refuses what can't be a size.",
        "The field is cleared.";
    MIN_EXTRA_SIZE = "superblock-min-extra-size", Wrong, safe:
        "the superblock asks for an impossible size of extra fields in every inode",
        "Inodes of more than 128 bytes have extra fields: times to the nanosecond, the time of creation. The field says how many bytes of them every inode has.",
        "It becomes the size that all known fields need.";
    WANT_EXTRA_SIZE = "superblock-want-extra-size", Wrong, safe:
        "the superblock asks for an impossible size of extra fields in new inodes",
        "Inodes of more than 128 bytes have extra fields: times to the nanosecond, the time of creation. The field says how many bytes of them a new inode gets.",
        "It becomes the size that all known fields need.";
    TWO_CHECKSUMS = "feature-two-checksums", Wrong, safe:
        "two kinds of checksums are turned on at once",
        "metadata_csum includes what uninit_bg protects; a volume has one of them.",
        "uninit_bg is turned off.";
    SEED_WITHOUT_CHECKSUMS = "feature-seed-without-checksums", Wrong, safe:
        "a seed for checksums is stored, but there are no checksums",
        "metadata_csum_seed has a meaning only with metadata_csum.",
        "metadata_csum_seed is turned off.";
    WIDE_WITHOUT_EXTENTS = "feature-64bit-without-extents", Wrong, safe:
        "the volume has block numbers of 64 bits, but no extents",
        "Only extents can name blocks behind the first 2^32.",
        "The feature extent is turned on. Files that are not mapped by extents stay as they are.";
    RESIZE_WITH_META_BG = "feature-resize-with-meta-bg", Wrong, safe:
        "resize_inode and meta_bg are turned on at once",
        "Both are ways for a volume to grow, and exclude each other.",
        "resize_inode is turned off; the blocks that it kept become free.";
    RESERVED_DESCRIPTORS = "superblock-reserved-descriptors", Wrong, safe:
        "blocks are kept for more descriptors, but no inode owns them",
        "They belong to the resize inode, and the feature resize_inode is off.",
        "The number is cleared; the blocks become free.";
    QUOTA_INODE_NUMBER = "quota-inode-number", Wrong, safe:
        "the superblock names an inode for quota that can't be one",
        "The number is that of an inode with another task, or behind the last inode.",
        "The field is cleared, and no such quota is kept. Turn it on again with tune2fs -Q.";
    REVISION = "revision", Wrong, safe:
        "the volume is of revision 0, and has features",
        "Features came with revision 1. A program set one and left the revision. Linux uses the features all the same.",
        "The revision becomes 1, with the sizes that revision 0 has. Nothing is lost.";
    MOUNTED_LATER = "time-of-mount", Untidy, safe:
        "the volume was last mounted in the future",
        "A clock was, or is, wrong. Decisions on when to check go by this time.",
        "The time becomes that of this check.";
    WRITTEN_LATER = "time-of-write", Untidy, safe:
        "the volume was last written in the future",
        "A clock was, or is, wrong. Decisions on when to check go by this time.",
        "The time becomes that of this check.";
    VOLUME_STATE = "volume-state", Untidy, safe:
        "the volume is marked as not in order",
        "It was not closed when it was last in use, or Linux met an error in it. This check looks at everything, so the mark has done its work.",
        "The mark is taken away where nothing else is left wrong.";
    VOLUME_CUT_SHORT = "volume-cut-short", Damage, asks:
        "the volume is longer than its device",
        "The device ends before the volume does: a partition was made smaller, or an image was not copied to its end. Linux does not mount it.",
        "Nothing else is looked at and nothing is repaired before the end is back. Make the partition as long as it was, or copy the image again. Only if the end is lost for good: `truncate -s BYTES IMAGE` gives an image its length with zeros behind, and a check of that repairs what they leave. Reading goes on without: `plat export IMAGE DIR` takes out what is there.";
    MOUNT_PROTECTION = "mount-protection", Wrong, safe:
        "the block of multiple mount protection is damaged",
        "It says which host uses the volume now, so that no second one does.",
        "It is rewritten, as of a volume that is not in use: in its place, or in a free block where the place that the superblock names belongs to something else. Make sure that no host has the volume mounted.";
    REPLAY_WITHOUT_JOURNAL = "journal-replay-without-journal", Wrong, safe:
        "the volume waits for replay of a journal that it does not have",
        "The mark needs_recovery is set, but neither has_journal nor an inode of a journal.",
        "The mark is taken away.";
    TWO_JOURNALS = "journal-two", Wrong, asks:
        "the superblock names two journals",
        "A journal is an inode of the volume or another device, never both.",
        "The other device is forgotten. If it was the journal in use, what waits in it is lost.";
    JOURNAL_DEVICE = "journal-device", Wrong, safe:
        "the superblock names a device for a journal, but has none",
        "A journal on another device is found by its UUID. The feature has_journal is off.",
        "The UUID is cleared.";
    JOURNAL_INODE = "journal-inode", Damage, asks:
        "the journal's inode is damaged",
        "The journal is a file without a name. Its inode is not in use, too small, or its map is broken. The superblock has a copy of the map.",
        "The inode is restored from that copy. Without a good copy the volume goes on without a journal, and what waited in it is lost.";
    JOURNAL_FEATURE = "journal-feature", Wrong, asks:
        "there is a journal, but the feature has_journal is off",
        "The superblock names an inode of a journal. Without the feature no program uses it.",
        "If the journal is in order and empty, the feature is turned on again; otherwise the journal is removed.";
    JOURNAL_SUPERBLOCK = "journal-superblock", Damage, asks:
        "the journal's superblock is damaged",
        "The first block of the journal says where its log begins. Linux does not mount the volume without it.",
        "It is rewritten, as of an empty journal. If a replay was due, the last changes before a crash are lost, and the rest of this check repairs what that leaves behind.";
    JOURNAL_HAS_DATA = "journal-has-data", Wrong, asks:
        "the journal's log is not empty, though the volume says that it is",
        "The mark needs_recovery is not set, but the journal's superblock says where a log begins. An old program may have repaired the volume without minding the journal.",
        "The journal is replayed: what was written to it and not to its place would be lost otherwise, as Linux loses it at a mount. If an old program changed the volume since, the replay brings back older blocks; the rest of this check puts them in order.";
    JOURNAL_ERROR = "journal-error", Wrong, safe:
        "the journal notes an error",
        "Linux met an error while it wrote to the journal and gave it up; the number of the error stands in the journal's superblock. What was to be written then may be missing.",
        "The note is cleared. This check looks for what the error left behind.";
    RESIZE_INODE = "resize-inode", Wrong, safe:
        "the resize inode is damaged",
        "It owns the blocks behind the descriptors that are kept so that the volume can grow.",
        "It is recreated. Its blocks follow from the size of the volume; nothing is lost.";
    RESIZE_INODE_UNUSED = "resize-inode-unused", Untidy, safe:
        "the resize inode has blocks, but the feature is off",
        "Without resize_inode it owns nothing.",
        "It is emptied.";
    ORPHANS = "orphans", Untidy, safe:
        "deleted files wait to be removed",
        "Files that are deleted while a program has them open go when it closes them. The volume was not closed, and so they are still there, without names. Files that were being cut shorter wait too, with blocks behind their end.",
        "They are removed, as at a mount, and so are the blocks behind the end of the others; no program could reach them any more.";
    ORPHAN_LIST = "orphan-list", Wrong, asks:
        "the list of deleted files is broken",
        "It begins in the superblock and leads through the inodes of files that wait to be removed. It leads to something that can't be one.",
        "Files on it up to the break are removed, and the list is emptied. Those behind are found by themselves.";
    ORPHANS_MARKED = "orphans-marked", Untidy, safe:
        "the orphan file is said to list files, and does not",
        "The feature orphan_present says that the orphan file has to be looked at.",
        "The mark is taken away.";
    ORPHAN_FILE_ALONE = "orphan-file-alone", Wrong, safe:
        "there is an orphan file, but no journal",
        "Only volumes with a journal keep a list of deleted files.",
        "The orphan file is removed, and the feature turned off.";
    ORPHAN_FILE_NUMBER = "orphan-file-number", Wrong, safe:
        "the superblock names an orphan file, but the feature is off",
        "Where the feature orphan_file is off the field is zero. The file that it names is in use: programs that believe the field would empty it.",
        "The field is cleared; the file stays.";
    ORPHAN_FILE = "orphan-file", Wrong, asks:
        "the orphan file is damaged",
        "It lists files that wait to be removed. Its size, its map, or the checksum of one of its blocks is wrong.",
        "It is made an empty one; if its map is broken, it is removed and the feature turned off. Files that it listed are found by themselves.";
    DESCRIPTORS_UNREADABLE = "descriptors-unreadable", Fatal, asks:
        "a block of group descriptors can't be read",
        "The device fails where the descriptors lie that say where each group keeps its bitmaps and its inode table. Backups of them lie in other groups.",
        "Each descriptor is taken from a backup, and reported as an issue of its own. The block is rewritten in its old place: many devices replace a bad sector when it is written.";
    GROUP_CHECKSUM = "group-checksum", Wrong, safe:
        "the checksum of a group descriptor is wrong",
        "The descriptor says where the group's bitmaps and inode table lie, and how much of them is in use. The places in it are possible ones; any other field may be what was changed.",
        "The checksum is recomputed. Marks that parts of the group were never used are dropped: all of its inode table is read, and bitmaps and counts are written from what is found.";
    GROUP_DESCRIPTOR = "group-descriptor", Damage, asks:
        "a group descriptor is damaged",
        "Its checksum is wrong and places in it are impossible: it was overwritten. Without it the group's inode table can't be found.",
        "It is taken from the first backup that is right. Only where no backup is, the inodes of the group are lost.";
    BLOCK_BITMAP_OUTSIDE = "block-bitmap-outside", Wrong, safe:
        "a descriptor says that a block bitmap lies where it can't",
        "Bitmaps lie inside the volume, without flex_bg inside their group.",
        "Its place is taken from a backup descriptor, or it is rewritten in a free block. It holds nothing that can't be found out.";
    INODE_BITMAP_OUTSIDE = "inode-bitmap-outside", Wrong, safe:
        "a descriptor says that an inode bitmap lies where it can't",
        "Bitmaps lie inside the volume, without flex_bg inside their group.",
        "Its place is taken from a backup descriptor, or it is rewritten in a free block. It holds nothing that can't be found out.";
    INODE_TABLE_OUTSIDE = "inode-table-outside", Damage, asks:
        "a descriptor says that an inode table lies where it can't",
        "Inode tables lie inside the volume, without flex_bg inside their group.",
        "Its place is taken from a backup descriptor, or is the usual one if a table is there. Where neither is known, the group gets an empty table, and its files are lost.";
    BLOCK_BITMAP_COLLIDES = "block-bitmap-collides", Wrong, safe:
        "a block bitmap lies in the place of another structure",
        "Every structure has its blocks for itself; one of the two places is wrong.",
        "The place is taken from a backup descriptor, or the bitmap is rewritten in a free block.";
    INODE_BITMAP_COLLIDES = "inode-bitmap-collides", Wrong, safe:
        "an inode bitmap lies in the place of another structure",
        "Every structure has its blocks for itself; one of the two places is wrong.",
        "The place is taken from a backup descriptor, or the bitmap is rewritten in a free block.";
    INODE_TABLE_COLLIDES = "inode-table-collides", Damage, asks:
        "an inode table lies in the place of another structure",
        "Every structure has its blocks for itself; one of the two places is wrong.",
        "The place is taken from a backup descriptor. Where no backup knows another, the group gets an empty table, and its files are lost.";
    GROUP_UNINIT = "group-uninit", Wrong, safe:
        "a group is marked as not yet begun, on a volume without checksums of descriptors",
        "Such marks count only where checksums protect them. Some programs believe them all the same and overlook files.",
        "The marks are taken away. Nothing else changes.";
    INODES_UNINIT = "group-inodes-uninit", Wrong, safe:
        "the inodes of a group are marked as not yet begun, though some are in use",
        "The inode table of a group that was never used is not read. This group was used: it does not count all its inodes as free. A program that believes the mark does not see the files in it.",
        "The mark is taken away, all of the table is read, and bitmap and counts are written from what is found.";
    LAST_GROUP_UNINIT = "last-group-uninit", Untidy, safe:
        "the block bitmap of the last group is marked as not yet begun",
        "The last group is often shorter than others; its bitmap is always written.",
        "The mark is taken away, and the bitmap written from what is found in use.";
}
