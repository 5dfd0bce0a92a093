//! Remedies that follow from a whole line: the image that comes first, a place that is not there, a file without rights.
//!
//! Owns: these, put behind the message of a failure. Excludes remedies that a command knows by itself.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use platfs_host::path;
use rustix::fs::OFlags;

use crate::console::{Failure, Trouble};
use crate::text::Shown;
use crate::{image, stores, usage};

/// Commands whose first word is an image, with paths in it behind.
const PATHS: [&str; 15] = [
    "ls", "cat", "tree", "stat", "get", "put", "rm", "mv", "cp", "ln", "mkdir", "chmod", "chown", "xattr",
    "frag",
];

/// Place and bytes of the magic of a superblock.
const MAGIC_AT: u64 = 1024 + 0x38;
const MAGIC: [u8; 2] = [0x53, 0xEF];

/// A line, looked at before its command runs: that may give up the rights to look.
pub(crate) struct Line {
    command: String,
    /// Words without a dash behind the command.
    words: Vec<OsString>,
    /// The line as it was meant, if the image does not come first in it.
    meant: Option<String>,
}

impl Line {
    /// Looks at the arguments of the program.
    pub(crate) fn of(arguments: &[OsString]) -> Self {
        let command = usage::command_of(arguments);
        let behind = arguments.iter().skip_while(|word| **word != *command).skip(1);
        let words = behind.filter(|word| !word.as_encoded_bytes().starts_with(b"-")).cloned().collect();
        let mut line = Line { command, words, meant: None };
        line.meant = line.meant(arguments);
        line
    }

    fn meant(&self, arguments: &[OsString]) -> Option<String> {
        let (first, others) = self.words.split_first()?;
        if !PATHS.contains(&&*self.command) {
            return None;
        }
        // The first word comes last: it is an image in nearly every line, which may be slow, and nothing shows progress yet.
        let image = others.iter().find(|word| is_volume(word))?;
        if is_volume(first) || path::is_directory(first) {
            return None;
        }
        // Behind the command: a word may have the name of the program or of the command.
        let command = 1 + arguments.iter().skip(1).position(|word| *word == *self.command)?;
        let at = command + 1 + arguments.iter().skip(command + 1).position(|word| word == first)?;
        let mut words: Vec<&OsString> = arguments.iter().skip(1).filter(|word| *word != image).collect();
        words.insert(at - 1, image);
        let words = words.into_iter().map(|word| Shown(word.as_encoded_bytes()).to_string());
        Some(format!("plat {}", words.collect::<Vec<_>>().join(" ")))
    }

    /// A failure with the remedy, if the line shows one.
    pub(crate) fn hinted(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Failed(trouble) => Failure::Failed(match self.remedy(&trouble) {
                Some(remedy) => trouble.and(remedy),
                None => trouble,
            }),
            other => other,
        }
    }

    fn remedy(&self, trouble: &Trouble) -> Option<String> {
        let (first, last) = (self.words.first()?, self.words.last()?);
        let is_about = |word: &OsString| trouble.file() == Some(&*shown(word));
        match (&*self.command, trouble.kind()) {
            (_, "not-found" | "wrong-type" | "failed" | "damaged")
                if is_about(first) && self.meant.is_some() =>
            {
                self.meant.as_ref().map(|line| format!("first comes the image: `{line}`"))
            }
            ("build", _) if path::is_directory(last) && is_about(last) && self.words.len() == 2 => {
                Some(format!("the image to make comes last: `plat build {} {}`", shown(last), shown(first)))
            }
            (command, "wrong-type") if command != "build" && is_about(first) && path::is_directory(first) => {
                Some(format!("`plat build {0} {0}.img` makes an image of it", shown(first)))
            }
            ("mount", "not-found") if is_about(last) && self.words.len() == 2 => {
                Some(format!("`mkdir {}` makes it", shown(last)))
            }
            ("mount", _)
                if trouble
                    .to_string()
                    .ends_with(&format!("no write access to mountpoint {}", shown(last))) =>
            {
                Some("a user mounts on a directory of his own: `mkdir ~/mnt` makes one".into())
            }
            (_, "not-permitted") => self.permitted(trouble),
            _ => None,
        }
    }

    /// A file of the caller without rights, or a directory that he may not write, by their modes: a command in its cage
    /// can't ask for more.
    fn permitted(&self, trouble: &Trouble) -> Option<String> {
        let own = rustix::process::geteuid().as_raw();
        let place = path_of(self.words.iter().find(|word| trouble.file() == Some(&*shown(word)))?);
        if path::facts(&place).is_ok_and(|facts| facts.uid == own && facts.mode & 0o400 == 0) {
            return Some(format!("`chmod u+rw {}` opens it to its owner", shown(&place)));
        }
        let above = place.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let facts = path::facts(above).ok()?;
        let open = if facts.uid == own { 0o200 } else { 0o022 };
        let name = place.file_name().filter(|_| facts.mode & open == 0 && !path::is_taken(&place))?;
        Some(format!(
            "{} can't be written: name the file in a directory of your own, as ~/{}",
            shown(above),
            shown(name)
        ))
    }
}

fn shown(name: impl AsRef<std::ffi::OsStr>) -> String {
    Shown(name.as_ref().as_encoded_bytes()).to_string()
}

/// The file of the host that a word names, whatever part of it.
fn path_of(word: &OsString) -> PathBuf {
    image::parse(word).path
}

/// Returns true if a word names a volume, by two bytes: nothing is decoded before the command has its cage.
fn is_volume(word: &OsString) -> bool {
    let spec = image::parse(word);
    let has_magic = |file: File| {
        let mut magic = [0; 2];
        file.read_exact_at(&mut magic, MAGIC_AT).is_ok() && magic == MAGIC
    };
    stores::is_meant(word)
        || path::is_file(&spec.path)
            && (spec.part != image::Part::Whole
                || path::open(&spec.path, OFlags::RDONLY | OFlags::NONBLOCK).is_ok_and(has_magic))
}
