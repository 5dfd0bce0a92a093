//! Settings of the way to a store: the environment, and the files of the store's other programs.
//!
//! Owns: `~/.aws/config` and `~/.aws/credentials` as far as they are understood (keys, region, endpoint, certificates), and
//! that keys of a file are read again when they may have changed. What the environment says goes first. Excludes
//! requests.
//!
//! | variable | what |
//! | --- | --- |
//! | `AWS_PROFILE` | the part of the files that counts, `default` if nothing is said |
//! | `AWS_CONFIG_FILE`, `AWS_SHARED_CREDENTIALS_FILE` | other places of the files |
//! | `AWS_CA_BUNDLE` | certificates in PEM that are believed in the place of the system's |
//! | `AWS_ALLOW_HTTP` | `true`, `1`: an endpoint may be without TLS |

use std::collections::HashMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as Key, AwsCredential};
use object_store::client::CredentialProvider;
use platfs_host::{Kind, read_named, read_secret};
use zeroize::Zeroizing;

use crate::error::{Error, Result};
use crate::masking::masked;

/// Longest file that is read.
const FILE_MAX: u64 = 1 << 20;
/// Most bytes of certificates; those of a system have 250 KiB.
const CERTIFICATES_MAX: u64 = 16 << 20;
/// Time for which keys of a file count before it is looked at again.
const FRESH: Duration = Duration::from_secs(10);
/// Entries of a profile that lead to keys in ways that are not known here.
const UNKNOWN: [&str; 4] = ["credential_process", "sso_session", "sso_start_url", "role_arn"];

/// A variable that is set to something.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// The part of the files that counts.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    name: String,
    config: Option<PathBuf>,
    credentials: Option<PathBuf>,
}

/// The settings in a file, by name. Some are secret; all are wiped when dropped.
type Entries = HashMap<String, Zeroizing<String>>;

/// The entries of the section with that name.
fn section(text: &str, wanted: &str) -> Option<Entries> {
    let mut found: Option<Entries> = None;
    let mut is_wanted = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(name) = trimmed.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            let name = name.trim();
            let name = name.strip_prefix("profile ").map_or(name, str::trim);
            is_wanted = name == wanted;
            if is_wanted {
                found.get_or_insert_default();
            }
        } else if let Some((key, value)) = trimmed.split_once('=')
            && is_wanted
            && !trimmed.starts_with(['#', ';'])
            // What is indented belongs to the entry above it.
            && !line.starts_with([' ', '\t'])
        {
            found
                .get_or_insert_default()
                .insert(key.trim().to_ascii_lowercase(), value.trim().to_owned().into());
        }
    }
    found
}

/// The text of a regular file; nothing if there is none.
fn read(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>> {
    let wrong = || Error::Invalid(format!("{}: no file of settings", path.display()));
    match read_secret(path, FILE_MAX) {
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(Error::host(path.display().to_string(), &why)),
        Ok((facts, _)) if facts.kind != Kind::File => Err(wrong()),
        Ok((_, bytes)) if std::str::from_utf8(&bytes).is_err() => Err(wrong()),
        Ok((_, bytes)) => Ok(Some(bytes)),
    }
}

impl Profile {
    /// As the environment names it.
    pub(super) fn of_environment() -> Self {
        let home = || variable("HOME").map(|home| PathBuf::from(home).join(".aws"));
        let place = |name: &str, file: &str| {
            variable(name).map(PathBuf::from).or_else(|| home().map(|home| home.join(file)))
        };
        let name = variable("AWS_PROFILE").or_else(|| variable("AWS_DEFAULT_PROFILE"));
        Profile {
            name: name.unwrap_or_else(|| "default".to_owned()),
            config: place("AWS_CONFIG_FILE", "config"),
            credentials: place("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
        }
    }

    /// Reads the entries of the files; those of credentials go first.
    fn entries(&self) -> Result<Entries> {
        let (mut all, mut is_there) = (HashMap::new(), false);
        for path in self.config.iter().chain(&self.credentials) {
            let of_text = |bytes: Zeroizing<Vec<u8>>| section(std::str::from_utf8(&bytes).ok()?, &self.name);
            if let Some(found) = read(path)?.and_then(of_text) {
                is_there = true;
                all.extend(found);
            }
        }
        if !is_there && variable("AWS_PROFILE").is_some() {
            return Err(Error::Invalid(format!("AWS_PROFILE={}: ~/.aws has no such profile", self.name)));
        }
        Ok(all)
    }
}

/// Keys of a set of entries. From here on they are the library's, which does not wipe them.
fn keys(entries: &Entries) -> Option<AwsCredential> {
    let entry = |name: &str| entries.get(name).filter(|text| !text.is_empty()).map(|text| text.to_string());
    Some(AwsCredential {
        key_id: entry("aws_access_key_id")?,
        secret_key: entry("aws_secret_access_key")?,
        token: entry("aws_session_token"),
    })
}

/// Keys that stand in a file, which another program renews.
#[derive(Debug)]
struct OfFile {
    profile: Profile,
    known: Mutex<(Instant, Arc<AwsCredential>)>,
}

impl OfFile {
    fn now(&self) -> Arc<AwsCredential> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0.elapsed() >= FRESH {
            // A file that is being written is read the next time.
            let found = self.profile.entries().ok().as_ref().and_then(keys).map(Arc::new);
            *known = (Instant::now(), found.unwrap_or_else(|| Arc::clone(&known.1)));
        }
        Arc::clone(&known.1)
    }
}

impl CredentialProvider for OfFile {
    type Credential = AwsCredential;

    // The name is the trait's; ours have no such prefix.
    fn r#get_credential<'s, 'f>(
        &'s self,
    ) -> Pin<Box<dyn Future<Output = object_store::Result<Arc<AwsCredential>>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async move { Ok(self.now()) })
    }
}

/// The file of certificates that are believed, if they are not the system's.
pub(super) fn bundle() -> Option<String> {
    let of_profile = || Some(Profile::of_environment().entries().ok()?.get("ca_bundle")?.to_string());
    variable("AWS_CA_BUNDLE").or_else(of_profile)
}

/// The certificates that are believed, if they are not the system's.
pub(super) fn authorities() -> Result<Option<Vec<u8>>> {
    let Some(path) = bundle() else { return Ok(None) };
    let read = read_named(Path::new(&path), CERTIFICATES_MAX).map(|(_, bytes)| Some(bytes));
    read.map_err(|why| Error::host(format!("AWS_CA_BUNDLE {path}"), &why))
}

/// A store of S3 by the environment and the files.
pub(super) fn s3() -> Result<AmazonS3Builder> {
    let mut builder = AmazonS3Builder::from_env();
    let profile = Profile::of_environment();
    let entries = profile.entries()?;
    for (key, entry) in [(Key::Region, "region"), (Key::Endpoint, "endpoint_url")] {
        if builder.get_config_value(&key).is_none()
            && let Some(value) = entries.get(entry)
        {
            builder = builder.with_config(key, value.as_str());
        }
    }
    let is_set = |key: Key| builder.get_config_value(&key).is_some();
    let of_environment = is_set(Key::AccessKeyId)
        || is_set(Key::WebIdentityTokenFile)
        || is_set(Key::ContainerCredentialsRelativeUri)
        || is_set(Key::ContainerCredentialsFullUri);
    if !of_environment {
        if let Some(found) = keys(&entries) {
            let known = Mutex::new((Instant::now(), Arc::new(found)));
            builder = builder.with_credentials(Arc::new(OfFile { profile, known }));
        } else if let Some(entry) = UNKNOWN.iter().find(|entry| entries.contains_key(**entry)) {
            return Err(Error::Invalid(format!(
                "the profile `{}` has `{entry}`, which is not known here; `aws configure export-credentials --format env` \
                 makes keys of it",
                profile.name
            )));
        } else if variable("AWS_EC2_METADATA_DISABLED").is_some_and(|text| is_yes(&text).unwrap_or(false))
            && !builder
                .get_config_value(&Key::SkipSignature)
                .is_some_and(|text| is_yes(&text).unwrap_or(false))
        {
            return Err(Error::Refused(super::words::NO_CREDENTIALS.into()));
        }
    }
    encrypted(&builder)?;
    Ok(builder)
}

/// Refuses an endpoint without TLS that nobody allowed.
fn encrypted(builder: &AmazonS3Builder) -> Result<()> {
    let endpoint =
        builder.get_config_value(&Key::S3Endpoint).or_else(|| builder.get_config_value(&Key::Endpoint));
    let allowed = variable("AWS_ALLOW_HTTP").map_or(Ok(false), |text| is_yes(&text));
    let allowed = allowed.map_err(|why| Error::Invalid(format!("AWS_ALLOW_HTTP: {why}")))?;
    match endpoint {
        Some(endpoint) if endpoint.starts_with("http://") && !allowed => Err(Error::Invalid(format!(
            "the endpoint {} is without TLS: AWS_ALLOW_HTTP=true allows that",
            masked(&endpoint)
        ))),
        _ => Ok(()),
    }
}

/// Returns true if a variable says yes.
fn is_yes(text: &str) -> Result<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" | "y" => Ok(true),
        "" | "0" | "false" | "no" | "off" | "n" => Ok(false),
        _ => Err(Error::Invalid(format!("`{text}` is neither yes nor no"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds for types whose values are wiped when they are dropped; a program for others does not compile.
    fn assert_wiped(_: &impl zeroize::ZeroizeOnDrop) {}

    #[test]
    fn what_is_read_of_credentials_is_wiped_when_it_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("credentials");
        let text = "[default]\naws_secret_access_key = secret\n";
        std::fs::write(&path, text).unwrap();
        let bytes = read(&path).unwrap().unwrap();
        assert_wiped(&bytes);
        assert_eq!(*bytes, text.as_bytes());
        let entries = section(text, "default").unwrap();
        assert_wiped(&entries["aws_secret_access_key"]);
        assert_eq!(*entries["aws_secret_access_key"], "secret");
    }

    #[test]
    fn profiles_are_read_as_their_programs_write_them() {
        let text = "[default]\nregion = a\n# no = comment\n[profile other]\nregion=b\ns3 =\n  endpoint_url = nested\n\
                    aws_access_key_id = id\naws_secret_access_key = a=b\n[third]\n";
        assert_eq!(section(text, "default").unwrap().len(), 1);
        let other = section(text, "other").unwrap();
        assert!(*other["region"] == "b" && !other.contains_key("endpoint_url"));
        let found = keys(&other).unwrap();
        assert_eq!((&*found.key_id, &*found.secret_key, found.token), ("id", "a=b", None));
        assert!(section(text, "third").unwrap().is_empty() && section(text, "none").is_none());
    }

    #[test]
    fn keys_of_a_file_are_read_again() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("credentials");
        let write = |key: &str| {
            let text = format!("[default]\naws_access_key_id={key}\naws_secret_access_key=s\n");
            std::fs::write(&file, text).unwrap();
        };
        write("one");
        let profile = Profile { name: "default".into(), config: None, credentials: Some(file.clone()) };
        let known = Arc::new(keys(&profile.entries().unwrap()).unwrap());
        let old = Instant::now().checked_sub(FRESH).unwrap();
        let of_file = OfFile { profile, known: Mutex::new((old, known)) };
        write("two");
        assert_eq!(of_file.now().key_id, "two");
        of_file.known.lock().unwrap().0 = old;
        std::fs::write(&file, "[default]\n").unwrap();
        assert_eq!(of_file.now().key_id, "two", "a file that is being written");
    }
}
