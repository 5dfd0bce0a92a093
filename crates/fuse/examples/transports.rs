//! Measures transports: a file system in memory, the same work over each, in turns.
//!
//! `cargo run --release -p platfs-fuse --example transports -- [ROUNDS] [TRANSPORT...]` prints requests per
//! second and microseconds of processor time (of those who ask and those who serve) per request,
//! medians over the rounds. Small files are made, looked at, written (16 KiB) and removed by one thread
//! and by four; a file of 64 MiB is read in pieces of 1 MiB.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss, reason = "a measurement")]

#[path = "../src/tests/memory/mod.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod memory;

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use fuse::{GiveWay, Options, Session, Transport};
use memory::Memory;

const FILES: usize = 4000;
const PASSES: usize = 16;
const PIECE: usize = 1 << 20;
const LARGE: usize = 64 << 20;

/// Processor time of this process: those who ask, and those who serve.
fn own() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let words: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (words[11].parse::<f64>().unwrap() + words[12].parse::<f64>().unwrap()) / 100.0
}

fn small_files(root: &Path, thread: usize) {
    let data = vec![7; 16 << 10];
    for number in 0..FILES {
        let path = root.join(format!("{thread}-{number}"));
        fs::write(&path, &data).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 16 << 10);
        fs::remove_file(&path).unwrap();
    }
}

fn read_large(root: &Path) {
    let mut piece = vec![0; PIECE];
    for _ in 0..PASSES {
        let mut file = File::open(root.join("large")).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let mut total = 0;
        while let count @ 1.. = file.read(&mut piece).unwrap() {
            total += count;
        }
        assert_eq!(total, LARGE);
    }
}

/// Requests per second, and processor time of each in microseconds.
type Figures = [f64; 2];

fn measured(memory: &Memory, work: impl FnOnce()) -> Figures {
    let (requests, begun, before) = (memory.requests.load(Ordering::Relaxed), Instant::now(), own());
    work();
    let requests = (memory.requests.load(Ordering::Relaxed) - requests) as f64;
    [requests / begun.elapsed().as_secs_f64(), (own() - before) / requests * 1e6]
}

fn round(transport: Transport, writeback: bool) -> [Figures; 3] {
    let memory = Arc::new(Memory::default());
    let directory = std::env::temp_dir().join(format!("transports-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let options = Options {
        source: "memory".into(),
        subtype: "memory".into(),
        read_only: false,
        allow_other: false,
        suid: false,
        dev: false,
        exec: false,
        acl: false,
        own_permissions: false,
        time_unit: 1,
        writeback,
        transport,
        give_way: GiveWay::Auto,
        threads: 4,
    };
    let session = Session::start(Arc::clone(&memory) as Arc<_>, &directory, &options).unwrap();
    let one = measured(&memory, || small_files(&directory, 0));
    let four = measured(&memory, || {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let directory = &directory;
                scope.spawn(move || small_files(directory, thread));
            }
        });
    });
    fs::write(directory.join("large"), vec![1; LARGE]).unwrap();
    let large = measured(&memory, || read_large(&directory));
    fuse::unmount(&directory, false).unwrap();
    session.wait().unwrap();
    fs::remove_dir(&directory).unwrap();
    [one, four, large]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(3, |word| word.parse().unwrap());
    let named: Vec<String> = arguments.collect();
    let mut contenders = vec![("device", Transport::Device), ("ring", Transport::Ring)];
    if !named.is_empty() {
        contenders.retain(|(name, _)| named.iter().any(|wanted| wanted == name));
    }
    let mut all: Vec<Vec<[Figures; 3]>> = vec![Vec::new(); contenders.len()];
    for _ in 0..rounds {
        for ((_, transport), results) in contenders.iter().zip(&mut all) {
            results.push(round(*transport, false));
        }
    }
    println!("{:10} {:24} {:>10} {:>10}", "transport", "work", "requests/s", "us each");
    for ((name, _), results) in contenders.iter().zip(&all) {
        for (index, work) in
            ["small files, 1 thread", "small files, 4 threads", "1 MiB reads"].iter().enumerate()
        {
            let figure = |which: usize| median(results.iter().map(|result| result[index][which]).collect());
            println!("{name:10} {work:24} {:10.0} {:10.1}", figure(0), figure(1));
        }
    }
}
