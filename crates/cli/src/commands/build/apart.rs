//! Outputs of a build are files of their own: none is a source, an archive or another output, whatever names lead there.
//!
//! Excludes whether an output that exists may be replaced (`--force`), and who else uses it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use platfs_host::{Opened, target_of};
use platfs_image::Source;

use super::Build;
use crate::console::Failure;
use crate::door::meant::Meant;
use crate::image;

/// The names that the system has for what a command reads and writes as `-`.
const STREAMS: [&str; 2] = ["/dev/stdin", "/dev/stdout"];

impl Build {
    /// Refuses two outputs that are one file, and outputs that are a source or an archive, before anything is written. On a
    /// line with archives only the image was forgotten, which comes last.
    pub(super) fn keep_apart(&self) -> Result<(), Failure> {
        let image = self.image_file();
        let beside = self.files_beside();
        let outputs: Vec<(&Path, Meant)> =
            [&image].into_iter().chain(&beside).map(|path| (&**path, Meant::by(path))).collect();
        let twice =
            |at: usize, meant: &Meant| outputs.iter().skip(at + 1).any(|(_, other)| meant.meets(other));
        if outputs.iter().enumerate().any(|(at, (_, meant))| twice(at, meant)) {
            return Err(Failure::Usage("the image and the files beside it need names of their own".into()));
        }
        let sources: Vec<Meant> = self.files_read().iter().map(|path| Meant::by(path)).collect();
        let old = self.like.iter().map(|name| Meant::by(&image::parse(name).path));
        let old: Vec<Meant> = old.collect();
        for (at, (path, meant)) in outputs.iter().enumerate() {
            let is_image = at == 0;
            // An image may take the place of the older one that it is made like.
            let read = sources.iter().chain(old.iter().filter(|_| !is_image));
            if read.into_iter().any(|source| source.meets(meant)) {
                return Err(spared(path, "is a source, too", is_image));
            }
            let is_stream = is_image && self.image() == "-";
            if !is_stream
                && matches!(target_of(path), Ok((_, Opened::File(file))) if Source::is_archive(&file))
            {
                return Err(spared(path, "is an archive, not an image", is_image));
            }
        }
        Ok(())
    }

    /// The file or device of the image.
    fn image_file(&self) -> PathBuf {
        if self.image() == "-" { PathBuf::from(STREAMS[1]) } else { image::parse(self.image()).path }
    }

    /// Files that are made beside the image.
    pub(super) fn files_beside(&self) -> Vec<PathBuf> {
        self.disk.beside().into_iter().chain(self.image_config.clone()).collect()
    }

    /// Files and directories that are read, but for an older image.
    fn files_read(&self) -> Vec<PathBuf> {
        let path =
            |source: &OsString| PathBuf::from(if source == "-" { STREAMS[0].as_ref() } else { &**source });
        self.sources().iter().map(path).chain(self.tables()).collect()
    }

    /// Tables that go with the sources.
    pub(super) fn tables(&self) -> Vec<PathBuf> {
        [&self.pseudo, &self.file_contexts, &self.fs_config].into_iter().flatten().cloned().collect()
    }
}

fn spared(path: &Path, why: &str, is_image: bool) -> Failure {
    let order = if is_image { "the image to make comes last (SOURCE... IMAGE), and " } else { "" };
    let shown = if path == Path::new(STREAMS[1]) {
        "standard output".into()
    } else {
        image::shown(path.as_os_str()).to_string()
    };
    Failure::about(shown, format!("{why}: {order}sources are never replaced"))
}
