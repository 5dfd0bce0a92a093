//! Rules of inodes, their maps and their attributes.

use super::kinds;

kinds! {
    INODE_TABLE_UNREADABLE = "inode-table-unreadable", Damage, asks:
        "a block of an inode table can't be read",
        "The device fails for a block that holds inodes. What they say is not known; they count as in use.",
        "There is no repair on this device: copy it to a sound one first, then check the copy.";
    INODE_GARBAGE = "inode-garbage", Damage, asks:
        "a block of the inode table holds something else",
        "More than half of the inodes in a block of the table have wrong checksums: most likely the block was overwritten or never written.",
        "The broken inodes of the block are cleared: their files are lost, with all names that lead to them.";
    INODE_CHECKSUM = "inode-checksum", Wrong, safe:
        "an inode's checksum is wrong",
        "The checksum covers the whole record. All fields that can be judged are right; one that can't be (an owner, a time, a mode bit) may have changed.",
        "The checksum is recomputed; the fields stay as they are.";
    INODE_DELETION_TIME = "inode-deletion-time", Untidy, safe:
        "an inode's deletion time contradicts its links",
        "An inode without links says when it was deleted; one with links has no such time. While a file waits to be deleted the field holds the number of the next one, which stays behind when the list is lost.",
        "The time is cleared, or set to now. Nothing is lost.";
    INODE_TYPE = "inode-type", Damage, asks:
        "an inode's type does not suit what it holds",
        "The mode has no known type, or one of a device, pipe or socket while the inode has contents.",
        "The inode becomes what its contents speak for: a directory where they begin like one, a regular file where there are contents. Where nothing speaks for a type, the inode is cleared.";
    INODE_ROOT = "inode-root", Fatal, asks:
        "the root is no directory",
        "Inode 2 is the root directory; everything hangs below it.",
        "Where its contents are those of a directory it becomes one again. Otherwise it is recreated, and what it led to is put into lost+found.";
    INODE_RESERVED = "inode-reserved", Wrong, safe:
        "a reserved inode has the wrong type",
        "The first inodes are for the volume's own use: hidden files of the journal and quota, or nothing at all.",
        "The mode is set to what it must be; the list of bad blocks is emptied where it looks like a file.";
    BAD_BLOCKS = "bad-blocks-structures", Wrong, safe:
        "the list of bad blocks names blocks of the volume's own structures",
        "No file uses the blocks in the list. But the superblock, the descriptors, the bitmaps and the inode tables can't be moved off them. Most drives replace bad sectors by themselves.",
        "The blocks are taken off the list, nothing is lost. If the device does fail there, copy it to a sound one.";
    INODE_VACANT = "inode-vacant", Wrong, safe:
        "an inode for a hidden file is in use, but the volume does not name it",
        "The journal, quota files and the orphan file are used only where the superblock says so; otherwise their inodes must be empty.",
        "The inode is emptied, its blocks are free. No file of the tree is touched.";
    INODE_CASEFOLD = "inode-casefold", Wrong, safe:
        "the flag for names without case is where it can't be",
        "Only directories ignore the case of names, and only on volumes with that feature.",
        "The flag is cleared.";
    INODE_INLINE_AND_EXTENTS = "inode-inline-extents", Damage, asks:
        "an inode's contents are both inline and mapped by extents",
        "The flags exclude each other; one of them was set by accident.",
        "The flag that does not suit what stands in the inode is cleared. Where nothing suits, the inode is cleared and its contents are lost.";
    INODE_EXTENTS_FLAG = "inode-extents-flag", Wrong, asks:
        "an inode holds a tree of extents but not the flag for it",
        "Without the flag the tree would be read as block pointers.",
        "The flag is set.";
    INODE_EXTENTS_FEATURE = "inode-extents-feature", Wrong, asks:
        "an inode is mapped by extents, which the volume's features do not name",
        "Either the superblock lost the feature or the inode's flag was set by accident.",
        "Where the inode holds a tree, the feature is set; where it holds block pointers, the flag is cleared; otherwise the inode is cleared.";
    INLINE_FEATURE = "inline-feature", Wrong, asks:
        "contents are in the inode, which the volume's features do not name",
        "Either the superblock lost the feature or the inode's flag was set by accident.",
        "Where the inode has the attribute that goes with inline contents, the feature is set; where it holds block pointers, the flag is cleared; otherwise the inode is cleared.";
    INLINE_ATTRIBUTE = "inline-attribute", Damage, asks:
        "the attribute of inline contents is missing",
        "The first 60 bytes of inline contents are in the inode's map, the rest in an attribute that is there even when it is empty.",
        "An empty attribute is added. Contents behind 60 bytes are lost.";
    INODE_IMAGIC = "inode-imagic", Untidy, safe:
        "a flag of the AFS file system is set",
        "The flag is for volumes with a feature that no current program uses.",
        "The flag is cleared.";
    INODE_FRAGMENT = "inode-fragment", Untidy, safe:
        "an inode has the address of a fragment",
        "Fragments were planned for ext2 and never came; the field is zero.",
        "The field is cleared.";
    INODE_HIGH_FIELD = "inode-high-field", Untidy, safe:
        "the upper half of a field is used without the feature for it",
        "Large counts of blocks and large block numbers need features of the volume; without them the upper halves are zero.",
        "The field is cleared.";
    INODE_EXTRA_SIZE = "inode-extra-size", Wrong, asks:
        "the size of an inode's extra part is wrong",
        "Behind the first 128 bytes come more fields, then attributes; where the first end must lie in the record and be a multiple of four.",
        "The size is set to where attributes begin, or to the usual one. Attributes that can't be found then are lost.";
    INODE_TIME_EPOCH = "inode-time-epoch", Untidy, safe:
        "a time is three hundred years ahead",
        "Old kernels wrote times before 1970 in a way that reads as the years 2310 to 2378.",
        "The time is written as one before 1970.";
    INODE_SPECIAL_FLAGS = "inode-special-flags", Untidy, safe:
        "a special file or symbolic link has flags it can't get",
        "Devices, pipes, sockets and symbolic links can't be made immutable or append-only, and have no contents of their own.",
        "The flags are cleared.";
    INODE_SPECIAL_SIZE = "inode-special-size", Untidy, safe:
        "a special file has a size",
        "Devices, pipes and sockets have no contents.",
        "The size is set to zero.";
    SYMLINK_FLAGS = "symlink-flags", Wrong, safe:
        "a symbolic link has flags that don't suit it",
        "A target that stands in the inode has no extents, and no link has an index.",
        "The flag is cleared, the target stays.";
    SYMLINK_TARGET = "symlink-target", Damage, asks:
        "a symbolic link's target has another length than its inode says",
        "The target ends at the first zero byte, and the size says where that is.",
        "The size is set to the length of the target. A link without a readable target is cleared.";
    INODE_INDEX_FLAG = "inode-index-flag", Wrong, safe:
        "the flag for an index is where it can't be",
        "Only directories have an index, and only on volumes with that feature.",
        "The flag is cleared; a directory is read block by block then.";
    INODE_SIZE = "inode-size", Wrong, asks:
        "a size contradicts the map",
        "A file has no written blocks behind its end; a directory is exactly as large as its blocks.",
        "The size is set to the end of the last block. Bytes behind the true end of a file may show that were not seen before; none are lost.";
    INODE_BLOCKS = "inode-blocks", Untidy, safe:
        "an inode's count of blocks is wrong",
        "The count covers the blocks of contents, of the map itself, and of attributes; quota and du(1) use it.",
        "The count is set to what was found.";
    DIRECTORY_EMPTY_MAP = "directory-without-blocks", Damage, asks:
        "a directory has no blocks",
        "Even an empty directory has a block with the names . and .. in it.",
        "The directory is cleared; files and directories it led to are put into lost+found.";
    DIRECTORY_TOO_LARGE = "map-too-large", Damage, asks:
        "a map has blocks behind the largest size",
        "Directories have at most 2 GiB, unless the volume has the feature for large ones; file blocks are counted in 32 bits.",
        "The blocks behind are let go.";
    DIRECTORY_HOLE = "directory-map-hole", Wrong, asks:
        "a directory has a hole",
        "Directories have no holes; one comes of a map that lost a piece.",
        "The blocks behind move down over the hole. No name is lost; the index is rebuilt where there is one.";
    DIRECTORY_UNWRITTEN = "directory-unwritten", Wrong, asks:
        "a block of a directory is marked as never written",
        "Only files have blocks that are kept for later.",
        "The mark goes, and the block is looked at like any other.";
    EXTENT_ROOT = "extent-root", Damage, asks:
        "the root of a tree of extents is broken",
        "The root stands in the inode and begins with a magic number, a count and a depth.",
        "Where two of the three are right the head is rewritten and what it lists is kept. Otherwise the file's contents are lost, its name stays.";
    EXTENT_DEPTH = "extent-depth", Wrong, safe:
        "a tree of extents has another depth than its root says",
        "The root says how many levels are below it; a few are enough for the largest file, deeper trees are not read by the kernel.",
        "The tree is rewritten, nothing is lost.";
    EXTENT_NODE = "extent-node", Damage, asks:
        "a node of a tree of extents is broken",
        "A block that should hold a node of the tree lies outside the volume, can't be read, or holds something else.",
        "What hung below the node is lost to the file: there it has a hole that reads as zeros. The rest of the tree is kept.";
    EXTENT_NODE_CHECKSUM = "extent-node-checksum", Wrong, safe:
        "the checksum of a node of a tree of extents is wrong",
        "All that can be judged in the node is right; a block number may have changed to another that is possible.",
        "The checksum is recomputed; the entries stay as they are.";
    EXTENT_NODE_DEPTH = "extent-node-depth", Wrong, safe:
        "a node of a tree of extents has the wrong depth",
        "Each node says how many levels are below it. The kernel refuses to read one that does not fit its place.",
        "The depth is set to that of its place in the tree; what it lists is kept.";
    EXTENT_INDEX_START = "extent-index-start", Wrong, safe:
        "a node of a tree begins elsewhere than its parent says",
        "Readers find a node by where its parent says it begins.",
        "The parent is set to where the node begins.";
    EXTENT_RANGE = "extent-range", Damage, asks:
        "an extent lies outside the volume",
        "An entry names blocks that the volume does not have.",
        "The part outside is let go; what lies inside is kept.";
    EXTENT_ORDER = "extent-order", Damage, asks:
        "extents overlap or are out of order",
        "Entries rise by file block, and each node ends before its neighbour begins.",
        "The part that overlaps is let go, the earlier entry counts.";
    EXTENT_EMPTY = "extent-empty", Wrong, safe:
        "an extent has no blocks",
        "Every entry has at least one block.",
        "The entry goes; nothing is lost with it.";
    POINTER_RANGE = "pointer-range", Damage, asks:
        "block pointers lead outside the volume",
        "A pointer names a block that the volume does not have.",
        "The pointer is cleared: that block of the file reads as zeros.";
    POINTER_BLOCK = "pointer-block", Damage, asks:
        "a block of pointers is broken",
        "A block that should hold pointers can't be read, or most of what it holds leads nowhere.",
        "The pointer to it is cleared: that part of the file reads as zeros.";
    MAP_BLOCKS_IN_CLUSTERS = "map-pointers-in-clusters", Wrong, asks:
        "a file on a volume of clusters is mapped by pointers",
        "Volumes with bigalloc map files by extents only; the kernel refuses to write others.",
        "The map is rewritten as extents, nothing is lost.";
    XATTR_BLOCK_PLACE = "xattr-block-place", Damage, asks:
        "attributes are in a block that can't hold any",
        "The inode names a block of attributes outside the volume, or on a volume without attributes.",
        "The inode lets go of the block; attributes in it (access control lists, labels) are lost.";
    XATTR_BLOCK = "xattr-block", Damage, asks:
        "a block of attributes holds something else",
        "The block can't be read, or does not begin like one of attributes.",
        "Every inode that shares the block lets go of it; access control lists and labels in it are lost.";
    XATTR_BLOCK_CHECKSUM = "xattr-block-checksum", Wrong, safe:
        "the checksum of a block of attributes is wrong",
        "All hashes in the block are right, so are names and values.",
        "The checksum is recomputed.";
    XATTR_REFERENCES = "xattr-references", Untidy, safe:
        "a block of attributes counts the wrong number of inodes",
        "Inodes with the same attributes share a block, which counts them.",
        "The count is set to what was found.";
    XATTR_STRUCTURE = "xattr-structure", Damage, asks:
        "a list of attributes is broken",
        "An entry reaches over its region or over another; what follows can't be found.",
        "The attributes in front of it are kept, it and those behind are lost.";
    XATTR_NAME = "xattr-name", Damage, asks:
        "an attribute has no kind of name",
        "Each name begins with a kind, such as user or security, that stands as a number.",
        "The attribute is lost, the others are kept.";
    XATTR_VALUE = "xattr-value", Damage, asks:
        "the value of an attribute can't be where it should be",
        "The value reaches over the region, or over an entry or another value.",
        "The attribute is lost, the others are kept.";
    XATTR_HASH = "xattr-hash", Wrong, asks:
        "the hash of an attribute is wrong",
        "The hash covers name and value; one of the three has changed.",
        "Name and value are kept and the hash is recomputed: look at the value if it matters.";
    XATTR_VALUE_INODE = "xattr-value-inode", Damage, asks:
        "the inode of an attribute's value is not right",
        "Large values have inodes of their own, which are marked, and whose hash stands in the attribute.",
        "Where only the mark is missing it is set. Otherwise the attribute is lost.";
    VALUE_REFERENCES = "xattr-value-references", Untidy, safe:
        "the inode of a value counts the wrong number of attributes",
        "Attributes with the same large value share an inode, which counts them.",
        "The count is set to what was found.";
    VALUE_FLAG = "xattr-value-flag", Wrong, safe:
        "an inode is marked as the value of an attribute and is none",
        "Large values of attributes have inodes of their own: regular files that have the mark and no name. Here something else has it, or no attribute refers to the file.",
        "The mark is cleared. A file without a name is put into lost+found.";
    VALUE_FEATURE = "xattr-value-feature", Wrong, safe:
        "the value of an attribute is in an inode of its own, which the volume's features do not name",
        "Old programs must be kept from volumes with such values; the superblock lost the feature for them.",
        "The feature is set.";
    ENCRYPTION_CONTEXT = "encryption-context", Damage, asks:
        "an inode is marked as encrypted and does not say by what",
        "Each encrypted file or directory has an attribute that names the key and how it is used.",
        "The flag is cleared. What was encrypted can't be read then, as it could not before; what only had the flag by accident can be read again.";
    BLOCKS_SHARED = "blocks-shared", Damage, asks:
        "blocks have several owners",
        "Two files, or a file and a structure of the volume, claim the same blocks: what is written to one shows in the other. It comes of a broken block number, or of a bitmap that said blocks were free.",
        "Structures of the volume keep their blocks, then hidden files, directories, files; every other owner gets copies and reads what it read before. The check can't know to which file the contents belong: look at all that are named.";
    LARGE_FILE_FEATURE = "large-file-feature", Untidy, safe:
        "a file has 2 GiB or more, which the volume's features do not name",
        "Old programs must be kept from volumes with such files.",
        "The feature is set.";
}
