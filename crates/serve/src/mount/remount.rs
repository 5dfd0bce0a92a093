//! Changing how something is mounted while it is: whether it can be written, and whether set-user-id bits,
//! device nodes and programs work. These are the kernel's to keep. All else was settled when the mount began, between
//! the process that serves it and the kernel, and stays.

use std::path::Path;

use platfs_host::path;
use rustix::fs::OFlags;
use rustix::fs::StatVfsMountFlags as Now;
use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::statistics;
use platfs_open::door;

/// Words of a mount by FUSE, which mount(8) says again when it remounts.
const OF_FUSE: &[&str] =
    &["user_id", "group_id", "rootmode", "fd", "max_read", "subtype", "allow_other", "default_permissions"];

/// Returns true if a word describes how FUSE has mounted.
pub(super) fn is_of_fuse(word: &str) -> bool {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    OF_FUSE.contains(&name)
}

/// The words that a remount acts on, each with the flag it sets (`true`) or clears.
const CHANGEABLE: [(&str, MountFlags, bool); 8] = [
    ("ro", MountFlags::RDONLY, true),
    ("rw", MountFlags::RDONLY, false),
    ("nosuid", MountFlags::NOSUID, true),
    ("suid", MountFlags::NOSUID, false),
    ("nodev", MountFlags::NODEV, true),
    ("dev", MountFlags::NODEV, false),
    ("noexec", MountFlags::NOEXEC, true),
    ("exec", MountFlags::NOEXEC, false),
];

/// Steps of a remount.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Plan {
    flags: MountFlags,
    /// Words that it does not act on.
    passed_over: Vec<String>,
}

fn plan<'a>(mut flags: MountFlags, words: impl IntoIterator<Item = &'a str>) -> Plan {
    let mut passed_over = Vec::new();
    for word in words {
        if let Some((_, flag, on)) = CHANGEABLE.iter().find(|(known, ..)| *known == word) {
            flags.set(*flag, *on);
        // mount(8) says `relatime` again too: the kernel shows it for each mount that nobody gave another word.
        } else if !matches!(word, "remount" | "relatime")
            && !is_of_fuse(word)
            && !super::options::is_as_it_is(word)
        {
            passed_over.push(word.to_owned());
        }
    }
    Plan { flags, passed_over }
}

/// Remounts what is mounted on a directory; returns the warning, if there is one.
///
/// # Errors
/// Why it can't be done, without the directory's name.
pub fn remount<'a>(
    directory: &Path,
    words: impl IntoIterator<Item = &'a str>,
) -> Result<Option<String>, String> {
    match door::mounted_on(directory) {
        Some(mount) if mount.kind == "fuse.plat" => {}
        Some(mount) => return Err(format!("a mount of type {}, not of plat", mount.kind)),
        None => return Err("nothing is mounted here".into()),
    }
    let now = path::open(directory, OFlags::PATH).and_then(|root| Ok(rustix::fs::fstatvfs(root)?.f_flag));
    let now = now.map_err(|error| error.to_string())?;
    let mut flags = MountFlags::empty();
    for (set, flag) in [
        (Now::RDONLY, MountFlags::RDONLY),
        (Now::NOSUID, MountFlags::NOSUID),
        (Now::NODEV, MountFlags::NODEV),
        (Now::NOEXEC, MountFlags::NOEXEC),
    ] {
        flags.set(flag, now.contains(set));
    }
    let Plan { flags, passed_over } = plan(flags, words);
    if !flags.contains(MountFlags::RDONLY) && !statistics::is_writable(directory) {
        return Err("was mounted for reading only: unmount it, and mount it again for writing".into());
    }
    rustix::mount::mount_remount(directory, flags, c"").map_err(|error| match error {
        Errno::BUSY => "files are open for writing".to_owned(),
        Errno::PERM => "only root can remount".to_owned(),
        error => error.to_string(),
    })?;
    if flags.contains(MountFlags::RDONLY) {
        // The kernel has handed over what it held, but says nothing of the remount to who serves.
        let stable = path::open(directory, OFlags::RDONLY).and_then(|root| root.sync_all());
        stable.map_err(|error| format!("what was written is not stable: {error}"))?;
    }
    let words: Vec<String> = passed_over.iter().map(|word| format!("`{word}`")).collect();
    Ok((!words.is_empty()).then(|| {
        let words = words.join(", ");
        format!("a remount changes ro, suid, dev and exec only; of {words} all stays as it was mounted")
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_count_are_heeded_and_the_rest_is_reported() {
        let begun = MountFlags::NOSUID | MountFlags::NODEV;
        let of = |words: &str| plan(begun, words.split(','));
        assert_eq!(of("remount,ro").flags, begun | MountFlags::RDONLY);
        assert_eq!(of("ro,remount,rw,suid").flags, MountFlags::NODEV);
        let said = of("rw,nosuid,noexec,user_id=0,group_id=0,default_permissions,allow_other,remount,nofail");
        assert_eq!((said.flags, said.passed_over), (begun | MountFlags::NOEXEC, vec![]));
        assert_eq!(of("remount,ro,relatime").passed_over, [""; 0]);
        assert_eq!(of("remount,data=journal,noatime").passed_over, ["data=journal", "noatime"]);
    }
}
