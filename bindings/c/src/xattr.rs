//! Extended attributes, in the shape of getxattr(2).

use std::ffi::{c_char, c_int};

use crate::failure::{Failure, guard};
use crate::image::PlatfsImage;
use crate::raw;

fn at(path: &[u8]) -> impl Fn(platfs::Error) -> Failure {
    move |error| Failure::from(error).at(String::from_utf8_lossy(path))
}

/// The value of an attribute.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_getxattr(
    image: *const PlatfsImage,
    path: *const c_char,
    name: *const c_char,
    value: *mut u8,
    len: usize,
) -> isize {
    guard(-1, || {
        // SAFETY: an image of ours by the header.
        let image = &unsafe { raw::reference(image) }?.image;
        // SAFETY: texts and `len` bytes by the header.
        let (path, name, buffer) =
            unsafe { (raw::text(path)?, raw::text(name)?, raw::bytes_mut(value, len)?) };
        let value = image.xattr(path, name).map_err(at(path))?;
        let value = value.ok_or_else(|| Failure::new(libc::ENODATA, "no such attribute"))?;
        raw::put(&value, buffer)
    })
}

/// The names of all attributes, each with a NUL behind it.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_listxattr(
    image: *const PlatfsImage,
    path: *const c_char,
    names: *mut c_char,
    len: usize,
) -> isize {
    guard(-1, || {
        // SAFETY: an image of ours by the header.
        let image = &unsafe { raw::reference(image) }?.image;
        // SAFETY: a text and `len` bytes by the header.
        let (path, buffer) = unsafe { (raw::text(path)?, raw::bytes_mut(names.cast(), len)?) };
        let names = image.xattr_names(path).map_err(at(path))?;
        let list: Vec<u8> = names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect();
        raw::put(&list, buffer)
    })
}

/// Sets an attribute.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_setxattr(
    image: *const PlatfsImage,
    path: *const c_char,
    name: *const c_char,
    value: *const u8,
    len: usize,
) -> c_int {
    guard(-1, || {
        // SAFETY: an image of ours by the header.
        let image = unsafe { raw::reference(image) }?.now()?;
        // SAFETY: texts and `len` bytes by the header.
        let (path, name, value) = unsafe { (raw::text(path)?, raw::text(name)?, raw::bytes(value, len)?) };
        image.set_xattr(path, name, value).map_err(at(path))?;
        Ok(0)
    })
}

/// Removes an attribute.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_removexattr(
    image: *const PlatfsImage,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    guard(-1, || {
        // SAFETY: an image of ours by the header.
        let image = unsafe { raw::reference(image) }?.now()?;
        // SAFETY: texts by the header.
        let (path, name) = unsafe { (raw::text(path)?, raw::text(name)?) };
        image.remove_xattr(path, name).map_err(at(path))?;
        Ok(0)
    })
}
