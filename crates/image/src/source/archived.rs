//! Sources that are archives, or OCI images: one alone, or one of several layers.
//!
//! Owns the recognition of images by the files in an archive. Excludes both formats (`tar`, `oci`), and builds without
//! the feature `archives` (`archived_left_out`, which has the same functions).

use super::catalogue::{CatalogueBuilder, CatalogueError};
use super::error::SourceError;
use super::input::Section;
use super::oci::{self, Store};
use super::open::Source;
use super::options::SourceOptions;
use super::reading::Reading;
use super::tar::{self, WhiteoutStyle};
use platfs_host::{Directory, Kind, inside};
use std::path::Path;

/// Reads an archive: a tree, or an image whose layers are merged.
pub(super) fn read(
    options: &SourceOptions,
    mut reading: Reading,
    section: &Section,
    name: &str,
) -> Result<Source, SourceError> {
    let mut builder = CatalogueBuilder::new(options.clone())?;
    tar::read(&mut reading, &mut builder, section, name)?;
    let tree = |error: CatalogueError| SourceError::Tree { archive: name.to_owned(), error };
    let mut has = |path: &[u8]| builder.find(path).map(|found| found.is_some()).map_err(tree);
    if (has(b"oci-layout")? && has(b"index.json")?) || has(b"manifest.json")? {
        let mut merged = CatalogueBuilder::new(options.clone())?;
        if image(&mut reading, &mut merged, section, name)? {
            return options.finish(reading, merged);
        }
    }
    options.refuse_image_options(name)?;
    options.finish(reading, builder)
}

/// Lays an archive over what is there; says whether it is an image.
pub(super) fn layer(
    reading: &mut Reading,
    builder: &mut CatalogueBuilder,
    section: &Section,
    name: &str,
) -> Result<bool, SourceError> {
    if image(reading, builder, section, name)? {
        return Ok(true);
    }
    builder.begin_layer();
    tar::read_layer(reading, builder, section, name, WhiteoutStyle::Overlayfs)?;
    Ok(false)
}

/// Reads the image in a directory: an OCI layout, docker-save's files, or skopeo's `dir:`. Gives the directory back if it
/// holds none of them.
pub(super) fn image_in(
    reading: &mut Reading,
    builder: &mut CatalogueBuilder,
    path: &Path,
    directory: Directory,
) -> Result<Option<Directory>, SourceError> {
    let has =
        |name: &str| inside(&directory, Path::new(name)).is_ok_and(|(facts, _)| facts.kind == Kind::File);
    let (is_layout, has_manifest, has_version) =
        (has("oci-layout") && has("index.json"), has("manifest.json"), has("version"));
    if !is_layout && !has_manifest {
        return Ok(Some(directory));
    }
    let flat = !is_layout && has_version;
    let store = Store::Directory { path: path.to_owned(), directory, flat };
    if is_layout {
        oci::read(reading, builder, &store)?;
    } else if oci::is_docker_archive(&store) {
        oci::read_docker_archive(reading, builder, &store)?;
    } else if has_version && oci::is_flat(&store) {
        oci::read_flat(reading, builder, &store)?;
    } else if let Store::Directory { directory, .. } = store {
        return Ok(Some(directory));
    }
    Ok(None)
}

/// Reads the layers of the image in an archive; says whether it holds one.
///
/// The image's own files are read whatever the options say about those of its layers. What is odd about them is known,
/// or will be.
fn image(
    reading: &mut Reading,
    builder: &mut CatalogueBuilder,
    section: &Section,
    name: &str,
) -> Result<bool, SourceError> {
    let (known, names) = (reading.warnings.len(), reading.names(builder));
    let mut inner = CatalogueBuilder::new(SourceOptions::new())?;
    match tar::read_over(reading, &mut inner, section, name, names) {
        // A link to what a lower source holds: it is no image, but a part of a tree.
        Err(SourceError::Tree { error: CatalogueError::NoTarget { .. }, .. }) => {
            reading.warnings.truncate(known);
            return Ok(false);
        }
        read => read?,
    }
    reading.warnings.truncate(known);
    let files = Box::new(inner.finish());
    let is_layout = files.find(b"oci-layout").is_some() && files.find(b"index.json").is_some();
    let store = Store::Archive { files, name: name.to_owned() };
    if is_layout {
        oci::read(reading, builder, &store)?;
    } else if oci::is_docker_archive(&store) {
        oci::read_docker_archive(reading, builder, &store)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}
