//! The floor under a mount: a server that keeps all in memory and asks of the kernel what `plat mount` asks, so that the
//! same work makes the same requests.
//!
//! `cargo run --release -p platfs-fuse --example floor -- [-o OPTION,...] DIRECTORY` serves until it is unmounted, and
//! then prints how many requests came and how much processor time they took. Options are named as those of `plat mount`:
//! `transport=`, `giveway=`, `noxattr`, `nowriteback_cache`. Files are kept in memory with their contents.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement")]

#[path = "../src/tests/memory/mod.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "shared with the tests")]
mod memory;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fuse::{GiveWay, Options, Session, Transport};
use memory::Memory;

/// Threads and priority of `plat mount`.
const THREADS: usize = 16;
const NICE: i32 = -15;

/// As root mounts a volume for writing without `allow_other`.
fn options() -> Options {
    Options {
        source: "floor".into(),
        subtype: "floor".into(),
        read_only: false,
        allow_other: false,
        suid: true,
        dev: true,
        exec: true,
        acl: false,
        own_permissions: true,
        time_unit: 1,
        writeback: true,
        transport: Transport::Auto,
        give_way: GiveWay::Auto,
        threads: THREADS,
    }
}

fn apply(word: &str, options: &mut Options, memory: &mut Memory) -> Result<(), String> {
    match word {
        "" => {}
        "noxattr" => memory.without_xattr = true,
        "nowriteback_cache" => options.writeback = false,
        "transport=uring" => options.transport = Transport::Ring,
        "transport=device" => options.transport = Transport::Device,
        "giveway=never" => options.give_way = GiveWay::Never,
        "giveway=always" => options.give_way = GiveWay::Always,
        word => return Err(format!("option `{word}` is not known here")),
    }
    Ok(())
}

/// Seconds that this process had a processor.
fn processor_seconds() -> Option<f64> {
    const TICKS_A_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut words = stat.rsplit_once(") ")?.1.split_whitespace().skip(11);
    let (user, system) = (words.next()?.parse::<f64>().ok()?, words.next()?.parse::<f64>().ok()?);
    Some((user + system) / TICKS_A_SECOND)
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut options, mut memory) = (options(), Memory::default());
    memory.opens = true;
    let mut directory = None;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "-o" {
            let list = words.next().ok_or("-o without options")?;
            list.split(',').try_for_each(|word| apply(word, &mut options, &mut memory))?;
        } else {
            directory = Some(word);
        }
    }
    let directory = directory.ok_or("usage: floor [-o OPTION,...] DIRECTORY")?;
    // It is only slower without.
    let _ = rustix::process::nice(NICE);
    let memory = Arc::new(memory);
    let session = Session::start(Arc::clone(&memory) as Arc<_>, Path::new(&directory), &options)?;
    session.wait()?;
    let requests = memory.requests.load(Ordering::Relaxed);
    println!("{requests} requests, {:.2} s of processor time", processor_seconds().unwrap_or_default());
    Ok(())
}
