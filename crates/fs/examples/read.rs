//! Reads an image: lists a directory with all below it, and prints a file.
//!
//! `cargo run -p platfs --example read -- disk.img /etc os-release`

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;

use platfs::Image;

/// Lists `directory` of an image, then copies the `file` in it to `out`.
///
/// # Errors
/// A part of the image that can't be read; a failed write.
pub fn read(image: &Path, directory: &str, file: &str, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let image = Image::open(image)?;
    let directory = image.at(directory)?;
    for entry in directory.walk("")? {
        let entry = entry?;
        let known = entry.metadata()?;
        let path = entry.path();
        writeln!(out, "{:06o} {:>10} {}", known.mode(), known.size, String::from_utf8_lossy(&path))?;
    }
    // A `File` is a `std::io::Read`: nothing of it has to fit memory.
    io::copy(&mut directory.file(file)?, out)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [image, directory, file] = &words[..] else {
        return Err("usage: read IMAGE DIRECTORY FILE".into());
    };
    read(Path::new(image), directory, file, &mut io::stdout())
}
