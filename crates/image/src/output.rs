//! New files of the host as devices. That they appear whole or not at all is [`platfs_host`]'s.

use platfs::device::FileDevice;
pub use platfs_host::{NewDirectory, Output, OutputLocation, Privacy, followed};
use std::io;

/// A new file as a device.
///
/// # Errors
/// Its handle can't be duplicated.
pub fn device_of(output: &Output) -> io::Result<FileDevice> {
    FileDevice::new(output.file()?)
}
