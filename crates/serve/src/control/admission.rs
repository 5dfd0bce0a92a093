//! Admission of requests: the tickets that a program shows for its places, and what they are worth.
//!
//! Owns: redeeming tickets; views for reading only, other mounts, and files that lie in the mount itself. Excludes who may
//! connect (`server`), and rights by owner and mode, which are asked file by file (`bulk`).

use std::os::fd::OwnedFd;

use fuse::Notifier;
use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::{Pin, Volume};
use platfs_host::path;
use rustix::fs::{StatxFlags, XattrFlags};
use rustix::io::Errno;

use super::needs::Needs;
use super::protocol::{Place, Request, Verb, proof_name};
use super::served::Served;
use super::tickets::{Ticket, Tickets};
use super::views::{self, Spot};
use crate::bulk::Acts;
use crate::refusal::Refusal;
use platfs_image::text::Shown;

/// Facts by which requests are judged.
pub(super) struct Gate<'s> {
    pub(super) served: &'s dyn Served,
    pub(super) tickets: &'s Tickets,
    pub(super) notifier: &'s Notifier,
    /// The number by which the kernel knows the mount.
    pub(super) device: u64,
}

impl<'s> Gate<'s> {
    /// Refuses a file of this mount: the server would wait for itself, and would never end if it were killed meanwhile.
    /// Programs bring a copy, or a pipe.
    pub(super) fn must_lie_elsewhere(&self, file: Option<&OwnedFd>) -> Result<(), String> {
        match file.map(known).transpose()? {
            Some((found, _)) if found == self.device => {
                Err("the file lies in the mount that this is about, whose server can't wait for itself"
                    .into())
            }
            _ => Ok(()),
        }
    }

    /// The tickets that the peer of a request shows, each with its directory held.
    pub(super) fn tickets(
        &self,
        peer: u32,
        request: &Request,
        directories: &[OwnedFd],
    ) -> Result<Vec<(Ticket, Pin<'s>)>, Refusal> {
        let places = request.places.iter().zip(directories).enumerate();
        places.map(|(at, (place, directory))| self.admit(peer, (request, at), (place, directory))).collect()
    }

    /// The ticket of a place.
    fn admit(
        &self,
        peer: u32,
        (request, at): (&Request, usize),
        (place, directory): (&Place, &OwnedFd),
    ) -> Result<(Ticket, Pin<'s>), Refusal> {
        let volume = self.served.volume();
        let ticket = self.redeem(peer, place).map_err(|why| Refusal::new(Errno::ACCESS, why))?;
        let needs = Needs::of(request.verb, at, request.flags);
        let is_read_only = is_read_only(directory, self.device, ticket.place.inode)?;
        let pin = volume.pin(ticket.place.inode)?;
        let facts = volume.metadata(ticket.place.inode)?;
        let is_same = facts.generation == ticket.place.generation && facts.links > 0;
        if !is_same || facts.file_type != FileType::Directory {
            return Err(Refusal::new(Errno::NOENT, "the directory was removed meanwhile"));
        }
        let refused = |why: Refusal| why.at(Shown(&place.shown));
        let is_over = request.verb.writes() && !self.served.is_writable();
        if is_over || is_read_only && needs.writes() {
            return Err(refused(Errno::ROFS.into()));
        }
        let needed = needs.all.and(needs.some);
        let has_any = needed == Acts::NONE || ticket.acts.only(needed) != Acts::NONE;
        if !ticket.acts.has_all(needs.all) || !has_any {
            return Err(refused(Refusal::new(Errno::ACCESS, "permission denied")));
        }
        must_be_uncovered(volume, (request, needs), &ticket, (place, directory)).map_err(refused)?;
        Ok((ticket, pin))
    }

    fn redeem(&self, peer: u32, place: &Place) -> Result<Ticket, String> {
        let ticket = self.tickets.redeem(&place.token);
        // The kernel's own name for the user: with `fakeroot` the work is done on behalf of another.
        let ticket = ticket.filter(|ticket| peer == 0 || peer == ticket.place.thread.uid);
        let ticket = ticket.ok_or("the ticket is not valid: another program's, used, or too old")?;
        // The kernel need not remember it any more; where it knows nothing, nothing is lost.
        let _ = self.notifier.name(node(ticket.place.inode), proof_name(&ticket.proof).as_bytes());
        Ok(ticket)
    }
}

/// Acts that the kernel has let a program do at the places of a request, as far as they are needed there.
pub(super) fn acts(request: &Request, tickets: &[(Ticket, Pin<'_>)]) -> Acts {
    tickets.iter().enumerate().fold(Acts::NONE, |acts, (at, (ticket, _))| {
        let needs = Needs::of(request.verb, at, request.flags);
        acts.and(ticket.acts.only(needs.all.and(needs.some)))
    })
}

/// Refuses a place in which, or below which, other mounts lie: there the kernel's own calls come to other files. What is
/// about all of the volume needs its root directory instead.
fn must_be_uncovered(
    volume: &Volume,
    (request, needs): (&Request, Needs),
    ticket: &Ticket,
    (place, directory): (&Place, &OwnedFd),
) -> Result<(), Refusal> {
    let inode = ticket.place.inode;
    if request.verb.is_about_volume(request.flags) {
        let is_root = inode == InodeNumber::ROOT && place.name.is_none();
        return if is_root { Ok(()) } else { Err("is not the root directory of the mount".into()) };
    }
    let number = views::mount_of(directory)?;
    let spot = Spot { directory: inode, name: place.name.as_ref() };
    let views = ticket.place.views.as_ref().map_err(String::clone)?;
    let covered = views.covered(volume, (number, needs.removes()), spot)?;
    let Some(mount) = covered else { return Ok(()) };
    let error = match request.verb {
        Verb::Remove | Verb::Put => Errno::BUSY,
        _ => Errno::XDEV,
    };
    Err(Refusal::from(error).at(format!("another mount lies on {}", views::shown(mount))))
}

/// The file system and the number of a file, as the kernel knows them without asking the file's server.
fn known(file: &OwnedFd) -> Result<(u64, u64), String> {
    let facts = path::parts_of(file, StatxFlags::INO).map_err(|error| error.to_string())?;
    Ok((rustix::fs::makedev(facts.stx_dev_major, facts.stx_dev_minor), facts.stx_ino))
}

/// Returns true if the view of the mount through which a program has a directory open is for reading only. That it is this
/// directory is known without asking another server.
fn is_read_only(directory: &OwnedFd, device: u64, inode: InodeNumber) -> Result<bool, String> {
    let (found, number) = known(directory)?;
    // Of a root that nobody has looked at yet, the kernel knows its own number only, which is no directory's of a volume.
    let is_same = number == u64::from(inode.get()) || number == node(inode);
    if found != device || !is_same {
        return Err("the directory is not that of the ticket".into());
    }
    refuses_changes(directory).map_err(|error| format!("the directory: {error}"))
}

/// Returns true if a view of a mount is for reading only. No server is asked: a thread that waits for its own server keeps it from
/// ending where it is killed, and waits forever. So this is no `statfs`, but a change that can't be: the kernel looks at
/// the view, and then finds that the bytes are no access control list (since Linux 6.2; before, the server says so).
fn refuses_changes(directory: &OwnedFd) -> rustix::io::Result<bool> {
    let no_list = [0; 4];
    match rustix::fs::fsetxattr(directory, c"system.posix_acl_access", &no_list, XattrFlags::empty()) {
        Err(Errno::ROFS) => Ok(true),
        Err(error @ Errno::BADF) => Err(error),
        _ => Ok(false),
    }
}

/// The number by which the kernel knows an inode.
pub(super) fn node(number: InodeNumber) -> u64 {
    if number == InodeNumber::ROOT { fuse::ROOT } else { u64::from(number.get()) }
}
