//! The versions of a tree: its first one from a directory or a seed, and updates as package managers make them.
//!
//! Of each update 40 files get 1 to 8 KiB inserted, 60 of 4 to 40 KiB are new, and 10 go; of a smaller tree than 3,000
//! files as many less. Excluded: what becomes of a version.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use platfs::OpenOptions;
use platfs_image::Source;
use platfs_image::archive::{Times, Timestamp};
use platfs_image::source::CatalogueBuilder;
use platfs_image::source::catalogue::{Attributes, NewNode};

use super::{Result, said};
use crate::numbers::Numbers;

/// Files of a tree whose updates have full size.
const FULL: usize = 3000;
/// When the first version was made.
const BEGIN: i64 = 1_700_000_000;

#[derive(Clone)]
struct Contents {
    bytes: Vec<u8>,
    modified: i64,
}

/// A tree in memory, and what the last update did to it.
#[derive(Default)]
pub(super) struct Version {
    files: BTreeMap<Vec<u8>, Contents>,
    links: BTreeMap<Vec<u8>, Vec<u8>>,
    changed: Vec<Vec<u8>>,
    gone: Vec<Vec<u8>>,
}

fn random_bytes(numbers: &mut Numbers, len: u64) -> Vec<u8> {
    (0..len.div_ceil(8))
        .flat_map(|_| numbers.next().to_le_bytes())
        .take(usize::try_from(len).unwrap_or(0))
        .collect()
}

impl Version {
    /// Files with contents of their own, most of them small.
    pub(super) fn of_seed(files: u32, seed: u64) -> Self {
        let mut numbers = Numbers::new(seed);
        let mut version = Version::default();
        for number in 0..files {
            let most = 8 + numbers.below(11);
            let len = 1 + numbers.below(1 << most);
            let bytes = random_bytes(&mut numbers, len);
            let path = format!("d{:02}/f{number}", number % 97).into_bytes();
            version.files.insert(path, Contents { bytes, modified: BEGIN });
        }
        version
    }

    /// The regular files and symbolic links of a directory.
    pub(super) fn of_directory(top: &Path) -> Result<Self> {
        let mut version = Version::default();
        let mut waiting = vec![(top.to_owned(), Vec::new())];
        while let Some((directory, above)) = waiting.pop() {
            for entry in fs::read_dir(&directory).map_err(said("reading the tree"))? {
                let entry = entry.map_err(said("reading the tree"))?;
                let kind = entry.file_type().map_err(said("reading the tree"))?;
                let mut path: Vec<u8> = above.clone();
                path.extend(entry.file_name().as_bytes());
                if kind.is_dir() {
                    path.push(b'/');
                    waiting.push((entry.path(), path));
                } else if kind.is_symlink() {
                    let target = fs::read_link(entry.path()).map_err(said("reading the tree"))?;
                    version.links.insert(path, target.as_os_str().as_bytes().to_vec());
                } else if kind.is_file() {
                    let bytes = fs::read(entry.path()).map_err(said("reading the tree"))?;
                    version.files.insert(path, Contents { bytes, modified: BEGIN });
                }
            }
        }
        Ok(version)
    }

    pub(super) fn files(&self) -> usize {
        self.files.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files.values().map(|contents| contents.bytes.len() as u64).sum()
    }

    /// The next version.
    pub(super) fn update(&mut self, seed: u64, round: u32) {
        let mut numbers = Numbers::new(seed ^ u64::from(round) << 32);
        let part = |count: usize| (count * self.files.len().min(FULL) / FULL).max(1);
        let (edits, adds, removes) = (part(40), part(60), part(10));
        let mut names: Vec<Vec<u8>> = self.files.keys().cloned().collect();
        (self.changed, self.gone) = (Vec::new(), Vec::new());
        let modified = BEGIN + i64::from(round) * 86_400;
        for _ in 0..edits.min(names.len()) {
            let path = names.swap_remove(numbers.index(names.len()));
            let Some(contents) = self.files.get_mut(&path) else { continue };
            let at = numbers.index(contents.bytes.len());
            let len = 1024 + numbers.below(7 << 10);
            contents.bytes.splice(at..at, random_bytes(&mut numbers, len));
            contents.modified = modified;
            self.changed.push(path);
        }
        let above: Vec<Vec<u8>> = names.iter().map(|name| directory_of(name).to_vec()).collect();
        for number in 0..adds.min(above.len()) {
            let mut path = above.get(numbers.index(above.len())).cloned().unwrap_or_default();
            path.extend(format!("new-{round}-{number}").into_bytes());
            let len = 4096 + numbers.below(36 << 10);
            let bytes = random_bytes(&mut numbers, len);
            self.files.insert(path.clone(), Contents { bytes, modified });
            self.changed.push(path);
        }
        for _ in 0..removes.min(names.len()) {
            let path = names.swap_remove(numbers.index(names.len()));
            self.files.remove(&path);
            self.gone.push(path);
        }
    }

    /// The version as what an image is built of.
    pub(super) fn source(&self) -> Result<Source> {
        let mut tree = CatalogueBuilder::default();
        let attributes = |mode, seconds| {
            let times = Times { modified: Timestamp::from_seconds(seconds), ..Times::default() };
            Attributes { mode, times, ..Attributes::default() }
        };
        for (path, contents) in &self.files {
            let put = tree.put_bytes(path, attributes(0o644, contents.modified), contents.bytes.clone());
            put.map_err(said("the tree"))?;
        }
        for (path, target) in &self.links {
            let put = tree.put(path, attributes(0o777, BEGIN), NewNode::Symlink(target));
            put.map_err(said("the tree"))?;
        }
        Ok(Source::from(tree.finish()))
    }

    /// Changes an image that holds the last version as a package manager does: new files beside the old ones, renamed.
    pub(super) fn change(&self, image: &Path) -> Result<()> {
        let image = OpenOptions::new().write(true).open(image).map_err(said("opening an image"))?;
        let root = image.root();
        for path in &self.changed {
            let Some(contents) = self.files.get(path) else { continue };
            let aside = [path, &b".new"[..]].concat();
            root.write(&aside, &contents.bytes).map_err(said("writing"))?;
            root.rename(&aside, path).map_err(said("renaming"))?;
        }
        for path in &self.gone {
            root.remove_file(path).map_err(said("removing"))?;
        }
        image.close().map_err(said("closing an image"))
    }

    /// The version as files of the host; those that are there already are those of the last version.
    pub(super) fn write(&self, top: &Path) -> Result<()> {
        let place = |path: &[u8]| top.join(std::ffi::OsStr::from_bytes(path));
        if top.exists() {
            for path in &self.gone {
                fs::remove_file(place(path)).map_err(said("removing"))?;
            }
            for path in &self.changed {
                let Some(contents) = self.files.get(path) else { continue };
                fs::write(place(path), &contents.bytes).map_err(said("writing"))?;
            }
            return Ok(());
        }
        for (path, contents) in &self.files {
            fs::create_dir_all(place(directory_of(path))).map_err(said("writing"))?;
            fs::write(place(path), &contents.bytes).map_err(said("writing"))?;
        }
        for (path, target) in &self.links {
            fs::create_dir_all(place(directory_of(path))).map_err(said("writing"))?;
            let target = std::ffi::OsStr::from_bytes(target);
            std::os::unix::fs::symlink(target, place(path)).map_err(said("writing"))?;
        }
        Ok(())
    }
}

/// What stands before the last name, with its slash.
fn directory_of(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    path.get(..end).unwrap_or_default()
}
