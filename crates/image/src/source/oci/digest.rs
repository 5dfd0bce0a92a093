//! Digests of blobs: `sha256:...` and `sha512:...`, parsed and computed.

use crate::source::error::SourceError;
use crate::watch::Meter;
use sha2::{Sha256, Sha512};
use std::io::Read;

/// Digest that a blob must hash to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Digest {
    algorithm: Algorithm,
    /// Lower-case hexadecimal digits.
    hex: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Sha256,
    Sha512,
}

impl Digest {
    /// Reads `ALGORITHM:HEX`. What passes can be used as a file name.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no sha256 or sha512 digest");
        let (algorithm, hex) = text.split_once(':').ok_or_else(wrong)?;
        let (algorithm, len) = match algorithm {
            "sha256" => (Algorithm::Sha256, 64),
            "sha512" => (Algorithm::Sha512, 128),
            _ => return Err(wrong()),
        };
        let digits = hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if digits && hex.len() == len { Ok(Self { algorithm, hex: hex.to_owned() }) } else { Err(wrong()) }
    }

    /// Its digits, by which skopeo's `dir:` names the blob.
    pub(super) fn name(&self) -> &str {
        &self.hex
    }

    /// Where a layout keeps the blob.
    pub(super) fn path(&self) -> String {
        let algorithm = match self.algorithm {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha512 => "sha512",
        };
        format!("blobs/{algorithm}/{}", self.hex)
    }

    /// Returns true if the stream, which messages call `name`, hashes to this.
    pub(super) fn holds(
        &self,
        stream: impl Read,
        name: &str,
        meter: &mut Meter,
    ) -> Result<bool, SourceError> {
        let computed = match self.algorithm {
            Algorithm::Sha256 => hash::<Sha256>(stream, name, meter)?,
            Algorithm::Sha512 => hash::<Sha512>(stream, name, meter)?,
        };
        Ok(computed == self.hex)
    }
}

fn hash<H: sha2::Digest>(
    mut stream: impl Read,
    name: &str,
    meter: &mut Meter,
) -> Result<String, SourceError> {
    let mut hasher = H::new();
    let mut buf = vec![0; 128 << 10];
    loop {
        let len = stream.read(&mut buf).map_err(|error| SourceError::host("read", name, error))?;
        meter.bytes(len)?;
        if len == 0 {
            break;
        }
        hasher.update(buf.get(..len).unwrap_or_default());
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Watch;

    #[test]
    fn known_digests_hold() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let digest = Digest::parse(&format!("sha256:{empty}")).unwrap();
        let holds = |bytes: &[u8]| digest.holds(bytes, "x", &mut Meter::new(Watch::default())).unwrap();
        assert!(holds(b""));
        assert!(!holds(b"x"));
        assert_eq!(digest.path(), format!("blobs/sha256/{empty}"));
        for wrong in
            ["", "sha256:", "sha256:../../etc/passwd", "md5:00", &format!("sha256:{}", empty.to_uppercase())]
        {
            assert!(Digest::parse(wrong).is_err(), "{wrong}");
        }
    }
}
