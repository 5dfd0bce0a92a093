//! OCI image layouts and docker-save archives: which image, which layers, and whether their digests hold.
//!
//! After the OCI image specification 1.1 ("Image Layout", "Image Index", "Image Manifest", "Image Layer
//! Filesystem Changeset"), and for docker-save the Docker image specification 1.2. Both may stand in a directory
//! or in an archive: a [`Store`] hides which. Layers are applied in order by [`super::tar::read_layer`]; a
//! plain layer inside an archive is read where it lies.

mod choose;
mod digest;
mod store;

pub(super) use store::Store;

use super::catalogue::CatalogueBuilder;
use super::compression;
use super::error::{SourceError, SourceWarning};
use super::reading::Reading;
use super::tar::{self, WhiteoutStyle};
use crate::archive::Input;
use digest::Digest;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// Indexes within indexes followed before an image is called broken.
const MAX_NESTING: usize = 4;

/// Layers of an image. Docker makes at most 127, and Linux lays 500 over each other.
const MAX_LAYERS: usize = 1024;

/// A reference to a blob.
#[derive(Clone, Debug, Deserialize)]
struct Descriptor {
    digest: String,
    size: u64,
    #[serde(default)]
    platform: Option<Platform>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

/// For which machines an image is.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
struct Platform {
    os: String,
    architecture: String,
    #[serde(default)]
    variant: Option<String>,
}

/// An index has `manifests`, an image manifest `layers`: media types are not always given.
#[derive(Debug, Deserialize)]
struct IndexOrManifest {
    #[serde(default)]
    manifests: Option<Vec<Descriptor>>,
    #[serde(default)]
    layers: Option<Vec<Descriptor>>,
    #[serde(default)]
    config: Option<Descriptor>,
}

/// One image of docker-save's `manifest.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Part of an image's configuration that is needed.
#[derive(Debug, Deserialize)]
struct Config {
    rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
struct RootFs {
    /// The digests of the unpacked layers.
    diff_ids: Vec<String>,
}

/// Reads the image of an OCI layout that the builder's options ask for.
///
/// # Errors
/// [`SourceError::Image`] for what contradicts itself, and those of its archives.
pub(super) fn read(
    reading: &mut Reading,
    builder: &mut CatalogueBuilder,
    store: &Store,
) -> Result<(), SourceError> {
    let index: IndexOrManifest = store.parse("index.json")?;
    let (image, platform) = (builder.options().image.clone(), builder.options().platform.clone());
    let mut found = index;
    // Whether the index says for which platform the image is: then it was chosen by that.
    let mut named = false;
    let mut name = image.as_deref();
    for _ in 0..MAX_NESTING {
        if let Some(layers) = found.layers {
            if let Some(wanted) = platform.as_ref().filter(|_| !named) {
                check_platform(reading, store, found.config.as_ref(), wanted)?;
            }
            configure(reading, store, found.config.as_ref())?;
            return read_layers(reading, builder, store, &layers);
        }
        let manifests = found.manifests.unwrap_or_default();
        let chosen = choose::manifest(&manifests, name, platform.as_deref());
        let chosen = chosen.map_err(|problem| store.problem(problem))?;
        named = chosen.platform.is_some();
        let blob = store.blob(reading, chosen)?;
        found = store.parse_section(&blob, &chosen.digest)?;
        // Only the outermost index knows names.
        name = None;
    }
    Err(store.problem(format!("indexes are nested more than {MAX_NESTING} deep")))
}

/// Platform in an image's configuration.
#[derive(Debug, Deserialize)]
struct Machine {
    #[serde(flatten)]
    platform: Option<Platform>,
}

/// An index need not name the platforms of its images, and a single image is taken as it is. Its configuration says
/// whether it is what was asked for.
fn check_platform(
    reading: &mut Reading,
    store: &Store,
    config: Option<&Descriptor>,
    wanted: &str,
) -> Result<(), SourceError> {
    let machine = match config {
        Some(config) => {
            store.parse_section::<Machine>(&store.blob(reading, config)?, &config.digest)?.platform
        }
        None => None,
    };
    choose::refuse_other(machine.as_ref(), wanted).map_err(|problem| store.problem(problem))
}

/// Keeps the configuration. Layers are read without it, too, where it is missing or damaged; then it is warned of.
///
/// # Errors
/// It can't be read, and nothing else is asked for.
fn configure(reading: &mut Reading, store: &Store, config: Option<&Descriptor>) -> Result<(), SourceError> {
    reading.configuration = None;
    let Some(config) = config else { return Ok(()) };
    let name = format!("the configuration {}", config.digest);
    let read = store.blob(reading, config).and_then(|blob| {
        let bytes = store.bytes(&blob, &name)?;
        let parsed = serde_json::from_slice::<IgnoredAny>(&bytes);
        parsed.map(|_| bytes).map_err(|error| store.problem(format!("{name} is no JSON: {error}")))
    });
    match read {
        Ok(bytes) => reading.configuration = Some(bytes),
        Err(error @ (SourceError::Cancelled(_) | SourceError::Spool { .. })) => return Err(error),
        Err(error) => {
            let problem = match error {
                SourceError::Image { problem, .. } if reading.skips_layers => problem,
                error => error.to_string(),
            };
            let warning = SourceWarning::NoConfiguration { name, problem };
            if reading.skips_layers {
                return Err(store.problem(warning.to_string()));
            }
            reading.warnings.push(warning);
        }
    }
    Ok(())
}

fn read_layers(
    reading: &mut Reading,
    builder: &mut CatalogueBuilder,
    store: &Store,
    layers: &[Descriptor],
) -> Result<(), SourceError> {
    bounded(store, layers.len())?;
    if reading.skips_layers {
        return Ok(());
    }
    for layer in layers {
        let blob = store.blob(reading, layer)?;
        let unpacked = compression::unpacked(reading, blob, &layer.digest)?;
        builder.begin_layer();
        tar::read_layer(reading, builder, &unpacked, &layer.digest, WhiteoutStyle::Names)?;
    }
    Ok(())
}

/// Refuses what no image has: a list of a few megabytes could name one layer thousands of times.
fn bounded(store: &Store, layers: usize) -> Result<(), SourceError> {
    if layers <= MAX_LAYERS {
        return Ok(());
    }
    Err(store.problem(format!("the image has {layers} layers; more than {MAX_LAYERS} are not read")))
}

/// Tells if the files are those that skopeo writes for `dir:`.
pub(super) fn is_flat(store: &Store) -> bool {
    let mut start = [0; b"Directory Transport Version".len()];
    let version = store.open("version").ok();
    let read = version.and_then(|version| version.read_exact_at(0, &mut start).ok());
    read.is_some() && start == *b"Directory Transport Version"
}

/// Reads the image of skopeo's `dir:`, which holds one.
///
/// # Errors
/// As [`read`].
pub(super) fn read_flat(
    reading: &mut Reading,
    builder: &mut CatalogueBuilder,
    store: &Store,
) -> Result<(), SourceError> {
    let manifest: IndexOrManifest = store.parse("manifest.json")?;
    if let Some(wanted) = builder.options().platform.clone() {
        check_platform(reading, store, manifest.config.as_ref(), &wanted)?;
    }
    let layers = manifest.layers.unwrap_or_default();
    if layers.is_empty() {
        return Err(store.problem("the image has no layers".to_owned()));
    }
    configure(reading, store, manifest.config.as_ref())?;
    read_layers(reading, builder, store, &layers)
}

/// Tells if `manifest.json` is docker-save's, and not just a file of that name: its configuration, or one of its layers, is
/// beside it. What is missing then is an error of the image.
pub(super) fn is_docker_archive(store: &Store) -> bool {
    let images: Result<Vec<DockerImage>, SourceError> = store.parse("manifest.json");
    images.is_ok_and(|images| {
        let is_there = |path: &String| store.open(path).is_ok();
        images.iter().any(|image| is_there(&image.config) || image.layers.iter().any(is_there))
    })
}

/// Reads the image of a docker-save archive that the builder's options ask for.
///
/// # Errors
/// As [`read`].
pub(super) fn read_docker_archive(
    reading: &mut Reading,
    builder: &mut CatalogueBuilder,
    store: &Store,
) -> Result<(), SourceError> {
    let images: Vec<DockerImage> = store.parse("manifest.json")?;
    let image = choose::docker_image(&images, builder.options().image.as_deref());
    let image = image.map_err(|problem| store.problem(problem))?;
    let config: Config = store.parse(&image.config)?;
    if let Some(wanted) = &builder.options().platform {
        let machine: Machine = store.parse(&image.config)?;
        let right = choose::refuse_other(machine.platform.as_ref(), wanted);
        right.map_err(|problem| store.problem(problem))?;
    }
    if config.rootfs.diff_ids.len() != image.layers.len() {
        return Err(store.problem(format!(
            "{} lists {} layers, manifest.json {}",
            image.config,
            config.rootfs.diff_ids.len(),
            image.layers.len()
        )));
    }
    bounded(store, image.layers.len())?;
    reading.configuration = Some(store.bytes(&store.open(&image.config)?, &image.config)?);
    if reading.skips_layers {
        return Ok(());
    }
    for (layer, diff_id) in image.layers.iter().zip(&config.rootfs.diff_ids) {
        let unpacked = compression::unpacked(reading, store.open(layer)?, layer)?;
        let digest = Digest::parse(diff_id).map_err(|problem| store.problem(problem))?;
        store.verify(reading, &digest, &unpacked, layer)?;
        builder.begin_layer();
        tar::read_layer(reading, builder, &unpacked, layer, WhiteoutStyle::Names)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
