//! Choice of one image of several: by name, then by platform. Errors list the choices.

use super::{Descriptor, DockerImage, Platform};

/// Annotations that name a manifest in an index: that of the specification, and those of containerd.
const NAMES: [&str; 2] = ["org.opencontainers.image.ref.name", "io.containerd.image.name"];

/// Fewest digits of a digest that choose an image.
const DIGITS_LEAST: usize = 7;

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
        (several, _) if several.len() > 1 && several.iter().all(|image| image.platform.is_none()) => {
            the_named(several)
        }
        (several, _) => by_platform(several, platform),
    }
}

/// Of images that say no platform the only one with a name: a commit takes the name from an older one, which stays.
fn the_named<'d>(images: &[&'d Descriptor]) -> Result<&'d Descriptor, String> {
    let mut named = images.iter().filter(|image| !names_of(image).is_empty()).copied();
    let first = named.next();
    match first.filter(|first| named.all(|other| other.digest == first.digest)) {
        Some(image) => Ok(image),
        None => Err(several(images)),
    }
}

fn several(images: &[&Descriptor]) -> String {
    format!("it holds several images, choose one by its name or digest: {}", list(images, names_of))
}

fn by_platform<'d>(images: &[&'d Descriptor], platform: Option<&str>) -> Result<&'d Descriptor, String> {
    let host = format!("linux/{}", host_architecture());
    let wanted = platform.unwrap_or(&host);
    let rank = |image: &Descriptor| match &image.platform {
        Some(platform) => platform.rank(wanted),
        // An index of one image need not name its platform.
        None => (images.len() == 1).then_some(0),
    };
    let ranked: Vec<_> = images.iter().filter_map(|image| Some((rank(image)?, *image))).collect();
    let best = ranked.iter().map(|(rank, _)| *rank).max();
    let mut fitting = ranked.iter().filter(|(rank, _)| Some(*rank) == best).map(|(_, image)| *image);
    match (fitting.next(), fitting.next()) {
        (Some(image), None) => Ok(image),
        (Some(image), Some(other)) if image.digest == other.digest => Ok(image),
        (Some(_), Some(_)) => Err(several(images)),
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
            let mut found = images.iter().filter(|image| tags(image).any(|tag| is_meant(tag, name)));
            match (found.next(), found.next()) {
                (Some(image), other) if other.is_none_or(|other| other.config == image.config) => Ok(image),
                (Some(_), _) => Err(format!("it holds several images of that name, choose one: {}", all())),
                (None, _) => Err(format!("it holds no image named {name:?}, but {}", all())),
            }
        }
    }
}

/// Refuses an image whose configuration names another platform than the one that was asked for.
pub(super) fn refuse_other(own: Option<&Platform>, wanted: &str) -> Result<(), String> {
    match own {
        Some(platform) if platform.fits(wanted) => Ok(()),
        Some(platform) => Err(format!("the image is for {}, not for {wanted}", platform.to_text())),
        None => {
            Err(format!("the image does not say for which platform it is, whether for {wanted} or another"))
        }
    }
}

/// Build tools put records about an image beside it, for the platform `unknown`; cosign its signatures.
fn is_attestation(manifest: &Descriptor) -> bool {
    let about = |(key, value): (&String, &String)| {
        let signs =
            value.strip_prefix("dev.cosignproject.cosign/").is_some_and(|kind| !kind.starts_with("image"));
        key == "vnd.docker.reference.type" || key == "kind" && signs
    };
    manifest.annotations.iter().flatten().any(about)
        || manifest.platform.as_ref().is_some_and(|platform| platform.os == "unknown")
}

fn names_of(image: &Descriptor) -> Vec<String> {
    let value = |key: &&str| image.annotations.as_ref()?.get(*key).cloned();
    NAMES.iter().filter_map(value).collect()
}

fn has_name(image: &Descriptor, name: &str) -> bool {
    names_of(image).iter().any(|own| is_meant(own, name)) || is_digest(&image.digest, name)
}

/// Returns true if `name` is a digest, or enough of its beginning, with or without the algorithm.
fn is_digest(digest: &str, name: &str) -> bool {
    let hex = |text: &str| text.split_once(':').map_or(text, |(_, hex)| hex).to_owned();
    hex(name).len() >= DIGITS_LEAST && (digest.starts_with(name) || hex(digest).starts_with(name))
}

/// Returns true if `name` means the image `own`: its whole name, or what follows a registry or repository in it; the tag
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
    let all = images.iter().flat_map(|image| match texts(image) {
        // What has no name has a digest.
        none if none.is_empty() => vec![image.digest.clone()],
        some => some,
    });
    all.collect::<Vec<String>>().join(", ")
}

impl Platform {
    fn to_text(&self) -> String {
        let variant = self.variant.as_ref().map(|variant| format!("/{variant}")).unwrap_or_default();
        format!("{}/{}{variant}", self.os, self.architecture)
    }

    /// Returns true if this is `OS/ARCHITECTURE[/VARIANT]`; what is not said on one side fits anything.
    fn fits(&self, wanted: &str) -> bool {
        self.rank(wanted).is_some()
    }

    /// Rank of an image for this platform on the wanted one, the more the better: one for the same variant of a
    /// processor, then the older ones. Without a word the variant is the one that everybody has.
    fn rank(&self, wanted: &str) -> Option<u32> {
        let mut parts = wanted.splitn(3, '/');
        let (os, architecture, variant) = (parts.next()?, parts.next()?, parts.next());
        if os != self.os || architecture != self.architecture {
            return None;
        }
        let usual = if architecture == "arm" {
            7
        } else if architecture == "arm64" {
            8
        } else {
            1
        };
        let number = |variant: Option<&str>| match variant {
            Some(variant) => variant.strip_prefix('v').and_then(|number| number.parse().ok()),
            None => Some(usual),
        };
        let own = self.variant.as_deref();
        match (number(own), number(variant)) {
            (Some(own), Some(wanted)) if own <= wanted => Some(u32::saturating_add(own, 1)),
            // Nobody asked for a variant: better a newer one than none.
            (Some(_), Some(_)) if variant.is_none() => Some(0),
            (Some(_), Some(_)) => None,
            _ => (own == variant || own.is_none() || variant.is_none()).then_some(0),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn image(digest: &str, name: Option<&str>) -> Descriptor {
        let annotations = name.map(|name| [(NAMES[0].to_owned(), name.to_owned())].into());
        Descriptor { digest: digest.to_owned(), size: 0, platform: None, annotations }
    }

    /// `buildah commit` to a layout takes the name from the image that had it.
    #[test]
    fn of_images_without_platforms_the_one_with_a_name_is_meant() {
        let digest = |images: &[Descriptor], platform| {
            manifest(images, None, platform).map(|image| image.digest.clone())
        };
        let left = [image("sha256:1", None), image("sha256:2", Some("t")), image("sha256:2", Some("u"))];
        for platform in [None, Some("linux/amd64")] {
            assert_eq!(digest(&left, platform), Ok("sha256:2".to_owned()));
        }
        for none in [[None, None], [Some("t"), Some("u")]] {
            let [one, other] = none;
            let said = digest(&[image("sha256:1", one), image("sha256:2", other)], None).unwrap_err();
            assert!(said.contains("choose one by its name"), "{said}");
        }
        assert_eq!(digest(&[image("sha256:1", None)], None), Ok("sha256:1".to_owned()));
    }
}
