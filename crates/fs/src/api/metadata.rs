//! The questions that `std::fs::Metadata` answers, of what an image knows of a file.

use ondisk::inode::FileType;

use crate::ops::Metadata;

impl Metadata {
    /// True if it is a directory.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// let root = image.metadata("/")?;
    /// assert!(root.is_dir() && !root.is_file() && !root.is_symlink());
    /// # Ok::<(), platfs::Error>(())
    /// ```
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.file_type == FileType::Directory
    }

    /// True if it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.file_type == FileType::Regular
    }

    /// True if it is a symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.file_type == FileType::Symlink
    }

    /// Type and permissions as `st_mode` has them.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"")?;
    /// assert_eq!(image.metadata("/a")?.mode(), 0o100_644);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    #[must_use]
    pub fn mode(&self) -> u16 {
        self.file_type.mode_bits() | self.permissions
    }
}
