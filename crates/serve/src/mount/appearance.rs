//! How files of a mount look where that is said by options: their owner, group and permissions.
//!
//! The image keeps what it says. What the kernel shows, and checks, is this.

use ondisk::inode::FileType;

/// Permissions that a mask leaves.
const ALL: u16 = 0o777;

/// Attributes shown in place of the image's; `None` shows the image's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Appearance {
    /// The owner of all files.
    pub uid: Option<u32>,
    /// The group of all files.
    pub gid: Option<u32>,
    /// Bits that no file has but directories.
    pub file_mask: Option<u16>,
    /// Bits that no directory has.
    pub directory_mask: Option<u16>,
}

impl Appearance {
    /// Returns true if anything is shown as it is not.
    #[must_use]
    pub fn is_any(&self) -> bool {
        *self != Appearance::default()
    }

    /// Returns the permissions shown of a file with these.
    #[must_use]
    pub fn permissions(&self, file_type: FileType, permissions: u16) -> u16 {
        let mask = match file_type {
            FileType::Directory => self.directory_mask,
            FileType::Symlink => None,
            _ => self.file_mask,
        };
        mask.map_or(permissions, |mask| ALL & !mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_say_all_of_the_permissions_but_of_links() {
        let shown = Appearance { file_mask: Some(0o137), ..Appearance::default() };
        assert!(shown.is_any() && !Appearance::default().is_any());
        assert_eq!(shown.permissions(FileType::Regular, 0o4711), 0o640);
        assert_eq!(shown.permissions(FileType::Directory, 0o700), 0o700);
        let shown = Appearance { directory_mask: Some(0), file_mask: Some(0), ..Appearance::default() };
        assert_eq!(shown.permissions(FileType::Directory, 0o700), 0o777);
        assert_eq!(shown.permissions(FileType::Symlink, 0o777), 0o777);
    }
}
