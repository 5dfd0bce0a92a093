//! Marks of processes: others on the same host see by them that a holder has ended.
//!
//! Owns: the mark of a process, and the judgement if the process of a mark has ended. Excludes what is held.

use std::io;

/// Characters that say who has a volume; with the mark of the process they are fewer bytes than a manifest may have.
const WORDS: usize = 64;

/// Identity of this process among all: the boot of this host, the space that its number counts in, and when it
/// began.
pub(crate) fn mark() -> String {
    let pid = std::process::id();
    let begun = line(pid).ok().and_then(|stat| thread(&stat)).map_or(0, |(ticks, _)| ticks);
    format!("{} process {pid} begun {begun}", space().unwrap_or_default())
}

/// Says who has something, with the local log that its writes lie in before they are in the store: the log's mark, and
/// the last record that the store has.
pub(crate) fn named(words: &str, local: Option<(u64, u64)>) -> String {
    let words: String = words.chars().take(WORDS).collect();
    let log = local.map_or_else(String::new, |(token, sent)| format!(", log {token:016x}.{sent:x}"));
    format!("{words}{log} ({})", mark())
}

/// The local log that a holder's text names.
pub(crate) fn log(holder: &str) -> Option<(u64, u64)> {
    let (words, _) = holder.rsplit_once(" (")?;
    let (token, sent) = words.rsplit_once(", log ")?.1.split_once('.')?;
    Some((u64::from_str_radix(token, 16).ok()?, u64::from_str_radix(sent, 16).ok()?))
}

/// The boot of this host, and the container whose processes are seen here; `None` where either is hidden, since hosts could
/// not be told apart then.
fn space() -> Option<String> {
    let boot = platfs_host::system::text("/proc/sys/kernel/random/boot_id").ok()?;
    let space = platfs_host::system::link("/proc/self/ns/pid").ok()?;
    (!boot.trim().is_empty()).then(|| format!("boot {} space {}", boot.trim(), space.display()))
}

/// The kernel's line about a process or a thread of it. The name in it is any bytes.
fn line_at(path: &str) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&platfs_host::system::read(path)?).into_owned())
}

fn line(pid: u32) -> io::Result<String> {
    line_at(&format!("/proc/{pid}/stat"))
}

/// True if an error says that there is no such process or thread.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(ENOENT | ESRCH))
}

/// Numbers of errors of a process or thread that is not there any more.
const ENOENT: i32 = 2;
const ESRCH: i32 = 3;

/// Bit of a thread's flags that says that it is ending: it runs no more code of its program (PF_EXITING in proc(5)'s `flags`).
const EXITING: u64 = 4;

/// True if the process that began at `ticks` under this number runs no more code: another has its number, or none, or it is
/// ending. While it ends its connections are closed already, so that others look at it in this state. A process whose line
/// can't be read may live.
fn has_ended(pid: u32, ticks: u64) -> bool {
    match line(pid) {
        Err(error) => is_absent(&error),
        Ok(stat) => {
            thread(&stat).is_some_and(|(begun, is_over)| begun != ticks || is_over && !has_threads(pid))
        }
    }
}

/// Reads the kernel's line about a thread: when its process began, in ticks since the boot, and true if the thread has ended
/// or is ending.
fn thread(stat: &str) -> Option<(u64, bool)> {
    let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let flags: u64 = words.get(6)?.parse().ok()?;
    let is_over = matches!(*words.first()?, "Z" | "X" | "x") || flags & EXITING != 0;
    Some((words.get(19)?.parse().ok()?, is_over))
}

/// True if a thread of a process works on, as others may after the first has ended. A thread that can't be seen may work.
fn has_threads(pid: u32) -> bool {
    let threads = match platfs_host::system::names(format!("/proc/{pid}/task")) {
        Ok(threads) => threads,
        Err(error) => return !is_absent(&error),
    };
    threads.iter().any(|name| match line_at(&format!("/proc/{pid}/task/{}/stat", name.display())) {
        Ok(stat) => thread(&stat).is_none_or(|(_, is_over)| !is_over),
        Err(error) => !is_absent(&error),
    })
}

/// True if the holder, in whose text its mark stands in brackets at the end, was a process that would be seen here, and has ended.
pub(crate) fn is_gone(holder: &str) -> bool {
    let mark = holder.rsplit_once('(').map_or("", |(_, mark)| mark.trim_end_matches(')'));
    let Some((place, process)) = mark.split_once(" process ") else { return false };
    let Some((pid, ticks)) = process.split_once(" begun ") else { return false };
    let (Ok(pid), Ok(ticks)) = (pid.parse::<u32>(), ticks.parse::<u64>()) else { return false };
    // Process 1 is always there. Where it is hidden, other live processes may be hidden, too.
    ticks != 0 && space().is_some_and(|own| own == place) && line(1).is_ok() && has_ended(pid, ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_process_until_its_parent_asks_holds_nothing() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let path = format!("/proc/{}/stat", child.id());
        let is_dead = || std::fs::read_to_string(&path).is_ok_and(|stat| stat.contains(") Z "));
        while !is_dead() {
            std::thread::yield_now();
        }
        let stat = std::fs::read_to_string(&path).unwrap();
        let ticks = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().to_owned();
        let space = space().unwrap();
        let holder = format!("plat on here ({space} process {} begun {ticks})", child.id());
        assert!(is_gone(&holder), "{holder}");
        child.wait().unwrap();
        assert!(!is_gone(&named("plat", None)));
        // A process that could not know when it began may live.
        assert!(!is_gone(&format!("plat ({space} process {} begun 0)", std::process::id())));
        assert_eq!(thread(&stat), Some((ticks.parse().unwrap(), true)));
        let own = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert!(thread(&own).is_some_and(|(_, is_over)| !is_over), "{own}");
    }

    #[test]
    fn a_process_that_is_ending_holds_nothing() {
        let line = |state: &str, flags: u64| {
            format!("7 (plat) {state} 1 7 7 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0")
        };
        assert_eq!(thread(&line("R", 0x40_0040)), Some((4711, false)));
        assert_eq!(thread(&line("R", 0x40_0044)), Some((4711, true)));
        assert_eq!(thread(&line("Z", 0x40_0040)), Some((4711, true)));
    }
}
