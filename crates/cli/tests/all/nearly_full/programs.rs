//! Programs on a volume that fills and is given room again: SQLite and git. (PostgreSQL is in `databases`.)

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use testkit::tool;

use crate::nearly_full::{CACHED, Full, KINDS, LARGE, MIB, ready};

fn sqlite(root: &Path, script: &str) -> Output {
    tool::command("sqlite3").args(["-batch", "-bail"]).arg(root.join("data.db")).arg(script).output().unwrap()
}

fn number(output: &Output) -> u64 {
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn sqlite_goes_on_after_its_volume_was_full() {
    let test = "sqlite_goes_on_after_its_volume_was_full";
    if !ready(test) || !tool::have_tools(test, &["sqlite3"]) {
        return;
    }
    for (kind, journal) in KINDS.into_iter().zip(["DELETE", "WAL", "WAL"]) {
        let full = Full::new(test, kind, "0");
        let made =
            format!("PRAGMA journal_mode={journal}; CREATE TABLE row(id INTEGER PRIMARY KEY, body BLOB);");
        assert!(sqlite(full.root(), &made).status.success());
        full.leave(6 * MIB);
        let insert = "BEGIN; INSERT INTO row(body) SELECT randomblob(4000) FROM (WITH RECURSIVE n(i) AS
            (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT i FROM n); COMMIT;";
        let mut committed = 0;
        let refused = loop {
            let done = sqlite(full.root(), insert);
            if !done.status.success() {
                break String::from_utf8_lossy(&done.stderr).into_owned();
            }
            committed += 100;
            assert!(committed < 10_000, "never full");
        };
        // Its index of the log is written to before it knows of the lack.
        assert!(refused.contains("full") || refused.contains("I/O error"), "{kind:?}: {refused}");
        fs::remove_file(full.root().join("fill")).unwrap();
        assert!(sqlite(full.root(), insert).status.success(), "{kind:?}: there is room again");
        assert_eq!(number(&sqlite(full.root(), "SELECT count(*) FROM row;")), committed + 100, "{kind:?}");
        let said = sqlite(full.root(), "PRAGMA integrity_check;").stdout;
        assert_eq!(String::from_utf8_lossy(&said).trim(), "ok", "{kind:?}");
        full.judge(&crate::nearly_full::accepted::Accepted::default());
    }
}

fn git(root: &Path, arguments: &[&str]) -> Output {
    let mut command: Command = tool::command("git");
    let settings = ["-c", "user.name=n", "-c", "user.email=n@n", "-c", "gc.auto=0", "-c", "safe.directory=*"];
    command.arg("-C").arg(root.join("tree")).args(settings).args(arguments).output().unwrap()
}

#[test]
fn git_goes_on_after_its_volume_was_full() {
    let test = "git_goes_on_after_its_volume_was_full";
    if !ready(test) || !tool::have_tools(test, &["git"]) {
        return;
    }
    for kind in [CACHED, LARGE] {
        let full = Full::new(test, kind, "0");
        fs::create_dir(full.root().join("tree")).unwrap();
        assert!(git(full.root(), &["init", "-q"]).status.success());
        full.leave(5 * MIB);
        let mut commits = 0;
        let mut random = testkit::random::Random(3);
        loop {
            let name = full.root().join("tree").join(format!("file-{commits}"));
            let done = fs::write(&name, random.bytes(150_000)).is_ok()
                && git(full.root(), &["add", "-A"]).status.success()
                && git(full.root(), &["commit", "-q", "-m", "more"]).status.success();
            if !done {
                break;
            }
            commits += 1;
            assert!(commits < 200, "never full");
        }
        fs::remove_file(full.root().join("fill")).unwrap();
        let _ = fs::remove_file(full.root().join("tree/.git/index.lock"));
        for arguments in
            [&["add", "-A"][..], &["commit", "-q", "-m", "after"], &["fsck", "--full", "--strict"]]
        {
            let done = git(full.root(), arguments);
            assert!(done.status.success(), "{kind:?}: git {arguments:?}: {done:?}");
        }
        let count = git(full.root(), &["rev-list", "--count", "HEAD"]);
        assert!(number(&count) > commits, "{kind:?}: {commits} commits before");
        full.judge(&crate::nearly_full::accepted::Accepted::default());
    }
}
