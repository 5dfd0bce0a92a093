//! Which process holds something, so that others on its host see that it has ended.
//!
//! Owns: the mark of a process, and whether the one of a mark is gone. Excludes what is held.

/// Characters that say who has a volume; with the mark of the process they are fewer bytes than a manifest may have.
const WORDS: usize = 64;

/// Identity of this process among all: the boot of this host, the space that its number counts in, and when it
/// began.
pub(crate) fn mark() -> String {
    let pid = std::process::id();
    format!("{} process {pid} begun {}", space(), begun(pid).unwrap_or(0))
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

/// The boot of this host, and the container whose processes are seen here.
fn space() -> String {
    let boot = platfs_host::system::text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = platfs_host::system::link("/proc/self/ns/pid").unwrap_or_default();
    format!("boot {} space {}", boot.trim(), space.display())
}

/// When a process of this host began, in ticks since the boot; nothing if there is none, or only what is left of it until
/// its parent asks.
fn begun(pid: u32) -> Option<u64> {
    living(&platfs_host::system::text(format!("/proc/{pid}/stat")).ok()?)
}

/// As that, by the process's line.
fn living(stat: &str) -> Option<u64> {
    let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let threads: u64 = words.get(17)?.parse().ok()?;
    // A process whose first thread has ended looks dead while others work.
    let is_dead = matches!(*words.first()?, "Z" | "X" | "x") && threads <= 1;
    words.get(19)?.parse().ok().filter(|_| !is_dead)
}

/// True if the holder, in whose text its mark stands in brackets at the end, was a process that would be seen here, and has ended.
pub(crate) fn is_gone(holder: &str) -> bool {
    let mark = holder.rsplit_once('(').map_or("", |(_, mark)| mark.trim_end_matches(')'));
    let Some((place, process)) = mark.split_once(" process ") else { return false };
    let Some((pid, ticks)) = process.split_once(" begun ") else { return false };
    let (Ok(pid), Ok(ticks)) = (pid.parse::<u32>(), ticks.parse::<u64>()) else { return false };
    // Where nothing is known of processes none is known to have ended.
    begun(std::process::id()).is_some() && place == space() && begun(pid) != Some(ticks)
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
        let holder = format!("plat on here ({} process {} begun {ticks})", space(), child.id());
        assert!(is_gone(&holder), "{holder}");
        child.wait().unwrap();
        assert!(!is_gone(&named("plat", None)));
        assert_eq!(living(&stat.replacen(") Z ", ") S ", 1)), ticks.parse().ok());
    }
}
