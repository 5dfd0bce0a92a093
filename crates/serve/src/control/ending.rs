//! Those who wait for the end of a mount, and what they hear of it.
//!
//! Owns: the connections that outlive the channel, since a volume is closed after its last request. Excludes the closing.

use std::sync::{Mutex, MutexGuard};

use super::open::Entry;
use super::protocol::Reply;
use super::seqpacket::Socket;
use crate::bulk::Done;
use crate::refusal::Refusal;
use platfs_open::locks::locked;
use rustix::io::Errno;

/// Programs that wait at most.
const WAITING: usize = 64;

/// The programs that wait for the end of a mount.
#[derive(Default)]
pub struct Ending(Mutex<Vec<Socket>>);

impl Ending {
    fn waiting(&self) -> MutexGuard<'_, Vec<Socket>> {
        locked(&self.0)
    }

    /// Has a program hear of the end; it learns now that it will. The place of its connection among those that work is
    /// given up before: the program may unmount as soon as it is answered, and those are shut then.
    pub(super) fn wait(&self, entry: Entry, socket: Socket) -> Result<(), String> {
        let mut waiting = self.waiting();
        if waiting.len() >= WAITING {
            waiting.retain(|other| !other.is_called_off());
        }
        if waiting.len() >= WAITING {
            return Err(format!("{WAITING} programs wait for the end of this mount already"));
        }
        drop(entry);
        socket.try_send(&Reply::Progress(Done::default()).encode());
        waiting.push(socket);
        Ok(())
    }

    /// Says that the mount is gone, and the volume is being closed.
    pub fn begin(&self) {
        let message = Reply::Progress(Done::default()).encode();
        self.waiting().iter().for_each(|socket| socket.try_send(&message));
    }

    /// Says what became of the volume. The connections end with this process: then its locks are free, too.
    pub fn finish(&self, ended: Result<(), String>) {
        let reply = match ended {
            Ok(()) => Reply::Finished(Done::default(), Vec::new()),
            Err(why) => Reply::Failed(Done::default(), Refusal::new(Errno::IO, why)),
        };
        let message = reply.encode();
        self.waiting().drain(..).for_each(|socket| {
            socket.try_send(&message);
            std::mem::forget(socket);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::control::open::Open;

    /// Unmounts as soon as the server has answered, many times: what follows is heard each time.
    #[test]
    fn a_program_that_unmounts_at_once_hears_of_the_end() {
        let name = format!("plat-test-ending-{}", std::process::id());
        let listening = Socket::listen(name.as_bytes()).unwrap();
        for round in 0..500 {
            let (open, ending) = (Arc::new(Open::default()), Ending::default());
            let program = Socket::connect(name.as_bytes()).unwrap();
            let socket = listening.accept().unwrap();
            let entry = open.enter(0, socket.copy().unwrap()).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| ending.wait(entry, socket).unwrap());
                assert!(program.receive().unwrap().is_some());
                open.end(Duration::ZERO);
            });
            ending.begin();
            assert!(program.receive().unwrap().is_some(), "round {round}: shut with those that work");
        }
    }
}
