//! `plat cp`: copies inside an image, or inside a mount.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Args;

use super::cage;
use super::live::{self, Alone};
use crate::bulk::{Actor, Terms};
use crate::bulk::{Done, Job, Name, copy};
use crate::console::{Console, Failure};
use crate::control::protocol::{Verb, flag};
use crate::larger;
use crate::reading::OpenImage;
use crate::sandbox;
use crate::writing::{self, Source, Sources, Target};

/// Arguments of `plat cp`.
#[derive(Args, Debug)]
pub struct Cp {
    #[command(flatten)]
    image: Target,
    /// Files, and behind them where the copies go: a directory, or the name of a single copy.
    #[arg(required = true, value_name = "PATH... TARGET")]
    paths: Vec<OsString>,
    /// Directories, too, with all that is in them.
    #[arg(short, long, short_alias = 'R')]
    recursive: bool,
    /// Existing files are replaced; directories never are.
    #[arg(short, long)]
    force: bool,
    /// Owners, times, special bits, attributes and links between the files are kept.
    #[arg(short, long)]
    preserve: bool,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

impl Cp {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        let first = self.image.name();
        if live::is_meant(first, &self.paths) { None } else { cage::changing(first) }
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let first = self.image.name();
        let done = match live::is_meant(first, &self.paths) {
            true => self.live(console, first)?,
            false if self.paths.len() < 2 => return Err(live::no_path(first)),
            false => self.alone(console)?,
        };
        live::say(console, self.json, &done)
    }

    fn live(&self, console: &mut Console<'_>, first: &OsStr) -> Result<Done, Failure> {
        let Some((target, rest)) = self.paths.split_last() else { return Err(live::no_path(first)) };
        if !rest.is_empty() && !platfs_host::path::is_directory(target) {
            return Err(live::host(target, "several files need an existing directory to go to"));
        }
        let set = |on: bool, bit: u32| if on { bit } else { 0 };
        let flags = set(self.recursive, flag::RECURSIVE)
            | set(self.force, flag::FORCE)
            | set(self.preserve, flag::PRESERVE);
        let mut sum = Done::default();
        for source in std::iter::once(first).chain(rest.iter().map(OsString::as_os_str)) {
            let places = [live::tree(source)?, live::name(&live::target(source, target)?)?];
            if let Some(from) = places.first() {
                live::hand_over(from, source)?;
            }
            match live::ask(console, (Verb::Copy, flags), &places, None) {
                Ok(done) => live::add(&mut sum, &done),
                Err(failure) => {
                    let (mount, needs) = (larger::mount_of(target), || larger::bytes_of(source));
                    console.complain(larger::remedied(failure, mount, needs))?;
                }
            }
        }
        Ok(sum)
    }

    fn alone(&self, console: &mut Console<'_>) -> Result<Done, Failure> {
        let (actor, watcher) = (Actor::root(), Alone);
        let sum = std::cell::Cell::new(Done::default());
        let options = copy::Options { recursive: self.recursive, force: self.force, preserve: self.preserve };
        writing::change_towards(
            &self.image,
            (&self.paths, Sources::OfImage),
            console,
            |image: &OpenImage, source, target| {
                let path = writing::target(image, &Source::inside(image, source), target)?;
                let place = writing::place(image, &path)?;
                let from = image.find(source, false)?;
                let job = Job::new(&image.volume, &actor, &watcher, Terms::ALL);
                let name =
                    Name::of(path.as_bytes(), place.name).map_err(|halt| writing::halted(image, halt))?;
                let to = copy::Target { directory: place.directory, name: &name, path: path.as_bytes() };
                let copied = copy::copy(&job, from, source.as_bytes(), to, options);
                let mut done = sum.get();
                live::add(&mut done, &job.done());
                sum.set(done);
                let failed = |halt| writing::halted(image, halt);
                copied.map_err(|halt| larger::remedied(failed(halt), self.image.name(), || image.bytes()))
            },
        )?;
        Ok(sum.get())
    }
}
