//! One side of the comparison: a mounted image, the cases run on it in a process of their own, and their answers.

use crate::posix::excuses::Excuse;
use crate::support::volumes::View;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::scratch::Scratch;
use testkit::tool;

/// Reference tools that cases use.
pub const TOOLS: &[&str] = &["mke2fs", "e2fsck", "setfacl", "getfacl", "chattr", "lsattr", "bash"];

/// Longest that all the cases may take on one side: they take seconds.
const PATIENCE: Duration = Duration::from_secs(180);

/// Lines by case.
pub type Answers = BTreeMap<String, Vec<String>>;

/// As whom the cases run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum As {
    /// Root, and users.
    Users,
    /// Root, and root for whom only the user of the file system is another.
    FileUsers,
    /// As `FileUsers`, and root has no capability that passes over permissions.
    Bounded,
}

/// Capabilities by which root may do what permissions forbid, taken away.
const WITHOUT: &str = "-dac_override,-dac_read_search,-fowner,-fsetid,-chown,-sys_admin";

/// Sequences that one worker runs.
const AT_ONCE: u64 = 50;

/// Runs random sequences and gathers their answers.
pub fn run_sequences(test: &str, side: &View, who: As, (first, count): (u64, u64)) -> Answers {
    let mut answers = Answers::new();
    for at in (first..first + count).step_by(usize::try_from(AT_ONCE).unwrap()) {
        let some = AT_ONCE.min(first + count - at);
        answers.extend(run_worker(test, side, who, &[(crate::posix::SEQUENCES, format!("{at} {some}"))]));
    }
    answers
}

/// Runs the cases and gathers their answers.
pub fn run_side(test: &str, side: &View, who: As) -> Answers {
    run_worker(test, side, who, &[])
}

fn run_worker(test: &str, side: &View, who: As, variables: &[(&str, String)]) -> Answers {
    let scratch = Scratch::new("answers");
    let file = scratch.join("answers");
    let program = std::env::current_exe().unwrap();
    let mut command = match who {
        As::Bounded => tool::command("setpriv"),
        _ => Command::new(&program),
    };
    if who == As::Bounded {
        command.arg(format!("--bounding-set={WITHOUT}")).arg(&program);
        // The answers go where others may write.
        std::fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .unwrap();
    }
    if who != As::Users {
        command.env(crate::posix::FILE_USERS, "1");
    }
    command.args(["posix::worker", "--exact", "--ignored", "--nocapture"]);
    command.envs(variables.iter().cloned());
    command.env(crate::posix::ROOT, side.path()).env(crate::posix::ANSWERS, &file);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            let answers = read(&file);
            assert!(status.success() && answers.contains_key("end"), "{test}: {status} in {:?}", last(&file));
            return answers;
        }
        if begun.elapsed() > PATIENCE {
            let waiting = crate::support::mounted::waiting(child.id());
            child.kill().unwrap();
            panic!("{test}: hangs in {:?}\n{waiting}", last(&file));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn read(file: &Path) -> Answers {
    let mut answers = Answers::new();
    let mut case = String::new();
    for line in fs::read_to_string(file).unwrap_or_default().lines() {
        if let Some(name) = line.strip_prefix("case ") {
            case = name.to_owned();
            answers.insert(case.clone(), Vec::new());
        } else if line == "end" {
            answers.insert("end".to_owned(), Vec::new());
        } else {
            answers.entry(case.clone()).or_default().push(line.to_owned());
        }
    }
    answers
}

/// The case that was last begun.
fn last(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().rev().find(|line| line.starts_with("case ")).map(str::to_owned)
}

/// Returns true if both lines tell of the same space but for blocks of the map: how many these are depends on where data lies.
fn same_space(left: &str, right: &str) -> bool {
    let sectors = |line: &str| line.trim().strip_prefix("sectors -> ")?.parse::<u64>().ok();
    let (Some(left), Some(right)) = (sectors(left), sectors(right)) else { return false };
    left.abs_diff(right) <= 16 && (left == 0) == (right == 0)
}

/// Asserts that both answered the same, except for what is excused. Prints the excuses that it did not need.
pub fn compare(profile: &str, expected: &Answers, found: &Answers, excuses: &[Excuse]) {
    let mut differ = Vec::new();
    let mut used = vec![false; excuses.len()];
    for (case, lines) in expected {
        let other = found.get(case).map_or(&[][..], Vec::as_slice);
        for at in 0..lines.len().max(other.len()) {
            let (left, right) = (lines.get(at), other.get(at));
            if left == right || left.zip(right).is_some_and(|(left, right)| same_space(left, right)) {
                continue;
            }
            let excuse = excuses.iter().position(|excuse| excuse.covers(case, left, right));
            if let Some(excuse) = excuse {
                used[excuse] = true;
                continue;
            }
            let show = |line: Option<&String>| {
                line.map_or("nothing".to_owned(), |line| line.trim().chars().take(160).collect())
            };
            let before: Vec<String> =
                (at.saturating_sub(2)..at).map(|at| format!("    {}\n", show(lines.get(at)))).collect();
            let before = before.concat();
            differ.push(format!("{case} ({at}):\n{before}  kernel {}\n  found  {}", show(left), show(right)));
            if lines.len() != other.len() {
                break;
            }
        }
    }
    let cases = expected.len();
    let lines: usize = expected.values().map(Vec::len).sum();
    eprintln!("{profile}: {cases} cases, {lines} lines, {} differ", differ.len());
    assert!(differ.is_empty(), "{profile}: {} lines differ\n{}", differ.len(), differ.join("\n"));
    let unused = excuses.iter().zip(used).filter(|(_, used)| !used);
    let unused: Vec<&str> = unused.map(|(excuse, _)| excuse.case).collect();
    eprintln!("{profile}: not needed here: {unused:?}");
}
