//! Addresses of a store and a volume in it: `file:///path#NAME`, `s3://bucket/prefix#NAME@SNAPSHOT`.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::masking::masked;
use crate::objects::{Files, Objects};

/// Schemes that mean a store.
const SCHEMES: [&str; 4] = ["file", "s3", "gs", "az"];
/// Variables of the environment that say which server a scheme means.
const SERVERS: [(&str, &[&str]); 3] = [
    ("s3", &["AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"]),
    ("gs", &["GOOGLE_BASE_URL"]),
    ("az", &["AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"]),
];
/// Most bytes of a name, and of a snapshot's.
const NAME_MAX: usize = 200;

/// A store, and maybe a volume in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// The store: everything before `#`.
    pub url: String,
    /// The volume: `NAME` or `NAME@SNAPSHOT`.
    pub name: Option<String>,
}

/// True if a text is meant as the address of a store.
#[must_use]
pub fn is_address(text: &[u8]) -> bool {
    SCHEMES
        .iter()
        .any(|scheme| text.strip_prefix(scheme.as_bytes()).is_some_and(|rest| rest.starts_with(b"://")))
}

impl Address {
    /// Takes an address apart.
    ///
    /// # Errors
    /// Another scheme, a name that none can have, credentials.
    pub fn parse(text: &str) -> Result<Self> {
        if !is_address(text.as_bytes()) {
            // Where nothing but a store can stand, a path from the root is meant as one.
            if text.starts_with('/') {
                return Self::parse(&format!("file://{text}"));
            }
            let known: Vec<String> = SCHEMES.iter().map(|scheme| format!("{scheme}://")).collect();
            return Err(Error::Invalid(format!(
                "names no store: an address begins with {}, or is a path from the root",
                known.join(", ")
            )));
        }
        if matches!(masked(text), Cow::Owned(_)) {
            let why = "has credentials in it, which other users see in the list of processes: they are taken from the \
                       environment and from files in `~/.aws`";
            return Err(Error::Invalid(why.into()));
        }
        let (url, name) = text.split_once('#').map_or((text, None), |(url, name)| (url, Some(name)));
        if let Some(name) = name {
            checked_volume(name)?;
        }
        Ok(Address { url: url.to_owned(), name: name.map(str::to_owned) })
    }

    /// The name of the volume.
    ///
    /// # Errors
    /// The address has none.
    pub fn volume(&self) -> Result<&str> {
        let missing = || Error::Invalid("names no volume: the address of one ends with `#NAME`".into());
        self.name.as_deref().ok_or_else(missing)
    }

    /// Returns the identity of the store: its address, and the servers that the environment names, since two servers can
    /// have the same bucket.
    #[must_use]
    pub fn identity(&self) -> String {
        self.identity_by(&|name| std::env::var(name).ok())
    }

    fn identity_by(&self, environment: &dyn Fn(&str) -> Option<String>) -> String {
        let scheme = self.url.split(':').next().unwrap_or_default();
        let names = SERVERS.iter().find(|(known, _)| *known == scheme).map_or(&[][..], |(_, names)| names);
        let mut servers: Vec<String> = names.iter().filter_map(|name| environment(name)).collect();
        servers.iter_mut().for_each(|server| server.truncate(server.trim_end_matches('/').len()));
        servers.retain(|server| !server.is_empty());
        servers.dedup();
        format!("{} {}", servers.join(" "), self.url.trim_end_matches('/'))
    }

    /// True if the store is on this host.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.url.starts_with("file:")
    }

    /// Files beside the usual ones that are read to reach the store, where its settings name some.
    #[must_use]
    pub fn named_files(&self) -> Vec<PathBuf> {
        #[cfg(feature = "remote")]
        if !self.is_local() {
            return crate::objects::Remote::named_files();
        }
        Vec::new()
    }

    /// The objects of the store.
    ///
    /// # Errors
    /// An address that this build does not understand.
    pub fn objects(&self) -> Result<Arc<dyn Objects>> {
        if let Some(path) = self.url.strip_prefix("file://") {
            if !path.starts_with('/') {
                return Err(Error::Invalid("a path behind `file://` begins with a slash".into()));
            }
            return Ok(Arc::new(Files::new(PathBuf::from(path))));
        }
        self.remote()
    }

    #[cfg(feature = "remote")]
    fn remote(&self) -> Result<Arc<dyn Objects>> {
        Ok(Arc::new(crate::objects::Remote::open(&self.url)?))
    }

    #[cfg(not(feature = "remote"))]
    fn remote(&self) -> Result<Arc<dyn Objects>> {
        let why = "this build knows stores in directories only (`file://`): it was made without the features s3, gs and az";
        Err(Error::Invalid(why.into()))
    }
}

/// Refuses what is no name of a volume, or of a snapshot of one.
pub(crate) fn checked_volume(name: &str) -> Result<()> {
    let (volume, snapshot) = name.split_once('@').unwrap_or((name, "x"));
    checked_name(volume).and_then(|()| checked_name(snapshot))
}

fn checked_name(name: &str) -> Result<()> {
    let allowed = |c: char| c.is_alphanumeric() || "-_.:/+".contains(c);
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(allowed) {
        let shown: String = name.chars().take(NAME_MAX).flat_map(char::escape_debug).collect();
        return Err(Error::Invalid(format!(
            "`{shown}` is no name of a volume: letters, digits and `-_.:/+`, at most {NAME_MAX} bytes"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let address = Address::parse("file:///srv/store#debian:12@a").unwrap();
        assert_eq!(address.url, "file:///srv/store");
        assert_eq!(address.volume().unwrap(), "debian:12@a");
        assert_eq!(Address::parse("/srv/store#a").unwrap().url, "file:///srv/store");
        assert!(Address::parse("s3://bucket/prefix").unwrap().volume().is_err());
        for wrong in
            ["srv/store#a", "http://x#a", "file:///x#", "file:///x#a@", "file:///x#a@b@c", "file:///x#a b"]
        {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
        let credentials = [
            "s3://KEY:HIDDEN@bucket/p#a",
            "s3://KEY:HID/HIDDEN@bucket/p#a",
            "s3://KEY:HID?HIDDEN@bucket/p#a",
            "s3://KEY:1/HIDDEN@bucket/p#a",
            "s3://KEY:HID@DEN/HIDDEN@bucket/p#a",
            "s3://KEY:HID/DEN",
            "s3://b/p?X-Amz-Signature=HIDDEN#a",
            "az://b?sv=1&sig=HIDDEN",
        ];
        for wrong in credentials {
            let said = Address::parse(wrong).unwrap_err().to_string();
            assert!(said.contains("credentials") && !said.contains("HID"), "{said}");
            assert!(!masked(wrong).contains("HID") && masked(wrong).contains("***"), "{wrong}");
        }
        for right in [
            "s3://bucket/p@q/x?y#a@b",
            "file:///srv/a@b/token=c#a",
            "http://host:9000/x",
            "http://[::1]/x@y",
            "http://[::1]:9000/x",
            "no address",
        ] {
            assert_eq!(masked(right), right);
        }
        let place = |set: &'static [(&str, &str)], url: &str| {
            let found = |name: &str| Some(set.iter().find(|(known, _)| *known == name)?.1.to_owned());
            Address::parse(url).unwrap().identity_by(&found)
        };
        let one = place(&[("AWS_ENDPOINT", "http://one:1/")], "s3://b/p#a");
        assert_eq!(one, "http://one:1 s3://b/p");
        assert_eq!(place(&[("AWS_ENDPOINT_URL", "http://one:1")], "s3://b/p/#b"), one);
        assert_ne!(place(&[("AWS_ENDPOINT_URL", "http://two:1")], "s3://b/p#a"), one);
        assert_eq!(place(&[("AWS_ENDPOINT", "http://one:1/")], "file:///p"), " file:///p");
        assert!(Address::parse("file://x#a").unwrap().objects().is_err());
        assert!(!is_address(b"file.img") && !is_address(b"s3:/x") && is_address(b"gs://x"));
    }
}
