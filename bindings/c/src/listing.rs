//! Directories, read name by name: a few names are held at a time, however large the directory is.

use std::ffi::{CString, c_char, c_int};

use platfs::{DirEntry, FileType, InodeNumber};

use crate::failure::{Failure, guard};
use crate::image::PlatfsImage;
use crate::raw;

/// A directory that is being read. It keeps its image open.
pub struct PlatfsDir {
    image: platfs::Image,
    /// Keeps the inode of a directory that is removed meanwhile.
    _held: platfs::Dir,
    directory: InodeNumber,
    position: u64,
    batch: std::vec::IntoIter<(DirEntry, u64)>,
    name: CString,
}

/// A name in a directory.
#[repr(C)]
pub struct PlatfsEntry {
    /// Number of the inode.
    pub inode: u64,
    /// The type, as the upper bits of st_mode.
    pub mode: u32,
    /// The name, until the next call with the same directory.
    pub name: *const c_char,
}

fn kind(file_type: FileType) -> u32 {
    match file_type {
        FileType::Regular => 0o100_000,
        FileType::Directory => 0o040_000,
        FileType::Symlink => 0o120_000,
        FileType::CharDevice => 0o020_000,
        FileType::BlockDevice => 0o060_000,
        FileType::Fifo => 0o010_000,
        FileType::Socket => 0o140_000,
    }
}

impl PlatfsDir {
    /// The next name but `.` and `..`; `None` at the end.
    fn next(&mut self) -> Result<Option<DirEntry>, Failure> {
        loop {
            let Some((entry, behind)) = self.batch.next() else {
                let batch = self.image.volume().read_dir_from(self.directory, self.position)?;
                if batch.is_empty() {
                    return Ok(None);
                }
                self.batch = batch.into_iter();
                continue;
            };
            self.position = behind;
            if entry.name != b"." && entry.name != b".." {
                return Ok(Some(entry));
            }
        }
    }
}

/// Begins to read a directory.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_opendir(image: *const PlatfsImage, path: *const c_char) -> *mut PlatfsDir {
    guard(std::ptr::null_mut(), || {
        // SAFETY: an image of ours by the header.
        let image = unsafe { raw::reference(image) }?.image.clone();
        // SAFETY: a text by the header.
        let path = unsafe { raw::text(path) }?;
        let at = |error| Failure::from(error).at(String::from_utf8_lossy(path));
        let held = image.at(path).map_err(at)?;
        let directory = image.inode_of(path).map_err(at)?;
        let batch = Vec::new().into_iter();
        Ok(raw::give(PlatfsDir {
            image,
            _held: held,
            directory,
            position: 0,
            batch,
            name: CString::default(),
        }))
    })
}

/// The next name: 1, or 0 at the end.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_readdir(directory: *mut PlatfsDir, entry: *mut PlatfsEntry) -> c_int {
    guard(-1, || {
        // SAFETY: a directory of ours, and a struct to fill, by the header.
        let (directory, entry) = unsafe { (raw::exclusive(directory)?, raw::exclusive(entry)?) };
        let Some(found) = directory.next()? else { return Ok(0) };
        let file_type = directory.image.volume().entry_type(&found)?;
        // A name with NUL in it is damage: it is cut there.
        let name = found.name.split(|byte| *byte == 0).next().unwrap_or_default();
        directory.name = CString::new(name).unwrap_or_default();
        *entry = PlatfsEntry {
            inode: u64::from(found.inode.get()),
            mode: kind(file_type),
            name: directory.name.as_ptr(),
        };
        Ok(1)
    })
}

/// Ends reading a directory.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_closedir(directory: *mut PlatfsDir) {
    guard((), || {
        // SAFETY: a directory of ours by the header, not used afterwards.
        drop(unsafe { raw::take(directory) });
        Ok(())
    });
}
