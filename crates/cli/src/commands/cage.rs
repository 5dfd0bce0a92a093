//! The cages of commands that read, change or make an image, and what those of servers have in common with them: the image,
//! what it stands on, and the output.
//!
//! Excludes the cage itself (`sandbox`).

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use platfs_host::{Kind, path};
use rustix::thread::CapabilitySet;

use crate::sandbox::{Group, Plan};
use crate::stores::Reach;
use crate::{door, image, stores};

/// Refuses to go on without a cage.
pub const NO_CAGE: &str = "has no cage for this: `--sandbox=require` is for commands on an image, servers and mounts; what is \
                           done in a mount its server does";

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
    if images.iter().any(|name| is_directory(name)) {
        return None;
    }
    let plan = images.iter().fold(system(), |plan, name| with_image(plan, name, false));
    let plan = with_files(plan, files.iter().cloned());
    Some(output.into_iter().fold(plan, with_output))
}

/// Plan of a command that changes an image in place. `None` where a mount is asked.
pub(super) fn changing(image: &OsStr) -> Option<Plan> {
    (!is_directory(image)).then(|| with_image(system(), image, true))
}

/// A command that changes an image and keeps the way back beside it meanwhile, and in a file that is asked for.
pub(super) fn reshaping(image: &OsStr, undo: Option<&Path>) -> Option<Plan> {
    let plan = changing(image)?;
    if stores::is_meant(image) {
        return Some(plan);
    }
    Some([&*door::way_back(image)].into_iter().chain(undo).fold(plan, with_output))
}

/// Plan of a command that makes an image, in a new file or where there is something already.
pub(super) fn making(image: &OsStr) -> Plan {
    let path = image::parse(image).path;
    let plan = with_image(system(), image, true);
    let is_in_place = path::facts(&path).is_ok_and(|facts| facts.kind != Kind::File);
    if is_in_place { plan } else { with_output(plan, &path) }
}

fn is_directory(image: &OsStr) -> bool {
    !stores::is_meant(image) && path::is_directory(image)
}

/// A plan with files, and directories with all below them, that are read.
pub(super) fn with_files(mut plan: Plan, files: impl IntoIterator<Item = PathBuf>) -> Plan {
    plan.reads.extend(files);
    plan
}

/// The plan of a command that reads files of others with all that the host knows of them.
pub(super) fn with_sources(plan: Plan, files: impl IntoIterator<Item = PathBuf>) -> Plan {
    let files: Vec<PathBuf> = files.into_iter().collect();
    let mut plan = with_files(plan, files.iter().cloned());
    // A source is looked up in the directory that is open.
    plan.lists.extend(files.iter().map(|file| above(file)));
    plan.calls.push(Group::Sources);
    // The last one is asked for attributes that only administrators see.
    plan.keeps |= CapabilitySet::FOWNER | CapabilitySet::SYS_ADMIN;
    plan
}

/// Plan of a command that reads a container image: the directory of a layout, or an archive that may be packed.
pub(super) fn container(image: &OsStr) -> Plan {
    let mut plan = with_image(system(), image, false);
    // A name in a layout leads through links.
    plan.calls.push(Group::Sources);
    with_spool(plan, &std::env::temp_dir())
}

/// A plan with a file without a name in a directory, for what is unpacked.
pub(super) fn with_spool(mut plan: Plan, place: &Path) -> Plan {
    plan.writes.push(place.to_owned());
    plan.calls.extend([Group::Bytes, Group::Output]);
    plan
}

/// A plan with a file that is made, and takes its name when it is whole.
pub(super) fn with_output(mut plan: Plan, output: &Path) -> Plan {
    plan.writes.extend(places(output));
    plan.calls.extend([Group::Bytes, Group::Output]);
    plan.keeps |= SHARES;
    plan
}

/// A plan with files that are made in a directory, if it is one, or else with that name.
pub(super) fn with_outputs_in(plan: Plan, output: &Path) -> Plan {
    // The directory that is above any name in it.
    if path::is_directory(output) { with_output(plan, &output.join("x")) } else { with_output(plan, output) }
}

/// The plan of a command that also gives the files that it makes owners, kinds and attributes.
pub(super) fn with_attributes(mut plan: Plan) -> Plan {
    plan.calls.push(Group::Attributes);
    plan.keeps |= MAKES;
    plan
}

/// Plan of what all keep.
pub(super) fn system() -> Plan {
    let reads = SYSTEM.iter().map(PathBuf::from).collect();
    Plan { reads, calls: vec![Group::Caller], keeps: OPENS, ..Plan::default() }
}

/// A plan with an image, which may be in a store.
pub(super) fn with_image(mut plan: Plan, name: &OsStr, write: bool) -> Plan {
    if stores::is_meant(name) {
        let Reach { reads, writes, network } = stores::reached(name);
        plan.reads.extend(reads);
        plan.writes.extend(writes);
        plan.network |= network;
        plan.calls.extend([Group::Bytes, Group::Image, Group::Output]);
        plan.keeps |= SHARES;
        return plan;
    }
    let to = if write { &mut plan.writes } else { &mut plan.reads };
    to.extend(door::around(name, write));
    if write {
        plan.calls.extend([Group::Bytes, Group::Image]);
    }
    plan
}

/// Where an output is made: its directory, itself, and where it leads to if it is a link.
fn places(output: &Path) -> Vec<PathBuf> {
    match path::whole(output) {
        // What is written into as it is: a terminal, a pipe, a device.
        Ok(there) if !path::is_file(&there) && !path::is_directory(&there) => vec![there],
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
