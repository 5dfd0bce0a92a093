//! Files and devices by their identity: an output is no source, whatever names lead to both.
//!
//! Excludes other users of either, which the door asks for.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use platfs_host::{Id, OutputLocation};

use super::ground::{self, Ground, Node};
use crate::{image, stores};

/// A file or device that a path means, whatever else leads to it, with what it stands on; or the place of one that is not
/// there yet.
#[derive(Debug)]
pub struct Meant {
    nodes: Vec<Node>,
    free: Option<(Id, OsString)>,
}

impl Meant {
    /// Follows a path. Terminals, pipes and the like are shared by nature: such a thing meets nothing.
    #[must_use]
    pub fn by(path: &Path) -> Self {
        if ground::look(path).is_ok_and(|(_, is_stream)| is_stream) {
            return Meant { nodes: Vec::new(), free: None };
        }
        let ground = Ground::of(path, 0, u64::MAX);
        let nodes: Vec<Node> = ground.iter().flat_map(Ground::layers).map(|layer| layer.node).collect();
        let place = OutputLocation::through(path).ok().filter(|_| nodes.is_empty());
        let free = place.and_then(|place| Some((place.directory.facts().ok()?.id, place.name)));
        Meant { nodes, free }
    }

    /// Tells if both mean something that is the same.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        let shares = self.nodes.iter().any(|node| other.nodes.contains(node));
        shares || self.free.is_some() && self.free == other.free
    }
}

/// Refuses an output that is an image which the command reads, or what that stands on.
///
/// # Errors
/// It is.
pub fn spare(images: &[&OsStr], output: &Path) -> io::Result<()> {
    let output = Meant::by(output);
    let of = |name: &OsStr| Meant::by(&image::parse(name).path);
    match images.iter().any(|name| !stores::is_meant(name) && of(name).meets(&output)) {
        true => Err(io::Error::other("is the image itself, which is never replaced")),
        false => Ok(()),
    }
}
