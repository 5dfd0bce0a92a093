//! Tickets: who asked on which directory, and what that program has shown since, kept until the request comes that names
//! it.
//!
//! A proof counts only if the thread that asked gives it: another one may be less confined.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, OnceLock};

use fuse::Caller;
use ondisk::units::InodeNumber;
use platfs::rights::Powers;

use super::protocol::{Grant, PROOF, Token};
use super::views::Views;
use crate::bulk::{Act, Actor, Acts, is_owner_of_server};
use platfs_open::locks::locked;

/// Tickets that wait at most, and those of one user; when there are more, the oldest are void.
const WAITING: usize = 1024;
const OF_ONE_USER: usize = 64;

/// A place and who asked for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ticket {
    pub(super) place: Asked,
    /// The number in the name of its proof.
    pub(super) proof: Token,
    /// Acts that the kernel has let the program do there.
    pub(super) acts: Acts,
}

/// A directory for which a ticket is asked, and who asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The directory.
    pub inode: InodeNumber,
    /// Which use of that number it is.
    pub generation: u32,
    /// On whose behalf work will be done.
    pub actor: Actor,
    /// The thread, as the kernel names it.
    pub thread: Caller,
    /// The mounts that it sees, or why they are not known.
    pub views: Result<Views, String>,
}

impl Asked {
    /// Tells if the program may do what is about all of the volume and takes these capabilities in Linux. It goes by the
    /// user whom the kernel names: with `fakeroot` work is done on behalf of root for everyone.
    pub(super) fn keeps(&self, powers: Powers) -> bool {
        self.actor.credentials.powers.contains(powers) || is_owner_of_server(self.thread.uid)
    }
}

/// A ticket that waits.
struct Waiting {
    token: Token,
    number: u32,
    ticket: Ticket,
}

#[derive(Default)]
struct List {
    waiting: VecDeque<Waiting>,
    /// The number of the ticket that was issued last.
    last: u32,
}

/// The tickets of one mount.
#[derive(Default)]
pub struct Tickets {
    /// Where requests are awaited, and the number by which the kernel knows the file system.
    at: OnceLock<(Vec<u8>, u64)>,
    list: Mutex<List>,
}

fn random() -> Option<Token> {
    let mut token = Token::default();
    let count = rustix::rand::getrandom(&mut token[..], rustix::rand::GetRandomFlags::empty()).ok()?;
    (count == token.len()).then_some(token)
}

/// The number in the name of a proof.
fn number_of(name: &[u8]) -> Option<Token> {
    let digits = str::from_utf8(name.strip_prefix(PROOF.as_bytes())?).ok()?;
    let is_usual = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let number = u128::from_str_radix(digits, 16).ok()?;
    (is_usual && digits.len() == 32).then_some(number.to_be_bytes())
}

impl Tickets {
    fn list(&self) -> MutexGuard<'_, List> {
        locked(&self.list)
    }

    /// Notes where requests are awaited.
    pub(super) fn await_at(&self, address: &[u8], file_system: u64) {
        let _ = self.at.set((address.to_vec(), file_system));
    }

    /// The number by which the kernel knows the file system, where requests are awaited.
    #[must_use]
    pub fn file_system(&self) -> Option<u64> {
        self.at.get().map(|(_, number)| *number)
    }

    /// A ticket for a program that has a directory open; `None` where no requests are awaited.
    #[must_use]
    pub fn issue(&self, place: Asked) -> Option<Grant> {
        let (address, _) = self.at.get()?;
        let (token, proof) = (random()?, random()?);
        let mut list = self.list();
        let user = place.actor.credentials.uid;
        let is_of_user = |known: &Waiting| known.ticket.place.actor.credentials.uid == user;
        if list.waiting.iter().filter(|known| is_of_user(known)).count() >= OF_ONE_USER {
            let oldest = list.waiting.iter().position(is_of_user).unwrap_or_default();
            list.waiting.remove(oldest);
        } else if list.waiting.len() >= WAITING {
            list.waiting.pop_front();
        }
        list.last = list.last.wrapping_add(1);
        let (number, ticket) = (list.last, Ticket { place, proof, acts: Acts::NONE });
        list.waiting.push_back(Waiting { token, number, ticket });
        Some(Grant { token, proof, address: address.clone() })
    }

    /// The number of the ticket of which a thread looks up the proof by its name in a directory.
    #[must_use]
    pub fn proof(&self, directory: InodeNumber, name: &[u8], thread: Caller) -> Option<u32> {
        let proof = number_of(name)?;
        let list = self.list();
        let is_it = |known: &&Waiting| {
            let place = &known.ticket.place;
            known.ticket.proof == proof && place.inode == directory && place.thread == thread
        };
        list.waiting.iter().find(is_it).map(|known| known.number)
    }

    /// The thread that may show something for a ticket that waits.
    #[must_use]
    pub fn thread(&self, number: u32) -> Option<Caller> {
        let list = self.list();
        list.waiting.iter().find(|known| known.number == number).map(|known| known.ticket.place.thread)
    }

    /// Notes what the kernel has let a thread do; false if it is not the one of a ticket that waits.
    #[must_use]
    pub fn note(&self, number: u32, thread: Caller, act: Act) -> bool {
        let mut list = self.list();
        let is_it = |known: &&mut Waiting| known.number == number && known.ticket.place.thread == thread;
        let Some(known) = list.waiting.iter_mut().find(is_it) else { return false };
        known.ticket.acts = known.ticket.acts.and(Acts::of(&[act]));
        true
    }

    /// Takes a ticket; each can be used once.
    pub(super) fn redeem(&self, token: &Token) -> Option<Ticket> {
        let mut list = self.list();
        let at = list.waiting.iter().position(|known| known.token == *token)?;
        list.waiting.remove(at).map(|known| known.ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREAD: Caller = Caller { uid: 0, gid: 0, pid: 7 };

    fn asked(actor: Actor) -> Asked {
        let views = Ok(Views::default());
        Asked { inode: InodeNumber::ROOT, generation: 7, actor, thread: THREAD, views }
    }

    #[test]
    fn a_ticket_is_good_once_and_their_number_is_bounded() {
        let tickets = Tickets::default();
        let issue = || tickets.issue(asked(Actor::root()));
        assert!(issue().is_none(), "nobody waits for requests");
        tickets.await_at(b"here", 52);
        let first = issue().unwrap();
        assert_eq!(first.address, b"here");
        assert_eq!(tickets.redeem(&first.token).unwrap().place.generation, 7);
        assert_eq!(tickets.redeem(&first.token), None);
        assert_eq!(tickets.redeem(&[0; 16]), None);
        let old = issue().unwrap();
        let other = Actor { credentials: platfs::rights::Credentials::new(7, 7), umask: 0 };
        let others = tickets.issue(asked(other)).unwrap();
        let all: Vec<_> = (0..OF_ONE_USER).map(|_| issue().unwrap()).collect();
        assert_eq!(tickets.redeem(&old.token), None, "it is void");
        assert!(tickets.redeem(&others.token).is_some(), "one user's are not in the way of another's");
        assert!(all.iter().all(|grant| tickets.redeem(&grant.token).is_some()));
    }

    #[test]
    fn only_the_thread_that_asked_shows_something_and_as_long_as_its_ticket_waits() {
        let tickets = Tickets::default();
        tickets.await_at(b"here", 52);
        let grant = tickets.issue(asked(Actor::root())).unwrap();
        let (root, name) = (InodeNumber::ROOT, grant.proof_name());
        let number = tickets.proof(root, name.as_bytes(), THREAD).unwrap();
        let others = [Caller { pid: 8, ..THREAD }, Caller { uid: 1, ..THREAD }, Caller { gid: 1, ..THREAD }];
        for other in others {
            assert_eq!(tickets.proof(root, name.as_bytes(), other), None);
            assert!(!tickets.note(number, other, Act::RemoveFile));
        }
        assert_eq!(tickets.proof(InodeNumber::new(12).unwrap(), name.as_bytes(), THREAD), None);
        let wrong = [
            name.to_uppercase(),
            name[1..].to_owned(),
            format!("{name}0"),
            format!("{PROOF}+{}", &name[10..]),
        ];
        for wrong in wrong {
            assert_eq!(tickets.proof(root, wrong.as_bytes(), THREAD), None, "{wrong}");
        }
        assert!(
            !tickets.note(number + 1, THREAD, Act::List) && tickets.note(number, THREAD, Act::RemoveFile)
        );
        let ticket = tickets.redeem(&grant.token).unwrap();
        assert_eq!(ticket.acts, Acts::of(&[Act::RemoveFile]));
        assert_eq!(tickets.proof(root, name.as_bytes(), THREAD), None);
        assert!(!tickets.note(number, THREAD, Act::List) && tickets.thread(number).is_none());
    }
}
