//! The connections that are served.
//!
//! Owns: their list, its bounds, and its end with the mount. Excludes what is said over them, and the connections that
//! wait for the end of a mount (`ending`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use super::seqpacket::Socket;
use platfs_open::locks::locked;

/// Requests that are worked on at once, and those of one user: nobody keeps others out.
const AT_ONCE: usize = 32;
const OF_ONE_USER: usize = 8;

/// A connection that is served.
struct Connection {
    number: u64,
    user: u32,
    socket: Socket,
}

/// All connections that are served.
#[derive(Default)]
pub(super) struct Open {
    list: Mutex<Vec<Connection>>,
    next: AtomicU64,
}

/// A place in the list, which ends with it.
pub(super) struct Entry {
    open: Arc<Open>,
    number: u64,
}

impl Open {
    fn list(&self) -> MutexGuard<'_, Vec<Connection>> {
        locked(&self.list)
    }

    /// Takes in a connection of a user.
    ///
    /// # Errors
    /// Too many are served.
    pub(super) fn enter(self: &Arc<Self>, user: u32, socket: Socket) -> Result<Entry, String> {
        let mut list = self.list();
        let of_user = list.iter().filter(|other| other.user == user).count();
        refuse_many(list.len(), of_user)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        list.push(Connection { number, user, socket });
        Ok(Entry { open: Arc::clone(self), number })
    }

    /// Shuts all, and waits that long for their work to end.
    pub(super) fn end(&self, most: Duration) {
        self.list().iter().for_each(|known| known.socket.shut());
        let begun = Instant::now();
        while !self.list().is_empty() && begun.elapsed() < most {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.open.list().retain(|other| other.number != self.number);
    }
}

/// Refuses one command more than may work at once.
fn refuse_many(open: usize, of_user: usize) -> Result<(), String> {
    let whose = match () {
        () if open >= AT_ONCE => format!("{AT_ONCE} commands work"),
        () if of_user >= OF_ONE_USER => format!("{OF_ONE_USER} commands of this user work"),
        () => return Ok(()),
    };
    Err(format!("{whose} on this mount already; try again when one has ended"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_which_limit_was_met() {
        assert_eq!(refuse_many(AT_ONCE - 1, OF_ONE_USER - 1), Ok(()));
        let said = |open, of_user| refuse_many(open, of_user).unwrap_err();
        assert!(said(AT_ONCE, 3).starts_with("32 commands work"), "{}", said(AT_ONCE, 3));
        assert!(said(9, OF_ONE_USER).starts_with("8 commands of this user"), "{}", said(9, OF_ONE_USER));
    }
}
