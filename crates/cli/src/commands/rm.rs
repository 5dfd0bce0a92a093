//! `plat rm`: takes files out of an image or a mount.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Args;

use super::cage;
use super::live::{self, Alone};
use crate::bulk::{Actor, Terms};
use crate::bulk::{Done, Job, Name, remove};
use crate::console::{Console, Failure};
use crate::control::protocol::{Verb, flag};
use crate::reading::OpenImage;
use crate::sandbox;
use crate::writing::{self, Place, Target};

/// Arguments of `plat rm`.
#[derive(Args, Debug)]
pub struct Rm {
    #[command(flatten)]
    image: Target,
    /// Files to remove. A symbolic link goes itself.
    paths: Vec<OsString>,
    /// Directories, too, with all that is in them.
    #[arg(short, long, short_alias = 'R')]
    recursive: bool,
    /// Empty directories, too.
    #[arg(short, long)]
    dir: bool,
    /// What does not exist is no failure.
    #[arg(short, long)]
    force: bool,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

impl Rm {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        let first = self.image.name();
        if live::is_meant(first, &self.paths) { None } else { cage::changing(first) }
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let first = self.image.name();
        let done = match live::is_meant(first, &self.paths) {
            true => self.live(console, first)?,
            false if self.paths.is_empty() => {
                let shown = crate::image::shown(first);
                let what =
                    format!("{shown}: lies in no mount of plat; of an image, name the files to remove");
                return Err(Failure::Usage(what));
            }
            false => self.alone(console)?,
        };
        live::say(console, self.json, &done)
    }

    fn live(&self, console: &mut Console<'_>, first: &OsStr) -> Result<Done, Failure> {
        let set = |on: bool, bit: u32| if on { bit } else { 0 };
        let flags = set(self.recursive, flag::RECURSIVE)
            | set(self.dir, flag::DIRECTORY)
            | set(self.force, flag::FORCE);
        let mut sum = Done::default();
        for path in std::iter::once(first).chain(self.paths.iter().map(OsString::as_os_str)) {
            let asked =
                live::name(path).and_then(|place| live::ask(console, (Verb::Remove, flags), &[place], None));
            match asked {
                Ok(done) => live::add(&mut sum, &done),
                Err(failure) => console.complain(failure)?,
            }
        }
        Ok(sum)
    }

    fn alone(&self, console: &mut Console<'_>) -> Result<Done, Failure> {
        let (actor, watcher) = (Actor::root(), Alone);
        let sum = Cell::new(Done::default());
        let options = remove::Options { recursive: self.recursive, dir: self.dir, force: self.force };
        writing::change_each(&self.image, &self.paths, console, |image: &OpenImage, path| {
            let Place { directory, name } = writing::place(image, path)?;
            let job = Job::new(&image.volume, &actor, &watcher, Terms::ALL);
            let name = Name::of(path.as_bytes(), name).map_err(|halt| writing::halted(image, halt))?;
            let removed = remove::remove(&job, directory, &name, path.as_bytes(), options);
            let mut done = sum.get();
            live::add(&mut done, &job.done());
            sum.set(done);
            removed.map_err(|halt| writing::halted(image, halt))
        })?;
        Ok(sum.get())
    }
}
