//! PostgreSQL: a cluster of its own on the volume, reached by a socket outside of it.

use super::{Database, PATIENCE, text};
use crate::support::mounted::Mounted;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::scratch::Scratch;
use testkit::{fsck, tool};

/// More rows than any round waits for.
const ROWS: u64 = 20_000;
/// The user that runs the server, which refuses to run as root. It is the user `nobody` on every system we know.
const USER: u32 = 65_534;

/// A server and a client that inserts.
pub struct Postgresql {
    server: Server,
    client: Child,
    script: Option<std::thread::JoinHandle<()>>,
}

/// A running server.
struct Server {
    child: Child,
    sockets: Scratch,
}

/// Skips with a message and says `false` where it is not installed.
pub fn is_there(test: &str) -> bool {
    let all = ["mke2fs", "e2fsck"].iter().all(|name| tool::find(name).is_some());
    let own = ["initdb", "pg_checksums", "postgres", "psql"].iter().all(|name| program(name).is_some());
    if !(all && own) {
        tool::skip(test, "needs mke2fs, e2fsck and PostgreSQL (initdb, pg_checksums, postgres, psql)");
    }
    all && own
}

/// A program of PostgreSQL: the newest of those that Debian keeps by version, else that of the path.
fn program(name: &str) -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin").join(name)).collect();
    found.sort();
    found.into_iter().rev().find(|path| path.is_file()).or_else(|| tool::find(name))
}

fn command(name: &str) -> Command {
    let mut command = Command::new(program(name).unwrap());
    command.uid(USER).gid(USER).env("LC_ALL", "C").current_dir("/").stdin(Stdio::null());
    command
}

fn data(root: &Path) -> PathBuf {
    root.join("cluster")
}

impl Server {
    fn start(root: &Path) -> Self {
        Self::start_with(root, &[])
    }

    fn start_with(root: &Path, settings: &[&str]) -> Self {
        let sockets = Scratch::new("sockets");
        fs::set_permissions(sockets.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let mut command = command("postgres");
        command.arg("-D").arg(data(root)).args(["-c", "listen_addresses=", "-c"]);
        command.arg(format!("unix_socket_directories={}", sockets.path().display()));
        settings.iter().for_each(|setting| _ = command.args(["-c", setting]));
        let log = fs::File::create(sockets.join("log")).unwrap();
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let mut server = Server { child, sockets };
        let begun = Instant::now();
        while !server.psql().args(["-c", "SELECT 1"]).output().unwrap().status.success() {
            let has_ended = server.child.try_wait().unwrap().is_some();
            assert!(
                !has_ended && begun.elapsed() < PATIENCE,
                "the server does not answer:\n{}",
                server.said()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        server
    }

    fn psql(&self) -> Command {
        let mut command = command("psql");
        command
            .arg("-h")
            .arg(self.sockets.path())
            .args(["-U", "owner", "-d", "postgres", "-X", "-q", "-A", "-t"]);
        command.args(["-v", "ON_ERROR_STOP=1"]);
        command
    }

    /// Returns the log.
    fn said(&self) -> String {
        fs::read_to_string(self.sockets.join("log")).unwrap_or_default()
    }

    /// Its process and those that it began.
    fn processes(&self) -> Vec<Pid> {
        let own = self.child.id();
        let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|word| word.parse().ok());
        std::iter::once(own.cast_signed()).chain(children).filter_map(Pid::from_raw).collect()
    }

    fn stop(mut self) {
        // Fast shutdown.
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the server does not end well: {}", self.said());
    }
}

/// Makes a cluster, with its log of what will be written in a place of its own if there is one.
fn make(root: &Path, log: Option<&Path>) {
    for place in [Some(&*data(root)), log].into_iter().flatten() {
        fs::create_dir(place).unwrap();
        chown(place, Some(USER), Some(USER)).unwrap();
    }
    let mut make = command("initdb");
    make.args(["-k", "-A", "trust", "-U", "owner", "-E", "UTF8", "-D"]).arg(data(root));
    if let Some(log) = log {
        make.arg("-X").arg(log);
    }
    tool::run(&mut make);
}

/// Fills the volume of a cluster, whose log of what will be written lies elsewhere, and gives it room again.
pub fn on_a_volume_that_fills(mount_options: &str) {
    const ROWS: u64 = 4000;
    println!("{mount_options}");
    let scratch = Scratch::new("full");
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let image = scratch.join("disk.img");
    tool::run(tool::command("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&image).arg("160M"));
    let mounted = Mounted::new(&image, &["-o", mount_options]).unwrap();
    let root = mounted.path();
    make(root, Some(&scratch.join("log")));
    let spare = fs::File::create(root.join("spare")).unwrap();
    fallocate(&spare, FallocateFlags::empty(), 0, 40 << 20).unwrap();
    let start = || Server::start_with(root, &["max_wal_size=2GB"]);
    let mut server = start();
    let ask = |server: &Server, statement: &str| server.psql().args(["-c", statement]).output().unwrap();
    let count = |server: &Server| {
        let said = ask(server, "SELECT count(*) FROM row WHERE body = repeat(md5(id::text), 40)");
        String::from_utf8_lossy(&said.stdout).trim().parse::<u64>().unwrap()
    };
    assert!(ask(&server, "CREATE TABLE row(id INTEGER PRIMARY KEY, body TEXT)").status.success());
    let insert = |server: &Server, from: u64| {
        let numbers = format!("generate_series({from}, {})", from + ROWS - 1);
        ask(server, &format!("INSERT INTO row SELECT g, repeat(md5(g::text), 40) FROM {numbers} g"))
    };
    let mut committed = 0;
    let refused = loop {
        let done = insert(&server, committed + 1);
        if !done.status.success() {
            break String::from_utf8_lossy(&done.stderr).into_owned();
        }
        committed += ROWS;
        assert!(committed < 100 * ROWS, "never full");
    };
    assert!(refused.contains("No space left"), "{refused}");
    // No checkpoint: that makes a file, and without room for it PostgreSQL ends itself.
    assert_eq!(count(&server), committed);
    assert!(!server.said().contains("PANIC"), "{}", server.said());
    drop(spare);
    fs::remove_file(root.join("spare")).unwrap();
    assert!(ask(&server, "CHECKPOINT").status.success(), "{}", server.said());
    let done = insert(&server, committed + 1);
    assert!(done.status.success(), "there is room again: {done:?}");
    server.stop();
    server = start();
    assert_eq!(count(&server), committed + ROWS);
    server.stop();
    tool::run(command("pg_checksums").arg("-c").arg("-D").arg(data(root)));
    mounted.unmount();
    fsck::assert_clean(&image);
}

impl Database for Postgresql {
    fn make(root: &Path, _seed: u64) {
        make(root, None);
        let server = Server::start(root);
        let schema = "CREATE TABLE row(id INTEGER PRIMARY KEY, body TEXT); CREATE INDEX bodies ON row(body);";
        tool::run(server.psql().args(["-c", schema]));
        server.stop();
    }

    fn begin(root: &Path, _seed: u64) -> Self {
        let server = Server::start(root);
        let mut script = String::new();
        for row in 1..=ROWS {
            // A message goes to standard error, which is not buffered.
            writeln!(script, "INSERT INTO row VALUES({row}, {});\n\\warn {row}", text(&row.to_string()))
                .unwrap();
        }
        let mut command = server.psql();
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut client = command.spawn().unwrap();
        let mut input = client.stdin.take().unwrap();
        let script = std::thread::spawn(move || {
            // It ends when the client does.
            let _ = input.write_all(script.as_bytes());
        });
        Postgresql { server, client, script: Some(script) }
    }

    fn committed(&mut self) -> Box<dyn Read + Send> {
        Box::new(self.client.stderr.take().unwrap())
    }

    fn kill(mut self) {
        let processes = self.server.processes();
        for process in &processes {
            // One that has ended by itself is as good.
            let _ = kill_process(*process, Signal::KILL);
        }
        let _ = self.server.child.wait();
        let _ = self.client.kill();
        let _ = self.client.wait();
        self.script.take().unwrap().join().unwrap();
        let begun = Instant::now();
        let is_alive = |process: &Pid| Path::new(&format!("/proc/{}", process.as_raw_pid())).exists();
        while processes.iter().any(is_alive) {
            assert!(begun.elapsed() < PATIENCE, "a process of the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn judge(root: &Path, committed: u64) {
        let server = Server::start(root);
        let ask = |question: &str| {
            let output = tool::run(server.psql().args(["-c", question]));
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        };
        let rows = ask("SELECT count(*), max(id) FROM row");
        let one_more = committed + 1;
        let expected = [committed, one_more].map(|rows| format!("{rows}|{rows}"));
        assert!(expected.contains(&rows), "{committed} rows were committed: {rows}");
        let wrong = format!("SELECT count(*) FROM row WHERE body <> {}", text("id"));
        assert_eq!(ask(&wrong), "0");
        // All of the table by its index, too.
        ask("REINDEX TABLE row");
        let by_index = "SET enable_seqscan = off; SELECT count(*) FROM row WHERE body >= ''";
        assert!(expected.iter().any(|all| all.starts_with(&format!("{}|", ask(by_index)))));
        server.stop();
    }
}
