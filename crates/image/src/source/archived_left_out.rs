//! Stands for `archived` in builds without the feature `archives`: each of its functions refuses, by name.

use super::catalogue::CatalogueBuilder;
use super::error::SourceError;
use super::input::Section;
use super::open::Source;
use super::options::SourceOptions;
use super::reading::Reading;
use platfs_host::{Directory, inside};
use std::path::Path;

/// Refuses an archive.
pub(super) fn read(_: &SourceOptions, _: Reading, _: &Section, name: &str) -> Result<Source, SourceError> {
    Err(SourceError::LeftOut { archive: name.to_owned() })
}

/// Refuses an archive as a layer.
pub(super) fn layer(
    _: &mut Reading,
    _: &mut CatalogueBuilder,
    _: &Section,
    name: &str,
) -> Result<bool, SourceError> {
    Err(SourceError::LeftOut { archive: name.to_owned() })
}

/// Refuses an OCI image layout; any other directory comes back.
pub(super) fn image_in(
    _: &mut Reading,
    _: &mut CatalogueBuilder,
    path: &Path,
    directory: Directory,
) -> Result<Option<Directory>, SourceError> {
    match inside(&directory, Path::new("oci-layout")) {
        Ok(_) => Err(SourceError::LeftOut { archive: path.display().to_string() }),
        Err(_) => Ok(Some(directory)),
    }
}
