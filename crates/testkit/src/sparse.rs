//! Images written and copied with their zeros as holes.
//!
//! Most of a test's image is zeros, and a suite that writes them out waits for the disk. Owns: the contents of a file.
//! Excludes: its mode, owner and times, which are those of any new file.

use rustix::fs::SeekFrom;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Zeros of this many bytes in one piece become a hole.
const PIECE: usize = 4096;

/// Writes `bytes` as the whole of the file `path`.
///
/// # Errors
/// Those of the file.
pub fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let (to, bytes) = (File::create(path)?, bytes.as_ref());
    to.set_len(bytes.len() as u64)?;
    write_data(&to, 0, bytes)
}

/// Copies the contents of `from` into the file `to`; returns how many bytes that were.
///
/// # Errors
/// Those of either file.
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    let (from, to) = (File::open(from)?, File::create(to)?);
    let len = from.metadata()?.len();
    to.set_len(len)?;
    let mut buffer = vec![0; 64 * PIECE];
    let mut at = 0;
    while let Some(data) = data_from(&from, at)? {
        let end = rustix::fs::seek(&from, SeekFrom::Hole(data))?;
        at = data;
        while at < end {
            let count = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            from.read_exact_at(&mut buffer[..count], at)?;
            write_data(&to, at, &buffer[..count])?;
            at += count as u64;
        }
    }
    Ok(len)
}

/// Where the first data from `at` on are; `None` when there are none.
fn data_from(file: &File, at: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Err(rustix::io::Errno::NXIO) => Ok(None),
        found => Ok(Some(found?)),
    }
}

/// Writes what is not zeros; the file has holes there.
fn write_data(to: &File, mut at: u64, bytes: &[u8]) -> io::Result<()> {
    for piece in bytes.chunks(PIECE) {
        if *piece != [0; PIECE][..piece.len()] {
            to.write_all_at(piece, at)?;
        }
        at += piece.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn bytes_stay_and_zeros_take_no_room() {
        let scratch = Scratch::new("sparse");
        let (one, other) = (scratch.join("one"), scratch.join("other"));
        for len in [0, 1, 4095, 4096, 1_000_000, 8 << 20] {
            let mut bytes = vec![0; len];
            for at in (0..len).step_by(700_001).chain(len.checked_sub(1)) {
                bytes[at] = 7;
            }
            // The longer file that was there is gone.
            fs::write(&one, vec![1; len + 10_000]).unwrap();
            write(&one, &bytes).unwrap();
            assert!(fs::read(&one).unwrap() == bytes, "{len}");
            fs::write(&other, vec![1; len + 10_000]).unwrap();
            assert_eq!(copy(&one, &other).unwrap(), len as u64);
            assert!(fs::read(&other).unwrap() == bytes, "{len}");
            for path in [&one, &other] {
                assert!(fs::metadata(path).unwrap().blocks() * 512 <= 200_000, "{len}");
            }
        }
        // All of it a hole, at the end and in the whole.
        write(&one, vec![0; 50_000]).unwrap();
        copy(&one, &other).unwrap();
        assert!(fs::read(&other).unwrap() == vec![0; 50_000]);
    }
}
