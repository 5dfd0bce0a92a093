//! Tickets: who asked on which directory, kept until the request comes that names it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, OnceLock};

use ondisk::units::InodeNumber;

use super::protocol::{Grant, Token};
use crate::bulk::Actor;
use crate::locks::locked;

/// Tickets that wait at most, and those of one user; when there are more, the oldest are void.
const WAITING: usize = 1024;
const OF_ONE_USER: usize = 64;

/// A place and who asked for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ticket {
    pub(super) inode: InodeNumber,
    pub(super) generation: u32,
    pub(super) actor: Actor,
}

/// The tickets of one mount.
#[derive(Default)]
pub struct Tickets {
    address: OnceLock<Vec<u8>>,
    waiting: Mutex<VecDeque<(Token, Ticket)>>,
}

impl Tickets {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<(Token, Ticket)>> {
        locked(&self.waiting)
    }

    /// Notes where requests are awaited.
    pub(super) fn await_at(&self, address: &[u8]) {
        let _ = self.address.set(address.to_vec());
    }

    /// A ticket for a program that has this inode open; `None` where no requests are awaited.
    #[must_use]
    pub fn issue(&self, inode: InodeNumber, generation: u32, actor: Actor) -> Option<Grant> {
        let address = self.address.get()?;
        let mut token = Token::default();
        rustix::rand::getrandom(&mut token[..], rustix::rand::GetRandomFlags::empty())
            .ok()
            .filter(|count| *count == token.len())?;
        let mut waiting = self.waiting();
        let user = actor.credentials.uid;
        let is_of_user = |(_, ticket): &(Token, Ticket)| ticket.actor.credentials.uid == user;
        if waiting.iter().filter(|known| is_of_user(known)).count() >= OF_ONE_USER {
            let oldest = waiting.iter().position(is_of_user).unwrap_or_default();
            waiting.remove(oldest);
        } else if waiting.len() >= WAITING {
            waiting.pop_front();
        }
        waiting.push_back((token, Ticket { inode, generation, actor }));
        Some(Grant { token, address: address.clone() })
    }

    /// Takes a ticket; each can be used once.
    pub(super) fn redeem(&self, token: &Token) -> Option<Ticket> {
        let mut waiting = self.waiting();
        let at = waiting.iter().position(|(known, _)| known == token)?;
        waiting.remove(at).map(|(_, ticket)| ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_once_and_their_number_is_bounded() {
        let tickets = Tickets::default();
        let root = InodeNumber::ROOT;
        assert!(tickets.issue(root, 0, Actor::root()).is_none(), "nobody waits for requests");
        tickets.await_at(b"here");
        let first = tickets.issue(root, 7, Actor::root()).unwrap();
        assert_eq!(first.address, b"here");
        assert_eq!(tickets.redeem(&first.token).unwrap().generation, 7);
        assert_eq!(tickets.redeem(&first.token), None);
        assert_eq!(tickets.redeem(&[0; 16]), None);
        let old = tickets.issue(root, 0, Actor::root()).unwrap();
        let other = Actor { credentials: platfs::rights::Credentials::of(7, 7), umask: 0 };
        let others = tickets.issue(root, 0, other).unwrap();
        let all: Vec<_> = (0..OF_ONE_USER).map(|_| tickets.issue(root, 0, Actor::root()).unwrap()).collect();
        assert_eq!(tickets.redeem(&old.token), None, "it is void");
        assert!(tickets.redeem(&others.token).is_some(), "one user's are not in the way of another's");
        assert!(all.iter().all(|grant| tickets.redeem(&grant.token).is_some()));
    }
}
