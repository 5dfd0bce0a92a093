//! `plat snapshot`: a volume as it is at one moment, as an image of its own: of a mount while programs write, or of an
//! image.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use platfs::device::{Device, SnapshotDevice};
use platfs_host::Privacy;

use super::keeping_going::{KeepGoingArgs, Lacking, Unreadable};
use super::replaced::{Becomes, may_replace};
use super::{cage, live};
use crate::bulk::{Done, forgiving::Forgiving, snapshot};
use crate::console::{Console, Failure};
use crate::control::protocol::Verb;
use crate::door;
use crate::door::output::Output;
use crate::image;
use crate::reading::open_device;
use crate::sandbox::Plan;
use crate::size::human;
use crate::text::Shown;

/// Arguments of `plat snapshot`.
#[derive(Args, Debug)]
pub struct Snapshot {
    /// A directory of a mount by `plat mount`, or an image: a file, a block device, `disk.img@part1` or
    /// `disk.img@OFFSET`.
    source: OsString,
    /// The image that is made.
    out: PathBuf,
    /// Replaces a file that exists.
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    keep_going: KeepGoingArgs,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

impl Snapshot {
    pub(super) fn cage(&self) -> Option<Plan> {
        cage::reading(&[&self.source], &[], Some(&self.out))
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        may_replace(&self.out, Becomes::Image, self.force)?;
        let is_live = live::is_meant(&self.source, None);
        if is_live {
            self.keep_going.refuse_of_mount()?;
        }
        if self.keep_going.keep_going == Some(Unreadable::LeaveOut) {
            let what = "a snapshot can't leave out bytes; --keep-going=zeros puts zeros in their place";
            return Err(Failure::Usage(what.to_owned()));
        }
        let done = if is_live { self.of_mount(console)? } else { self.of_image(console)? };
        if !self.json {
            let (out, bytes) = (Shown(self.out.as_os_str().as_encoded_bytes()), human(done.bytes));
            return Ok(writeln!(console.summary(), "{out}: {bytes} looked at")?);
        }
        live::say(console, true, &done)
    }

    fn of_mount(&self, console: &mut Console<'_>) -> Result<Done, Failure> {
        let failed = |error: std::io::Error| Failure::about(self.out.display(), error);
        let found = live::directory(&self.source)?;
        let output = Output::through(&self.out, 0, Privacy::Private).map_err(failed)?;
        let file = output.file().map_err(failed)?;
        live::hand_over(&found, &self.source)?;
        let done = live::ask(console, (Verb::Snapshot, 0), &[found], Some(&file as &dyn AsFd))?;
        drop(file);
        output.finish().map_err(failed)?;
        Ok(done)
    }

    fn of_image(&self, console: &mut Console<'_>) -> Result<Done, Failure> {
        let name = image::shown(&self.source).to_string();
        let failed = |error: std::io::Error| Failure::about(self.out.display(), error);
        let _shared = door::share(&self.source).map_err(|error| Failure::about(&name, error))?;
        let device = open_device(&self.source)?;
        platfs::read_superblock(&*device)
            .map_err(|error| Failure::about(&name, crate::reading::no_superblock(&*device, &name, &error)))?;
        let output =
            Output::through(&self.out, device.size(), image::privacy(&self.source)).map_err(failed)?;
        let to = output.device().map_err(failed)?;
        let mut done = Done::default();
        let forgiving = self.keep_going.keep_going.map(|_| Arc::new(Forgiving::new(Arc::clone(&device))));
        let from = forgiving.clone().map_or(device, |forgiving| forgiving as Arc<dyn Device>);
        let is_true = || forgiving.as_ref().is_none_or(|forgiving| forgiving.is_whole());
        snapshot::take_believing(&Arc::new(SnapshotDevice::new(from)), Arc::new(to), is_true, |bytes| {
            done.bytes = bytes;
            live::show(&done);
            Ok(())
        })
        .map_err(|halt| Failure::about(&name, halt))?;
        output.finish().map_err(failed)?;
        let lacking = Lacking::of(&name);
        let unread = forgiving.map(|forgiving| forgiving.unread()).unwrap_or_default();
        unread.iter().for_each(|(range, why)| lacking.zeros(range, why));
        lacking.say(console)?;
        Ok(done)
    }
}
