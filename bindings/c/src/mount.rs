//! Mounts that threads of this process serve.

use std::ffi::{c_char, c_int};

use platfs_serve::mount::{Mount, MountOptions, Mounted};

use crate::failure::{Failure, guard};
use crate::raw;

/// A mount.
pub struct PlatfsMounted(Mounted);

/// Mounts an image on a directory.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_mount(
    image: *const c_char,
    directory: *const c_char,
    options: *const c_char,
) -> *mut PlatfsMounted {
    guard(std::ptr::null_mut(), || {
        // SAFETY: texts by the header.
        let (image, directory) = unsafe { (raw::path(image)?, raw::path(directory)?) };
        let options = if options.is_null() {
            MountOptions::default()
        } else {
            // SAFETY: not NULL, and a text by the header.
            let words = String::from_utf8_lossy(unsafe { raw::text(options) }?);
            words.parse().map_err(|why: String| Failure::new(libc::EINVAL, why))?
        };
        Ok(raw::give(PlatfsMounted(Mount::image(image, options)?.at(directory)?)))
    })
}

/// Unmounts a volume, closes it and frees the mount, unless files are open in it.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_unmount(mount: *mut PlatfsMounted) -> c_int {
    guard(-1, || {
        if mount.is_null() {
            return Ok(0);
        }
        // SAFETY: a mount of ours by the header, which only this call uses.
        let mounted = unsafe { raw::exclusive(mount) }?;
        let done = mounted.0.unmount();
        if mounted.0.is_served() {
            // EBUSY, and nothing else, says that nothing was freed.
            return done.map(|()| 0).map_err(|error| Failure::new(libc::EBUSY, error.to_string()));
        }
        // SAFETY: as above; its reference is not used any more.
        drop(unsafe { raw::take(mount) });
        done.map(|()| 0).map_err(|error| {
            let errno = if error.errno() == libc::EBUSY { libc::EIO } else { error.errno() };
            Failure::new(errno, error.to_string())
        })
    })
}
