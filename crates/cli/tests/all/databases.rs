//! Databases that are killed together with the server of the mount they work on: what they called committed is there, and
//! they find nothing wrong with their files. And one on a volume that fills and is given room again.
//!
//! `PLATFS_SEED=N PLATFS_STEPS=1 cargo test -p platfs-cli --test all databases::NAME -- --ignored --nocapture` repeats one round.

#![cfg(target_os = "linux")]
mod postgresql;
mod sqlite;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::mounted::{Mounted, have_fuse};
use rustix::process::Signal;
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::{fsck, tool};

/// Longest that a database may take for what it is asked.
const PATIENCE: Duration = Duration::from_secs(120);

/// Kinds of volumes for mke2fs, and how they are mounted: those whose syncs are promises.
const KINDS: [(&str, &str); 5] = [
    ("-t ext4 -b 4096 -J size=4", "rw"),
    ("-t ext4 -b 1024 -J size=1", "rw,data=journal"),
    ("-t ext3 -b 1024 -J size=1", "rw,data=writeback"),
    ("-t ext4 -b 4096 -O ^has_journal", "rw,softdep"),
    ("-t ext4 -b 4096 -J size=4", "rw,normal"),
];

/// A database at work: which statements it has called committed, and its end.
trait Database {
    /// Makes it in a directory of the volume.
    fn make(root: &Path, seed: u64);
    /// Begins to insert rows, numbered from 1.
    fn begin(root: &Path, seed: u64) -> Self;
    /// Where the numbers of committed rows come, one a line.
    fn committed(&mut self) -> Box<dyn Read + Send>;
    /// Ends all its processes as a power cut would.
    fn kill(self);
    /// Opens what is there, which must be sound, and hold every row up to this one and at most one more.
    fn judge(root: &Path, committed: u64);
}

/// Works until some rows are committed, kills the database and the mount's server, and looks.
fn round<D: Database>(seed: u64, size: &str) {
    let (options, mount_options) = KINDS[usize::try_from(seed).unwrap() % KINDS.len()];
    println!("PLATFS_SEED={seed} PLATFS_STEPS=1 {options}, {mount_options}");
    let scratch = Scratch::new("database");
    let image = scratch.join("disk.img");
    tool::run(tool::command("mke2fs").args(["-q", "-F"]).args(options.split(' ')).arg(&image).arg(size));
    let options = format!("{mount_options},allow_other");
    let mut mounted = Mounted::new(&image, &["-o", &options]).unwrap();
    let root = mounted.path().to_owned();
    D::make(&root, seed);
    let mut database = D::begin(&root, seed);
    let wanted = 3 + Random(seed).below(120);
    let begun = Instant::now();
    let mut lines = BufReader::new(database.committed()).lines().map_while(Result::ok);
    let mut committed = 0;
    while committed < wanted {
        let line = lines.next().unwrap_or_else(|| panic!("it ended after row {committed} of {wanted}"));
        committed = line.trim().parse().unwrap_or_else(|_| panic!("after row {committed} it said {line:?}"));
        assert!(begun.elapsed() < PATIENCE, "{committed} of {wanted} rows in {PATIENCE:?}");
    }
    mounted.signal(Signal::KILL);
    database.kill();
    // What was on its way when it was killed was committed as well.
    committed = lines.filter_map(|line| line.trim().parse().ok()).last().unwrap_or(committed);
    mounted.wait();
    mounted.take_away();
    let again = Mounted::new(&image, &["-o", &options]).unwrap();
    D::judge(again.path(), committed);
    again.unmount();
    fsck::assert_clean(&image);
}

/// The text of a row, a function of its number, in SQL that both databases understand.
const TEXT: &str = "substr(replace('abcdefghij-0123456789-', '-', CAST(ROW * 7919 AS TEXT)), 1 + ROW % 7)";

fn text(row: &str) -> String {
    TEXT.replace("ROW", row)
}

/// Rounds with seeds from `PLATFS_SEED` on, as many as `PLATFS_STEPS` says.
fn rounds<D: Database>(first: u64, count: u64, size: &str) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number("PLATFS_SEED").unwrap_or(first);
    let count = number("PLATFS_STEPS").unwrap_or(count);
    for seed in first..first.saturating_add(count) {
        round::<D>(seed, size);
    }
}

#[test]
fn sqlite_keeps_what_it_committed() {
    let test = "sqlite_keeps_what_it_committed";
    if have_fuse(test) && tool::have_root(test) && tool::have_tools(test, &["mke2fs", "e2fsck", "sqlite3"]) {
        rounds::<sqlite::Sqlite>(0, 3, "64M");
    }
}

#[test]
#[ignore = "takes minutes"]
fn sqlite_many_times() {
    let test = "sqlite_many_times";
    if have_fuse(test) && tool::have_root(test) && tool::have_tools(test, &["mke2fs", "e2fsck", "sqlite3"]) {
        rounds::<sqlite::Sqlite>(100, 50, "64M");
    }
}

#[test]
fn postgresql_goes_on_after_its_volume_was_full() {
    let test = "postgresql_goes_on_after_its_volume_was_full";
    if have_fuse(test) && tool::have_root(test) && postgresql::is_there(test) {
        for options in ["rw,allow_other", "rw,allow_other,writeback_cache"] {
            postgresql::on_a_volume_that_fills(options);
        }
    }
}

#[test]
#[ignore = "takes minutes"]
fn postgresql_many_times() {
    let test = "postgresql_many_times";
    if have_fuse(test) && tool::have_root(test) && postgresql::is_there(test) {
        rounds::<postgresql::Postgresql>(100, 10, "600M");
    }
}
