//! A tar archive of all that is in an image; packed if its name ends in `.gz` or `.zst`.
//!
//! `cargo run --example image_to_tar -- disk.img tree.tar.zst`

use std::error::Error;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use platfs::device::FileDevice;
use platfs::{OpenOptions, Volume};
use platfs_image::{Exporter, Packing};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(image), Some(archive)) = (arguments.next(), arguments.next()) else {
        return Err("usage: image_to_tar IMAGE ARCHIVE".into());
    };
    run(image.as_ref(), archive.as_ref())
}

/// Opens the image, and writes the archive.
pub fn run(image: &Path, archive: &Path) -> Result<(), Box<dyn Error>> {
    let volume = Volume::open(Arc::new(FileDevice::new(File::open(image)?)?), &OpenOptions::new())?;
    let packing = Packing::of_name(archive.as_os_str().as_bytes()).ok_or("the archive is no .tar")?;
    for line in Exporter::new(&volume).to_file(archive, packing)?.lines() {
        eprintln!("{line}");
    }
    Ok(())
}
