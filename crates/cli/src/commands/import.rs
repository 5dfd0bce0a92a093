//! `plat import`: an archive into a directory, of an image or of a mount.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::Args;
use platfs_image::SourceError;
use platfs_image::source::{Section, SourceOptions, SourceWarning};

use super::cage;
use super::live::{self, Alone};
use crate::bulk::{Actor, Terms};
use crate::bulk::{Done, Job, import};
use crate::console::{Console, Failure};
use crate::control::protocol::{Verb, flag};
use crate::larger;
use crate::progress;
use crate::reading::OpenImage;
use crate::sandbox;
use crate::writing::{self, Target};

/// Arguments of `plat import`.
#[derive(Args, Debug)]
pub struct Import {
    #[command(flatten)]
    image: Target,
    /// A tar archive, plain or packed with gzip, zstd or xz; `-` is standard input.
    archive: OsString,
    /// Of an image: the directory that the files go to.
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    to: OsString,
    /// Existing files are replaced; directories never are.
    #[arg(short, long)]
    force: bool,
    /// Most bytes that a packed archive may unpack to (20G). Without it 1G, or 250 times its packed bytes, whichever is
    /// more.
    #[arg(long, value_name = "SIZE", value_parser = crate::size::parse_size)]
    max_size: Option<u64>,
    /// Takes what stands before the place where an archive is damaged or cut off; the exit code is 1.
    #[arg(long)]
    keep_going: bool,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

impl Import {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        let plan = cage::changing(self.image.name())?;
        let archive = (self.archive != "-").then(|| PathBuf::from(&self.archive));
        Some(cage::with_spool(cage::with_files(plan, archive), &std::env::temp_dir()))
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let to = self.image.name();
        // What can't be read or unpacked changes nothing.
        let (archive, cut) = self.archive()?;
        self.odd(console, cut.iter().map(ToString::to_string))?;
        let done = match live::is_meant(to, []) {
            true => self.live(console, to, &archive)?,
            false => self.alone(console, &archive)?,
        };
        live::say_at_length(console, self.json, to, &done)
    }

    /// Says what was odd. With `--keep-going` it is a failure: less than all of the archive was taken.
    fn odd(&self, console: &mut Console<'_>, mut lines: impl Iterator<Item = String>) -> Result<(), Failure> {
        lines.try_for_each(|line| match self.keep_going {
            true => console.complain(Failure::Failed(line.into())),
            false => {
                console.warn(line);
                Ok(())
            }
        })
    }

    fn archive(&self) -> Result<(Section, Vec<SourceWarning>), Failure> {
        let options = SourceOptions::new().keep_going(self.keep_going);
        let options = self.max_size.map_or(options.clone(), |most| options.max_size(most));
        let opened = match self.archive == "-" {
            true => options.unpacked_stream(progress::stdin(), "standard input"),
            false => options.unpacked(Path::new(&self.archive)),
        };
        opened.map_err(|error: SourceError| Failure::Failed(error.to_string().into()))
    }

    fn live(&self, console: &mut Console<'_>, to: &OsStr, archive: &Section) -> Result<Done, Failure> {
        let file = archive.file().ok_or_else(|| Failure::Failed("the archive is no file".into()))?;
        let flags = if self.force { flag::FORCE } else { 0 };
        let done = live::ask_with((Verb::Import, flags), live::directory(to)?, file);
        let (done, lines) = done.map_err(|failure| larger::remedied(failure, to, || archive.bytes()))?;
        self.odd(console, lines.into_iter()).map(|()| done)
    }

    fn alone(&self, console: &mut Console<'_>, archive: &Section) -> Result<Done, Failure> {
        let mut done = Done::default();
        writing::change(&self.image, console, |image: &OpenImage, console| {
            let directory = image.find(&self.to, true)?;
            let (actor, watcher) = (Actor::root(), Alone);
            let job = Job::new(&image.volume, &actor, &watcher, Terms::ALL);
            let imported = import::import(&job, directory, archive, import::Options { force: self.force });
            done = job.done();
            let failed = |halt| writing::halted(image, halt);
            let lines = imported
                .map_err(|halt| larger::remedied(failed(halt), self.image.name(), || archive.bytes()))?;
            self.odd(console, lines.into_iter())
        })?;
        Ok(done)
    }
}
