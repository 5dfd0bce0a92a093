//! `plat serve`: an image as a block device for virtual machines.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use platfs::device::Device;
use platfs_host::{Id, OutputLocation};
use serde_json::{Map, Value};

use super::cage;
use crate::console::{Console, Failure};
use crate::door;
use crate::image;
use crate::nbd::{Export, Server, Unused, ZeroedUnused};
use crate::progress;
use crate::reading::open_device;
use crate::sandbox::{self, Group, Mode, Plan};
use crate::signals::StopSignals;
use crate::stores;
use crate::text::{self, Shown};

/// Arguments of `plat serve`.
#[derive(Args, Debug)]
pub struct Serve {
    /// The socket on which the NBD protocol is spoken. It must not exist; it goes when this ends.
    #[arg(long, value_name = "SOCKET")]
    nbd: PathBuf,
    /// The image: a file, a block device, `disk.img@part1`, or a volume of a store. It is held for writing.
    image: OsString,
    /// Lets nobody write.
    #[arg(long, short_alias = 'r')]
    read_only: bool,
    /// Free blocks of the volume read as zeros, and count as holes: copies leave them out. What was removed is not in
    /// them.
    #[arg(long, requires = "read_only")]
    free_as_zeros: bool,
}

impl Serve {
    /// Says that it serves, on one line: its reader waits for no end.
    fn tell(&self, console: &mut Console<'_>, name: &str) -> Result<(), Failure> {
        if console.is_json() {
            let mut object = Map::from_iter([("read_only".to_owned(), self.read_only.into())]);
            text::put_bytes(&mut object, "image", self.image.as_bytes());
            text::put_bytes(&mut object, "socket", self.nbd.as_os_str().as_bytes());
            writeln!(console.out, "{}", Value::Object(object))?;
        } else {
            let socket = Shown(self.nbd.as_os_str().as_bytes());
            writeln!(console.out, "{name} served on {socket}")?;
        }
        Ok(console.out.flush()?)
    }

    fn cage(&self) -> Plan {
        let plan = cage::with_image(cage::system(), &self.image, !self.read_only);
        // What the bytes mean, its clients see to, and a store is reached through more than a file is.
        let is_spare = |group: &Group| matches!(group, Group::Image | Group::Caller);
        let is_needed = |group: &Group| stores::is_meant(&self.image) || !is_spare(group);
        let calls = plan.calls.into_iter().filter(is_needed).chain([Group::Answer, Group::Remove]).collect();
        Plan { removes: vec![cage::above(&self.nbd)], calls, ..plan }
    }

    /// The export: the bytes, and the free blocks if nobody changes the volume meanwhile.
    fn export(&self, device: &Arc<dyn Device>) -> Result<Export, String> {
        let mut export = Export::new(Arc::clone(device), !self.read_only);
        if self.free_as_zeros {
            export.device = Arc::new(ZeroedUnused::new(Arc::clone(device), Unused::of(device)?));
        } else if self.read_only {
            export.unused = Unused::of(device).ok().map(Arc::new);
        }
        Ok(export)
    }

    pub(super) fn run(&self, console: &mut Console<'_>, sandbox: Mode) -> Result<(), Failure> {
        // It lasts as long as it is wanted.
        progress::end();
        let name = image::shown(&self.image).to_string();
        let socket = || Shown(self.nbd.as_os_str().as_encoded_bytes());
        let failed = |error: std::io::Error| Failure::about(socket(), error);
        #[expect(clippy::disallowed_methods, reason = "a socket is made by its path alone")]
        let listener = UnixListener::bind(&self.nbd).map_err(failed)?;
        let placed = Placed::at(&self.nbd).map_err(failed)?;
        sandbox::enter(&self.cage(), sandbox).map_err(|why| Failure::Failed(why.into()))?;
        let shared = match self.read_only {
            true => Some(door::share(&self.image).map_err(|error| Failure::about(&name, error))?),
            false => None,
        };
        let device = match self.read_only {
            true => open_device(&self.image)?,
            false => door::open_bytes(&self.image).map_err(|error| Failure::about(&name, error))?,
        };
        let export = self.export(&device).map_err(|why| Failure::about(&name, why))?;
        let stop = StopSignals::hold().map_err(failed)?;
        self.tell(console, &name)?;
        let server = Server::start(listener, export).map_err(failed)?;
        let signal = stop.wait();
        // What clients have written and not flushed is not thrown away.
        server.stop();
        drop(placed);
        let flushed = if self.read_only { Ok(()) } else { device.flush() };
        drop((device, shared));
        signal.map_err(|error| Failure::about(socket(), error))?;
        flushed.map_err(|error| Failure::about(name, error))
    }
}

/// A socket that goes with its server; whatever else has its name by then stays.
struct Placed {
    place: OutputLocation,
    made: Id,
}

impl Placed {
    fn at(path: &Path) -> std::io::Result<Self> {
        let place = OutputLocation::of(path)?;
        let made = place.directory.look(&place.name)?.id;
        Ok(Placed { place, made })
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        if self.place.directory.look(&self.place.name).is_ok_and(|facts| facts.id == self.made) {
            let _ = self.place.remove();
        }
    }
}
