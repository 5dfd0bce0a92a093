//! Which process holds something, so that others on its host see that it has ended.
//!
//! Owns: the mark of a process, and whether the one of a mark is gone. Excludes what is held.

/// What tells this process from all others: the boot of this host, the space that its number counts in, and when it
/// began.
pub(crate) fn mark() -> String {
    let pid = std::process::id();
    format!("{} process {pid} begun {}", space(), begun(pid).unwrap_or(0))
}

/// The boot of this host, and the container whose processes are seen here.
fn space() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("boot {} space {}", boot.trim(), space.display())
}

/// When a process of this host began, in ticks since the boot.
fn begun(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Whether the holder, in whose text its mark stands in brackets at the end, was a process that would be seen here, and has ended.
pub(crate) fn is_gone(holder: &str) -> bool {
    let mark = holder.rsplit_once('(').map_or("", |(_, mark)| mark.trim_end_matches(')'));
    let Some((place, process)) = mark.split_once(" process ") else { return false };
    let Some((pid, ticks)) = process.split_once(" begun ") else { return false };
    let (Ok(pid), Ok(ticks)) = (pid.parse::<u32>(), ticks.parse::<u64>()) else { return false };
    // Where nothing is known of processes none is known to have ended.
    begun(std::process::id()).is_some() && place == space() && begun(pid) != Some(ticks)
}
