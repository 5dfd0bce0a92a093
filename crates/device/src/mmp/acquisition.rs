//! The rule by which a mark is taken, which is that of Linux: all that share a disk must go by the same.

use std::sync::Arc;

use ondisk::mmp::{MmpUse, RawMmp};
use zerocopy::IntoBytes;

use super::guard::MmpGuard;
use super::host::Host;
use super::mark::{Access, Bytes, MmpBlock, NextSequence};
use crate::{Device, Error, Result};

/// Purpose for which the volume is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To be changed, as by a mount.
    Write,
    /// To be checked and repaired: no mount begins then, and no other check.
    Check,
    /// To be freed from the mark of a host that is gone. One that is renewed while this waits is refused all the same, but
    /// if `force` says that nobody waits.
    Clear {
        /// Without waiting, and whatever the mark says.
        force: bool,
    },
}

/// Describes the host that wrote a block.
pub(super) fn who(seen: &RawMmp, host: &dyn Host) -> String {
    let shown = |name: &[u8]| String::from_utf8_lossy(name).escape_default().to_string();
    let ago = host.now().saturating_sub(seen.mmp_time.get());
    let (node, device) = (shown(seen.node()), shown(seen.device()));
    format!("'{node}' (its device '{device}', its mark {ago} s old by the clock here)")
}

fn in_use(why: String) -> Error {
    Error::InUse(why)
}

/// Refuses a mark that is in the way; says whether it has to be waited for.
fn judge(seen: &RawMmp, purpose: Purpose, host: &dyn Host) -> Result<bool> {
    let remedy = "if that host is gone, `plat tune -E clear_mmp` takes the mark away";
    match (seen.usage(), purpose) {
        (_, Purpose::Clear { force: true }) | (MmpUse::Clean, _) => Ok(false),
        (MmpUse::Mounted, _) | (_, Purpose::Clear { .. }) => Ok(true),
        (MmpUse::Check, _) => {
            Err(in_use(format!("a check works on it, or was cut off, on {}; {remedy}", who(seen, host))))
        }
        (MmpUse::Unknown, _) => Err(in_use(format!("its mark is unknown, by {}; {remedy}", who(seen, host)))),
    }
}

/// Takes the mark at a place. `None`: what is there is no mark.
pub(super) fn take(
    device: &Arc<dyn Device>,
    place: MmpBlock,
    purpose: Purpose,
    host: Arc<dyn Host>,
) -> Result<Option<MmpGuard>> {
    let access = Access::new(Arc::clone(device));
    let read = || -> Result<Bytes> {
        let failed = |source| Error::io(format!("reading the mark in block {}", place.block), source);
        access.read(&place).map_err(failed)
    };
    let write = |raw: &RawMmp| {
        let failed = |source| Error::io(format!("writing the mark in block {}", place.block), source);
        access.write(&place, raw).map_err(failed)
    };
    let first = read()?;
    let Some(seen) = place.parse(&first) else { return Ok(None) };
    let wait = place.wait(&seen);
    if judge(&seen, purpose, &*host)? {
        // Longer than Linux: who has just taken it waits as long and renews it then, on a busy machine some time later.
        host.wait(wait + wait / 4);
        let again = read()?;
        if again != first {
            let now = place.parse(&again).unwrap_or(seen);
            return Err(in_use(format!("{} renews its mark; close it there first", who(&now, &*host))));
        }
    }
    let mut ours = place.next(&seen, NextSequence::Random, &*host);
    write(&ours)?;
    // Renewed halfway: who saw the mark as soon as it was there knows before its own wait is over that this host lives.
    let waits = if purpose == (Purpose::Clear { force: true }) { [None; 2] } else { [Some(wait / 2); 2] };
    for time in waits.into_iter().flatten() {
        host.wait(time);
        let again = read()?;
        if again != ours.as_bytes() {
            let now = place.parse(&again).unwrap_or(seen);
            return Err(in_use(format!("{} took it at the same time", who(&now, &*host))));
        }
        ours = place.next(&ours, NextSequence::Following, &*host);
        write(&ours)?;
    }
    access.forget_all();
    if purpose == Purpose::Check {
        ours = place.next(&ours, NextSequence::Check, &*host);
        write(&ours)?;
    }
    let held = MmpGuard::new(Arc::clone(device), access, place, ours, host);
    held.map(Some).map_err(|source| Error::io("starting the thread that renews the mark", source))
}
