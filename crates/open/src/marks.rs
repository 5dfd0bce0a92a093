//! Marks of multiple mount protection that this process holds: what is said of them, and their end before the process
//! ends in haste. When they are taken is the door's.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::hearer::Hearer;
use crate::locks::locked;
use platfs::device::mmp::{Host, MmpGuard, Purpose, ThisHost, acquire};
use platfs::device::{Device, Error};

/// A wait that is announced where nobody looks at a terminal: Linux does so, too.
const LONG: Duration = Duration::from_secs(20);

static HELD: Mutex<Vec<Weak<MmpGuard>>> = Mutex::new(Vec::new());
static HEARER: Hearer = Hearer::none();

/// Has somebody hear of waiting for other hosts and of the loss of a mark, on any thread, in the place of an earlier one.
pub fn tell_to(hear: impl Fn(&str) + Send + Sync + 'static) {
    HEARER.set(hear);
}

/// Clears all marks: for a process that ends without closing what it has open.
pub fn release_all() {
    let held = std::mem::take(&mut *locked(&HELD));
    held.iter().filter_map(Weak::upgrade).for_each(|held| held.release());
}

/// This machine, which says what it waits for.
struct Speaking {
    host: ThisHost,
    image: String,
}

impl Speaking {
    fn say(&self, what: &str) {
        HEARER.tell(&format!("{}: {what}", self.image));
    }
}

impl Host for Speaking {
    fn names(&self) -> (Vec<u8>, Vec<u8>) {
        self.host.names()
    }

    fn now(&self) -> u64 {
        self.host.now()
    }

    fn elapsed(&self) -> Duration {
        self.host.elapsed()
    }

    fn wait(&self, time: Duration) {
        if time > LONG || std::io::stderr().is_terminal() {
            let seconds = time.as_secs();
            self.say(&format!("waiting {seconds} s for other hosts (multiple mount protection)"));
        }
        self.host.wait(time);
    }

    fn random(&self) -> u32 {
        self.host.random()
    }

    fn lost(&self, why: &str) {
        self.say(why);
    }
}

/// Takes the mark of the volume on a device, if it has one; `image` and `device` are names of the image for people here
/// and on other hosts.
///
/// # Errors
/// Another host has it; the device's failure.
pub fn take(
    inner: Arc<dyn Device>,
    purpose: Purpose,
    (image, device): (String, &[u8]),
) -> Result<Arc<dyn Device>, Error> {
    let host = Arc::new(Speaking { host: ThisHost::new(device), image });
    let Some(held) = acquire(&inner, purpose, host)? else { return Ok(inner) };
    let held = Arc::new(held);
    locked(&HELD).push(Arc::downgrade(&held));
    Ok(held)
}
