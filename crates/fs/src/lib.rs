//! The ext2/3/4 file system in user space.
