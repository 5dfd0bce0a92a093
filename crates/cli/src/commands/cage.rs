//! The cages of commands that read a stranger's image, and what those of servers have in common with them: the image, what
//! it stands on, and the output.
//!
//! Excludes the cage itself (`sandbox`).

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rustix::thread::CapabilitySet;

use crate::sandbox::{Group, Plan};
use crate::{door, stores};

/// Refuses to go on without a cage.
pub const NO_CAGE: &str =
    "has no cage for this: `--sandbox=require` is for commands that read, serve or mount an image";

/// Files that the kernel shows: of the process itself, its limits, block devices.
const SYSTEM: [&str; 2] = ["/proc", "/sys"];

/// Capabilities for opening the files of others.
const OPENS: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH);

/// Capabilities for giving objects of a store their group.
const SHARES: CapabilitySet = CapabilitySet::CHOWN.union(CapabilitySet::FOWNER).union(CapabilitySet::FSETID);

/// Capabilities for giving files their owners, modes, kinds and attributes.
const MAKES: CapabilitySet = SHARES
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::LINUX_IMMUTABLE)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::SYS_ADMIN);

/// Plan of a command that reads images, and files of its own, and may write an output. `None` where a mount is asked.
pub(super) fn reading(images: &[&OsString], files: &[PathBuf], output: Option<&Path>) -> Option<Plan> {
    if images.iter().any(|name| !stores::is_meant(name) && Path::new(name).is_dir()) {
        return None;
    }
    let plan = images.iter().fold(system(), |plan, name| with_image(plan, name, false));
    let mut plan = Plan { reads: [plan.reads, files.to_vec()].concat(), ..plan };
    if let Some(output) = output {
        plan.writes.extend(places(output));
        plan.calls.extend([Group::Image, Group::Output]);
        plan.keeps |= SHARES;
    }
    Some(plan)
}

/// The plan of a command that also gives the files that it makes owners, kinds and attributes.
pub(super) fn with_attributes(mut plan: Plan) -> Plan {
    plan.calls.push(Group::Attributes);
    plan.keeps |= MAKES;
    plan
}

/// Plan of what all keep.
pub(super) fn system() -> Plan {
    Plan { reads: SYSTEM.iter().map(PathBuf::from).collect(), keeps: OPENS, ..Plan::default() }
}

/// A plan with an image, which may be in a store.
pub(super) fn with_image(mut plan: Plan, name: &OsStr, write: bool) -> Plan {
    if stores::is_meant(name) {
        let Plan { reads, writes, network, .. } = stores::reached(name);
        plan.reads.extend(reads);
        plan.writes.extend(writes);
        plan.network |= network;
        plan.calls.extend([Group::Image, Group::Output]);
        plan.keeps |= SHARES;
        return plan;
    }
    let to = if write { &mut plan.writes } else { &mut plan.reads };
    to.extend(door::around(name, write));
    if write {
        plan.calls.push(Group::Image);
    }
    plan
}

/// Where an output is made: its directory, itself, and where it leads to if it is a link.
fn places(output: &Path) -> Vec<PathBuf> {
    match output.canonicalize() {
        // What is written into as it is: a terminal, a pipe, a device.
        Ok(there) if !there.is_file() && !there.is_dir() => vec![there],
        Ok(there) => vec![above(&there), above(output)],
        Err(_) => vec![above(output)],
    }
}

/// The directory that a name is in.
pub(super) fn above(path: &Path) -> PathBuf {
    match path.parent() {
        Some(above) if above.as_os_str().is_empty() => PathBuf::from("."),
        Some(above) => above.to_owned(),
        None => PathBuf::from("/"),
    }
}
