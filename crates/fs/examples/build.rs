//! Builds an image by verbs: a volume in a new file, with directories, files, links and a device in it.
//!
//! `cargo run -p platfs --example build -- new.img`
//!
//! Without the clock and with a stated UUID, two runs write the same bytes. For a tar or a directory,
//! `platfs-image` is the better way: it also lays files out in order.

use std::error::Error;
use std::io::Write;
use std::path::Path;

use platfs::mkfs::{FsType, Options as Format};
use platfs::{Attributes, Image, Kind, NewInode, OpenOptions, Timestamp};

/// Makes a small root file system of 32 MiB in a new file.
///
/// # Errors
/// The file exists, or can't be written.
pub fn build(path: &Path) -> Result<(), Box<dyn Error>> {
    let mut format = Format::new(FsType::Ext4);
    format.label = b"example".to_vec();
    format.uuid = *b"an example's id.";
    let now = Timestamp::from_seconds(1_700_000_000);
    // Nothing has to survive a crash before the image is whole: the journal is passed by.
    let options = OpenOptions::new().unordered(true).now(now);
    let image = Image::format_file(path, 32 << 20, &format, &options)?;

    image.create_dir_all("/usr/bin")?;
    image.symlink("usr/bin", "/bin")?;
    image.write("/bin/true", b"#!/bin/sh\n")?;
    image.set_permissions("/bin/true", 0o755)?;
    image.hard_link("/usr/bin/true", "/usr/bin/yes")?;

    let etc = {
        image.create_dir("/etc")?;
        image.at("/etc")?
    };
    etc.write("hostname", "example\n")?;
    let mut hosts = etc.create_new("hosts")?;
    for number in 1..=3 {
        writeln!(hosts, "10.0.0.{number} node-{number}")?;
    }
    etc.set_owner("hosts", 0, 100)?;
    etc.set_xattr("hosts", "user.origin", "example")?;

    image.create_dir("/dev")?;
    let attributes = Attributes { permissions: 0o666, ..Attributes::default() };
    let null = NewInode { kind: Kind::CharDevice(1, 3), attributes, xattrs: &[] };
    image.make("/dev/null", &null)?;

    // An image is closed once no handle of a part of it is left.
    drop((hosts, etc));
    image.close()?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: build IMAGE")?;
    build(Path::new(&path))
}
