//! An image of a tar archive, with a line for each stage.
//!
//! `cargo run --example tar_to_image -- rootfs.tar disk.img`

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;

use platfs_image::{Builder, Progress, Source, Watch};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(archive), Some(image)) = (arguments.next(), arguments.next()) else {
        return Err("usage: tar_to_image ARCHIVE IMAGE".into());
    };
    run(archive.as_ref(), image.as_ref())
}

/// Reads the archive, and builds the image.
pub fn run(archive: &Path, image: &Path) -> Result<(), Box<dyn Error>> {
    let source = Source::open(archive)?;
    for warning in source.warnings() {
        eprintln!("{warning}");
    }
    let watch = Watch::new(|progress: &Progress| {
        // The first of each stage.
        if (progress.files, progress.bytes) == (0, 0) {
            println!("{:?}", progress.stage);
        }
        ControlFlow::Continue(())
    });
    let built = Builder::new(&source).watch(watch).build(image)?;
    println!("{} files, {} bytes", built.contents.files, built.bytes);
    Ok(())
}
