//! Images, and what is done in them by paths.

use std::ffi::{c_char, c_int, c_uint};

use platfs::{OpenOptions, Timestamp};
use platfs_image::clock;
use platfs_open::device;
use platfs_open::stores::StoreOptions;

use crate::failure::{Failure, guard};
use crate::raw;

/// An open image.
pub struct PlatfsImage {
    pub(crate) image: platfs::Image,
    writes: bool,
}

/// `PLATFS_WRITE`
pub(crate) const WRITE: c_uint = 1;
/// `PLATFS_FORCE`
const FORCE: c_uint = 2;

impl PlatfsImage {
    /// The image at this moment: what is changed gets the time.
    pub(crate) fn now(&self) -> Result<platfs::Image, Failure> {
        Ok(if self.writes { self.image.at_time(clock::now())? } else { self.image.clone() })
    }

    pub(crate) fn of(image: platfs::Image, writes: bool) -> Self {
        PlatfsImage { image, writes }
    }
}

/// Opens an image.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_open(path: *const c_char, flags: c_uint) -> *mut PlatfsImage {
    guard(std::ptr::null_mut(), || {
        if flags & !(WRITE | FORCE) != 0 {
            return Err(Failure::new(libc::EINVAL, format!("unknown flags {flags:#x}")));
        }
        // SAFETY: a text by the header.
        let path = unsafe { raw::path(path) }?;
        let writes = flags & WRITE != 0;
        let options = OpenOptions::new().write(writes).force(flags & FORCE != 0).now(clock::now());
        let open = if writes { device::write } else { device::read };
        let device = open(path.as_os_str(), &StoreOptions::default());
        let device = device.map_err(|error| Failure::from(error).at(path.display()))?;
        let image = platfs::Image::on(device, &options);
        let image = image.map_err(|error| Failure::opening(&error).at(path.display()))?;
        Ok(raw::give(PlatfsImage { image, writes }))
    })
}

/// Makes everything stable that was written.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_sync(image: *const PlatfsImage) -> c_int {
    guard(-1, || {
        // SAFETY: an image of ours by the header.
        unsafe { raw::reference(image) }?.image.sync()?;
        Ok(0)
    })
}

/// Closes an image and frees it, whatever happens.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_close(image: *mut PlatfsImage) -> c_int {
    guard(-1, || {
        // SAFETY: an image of ours by the header, not used afterwards.
        if let Some(image) = unsafe { raw::take(image) } {
            image.image.close()?;
        }
        Ok(0)
    })
}

/// A call with one path.
macro_rules! by_path {
    ($(#[$about:meta])* $name:ident($($more:ident: $type:ty),*) $call:expr) => {
        $(#[$about])*
        ///
        /// # Safety
        /// As the header says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(image: *const PlatfsImage, path: *const c_char, $($more: $type),*) -> c_int {
            guard(-1, || {
                // SAFETY: an image of ours by the header.
                let image = unsafe { raw::reference(image) }?.now()?;
                // SAFETY: a text by the header.
                let path = unsafe { raw::text(path) }?;
                let call: fn(&platfs::Image, &[u8], $($type),*) -> Result<(), Failure> = $call;
                call(&image, path, $($more),*).map_err(|failure| failure.at(String::from_utf8_lossy(path)))?;
                Ok(0)
            })
        }
    };
}

/// A call with two paths.
macro_rules! by_two_paths {
    ($(#[$about:meta])* $name:ident $call:expr) => {
        $(#[$about])*
        ///
        /// # Safety
        /// As the header says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(image: *const PlatfsImage, from: *const c_char, to: *const c_char) -> c_int {
            guard(-1, || {
                // SAFETY: an image of ours by the header.
                let image = unsafe { raw::reference(image) }?.now()?;
                // SAFETY: texts by the header.
                let (from, to) = unsafe { (raw::text(from)?, raw::text(to)?) };
                let call: fn(&platfs::Image, &[u8], &[u8]) -> platfs::Result<()> = $call;
                call(&image, from, to).map_err(|error| Failure::from(error).at(String::from_utf8_lossy(to)))?;
                Ok(0)
            })
        }
    };
}

by_path! {
    /// Makes a directory.
    platfs_mkdir(mode: c_uint) |image, path, mode| {
        let permissions = permissions(mode)?;
        image.create_dir(path)?;
        Ok(image.set_permissions(path, permissions)?)
    }
}

by_path! {
    /// Makes a directory and those above it.
    platfs_mkdirs() |image, path| Ok(image.create_dir_all(path)?)
}

by_path! {
    /// Removes a name of a file.
    platfs_unlink() |image, path| Ok(image.remove_file(path)?)
}

by_path! {
    /// Removes an empty directory.
    platfs_rmdir() |image, path| Ok(image.remove_dir(path)?)
}

by_path! {
    /// Removes a directory and all below it.
    platfs_remove_all() |image, path| Ok(image.remove_dir_all(path)?)
}

by_path! {
    /// Changes permissions.
    platfs_chmod(mode: c_uint) |image, path, mode| Ok(image.set_permissions(path, permissions(mode)?)?)
}

by_path! {
    /// Changes the owner.
    platfs_chown(uid: u32, gid: u32) |image, path, uid, gid| Ok(image.set_owner(path, uid, gid)?)
}

by_path! {
    /// Changes the times of access and of change of contents.
    platfs_utimes(access: i64, modify: i64) |image, path, access, modify| {
        Ok(image.set_times(path, Timestamp::from_seconds(access), Timestamp::from_seconds(modify))?)
    }
}

by_two_paths! {
    /// Renames, and replaces what had the new name.
    platfs_rename |image, from, to| image.rename(from, to)
}

by_two_paths! {
    /// Gives a file another name.
    platfs_link |image, from, to| image.hard_link(from, to)
}

by_two_paths! {
    /// Makes a symbolic link `to` that leads to `from`.
    platfs_symlink |image, from, to| image.symlink(from, to)
}

/// The twelve bits of permissions.
fn permissions(mode: c_uint) -> Result<u16, Failure> {
    let legal = u16::try_from(mode).ok().filter(|mode| *mode <= 0o7777);
    legal.ok_or_else(|| Failure::new(libc::EINVAL, format!("{mode:o} are no permissions")))
}

/// Where a symbolic link leads.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_readlink(
    image: *const PlatfsImage,
    path: *const c_char,
    buffer: *mut c_char,
    len: usize,
) -> isize {
    guard(-1, || {
        // SAFETY: an image of ours by the header.
        let image = &unsafe { raw::reference(image) }?.image;
        // SAFETY: a text and `len` bytes by the header.
        let (path, buffer) = unsafe { (raw::text(path)?, raw::bytes_mut(buffer.cast(), len)?) };
        let target =
            image.read_link(path).map_err(|error| Failure::from(error).at(String::from_utf8_lossy(path)))?;
        raw::put(&target, buffer)
    })
}
