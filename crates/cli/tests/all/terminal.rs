//! Commands on a terminal, as a person runs them: nothing hangs, the screen shows how far work is while it lasts, and is
//! clean behind it.
//!
//! A command is as slow as the disk that its image lies on ([`slow`]); the screen is a terminal emulator's ([`screen`]);
//! [`rows`] has all commands. `screens.txt` holds what is on the screen; `PLATFS_UPDATE=1` writes it.

#![cfg(target_os = "linux")]
mod rows;
mod screen;
mod slow;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::support::mounted::{have_fuse, unmount_with};
use crate::support::{plat, succeed};
use rows::{ROWS, Row};
use rustix::process::Signal;
use screen::Terminal;
use slow::Slow;
use testkit::scratch::Scratch;
use testkit::tool;

const INTERRUPT: &[u8] = b"\x03";
const SUSPEND: &[u8] = b"\x1a";
/// Commands that are run at once.
const AT_ONCE: usize = 6;
/// Columns of a terminal, and of one that was made narrow.
const WIDE: u16 = 80;
const NARROW: u16 = 40;
/// Longer than a command may take before it shows something.
const A_WHILE: Duration = Duration::from_millis(1200);

fn have(test: &str) -> bool {
    have_fuse(test) && tool::have_tools(test, &["setsid", "bash"])
}

/// A directory with a tree, an image and an archive of it, and what of these lies on a slow disk.
struct Place {
    slow: Option<Slow>,
    is_mounted: bool,
    scratch: Scratch,
}

impl Place {
    fn new(kind: rows::Slow) -> Self {
        let mut place = Place { slow: None, is_mounted: false, scratch: Scratch::new("terminal") };
        let tree = place.scratch.join("tree");
        for number in 0..20_u8 {
            let below = tree.join(format!("d{}", number % 2));
            fs::create_dir_all(&below).unwrap();
            fs::write(below.join(format!("f{number}")), vec![number; 20_000]).unwrap();
        }
        fs::write(tree.join("text"), "some text\n").unwrap();
        fs::create_dir(place.scratch.join("store")).unwrap();
        fs::create_dir(place.scratch.join("m")).unwrap();
        succeed(&mut place.plat("build -q --reproducible --size 8M tree fast.img"));
        succeed(&mut place.plat("export fast.img fast.tar"));
        match kind {
            rows::Slow::Archive => {
                succeed(&mut place.plat("export fast.img slow.tar"));
                place.slow("slow.tar");
            }
            rows::Slow::Image | rows::Slow::Mount | rows::Slow::Serves => {
                fs::copy(place.scratch.join("fast.img"), place.scratch.join("slow.img")).unwrap();
                place.slow("slow.img");
            }
            rows::Slow::Store => {
                fs::create_dir(place.scratch.join("objects")).unwrap();
                succeed(&mut place.plat("push fast.img file://SCRATCH/objects#kept"));
                succeed(&mut place.plat("build -q --size 64M objects slow.img"));
                place.slow("slow.img");
            }
            rows::Slow::Nothing => {}
        }
        if matches!(kind, rows::Slow::Mount | rows::Slow::Store) {
            succeed(&mut place.plat("mount disk.img m"));
            place.is_mounted = true;
        }
        if kind == rows::Slow::Mount {
            fs::write(place.scratch.join("m/dirty"), [7; 100_000]).unwrap();
            // The kernel asks for this name before a command has begun.
            fs::metadata(place.scratch.join("m/d0")).unwrap();
        }
        place
    }

    fn slow(&mut self, file: &str) {
        self.slow = Some(Slow::new(&self.scratch.join(file), &self.scratch.join("slow")));
        // What commands put beside the image is not on the disk.
        std::os::unix::fs::symlink("slow/disk.img", self.scratch.join("disk.img")).unwrap();
    }

    fn disk(&self) -> &Slow {
        self.slow.as_ref().unwrap()
    }

    /// The command with these words, in the directory.
    fn plat(&self, words: &str) -> Command {
        let mut command = plat(&[]);
        let scratch = self.scratch.path().to_str().unwrap();
        let words = words.split_whitespace().map(|word| word.replace("STORE", "file://SCRATCH/m"));
        let words = words.map(|word| word.replace("SCRATCH", scratch));
        command.args(words).current_dir(scratch);
        command
    }

    /// The names in the directory.
    fn names(&self) -> BTreeSet<String> {
        let names = fs::read_dir(self.scratch.path()).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(slow) = &self.slow {
            slow.release();
        }
        if self.is_mounted {
            let _ = tool::command("fusermount3").arg("-uz").arg(self.scratch.join("m")).output();
        }
    }
}

/// A text with the seconds that passed, and all that no two runs have in common, made equal.
fn without_time(text: &str) -> String {
    let words = text.trim_end().split(' ').collect::<Vec<_>>();
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let shown = words.iter().enumerate().map(|(place, word)| {
        let is_time = words.get(place + 1).is_some_and(|next| next.starts_with('s') && next.len() < 3);
        if is_time && is_number(word) { "N" } else { word }
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// Returns true if the last line of a screen shows how far a command is.
fn shows(text: &str, name: &str) -> bool {
    let last = text.lines().last().unwrap_or_default();
    last.starts_with(&format!("{name}: ")) && last.ends_with(" s")
}

impl Row {
    fn line(&self) -> String {
        format!("{} {}", self.name, self.words)
    }

    /// The command while its disk gives no answer, on a terminal that becomes narrow, to its end. The screens.
    fn to_its_end(&self, place: &Place) -> String {
        let line = self.line();
        if self.slow == rows::Slow::Nothing {
            let mut terminal = Terminal::run(&place.plat(&line), WIDE);
            terminal.wait();
            assert_eq!(terminal.cursor().1, 0, "{line}: {}", terminal.text());
            return String::new();
        }
        let disk = place.disk();
        disk.hold();
        let mut terminal = Terminal::run(&place.plat(&line), WIDE);
        let wide = without_time(&terminal.wait_for(&line, |text| shows(text, self.name)));
        assert!(!terminal.bytes().contains(&b'\n'), "{line}: more than one line: {}", terminal.text());
        terminal.resize(NARROW);
        let before = terminal.bytes().len();
        terminal.wait_for(&line, |_| terminal.bytes().len() > before);
        let narrow = without_time(&terminal.wait_for(&line, |text| shows(text, self.name)));
        terminal.resize(WIDE);
        disk.release();
        let status = terminal.wait();
        let end = terminal.text();
        assert!(status.success(), "{line}: {status}: {end}");
        assert!(!shows(&end, self.name) && terminal.cursor().1 == 0, "{line}: {end}");
        let end = if self.is_steady { end.trim_end() } else { "..." };
        format!("$ plat {line}\n{wide}\n{narrow}\n{end}\n")
    }

    /// The command is interrupted while its disk gives no answer.
    fn interrupted(&self, place: &Place) {
        let (line, disk) = (self.line(), place.disk());
        let (names, before) = (place.names(), fs::read(place.scratch.join("fast.img")).unwrap());
        disk.hold();
        let mut terminal = Terminal::run(&place.plat(&line), WIDE);
        terminal.wait_for(&line, |text| shows(text, self.name));
        terminal.press(INTERRUPT);
        terminal.wait_for(&line, |text| !shows(text, self.name) && !text.contains("^C"));
        disk.release();
        let (status, text) = (terminal.wait(), terminal.text());
        if self.name == "check" {
            assert_eq!((status.code(), text.trim()), (Some(32), "plat: check: stopped by SIGINT"), "{line}");
        } else {
            assert_eq!((status.signal(), text.trim()), (Some(Signal::INT.as_raw()), ""), "{line}");
        }
        assert_eq!(terminal.cursor().1, 0, "{line}");
        assert_eq!(place.names(), names, "{line}");
        assert!(fs::read(place.scratch.join("fast.img")).unwrap() == before, "{line}");
        if self.slow == rows::Slow::Image {
            let checked = place.plat("check -n disk.img").output().unwrap();
            assert!(checked.status.success(), "{line}: {}", String::from_utf8_lossy(&checked.stdout));
        }
    }

    fn run(&self) -> String {
        if self.slow != rows::Slow::Nothing {
            self.interrupted(&Place::new(self.slow));
        }
        self.to_its_end(&Place::new(self.slow))
    }
}

/// A new command needs a row.
#[test]
fn every_command_has_a_row() {
    let all =
        <plat_cli::commands::Command as clap::Subcommand>::augment_subcommands(clap::Command::new("plat"));
    let all: BTreeSet<_> = all.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    assert_eq!(ROWS.iter().map(|row| row.name.to_owned()).collect::<BTreeSet<_>>(), all);
}

#[test]
fn every_command_shows_that_it_lasts_and_leaves_a_clean_screen() {
    if !have("every_command_shows_that_it_lasts_and_leaves_a_clean_screen") {
        return;
    }
    let rows: Vec<_> = ROWS.iter().filter(|row| row.slow != rows::Slow::Serves).collect();
    let (next, screens) = (Mutex::new(rows.iter().enumerate()), Mutex::new(vec![String::new(); rows.len()]));
    let work = || {
        loop {
            let Some((place, row)) = next.lock().unwrap().next() else { return };
            let text = row.run();
            screens.lock().unwrap()[place] = text;
        }
    };
    thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(work))));
    let screens = screens.into_inner().unwrap().concat();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/terminal/screens.txt");
    if std::env::var_os("PLATFS_UPDATE").is_some() {
        fs::write(&golden, &screens).unwrap();
    }
    assert_eq!(screens, fs::read_to_string(golden).unwrap(), "PLATFS_UPDATE=1 writes them");
}

/// The thread that draws how far a command is once waited for the lock of standard error, which the command held, and
/// the command for the thread.
#[test]
fn work_on_a_mount_that_lasts_comes_to_its_end_on_a_terminal() {
    if !have("work_on_a_mount_that_lasts_comes_to_its_end_on_a_terminal") {
        return;
    }
    let place = Place::new(rows::Slow::Mount);
    for words in ["cp -r m/d0 m/copy", "rm -r m/copy", "snapshot m new.img"] {
        let mut terminal = {
            place.disk().hold();
            Terminal::run(&place.plat(words), WIDE)
        };
        terminal.wait_for("progress", |text| text.contains(" s"));
        place.disk().release();
        assert!(terminal.wait().success(), "{words}: {}", terminal.text());
    }
}

#[test]
fn there_is_no_line_where_it_would_be_in_the_way() {
    if !have("there_is_no_line_where_it_would_be_in_the_way") {
        return;
    }
    type Setting = fn(&mut Command) -> &mut Command;
    let cases: [(&str, Setting, bool); 5] = [
        ("NO_COLOR", |command| command.env("NO_COLOR", "1"), true),
        ("dumb", |command| command.env("TERM", "dumb"), false),
        ("no TERM", |command| command.env_remove("TERM"), false),
        ("standard error elsewhere", |command| command.stderr(Stdio::null()), false),
        // What reads it may be a pager.
        ("standard output to a pipe", |command| command.stdout(Stdio::piped()), false),
    ];
    let run = |(name, change, shown): (&str, Setting, bool)| {
        let place = Place::new(rows::Slow::Image);
        place.disk().hold();
        let mut terminal = Terminal::run_with(&place.plat("check -n disk.img"), WIDE, change);
        thread::sleep(A_WHILE);
        if shown {
            terminal.wait_for(name, |text| shows(text, "check"));
        }
        place.disk().release();
        assert!(terminal.wait().success(), "{name}");
        let bytes = String::from_utf8(terminal.bytes()).unwrap();
        assert_eq!(bytes.contains("\x1b[K"), shown, "{name}: {bytes:?}");
        assert!(!bytes.replace("\x1b[K", "").contains('\x1b'), "{name}: {bytes:?}");
    };
    thread::scope(|scope| cases.into_iter().for_each(|case| drop(scope.spawn(move || run(case)))));
}

#[test]
fn a_command_that_was_stopped_goes_on_in_front() {
    if !have("a_command_that_was_stopped_goes_on_in_front") {
        return;
    }
    let place = Place::new(rows::Slow::Nothing);
    succeed(&mut place.plat("export fast.img a.tar"));
    let pipe = place.scratch.join("pipe");
    tool::run(tool::command("mkfifo").arg(&pipe));
    let mut shell = Command::new("bash");
    shell.args(["--norc", "--noprofile", "-i"]).env("PS1", "shell> ").env("PLAT", env!("CARGO_BIN_EXE_plat"));
    shell.env_remove("HISTFILE").current_dir(place.scratch.path());
    let mut terminal = Terminal::run(&shell, WIDE);
    terminal.wait_for("prompt", |text| text.trim_end().ends_with("shell>"));
    terminal.press(b"$PLAT build --reproducible - new.img < pipe\n");
    let mut source = File::options().write(true).open(&pipe).unwrap();
    let first = terminal.wait_for("progress", |text| shows(text, "build"));
    assert!(first.lines().count() >= 2, "{first}");
    terminal.press(SUSPEND);
    let stopped =
        terminal.wait_for("shell", |text| text.contains("Stopped") && text.trim_end().ends_with("shell>"));
    assert!(!stopped.lines().any(|line| line.starts_with("build: ")), "{stopped}");
    // Nothing is drawn over the shell, stopped or behind it.
    terminal.press(b"bg\n");
    terminal
        .wait_for("shell", |text| text.contains("new.img < pipe &") && text.trim_end().ends_with("shell>"));
    thread::sleep(A_WHILE);
    assert!(!terminal.text().contains("build: "), "{}", terminal.text());
    terminal.press(b"fg\n");
    terminal.wait_for("progress", |text| shows(text, "build"));
    source.write_all(&fs::read(place.scratch.join("a.tar")).unwrap()).unwrap();
    drop(source);
    let end = terminal.wait_for("prompt", |text| text.trim_end().ends_with("shell>"));
    assert!(end.contains("new.img: ") && !end.lines().any(|line| line.starts_with("build: ")), "{end}");
    terminal.press(b"exit\n");
    terminal.wait();
}

#[test]
fn a_question_has_the_terminal_for_itself() {
    if !have("a_question_has_the_terminal_for_itself") {
        return;
    }
    let place = Place::new(rows::Slow::Nothing);
    // The count of free blocks in the superblock.
    let image = File::options().write(true).open(place.scratch.join("fast.img")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&image, &[1], 1024 + 12).unwrap();
    let begin = |keys: &[u8]| {
        let terminal = Terminal::run(&place.plat("check fast.img"), WIDE);
        let asked = terminal.wait_for("question", |text| text.trim_end().ends_with("[u]ndo it:"));
        thread::sleep(A_WHILE);
        assert_eq!(terminal.text(), asked);
        terminal.press(keys);
        terminal
    };
    let mut terminal = begin(INTERRUPT);
    assert_eq!(terminal.wait().code(), Some(32));
    assert!(terminal.text().ends_with("^C\nplat: check: stopped by SIGINT"), "{}", terminal.text());
    // The answers come at once: each question takes its own line.
    let mut terminal = begin(b"e\nn\nn\nn\nn\nn\nq\n");
    let status = terminal.wait();
    assert!(matches!(status.code(), Some(4 | 32)), "{status}: {}", terminal.text());
    let mut terminal = begin(b"y\n");
    assert_eq!(terminal.wait().code(), Some(1), "{}", terminal.text());
    succeed(&mut place.plat("check -n fast.img"));
}

#[test]
fn servers_end_with_the_terminal_or_leave_it() {
    if !have("servers_end_with_the_terminal_or_leave_it") {
        return;
    }
    let place = Place::new(rows::Slow::Nothing);
    let in_front = [("mount -f -v fast.img m", "mounted on"), ("serve --nbd socket fast.img", "served on")];
    for (line, ready) in in_front {
        let mut terminal = Terminal::run(&place.plat(line), WIDE);
        terminal.wait_for(line, |text| text.contains(ready));
        thread::sleep(A_WHILE);
        assert!(!terminal.bytes().contains(&0x1b), "{line}: {}", terminal.text());
        terminal.press(INTERRUPT);
        assert!(terminal.wait().success(), "{line}: {}", terminal.text());
        assert!(!place.scratch.join("socket").exists() && !place.scratch.join("m/text").exists(), "{line}");
    }
    // One in the background has left the terminal, whose end and keys are nothing to it.
    let mut terminal = Terminal::run(&place.plat("mount fast.img m"), WIDE);
    assert!(terminal.wait().success(), "{}", terminal.text());
    drop(terminal);
    assert_eq!(fs::read(place.scratch.join("m/text")).unwrap(), b"some text\n");
    unmount_with(place.plat("umount m").env("LC_ALL", "C"));
}

/// A directory that is exported has another name until it is whole.
#[test]
fn an_interrupted_export_leaves_nothing() {
    if !have("an_interrupted_export_leaves_nothing") {
        return;
    }
    let place = Place::new(rows::Slow::Image);
    let names = place.names();
    place.disk().each(Duration::from_millis(50));
    let mut terminal = Terminal::run(&place.plat("export disk.img out/"), WIDE);
    terminal.wait_for("directory", |_| place.names().iter().any(|name| name.starts_with(".plat-")));
    terminal.press(INTERRUPT);
    assert_eq!(terminal.wait().signal(), Some(Signal::INT.as_raw()), "{}", terminal.text());
    assert_eq!(place.names(), names);
}

/// Signals that the parent has a command ignore stay ignored.
#[test]
fn ignored_signals_end_nothing() {
    if !have("ignored_signals_end_nothing") || !tool::have_tools("ignored_signals_end_nothing", &["nohup"]) {
        return;
    }
    let place = Place::new(rows::Slow::Image);
    place.disk().hold();
    let mut command = Command::new("nohup");
    command.arg(env!("CARGO_BIN_EXE_plat")).args(["check", "-n", "disk.img"]);
    let mut child = command.current_dir(place.scratch.path()).stdout(Stdio::null()).spawn().unwrap();
    thread::sleep(A_WHILE);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::HUP).unwrap();
    place.disk().release();
    assert!(child.wait().unwrap().success());
}
