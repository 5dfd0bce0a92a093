//! Which blocks, which inode.
