//! `plat image`: the metadata of a volume as an image of their own, without contents of files: for reports of errors.

use std::ffi::OsString;
use std::fs::File;
#[cfg(feature = "archives")]
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use platfs_forensics::RawImage;
use platfs_forensics::metadata::{self, Copied};
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::Map;

use super::replaced::{Becomes, may_replace};
use super::{cage, json};
use crate::console::{Console, Failure};
use crate::door::meant::spare;
use crate::door::output::{Output, received};
use crate::image;
use crate::reading;
use crate::sandbox::Plan;
use crate::text::Shown;

#[cfg(feature = "archives")]
/// Bytes that are packed at once.
const STEP: usize = 1 << 20;

/// Arguments of `plat image`.
#[derive(Args, Debug)]
pub struct Image {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`.
    image: OsString,
    /// The image that is made; packed, if the name ends in `.zst`.
    out: PathBuf,
    /// Only metadata: no contents of files, no values of attributes, no log.
    #[arg(long, required = true)]
    metadata: bool,
    /// Makes names and targets of links unreadable; they keep their lengths.
    #[arg(long)]
    scramble: bool,
    /// Replaces a file that exists.
    #[arg(short, long)]
    force: bool,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

impl Image {
    pub(super) fn cage(&self) -> Option<Plan> {
        cage::reading(&[&self.image], &[], Some(&self.out))
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        may_replace(&self.out, Becomes::Image, self.force)?;
        spare(&[&self.image], &self.out).map_err(|error| self.failed(error))?;
        let (ground, name) = reading::ground(&self.image, console)?;
        let key = self.scramble.then(key).transpose()?;
        let is_packed = self.out.extension().is_some_and(|extension| extension == "zst");
        let copied =
            if is_packed { self.packed(&ground, &name, key) } else { self.plain(&ground, &name, key) }?;
        for problem in &copied.problems {
            console.warn(format!("{name}: {problem}"));
        }
        if self.json {
            let mut object = Map::new();
            object.insert("blocks".to_owned(), copied.blocks.into());
            object.insert("block_size".to_owned(), ground.geometry().block_size.bytes().into());
            object.insert("problems".to_owned(), copied.problems.into());
            return Ok(json::print(console.out, object)?);
        }
        let out = Shown(self.out.as_os_str().as_encoded_bytes());
        Ok(writeln!(console.out, "{out}: {} blocks of metadata", copied.blocks)?)
    }

    fn failed(&self, error: std::io::Error) -> Failure {
        Failure::about(self.out.display(), error)
    }

    fn plain(&self, ground: &RawImage, name: &str, key: Option<[u32; 4]>) -> Result<Copied, Failure> {
        let output = Output::through(&self.out, size(ground), image::privacy(&self.image))
            .map_err(|error| self.failed(error))?;
        let to = output.device().map_err(|error| self.failed(error))?;
        let copied = metadata::copy(ground, &to, key).map_err(|error| Failure::about(name, error))?;
        output.finish().map_err(|error| self.failed(error))?;
        Ok(copied)
    }

    /// Makes the image in a file without a name, and packs that.
    fn packed(&self, ground: &RawImage, name: &str, key: Option<[u32; 4]>) -> Result<Copied, Failure> {
        let failed = |error| self.failed(error);
        let above = self.out.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut plain = tempfile::tempfile_in(above).map_err(failed)?;
        let to = received(plain.try_clone().map_err(failed)?, size(ground)).map_err(failed)?;
        let copied = metadata::copy(ground, &to, key).map_err(|error| Failure::about(name, error))?;
        let output = Output::through(&self.out, 0, image::privacy(&self.image)).map_err(failed)?;
        pack(&mut plain, output.file().map_err(failed)?).map_err(failed)?;
        output.finish().map_err(failed)?;
        Ok(copied)
    }
}

/// The bytes of the volume.
fn size(ground: &RawImage) -> u64 {
    ground.geometry().blocks << ground.geometry().block_size.log2()
}

#[cfg(feature = "archives")]
fn pack(from: &mut File, to: File) -> std::io::Result<()> {
    from.seek(SeekFrom::Start(0))?;
    let mut packing = zstd::stream::write::Encoder::new(to, 0)?;
    let mut bytes = vec![0; STEP];
    loop {
        let len = from.read(&mut bytes)?;
        if len == 0 {
            return packing.finish().map(drop);
        }
        packing.write_all(bytes.get(..len).unwrap_or_default())?;
    }
}

#[cfg(not(feature = "archives"))]
fn pack(_: &mut File, _: File) -> std::io::Result<()> {
    let why = "can't be packed: this build of plat was made without archives";
    Err(std::io::Error::new(std::io::ErrorKind::Unsupported, why))
}

/// A key that nobody knows afterwards.
fn key() -> Result<[u32; 4], Failure> {
    let mut bytes = [0; 16];
    getrandom(&mut bytes[..], GetRandomFlags::empty())
        .map_err(|error| Failure::about("random numbers", std::io::Error::from(error)))?;
    let mut key = [0; 4];
    for (word, bytes) in key.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    Ok(key)
}
