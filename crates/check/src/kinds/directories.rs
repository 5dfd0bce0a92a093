//! Rules of directories, names and links.

use super::kinds;

kinds! {
    DIRECTORY_UNREADABLE = "directory-unreadable", Damage, asks:
        "a block of a directory cannot be read",
        "The device fails to read a block that holds names of a directory.",
        "The block is rewritten without any names. Files that only it named are put into lost+found. Copy the device first if it fails more often.";
    DIRECTORY_HOLE = "directory-hole", Wrong, safe:
        "a directory lacks a block in its midst",
        "A directory's blocks follow one another without gaps. A gap means that a map was cut or a block of it was lost.",
        "The directory is rewritten without the gap. Names that the missing block held are not known: their files are put into lost+found.";
    DIRECTORY_DOT = "directory-dot", Wrong, safe:
        "a directory does not begin with a right `.`",
        "The first name in a directory is `.` and leads to the directory itself. Something else wrote over it.",
        "`.` is put back. If another name stood in its place, the file of that name is put into lost+found.";
    DIRECTORY_DOT_LENGTH = "directory-dot-length", Untidy, safe:
        "the entry of `.` is longer than it should be",
        "The entry of `.` covers 12 bytes, so that `..` follows where it is looked for.",
        "The entry is made short, and what it covered becomes an unused entry.";
    DIRECTORY_DOTDOT = "directory-dotdot", Wrong, safe:
        "a directory has no `..` as its second name",
        "The second name in a directory is `..` and leads to the directory above. Something else wrote over it.",
        "`..` is put back, leading to the directory that names this one. If another name stood in its place, the file of that name is put into lost+found.";
    DIRECTORY_PARENT = "directory-parent", Wrong, safe:
        "`..` of a directory leads elsewhere than to the directory above",
        "The directory is named by one directory, but its `..` leads to another one (or nowhere), as when a move was interrupted.",
        "`..` is made to lead to the directory that names this one.";
    ENTRY_BROKEN = "directory-entry-broken", Damage, asks:
        "an entry of a directory is broken",
        "Entries of a directory form a chain in each block: each states its length. In this one length or name are impossible, so that the chain breaks here.",
        "The entry is kept if its name can be read, and given up if not. Names behind it are found again and kept. A file that loses its only name is put into lost+found.";
    ENTRY_NO_NAME = "entry-no-name", Damage, asks:
        "an entry of a directory has an empty name",
        "Every file in a directory has a name of at least one byte.",
        "The entry is removed. If the file has no other name, it is put into lost+found.";
    ENTRY_NAME = "entry-name", Wrong, asks:
        "a name holds a slash or a zero byte",
        "A file with such a name cannot be opened: programs take the slash for the end of a directory's name and the zero byte for the end of the whole.",
        "Each such byte becomes an underscore.";
    ENTRY_ENCODING = "entry-encoding", Wrong, asks:
        "a name in a directory that ignores case is no UTF-8",
        "Names without case are compared as UTF-8 text. Volumes that are strict about it have no other names, and Linux finds no file by one.",
        "Each byte that is no UTF-8 becomes an underscore.";
    ENTRY_POLICY = "entry-policy", Damage, asks:
        "a name in an encrypted directory leads to a file that is not encrypted as the directory is",
        "Files, directories and symbolic links in an encrypted directory have its policy: the same key, used in the same way. Linux refuses to open one that differs.",
        "The name is removed, and the file put into lost+found if it has no other name: there it can be opened.";
    ENTRY_OUTSIDE = "entry-outside", Damage, asks:
        "a name leads to an inode that the volume does not have",
        "The inode number of the entry is higher than that of the last inode. The entry was damaged; which file it named is not known.",
        "The name is removed. The file that it named is put into lost+found if it still exists.";
    ENTRY_RESERVED = "entry-reserved", Damage, asks:
        "a name leads to an inode of the file system itself",
        "Some inodes hold the journal, quotas and the like and have no names.",
        "The name is removed; the inode stays as it is.";
    ENTRY_VALUE = "entry-value", Wrong, asks:
        "a name leads to the value of an attribute",
        "Large values of attributes have inodes of their own, which attributes refer to and no name.",
        "The name is removed; the value stays.";
    ENTRY_UNUSED = "entry-unused", Damage, asks:
        "a name leads to an inode that is not in use",
        "The file that had this name was removed or lost, or the number in the entry was damaged.",
        "The name is removed. There is no content any more that it could lead to.";
    ENTRY_SELF = "entry-self", Wrong, asks:
        "a directory holds itself under another name than `.`",
        "Such a name makes a circle: programs that walk through the tree never end.",
        "The name is removed; the directory stays.";
    ENTRY_ROOT = "entry-root", Wrong, asks:
        "a name leads to the root directory",
        "The root directory is above all others and has no name. Such a name makes a circle.",
        "The name is removed; the root directory stays.";
    ENTRY_DOT = "entry-dot", Wrong, asks:
        "`.` stands in a directory a second time",
        "Only the first entry of a directory is called `.`.",
        "The second one is removed. If it led to a file, that is put into lost+found.";
    ENTRY_DOTDOT = "entry-dotdot", Wrong, asks:
        "`..` stands in a directory a second time",
        "Only the second entry of a directory is called `..`.",
        "The other one is removed. If it led to a file, that is put into lost+found.";
    ENTRY_TYPE = "entry-type", Untidy, safe:
        "an entry of a directory states a wrong file type",
        "Entries repeat the type of the file, so that it is known without looking at the file. Here entry and file disagree.",
        "The type is set to what the file is.";
    ENTRY_DUPLICATE = "entry-duplicate", Wrong, asks:
        "two entries of a directory have the same name",
        "Only one of them can be opened; the other file is out of reach.",
        "If both lead to the same file, one is removed. Otherwise one gets `~0` (or the next number that is free) behind its name; a name that is encrypted cannot be changed and is removed, its file is put into lost+found.";
    ENTRY_ENCRYPTED = "entry-encrypted", Damage, asks:
        "a name in an encrypted directory is too short to be an encrypted one",
        "Encrypted names have at least 16 bytes.",
        "The name is removed, and the file put into lost+found if it has no other name.";
    DIRECTORY_TWICE = "directory-twice", Wrong, asks:
        "a directory has more than one name",
        "Directories form a tree: each has one name, in one directory above it. A second one makes `..` ambiguous and may make circles.",
        "The name in the directory that `..` leads to is kept (or the first one, if it leads to none of them); the others are removed.";
    LEAF_CHECKSUM = "directory-checksum", Wrong, safe:
        "the checksum of a block of names is wrong",
        "The block's entries are as they should be, but the checksum does not fit them: a bit of a name or a number may have changed, or a program changed the block without knowing of checksums.",
        "The checksum is recomputed. All names stay; should one have been damaged, it looks wrong but leads to a file that exists.";
    LEAF_TAIL = "directory-checksum-missing", Untidy, safe:
        "a block of names has no place for its checksum",
        "On a volume with checksums each block of names ends in 12 bytes for its checksum. This one was written before checksums were turned on, or by a program that does not know them.",
        "The place is made, by rewriting the directory if the block is full.";
    INDEX_ROOT = "index-root", Wrong, safe:
        "the root of a directory's index is broken",
        "Large directories have an index by hashes of the names. Its root states an impossible version, depth or shape.",
        "The index is rebuilt from the names. All names stay.";
    INDEX_NODE = "index-node", Wrong, safe:
        "a block of a directory's index is broken",
        "The index leads to a block that should hold more of the index but does not, or the other way round.",
        "The index is rebuilt from the names. All names stay.";
    INDEX_LIMIT = "index-limit", Wrong, safe:
        "a block of a directory's index states a wrong size",
        "Each block of an index states how many entries it has room for, which its size determines.",
        "The index is rebuilt from the names. All names stay.";
    INDEX_COUNT = "index-count", Wrong, safe:
        "a block of a directory's index states a wrong number of entries",
        "It has no entries at all, or more than fit.",
        "The index is rebuilt from the names. All names stay.";
    INDEX_ORDER = "index-order", Wrong, safe:
        "the hashes in a directory's index do not rise",
        "Names are found by halving; in the wrong order some are not.",
        "The index is rebuilt from the names. All names stay.";
    INDEX_OUTSIDE = "index-outside", Wrong, safe:
        "a directory's index leads to a block that the directory does not have",
        "The block number in the index is behind the directory's last block.",
        "The index is rebuilt from the names. All names stay.";
    INDEX_TWICE = "index-twice", Wrong, safe:
        "a directory's index leads to a block twice",
        "Each block of names has one place in the index.",
        "The index is rebuilt from the names. All names stay.";
    INDEX_MISSING = "index-missing", Wrong, safe:
        "a directory's index does not lead to one of its blocks",
        "Names in that block are listed but cannot be opened.",
        "The index is rebuilt from the names. All names stay.";
    INDEX_CHECKSUM = "index-checksum", Wrong, safe:
        "the checksum of a block of a directory's index is wrong",
        "A hash or a block number of the index may have changed.",
        "The index is rebuilt from the names. All names stay.";
    INDEX_HASH = "index-hash", Wrong, safe:
        "a name stands in a block that the index does not look for it in",
        "The name's hash is outside the range of its block, so that the name is listed but cannot be opened.",
        "The index is rebuilt from the names. All names stay.";
    INLINE_SIZE = "inline-directory-size", Wrong, safe:
        "a directory inside its inode has an impossible size",
        "Its two parts hold entries of whole words; what is there ends in the midst of one.",
        "The size is made to fit what can be read of the entries.";
    NO_ROOM = "repair-no-room", Damage, asks:
        "there is no room for a repair",
        "A repair needs free blocks or a free inode, and the volume has none.",
        "Remove files, or make the volume larger, and check it again.";
    ROOT_MISSING = "root-missing", Fatal, asks:
        "there is no root directory",
        "Inode 2 is not in use. All paths begin there, so that nothing on the volume can be reached.",
        "An empty root directory is made. Directories that were in it are put into lost+found with their contents; their names are lost.";
    DIRECTORY_UNCONNECTED = "directory-unconnected", Damage, asks:
        "a directory has no name",
        "No directory holds the name of this one, so that what is in it cannot be reached.",
        "It gets the name of its number (#123) in lost+found; all that is in it stays.";
    DIRECTORY_CYCLE = "directory-cycle", Damage, asks:
        "a directory is inside itself",
        "Following `..` from it never leads to the root but back to it, so that what is in it cannot be reached.",
        "It is taken out of the circle and gets the name of its number (#123) in lost+found; all that is in it stays.";
    LOST_FOUND = "lost-found", Wrong, asks:
        "lost+found can't take files without a name",
        "What has no name any more is put into the directory lost+found. Something else has this name: no directory, or one that is encrypted or inside its inode and takes no plain names.",
        "The name leads to a new, empty directory. What had it before gets the name of its number (#123) there, unless it has other names; its contents stay.";
    INODE_UNATTACHED = "inode-unattached", Damage, asks:
        "a file has no name",
        "An inode is in use, but no directory names it.",
        "It gets the name of its number (#123) in lost+found.";
    INODE_UNATTACHED_EMPTY = "inode-unattached-empty", Untidy, asks:
        "an empty file has no name",
        "An inode is in use that has neither a name nor contents.",
        "The inode is freed. Only its owner, mode and times are lost.";
    INODE_LINKS = "inode-links", Wrong, safe:
        "an inode states a wrong number of names",
        "A file is freed when its last name is removed. With a count that is too low that happens while it has names; with one that is too high never.",
        "The count is set to the number of names that were found.";
    LINKS_MANY = "links-many", Untidy, safe:
        "a directory has more subdirectories than the volume says there may be",
        "Directories of more than 64,998 subdirectories count no links and state 1. The superblock does not say so (feature dir_nlink).",
        "The feature is set.";
}
