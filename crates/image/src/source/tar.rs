//! Archive entries into a catalogue: whole archives, and layers whose whiteouts remove what lower ones made.

use super::attributes::{Attributes, Ids};
use super::catalogue::{CatalogueBuilder, CatalogueError, NewNode, Origin};
use super::error::{SourceError, SourceWarning};
use super::foreign;
use super::input::Section;
use super::overlayfs::{self, Sign};
use super::reading::Reading;
use super::whiteout::{WHITEOUT, Whiteout, whiteout};
use crate::archive::{Entry, EntryKind, Names, Problem, Reader, TarError};
use crate::text::Quoted;
use std::sync::Arc;

/// Reads an archive into `builder`. `name` is how messages call it.
///
/// # Errors
/// [`SourceError::Tar`], [`SourceError::Tree`].
pub(super) fn read(
    reading: &mut Reading,
    builder: &mut CatalogueBuilder,
    section: &Section,
    name: &str,
) -> Result<(), SourceError> {
    read_over(reading, builder, section, name, Arc::default())
}

/// Reads an archive over a tree whose tables of users and groups give the numbers of owners, too.
///
/// # Errors
/// As [`read`].
pub(super) fn read_over(
    reading: &mut Reading,
    builder: &mut CatalogueBuilder,
    section: &Section,
    name: &str,
    names: Arc<Names>,
) -> Result<(), SourceError> {
    let origin = builder.add_section(section.clone());
    let mut reader = begin(section, name)?.over(names);
    while let Some(entry) = next(reading, &mut reader, name)? {
        reading.meter.file()?;
        put(builder, &entry, origin).map_err(|error| tree(name, error))?;
        reading.bounds.tree(builder, name)?;
    }
    keep_warnings(reading, &reader, name);
    Ok(())
}

/// The signs by which a layer speaks of lower ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WhiteoutStyle {
    /// Names of whiteouts: a layer of a container image. A device 0:0 in it is one.
    Names,
    /// Those of overlayfs, too: a layer may be its upper directory.
    Overlayfs,
}

impl WhiteoutStyle {
    fn of(self, entry: &Entry, name: &str) -> Result<Sign, SourceError> {
        if self == WhiteoutStyle::Names {
            return Ok(Sign::None);
        }
        let looked = overlayfs::Entry {
            device: (entry.kind == EntryKind::CharDevice).then_some(entry.device),
            is_empty_file: entry.kind == EntryKind::File && entry.size == 0,
            xattrs: &entry.xattrs,
        };
        let (archive, path) = (|| name.to_owned(), || entry.path.clone());
        looked.sign().map_err(|problem| SourceError::Overlayfs { archive: archive(), path: path(), problem })
    }
}

/// Reads a layer over those already in `builder`, after the OCI image specification, "Image Layer Filesystem
/// Changeset". Whiteouts act on lower layers only, wherever they stand in their own: the archive is gone
/// through twice.
///
/// # Errors
/// As [`read`]; [`SourceError::Overlayfs`].
pub(super) fn read_layer(
    reading: &mut Reading,
    builder: &mut CatalogueBuilder,
    section: &Section,
    name: &str,
    signs: WhiteoutStyle,
) -> Result<(), SourceError> {
    let names = reading.names(builder);
    let mut reader = begin(section, name)?.over(Arc::clone(&names));
    let mut entries = false;
    while let Some(entry) = next(reading, &mut reader, name)? {
        let (above, last) = split_name(&entry.path);
        entries |= !last.starts_with(WHITEOUT);
        match signs.of(&entry, name)? {
            Sign::Whiteout => builder.remove(&entry.path),
            Sign::Opaque => builder.clear(&entry.path),
            Sign::None => Ok(()),
        }
        .map_err(|error| tree(name, error))?;
        match whiteout(last) {
            Some(Whiteout::All) => builder.clear(above),
            Some(Whiteout::Name(hidden)) => builder.remove(&[above, hidden].concat()),
            None => Ok(()),
        }
        .map_err(|error| tree(name, error))?;
    }
    keep_warnings(reading, &reader, name);
    let mut again = Layer { section, reader: Reader::new(section).over(names), name, signs };
    if entries { again.read_without_whiteouts(reading, builder) } else { Ok(()) }
}

/// A layer whose whiteouts have acted on lower ones.
struct Layer<'s> {
    section: &'s Section,
    reader: Reader<&'s Section>,
    name: &'s str,
    signs: WhiteoutStyle,
}

impl Layer<'_> {
    fn read_without_whiteouts(
        &mut self,
        reading: &mut Reading,
        builder: &mut CatalogueBuilder,
    ) -> Result<(), SourceError> {
        let (name, origin) = (self.name, builder.add_section(self.section.clone()));
        while let Some(mut entry) = next(reading, &mut self.reader, name)? {
            reading.meter.file()?;
            let is_whiteout = self.signs.of(&entry, name)? == Sign::Whiteout;
            if !is_whiteout && !split_name(&entry.path).1.starts_with(WHITEOUT) {
                if self.signs == WhiteoutStyle::Overlayfs {
                    entry.xattrs = overlayfs::shown(&entry.xattrs);
                }
                put(builder, &entry, origin).map_err(|error| tree(name, error))?;
                reading.bounds.tree(builder, name)?;
            }
        }
        Ok(())
    }
}

/// Splits a path into the part before the last name, with its slash, and the last name.
fn split_name(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
    let path = path.get(..end).unwrap_or_default();
    path.split_at(path.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1))
}

/// Puts one entry at its path.
fn put(builder: &mut CatalogueBuilder, entry: &Entry, origin: Origin) -> Result<(), CatalogueError> {
    let new = match entry.kind {
        EntryKind::HardLink => return builder.link(&entry.path, &entry.target).map(|_| ()),
        EntryKind::Directory => NewNode::Directory,
        EntryKind::File => NewNode::File { size: entry.size, runs: &entry.runs, origin },
        EntryKind::Symlink => NewNode::Symlink(&entry.target),
        EntryKind::CharDevice => NewNode::CharDevice(entry.device),
        EntryKind::BlockDevice => NewNode::BlockDevice(entry.device),
        EntryKind::Fifo => NewNode::Fifo,
    };
    let attributes = Attributes {
        mode: entry.mode,
        ids: Ids { uid: entry.uid, gid: entry.gid },
        times: entry.times,
        xattrs: entry.xattrs.clone(),
    };
    builder.put(&entry.path, attributes, new).map(|_| ())
}

fn begin<'s>(section: &'s Section, name: &str) -> Result<Reader<&'s Section>, SourceError> {
    foreign::refuse(section, name)?;
    Ok(Reader::new(section))
}

fn next(
    reading: &mut Reading,
    reader: &mut Reader<&Section>,
    name: &str,
) -> Result<Option<Entry>, SourceError> {
    let failed = |error: TarError| SourceError::Tar { archive: name.to_owned(), error };
    match reader.next_entry() {
        // Of what is no archive nothing can be taken.
        Err(error) if matches!(*error.problem, Problem::NotTar) => Err(failed(error)),
        Err(error) => reading.cut(name, failed(error)).map(|()| None),
        Ok(entry) => Ok(entry),
    }
}

fn tree(name: &str, error: CatalogueError) -> SourceError {
    SourceError::Tree { archive: name.to_owned(), error }
}

fn keep_warnings(reading: &mut Reading, reader: &Reader<&Section>, name: &str) {
    let archive = || Quoted(name.as_bytes()).to_string();
    let new =
        reader.warnings().iter().cloned().map(|warning| SourceWarning::Tar { archive: archive(), warning });
    reading.warnings.extend(new);
}

#[cfg(test)]
mod tests;
