//! SQLite in its shell, with a rollback journal or a log of what will be written.
//!
//! With `synchronous=FULL` it does not sync the directory after it removed a journal, which is its commit; so the last
//! transaction may be gone, by its own documentation. `EXTRA` does.

use super::{Database, text};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use testkit::tool;

/// Journals of SQLite.
const JOURNALS: [&str; 4] = ["DELETE", "WAL", "TRUNCATE", "PERSIST"];
/// More rows than any round waits for.
const ROWS: u64 = 20_000;

/// A shell that inserts.
pub struct Sqlite {
    child: Child,
    script: Option<std::thread::JoinHandle<()>>,
}

fn shell(root: &Path) -> Command {
    let mut command = tool::command("sqlite3");
    command.args(["-batch", "-bail"]).arg(root.join("data.db"));
    command
}

fn settings(seed: u64) -> String {
    let journal = JOURNALS[usize::try_from(seed / 5).unwrap() % JOURNALS.len()];
    format!("PRAGMA journal_mode={journal}; PRAGMA synchronous=EXTRA;")
}

impl Database for Sqlite {
    fn make(root: &Path, seed: u64) {
        let schema = "CREATE TABLE row(id INTEGER PRIMARY KEY, body TEXT); CREATE INDEX bodies ON row(body);";
        tool::run(shell(root).arg(format!("{} {schema}", settings(seed))));
    }

    fn begin(root: &Path, seed: u64) -> Self {
        // Standard error is not buffered.
        let mut script = format!("{}\n.output stderr\n", settings(seed));
        for row in 1..=ROWS {
            let text = text(&row.to_string());
            writeln!(script, "INSERT INTO row VALUES({row}, {text});\nSELECT {row};").unwrap();
        }
        let mut child =
            shell(root).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let script = std::thread::spawn(move || {
            // It ends when the shell is killed.
            let _ = input.write_all(script.as_bytes());
        });
        Sqlite { child, script: Some(script) }
    }

    fn committed(&mut self) -> Box<dyn Read + Send> {
        Box::new(self.child.stderr.take().unwrap())
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.script.take().unwrap().join().unwrap();
    }

    fn judge(root: &Path, committed: u64) {
        let wrong = format!("SELECT count(*) FROM row WHERE body <> {}", text("id"));
        let questions = format!("PRAGMA integrity_check; SELECT count(*), max(id) FROM row; {wrong};");
        let output = tool::run(shell(root).arg(questions));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let one_more = committed + 1;
        let expected = [committed, one_more].map(|rows| format!("ok\n{rows}|{rows}\n0\n"));
        assert!(expected.contains(&said), "{committed} rows were committed: {said}");
    }
}
