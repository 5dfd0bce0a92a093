//! The sources of `plat build`, with the options that say how they are read.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use platfs::placing;
use platfs_host::{Kind, path};
use platfs_image::source::{DeviceTable, FileContexts, FilterError, FsConfig, Layer};
use platfs_image::{Source, SourceError, SourceOptions};

use super::super::cage;
use super::{Build, failed};
use crate::console::Failure;
use crate::image;
use crate::progress;

/// The attribute with the label of SELinux.
const LABEL: &[u8] = b"security.selinux";

impl Build {
    /// Reads what the image is made of.
    pub(super) fn read_source(&self, epoch: Option<u64>) -> Result<Source, Failure> {
        let spec = image::parse(self.image());
        let wrong = |error: FilterError| Failure::Usage(wrong_option(&error));
        let options = Source::options().exclude(&self.exclude).map_err(wrong)?;
        let mut options =
            options.one_file_system(self.one_file_system).in_use(true).keep_going(self.keep_going);
        // What is replaced, or lies beside the image, is no part of it.
        options = self
            .files_beside()
            .iter()
            .chain([&spec.path])
            .fold(options, |options, path| options.except(path));
        options = self.map_uid.iter().fold(options, |options, range| options.map_uid(*range));
        options = self.map_gid.iter().fold(options, |options, range| options.map_gid(*range));
        if let Some(owner) = &self.owner {
            options = options.owner(owner.clone());
        }
        if let Some(prefix) = &self.prefix {
            options = options.prefix(prefix);
        }
        if let Some(words) = self.placement.as_ref().filter(|words| !words.is_empty()) {
            options = options.mark_root(placing::ATTRIBUTE, words.as_bytes());
        }
        if let Some(seconds) = epoch {
            options = options.latest(i64::try_from(seconds).unwrap_or(i64::MAX));
        }
        if let Some(platform) = &self.platform {
            options = options.platform(platform).map_err(wrong)?;
        }
        if let Some(tag) = &self.tag {
            options = options.image(tag);
        }
        if let Some(most) = self.max_size {
            options = options.max_size(most);
        }
        if let Some(count) = self.jobs {
            options = options.threads(count);
        }
        options = options.spool(self.spool());
        self.open(&self.with_tables(self.with_root(options)?)?)
    }

    /// Directory for what is unpacked: where the user says, or else beside the image. Beside a block device there is only
    /// memory, and beside standard output nothing.
    pub(super) fn spool(&self) -> PathBuf {
        let path = image::parse(self.image()).path;
        let is_said = std::env::var_os("TMPDIR").is_some_and(|place| !place.is_empty());
        let is_block = || path::facts(&path).is_ok_and(|found| found.kind == Kind::BlockDevice);
        let above = cage::above(&path);
        match is_said || self.image() == "-" || is_block() {
            true => std::env::temp_dir(),
            false if path::is_directory(&above) => above,
            false => PathBuf::from("."),
        }
    }

    /// Returns true if what is unpacked of a source lies beside the image while it is read.
    pub(super) fn keeps_beside(&self) -> bool {
        let is_beside = self.spool() == cage::above(&image::parse(self.image()).path);
        is_beside && self.sources().iter().any(|source| source == "-" || path::is_file(source))
    }

    /// Options of `-E` about the root directory hold for that of the source, too.
    fn with_root(&self, mut options: SourceOptions) -> Result<SourceOptions, Failure> {
        let format = self.format.parse()?;
        options = options.without_xattrs(format.no_xattrs);
        let root = format.root;
        if let Some((uid, gid)) = root.owner {
            options = options.root_owner(uid, gid);
        }
        if let Some(mode) = root.mode {
            options = options.root_mode(mode);
        }
        if let Some(label) = root.label {
            options = options.mark_root(LABEL, &[&label[..], b"\0"].concat());
        }
        Ok(options)
    }

    /// Adds the tables that go with the sources.
    fn with_tables(&self, mut options: SourceOptions) -> Result<SourceOptions, Failure> {
        if let Some(path) = &self.pseudo {
            options = options.devices(DeviceTable::open(path).map_err(source_failure)?);
        }
        if let Some(path) = &self.fs_config {
            options = options.fs_config(FsConfig::open(path).map_err(source_failure)?);
        }
        if let Some(directory) = &self.mount_point {
            options = options.mount_point(directory.as_bytes());
        }
        if let Some(path) = &self.file_contexts {
            options = options.contexts(FileContexts::open(path).map_err(source_failure)?);
        }
        Ok(options)
    }

    fn open(&self, options: &SourceOptions) -> Result<Source, Failure> {
        const NAME: &str = "standard input";
        let is_stream = |source: &OsString| source == "-";
        if self.sources().iter().filter(|source| is_stream(source)).count() > 1 {
            return Err(Failure::Usage("standard input (`-`) can be one source only".into()));
        }
        let opened = match self.sources() {
            [source] if is_stream(source) => options.read(progress::stdin(), NAME),
            [source] => options.open(source),
            sources => {
                let mut stream = progress::stdin();
                let mut stream = Some(&mut stream as &mut dyn Read);
                let layers = sources.iter().map(|source| match stream.take_if(|_| is_stream(source)) {
                    Some(stream) => Layer::Stream(stream, NAME),
                    None => Layer::Path(Path::new(source)),
                });
                options.overlay(layers)
            }
        };
        opened.map_err(source_failure)
    }
}

pub(super) fn source_failure(error: SourceError) -> Failure {
    match error {
        SourceError::Filter(error) => Failure::Usage(wrong_option(&error)),
        error => failed(error),
    }
}

/// A complaint of the library about an option of a source, with the name that the option has here.
fn wrong_option(error: &FilterError) -> String {
    match error.option() {
        Some("image") => format!("--tag: {error}"),
        Some(option) => format!("--{}: {error}", option.replace('_', "-")),
        None => error.to_string(),
    }
}
