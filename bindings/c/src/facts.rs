//! Metadata as a struct of C.

use std::ffi::{c_char, c_int};

use crate::failure::{Failure, guard};
use crate::image::PlatfsImage;
use crate::raw;

/// A point in time.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct PlatfsTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds after the second.
    pub nanoseconds: u32,
}

/// Attributes of a file.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct PlatfsStat {
    /// Number of the inode.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes on the volume.
    pub sectors: u64,
    /// Type and permissions, as st_mode.
    pub mode: u32,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major number of a device file.
    pub major: u32,
    /// Minor number of a device file.
    pub minor: u32,
    /// Last access.
    pub access: PlatfsTime,
    /// Last change of contents.
    pub modify: PlatfsTime,
    /// Last change of the inode.
    pub change: PlatfsTime,
    /// When it was made; 0 if the volume does not know.
    pub create: PlatfsTime,
}

impl PlatfsStat {
    pub(crate) fn of(facts: &platfs::Metadata) -> Self {
        let time = |at: platfs::Timestamp| PlatfsTime { seconds: at.seconds, nanoseconds: at.nanoseconds };
        let (major, minor) = facts.device.unwrap_or_default();
        PlatfsStat {
            inode: u64::from(facts.inode.get()),
            size: facts.size,
            sectors: facts.sectors,
            mode: u32::from(facts.mode()),
            links: u32::from(facts.links),
            uid: facts.uid,
            gid: facts.gid,
            major,
            minor,
            access: time(facts.times.access),
            modify: time(facts.times.modify),
            change: time(facts.times.change),
            create: facts.times.create.map(time).unwrap_or_default(),
        }
    }
}

/// Fills a struct with the facts of a path.
///
/// # Safety
/// As the header says of `platfs_stat`.
unsafe fn look(
    image: *const PlatfsImage,
    path: *const c_char,
    stat: *mut PlatfsStat,
    ask: fn(&platfs::Image, &[u8]) -> platfs::Result<platfs::Metadata>,
) -> c_int {
    guard(-1, || {
        // SAFETY: an image of ours by the header.
        let image = &unsafe { raw::reference(image) }?.image;
        // SAFETY: a text, and a struct to fill, by the header.
        let (path, stat) = unsafe { (raw::text(path)?, raw::exclusive(stat)?) };
        let facts =
            ask(image, path).map_err(|error| Failure::from(error).at(String::from_utf8_lossy(path)))?;
        *stat = PlatfsStat::of(&facts);
        Ok(0)
    })
}

/// The facts of a file; symbolic links are followed.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_stat(
    image: *const PlatfsImage,
    path: *const c_char,
    stat: *mut PlatfsStat,
) -> c_int {
    // SAFETY: as this function.
    unsafe { look(image, path, stat, |image, path| image.metadata(path)) }
}

/// The facts of a file; a symbolic link at the end of the path is not followed.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_lstat(
    image: *const PlatfsImage,
    path: *const c_char,
    stat: *mut PlatfsStat,
) -> c_int {
    // SAFETY: as this function.
    unsafe { look(image, path, stat, |image, path| image.symlink_metadata(path)) }
}
