//! A tar archive of any number of small files, made while it is read: for volumes that no directory on disk
//! should have to hold.

use std::io::{self, Write};

/// One file in this many has contents; the others are empty.
const WITH_CONTENTS: u64 = 4;

/// Writes an archive of `files` files, spread evenly over `directories` directories, to `out`.
///
/// # Errors
/// The output's.
pub fn write_tar(out: &mut dyn Write, files: u64, directories: u64) -> io::Result<()> {
    let directories = directories.max(1);
    for directory in 0..directories {
        // At most a thousand in one directory.
        if directory.is_multiple_of(1000) {
            out.write_all(&header(&format!("d{}/", directory / 1000), b'5', 0))?;
        }
        let place = format!("d{}/d{}/", directory / 1000, directory % 1000);
        out.write_all(&header(&place, b'5', 0))?;
        let share = files * directory / directories..files * (directory + 1) / directories;
        for file in share {
            let contents = if file.is_multiple_of(WITH_CONTENTS) { 500 } else { 0 };
            out.write_all(&header(&format!("{place}file-number-{file}"), b'0', contents))?;
            if contents > 0 {
                out.write_all(&[b'c'; 512])?;
            }
        }
    }
    out.write_all(&[0; 1024])
}

/// A header of the ustar format.
fn header(name: &str, kind: u8, size: u64) -> [u8; 512] {
    let mut block = [0; 512];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, if kind == b'5' { b"0000755" } else { b"0000644" });
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{size:011o}").as_bytes());
    put(136, b"14000000000");
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tar_lists_what_was_asked_for() {
        if !crate::tool::have_tools("many", &["tar"]) {
            return;
        }
        let scratch = crate::scratch::Scratch::new("many");
        let file = scratch.join("many.tar");
        write_tar(&mut std::fs::File::create(&file).unwrap(), 25, 4).unwrap();
        let listed = crate::tool::text("tar", &[std::ffi::OsStr::new("-tf"), file.as_os_str()]);
        assert_eq!(listed.lines().filter(|line| line.ends_with('/')).count(), 1 + 4);
        assert_eq!(listed.lines().count(), 1 + 4 + 25);
    }
}
