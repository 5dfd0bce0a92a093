//! Which image of several: by name, then by platform. Errors say what there is to choose from.

use super::{Descriptor, DockerImage, Platform};

/// Annotations that name a manifest in an index: that of the specification, and those of containerd.
const NAMES: [&str; 2] = ["org.opencontainers.image.ref.name", "io.containerd.image.name"];

/// Chooses from an index: of the manifests with the name asked for, the only one, or the one for the platform.
pub(super) fn manifest<'d>(
    manifests: &'d [Descriptor],
    name: Option<&str>,
    platform: Option<&str>,
) -> Result<&'d Descriptor, String> {
    let images: Vec<&Descriptor> = manifests.iter().filter(|manifest| !is_attestation(manifest)).collect();
    let named: Vec<&Descriptor> = match name {
        Some(name) => images.iter().copied().filter(|image| has_name(image, name)).collect(),
        None => images.clone(),
    };
    if let (Some(name), true) = (name, named.is_empty()) {
        return Err(format!("it holds no image named {name:?}, but {}", list(&images, names_of)));
    }
    match (named.as_slice(), platform) {
        ([], _) => Err("the index holds no image".to_owned()),
        ([only], None) => Ok(only),
        (several, _) => by_platform(several, platform),
    }
}

fn by_platform<'d>(images: &[&'d Descriptor], platform: Option<&str>) -> Result<&'d Descriptor, String> {
    let host = format!("linux/{}", host_architecture());
    let wanted = platform.unwrap_or(&host);
    let fits = |image: &&&Descriptor| match &image.platform {
        Some(platform) => platform.fits(wanted),
        // An index of one image need not name its platform.
        None => images.len() == 1,
    };
    let mut fitting = images.iter().filter(fits);
    match (fitting.next(), fitting.next()) {
        (Some(image), None) => Ok(image),
        (Some(image), Some(other)) if image.digest == other.digest => Ok(image),
        (Some(_), Some(_)) => {
            Err(format!("it holds several images, choose one by its name: {}", list(images, names_of)))
        }
        (None, _) => Err(format!("it holds no image for {wanted}, but {}", list(images, platforms_of))),
    }
}

/// Chooses from docker-save's list.
pub(super) fn docker_image<'i>(
    images: &'i [DockerImage],
    name: Option<&str>,
) -> Result<&'i DockerImage, String> {
    let tags = |image: &'i DockerImage| image.repo_tags.iter().flatten().map(String::as_str);
    let all = || images.iter().flat_map(tags).collect::<Vec<_>>().join(", ");
    match (images, name) {
        ([only], None) => Ok(only),
        ([], None) => Err("manifest.json lists no image".to_owned()),
        (_, None) => Err(format!("it holds several images, choose one by its name: {}", all())),
        (_, Some(name)) => {
            let found = images.iter().find(|image| tags(image).any(|tag| is_meant(tag, name)));
            found.ok_or_else(|| format!("it holds no image named {name:?}, but {}", all()))
        }
    }
}

/// Whether an image is for the platform that was asked for, by its configuration.
pub(super) fn refuse_other(own: Option<&Platform>, wanted: &str) -> Result<(), String> {
    match own {
        Some(platform) if platform.fits(wanted) => Ok(()),
        Some(platform) => Err(format!("the image is for {}, not for {wanted}", platform.to_text())),
        None => {
            Err(format!("the image does not say for which platform it is, whether for {wanted} or another"))
        }
    }
}

/// Build tools put records about an image beside it, for the platform `unknown`.
fn is_attestation(manifest: &Descriptor) -> bool {
    let marked = manifest.annotations.iter().flatten().any(|(key, _)| key == "vnd.docker.reference.type");
    marked || manifest.platform.as_ref().is_some_and(|platform| platform.os == "unknown")
}

fn names_of(image: &Descriptor) -> Vec<String> {
    let value = |key: &&str| image.annotations.as_ref()?.get(*key).cloned();
    NAMES.iter().filter_map(value).collect()
}

fn has_name(image: &Descriptor, name: &str) -> bool {
    names_of(image).iter().any(|own| is_meant(own, name))
}

/// Whether `name` means the image `own`: its whole name, or what follows a registry or repository in it; the tag
/// `latest` need not be said.
fn is_meant(own: &str, name: &str) -> bool {
    let ends =
        |own: &str| own.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with([':', '/']));
    ends(own) || own.strip_suffix(":latest").is_some_and(ends)
}

fn platforms_of(image: &Descriptor) -> Vec<String> {
    image.platform.iter().map(Platform::to_text).collect()
}

fn list(images: &[&Descriptor], texts: impl Fn(&Descriptor) -> Vec<String>) -> String {
    let all: Vec<String> = images.iter().flat_map(|image| texts(image)).collect();
    if all.is_empty() { "nothing that is named".to_owned() } else { all.join(", ") }
}

impl Platform {
    fn to_text(&self) -> String {
        let variant = self.variant.as_ref().map(|variant| format!("/{variant}")).unwrap_or_default();
        format!("{}/{}{variant}", self.os, self.architecture)
    }

    /// Whether this is `OS/ARCHITECTURE[/VARIANT]`; what is not said on one side fits anything.
    fn fits(&self, wanted: &str) -> bool {
        let mut parts = wanted.splitn(3, '/');
        let (os, architecture, variant) = (parts.next(), parts.next(), parts.next());
        let variant_fits = match (variant, &self.variant) {
            (Some(wanted), Some(own)) => wanted == own,
            _ => true,
        };
        os == Some(&self.os) && architecture == Some(&self.architecture) && variant_fits
    }
}

/// The machine's name in the language of images (that of Go).
fn host_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        "loongarch64" => "loong64",
        other => other,
    }
}
