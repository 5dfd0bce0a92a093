//! Signs that overlayfs writes into its upper directories: whiteouts as devices 0:0, opaque directories and the rest as
//! attributes. In a layer these are words about lower layers, and no files.
//!
//! Owns their meaning (Linux, "Overlay Filesystem"). Excludes whiteouts by their names (`whiteout`).

use crate::archive::{Device, Xattr};

/// Attributes of mounts by root, and of those with `userxattr`.
const PREFIXES: [&[u8]; 2] = [b"trusted.overlay.", b"user.overlay."];

/// The meaning of an entry beside that of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// A file.
    None,
    /// Nothing of lower layers has that name.
    Whiteout,
    /// Nothing of lower layers shows in that directory.
    Opaque,
}

/// The parts of an entry that decide on its sign.
pub(super) struct Entry<'e> {
    /// The number of a character device.
    pub(super) device: Option<Device>,
    /// A regular file without contents.
    pub(super) is_empty_file: bool,
    pub(super) xattrs: &'e [Xattr],
}

impl Entry<'_> {
    /// The meaning of the entry.
    ///
    /// # Errors
    /// The reason for which its contents are in no layer by this name.
    pub(super) fn sign(&self) -> Result<Sign, &'static str> {
        if self.value(b"redirect").is_some() {
            return Err(
                "is a directory that overlayfs renamed (overlay.redirect): what is in it lies elsewhere in \
                        lower layers; take the merged directory, or write the layer with redirect_dir=off",
            );
        }
        if self.value(b"metacopy").is_some() {
            return Err(
                "has the attributes of a file only (overlay.metacopy): its contents lie in lower layers; \
                        take the merged directory, or write the layer with metacopy=off",
            );
        }
        if self.device == Some(Device::default()) || self.is_empty_file && self.value(b"whiteout").is_some() {
            return Ok(Sign::Whiteout);
        }
        match self.value(b"opaque") {
            Some(b"y") => Ok(Sign::Opaque),
            _ => Ok(Sign::None),
        }
    }

    fn value(&self, key: &[u8]) -> Option<&[u8]> {
        let is_it = |xattr: &&Xattr| own_key(&xattr.name).is_some_and(|(_, own)| own == key);
        self.xattrs.iter().find(is_it).map(|xattr| &*xattr.value)
    }
}

/// The attributes that the merged directory shows: those of overlayfs are gone, and those of an overlay inside it, which
/// it had to escape, have their names back.
pub(super) fn shown(xattrs: &[Xattr]) -> Vec<Xattr> {
    let shown = |xattr: &Xattr| match own_key(&xattr.name) {
        None => Some(xattr.clone()),
        Some((prefix, key)) => {
            let inner = key.strip_prefix(b"overlay.")?;
            Some(Xattr { name: [prefix, inner].concat().into(), value: xattr.value.clone() })
        }
    };
    xattrs.iter().filter_map(shown).collect()
}

fn own_key(name: &[u8]) -> Option<(&'static [u8], &[u8])> {
    PREFIXES.into_iter().find_map(|prefix| Some((prefix, name.strip_prefix(prefix)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xattr(name: &str, value: &str) -> Xattr {
        Xattr { name: name.as_bytes().into(), value: value.as_bytes().into() }
    }

    #[test]
    fn signs_are_those_of_linux() {
        let sign = |device, is_empty_file, xattrs: &[Xattr]| Entry { device, is_empty_file, xattrs }.sign();
        let zero = Some(Device::default());
        assert_eq!(sign(zero, false, &[]), Ok(Sign::Whiteout));
        assert_eq!(sign(Some(Device { major: 0, minor: 1 }), false, &[]), Ok(Sign::None));
        let of_attribute = [xattr("user.overlay.whiteout", "")];
        assert_eq!(sign(None, true, &of_attribute), Ok(Sign::Whiteout));
        assert_eq!(sign(None, false, &of_attribute), Ok(Sign::None));
        for (value, expected) in [("y", Sign::Opaque), ("x", Sign::None), ("", Sign::None)] {
            assert_eq!(sign(None, false, &[xattr("trusted.overlay.opaque", value)]), Ok(expected));
        }
        for (key, word) in [("redirect", "redirect_dir=off"), ("metacopy", "metacopy=off")] {
            let said = sign(None, false, &[xattr(&format!("user.overlay.{key}"), "")]).unwrap_err();
            assert!(said.contains(word), "{said}");
        }
        let kept = shown(&[
            xattr("trusted.overlay.origin", "x"),
            xattr("user.overlay.overlay.opaque", "y"),
            xattr("user.x", "1"),
        ]);
        assert_eq!(kept, [xattr("user.overlay.opaque", "y"), xattr("user.x", "1")]);
    }
}
