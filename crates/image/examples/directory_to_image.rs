//! The smallest image of a directory: without compiled files, everything owned by root, with a label.
//!
//! `cargo run --example directory_to_image -- tree disk.img`

use std::error::Error;
use std::path::Path;

use platfs::mkfs::{FsType, Options};
use platfs_image::{Builder, Owner, Size, Source};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(tree), Some(image)) = (arguments.next(), arguments.next()) else {
        return Err("usage: directory_to_image DIRECTORY IMAGE".into());
    };
    run(tree.as_ref(), image.as_ref())
}

/// Lists the directory, and builds the image.
pub fn run(tree: &Path, image: &Path) -> Result<(), Box<dyn Error>> {
    let source = Source::options().exclude(&["*.o", "*.pyc"])?.owner(Owner::numbers(0, 0)).open(tree)?;
    let mut format = Options::new(FsType::Ext4);
    format.label = b"example".to_vec();
    let built = Builder::new(&source).format(format).size(Size::Min).build(image)?;
    println!("{} files, {} bytes, {} blocks free", built.contents.files, built.bytes, built.free_blocks);
    Ok(())
}
