//! Memory that this process may use: the machine's, or less where a limit is set.
//!
//! Owns: the limits of control groups (of both versions, along the whole path) and of the address space, and the message
//! for a server that its limits leave too little. Excludes the uses of the memory.

use std::io;
use std::path::{Path, PathBuf};

use platfs_host::system;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";

/// Bytes of memory of this machine, as Linux reports it.
#[must_use]
pub fn of_machine() -> Option<u64> {
    total(&system::text("/proc/meminfo").unwrap_or_default())
}

/// Bytes that a limit leaves to this process, if there is one below what the machine has.
#[must_use]
pub fn limit() -> Option<u64> {
    let text = system::text("/proc/self/cgroup").unwrap_or_default();
    let of_groups = places(&text, Path::new(GROUPS)).into_iter().filter_map(|file| {
        // `max` is none.
        system::text(file).ok()?.trim().parse::<u64>().ok()
    });
    let least = of_groups.chain(getrlimit(Resource::As).current).min()?;
    (of_machine().is_none_or(|machine| least < machine)).then_some(least)
}

/// Bytes that a check may take where the machine does not say what it has.
const LEAST: u64 = 2 << 30;

/// Bytes that a check may take: a volume that holds very much needs them, a hostile one must not take all. Three quarters of
/// the machine's memory for what is known of the volume, and as much at most for repairs.
#[must_use]
pub fn for_check() -> u64 {
    of_machine().map_or(LEAST, |bytes| (bytes / 4 * 3).max(LEAST))
}

/// Address space that a server of a mount needs: stacks of its threads, what it shares with the kernel, its caches.
const TO_SERVE: u64 = 256 << 20;

/// Checks that the address space of this process is wide enough for a server. One that runs out of it ends in the middle of its
/// work, and its mount is dead then.
///
/// # Errors
/// The limit that is too low.
pub fn room_to_serve() -> Result<(), String> {
    match getrlimit(Resource::As).current {
        Some(most) if most < TO_SERVE => Err(format!(
            "the address space of this process is limited to {} KiB, and a mount needs {} (`ulimit -v`)",
            most >> 10,
            TO_SERVE >> 10
        )),
        _ => Ok(()),
    }
}

/// A failure to begin to serve, with the limit that it comes from.
#[must_use]
pub fn lacking(error: &io::Error) -> String {
    let has = |what: &str, resource| {
        let most =
            getrlimit(resource).current.map_or("as many as it wants".to_owned(), |most| most.to_string());
        format!("{error}: this process may have {most} {what}")
    };
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => has("descriptors (`ulimit -n`)", Resource::Nofile),
        // A thread could not be started.
        Some(Errno::AGAIN) => has(
            "processes and threads with others of its user (`ulimit -u`), and memory for them",
            Resource::Nproc,
        ),
        _ => error.to_string(),
    }
}

fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The files that may limit the memory of a process, by what `/proc/self/cgroup` says: those of its group and of all above
/// it. A group that is seen from inside a container is named as outside; there only the root is found.
fn places(text: &str, groups: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (roots, file): (&[&str], _) = match controllers {
            "" => (&["", "unified"], "memory.max"),
            _ if controllers.split(',').any(|word| word == "memory") => {
                (&["memory", "cpu,memory"], "memory.limit_in_bytes")
            }
            _ => continue,
        };
        for root in roots {
            let root = groups.join(root);
            let own = root.join(path.trim_start_matches('/'));
            let above = own.ancestors().take_while(|place| place.starts_with(&root));
            found.extend(above.map(|place| place.join(file)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_where_it_is_known() {
        assert_eq!(total("MemFree: 1 kB\nMemTotal:       24645900 kB\n"), Some(24_645_900 << 10));
        assert_eq!((total(""), total("MemTotal: much kB")), (None, None));
        assert!(of_machine().is_some());
    }

    #[test]
    fn what_a_server_lacks_is_named_with_its_limit() {
        let said = |error: Errno| lacking(&io::Error::from(error));
        assert!(said(Errno::MFILE).contains("ulimit -n") && said(Errno::AGAIN).contains("ulimit -u"));
        assert!(!said(Errno::IO).contains("ulimit"));
        assert_eq!(room_to_serve(), Ok(()));
    }

    #[test]
    fn all_groups_above_a_process_limit_it() {
        let found = places("9:name=systemd:/\n4:memory:/a/b\n0::/c\nodd\n", Path::new("/g"));
        let found: Vec<&str> = found.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(
            found[..3],
            [
                "/g/memory/a/b/memory.limit_in_bytes",
                "/g/memory/a/memory.limit_in_bytes",
                "/g/memory/memory.limit_in_bytes"
            ]
        );
        assert!(found.contains(&"/g/c/memory.max") && found.contains(&"/g/memory.max"), "{found:?}");
        assert!(found.contains(&"/g/unified/c/memory.max"), "{found:?}");
    }
}
