//! `plat build SOURCE -`: the image is made in a directory of its own among temporary files, and goes to standard output
//! when it is whole.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use platfs_host::{Directory, runs};
use platfs_image::output::NewDirectory;
use rustix::fs::{FileType, OFlags};

use crate::console::Failure;

/// The name of the image in its directory.
const NAME: &str = "image";
/// Bytes that are written at once.
const PIECE: usize = 1 << 20;

/// Where the image is made.
pub(super) struct Stdout {
    made: NewDirectory,
}

impl Stdout {
    /// Begins; nothing of it is left at the end.
    ///
    /// # Errors
    /// Standard output is a terminal; no directory can be made.
    pub(super) fn begin() -> Result<Self, Failure> {
        if rustix::termios::isatty(rustix::stdio::stdout()) {
            let what = "standard output is a terminal: redirect it, or name a file for the image";
            return Err(Failure::Usage(what.to_owned()));
        }
        let place = std::env::temp_dir();
        let failed = |error: io::Error| Failure::about(place.display(), error);
        let above = Directory::open(&place).map_err(failed)?;
        let name = format!("plat-{}", std::process::id());
        Ok(Stdout { made: NewDirectory::below(above, name.as_ref()).map_err(failed)? })
    }

    /// The image's path, which leads to the directory whatever its name means by now.
    pub(super) fn path(&self) -> PathBuf {
        let number = std::os::fd::AsRawFd::as_raw_fd(&self.made.directory().as_fd());
        Path::new("/proc/self/fd").join(number.to_string()).join(NAME)
    }

    /// Sends the image. Holes stay holes where standard output is a file that ends here.
    ///
    /// # Errors
    /// It can't be written.
    pub(super) fn send(self) -> Result<(), Failure> {
        let (image, facts) = self.made.directory().open_file(NAME).map_err(failed)?;
        let out = rustix::stdio::stdout();
        send(&image, facts.size, out).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => failed(error),
        })
    }
}

fn failed(error: io::Error) -> Failure {
    Failure::about("standard output", error)
}

fn send(mut image: &File, size: u64, out: BorrowedFd<'_>) -> io::Result<()> {
    let mut to = File::from(out.try_clone_to_owned()?);
    let begin = end_of_file(out)?;
    let mut at = 0;
    for run in runs(image, size).chain([Ok((size, 0))]) {
        let (start, len) = run?;
        match begin {
            Some(begin) => drop(to.seek(SeekFrom::Start(begin + start))?),
            None => zeros(&mut to, start - at)?,
        }
        image.seek(SeekFrom::Start(start))?;
        io::copy(&mut image.take(len), &mut to)?;
        at = start + len;
    }
    match begin {
        Some(begin) => to.set_len(begin + size),
        None => to.flush(),
    }
}

/// The place in a regular file behind which it has nothing, if the next byte goes there.
fn end_of_file(out: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    let stat = rustix::fs::fstat(out)?;
    let appends = rustix::fs::fcntl_getfl(out)?.contains(OFlags::APPEND);
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || appends {
        return Ok(None);
    }
    let at = rustix::fs::seek(out, rustix::fs::SeekFrom::Current(0))?;
    Ok(Some(at).filter(|at| u64::try_from(stat.st_size).unwrap_or(0) <= *at))
}

fn zeros(to: &mut File, mut count: u64) -> io::Result<()> {
    let piece = vec![0; PIECE];
    while count > 0 {
        let len = usize::try_from(count).unwrap_or(PIECE).min(PIECE);
        to.write_all(piece.get(..len).unwrap_or_default())?;
        count -= len as u64;
    }
    Ok(())
}
