//! Whiteouts by their names, as layers of container images have them (OCI image specification, "Image Layer Filesystem
//! Changeset").
//!
//! Owns: the names. Excludes whiteouts by devices and attributes (`overlayfs`), and what is removed for them.

/// The beginning of the name of a whiteout.
pub(crate) const WHITEOUT: &[u8] = b".wh.";
/// The beginning of the names of AUFS's own files, of which one has a meaning for others.
const AUFS: &[u8] = b".wh..wh.";
/// The name that says: nothing of lower layers shows in this directory.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// The names of lower layers that a whiteout hides.
pub(super) enum Whiteout<'n> {
    /// All in its directory.
    All,
    /// One name in its directory.
    Name(&'n [u8]),
}

/// The meaning of a name that begins with [`WHITEOUT`]: a whiteout of nothing, of `.` or of `..` hides nothing, nor do files
/// of AUFS itself.
pub(super) fn whiteout(name: &[u8]) -> Option<Whiteout<'_>> {
    match name.strip_prefix(WHITEOUT) {
        _ if name == OPAQUE => Some(Whiteout::All),
        _ if name.starts_with(AUFS) => None,
        None | Some(b"" | b"." | b"..") => None,
        Some(hidden) => Some(Whiteout::Name(hidden)),
    }
}
