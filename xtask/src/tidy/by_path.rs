//! Calls that name a file of the host by its path.
//!
//! Owns: the rule that files below a directory are reached by `platfs_host`, and the places where a path is the user's own
//! word or one of the system's. Numbers only shrink: a path that is used twice, or that leads through what others may
//! change, is a way for them to send root's command elsewhere.

use super::source::Code;

/// Crates of which this is asked.
const CRATES: [&str; 4] = ["crates/cli/src/", "crates/image/src/", "crates/open/src/", "crates/store/src/"];

/// What takes a path.
const FORMS: [&str; 21] = [
    "File::create(",
    "File::create_new(",
    "File::open(",
    "File::options(",
    "fs::canonicalize(",
    "fs::copy(",
    "fs::create_dir(",
    "fs::create_dir_all(",
    "fs::hard_link(",
    "fs::metadata(",
    "fs::open(",
    "fs::read(",
    "fs::read_dir(",
    "fs::read_link(",
    "fs::read_to_string(",
    "fs::remove_dir",
    "fs::remove_file(",
    "fs::rename(",
    "fs::set_permissions(",
    "fs::symlink_metadata(",
    "fs::write(",
];

const LOOK: &str =
    "what kind of thing the user's own word leads to: a look, behind which nothing is opened by it";
const STREAM: &str = "a pipe or device that the user named, which is waited for, as by any command";
const SYSTEM: &str = "what the system shows: `/proc`, `/sys`, `/dev`, `/etc/passwd`";
const IN_USE: &str = "whether an image is in use: what the kernel shows of devices";
const PLACE: &str = "a new place that the user named";
const PLANTED: &str = "what a test has a program in a stranger's hands try";
const MOUNT: &str = "a mount, which no other way leads to";

/// Files with such calls, how many, and what they are about.
const KNOWN: [(&str, usize, &str); 34] = [
    ("crates/cli/src/commands/build.rs", 1, LOOK),
    ("crates/cli/src/commands/build/sources.rs", 1, LOOK),
    ("crates/cli/src/commands/diff.rs", 1, LOOK),
    ("crates/cli/src/commands/export.rs", 2, PLACE),
    ("crates/cli/src/commands/map/extents.rs", 1, LOOK),
    ("crates/cli/src/commands/mkfs/target.rs", 1, LOOK),
    ("crates/cli/src/commands/mount.rs", 1, LOOK),
    ("crates/cli/src/commands/placing.rs", 1, MOUNT),
    ("crates/cli/src/commands/quota.rs", 1, MOUNT),
    ("crates/cli/src/commands/quota/projects.rs", 1, LOOK),
    ("crates/cli/src/commands/resize/partition.rs", 1, LOOK),
    ("crates/cli/src/commands/sync.rs", 3, MOUNT),
    ("crates/cli/src/control/client.rs", 1, MOUNT),
    ("crates/cli/src/control/views.rs", 3, SYSTEM),
    ("crates/open/src/door/claim.rs", 1, SYSTEM),
    ("crates/open/src/door/ground.rs", 9, IN_USE),
    ("crates/open/src/door/mod.rs", 1, LOOK),
    ("crates/open/src/door/mounts.rs", 1, SYSTEM),
    ("crates/open/src/image/mod.rs", 1, LOOK),
    ("crates/cli/src/manual/mod.rs", 3, PLACE),
    ("crates/cli/src/memory.rs", 3, SYSTEM),
    ("crates/cli/src/mount/daemon.rs", 2, SYSTEM),
    ("crates/cli/src/mount/remount.rs", 1, MOUNT),
    ("crates/cli/src/mount/tree/callers.rs", 5, SYSTEM),
    ("crates/cli/src/mount/tree/calls.rs", 3, SYSTEM),
    ("crates/cli/src/mount/tree/guard.rs", 1, SYSTEM),
    ("crates/cli/src/mount/tuning.rs", 4, SYSTEM),
    ("crates/cli/src/owner.rs", 1, SYSTEM),
    ("crates/cli/src/signals.rs", 1, SYSTEM),
    ("crates/cli/src/sandbox/planted.rs", 10, PLANTED),
    ("crates/open/src/stores.rs", 1, SYSTEM),
    ("crates/image/src/named.rs", 1, LOOK),
    ("crates/image/src/source/open.rs", 1, STREAM),
    ("crates/store/src/holder.rs", 3, SYSTEM),
];

/// Complains of calls beyond those that are known.
pub(super) fn check(shown: &str, code: &Code, found: &mut Vec<String>) {
    if !CRATES.iter().any(|path| shown.starts_with(path)) {
        return;
    }
    // A longer name that ends so is another one, as `platfs::open(`.
    let is_whole = |at: usize| {
        !code.text.as_bytes().get(at.wrapping_sub(1)).is_some_and(|byte| super::source::in_name(*byte))
    };
    let calls = FORMS.iter().flat_map(|form| code.text.match_indices(form));
    let lines: Vec<usize> = calls.filter(|(at, _)| is_whole(*at)).map(|(at, _)| code.line(at)).collect();
    let known = KNOWN.iter().find(|(path, ..)| *path == shown).map_or(0, |(_, count, _)| *count);
    if lines.len() > known {
        found.push(format!(
            "{shown}: names files by path in lines {lines:?}, {known} such calls are known in \
             xtask/src/tidy/by_path.rs; open them below a directory (`platfs_host`)"
        ));
    }
}
