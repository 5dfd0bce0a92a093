//! The control channel: a program that wants work on many files of a mount has the mount's server do it.
//!
//! Owns: the protocol, its two ends, and the tickets that lead from one to the other. Leaves to others: the work itself
//! (`bulk`), and what is served (`mount`).
//!
//! A program opens a directory of the mount and asks by `ioctl` for a ticket. So the kernel has checked that it may get
//! there, and says to the server which inode it is and who asks. There it shows by system calls what the kernel lets it
//! do. The answer names a socket. Over that the program sends
//! one request: what to do, with tickets and last names for places, and open files for what comes or goes in bulk.
//! Paths never pass: a server resolves no more than one name in a directory.

mod admission;
pub mod client;
mod ending;
mod needs;
mod open;
pub mod protocol;
pub mod proving;
mod resizing;
mod seqpacket;
mod served;
mod server;
mod tickets;
mod tuning;
mod views;

pub use ending::Ending;
pub use needs::Needs;
pub use served::Served;
pub use server::{Listener, Server};
pub use tickets::{Asked, Tickets};
pub use views::{Views, root_of};
