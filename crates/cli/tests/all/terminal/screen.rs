//! A terminal as a person sees it: a pseudo-terminal, and a screen that what is written there makes.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Longest that anything may take: far beyond what a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(5);
/// Lines of each terminal.
const LINES: u16 = 12;

/// A program on a terminal of its own.
pub struct Terminal {
    master: File,
    seen: Arc<Mutex<Seen>>,
    reader: Option<JoinHandle<()>>,
    child: Child,
}

struct Seen {
    parser: vt100::Parser,
    bytes: Vec<u8>,
}

/// A terminal that is so many columns wide.
fn pair(columns: u16) -> (OwnedFd, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave =
        rustix::fs::open(Path::new(std::ffi::OsStr::from_bytes(name.to_bytes())), flags, Mode::empty());
    tcsetwinsize(&master, size(columns)).unwrap();
    (master, slave.unwrap())
}

fn size(columns: u16) -> Winsize {
    Winsize { ws_row: LINES, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Terminal {
    /// Runs a program with all three streams on a terminal.
    pub fn run(command: &Command, columns: u16) -> Self {
        Self::run_with(command, columns, |led| led)
    }

    /// Runs a command once `change` has led streams elsewhere.
    pub fn run_with(
        command: &Command,
        columns: u16,
        change: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Self {
        let (master, slave) = pair(columns);
        // A suite in the background of a shell ignores Ctrl-C, and would have its programs ignore it.
        let mut led = Command::new("env");
        led.args(["--default-signal", "setsid", "--ctty"])
            .arg(command.get_program())
            .args(command.get_args());
        led.env("TERM", "xterm").env_remove("NO_COLOR");
        if let Some(directory) = command.get_current_dir() {
            led.current_dir(directory);
        }
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => led.env(name, value),
                None => led.env_remove(name),
            };
        }
        let stream = || Stdio::from(slave.try_clone().unwrap());
        led.stdin(stream()).stdout(stream()).stderr(stream());
        change(&mut led);
        let child = led.spawn().unwrap();
        let parser = vt100::Parser::new(LINES, columns, 0);
        let seen = Arc::new(Mutex::new(Seen { parser, bytes: Vec::new() }));
        let master = File::from(master);
        let (mut from, to) = (master.try_clone().unwrap(), Arc::clone(&seen));
        let reader = thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Behind the last program that has it open, a terminal gives an error.
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                let mut seen = to.lock().unwrap();
                seen.parser.process(&buffer[..count]);
                seen.bytes.extend_from_slice(&buffer[..count]);
            }
        });
        Terminal { master, seen, reader: Some(reader), child }
    }

    /// Text of the screen, without blanks at the ends of lines and empty lines at the end.
    pub fn text(&self) -> String {
        self.seen.lock().unwrap().parser.screen().contents()
    }

    /// Line and column of the cursor.
    pub fn cursor(&self) -> (u16, u16) {
        self.seen.lock().unwrap().parser.screen().cursor_position()
    }

    /// All bytes that came.
    pub fn bytes(&self) -> Vec<u8> {
        self.seen.lock().unwrap().bytes.clone()
    }

    /// Waits until the screen is as wanted.
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let text = self.text();
            if wanted(&text) {
                return text;
            }
            assert!(begun.elapsed() < PATIENCE, "no {what} on the screen:\n{text}");
            thread::sleep(LOOK);
        }
    }

    /// Presses keys.
    pub fn press(&self, keys: &[u8]) {
        (&self.master).write_all(keys).unwrap();
    }

    /// Makes the window as wide as that.
    pub fn resize(&self, columns: u16) {
        self.seen.lock().unwrap().parser.screen_mut().set_size(LINES, columns);
        tcsetwinsize(&self.master, size(columns)).unwrap();
    }

    /// Waits until the program has ended and nobody has the terminal open.
    pub fn wait(&mut self) -> ExitStatus {
        let begun = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => thread::sleep(LOOK),
            }
            assert!(begun.elapsed() < PATIENCE, "the program does not end:\n{}", self.text());
        };
        while self.reader.as_ref().is_some_and(|reader| !reader.is_finished()) {
            assert!(begun.elapsed() < PATIENCE, "a program keeps the terminal:\n{}", self.text());
            thread::sleep(LOOK);
        }
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It ends with its next answer from the disk, which may have to wait for the end of this test: nobody waits for it.
        let _ = self.child.kill();
    }
}
