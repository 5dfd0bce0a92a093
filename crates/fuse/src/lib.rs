//! Serving a file system to the Linux kernel through FUSE.
//!
//! Owns: the conversation with the kernel (mounting, requests, replies, threads, unmounting). Excludes
//! what is served: that is behind [`Service`], and nothing here knows of volumes or images.
//!
//! A transport carries requests to a [`Service`] and its answers back. The trait is narrow on purpose:
//! calls return values, so a transport can be replaced without touching what is served.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![deny(unsafe_code)]

// Examples and tests share a file system in memory, which names the crate as its users do.
#[cfg(test)]
extern crate self as fuse;

mod ask;
mod attach;
mod by_device;
mod by_ring;
mod class;
mod dispatch;
mod flush_pages;
mod idle_scheduling;
mod notify;
mod server_threads;
mod service;
mod serving;
mod session;
#[cfg(test)]
mod tests;
mod wire;

pub use ask::{ask, exchange};
pub use attach::{GiveWay, InProcess, Mounter, Options, Transport, mount_point, unmount};
pub use notify::Notifier;
pub use rustix::io::Errno;
pub use server_threads::{Scheduled, Scheduling};
pub use service::{
    Access, Attributes, Cached, Caller, Entry, FileType, FlushPages, Kind, Listed, NewNode, Opened, ROOT,
    ReadFlags, Replace, Result, Seek, Service, SetAttr, SetTime, Statistics, Time, WriteFlags, WritePos,
};
pub use serving::CatchUp;
pub use session::Session;
#[doc(hidden)]
pub use wire::decode_any;
