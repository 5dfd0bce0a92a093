//! Finds out what a source is, by its content, and reads it.

use super::catalogue::{Builder, Catalogue, CatalogueError};
use super::compression;
use super::error::{SourceError, SourceWarning};
use super::filter::Options;
use super::input::Section;
use super::oci::{self, Store};
use super::{directory, tar};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A source read, and what was odd about it.
pub type Opened = (Catalogue, Vec<SourceWarning>);

/// Reads the source at `path`: an OCI image layout (a directory with the file `oci-layout`), any other
/// directory, or an archive; of archives, one that holds an OCI layout or docker-save's `manifest.json`
/// is an image whose layers are merged, any other the tree itself. Archives may be packed with gzip, zstd or
/// xz. What is no regular file (a pipe) is read once, from front to back.
///
/// # Errors
/// Any [`SourceError`].
pub fn open(path: &Path, options: Options) -> Result<Opened, SourceError> {
    let metadata = std::fs::metadata(path).map_err(|error| SourceError::host("open", path, error))?;
    if metadata.is_dir() {
        return open_directory(path, options);
    }
    let file = File::open(path).map_err(|error| SourceError::host("open", path, error))?;
    let name = path.display().to_string();
    if !metadata.is_file() {
        return open_stream(file, &name, options);
    }
    let packed = Section::whole(file).map_err(|error| SourceError::host("open", path, error))?;
    let section = compression::unpacked(packed, &name, options.spool.as_deref())?;
    open_archive(&section, &name, options)
}

/// Reads an archive from a stream, such as standard input; `name` is how messages call it.
///
/// # Errors
/// Any [`SourceError`].
pub fn open_stream(stream: impl Read, name: &str, options: Options) -> Result<Opened, SourceError> {
    let section = compression::spool_stream(stream, name, options.spool.as_deref())?;
    open_archive(&section, name, options)
}

fn open_directory(path: &Path, options: Options) -> Result<Opened, SourceError> {
    let mut warnings = Vec::new();
    let mut builder = Builder::new(options)?;
    if path.join("oci-layout").is_file() && path.join("index.json").is_file() {
        oci::read(&mut builder, &Store::Directory(path.to_owned()), &mut warnings)?;
    } else {
        builder.options().refuse_image_options(&path.display().to_string())?;
        directory::read(&mut builder, path, &mut warnings)?;
    }
    Ok(finish(builder, warnings))
}

fn open_archive(section: &Section, name: &str, options: Options) -> Result<Opened, SourceError> {
    let mut warnings = Vec::new();
    let mut builder = Builder::new(options.clone())?;
    tar::read(&mut builder, section, name, &mut warnings)?;
    let tree = |error: CatalogueError| SourceError::Tree { archive: name.to_owned(), error };
    let mut has = |path: &[u8]| builder.find(path).map(|found| found.is_some()).map_err(tree);
    let is_layout = has(b"oci-layout")? && has(b"index.json")?;
    if !is_layout && !has(b"manifest.json")? {
        options.refuse_image_options(name)?;
        return Ok(finish(builder, warnings));
    }
    // The image's own files, whatever the options say about those of its layers.
    let mut inner = Builder::new(Options::default())?;
    tar::read(&mut inner, section, name, &mut Vec::new())?;
    let store = Store::Archive { files: Box::new(inner.finish()), name: name.to_owned() };
    if !is_layout && !oci::is_docker_archive(&store) {
        options.refuse_image_options(name)?;
        return Ok(finish(builder, warnings));
    }
    let mut builder = Builder::new(options)?;
    match is_layout {
        true => oci::read(&mut builder, &store, &mut warnings)?,
        false => oci::read_docker_archive(&mut builder, &store, &mut warnings)?,
    }
    Ok(finish(builder, warnings))
}

fn finish(builder: Builder, mut warnings: Vec<SourceWarning>) -> Opened {
    if builder.dropped_xattrs > 0 {
        warnings.push(SourceWarning::DroppedXattrs { count: builder.dropped_xattrs });
    }
    (builder.finish(), warnings)
}

#[cfg(test)]
mod tests;
